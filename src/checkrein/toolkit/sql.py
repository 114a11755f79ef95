"""`sql_query`: one SELECT over the task's CSV inputs and the run's own CSV files.

The tables live in a database in memory that is made for the query and thrown away. Nothing can be written: a `SELECT` is all the authorizer lets pass, so
no file can be attached, no pragma set, no extension loaded. Values are bound, never pasted. Rows, bytes, time and the engine's own limits are bounded.
"""

import math
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TypeAlias, cast

import apsw
import msgspec

from checkrein.clock import SystemClock
from checkrein.errors import PathEscape, ToolError
from checkrein.ports.clock import Clock
from checkrein.ports.tool import ToolContext
from checkrein.toolkit.tables import Cell, Source, Table, find_sources, fold, load
from checkrein.tools.function import tool
from checkrein.values import MAX_INTEGER, JsonValue, shorten

__all__ = ["QueryLimits", "run_query", "sql_query"]

Scalar: TypeAlias = str | int | float | bool | None

_HINT_CHARACTERS = 2_000
_HINT_TABLES = 30
_STEPS_BETWEEN_LOOKS = 20_000
_READABLE = {"sqlite_master", "sqlite_schema", "json_each", "json_tree"}
_FORBIDDEN_FUNCTIONS = {"load_extension", "fts3_tokenizer", "sqlite_log"}
_ENGINE_LIMITS = {
    apsw.SQLITE_LIMIT_LENGTH: 4 * 1024 * 1024,
    apsw.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    apsw.SQLITE_LIMIT_COLUMN: 1_000,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: 200,
    apsw.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    apsw.SQLITE_LIMIT_VDBE_OP: 1_000_000,
    apsw.SQLITE_LIMIT_ATTACHED: 0,
    apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
    apsw.SQLITE_LIMIT_VARIABLE_NUMBER: 1_000,
    apsw.SQLITE_LIMIT_WORKER_THREADS: 0,
}


class QueryLimits(msgspec.Struct, frozen=True):
    """How large and how slow a query may be.

    Attributes:
        max_rows: rows of the result; further ones are left out and `truncated` is true.
        max_bytes: about how many bytes of values the result may hold; likewise.
        seconds: how long the query may run.
    """

    max_rows: int = 1_000
    max_bytes: int = 512 * 1024
    seconds: float = 20.0


@tool(idempotent=True, timeout_seconds=60)
def sql_query(
    query: str,
    context: ToolContext,
    parameters: list[Scalar] | dict[str, Scalar] | None = None,
    max_rows: int = 1_000,
) -> dict[str, JsonValue]:
    """Run one SQL SELECT (SQLite's dialect) over the CSV tables of this task.

    Each CSV input is a table of the input's name; each CSV file in the run's folder is a table of the file's name without its ending. An error says which
    tables and columns there are.

    Args:
        query: one SELECT, VALUES or WITH statement; ? or :name stand for parameters.
        parameters: values for ? as a list, or for :name as an object.
        context: the run's folder and inputs.
        max_rows: how many rows to return at most, 1 to 10000.

    Returns:
        An object with columns (names), rows (arrays of values) and truncated (whether rows were left out).
    """
    if not 1 <= max_rows <= 10_000:  # noqa: PLR2004  as documented
        msg = f"max_rows is 1 to 10000, not {max_rows}"
        raise ToolError(msg)
    return run_query(query, parameters, context, limits=QueryLimits(max_rows=max_rows), clock=SystemClock())


def run_query(
    query: str,
    parameters: Sequence[Scalar] | Mapping[str, Scalar] | None,
    context: ToolContext,
    *,
    limits: QueryLimits,
    clock: Clock,
) -> dict[str, JsonValue]:
    """Run one query; see `sql_query`.

    Raises:
        ToolError: the query is no single SELECT, is wrong, takes too long, or its result has no JSON form; or a table it uses cannot be read.
        asyncio.CancelledError: the call was told to stop.
    """
    if "\0" in query:
        msg = "the query contains a NUL character"
        raise ToolError(msg)
    with closing(apsw.Connection(":memory:")) as database:
        return _Query(database, context, limits, clock).run(query, parameters)


