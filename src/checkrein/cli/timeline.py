"""The story of a run: its log with the bookkeeping left out and each step told once."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from checkrein.cli.words import words
from checkrein.kernel.events import (
    BudgetWarn,
    CheckFailed,
    Event,
    PlanCommit,
    PlanDraft,
    SessionComplete,
    SessionPause,
    SessionResume,
    SessionStart,
    StepEnd,
    StepStart,
    ToolCallGiven,
    ToolDone,
    ToolErrorGiven,
    ToolGranted,
    ToolResultGiven,
    TurnFinished,
    TurnGranted,
    TurnStart,
    WorkStarted,
)

__all__ = ["Entry", "timeline_of"]

_BOOKKEEPING = (
    BudgetWarn,
    PlanCommit,
    PlanDraft,
    SessionComplete,
    SessionPause,
    SessionResume,
    SessionStart,
    StepStart,
    ToolCallGiven,
    ToolErrorGiven,
    ToolResultGiven,
    TurnStart,
    WorkStarted,
)


class Entry(msgspec.Struct, frozen=True):
    """One line of the story.

    Attributes:
        after: seconds since the run was stored.
        text: what happened; it may be unsafe to print.
    """

    after: float
    text: str


def timeline_of(events: Sequence[Event]) -> Iterator[Entry]:
    """Yield the story in order."""
    begun = events[0].at if events else 0.0
    names = _step_names(events)
    wrote: list[str] = []
    for event in events:
        if isinstance(event.data, ToolDone):
            wrote += [item.path for item in event.data.artifacts]
            continue
        text = _text(event, names)
        if isinstance(event.data, StepEnd):
            text += f", wrote {', '.join(wrote)}" if wrote else ""
            wrote.clear()
        if text:
            yield Entry(event.at - begun, text)


def _step_names(events: Iterable[Event]) -> dict[str | int, str]:
    return {
        step.id: step.description
        for event in events
        if isinstance(event.data, PlanCommit)
        for step in event.data.steps
        if step.description
    }


def _text(event: Event, names: dict[str | int, str]) -> str:
    """Return the line for an event, `""` for none."""
    data = event.data
    if isinstance(data, StepEnd):
        name = names.get(data.step_id, f"step {data.step_id}")
        return f"{name}: {data.status}" + (f": {data.error}" if data.error else "")
    if isinstance(data, CheckFailed):
        return f"not proved: {', '.join(item.check for item in data.findings)}"
    is_plain_grant = isinstance(data, ToolGranted | TurnGranted) and data.attempt == 1
    is_plain_answer = isinstance(data, TurnFinished) and not data.error
    is_dropped = isinstance(data, PlanDraft) and bool(data.dropped)
    if (isinstance(data, _BOOKKEEPING) and not is_dropped) or is_plain_grant or is_plain_answer:
        return ""
    return words(data) + (f" ({event.actor})" if event.epoch is None else "")
