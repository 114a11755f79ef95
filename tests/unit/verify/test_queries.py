"""The check `sql`: a query decides over bound rows, may only read, and ends in time."""

import asyncio
from pathlib import Path

import pytest

from checkrein.errors import VerifierFailed
from checkrein.verify import SqlCheck
from tests.unit.verify.measuring import context, measure, refused, write

COUNTRIES = "country,sales,code\nGermany,15.5,007\nNorway,20,010\nFrance,,011\n"
PATH = {"path": "countries.csv"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an export and an input beside it."""
    write(tmp_path, "countries.csv", COUNTRIES)
    write(tmp_path, "extra/more-rows.csv", "n\n1\n2\n")
    write(tmp_path, "source.csv", "country,total\nGermany,15.5\nNorway,20\n")
    return tmp_path


async def _measure(folder: Path, options: dict[str, object]) -> tuple[bool, str, str]:
    measured = await measure("sql", {**PATH, **options}, folder, {"source": folder / "source.csv"})
    return measured.passed, measured.code, measured.text


@pytest.mark.parametrize(
    "options",
    [
        {"query": "select count(*) = 3 from countries"},
        {"query": "select sum(sales) from countries", "expect": 35.5},
        {"query": "select sum(sales) from countries", "expect": 35, "tolerance": 0.5},
        {"query": "select code from countries where country = 'Germany'", "expect": "007"},
        {"query": "select count(*) from countries where sales is null", "expect": 1},
        {"query": "select count(*) from countries where sales > 9", "expect": 2},
        {"query": "select 1 = 2", "expect": False},
        {"query": "select not exists (select country from source except select country from countries)"},
        {"query": "select (select sum(total) from SOURCE) = (select sum(sales) from countries)"},
        {"query": "select sum(n) from more", "expect": 3, "tables": {"more": "extra/more-rows.csv"}},
        {"query": "with recursive c(n) as (select 1 union all select n + 1 from c limit 5) select max(n) = 5 from c"},
    ],
)
async def test_an_assertion_that_holds_passes(options: dict[str, object], folder: Path) -> None:
    passed, _, text = await _measure(folder, options)
    assert passed, text


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"query": "select sum(sales) from countries", "expect": 36}, "query_differs", "is 35.5, not 36"),
        ({"query": "select count(*) = 4 from countries"}, "query_differs", "is 0, not true"),
        ({"query": "select null"}, "query_differs", "is NULL, not true"),
        ({"query": "select 'yes'"}, "query_differs", "is 'yes', not true"),
        ({"query": "select 9e999", "expect": 1}, "query_differs", "not 1"),
        ({"query": "select country from countries"}, "query_failed", "more than one row"),
        ({"query": "select 1 where 0"}, "query_failed", "no row"),
        ({"query": "select 1, 2"}, "query_failed", "2 columns"),
        ({"query": "select 1; select 2"}, "query_failed", "more than one row"),
        ({"query": "select total from countries"}, "query_failed", "no such column: total"),
        ({"query": "select 1 from nowhere"}, "query_failed", "no such table: nowhere"),
    ],
)
async def test_an_assertion_that_does_not_hold_fails_with_what_was_found(
    options: dict[str, object], code: str, words: str, folder: Path
) -> None:
    passed, found, text = await _measure(folder, options)
    assert (passed, found) == (False, code)
    assert words in text


async def test_rows_are_data_whatever_they_say(folder: Path) -> None:
    write(folder, "countries.csv", 'country,"x""); drop table countries; --"\n\'); drop table countries; --,1\n')
    passed, _, text = await _measure(folder, {"query": "select count(*) = 1 from countries"})
    assert passed, text


@pytest.mark.parametrize("content", ["a,a\n1,2\n", "a\n1,2\n", ""])
async def test_an_artifact_that_is_no_csv_fails(content: str, folder: Path) -> None:
    write(folder, "countries.csv", content)
    assert (await _measure(folder, {"query": "select 1"}))[1] == "not_csv"


async def test_an_input_that_is_no_csv_is_the_verifiers_failure(folder: Path) -> None:
    write(folder, "source.csv", "a\n1,2\n")
    with pytest.raises(VerifierFailed, match="the input source cannot be used"):
        await _measure(folder, {"query": "select 1 from source"})


@pytest.mark.parametrize(
    "query",
    [
        "with recursive c(n) as (select 1 union all select n + 1 from c) select max(n) from c",
        "with recursive c(n) as (select 1 union all select n + 1 from c limit 1000000) select count(*) from c a, c b",
    ],
)
async def test_a_query_without_an_end_is_ended(query: str, folder: Path) -> None:
    check = SqlCheck(path="countries.csv", query=query)
    with pytest.raises(VerifierFailed, match=r"took longer than 0\.2 s"):
        await asyncio.wait_for(check.measure(context(folder, {}, seconds=0.2)), 20)


async def test_a_query_that_hides_a_change_is_not_run(folder: Path) -> None:
    with pytest.raises(VerifierFailed, match="more than read"):
        await _measure(folder, {"query": "with x as (select 1) delete from countries"})


async def test_a_value_cannot_fill_the_memory(folder: Path) -> None:
    with pytest.raises(VerifierFailed, match="more memory"):
        await _measure(folder, {"query": "select length(zeroblob(1000000000))"})


@pytest.mark.parametrize(
    "query",
    [
        "",
        "selec 1",
        "select 1 from (",
        "delete from countries",
        "values (1",
        "create table x (a)",
        "pragma table_info(countries)",
        "attach '/tmp/x.db' as x",
        "select 1\0",
        "vacuum into '/tmp/x.db'",
    ],
)
def test_what_is_no_select_is_refused_when_the_check_is_made(query: str) -> None:
    assert refused("sql", {**PATH, "query": query}).key == "query"


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"path": "my-report.csv", "query": "select 1"}, "path"),
        ({"path": "a.csv", "query": "select 1", "tables": {"b": "../x.csv"}}, "tables.b"),
        ({"path": "a.csv", "query": "select 1", "tables": {"b-c": "x.csv"}}, "tables"),
        ({"path": "a.csv", "query": "select 1", "expect": []}, "expect"),
        ({"path": "a.csv", "query": "select 1", "tolerance": -1}, "tolerance"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, object], key: str) -> None:
    assert refused("sql", options).key == key


@pytest.mark.parametrize("function", ["load_extension('x')", "writefile('w', 'x')", "readfile('/etc/passwd')"])
async def test_no_function_reaches_a_file(function: str, folder: Path) -> None:
    passed, code, _ = await _measure(folder, {"query": f"select {function}"})
    assert (passed, code) == (False, "query_failed")
