"""Reads CSV strictly: a header of distinct names, and rows of just as many fields, streamed.

Knows no file and no artifact; `BadRows` says in words what is wrong and where, and callers decide whose fault that is.
"""

import csv
import itertools
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

__all__ = ["MAX_COLUMNS", "BadRows", "Row", "at_most", "column_index", "read_rows"]

MAX_COLUMNS: Final = 10_000


class BadRows(Exception):
    """The text is no CSV of the strict kind read here, or a cell is not what it must be. It never leaves this room."""


class Row(NamedTuple):
    """One row of fields, and the line of the text where it ends, from 1."""

    line: int
    cells: tuple[str, ...]


def read_rows(lines: Iterable[str]) -> Iterator[Row]:
    """Yield the header, then the rows; blank lines are passed over.

    Raises:
        BadRows: no header, a name twice or empty, a row with more or fewer fields than the header, an unclosed quote, a field of more than 128 KiB.
    """
    reader = csv.reader(lines, strict=True)
    width = 0
    try:
        for cells in reader:
            if not cells:
                continue
            if not width:
                width = _checked_header(cells)
            elif len(cells) != width:
                raise BadRows(f"line {reader.line_num} has {len(cells)} fields, the header {width}")
            yield Row(reader.line_num, tuple(cells))
    except csv.Error as error:
        raise BadRows(f"line {reader.line_num}: {error}") from error
    except UnicodeDecodeError as error:
        raise BadRows(f"it is not UTF-8 text after line {reader.line_num}") from error
    if not width:
        raise BadRows("it has no header")


def _checked_header(cells: list[str]) -> int:
    if len(cells) > MAX_COLUMNS:
        raise BadRows(f"the header has {len(cells):,} columns, more than {MAX_COLUMNS:,}")
    seen: set[str] = set()
    for position, cell in enumerate(cells, start=1):
        name = cell.strip()
        if not name:
            raise BadRows(f"column {position} has no name")
        if name in seen:
            raise BadRows(f"the header names {name!r} twice")
        seen.add(name)
    return len(cells)


def at_most(rows: Iterator[Row], limit: int) -> list[Row]:
    """Return all rows.

    Raises:
        BadRows: there are more than `limit`.
    """
    taken = list(itertools.islice(rows, limit + 1))
    if len(taken) > limit:
        raise BadRows(f"it has more than {limit:,} rows")
    return taken


def column_index(header: Row, column: str) -> int:
    """Return the position of a column.

    Raises:
        BadRows: the header has no such column.
    """
    names = [name.strip() for name in header.cells]
    if column not in names:
        raise BadRows(f"it has no column {column!r}; it has: {', '.join(names[:40])}")
    return names.index(column)
