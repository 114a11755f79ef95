"""CSV files as typed tables: where they are, what their columns are, and their rows.

The first line names the columns. A column is `integer` or `real` only when every cell that is not empty is written as such a number and is the same
number when it is read; everything else is `text`, so codes with leading zeros, long ids and dates keep their characters. An empty cell is NULL. The invariant: a
table that cannot be read exactly is an error that names file and line, never a guess.
"""

import csv
import io
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from checkrein.errors import ToolError
from checkrein.toolkit import paths
from checkrein.values import MAX_INTEGER, shorten

__all__ = ["Cell", "Column", "Source", "Table", "find_sources", "fold", "load"]

MAX_TABLE_BYTES = 64 * 1024 * 1024
MAX_COLUMNS = 1_000
SUFFIXES = (".csv", ".tsv")

ColumnType: TypeAlias = Literal["integer", "real", "text"]
Cell: TypeAlias = int | float | str | None

_INTEGER = re.compile(r"(?:0|-?[1-9][0-9]*)\Z")
_REAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?\Z")
_LONGEST_NUMBER = 40
# So many decimal digits a double always gives back (IEEE 754, DBL_DIG); with more it depends on the number.
_SAFE_DIGITS = 15
_ORDER: tuple[ColumnType, ...] = ("integer", "real", "text")
_ASCII = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


class Source(msgspec.Struct, frozen=True):
    """A CSV file that can be a table.

    Attributes:
        name: the table's name.
        path: the file: relative to `folder`, or absolute for an input.
        folder: the run's folder; None for an input.
    """

    name: str
    path: str
    folder: Path | None = None


class Column(msgspec.Struct, frozen=True):
    """A column's name, unique in its table whatever the case, and its type."""

    name: str
    type: ColumnType


class Table(msgspec.Struct, frozen=True):
    """A table that was read: its columns, and the file's bytes to take the rows from."""

    source: Source
    columns: tuple[Column, ...]
    data: bytes

    def rows(self) -> Iterator[tuple[Cell, ...]]:
        """Yield the rows with their cells converted."""
        kinds: tuple[ColumnType, ...] = tuple(column.type for column in self.columns)
        for cells in _body(self.source, self.data, len(kinds)):
            yield tuple(map(_cell, cells, kinds))


def fold(name: str) -> str:
    """Return a name as SQLite compares it: A to Z are a to z, all else stays."""
    return name.translate(_ASCII)


def find_sources(folder: Path, inputs: Mapping[str, Path]) -> tuple[dict[str, Source], dict[str, str]]:
    """Return the tables there are by folded name, and for each name that is none the reason.

    An input goes before a file of the run with the same name; two files of the run with one name are both left out.

    Raises:
        OSError: the folder cannot be read.
    """
    tables = {fold(name): Source(name, str(path)) for name, path in inputs.items() if path.suffix.lower() in SUFFIXES}
    refused: dict[str, str] = {}
    own: dict[str, list[Source]] = {}
    for path in sorted(found for suffix in SUFFIXES for found in paths.find_files(folder, suffix)):
        stem = path.rpartition("/")[2].rpartition(".")[0]
        own.setdefault(fold(stem), []).append(Source(stem, path, folder))
    for name, sources in own.items():
        listed = ", ".join(source.path for source in sources)
        if name in tables:
            refused[name] = f"{listed} is hidden by the input {tables[name].name}"
        elif len(sources) > 1:
            refused[name] = f"{name} could be {listed}"
        elif not name or name.startswith("sqlite_"):
            refused[name] = f"{listed} has a name that no table can have"
        else:
            tables[name] = sources[0]
    return tables, refused


