"""The figures of the report: the queries that give them, and what their results are.

Money is in whole cents throughout: a sum of binary fractions of a dollar would be off by a little.
"""

from collections.abc import Mapping
from datetime import date
from typing import TypeVar

import msgspec

from checkrein.harness.planners import StepRecord

T = TypeVar("T")

QUERIES = {
    "totals": """
        SELECT count(*) AS invoices, count(DISTINCT country) AS countries, min(date) AS first_day, max(date) AS last_day,
               CAST(sum(round(100 * total)) AS INTEGER) AS cents, (SELECT sum(quantity) FROM lines) AS items
        FROM invoices""",
    "sales by year": """
        SELECT CAST(substr(date, 1, 4) AS INTEGER) AS year, count(*) AS invoices, CAST(sum(round(100 * total)) AS INTEGER) AS cents
        FROM invoices GROUP BY year ORDER BY year""",
    "sales by country": """
        WITH span AS (SELECT CAST(max(substr(date, 1, 4)) AS INTEGER) AS last FROM invoices),
             sales AS (SELECT country, CAST(substr(date, 1, 4) AS INTEGER) AS year, round(100 * total) AS cents FROM invoices)
        SELECT country, count(*) AS invoices, CAST(sum(cents) AS INTEGER) AS cents,
               CAST(sum(cents * (year = last - 1)) AS INTEGER) AS cents_before, CAST(sum(cents * (year = last)) AS INTEGER) AS cents_last
        FROM sales, span GROUP BY country ORDER BY cents DESC, country""",
    "sales by genre": """
        SELECT genre, sum(quantity) AS items, CAST(sum(round(100 * unit_price) * quantity) AS INTEGER) AS cents
        FROM lines GROUP BY genre ORDER BY cents DESC, genre""",
}


class Totals(msgspec.Struct):
    """The whole business."""

    invoices: int
    countries: int
    first_day: date
    last_day: date
    cents: int
    items: int


class Year(msgspec.Struct):
    """One year."""

    year: int
    invoices: int
    cents: int


class Country(msgspec.Struct):
    """One country, and how it did in the last year and in the one before."""

    country: str
    invoices: int
    cents: int
    cents_before: int
    cents_last: int

    @property
    def gain(self) -> int:
        """Cents more in the last year than in the one before."""
        return self.cents_last - self.cents_before


class Genre(msgspec.Struct):
    """One genre."""

    genre: str
    items: int
    cents: int


class Figures(msgspec.Struct):
    """All that the report says is made of these."""

    totals: Totals
    years: list[Year]
    countries: list[Country]
    genres: list[Genre]


class _Table(msgspec.Struct):
    """What `sql_query` returns."""

    columns: list[str]
    rows: list[list[object]]


def figures_of(done: Mapping[str, StepRecord]) -> Figures:
    """Return the figures, given the records of all queries by name."""
    return Figures(
        totals=_rows(done["totals"], Totals)[0],
        years=_rows(done["sales by year"], Year),
        countries=_rows(done["sales by country"], Country),
        genres=_rows(done["sales by genre"], Genre),
    )


def _rows(record: StepRecord, kind: type[T]) -> list[T]:
    table = msgspec.convert(record.result, _Table)
    return msgspec.convert([dict(zip(table.columns, row, strict=True)) for row in table.rows], list[kind])
