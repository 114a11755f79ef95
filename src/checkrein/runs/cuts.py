"""Where a log may be cut so that a new run can go on from what stands before: the rules, and nothing that acts on them. Pure.

The invariant: what a legal cut leaves is a state that a worker could have found after a crash, and in which nothing is under way. So no append is torn apart, run and session
agree, and neither a call nor a child run waits for an outcome that only the old run will have. The end of a run is never kept.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from checkrein.kernel.events import Event, EventData
from checkrein.kernel.run import fold_run
from checkrein.kernel.session import evolve_session, fold_session
from checkrein.kernel.session_state import Paused, SessionState
from checkrein.kernel.state import RunState

__all__ = ["LEAST", "Cut", "end_of", "legal_cuts", "objection_to"]

LEAST: Final = 2
"""The task and the goal are kept by every fork."""

_TOGETHER: Final = frozenset({
    ("turn.start", "turn_granted"),
    ("plan.draft", "turn_finished"),
    ("plan.commit", "plan_accepted"),
    ("plan_accepted", "work_started"),
    ("step.start", "step.end"),
    ("step.start", "tool.call"),
    ("step.start", "tool.error"),
    ("tool.call", "tool_granted"),
    ("tool_done", "step.end"),
    ("tool_failed", "step.end"),
    ("budget.warn", "session.pause"),
    ("session.pause", "blocked"),
    ("budget_extended", "unblocked"),
    ("unblocked", "session.resume"),
    ("code_accepted", "unblocked"),
})  # fmt: skip
"""Neighbours that are, or may be, parts of one append. A log does not say where its appends end, so what may belong together is never separated."""


class Cut(msgspec.Struct, frozen=True):
    """A place where a log may be cut.

    Attributes:
        at: how many events are kept.
        state: the run after them.
        last: what the last of them says.
    """

    at: int
    state: RunState
    last: EventData


def legal_cuts(events: Sequence[Event]) -> tuple[Cut, ...]:
    """Return every legal cut of a log, in order.

    Args:
        events: the whole log, from its start.

    Raises:
        IllegalTransition: an event that could not have happened there.
    """
    end = end_of(events)
    return tuple(
        Cut(at, state, events[at - 1].data)
        for at, state, session in _states(events[:end])
        if at >= LEAST and not _objection(state, session, events[at - 1 : at + 1])
    )


def objection_to(events: Sequence[Event], at: int) -> str:
    """Return in words why a log cannot be cut after its first `at` events; `""` when it can.

    Args:
        events: the whole log, from its start.
        at: how many events are to be kept.
    """
    if at < LEAST:
        return "a run begins with its task and its goal, so at least two events are kept"
    if at > len(events):
        return f"its log has {len(events)} events"
    if at > end_of(events):
        return "the end of a run is not kept"
    kept = events[:at]
    return _objection(fold_run(kept), fold_session(kept), events[at - 1 : at + 1])


def end_of(events: Sequence[Event]) -> int:
    """Return how many events come before the end of a run; all of them while it has not ended."""
    for count, event in enumerate(reversed(events[-2:]), start=1):
        if event.type == "session.complete":
            return len(events) - count
    return len(events)


def _states(events: Sequence[Event]) -> Iterator[tuple[int, RunState, SessionState]]:
    """Yield how many events were read, with run and session after them."""
    state: RunState | None = None
    session = SessionState()
    for at, event in enumerate(events, start=1):
        state = fold_run((event,), state)
        session = evolve_session(session, event)
        yield at, state, session


def _objection(state: RunState, session: SessionState, neighbours: Sequence[Event]) -> str:
    """Return what is wrong with a cut between two neighbours, after which run and session are these."""
    if state.open_calls:
        call = state.open_calls[0]
        return f"call {call.call_id} of {call.tool.name} has no outcome there; what it does belongs to that run alone"
    if state.reservations:
        return f"child run {state.reservations[0].child} has not ended there; it belongs to that run alone"
    kinds = tuple(event.type for event in neighbours)
    if kinds in _TOGETHER:
        return f"{kinds[0]} and {kinds[1]} were recorded together"
    if (session.request is None) is not (state.open_turn is None):
        return "a planning is only half recorded there"
    if session.paused is not None and not _is_asked(state, session.paused):
        return "a pause is only half recorded there"
    if any(cause.kind == "reconcile" or cause.id.startswith("answer:") for cause in state.causes):
        return "the outcome of a call is only half recorded there"
    return ""


def _is_asked(state: RunState, paused: Paused) -> bool:
    """Tell whether what a pause asks is asked by the causes that block the run."""
    if paused.is_budget:
        return any(cause.kind == "budget" and cause.detail == paused.subject for cause in state.causes)
    if paused.open_calls:
        return set(paused.open_calls) <= {cause.call_id for cause in state.causes}
    return any(cause.kind == "answer" and not cause.call_id for cause in state.causes)
