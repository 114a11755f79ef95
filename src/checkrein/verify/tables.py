"""The check `table`: a Markdown or CSV table is there, has its columns and rows, adds up, and shows the source's figures group by group."""

import io
import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from typing import ClassVar, Final, NamedTuple

import msgspec

from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.values import JsonObject, shorten
from checkrein.verify.artifacts import Unmet, finding, read_artifact, read_text
from checkrein.verify.base import ArtifactCheck, refuse
from checkrein.verify.delimited import BadRows, at_most, read_rows
from checkrein.verify.figures import difference, exact, parse_figure, shown
from checkrein.verify.markdown import Table, TableRow, folded, read_markdown
from checkrein.verify.sources import Amounts, Counted, Groups, count, group, total
from checkrein.verify.sums import refuse_tolerance

__all__ = ["TableCheck", "TableGroups", "TableTotal"]

MAX_LISTED: Final = 10
MAX_ROWS: Final = 200_000


class TableTotal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a column adds up to; a total row must say so too, and without `value` and `source` it alone is compared.

    Attributes:
        column: the column to add up.
        value: the sum it must have, or
        source: the rows whose sum it must have.
        tolerance: how far the two may be apart.
    """

    column: str
    value: Decimal | None = None
    source: Amounts | None = None
    tolerance: Decimal = Decimal(0)


class TableGroups(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row for each group of the source, with its figure.

    Attributes:
        key: the column that names the group.
        column: the column with its figure.
        source: the rows, how they are grouped and what is added up.
        tolerance: how far two figures may be apart.
        complete: every group of the source must be there; false when the table shows some of them.
    """

    key: str
    column: str
    source: Groups
    tolerance: Decimal = Decimal(0)
    complete: bool = True


class _Problem(NamedTuple):
    code: str
    text: str


class _Body(NamedTuple):
    """A table's columns by name, its rows, and the total row apart."""

    columns: dict[str, int]
    rows: tuple[TableRow, ...]
    total: TableRow | None


