"""`sql_query`: one SELECT over CSV files, read-only and bounded."""

from pathlib import Path
from typing import cast

import pytest

from checkrein.errors import ToolError
from checkrein.ports.tool import CancelSignal, ToolContext, ToolOutput
from checkrein.testing.manual_clock import ManualClock
from checkrein.toolkit.sql import QueryLimits, run_query, sql_query
from checkrein.values import JsonObject, JsonValue

SALES = "id,country,total\n1,Norway,1.98\n2,Chile,3.96\n3,Norway,0.99\n"


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    (tmp_path / "run").mkdir()
    (tmp_path / "sales-2021.csv").write_text(SALES, encoding="utf-8")
    (tmp_path / "read.me").write_text("no table", encoding="utf-8")
    inputs = {"sales": tmp_path / "sales-2021.csv", "about": tmp_path / "read.me"}
    return ToolContext("1.0", 1, "r/1.0", CancelSignal(), workspace=tmp_path / "run", inputs=inputs)


def put(context: ToolContext, path: str, text: str) -> None:
    whole = context.folder() / path
    whole.parent.mkdir(parents=True, exist_ok=True)
    whole.write_text(text, encoding="utf-8")


def query(
    context: ToolContext, text: str, parameters: object = None, *, limits: QueryLimits | None = None
) -> dict[str, JsonValue]:
    given = cast("dict[str, str]", parameters)
    return run_query(text, given, context, limits=limits or QueryLimits(), clock=ManualClock())


def rows(context: ToolContext, text: str, parameters: object = None) -> JsonValue:
    return query(context, text, parameters)["rows"]


def error(context: ToolContext, text: str, parameters: object = None) -> str:
    with pytest.raises(ToolError) as caught:
        query(context, text, parameters)
    return str(caught.value)


def test_it_is_declared_idempotent_and_bounded_in_time() -> None:
    assert (sql_query.traits.idempotent, sql_query.traits.timeout_seconds) == (True, 60)


async def test_an_input_is_a_table_of_its_name(context: ToolContext) -> None:
    arguments = {"query": "SELECT country, round(sum(total), 2) AS sum FROM sales GROUP BY 1 ORDER BY 2"}
    made = await sql_query.call(JsonObject(arguments), context)
    assert isinstance(made, ToolOutput)
    assert made.value == {
        "columns": ["country", "sum"],
        "rows": [["Norway", 2.97], ["Chile", 3.96]],
        "truncated": False,
    }
    assert made.artifacts == ()


def test_a_csv_file_of_the_run_is_a_table_of_its_stem(context: ToolContext) -> None:
    put(context, "deep/by country.csv", "country;n\nNorway;2\n")
    put(context, "tabs.TSV", "a\tb\n1\t2\n")
    assert rows(context, 'SELECT n FROM "by country"') == [[2]]
    assert rows(context, "SELECT b FROM TABS JOIN sales ON id = a") == [[2]]


def test_a_table_is_read_afresh_by_each_query(context: ToolContext) -> None:
    put(context, "t.csv", "a\n1\n")
    assert rows(context, "SELECT a FROM t") == [[1]]
    put(context, "t.csv", "a\n2\n")
    assert rows(context, "SELECT a FROM t") == [[2]]


def test_an_input_goes_before_a_file_of_the_same_name(context: ToolContext) -> None:
    put(context, "Sales.csv", "id\n99\n")
    assert rows(context, "SELECT count(*) FROM sales") == [[3]]
    assert "Sales.csv is hidden by the input sales" in error(context, "SELECT * FROM nowhere")


def test_two_files_of_one_name_are_no_table_and_the_error_says_so(context: ToolContext) -> None:
    put(context, "x/t.csv", "a\n1\n")
    put(context, "y/t.csv", "a\n2\n")
    assert "t could be x/t.csv, y/t.csv" in error(context, "SELECT * FROM t")


def test_a_missing_table_or_column_is_answered_with_those_there_are(context: ToolContext) -> None:
    listed = "tables: sales(id integer, country text, total real)"
    assert error(context, "SELECT * FROM sale") == f"no such table: sale; {listed}"
    assert error(context, "SELECT totals FROM sales") == f"no such column: totals; {listed}"


def test_a_table_that_cannot_be_read_hurts_only_who_asks_for_it(context: ToolContext) -> None:
    put(context, "broken.csv", "a,b\n1\n")
    assert rows(context, "SELECT 'broken', count(*) FROM sales") == [["broken", 3]]
    assert "table broken cannot be read: table broken, line 2: 1 instead of 2 cells" in error(
        context, "SELECT * FROM broken"
    )


def test_without_tables_the_error_says_so(context: ToolContext) -> None:
    bare = ToolContext("1.0", 1, "", CancelSignal(), workspace=context.workspace)
    assert "there are no tables" in error(bare, "SELECT * FROM t")


def test_a_link_is_no_table(context: ToolContext) -> None:
    (context.folder() / "stolen.csv").symlink_to(context.inputs["sales"])
    assert "no such table: stolen" in error(context, "SELECT * FROM stolen")


def test_values_are_bound(context: ToolContext) -> None:
    hostile = "'; DROP TABLE sales; --"
    assert rows(context, "SELECT ?, ?, ?", [hostile, 1.5, None]) == [[hostile, 1.5, None]]
    assert rows(context, "SELECT id FROM sales WHERE country = :c", {"c": "Chile"}) == [[2]]


@pytest.mark.parametrize("parameters", [[], [1, 2], {"b": 1}, None])
def test_missing_and_surplus_values_are_an_error(context: ToolContext, parameters: object) -> None:
    assert error(context, "SELECT :a", parameters)


