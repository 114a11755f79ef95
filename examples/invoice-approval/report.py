"""What the report says: which invoices were paid, and which were not, and why."""

import re
from collections.abc import Sequence

import msgspec

REPORT = "report.md"


class Invoice(msgspec.Struct, frozen=True):
    """An invoice that was open when the run began."""

    invoice_id: int
    date: str
    amount: float


class Outcome(msgspec.Struct, frozen=True):
    """What came of an invoice."""

    is_paid: bool
    reason: str = ""


def invoices_of(result: object) -> list[Invoice]:
    """Return the invoices that the tool found."""
    return msgspec.convert(result, list[Invoice])


def report(country: str, settled: Sequence[tuple[Invoice, Outcome]]) -> str:
    """Return the report as Markdown."""
    paid = [invoice for invoice, outcome in settled if outcome.is_paid]
    left = [(invoice, outcome.reason) for invoice, outcome in settled if not outcome.is_paid]
    total = sum(round(invoice.amount * 100) for invoice in paid)
    parts = [
        f"# Invoices of {country}",
        "## Summary",
        f"Total paid: {total / 100:.2f} USD, for {len(paid)} of {len(settled)} open invoices.",
        "## Paid",
        _table("Invoice | Date | Amount (USD)", [_row(invoice) for invoice in paid]),
        "## Not paid",
        _table("Invoice | Date | Amount (USD) | Why", [f"{_row(invoice)} | {_text(why)}" for invoice, why in left]),
    ]
    return "\n\n".join(parts) + "\n"


def _row(invoice: Invoice) -> str:
    return f"{invoice.invoice_id} | {invoice.date} | {invoice.amount:.2f}"


def _table(head: str, rows: Sequence[str]) -> str:
    if not rows:
        return "None."
    ruler = " | ".join(["---"] * len(head.split(" | ")))
    return "\n".join(f"| {row} |" for row in (head, ruler, *rows))


def _text(text: str) -> str:
    """Return a person's words on one line, with nothing in them that Markdown would take for a mark of its own."""
    return re.sub(r"([\\`*_\[\]<>|#~!])", r"\\\1", " ".join(text.split()))
