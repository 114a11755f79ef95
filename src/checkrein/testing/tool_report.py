"""What was found out about a tool: each promise with its verdict, what happened, and what to change.

Only values and their text live here. The invariant: whatever is broken says what was declared, what was seen instead, and at least one way to mend it.
"""

import textwrap
from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from checkrein.ports.tool import ToolTraits
from checkrein.values import shorten, visible_text

__all__ = [
    "Finding",
    "ToolReport",
    "Unusable",
    "Verdict",
    "advice",
    "broken",
    "counted",
    "declared",
    "kept",
    "listed",
    "not_shown",
    "shown",
]

Verdict: TypeAlias = Literal["kept", "broken", "advice", "not shown"]
_MARKS: Final[dict[Verdict, str]] = {"broken": "✗", "kept": "✓", "not shown": "·", "advice": "→"}
_WIDTH: Final = 110
_SHOWN_CHARACTERS: Final = 160

MEANINGS: Final = {
    "arguments": "every argument has a type, and what is wrong is refused before anything happens",
    "result": "what is returned can be recorded whole",
    "artifacts": "files that are named exist below the run's folder",
    "inputs": "the task's inputs are only read",
    "workspace": "files are written below the run's folder only",
    "event loop": "an async body gives way to others",
    "effect": "what the tool changes can be looked at, and compared",
    "duplicates": "calls under one idempotency key at the same time are one execution",
    "sequential=False": "its calls may overlap",
    "sequential=True": "it never overlaps with another call of its batch",
    "idempotent=True": "it may be done again under one idempotency key, after a crash, a timeout or a passing failure, and then adds nothing",
    "idempotent=False": "it is never silently done again, so after a crash somebody has to know what happened",
    "reconcile": "it says whether this very call happened, and does nothing",
    "poll": "it knows a job by its handle alone, also after a crash",
    "two workers": "a worker that lost its lease records nothing any more",
    "cancellable=True": "it stops when it is told, at any moment, and leaves nothing or the whole",
    "cancellable=False": "it is waited for, and its outcome counts",
    "timeout_seconds": "one execution takes no longer",
}
"""What each promise means."""


class Finding(msgspec.Struct, frozen=True):
    """One promise, and what became of it.

    Attributes:
        verdict: `kept`; `broken`; `advice`: nothing is broken, but it could be better; `not shown`: the case gives no way to find out.
        promise: what is promised, as declared (`idempotent=True`) or by name (`result`).
        seen: what happened.
        change: what to change, when something should be.
    """

    verdict: Verdict
    promise: str
    seen: str
    change: str = ""

    def __str__(self) -> str:
        """Show it over a few lines, without its promise."""
        lines = _wrapped(f"{_MARKS[self.verdict]} {self.seen}", "  ", "    ")
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
        """Show what it declares, and promise by promise what it means and what was found; broken ones first."""
        return self.text(self.findings)

    def text(self, findings: Iterable[Finding]) -> str:
        """Show some of the findings as `str` shows all."""
        ranks: dict[str, int] = {}
        marks = list(_MARKS)
        ordered = sorted(findings, key=lambda item: marks.index(item.verdict))
        for item in ordered:
            ranks.setdefault(item.promise, item.verdict != "broken")
        counts = {verdict: sum(item.verdict == verdict for item in ordered) for verdict in marks}
        figures = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        lines = [f"{self.tool} declares {self.declares}: {figures}"]
        for promise in sorted(ranks, key=ranks.__getitem__):
            lines += [f"{promise} ({_meaning(promise)})", *(str(item) for item in ordered if item.promise == promise)]
        return "\n".join(lines)


def _meaning(promise: str) -> str:
    return MEANINGS.get(promise) or MEANINGS[promise.partition("=")[0]]


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
    """Return what a tool declares, in words: what it says about crashes and cancellation always, the rest when it says something."""
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


def counted(number: int, what: str) -> str:
    """Return a number of things: `1 await`, `2 awaits`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _wrapped(text: str, first: str, further: str) -> Sequence[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )
