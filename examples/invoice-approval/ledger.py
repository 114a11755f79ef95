"""The bank's side: a ledger that books whatever order it is given, kept beside the folders of the runs, because a bank outlives them.

Nothing here keeps an invoice from being paid twice: the table has no UNIQUE, so a payment made twice is two rows, for everybody to see. It promises one thing, which
every probe needs: an order that was voided is not booked any more, however late it comes. Run this file to read the ledger.
"""

import sqlite3
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple, cast

_TABLES = (
    "CREATE TABLE IF NOT EXISTS payments (idempotency_key TEXT NOT NULL, invoice_id INTEGER NOT NULL, cents INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS voided (idempotency_key TEXT NOT NULL)",
)
_BOOK = """
INSERT INTO payments SELECT :key, :invoice, :cents
WHERE NOT EXISTS (SELECT 1 FROM voided WHERE idempotency_key = :key)
"""
_BUSY_SECONDS = 20


class Payment(NamedTuple):
    """One row: money that was moved."""

    idempotency_key: str
    invoice_id: int
    cents: int

    @property
    def amount(self) -> str:
        """The amount in USD."""
        return f"{self.cents / 100:.2f}"


def ledger_of(run_folder: Path) -> Path:
    """Return the ledger's file: in the workspace, beside the folders of all runs."""
    return run_folder.parent / "ledger.db"


def book(ledger: Path, payment: Payment) -> bool:
    """Book an order; False when it was voided before."""
    with _opened(ledger) as database:
        named = {"key": payment.idempotency_key, "invoice": payment.invoice_id, "cents": payment.cents}
        return database.execute(_BOOK, named).rowcount == 1


def find_or_void(ledger: Path, key: str) -> Payment | None:
    """Return what was booked under a key; None when nothing was, and then nothing ever will be."""
    with _opened(ledger) as database:
        row = database.execute("SELECT * FROM payments WHERE idempotency_key = ?", (key,)).fetchone()
        if row is None:
            database.execute("INSERT INTO voided VALUES (?)", (key,))
        return None if row is None else Payment(*cast("tuple[str, int, int]", row))


def payments(ledger: Path) -> list[Payment]:
    """Return all payments, in the order in which they were booked."""
    with _opened(ledger) as database:
        rows = cast("list[tuple[str, int, int]]", database.execute("SELECT * FROM payments ORDER BY rowid").fetchall())
    return [Payment(*row) for row in rows]


@contextmanager
def _opened(ledger: Path) -> Generator[sqlite3.Connection]:
    """Open the ledger for one transaction, alone from its first read on."""
    with closing(sqlite3.connect(ledger, timeout=_BUSY_SECONDS, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        for table in _TABLES:
            database.execute(table)
        yield database
        database.execute("COMMIT")


def _main() -> None:
    ledger = Path(__file__).parent / "out" / "ledger.db"
    booked = payments(ledger) if ledger.exists() else []
    for payment in sorted(booked, key=lambda item: item.invoice_id):
        sys.stdout.write(f"invoice {payment.invoice_id:3}  {payment.amount:>5} USD  {payment.idempotency_key}\n")
    total = sum(payment.cents for payment in booked)
    sys.stdout.write(f"{len(booked)} payments, {total / 100:.2f} USD\n")


if __name__ == "__main__":
    _main()