class TableCheck(ArtifactCheck, frozen=True, kw_only=True):
    """A table is there and right.

    Attributes:
        heading: the Markdown heading it stands under.
        columns: columns it must have.
        rows: how many rows it must have, without a total row; a number, or what to count.
        total: what a column adds up to.
        groups: figures per group.
        total_row: the first word of the total row, if the last row begins with it; empty when there is none.
    """

    name: ClassVar[str] = "table"
    revision: ClassVar[str] = "1"
    heading: str = ""
    columns: tuple[str, ...] = ()
    rows: int | Counted | None = None
    total: TableTotal | None = None
    groups: TableGroups | None = None
    total_row: str = "Total"

    def validated(self) -> None:
        """Refuse what no table can meet.

        Raises:
            TaskError: it cannot.
        """
        if self.heading and self._is_csv():
            refuse("heading", "needs Markdown", "leave it out: a CSV file has no headings")
        if isinstance(self.rows, int) and self.rows < 1:
            refuse("rows", f"is {self.rows}", "give 1 or more")
        if isinstance(self.rows, Counted):
            self.rows.validate("rows")
        if self.total:
            refuse_tolerance(self.total.tolerance, "total.tolerance")
            if self.total.value is not None and self.total.source:
                refuse("total", "has both a value and a source", "give one of them")
            if self.total.value is not None and not self.total.value.is_finite():
                refuse("total.value", f"is {self.total.value}", "give a number")
            if self.total.source:
                self.total.source.validate("total.source")
        if self.groups:
            refuse_tolerance(self.groups.tolerance, "groups.tolerance")
            self.groups.source.validate("groups.source")

    def in_words(self) -> str:
        """Return the title."""
        parts = ["its rows"] if self.rows is not None else []
        parts += [f"the total of {self.total.column}"] if self.total else []
        parts += [f"{self.groups.column} per {self.groups.key}"] if self.groups else []
        place = f"the table under “{self.heading}” in {self.path}" if self.heading else f"the table in {self.path}"
        return f"{place} has {', '.join(parts)} right" if parts else f"{place} is there"

    def used_inputs(self) -> tuple[tuple[str, str], ...]:
        """Return the inputs that sources name."""
        rows = self.rows.used_inputs("rows") if isinstance(self.rows, Counted) else ()
        added = self.total.source.used_inputs("total.source") if self.total and self.total.source else ()
        grouped = self.groups.source.used_inputs("groups.source") if self.groups else ()
        return (*rows, *added, *grouped)

    def look(self, context: CheckContext) -> Measurement:
        """Find the table, then ask everything about it, so that one repair can mend all of it."""
        table = self._found(context)
        inquiry = _Inquiry(_body(table, self.total_row), context)
        if inquiry.has_columns(self._wanted_columns()) and inquiry.has_rows(self.rows):
            if self.total:
                inquiry.ask_total(self.total, self.total_row)
            if self.groups:
                inquiry.ask_groups(self.groups)
        place = f"the table of line {table.header.line} in {self.path}"
        listed = [problem.text for problem in inquiry.problems[:MAX_LISTED]]
        data = {**inquiry.figures, "columns": table.header.cells, "line": table.header.line, "problems": listed}
        if not listed:
            return Measurement(passed=True, text=f"{place}: {'; '.join(inquiry.proofs)}", data=JsonObject(data))
        left = len(inquiry.problems) - len(listed)
        more = f"; and {left} more" if left else ""
        return finding(inquiry.problems[0].code, f"{place}: {'; '.join(listed)}{more}", data)

    def _is_csv(self) -> bool:
        return self.path.lower().endswith(".csv")

    def _found(self, context: CheckContext) -> Table:
        text = read_text(read_artifact(context.folder, self.path), self.path)
        tables = (_csv_table(text, self.path),) if self._is_csv() else read_markdown(text, self.path).tables
        heading = folded(self.heading)
        under = [table for table in tables if not heading or heading in {folded(name) for name in table.under}]
        if not under:
            place = f" under the heading “{self.heading}”" if heading else ""
            raise Unmet("missing_table", f"{self.path} has no table{place}; it has {len(tables)} in all")
        wanted = {folded(column) for column in self._wanted_columns()}
        return next((table for table in under if wanted <= {folded(cell) for cell in table.header.cells}), under[0])

    def _wanted_columns(self) -> tuple[str, ...]:
        groups = (self.groups.key, self.groups.column) if self.groups else ()
        return (*self.columns, *((self.total.column,) if self.total else ()), *groups)