def test_the_data_dictionary_shows_all_tables(context: ToolContext) -> None:
    put(context, "t.csv", "a\n1\n")
    assert rows(context, "SELECT name FROM sqlite_schema ORDER BY 1") == [["sales"], ["t"]]


FORBIDDEN = [
    "DELETE FROM sales", "INSERT INTO sales VALUES (1, 2, 3)", "UPDATE sales SET id = 1", "DROP TABLE sales",
    "CREATE TABLE x (a)", "CREATE TEMP TABLE x AS SELECT 1", "CREATE VIEW v AS SELECT 1", "CREATE VIRTUAL TABLE v USING fts5(a)",
    "ALTER TABLE sales ADD x", "ATTACH 'evil.db' AS e", "DETACH main", "VACUUM INTO 'evil.db'", "VACUUM", "ANALYZE",
    "PRAGMA journal_mode=off", "PRAGMA writable_schema=1", "SELECT * FROM pragma_database_list", "SELECT * FROM dbstat",
    "BEGIN", "COMMIT", "SAVEPOINT s", "SELECT load_extension('evil.so')", "SELECT fts3_tokenizer('simple')",
    "WITH x AS (SELECT 1) DELETE FROM sales", "EXPLAIN DELETE FROM sales", "SELECT sqlite_log(1, 'x')",
]  # fmt: skip


@pytest.mark.parametrize("text", FORBIDDEN)
def test_nothing_but_reading_is_allowed(context: ToolContext, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(context.folder())
    message = error(context, text)
    assert "allowed" in message or "not authorized" in message
    assert list(context.folder().iterdir()) == []
    assert rows(context, "SELECT count(*) FROM sales") == [[3]]


@pytest.mark.parametrize("text", ["SELECT 1; SELECT 2", "SELECT 1; DROP TABLE sales", "SELECT 1;;VALUES(2)"])
def test_one_statement_is_allowed(context: ToolContext, text: str) -> None:
    assert "allowed" in error(context, text)


@pytest.mark.parametrize("text", ["SELECT 1", "SELECT 1;", "SELECT 1; -- done", "/* x */ SELECT 1 ;\n"])
def test_a_comment_or_a_semicolon_is_no_second_statement(context: ToolContext, text: str) -> None:
    assert rows(context, text) == [[1]]


@pytest.mark.parametrize("text", ["", " ", "-- nothing", ";"])
def test_an_empty_query_is_an_error(context: ToolContext, text: str) -> None:
    assert "the query is empty" in error(context, text)


def test_rows_are_bounded_and_the_rest_is_said(context: ToolContext) -> None:
    made = query(context, "SELECT id FROM sales", limits=QueryLimits(max_rows=2))
    assert (made["rows"], made["truncated"]) == ([[1], [2]], True)
    assert query(context, "SELECT id FROM sales", limits=QueryLimits(max_rows=3))["truncated"] is False


def test_bytes_are_bounded_whatever_the_rows(context: ToolContext) -> None:
    text = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT hex(zeroblob(1000)) FROM n"
    made = query(context, text, limits=QueryLimits(max_bytes=10_000))
    assert made["truncated"] is True
    assert len(cast("list[JsonValue]", made["rows"])) == 5


@pytest.mark.parametrize("max_rows", [0, -1, 10_001])
async def test_the_number_of_rows_asked_for_has_bounds(context: ToolContext, max_rows: int) -> None:
    with pytest.raises(ToolError, match="max_rows is 1 to 10000"):
        await sql_query.call(JsonObject({"query": "SELECT 1", "max_rows": max_rows}), context)


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


class RunningClock(ManualClock):
    """A clock that moves by a second whenever it is looked at."""

    def monotonic(self) -> float:
        self._elapsed += 1.0
        return self._elapsed


def test_an_endless_query_is_stopped(context: ToolContext) -> None:
    with pytest.raises(ToolError, match="took longer than 20 s"):
        run_query(ENDLESS, None, context, limits=QueryLimits(), clock=RunningClock())


def test_a_cancelled_query_stops(context: ToolContext) -> None:
    context.signal.cancel("enough")
    with pytest.raises(BaseException, match="enough") as caught:
        query(context, ENDLESS)
    assert type(caught.value).__name__ == "CancelledError"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT zeroblob(1000000000)",
        "SELECT printf('%.*c', 1000000000, 'x')",
        "SELECT replace(hex(zeroblob(1000000)), '0', '00000000')",
        "SELECT 1 WHERE 'x' LIKE '" + "%" * 10_000 + "'",
        "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
        "SELECT " + " + ".join("1" * 2_000),
        "SELECT " + ", ".join("1" * 2_000),
        " UNION ALL ".join(["SELECT 1"] * 1_000),
        "SELECT '" + "x" * 200_000 + "'",
    ],
    ids=range(9),
)
def test_a_bomb_is_an_error(context: ToolContext, text: str) -> None:
    assert len(error(context, text)) < 3_000


def test_what_has_no_json_form_is_an_error_that_names_the_place(context: ToolContext) -> None:
    assert error(context, "SELECT 1 UNION ALL SELECT 1e999") == "row 2, column 1 is infinite, which has no JSON form"
    assert error(context, "SELECT x'00' AS b") == "row 1, column b is a blob; use hex() or a cast"
    assert "NUL" in error(context, "SELECT '\0'")


def test_a_whole_number_that_json_readers_disagree_on_is_text(context: ToolContext) -> None:
    assert rows(context, "SELECT 9007199254740991, 9007199254740992") == [[9007199254740991, "9007199254740992"]]


def test_columns_are_named_also_when_no_row_is_found(context: ToolContext) -> None:
    assert query(context, "SELECT id, country AS c FROM sales WHERE 0")["columns"] == ["id", "c"]
