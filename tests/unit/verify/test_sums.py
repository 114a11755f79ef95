"""The check `sum`: a reported figure is compared with its source exactly."""

from pathlib import Path

import pytest

from checkrein.errors import VerifierFailed
from tests.unit.verify.measuring import measure, refused, write

CSV = "country,total,quantity,date\nGermany,0.10,3,2021-01-01\nNorway,0.20,1,2022-01-01\nGermany,,1,2022-02-01\n"
REPORTED = {"path": "report.md", "after": "Total sales"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a small source."""
    write(tmp_path, "sales.csv", CSV)
    return tmp_path


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ({"path": "sales.csv", "column": "total"}, "Total sales: $0.30"),
        ({"input": "sales", "column": "total"}, "Total sales: $0.30"),
        ({"path": "sales.csv", "column": "total", "times": "quantity"}, "Total sales 0.50 USD"),
        ({"path": "sales.csv", "column": "total", "where": {"country": "Norway"}}, "Total sales: 0.2"),
        ({"path": "sales.csv", "column": "total", "where": {"country": ["Norway", "Germany"]}}, "Total sales: .3"),
        ({"path": "sales.csv", "column": "total", "where": {"quantity": 3.0}}, "Total sales: 0.1"),
        ({"path": "sales.csv", "column": "total", "where": {"country": "France"}}, "Total sales: 0"),
    ],
)
async def test_the_sum_of_the_selected_rows_is_met(source: dict[str, object], text: str, folder: Path) -> None:
    write(folder, "report.md", text)
    measured = await measure("sum", {"source": source, "reported": REPORTED}, folder, {"sales": folder / "sales.csv"})
    assert measured.passed, measured.text


async def test_a_wrong_figure_is_shown_with_the_right_one_and_its_line(folder: Path) -> None:
    write(folder, "report.md", "# Report\n\nTotal sales: $0.31\n")
    source = {"path": "sales.csv", "column": "total"}
    measured = await measure("sum", {"source": source, "reported": REPORTED, "tolerance": 0.005}, folder)
    assert (measured.passed, measured.code) == (False, "wrong_sum")
    assert "report.md says $0.31 after “Total sales” (line 3)" in measured.text
    assert "0.30 from 2 rows; they are 0.01 apart, 0.005 is allowed" in measured.text
    assert measured.data["expected"] == "0.30"


@pytest.mark.parametrize(("tolerance", "passed"), [(0.01, True), (0.0099, False), ("0.010", True)])
async def test_the_tolerance_is_exact_and_included(tolerance: object, passed: bool, folder: Path) -> None:  # noqa: FBT001
    write(folder, "report.md", "Total sales: 0.31")
    options = {"source": {"path": "sales.csv", "column": "total"}, "reported": REPORTED, "tolerance": tolerance}
    assert (await measure("sum", options, folder)).passed is passed


@pytest.mark.parametrize(
    ("value", "code"), [("0.3", ""), ('"$0.30"', ""), ("true", "missing_figure"), ("[]", "missing_figure")]
)
async def test_a_figure_in_json_is_found_by_pointer(value: str, code: str, folder: Path) -> None:
    write(folder, "summary.json", f'{{"totals": {{"sales": {value}}}}}')
    reported = {"path": "summary.json", "pointer": "/totals/sales"}
    measured = await measure("sum", {"source": {"path": "sales.csv", "column": "total"}, "reported": reported}, folder)
    assert measured.code == code


@pytest.mark.parametrize(
    ("text", "code"),
    [("Sales: 0.30", "missing_text"), ("Total sales: unknown", "missing_figure"), (b"\xff", "not_text")],
)
async def test_a_report_without_the_figure_fails(text: str | bytes, code: str, folder: Path) -> None:
    write(folder, "report.md", text)
    source = {"path": "sales.csv", "column": "total"}
    assert (await measure("sum", {"source": source, "reported": REPORTED}, folder)).code == code


@pytest.mark.parametrize(
    ("csv", "words"),
    [
        ("a,total\nx,abc\n", "line 2: total is 'abc', which is no number"),
        ("a,total\nx,1e999999999\n", "no number"),
        ("a,b\nx,1\n", "no column 'total'"),
        ("a,total\nx\n", "line 2 has 1 fields"),
        ("", "no header"),
        ("a,total\nx,1\n\udcff,2\n", "not UTF-8"),
    ],
)
async def test_a_source_that_cannot_be_added_up_fails_an_artifact_but_not_an_input(
    csv: str, words: str, tmp_path: Path
) -> None:
    write(tmp_path, "report.md", "Total sales: 1")
    write(tmp_path, "sales.csv", csv.encode("utf-8", "surrogateescape"))
    measured = await measure(
        "sum", {"source": {"path": "sales.csv", "column": "total"}, "reported": REPORTED}, tmp_path
    )
    assert measured.code in {"bad_source", "not_text"}
    options = {"source": {"input": "sales", "column": "total"}, "reported": REPORTED}
    with pytest.raises(VerifierFailed, match="the input sales cannot be used") as caught:
        await measure("sum", options, tmp_path, {"sales": tmp_path / "sales.csv"})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"source": {"column": "total"}, "reported": REPORTED}, "source"),
        ({"source": {"input": "a", "path": "b", "column": "total"}, "reported": REPORTED}, "source"),
        ({"source": {"path": "/b", "column": "total"}, "reported": REPORTED}, "source.path"),
        ({"source": {"input": "a", "column": "total"}, "reported": {"path": "report.md"}}, "reported"),
        ({"source": {"input": "a", "column": "t"}, "reported": {"path": "r", "pointer": "x"}}, "reported.pointer"),
        ({"source": {"input": "a", "column": "t"}, "reported": {"path": "../r", "after": "x"}}, "reported.path"),
        ({"source": {"input": "a", "column": "t"}, "reported": REPORTED, "tolerance": -1}, "tolerance"),
        ({"source": {"input": "a", "column": "t"}, "reported": REPORTED, "tolerance": float("nan")}, "tolerance"),
    ],
)
def test_options_that_name_nothing_or_two_things_are_refused(options: dict[str, object], key: str) -> None:
    assert refused("sum", options).key == key
