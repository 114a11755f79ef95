"""What an answer to a pull point means for the run: the session's facts, completed by the run's own events that belong into the same batch.

One place for the whole table, whoever answers: a hook in the worker, a command in a terminal, another process over the store. Pure.
"""

from collections.abc import Sequence

from checkrein.kernel.budget import LIMITS, Amounts
from checkrein.kernel.events import (
    BudgetExtended,
    Cause,
    EventData,
    Failed,
    SessionComplete,
    SessionData,
    SessionResume,
    ToolDone,
    ToolErrorGiven,
    ToolFailed,
    ToolResultGiven,
    Unblocked,
)
from checkrein.kernel.session_state import SessionState
from checkrein.kernel.state import RunState
from checkrein.values import NULL, JsonData, as_data

__all__ = ["answer_events", "decision_events", "extension_events", "limit_causes"]


def answer_events(state: RunState, session: SessionState, facts: Sequence[SessionData]) -> tuple[EventData, ...]:
    """Return the batch for the facts that an answer came to; empty for the same pull again."""
    events = tuple(event for fact in facts for event in _events_of(state, session, fact))
    if any(isinstance(fact, SessionComplete) for fact in facts):
        # Only a blocked run may be ended by a person, so what blocks it is not answered before its end; a cancelled one ends with its last outcome.
        is_ended = state.cancel is not None and bool(state.open_calls)
        left_out = (Unblocked, Failed) if is_ended else Unblocked
        return tuple(event for event in events if not isinstance(event, left_out))
    return events


def _events_of(state: RunState, session: SessionState, fact: SessionData) -> tuple[EventData, ...]:
    match fact:
        case SessionResume(extra=extra) if extra is not None:
            return extension_events(state, session, extra)
        case SessionResume():
            return decision_events(state, session, fact.subject, fact.decision)
        case ToolResultGiven():
            done = ToolDone(call_id=fact.call_id, result=fact.result, empty=as_data(fact.result) == NULL)
            return (fact, done, *_answered(state, fact.call_id))
        case ToolErrorGiven():
            kind = "cancelled" if fact.kind == "closed" else "internal"
            failed = ToolFailed(call_id=fact.call_id, kind=kind, message=fact.message)
            return (fact, failed, *_answered(state, fact.call_id))
        case SessionComplete():
            text = fact.reason.partition(":")[2]
            return (Failed(code="closed", message=f"closed: {text}"),)
        case _:
            return (fact,)


def _answered(state: RunState, call_id: str) -> tuple[EventData, ...]:
    """Return what answers the causes that wait for a call's result; an outcome that ends a cancelled run ends them too."""
    if state.cancel is not None and len(state.open_calls) == 1:
        return ()
    return tuple(Unblocked(cause_id=cause.id) for cause in state.causes if cause.call_id == call_id)


def limit_causes(state: RunState, extra: Amounts) -> tuple[Cause, ...]:
    """Return the causes that only wait for a limit which `extra` raises above its use."""
    budget = state.budget.extended(extra)
    reached = {name for name in LIMITS if budget.is_reached(name)}
    return tuple(cause for cause in state.causes if cause.kind == "budget" and cause.detail not in reached)


def extension_events(state: RunState, session: SessionState, extra: Amounts) -> tuple[EventData, ...]:
    """Return the batch that raises limits, answers the causes that only waited for that, and lets a pause end that did."""
    answered = limit_causes(state, extra)
    facts: list[EventData] = [
        BudgetExtended(extra=extra.checked()),
        *(Unblocked(cause_id=cause.id) for cause in answered),
    ]
    paused = session.paused
    if paused is not None and paused.is_budget and any(cause.detail == paused.subject for cause in answered):
        facts.append(SessionResume(topic="budget", subject=paused.subject))
    return tuple(facts)


def decision_events(
    state: RunState, session: SessionState, subject: str, decision: JsonData, *, cause_id: str = ""
) -> tuple[EventData, ...]:
    """Return the batch that answers one open question of a paused session; the last one lets the pause end.

    Args:
        state: the run.
        session: its paused session.
        subject: the call the question is about, or the pause's own subject.
        decision: the answer.
        cause_id: the cause, when the caller knows it.
    """
    paused = session.paused
    if paused is None:
        return ()
    asked = paused.open_calls
    causes = [
        cause
        for cause in state.causes
        if cause.id == cause_id or (not cause_id and _is_about(cause, subject, is_call=bool(asked)))
    ]
    facts: list[EventData] = [Unblocked(cause_id=cause.id, answer=decision) for cause in causes]
    if not asked or asked == (subject,):
        facts.append(SessionResume(topic=paused.topic, subject=subject, decision=decision))
    return tuple(facts)


def _is_about(cause: Cause, subject: str, *, is_call: bool) -> bool:
    if is_call:
        return cause.call_id == subject and cause.kind in {"permission", "answer"}
    return cause.kind == "answer" and not cause.call_id
