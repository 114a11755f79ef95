"""What was found out about a tool: each promise with its verdict, what happened, and what to change.

Only values and their text live here. The invariant: whatever is broken says what was declared, what was seen instead, and at least one way to mend it.
"""

import textwrap
from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from checkrein.ports.tool import ToolTraits
from checkrein.values import shorten, visible_text

__all__ = ["Finding", "ToolReport", "Unusable", "Verdict", "advice", "broken", "declared", "kept", "not_shown", "shown"]

Verdict: TypeAlias = Literal["kept", "broken", "advice", "not shown"]
_MARKS: Final[dict[Verdict, str]] = {"kept": "✓", "broken": "✗", "advice": "→", "not shown": "·"}
_ORDER: Final[tuple[Verdict, ...]] = ("broken", "kept", "not shown", "advice")
_WIDTH: Final = 110
_SHOWN_CHARACTERS: Final = 160


class Finding(msgspec.Struct, frozen=True):
    """One promise, and what became of it.

    Attributes:
        verdict: `kept`; `broken`; `advice`: nothing is broken, but it could be better; `not shown`: the case gives no way to find out.
        promise: what is promised, as declared (`idempotent=True`) or in words.
        seen: what happened.
        change: what to change, when something should be.
    """

    verdict: Verdict
    promise: str
    seen: str
    change: str = ""

    def __str__(self) -> str:
        """Show it over a few lines."""
        lines = _wrapped(f"{_MARKS[self.verdict]} {self.promise}: {self.seen}", "  ", "    ")
        return "\n".join([*lines, *(_wrapped(f"change: {self.change}", "    ", "      ") if self.change else ())])


class ToolReport(msgspec.Struct, frozen=True):
    """All that was found out about one tool; `str` shows it to people.

    Attributes:
        tool: the tool's name.
        declares: what it declares, in words.
        findings: in the order in which they were made.
    """

    tool: str
    declares: str
    findings: tuple[Finding, ...]

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The promises that do not hold."""
        return tuple(item for item in self.findings if item.verdict == "broken")

    @property
    def is_kept(self) -> bool:
        """Whether nothing is broken."""
        return not self.broken

    def __str__(self) -> str:
        """Show what it declares and each finding, broken ones first."""
        ordered = sorted(self.findings, key=lambda item: _ORDER.index(item.verdict))
        counts = {verdict: sum(item.verdict == verdict for item in ordered) for verdict in _ORDER}
        figures = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        return "\n".join([f"{self.tool} declares {self.declares}: {figures}", *map(str, ordered)])


class Unusable(Exception):
    """The case itself does not work, so nothing more can be found out.

    Attributes:
        finding: why.
    """

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


def kept(promise: str, seen: str) -> Finding:
    """Return the finding of a promise that holds."""
    return Finding("kept", promise, seen)


def broken(promise: str, seen: str, change: str) -> Finding:
    """Return the finding of a promise that does not hold."""
    return Finding("broken", promise, seen, change)


def advice(promise: str, seen: str, change: str) -> Finding:
    """Return a finding of something that could be better."""
    return Finding("advice", promise, seen, change)


def not_shown(promise: str, seen: str, change: str = "") -> Finding:
    """Return the finding of a promise that could not be tried."""
    return Finding("not shown", promise, seen, change)


def declared(traits: ToolTraits) -> str:
    """Return what a tool declares, in words: what it says about crashes always, the rest when it says something."""
    said = [f"idempotent={traits.idempotent}", f"cancellable={traits.cancellable}"]
    if traits.timeout_seconds is not None:
        said.append(f"timeout_seconds={traits.timeout_seconds:g}")
    flags = {"sequential": traits.sequential, "inline": traits.inline}
    said += [f"{name}=True" for name, is_said in flags.items() if is_said]
    helpers = {"reconcile": traits.has_probe, "poll": traits.has_poll}
    return ", ".join([*said, *(name for name, is_said in helpers.items() if is_said)])


def shown(value: object) -> str:
    """Return a value as short text."""
    return shorten(visible_text(repr(value), keep_newlines=False), _SHOWN_CHARACTERS)


def listed(items: Iterable[object]) -> str:
    """Return items as text, separated by commas."""
    return ", ".join(map(str, items))


def _wrapped(text: str, first: str, further: str) -> Sequence[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )
