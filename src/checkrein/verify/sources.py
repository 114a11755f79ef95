"""Reads the figures a report must agree with from the rows they came from: sums, groups and counts over an input or a CSV artifact.

The structs here are the `source` tables of checks. The invariant: a fault of an input is `VerifierFailed`, because the report cannot be blamed for it; a fault of an
artifact is a finding.
"""

import datetime as dt
import io
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Final, TypeAlias

import msgspec

from checkrein.errors import VerifierFailed
from checkrein.ports.verifier import CheckContext
from checkrein.verify.artifacts import Unmet, open_input, read_artifact, read_text
from checkrein.verify.base import refuse, refuse_path
from checkrein.verify.delimited import BadRows, Row, column_index, read_rows
from checkrein.verify.figures import exact, parse_decimal

__all__ = ["Amounts", "Counted", "Groups", "Selection", "Total", "count", "group", "total"]

Wanted: TypeAlias = str | int | float | tuple[str, ...]

MAX_GROUPS: Final = 100_000


class Selection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows of one CSV: an input of the task, or an artifact.

    Attributes:
        input: the input's name; or
        path: the artifact's path.
        where: columns and the value each must have, all of them; a list means any of its values.
    """

    input: str = ""
    path: str = ""
    where: Mapping[str, Wanted] = {}

    def validate(self, key: str) -> None:
        """Refuse a selection that names no file, or two.

        Raises:
            TaskError: it does.
        """
        if bool(self.input) == bool(self.path):
            refuse(
                key,
                "names both an input and a path" if self.input else "names no rows",
                "give either `input` (one of the task's inputs) or `path` (a CSV artifact)",
            )
        if self.path:
            refuse_path(self.path, f"{key}.path")

    def where_from(self) -> str:
        """Return the place of the rows, in words."""
        return f"the input {self.input}" if self.input else self.path

    def used_inputs(self, key: str) -> tuple[tuple[str, str], ...]:
        """Return the option and the input that it names, if it names one."""
        return ((f"{key}.input", self.input),) if self.input else ()


class Amounts(Selection, frozen=True, kw_only=True):
    """Rows and the column to add up.

    Attributes:
        column: the column of amounts.
        times: a second column to multiply each amount with, such as a quantity.
    """

    column: str
    times: str = ""

    def formula(self) -> str:
        """Return what is added up, in words."""
        return f"{self.column} × {self.times}" if self.times else self.column


class Groups(Selection, frozen=True, kw_only=True):
    """Rows, and how they are grouped and added up.

    Attributes:
        by: the column whose values are the groups; or
        by_year: a column of ISO dates whose years are.
        column: the column of amounts; without it the rows are counted.
        times: a second column to multiply each amount with.
    """

    by: str = ""
    by_year: str = ""
    column: str = ""
    times: str = ""

    def validate(self, key: str) -> None:
        """Refuse what `Selection` refuses, and groups by nothing or by two things.

        Raises:
            TaskError: they are.
        """
        Selection.validate(self, key)
        if bool(self.by) == bool(self.by_year):
            refuse(
                key,
                "must be grouped by exactly one thing",
                "give either `by` (a column) or `by_year` (a column of ISO dates)",
            )
        if self.times and not self.column:
            refuse(f"{key}.times", "multiplies nothing", "give `column` too")


class Counted(Selection, frozen=True, kw_only=True):
    """Rows to count.

    Attributes:
        distinct: count the different values of this column instead.
    """

    distinct: str = ""


class Total(msgspec.Struct, frozen=True):
    """A sum and the number of rows in it."""

    amount: Decimal
    rows: int


@contextmanager
def _opened(source: Selection, context: CheckContext) -> Generator[tuple[Row, Iterator[Row]]]:
    """Give the header and the selected rows; a `BadRows` raised meanwhile becomes the fault of the right one."""
    try:
        if source.input:
            with open_input(context, source.input) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as lines:
                yield _selected(source, read_rows(lines))
        else:
            yield _selected(
                source,
                read_rows(io.StringIO(read_text(read_artifact(context.folder, source.path), source.path), newline="")),
            )
    except BadRows as error:
        if source.input:
            raise VerifierFailed(f"{source.where_from()} cannot be used: {error}") from error
        raise Unmet("bad_source", f"{source.path} cannot be used: {error}") from error


def _selected(source: Selection, rows: Iterator[Row]) -> tuple[Row, Iterator[Row]]:
    header = next(rows)
    wanted = [(column_index(header, column), value) for column, value in source.where.items()]
    return header, (row for row in rows if all(_is_wanted(row.cells[index], value) for index, value in wanted))


def _is_wanted(cell: str, value: Wanted) -> bool:
    if isinstance(value, tuple):
        return cell in value
    if isinstance(value, str):
        return cell == value
    return parse_decimal(cell) == Decimal(str(value))


def _amount(row: Row, index: int, name: str) -> Decimal:
    cell = row.cells[index]
    value = parse_decimal(cell)
    if value is None:
        raise BadRows(f"line {row.line}: {name} is {cell[:40]!r}, which is no number")
    return value


def _amounts(rows: Iterator[Row], columns: tuple[tuple[int, str], ...]) -> Iterator[tuple[Row, Decimal]]:
    """Yield each row with the product of its cells in `columns`; a row with an empty one has no amount and is left out."""
    for row in rows:
        if all(row.cells[index].strip() for index, _ in columns):
            product = Decimal(1)
            for index, name in columns:
                product *= _amount(row, index, name)
            yield row, product


def _indexed(header: Row, *names: str) -> tuple[tuple[int, str], ...]:
    return tuple((column_index(header, name), name) for name in names if name)


def total(source: Amounts, context: CheckContext) -> Total:
    """Add up a column over the selected rows, exactly.

    Raises:
        VerifierFailed: the input is missing, is no CSV, lacks a column or has a cell that is no number.
        Unmet: the same of an artifact (`missing`, `escapes`, `too_large`, `not_text`, `bad_source`).
    """
    with _opened(source, context) as (header, rows), exact():
        amount, used = Decimal(0), 0
        for _, value in _amounts(rows, _indexed(header, source.column, source.times)):
            amount += value
            used += 1
        return Total(amount, used)


def group(source: Groups, context: CheckContext) -> dict[str, Decimal]:
    """Add up, or count, per group.

    Raises:
        VerifierFailed: as `total`; a date is no ISO date; there are more than 100,000 groups.
        Unmet: the same of an artifact.
    """
    with _opened(source, context) as (header, rows), exact():
        key = column_index(header, source.by or source.by_year)
        groups: dict[str, Decimal] = {}
        for row, value in _amounts(rows, _indexed(header, source.column, source.times)):
            name = _year(row, key) if source.by_year else row.cells[key].strip()
            groups[name] = groups.get(name, Decimal(0)) + value
            if len(groups) > MAX_GROUPS:
                raise BadRows(f"it has more than {MAX_GROUPS:,} groups")
        return groups


def _year(row: Row, index: int) -> str:
    cell = row.cells[index].strip()
    try:
        return str(dt.date.fromisoformat(cell[:10]).year)
    except ValueError as error:
        raise BadRows(f"line {row.line}: {cell[:40]!r} is no ISO date") from error


def count(source: Counted, context: CheckContext) -> int:
    """Count the selected rows, or the different values of one column in them.

    Raises:
        VerifierFailed: the input is missing, is no CSV or lacks the column.
        Unmet: the same of an artifact.
    """
    with _opened(source, context) as (header, rows):
        if not source.distinct:
            return sum(1 for _ in rows)
        index = column_index(header, source.distinct)
        return len({row.cells[index].strip() for row in rows})