class _Inquiry:
    """What is asked of one table, and what came of it: problems, proofs in words, and figures."""

    def __init__(self, body: _Body, context: CheckContext) -> None:
        self._body = body
        self._context = context
        self.problems: list[_Problem] = []
        self.proofs: list[str] = []
        self.figures: dict[str, object] = {"rows": len(body.rows)}

    def has_columns(self, wanted: Sequence[str]) -> bool:
        """Tell whether the columns are there; without them nothing else can be asked."""
        for column in dict.fromkeys(wanted):
            if folded(column) not in self._body.columns:
                self._object("missing_column", f"it has no column “{column}”")
        return not self.problems

    def has_rows(self, wanted: int | Counted | None) -> bool:
        """Tell whether there are rows at all, and object when they are not as many as wanted."""
        found = len(self._body.rows)
        if not found:
            self._object("no_rows", "it has no rows")
            return False
        expected = count(wanted, self._context) if isinstance(wanted, Counted) else wanted
        if expected is not None and found != expected:
            self._object("wrong_rows", f"it has {found} rows, not {expected}")
        else:
            self.proofs.append(f"{found} rows" + (", as expected" if expected is not None else ""))
        return True

    def ask_total(self, wanted: TableTotal, total_row: str) -> None:
        """Add the column up and compare, also with the total row."""
        found = self._added_up(wanted.column)
        if found is None:
            return
        self.figures["total"] = shown(found)
        what = f"{wanted.column} adds up to {shown(found)}"
        expected = total(wanted.source, self._context).amount if wanted.source else wanted.value
        if expected is not None and difference(found, expected) > wanted.tolerance:
            self._object("wrong_total", f"{what}, not {shown(expected)}")
        if expected is None and self._body.total is None:
            self._object("missing_total", f"its last row does not begin with “{total_row}”: no total to compare")
        if self._body.total is not None:
            self._ask_total_row(self._body.total, wanted, found)
        self.proofs.append(f"{what}, as {wanted.source.where_from() if wanted.source else 'it must'}")

    def _added_up(self, column: str) -> Decimal | None:
        index = self._body.columns[folded(column)]
        figures = [self._figure(row, column, index) for row in self._body.rows]
        if any(figure is None for figure in figures):
            return None
        with exact():
            return sum((figure for figure in figures if figure is not None), Decimal(0))

    def _ask_total_row(self, row: TableRow, wanted: TableTotal, found: Decimal) -> None:
        index = self._body.columns[folded(wanted.column)]
        figure = self._figure(row, wanted.column, index)
        if figure is not None and difference(figure, found) > wanted.tolerance:
            said = f"its total row says {row.cells[index]} for {wanted.column}"
            self._object("wrong_total", f"{said}, but the rows add up to {shown(found)}")

    def ask_groups(self, wanted: TableGroups) -> None:
        """Compare the figure of every row with its group's, and look for groups without a row."""
        expected = {_key(name): figure for name, figure in group(wanted.source, self._context).items()}
        key, index = self._body.columns[folded(wanted.key)], self._body.columns[folded(wanted.column)]
        seen: set[str] = set()
        for row in self._body.rows:
            name = _key(row.cells[key])
            if name in seen:
                self._object("repeated_group", f"{name!r} stands there twice (line {row.line})")
            elif name not in expected:
                self._object("unexpected_group", f"{name!r} is not in {wanted.source.where_from()}")
            else:
                self._ask_figure(row, index, expected[name], wanted)
            seen.add(name)
        missing = [name for name in expected if name not in seen]
        if missing and wanted.complete:
            more = f" and {len(missing) - MAX_LISTED} more" if len(missing) > MAX_LISTED else ""
            listed = ", ".join(repr(name) for name in missing[:MAX_LISTED]) + more
            self._object("missing_group", f"{len(missing)} of {len(expected)} are missing: {listed}")
        self.figures["groups"] = len(expected)
        place = wanted.source.where_from()
        self.proofs.append(
            f"{wanted.column} per {wanted.key} is that of {place}, {len(seen)} of {len(expected)} groups"
        )

    def _ask_figure(self, row: TableRow, index: int, expected: Decimal, wanted: TableGroups) -> None:
        figure = self._figure(row, wanted.column, index)
        if figure is not None and difference(figure, expected) > wanted.tolerance:
            said = f"{row.cells[0]!r} has {row.cells[index]} for {wanted.column}"
            self._object("wrong_figure", f"{said}, not {shown(expected)} (line {row.line})")

    def _figure(self, row: TableRow, column: str, index: int) -> Decimal | None:
        figure = parse_figure(row.cells[index])
        if figure is None:
            said = f"{row.cells[0]!r} has {row.cells[index]!r} for {column}"
            self._object("missing_figure", f"{said}, which is no figure (line {row.line})")
        return figure

    def _object(self, code: str, text: str) -> None:
        self.problems.append(_Problem(code, shorten(text, 300)))


def _csv_table(text: str, path: str) -> Table:
    try:
        lines = read_rows(io.StringIO(text, newline=""))
        header, *rows = (TableRow(row.line, row.cells) for row in at_most(lines, MAX_ROWS))
    except BadRows as error:
        raise Unmet("not_csv", f"{path} is not CSV: {error}") from error
    return Table(under=(), header=header, rows=tuple(rows))


def _body(table: Table, total_row: str) -> _Body:
    columns = {folded(cell): index for index, cell in reversed(list(enumerate(table.header.cells)))}
    last = table.rows[-1] if table.rows else None
    first_word = folded(last.cells[0]).split(" ")[0].rstrip(":") if last else ""
    if last and total_row and first_word == folded(total_row):
        return _Body(columns, table.rows[:-1], last)
    return _Body(columns, table.rows, None)


def _key(text: str) -> str:
    return unicodedata.normalize("NFC", " ".join(text.split()))
