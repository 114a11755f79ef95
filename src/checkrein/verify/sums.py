"""The check `sum`: a figure that an artifact reports equals the sum of the rows it came from."""

from decimal import Decimal
from typing import ClassVar

import msgspec

from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.values import JsonObject, JsonValue
from checkrein.verify.artifacts import Unmet, finding, read_artifact, read_text
from checkrein.verify.base import Check, refuse, refuse_path
from checkrein.verify.figures import Figure, difference, find_figure, parse_decimal, parse_figure, shown
from checkrein.verify.json_values import at_pointer, pointer_problem, read_json
from checkrein.verify.sources import Amounts, total

__all__ = ["Reported", "SumCheck"]


class Reported(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the figure is reported.

    Attributes:
        path: the artifact.
        after: the figure is the first one after this text, or
        pointer: the value at this JSON Pointer, in a JSON artifact.
    """

    path: str
    after: str = ""
    pointer: str = ""

    def place(self) -> str:
        """Return the place in words."""
        return f"after “{self.after}”" if self.after else f"at {self.pointer}"


class SumCheck(Check, frozen=True, kw_only=True):
    """A reported figure equals the source's sum.

    Attributes:
        source: what to add up.
        reported: where the figure stands.
        tolerance: how far the two may be apart.
    """

    name: ClassVar[str] = "sum"
    revision: ClassVar[str] = "1"
    source: Amounts
    reported: Reported
    tolerance: Decimal = Decimal(0)

    @property
    def subject(self) -> str:
        """The artifact that reports the figure."""
        return self.reported.path

    def validated(self) -> None:
        """Refuse sources and places that name nothing, or two things.

        Raises:
            TaskError: they do.
        """
        self.source.validate("source")
        refuse_path(self.reported.path, "reported.path")
        if bool(self.reported.after) == bool(self.reported.pointer):
            refuse(
                "reported",
                "must say where the figure stands, once",
                "give either `after` (the text before it) or `pointer` (a JSON Pointer)",
            )
        if self.reported.pointer and pointer_problem(self.reported.pointer):
            refuse("reported.pointer", pointer_problem(self.reported.pointer), "write it as in `/totals/sales`")
        refuse_tolerance(self.tolerance, "tolerance")

    def in_words(self) -> str:
        """Return the title."""
        return f"the figure {self.reported.place()} in {self.reported.path} equals the sum of {self.source.formula()} over {self.source.where_from()}"

    def used_inputs(self) -> tuple[tuple[str, str], ...]:
        """Return the input that the source names, if it names one."""
        return self.source.used_inputs("source")

    def look(self, context: CheckContext) -> Measurement:
        """Read the figure, add up the source, compare."""
        reported = self._reported(context)
        expected = total(self.source, context)
        apart = difference(reported.value, expected.amount)
        data = {
            "reported": shown(reported.value),
            "expected": shown(expected.amount),
            "difference": shown(apart),
            "rows": expected.rows,
        }
        place = f"{self.reported.path} says {reported.text} {self.reported.place()}" + (
            f" (line {reported.line})" if reported.line else ""
        )
        figure = f"the sum of {self.source.formula()} over {self.source.where_from()}: {shown(expected.amount)} from {expected.rows:,} rows"
        if apart > self.tolerance:
            return finding(
                "wrong_sum",
                f"{place}, not {figure}; they are {shown(apart)} apart, {shown(self.tolerance)} is allowed",
                data,
            )
        return Measurement(passed=True, text=f"{place}, which is {figure}", data=JsonObject(data))

    def _reported(self, context: CheckContext) -> Figure:
        path, after = self.reported.path, self.reported.after
        content = read_artifact(context.folder, path)
        if not after:
            return _figure_of(at_pointer(read_json(content, path), self.reported.pointer, path), self.reported)
        text = read_text(content, path)
        start = text.find(after)
        if start < 0:
            raise Unmet("missing_text", f"{path} does not hold the text “{after}”, after which the figure must stand")
        found = find_figure(text, start + len(after))
        if found is None:
            raise Unmet("missing_figure", f"{path} has no figure after the text “{after}”")
        return found


def _figure_of(value: JsonValue, reported: Reported) -> Figure:
    if isinstance(value, str):
        figure = parse_figure(value)
    else:
        figure = parse_decimal(str(value)) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if figure is None:
        raise Unmet("missing_figure", f"{reported.path} has no figure {reported.place()}")
    return Figure(value=figure, text=str(value), line=0)


def refuse_tolerance(tolerance: Decimal, key: str) -> None:
    """Refuse a tolerance that is negative or no number.

    Raises:
        TaskError: it is.
    """
    if not tolerance.is_finite() or tolerance < 0:
        refuse(key, f"is {tolerance}", "give 0 or more, such as 0.005")
