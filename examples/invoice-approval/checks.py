"""What no shipped check can see: the bank's ledger, compared with the invoices and the report, invoice by invoice."""

import csv
import re
from collections import defaultdict
from decimal import Decimal

from checkrein.verify import CheckContext, Measurement, check

from .ledger import ledger_of, payments
from .plan import COUNTRY
from .report import REPORT


@check(path=REPORT, title="the bank booked every invoice that was paid once, in full, and none that was not")
def paid_exactly_once(context: CheckContext) -> Measurement:
    """Compare: an invoice that was paid, in this run or before it, has one row in the ledger; one that the report leaves unpaid has none."""
    booked: defaultdict[int, list[int]] = defaultdict(list)
    for payment in payments(ledger_of(context.folder)):
        booked[payment.invoice_id].append(payment.cents)
    _, _, tables = (context.folder / REPORT).read_text(encoding="utf-8").partition("## Paid")
    paid, unpaid = (_numbers(table) for table in tables.split("## Not paid"))
    due = _due(context)
    wrong = [
        f"invoice {number} over {cents} cents was booked as {booked[number]}"
        for number, cents in due.items()
        if booked[number] != ([] if number in unpaid else [cents])
    ]
    wrong += [f"{number} is no invoice of {COUNTRY}" for number in sorted((paid | unpaid | set(booked)) - set(due))]
    if wrong:
        return Measurement(passed=False, text="; ".join(wrong), code="wrong_payments")
    text = f"of {len(due)} invoices {len(due) - len(unpaid)} were booked once, and {len(unpaid)} not at all"
    return Measurement(passed=True, text=text)


def _due(context: CheckContext) -> dict[int, int]:
    """Return what each invoice comes to, in cents."""
    with context.inputs["invoices"].open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["country"] == COUNTRY]
    return {int(row["invoice_id"]): int(Decimal(row["total"]) * 100) for row in rows}


def _numbers(tables: str) -> set[int]:
    return {int(number) for number in re.findall(r"^\| (\d+) \|", tables, re.MULTILINE)}