class _Query:
    """One query on one database."""

    def __init__(self, database: apsw.Connection, context: ToolContext, limits: QueryLimits, clock: Clock) -> None:
        self._database = database
        self._context = context
        self._limits = limits
        self._clock = clock
        self._loaded: dict[str, Table] = {}
        self._columns: tuple[str, ...] = ()
        try:
            self._sources, self._refused = find_sources(context.folder(), context.inputs)
        except OSError as error:
            msg = f"the run's folder cannot be read: {error.strerror}"
            raise ToolError(msg) from error

    def run(self, query: str, parameters: Sequence[Scalar] | Mapping[str, Scalar] | None) -> dict[str, JsonValue]:
        for source in self._wanted(query):
            self._load(source)
        self._lock()
        cursor = self._database.cursor()
        cursor.exec_trace = self._on_statement
        with self._explained():
            rows, truncated = self._collect(_execute(cursor, query, parameters))
        if not self._columns:
            msg = "the query is empty; give one SELECT"
            raise ToolError(msg)
        columns: list[JsonValue] = list(self._columns)
        return {"columns": columns, "rows": rows, "truncated": truncated}

    def _wanted(self, query: str) -> Iterator[Source]:
        """Yield the tables that the query can possibly name; a table whose name does not stand in the text as a word is not read."""
        text = fold(query)
        wants_all = "sqlite_master" in text or "sqlite_schema" in text
        for name, source in self._sources.items():
            spellings = "|".join(re.escape(spelling) for spelling in {name, name.replace('"', '""')})
            if wants_all or re.search(rf"(?<!\w)(?:{spellings})(?!\w)", text):
                yield source

    def _load(self, source: Source) -> None:
        """Make a table; one that cannot be read is remembered as such, because the query may not need it after all."""
        name = fold(source.name)
        try:
            table = load(source)
            with self._database:
                self._fill(table)
        except (ToolError, PathEscape, OSError, apsw.Error) as error:
            self._refused[name] = f"table {source.name} cannot be read: {shorten(str(error), 300)}"
        else:
            self._loaded[name] = table

    def _fill(self, table: Table) -> None:
        name = _quoted(table.source.name)
        columns = ", ".join(f"{_quoted(column.name)} {column.type}" for column in table.columns)
        marks = ", ".join("?" * len(table.columns))
        cursor = self._database.cursor()
        _execute(cursor, f"CREATE TABLE {name} ({columns})")
        insert = f"INSERT INTO {name} VALUES ({marks})"  # noqa: S608  the name is quoted, the values are bound
        cursor.executemany(insert, table.rows())  # pyright: ignore[reportUnknownMemberType]  as in _execute

    def _lock(self) -> None:
        """From here on the database can be read by one SELECT, within its limits, and nothing else."""
        for limit, value in _ENGINE_LIMITS.items():
            self._database.limit(limit, value)
        self._database.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        self._database.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        self._database.authorizer = self._authorize
        deadline = self._clock.monotonic() + self._limits.seconds
        signal = self._context.signal
        self._database.set_progress_handler(
            lambda: signal.is_cancelled or self._clock.monotonic() >= deadline, _STEPS_BETWEEN_LOOKS
        )

    def _authorize(self, action: int, first: str | None, second: str | None, *_rest: str | None) -> int:
        allowed = action in {apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE}
        if action == apsw.SQLITE_FUNCTION:
            allowed = (second or "").lower() not in _FORBIDDEN_FUNCTIONS
        if action == apsw.SQLITE_READ:
            # Without a column the name may be that of a common table expression, and nothing is read of it.
            allowed = not second or fold(first or "") in self._loaded or fold(first or "") in _READABLE
        return apsw.SQLITE_OK if allowed else apsw.SQLITE_DENY

    def _on_statement(self, cursor: apsw.Cursor, _sql: str, _bindings: object) -> bool:
        """Take the columns' names; refuse a second statement (a comment after the first is none, and has no columns)."""
        columns = tuple(name for name, *_ in cursor.get_description())
        if columns and self._columns:
            return False
        self._columns = self._columns or columns
        return True

    def _collect(self, found: Iterator[tuple[Cell | bytes, ...]]) -> tuple[list[JsonValue], bool]:
        rows: list[JsonValue] = []
        room = self._limits.max_bytes
        for cells in found:
            row: list[JsonValue] = [
                _json_cell(cell, len(rows) + 1, column) for cell, column in zip(cells, self._columns, strict=True)
            ]
            room -= sum(len(cell) if isinstance(cell, str) else 8 for cell in row)
            if len(rows) >= self._limits.max_rows or (room < 0 and rows):
                return rows, True
            rows.append(row)
        return rows, False

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except apsw.InterruptError as error:
            self._context.signal.raise_if_cancelled()
            msg = f"the query took longer than {self._limits.seconds:g} s and was stopped; narrow it down"
            raise ToolError(msg) from error
        except apsw.ExecTraceAbort as error:
            msg = "only one statement is allowed"
            raise ToolError(msg) from error
        except (apsw.AuthError, apsw.ReadOnlyError) as error:
            msg = f"only a SELECT over the tables is allowed ({error}); {self._hint()}"
            raise ToolError(msg) from error
        except KeyError as error:
            msg = f"the query uses the parameter {error}, which was not given"
            raise ToolError(msg) from error
        except apsw.SQLError as error:
            msg = f"{error}; {self._hint()}"
            raise ToolError(msg) from error
        except (apsw.Error, TypeError, OverflowError) as error:
            raise ToolError(str(error)) from error

    def _hint(self) -> str:
        """Return which tables and columns there are, and why some files are none."""
        names = [name for name in sorted(self._sources) if name not in self._refused][:_HINT_TABLES]
        shown = [_described(self._sources[name], self._loaded.get(name)) for name in names]
        tables = (
            f"tables: {'; '.join(shown)}"
            if shown
            else "there are no tables: no CSV input, and no CSV file in the run's folder"
        )
        return shorten("; ".join([*self._refused.values(), tables]), _HINT_CHARACTERS)


def _described(source: Source, table: Table | None) -> str:
    try:
        columns = (table or load(source)).columns
    except (ToolError, PathEscape, OSError) as error:
        return f"{source.name} (cannot be read: {shorten(str(error), 100)})"
    return f"{source.name}({', '.join(f'{column.name} {column.type}' for column in columns)})"


def _execute(
    cursor: apsw.Cursor, statement: str, values: "Sequence[Scalar] | Mapping[str, Scalar] | None" = None
) -> Iterator[tuple[Cell | bytes, ...]]:
    found = cursor.execute(statement, values)  # pyright: ignore[reportUnknownMemberType]  its stub names a type of Python 3.12
    return cast("Iterator[tuple[Cell | bytes, ...]]", found)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _json_cell(value: Cell | bytes, row: int, column: str) -> JsonValue:
    """Return a cell as JSON; a whole number that JSON readers do not agree on is given as text.

    Raises:
        ToolError: it is a blob, or infinite.
    """
    if isinstance(value, bytes):
        msg = f"row {row}, column {shorten(column, 80)} is a blob; use hex() or a cast"
        raise ToolError(msg)
    if isinstance(value, float) and not math.isfinite(value):
        msg = f"row {row}, column {shorten(column, 80)} is infinite, which has no JSON form"
        raise ToolError(msg)
    if isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
        return str(value)
    return value
