"""What no shipped check can see: the bank's ledger, compared with the report, invoice by invoice."""

import csv
import re
from collections import Counter

from checkrein.verify import CheckContext, Measurement, check

from .ledger import ledger_of, payments
from .plan import COUNTRY
from .report import REPORT


@check(path=REPORT, title="the bank booked every invoice once that was paid, and none that was not")
def paid_exactly_once(context: CheckContext) -> Measurement:
    """Compare: an invoice that was paid in this run or before has one row, one that the report leaves out has none."""
    booked = Counter(payment.invoice_id for payment in payments(ledger_of(context.folder)))
    _, _, tables = (context.folder / REPORT).read_text(encoding="utf-8").partition("## Paid")
    paid, unpaid = (_numbers(table) for table in tables.split("## Not paid"))
    with context.inputs["invoices"].open(encoding="utf-8", newline="") as file:
        known = {int(row["invoice_id"]) for row in csv.DictReader(file) if row["country"] == COUNTRY}
    wrong = [
        f"invoice {number} was booked {booked[number]} times"
        for number in sorted(known)
        if booked[number] != (number not in unpaid)
    ]
    wrong += [f"{number} is no invoice of {COUNTRY}" for number in sorted((paid | unpaid | set(booked)) - known)]
    if wrong:
        return Measurement(passed=False, text="; ".join(wrong), code="wrong_payments")
    return Measurement(
        passed=True, text=f"of {len(known)} invoices {booked.total()} were booked once, and {len(unpaid)} not at all"
    )


def _numbers(tables: str) -> set[int]:
    return {int(number) for number in re.findall(r"^\| (\d+) \|", tables, re.MULTILINE)}
