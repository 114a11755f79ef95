"""The check `sql`: an assertion over CSV artifacts and inputs holds, asked in SQL of a database that lives in memory and can only be read.

The query is the task's, the rows are not: they are bound, never written into SQL. Loading is done before the query's rights are taken away: then an authorizer allows
reading alone, limits bound sizes, and a timer interrupts.
"""

import io
import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import PurePosixPath
from types import TracebackType
from typing import ClassVar, Final, Protocol, TypeAlias, cast

import apsw

from checkrein.errors import VerifierFailed
from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.values import MAX_INTEGER, JsonObject, shorten
from checkrein.verify.artifacts import Unmet, finding, open_input, read_artifact, read_text
from checkrein.verify.base import ArtifactCheck, refuse, refuse_path
from checkrein.verify.delimited import BadRows, Row, at_most, read_rows
from checkrein.verify.figures import difference, parse_decimal, shown
from checkrein.verify.sums import refuse_tolerance

__all__ = ["SqlCheck"]

Expected: TypeAlias = bool | int | float | str
Value: TypeAlias = int | float | str | bytes | None


class _Database(Protocol):
    """What is used of an `apsw.Connection`, whose own types are partly unknown to Python 3.11."""

    authorizer: Callable[..., int] | None

    def execute(self, statements: str) -> Iterator[tuple[Value, ...]]: ...
    def executemany(self, statements: str, sequenceofbindings: Iterable[tuple[Value, ...]]) -> object: ...
    def set_progress_handler(self, callable: Callable[[], bool] | None, nsteps: int = 100) -> None: ...  # noqa: A002  the library's own name
    def limit(self, id: int, newval: int = -1) -> int: ...  # noqa: A002  the library's own name
    def close(self) -> None: ...
    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None: ...


MAX_ROWS: Final = 500_000
PROGRESS_STEPS: Final = 10_000
MAX_VALUE_BYTES: Final = 16 * 1024 * 1024
_READING: Final = re.compile(r"\s*(?:SELECT|WITH|VALUES)\b", re.IGNORECASE)
_WORD: Final = re.compile(r"\w+")
# A column of these alone holds numbers; a leading zero makes a code of it (`0123`), which must keep its zero.
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?")
_ALLOWED: Final = frozenset({apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE})


class SqlCheck(ArtifactCheck, frozen=True, kw_only=True):
    """A query over the run's figures gives what it must.

    `path` is a CSV artifact; it is a table by the name of its stem, and so is each input the query names, by the input's name.

    Attributes:
        query: one SELECT that gives one value.
        expect: the value it must give.
        tolerance: how far a number may be from it.
        tables: further CSV artifacts, by the name of the table.
    """

    name: ClassVar[str] = "sql"
    revision: ClassVar[str] = "1"
    query: str
    expect: Expected = True
    tolerance: Decimal = Decimal(0)
    tables: Mapping[str, str] = {}

    def validated(self) -> None:
        """Refuse a query that SQLite cannot parse, and tables without a name.

        Raises:
            TaskError: it cannot, or one has none.
        """
        refuse_tolerance(self.tolerance, "tolerance")
        for name, path in self.tables.items():
            refuse_path(path, f"tables.{name}")
        for name in self._artifacts():
            if not _WORD.fullmatch(name):
                refuse(
                    "path" if name not in self.tables else "tables",
                    f"{name!r} cannot name a table",
                    'give it a name of letters and digits under `tables`, as in tables = { report = "my-report.csv" }',
                )
        problem = _syntax_problem(self.query)
        if problem:
            refuse("query", problem, "write one SELECT that gives one value")

    def in_words(self) -> str:
        """Return the title."""
        return f"over {self.path}, `{shorten(' '.join(self.query.split()), 120)}` is {_in_words(self.expect)}"

    def look(self, context: CheckContext) -> Measurement:
        """Load the tables, take the right to write away, ask."""
        with _opened() as database, _time_limit(database, context.timeout_seconds):
            rows = self._answer(database, context)
        if len(rows) != 1 or len(rows[0]) != 1:
            raise Unmet(
                "query_failed",
                f"the query gives {'more than one row' if len(rows) > 1 else 'no row' if not rows else f'{len(rows[0])} columns'}, not one value",
            )
        return self._compared(rows[0][0])

    def _answer(self, database: _Database, context: CheckContext) -> Sequence[tuple[Value, ...]]:
        try:
            self._load(database, context)
            _restrict(database)
            return _first_rows(database, self.query)
        except apsw.InterruptError as error:
            raise VerifierFailed(f"the query took longer than {context.timeout_seconds:g} s") from error
        except apsw.AuthError as error:
            raise VerifierFailed(f"the query does more than read, or calls what it may not: {error}") from error
        except (apsw.TooBigError, apsw.NoMemError) as error:
            raise VerifierFailed(f"the query needs more memory than it may have: {error}") from error
        except apsw.Error as error:
            raise Unmet("query_failed", f"the query cannot be answered from these tables: {error}") from error

    def _artifacts(self) -> dict[str, str]:
        return (
            {PurePosixPath(self.path).stem: self.path, **self.tables}
            if self.path not in self.tables.values()
            else dict(self.tables)
        )

    def _load(self, database: _Database, context: CheckContext) -> None:
        for name, path in self._artifacts().items():
            try:
                _load_rows(
                    database,
                    name,
                    read_rows(io.StringIO(read_text(read_artifact(context.folder, path), path), newline="")),
                )
            except BadRows as error:
                raise Unmet("not_csv", f"{path} is not CSV: {error}") from error
        words = {word.casefold() for word in _WORD.findall(self.query)}
        for name in context.inputs.keys() - self._artifacts().keys():
            if name.casefold() in words:
                _load_input(database, name, context)

    def _compared(self, value: Value) -> Measurement:
        data = {"value": _kept(value), "expected": self.expect}
        text = f"`{shorten(' '.join(self.query.split()), 200)}` is {_in_words(value)}"
        if _is_equal(value, self.expect, self.tolerance):
            return Measurement(passed=True, text=text, data=JsonObject(data))
        allowed = f" within {shown(self.tolerance)}" if self.tolerance else ""
        return finding("query_differs", f"{text}, not {_in_words(self.expect)}{allowed}", data)


