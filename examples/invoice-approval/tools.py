"""The task's own tools: which invoices are open, a payment, and the bank's statement.

`pay` moves money, and doing it twice moves it twice: it is not idempotent and says so by saying nothing. What it has is a probe, which asks the bank.
"""

import csv
import time
from decimal import Decimal
from pathlib import Path
from typing import Annotated

from pydantic import Field

from checkrein import ToolContext, tool
from checkrein.errors import ToolError
from checkrein.ports.tool import ToolOutput

from .ledger import Payment, book, find_or_void, ledger_of, payments

STATEMENT = "statement.csv"
BANK_SECONDS = 1.0


@tool(idempotent=True)
def open_invoices(country: str, context: ToolContext) -> list[dict[str, object]]:
    """List the invoices of a country's customers that nobody has paid yet, the largest first.

    Args:
        country: where the customer lives.
        context: brings the invoices and the ledger.
    """
    paid = {payment.invoice_id for payment in payments(ledger_of(context.folder()))}
    with context.inputs["invoices"].open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["country"] == country]
    still_open = [row for row in rows if int(row["invoice_id"]) not in paid]
    still_open.sort(key=lambda row: (-Decimal(row["total"]), int(row["invoice_id"])))
    return [
        {"invoice_id": int(row["invoice_id"]), "date": row["date"], "amount": float(row["total"])} for row in still_open
    ]


def was_booked(context: ToolContext) -> tuple[str, object]:
    """Ask the bank what became of an order of which nobody knows.

    To answer that it failed is to promise that it will not happen any more. So an order that the bank has not got is voided: should the process that gave it be
    only frozen, and go on one day, the bank refuses it.
    """
    payment = find_or_void(ledger_of(context.folder()), context.idempotency_key)
    return ("done", _receipt(payment)) if payment else ("failed", "the bank never got the order, and it is void now")


@tool(reconcile=was_booked, timeout_seconds=30)
def pay(
    invoice_id: Annotated[int, Field(ge=1)], amount: Annotated[float, Field(gt=0)], context: ToolContext
) -> dict[str, object]:
    """Pay an invoice.

    Args:
        invoice_id: the invoice.
        amount: what to pay, in USD.
        context: brings the key under which the bank books it.
    """
    payment = Payment(context.idempotency_key, invoice_id, round(amount * 100))
    context.progress(f"invoice {invoice_id}: sending the order")
    time.sleep(BANK_SECONDS)
    if not book(ledger_of(context.folder()), payment):
        raise ToolError("the bank refused it: the order was voided")
    # From here on the money is gone, and nobody but the bank knows.
    context.progress(f"invoice {invoice_id}: waiting for the receipt")
    time.sleep(BANK_SECONDS)
    return _receipt(payment)


def _receipt(payment: Payment) -> dict[str, object]:
    return {"invoice_id": payment.invoice_id, "amount": payment.cents / 100, "receipt": payment.idempotency_key}


@tool(idempotent=True)
def bank_statement(invoices: list[int], context: ToolContext) -> ToolOutput:
    """Save what the bank has booked for some invoices as statement.csv, a line for each payment.

    Args:
        invoices: the invoices asked about.
        context: the run's folder and the ledger.
    """
    folder = context.folder()
    booked = [payment for payment in payments(ledger_of(folder)) if payment.invoice_id in invoices]
    lines = [f"{payment.invoice_id},{payment.amount},{payment.idempotency_key}\n" for payment in booked]
    _replace(folder / STATEMENT, "".join(["invoice_id,amount,receipt\n", *lines]))
    return ToolOutput({"path": STATEMENT, "payments": len(booked)}, artifacts=(STATEMENT,))


def _replace(file: Path, content: str) -> None:
    """Write a whole file: there is the old one or the new one, never a part."""
    part = file.with_name(f".{file.name}.partial")
    part.write_text(content, encoding="utf-8")
    part.replace(file)
