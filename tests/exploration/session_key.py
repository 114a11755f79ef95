"""What distinguishes two states of a session's world: all that decides what may still happen, and nothing of how it came there.

Turn numbers become "this turn" or "an earlier one", histories become whether anything was ever done, and a budget becomes what is left of it.
"""

from collections.abc import Mapping
from typing import NamedTuple

from checkrein.harness.firing import Verdict
from checkrein.harness.hooks import Fired, Topic
from checkrein.harness.preparing import Fate
from checkrein.kernel.budget import COUNTED, LIMITS, BudgetState
from checkrein.kernel.events import StepSpec
from checkrein.kernel.session_events import HeldCall
from checkrein.kernel.session_state import Paused, SessionState, StepWork

Key = tuple[object, ...]


class Snapshot(NamedTuple):
    """The whole world at one moment.

    Attributes:
        session: the session.
        budget: its budget.
        verdicts: what the driver remembers of hooks.
        fates: what it remembers of calls.
        reviews: what it remembers of steps that were shown.
        abort_answered: what it remembers of an abort that a hook answered.
        owed: plannings that were counted and not made.
    """

    session: SessionState
    budget: BudgetState
    verdicts: Mapping[tuple[Topic, str], Verdict]
    fates: Mapping[str, Fate]
    reviews: Mapping[str | int, Fired]
    abort_answered: str = ""
    owed: int = 0


def key_of(here: Snapshot) -> Key:
    """Return what distinguishes a moment of the world from others."""
    session = here.session
    return (
        session.phase,
        _planning(session),
        _plan(session),
        _pausing(session),
        tuple(note.kind for note in session.queued),
        tuple(_left(here.budget)),
        _memory(here),
        here.owed,
    )


def _planning(state: SessionState) -> Key:
    request, draft = state.request, state.draft
    return (
        state.is_started,
        None if request is None else (min(request.attempt, 2), request.reason, request.is_held),
        None if draft is None else (_steps(draft.steps), draft.final, state.draft_reason),
        None if state.failure is None else state.failure.kind,
        state.has_done_step,
    )


def _plan(state: SessionState) -> Key:
    return (
        _steps(state.steps),
        state.is_final,
        state.is_planned,
        tuple(sorted((str(name), status) for name, status in state.status.items())),
        tuple(map(_work, state.work)),
        state.ahead,
        state.reviewing,
    )


def _steps(steps: tuple[StepSpec, ...]) -> Key:
    return tuple((step.id, step.tool_name, step.batch) for step in steps)


def _work(work: StepWork) -> Key:
    answer = work.answer
    return work.step.id, bool(work.call_id), None if answer is None else bool(answer.error)


def _pausing(state: SessionState) -> Key:
    answered = state.answered
    return (
        None if state.paused is None else _pause(state, state.paused),
        None
        if answered is None
        else (answered.topic, _subject(state, answered.subject), answered.position, answered.decision.encoded),
        tuple(
            (_subject(state, name), item.call.asks, None if item.decision is None else item.decision.encoded)
            for name, item in sorted(state.waiting.items())
        ),
    )


def _pause(state: SessionState, paused: Paused) -> Key:
    return (
        paused.reason,
        paused.state,
        paused.topic,
        _subject(state, paused.subject),
        paused.position,
        tuple(_subject(state, name) for name in paused.open_calls),
    )


def _subject(state: SessionState, subject: str) -> str:
    """Return a subject with its turn as `now` or `old`."""
    kind, colon, number = subject.partition(":")
    if colon and kind == "turn":
        return f"turn:{'now' if number == str(state.turns) else 'old'}"
    turn, dot, position = subject.partition(".")
    if dot and turn.isdigit():
        return f"{'now' if turn == str(state.plan_turn) else 'old'}.{position}"
    return subject


def _left(budget: BudgetState) -> Key:
    return tuple(
        (limit - budget.taken(name) if name in COUNTED else budget.is_reached(name))
        for name in LIMITS
        if (limit := budget.limits.limit(name)) is not None
    )


def _memory(here: Snapshot) -> Key:
    state = here.session
    verdicts = {
        (topic, _subject(state, subject), verdict.fired.kind, verdict.fired.position)
        for (topic, subject), verdict in here.verdicts.items()
    }
    fates = {
        (_subject(state, name), type(fate).__name__, fate.asks if isinstance(fate, HeldCall) else "")
        for name, fate in here.fates.items()
    }
    reviews = {(str(name), fired.kind) for name, fired in here.reviews.items()}
    aborted = _subject(state, here.abort_answered)
    return tuple(sorted(verdicts)), tuple(sorted(fates)), tuple(sorted(reviews)), aborted
