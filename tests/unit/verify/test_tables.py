"""The check `table`: rows, totals and figures per group are compared with the source, and all that is wrong is said at once."""

from pathlib import Path

import pytest

from tests.unit.verify.measuring import measure, refused, write

CSV = "country,total,date\nGermany,10,2021-01-01\nNorway,20.5,2022-03-01T10:00:00\nGermany,5,2022-01-01\n"
YEARS = """# Sales

| Note |
|---|
| x |

## By year

Text.

| Year | Sales |
|---|---:|
| 2021 | $10.00 |
| 2022 | **$25.50** |
| **Total** | $35.50 |

## Next

| Year | Sales |
|---|---|
| 2021 | 1 |
"""
COUNTRIES = "country,sales\nGermany,15.00\nNorway,20.50\n"
SALES = {"path": "sales.csv", "column": "total"}
BY_YEAR = {"key": "Year", "column": "Sales", "source": {**SALES, "by_year": "date"}}
TOTAL = {"column": "Sales", "source": SALES}
YEAR_TABLE = {"path": "report.md", "heading": "By year"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a source, a report and an export."""
    write(tmp_path, "sales.csv", CSV)
    write(tmp_path, "report.md", YEARS)
    write(tmp_path, "countries.csv", COUNTRIES)
    return tmp_path


@pytest.mark.parametrize(
    "options",
    [
        YEAR_TABLE,
        {**YEAR_TABLE, "columns": ["year", "Sales"], "rows": 2},
        {**YEAR_TABLE, "rows": {"path": "sales.csv", "distinct": "country"}},
        {"path": "countries.csv", "rows": {"path": "sales.csv", "where": {"country": "Germany"}}},
        {**YEAR_TABLE, "total": TOTAL},
        {**YEAR_TABLE, "total": {"column": "Sales", "value": 35.5}},
        {**YEAR_TABLE, "total": {"column": "Sales"}},
        {**YEAR_TABLE, "groups": BY_YEAR},
        {"path": "report.md", "columns": ["Note"], "rows": 1},
        {
            "path": "countries.csv",
            "groups": {"key": "country", "column": "sales", "source": {**SALES, "by": "country"}},
        },
    ],
)
async def test_a_right_table_passes(options: dict[str, object], folder: Path) -> None:
    measured = await measure("table", options, folder)
    assert measured.passed, measured.text


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"path": "report.md", "heading": "By month"}, "missing_table", "under the heading “By month”; it has 3"),
        ({**YEAR_TABLE, "columns": ["Month"]}, "missing_column", "no column “Month”"),
        ({**YEAR_TABLE, "rows": 3}, "wrong_rows", "it has 2 rows, not 3"),
        ({**YEAR_TABLE, "total": {"column": "Sales", "value": 36}}, "wrong_total", "adds up to 35.50, not 36"),
        ({"path": "countries.csv", "total": {"column": "sales"}}, "missing_total", "no total to compare"),
        ({"path": "report.md", "heading": "Next", "groups": BY_YEAR}, "wrong_figure", "'2021' has 1 for Sales, not 10"),
        ({"path": "report.md", "heading": "Next", "groups": BY_YEAR}, "wrong_figure", "1 of 2 are missing: '2022'"),
        ({**YEAR_TABLE, "total_row": "", "groups": BY_YEAR}, "unexpected_group", "'Total' is not in sales.csv"),
        ({**YEAR_TABLE, "total": {"column": "Year", "value": 1}}, "wrong_total", "4043"),
    ],
)
async def test_a_wrong_table_fails_with_the_right_figures(
    options: dict[str, object], code: str, words: str, folder: Path
) -> None:
    measured = await measure("table", options, folder)
    assert (measured.passed, measured.code) == (False, code)
    assert words in measured.text


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("$10.00", "ten", "missing_figure"),
        ("| 2022 |", "| 2021 |", "repeated_group"),
        ("| **Total** | $35.50 |", "| **Total** | $35.51 |", "wrong_total"),
        ("| **Total** | $35.50 |", "| **Total** | |", "missing_figure"),
        ("| 2021 | $10.00 |\n| 2022 | **$25.50** |\n", "", "no_rows"),
    ],
)
async def test_one_wrong_cell_is_enough(old: str, new: str, code: str, folder: Path) -> None:
    write(folder, "report.md", YEARS.replace(old, new))
    measured = await measure("table", {**YEAR_TABLE, "total": TOTAL, "groups": BY_YEAR}, folder)
    assert measured.code == code


async def test_a_table_that_shows_some_groups_passes_when_it_may(folder: Path) -> None:
    write(folder, "top.csv", "country,sales\nNorway,20.5\n")
    groups = {"key": "country", "column": "sales", "source": {**SALES, "by": "country"}}
    assert (await measure("table", {"path": "top.csv", "groups": groups}, folder)).code == "missing_group"
    assert (await measure("table", {"path": "top.csv", "groups": {**groups, "complete": False}}, folder)).passed


async def test_groups_without_a_column_are_counted(folder: Path) -> None:
    write(folder, "counts.csv", "country,invoices\nGermany,2\nNorway,1\n")
    groups = {"key": "country", "column": "invoices", "source": {"path": "sales.csv", "by": "country"}}
    assert (await measure("table", {"path": "counts.csv", "groups": groups}, folder)).passed


async def test_a_date_that_is_none_is_named(folder: Path) -> None:
    write(folder, "sales.csv", CSV + "Norway,1,soon\n")
    measured = await measure("table", {**YEAR_TABLE, "groups": BY_YEAR}, folder)
    assert (measured.code, "line 5: 'soon' is no ISO date" in measured.text) == ("bad_source", True)


async def test_hundreds_of_problems_are_cut_to_a_readable_list(folder: Path) -> None:
    write(folder, "big.csv", "country,sales\n" + "".join(f"c{n},1\n" for n in range(500)))
    groups = {"key": "country", "column": "sales", "source": {**SALES, "by": "country"}}
    measured = await measure("table", {"path": "big.csv", "groups": groups}, folder)
    assert "and 491 more" in measured.text
    assert len(measured.text) <= 2_100


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"path": "a.csv", "heading": "X"}, "heading"),
        ({"path": "a.csv", "rows": 0}, "rows"),
        ({"path": "a.csv", "rows": {"distinct": "x"}}, "rows"),
        ({"path": "a.csv", "rows": True}, "rows"),
        ({"path": "a.csv", "total": {"column": "x", "value": 1, "source": SALES}}, "total"),
        ({"path": "a.csv", "total": {"column": "x", "value": float("inf")}}, "total.value"),
        ({"path": "a.csv", "total": {"column": "x", "tolerance": -1}}, "total.tolerance"),
        ({"path": "a.csv", "groups": {"key": "a", "column": "b", "source": SALES}}, "groups.source"),
        ({"path": "a.csv", "groups": {"key": "a", "source": SALES}}, "groups.column"),
        (
            {"path": "a.csv", "groups": {"key": "a", "column": "b", "source": {"input": "s", "by": "x", "times": "y"}}},
            "groups.source.times",
        ),
    ],
)
def test_options_that_no_table_can_meet_are_refused(options: dict[str, object], key: str) -> None:
    assert refused("table", options).key == key
