"""The real invoices and lines of the store: the figures a report over them must show, proved and disproved."""

import csv
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from tests.unit.verify.measuring import INPUTS, measure, write

TOTAL = {"input": "invoices", "column": "total"}
GENRES = {"input": "lines", "by": "genre", "column": "unit_price", "times": "quantity"}


def _rows(name: str) -> Iterator[dict[str, str]]:
    with INPUTS[name].open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _table(name: str, figures: dict[str, Decimal]) -> str:
    rows = "".join(f"| {key} | ${figure:,} |\n" for key, figure in figures.items())
    return f"| {name} | Sales |\n|---|---:|\n{rows}| **Total** | ${sum(figures.values()):,} |\n"


@pytest.fixture
def report(tmp_path: Path) -> str:
    """Write a right report and return its text."""
    years: dict[str, Decimal] = {}
    countries: dict[str, Decimal] = {}
    genres: dict[str, Decimal] = {}
    for row in _rows("invoices"):
        years[row["date"][:4]] = years.get(row["date"][:4], Decimal(0)) + Decimal(row["total"])
        countries[row["country"]] = countries.get(row["country"], Decimal(0)) + Decimal(row["total"])
    for row in _rows("lines"):
        amount = Decimal(row["unit_price"]) * int(row["quantity"])
        genres[row["genre"]] = genres.get(row["genre"], Decimal(0)) + amount
    text = (
        f"# Store report\n\nTotal sales: ${sum(years.values()):,} from 412 invoices.\n\n## Years\n\n"
        f"{_table('Year', years)}\n## Countries\n\n{_table('Country', countries)}\n## Genres\n\n{_table('Genre', genres)}"
    )
    write(tmp_path, "report.md", text)
    return text


CHECKS: list[tuple[str, dict[str, object]]] = [
    ("sum", {"source": TOTAL, "reported": {"path": "report.md", "after": "Total sales"}}),
    ("table", {"heading": "Years", "rows": 5, "total": {"column": "Sales", "source": TOTAL}}),
    (
        "table",
        {"heading": "Years", "groups": {"key": "Year", "column": "Sales", "source": {**TOTAL, "by_year": "date"}}},
    ),
    ("table", {"heading": "Countries", "rows": {"input": "invoices", "distinct": "country"}}),
    (
        "table",
        {
            "heading": "Countries",
            "rows": 24,
            "groups": {"key": "Country", "column": "Sales", "source": {**TOTAL, "by": "country"}},
        },
    ),
    ("table", {"heading": "Genres", "rows": 24, "groups": {"key": "Genre", "column": "Sales", "source": GENRES}}),
]


@pytest.mark.parametrize(("kind", "options"), CHECKS)
async def test_a_right_report_over_the_real_data_passes(
    kind: str, options: dict[str, object], report: str, tmp_path: Path
) -> None:
    assert "$2,328.60" in report
    own = {} if kind == "sum" else {"path": "report.md"}
    measured = await measure(kind, {**own, **options}, tmp_path)
    assert measured.passed, measured.text


async def test_the_sums_of_invoices_and_lines_are_the_known_ones(tmp_path: Path) -> None:
    write(tmp_path, "summary.json", '{"total": 2328.60}')
    lines = {"input": "lines", "column": "unit_price", "times": "quantity"}
    for source, rows in ((TOTAL, 412), (lines, 2240)):
        options = {"source": source, "reported": {"path": "summary.json", "pointer": "/total"}}
        measured = await measure("sum", options, tmp_path)
        assert measured.passed
        assert (measured.data["expected"], measured.data["rows"]) == ("2328.60", rows)


async def test_a_cent_moved_from_one_country_to_another_is_seen_although_the_total_is_right(
    report: str, tmp_path: Path
) -> None:
    wrong = report.replace("| Norway | $39.62 |", "| Norway | $39.61 |").replace(
        "| Germany | $156.48 |", "| Germany | $156.49 |"
    )
    assert wrong != report
    write(tmp_path, "report.md", wrong)
    groups = {"key": "Country", "column": "Sales", "source": {**TOTAL, "by": "country"}, "tolerance": 0.005}
    options = {
        "path": "report.md",
        "heading": "Countries",
        "total": {"column": "Sales", "source": TOTAL},
        "groups": groups,
    }
    measured = await measure("table", options, tmp_path)
    assert measured.code == "wrong_figure"
    assert "'Germany' has $156.49 for Sales, not 156.48" in measured.text
    assert "adds up" not in measured.text
