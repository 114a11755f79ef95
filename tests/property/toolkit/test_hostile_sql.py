"""Whatever a query or a parameter is, the answer is a bounded JSON value or a `ToolError`, and nothing has changed."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings, strategies as st

from checkrein.errors import ToolError
from checkrein.ports.tool import CancelSignal, ToolContext
from checkrein.testing.manual_clock import ManualClock
from checkrein.toolkit.sql import QueryLimits, Scalar, run_query
from checkrein.values import JsonValue, canonical_json

WORDS = st.sampled_from(
    [
        "SELECT", "FROM", "t", '"t"', "a", "*", "WHERE", "UNION", "ALL", "VALUES", "(", ")", ",", "1", "-1", "1e999", "'x'", "x'00'", "NULL",
        "WITH", "RECURSIVE", "AS", "INSERT INTO", "DELETE", "UPDATE", "SET", "DROP TABLE", "CREATE TABLE", "ATTACH", "'evil.db'", "PRAGMA", ";",
        "--", "/*", "*/", "load_extension('x')", "randomblob(9)", "hex(a)", "count(*)", "sqlite_master", "json_each('[1]')", "GROUP BY", "LIMIT",
        "ORDER BY", "RETURNING", "VACUUM INTO", "EXPLAIN", "?", ":a", "=", "||", "writefile('evil','x')", "pragma_table_info('t')",
    ]
)  # fmt: skip
QUERIES = st.lists(WORDS, max_size=14).map(" ".join) | st.text(max_size=60)
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=20)
PARAMETERS = st.none() | st.lists(SCALARS, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", ":a"]), SCALARS)


def ask(
    folder: Path, query: str, parameters: list[Scalar] | dict[str, Scalar] | None = None
) -> dict[str, JsonValue] | None:
    context = ToolContext("1.0", 1, "", CancelSignal(), workspace=folder)
    try:
        return run_query(
            query, parameters, context, limits=QueryLimits(max_rows=50, max_bytes=10_000), clock=ManualClock()
        )
    except ToolError as error:
        assert len(str(error)) < 5_000  # noqa: PT017  both ways are right, and each is checked
        return None


@settings(max_examples=600)
@given(query=QUERIES, parameters=PARAMETERS)
@example(query="SELECT 1; DELETE FROM t", parameters=None)
@example(query="WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x RETURNING *", parameters=None)
def test_a_query_is_answered_or_refused_and_changes_nothing(
    query: str, parameters: list[Scalar] | dict[str, Scalar] | None
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "t.csv").write_text("a,b\n1,x\n2,y\n", encoding="utf-8")
        answer = ask(folder, query, parameters)
        if answer is not None:
            canonical_json(answer, max_bytes=100_000)
        assert (folder / "t.csv").read_text(encoding="utf-8") == "a,b\n1,x\n2,y\n"
        assert [path.name for path in folder.iterdir()] == ["t.csv"]
        counted = ask(folder, "SELECT count(*) FROM t")
        assert counted is not None
        assert counted["rows"] == [[2]]


@settings(max_examples=300)
@given(value=st.text(max_size=200))
def test_a_bound_text_comes_back_as_it_was(value: str) -> None:
    with TemporaryDirectory() as name:
        answer = ask(Path(name), "SELECT ? AS v", [value])
        assert answer is not None
        assert answer["rows"] == [[value]]
