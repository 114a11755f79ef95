"""A connection to SQLite with types: the few ways in which the store uses apsw, and nothing about the store.

The invariant: a statement is always run to its end before its rows are handed out, so no statement stays open between two calls.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias, cast

import apsw

__all__ = ["Columns", "Connection", "Value", "Values"]

Value: TypeAlias = int | float | str | bytes | None
Values: TypeAlias = Mapping[str, Value]
Columns: TypeAlias = tuple[Value, ...]


class Connection:
    """One apsw connection; for one thread at a time.

    Args:
        filename: an absolute path, or `:memory:`.
        vfs: the name of SQLite's file layer; `""` for the process's default.
    """

    # apsw's own types name `Buffer`, which type checkers do not know before Python 3.12; every such line is in this class.

    def __init__(self, filename: str, *, vfs: str = "") -> None:
        self.raw = apsw.Connection(filename, flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs or None)
        self.log_pages = 0

    def watch_log(self) -> None:
        """Keep in `log_pages` how long the write-ahead log is after each commit; SQLite itself no longer moves it into the file."""

        def note(_: apsw.Connection, __: str, pages: int) -> int:
            self.log_pages = pages
            return apsw.SQLITE_OK

        self.raw.set_wal_hook(note)

    def run(self, statement: str, values: Values | None = None) -> int:
        """Run one statement that returns no rows, and return how many rows it changed."""
        self.raw.execute(statement, values)  # pyright: ignore[reportUnknownMemberType]
        return self.raw.changes()

    def script(self, statements: str) -> None:
        """Run several statements; `execute` alone stops at the first that returns a row."""
        for _ in self.raw.execute(statements):  # pyright: ignore[reportUnknownMemberType]
            continue

    def rows(self, statement: str, values: Values | None = None) -> list[Columns]:
        """Return all rows of one statement."""
        return cast("list[Columns]", self.raw.execute(statement, values).fetchall())  # pyright: ignore[reportUnknownMemberType]

    def first(self, statement: str, values: Values | None = None) -> Columns | None:
        """Return the first row of one statement, None when it has none."""
        rows = self.rows(statement, values)
        return rows[0] if rows else None

    def column(self, statement: str, values: Values | None = None) -> list[Value]:
        """Return the only column of all rows of one statement."""
        found = self.raw.execute(statement, values)  # pyright: ignore[reportUnknownMemberType]
        return [value for (value,) in cast("Iterator[tuple[Value]]", found)]

    def pragma(self, name: str, value: Value = None) -> Value:
        """Ask or set one of SQLite's settings, and return what it is."""
        answer: Value = self.raw.pragma(name) if value is None else self.raw.pragma(name, value)  # pyright: ignore[reportUnknownMemberType]
        return answer

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Hold the write lock, commit at the end, and roll back on any error."""
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            if self.raw.in_transaction:
                self.run("ROLLBACK")
            raise

    def close(self) -> None:
        """Let go of the file; safe to call again."""
        self.raw.close()