def load(source: Source) -> Table:
    """Read a table and find its columns' types.

    Raises:
        ToolError: it is too large, no UTF-8, has no header, too many columns, a row of another length, or broken quotes.
        PathEscape: a file of the run is a symbolic link, or lies behind one.
        OSError: it cannot be read.
    """
    data = _read(source)
    names = _unique(_header(source, data))
    kinds = [0] * len(names)
    is_seen = [False] * len(names)
    for cells in _body(source, data, len(names)):
        for index, cell in enumerate(cells):
            if cell:
                is_seen[index] = True
                if kinds[index] < len(_ORDER) - 1:
                    kinds[index] = max(kinds[index], _kind(cell))
    columns = (
        Column(name, _ORDER[kind] if seen else "text") for name, kind, seen in zip(names, kinds, is_seen, strict=True)
    )
    return Table(source, tuple(columns), data)


def _read(source: Source) -> bytes:
    if source.folder is None:
        with Path(source.path).open("rb") as file:
            return _bounded(source, file.fileno())
    with paths.open_file(source.folder, source.path) as opened:
        return _bounded(source, opened)


def _bounded(source: Source, opened: int) -> bytes:
    if os.fstat(opened).st_size > MAX_TABLE_BYTES:
        msg = f"table {source.name} is larger than {MAX_TABLE_BYTES:,} bytes"
        raise ToolError(msg)
    with os.fdopen(os.dup(opened), "rb") as file:
        return file.read(MAX_TABLE_BYTES)


def _lines(source: Source, data: bytes, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each record with the number of its last line; blank lines are left out."""
    text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline="")
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        msg = f"table {source.name}, line {reader.line_num}: {error}"
        raise ToolError(msg) from error
    except UnicodeDecodeError as error:
        msg = f"table {source.name} is no UTF-8 text, near line {reader.line_num + 1}"
        raise ToolError(msg) from error


def _header(source: Source, data: bytes) -> list[str]:
    found = next(_lines(source, data, _delimiter(data)), None)
    if found is None:
        msg = f"table {source.name} has no header line"
        raise ToolError(msg)
    if len(found[1]) > MAX_COLUMNS:
        msg = f"table {source.name} has {len(found[1]):,} columns, more than the {MAX_COLUMNS:,} allowed"
        raise ToolError(msg)
    return found[1]


def _body(source: Source, data: bytes, width: int) -> Iterator[list[str]]:
    records = _lines(source, data, _delimiter(data))
    next(records, None)
    for line, cells in records:
        if len(cells) != width:
            msg = f"table {source.name}, line {line}: {len(cells)} instead of {width} cells"
            raise ToolError(msg)
        yield cells


def _delimiter(data: bytes) -> str:
    """Return what separates the header's names: of comma, semicolon and tab the one that gives most of them, a comma when they tie."""
    first = data.partition(b"\n")[0][:65_536].decode("utf-8", "replace")

    def width(delimiter: str) -> int:
        try:
            return sum(len(cells) for cells in csv.reader([first], delimiter=delimiter))
        except csv.Error:
            return 0

    return max((",", ";", "\t"), key=width)


def _unique(header: Iterable[str]) -> list[str]:
    """Return names that differ, whatever the case: an empty one is `column_<n>`, one that came before gets a number."""
    names: list[str] = []
    taken: set[str] = set()
    for position, cell in enumerate(header, start=1):
        base = shorten(cell.strip().replace("\0", ""), 200) or f"column_{position}"
        name, number = base, 2
        while fold(name) in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(fold(name))
        names.append(name)
    return names


def _kind(cell: str) -> int:
    """Return the index in `_ORDER` of the narrowest type that gives the cell's number back."""
    if len(cell) > _LONGEST_NUMBER:
        return 2
    if _INTEGER.match(cell):
        return 0 if -MAX_INTEGER <= int(cell) <= MAX_INTEGER else 2
    return 1 if _REAL.match(cell) and _is_exact(cell) else 2


def _is_exact(cell: str) -> bool:
    number = float(cell)
    is_short = len(cell) <= _SAFE_DIGITS and "e" not in cell.lower()
    return is_short or (math.isfinite(number) and Decimal(repr(number)) == Decimal(cell))


def _cell(cell: str, kind: ColumnType) -> Cell:
    if not cell:
        return None
    if kind == "text":
        return cell
    return int(cell) if kind == "integer" else float(cell)