@contextmanager
def _opened() -> Generator[_Database]:
    database = cast("_Database", apsw.Connection(":memory:"))
    try:
        yield database
    finally:
        database.close()


def _syntax_problem(query: str) -> str:
    """Return why a query is no SELECT; whether its tables exist is only known when there are some."""
    if "\0" in query or not query.strip():
        return "is empty"
    if not _READING.match(query):
        return "is no SELECT"
    with _opened() as database:
        _restrict(database)
        try:
            for _ in database.execute(f"EXPLAIN {query}"):
                pass
        except apsw.AuthError:
            return "does more than read"
        except apsw.Error as error:
            text = str(error)
            return "" if "no such" in text else f"is no SQL: {text}"
    return ""


def _only_reading(action: int, *_details: object) -> int:
    return apsw.SQLITE_OK if action in _ALLOWED else apsw.SQLITE_DENY


def _restrict(database: _Database) -> None:
    for limit, value in (
        (apsw.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES),
        (apsw.SQLITE_LIMIT_ATTACHED, 0),
        (apsw.SQLITE_LIMIT_WORKER_THREADS, 0),
    ):
        database.limit(limit, value)
    database.authorizer = _only_reading


@contextmanager
def _time_limit(database: _Database, seconds: float) -> Generator[None]:
    # Not `interrupt`, which only ends what is running at that moment: rows may still be on their way in.
    expired = threading.Event()
    timer = threading.Timer(seconds, expired.set)
    timer.daemon = True
    timer.start()
    database.set_progress_handler(expired.is_set, PROGRESS_STEPS)
    try:
        yield
    finally:
        timer.cancel()
        database.set_progress_handler(None)


def _load_input(database: _Database, name: str, context: CheckContext) -> None:
    try:
        with open_input(context, name) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as lines:
            _load_rows(database, name, read_rows(lines))
    except BadRows as error:
        raise VerifierFailed(f"the input {name} cannot be used: {error}") from error


def _load_rows(database: _Database, name: str, rows: Iterator[Row]) -> None:
    """Make a table; a column of numbers compares as numbers, every other one as text, and an empty cell among numbers is NULL."""
    header, body = next(rows), at_most(rows, MAX_ROWS)
    numeric = [_is_numeric(row.cells[index] for row in body) for index in range(len(header.cells))]
    columns = ", ".join(
        f"{_quoted(column.strip())} {'NUMERIC' if is_number else 'TEXT'}"
        for column, is_number in zip(header.cells, numeric, strict=True)
    )
    database.execute(f"CREATE TABLE {_quoted(name)} ({columns})")
    places = ", ".join("?" * len(header.cells))
    cells = (
        tuple(None if is_number and not cell else cell for cell, is_number in zip(row.cells, numeric, strict=True))
        for row in body
    )
    with database:
        database.executemany(f"INSERT INTO {_quoted(name)} VALUES ({places})", cells)  # noqa: S608  quoted as an identifier; the cells are bound


def _is_numeric(cells: Iterator[str]) -> bool:
    filled = False
    for cell in cells:
        if cell and not _NUMBER.fullmatch(cell):
            return False
        filled = filled or bool(cell)
    return filled


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _first_rows(database: _Database, query: str) -> Sequence[tuple[Value, ...]]:
    rows: list[tuple[Value, ...]] = []
    for row in database.execute(query):
        rows.append(row)
        if len(rows) > 1:
            break
    return rows


def _kept(value: Value) -> str | int | float | None:
    """Return a value as evidence can hold it."""
    if value is None or (isinstance(value, (int, float)) and abs(value) <= MAX_INTEGER):
        return value
    return shorten(str(value), 200)


def _is_equal(value: Value, expected: Expected, tolerance: Decimal) -> bool:
    if isinstance(expected, str):
        return value == expected
    if not isinstance(value, (int, float)):
        return False
    if isinstance(expected, bool):
        return bool(value) == expected
    figure = parse_decimal(repr(value))
    return figure is not None and difference(figure, Decimal(repr(expected))) <= tolerance


def _in_words(value: "Value | Expected") -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "NULL" if value is None else repr(value) if isinstance(value, str) else str(value)
