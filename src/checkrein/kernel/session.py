"""The session's machine: which event is legal in which of the six states, and what it makes of the state.

Theory of operation. A session is the fold of its events, and `evolve_session` is the only function that changes its state; every edge is taken from the table, and a
miss raises `IllegalTransition`. What the world must do next is decided from the state alone, in `session_next.py`; a driver does it and appends what happened.
Nothing here asks a clock, a planner, a tool or a hook, so any prefix of a log gives the state that the session had there.

A session lives in the log of its run, or in one of its own. Of the run's events it reads only the queued notes, the answers to causes and failed checks; all others
leave it as it is, and nothing moves it once it is DONE.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, cast

from msgspec.structs import replace

from checkrein.errors import IllegalTransition
from checkrein.kernel.events import (
    BudgetWarn,
    CheckFailed,
    Event,
    FollowUpQueued,
    PlanCommit,
    PlanDraft,
    SessionComplete,
    SessionPause,
    SessionResume,
    SessionStart,
    SteerQueued,
    StepEnd,
    StepSpec,
    StepStart,
    ToolCallGiven,
    ToolErrorGiven,
    ToolResultGiven,
    TurnStart,
    Unblocked,
    narrowed,
)
from checkrein.kernel.machine import Machine
from checkrein.kernel.session_state import (
    Answered,
    CallAnswer,
    EndedStep,
    LastFailure,
    Note,
    OpenRequest,
    Paused,
    SessionPhase,
    SessionState,
    StepStatus,
    StepWork,
    Waiting,
)
from checkrein.values import JsonData, Shared, as_data, as_object

__all__ = ["SESSION_MACHINE", "SESSION_TABLE", "evolve_session", "fold_session"]

_I, _P, _E, _A, _R, _D = SessionPhase
_ACTIVE: Final = (_P, _E, _A, _R)
_ANYWHERE: Final[Mapping[SessionPhase, tuple[SessionPhase, ...]]] = {phase: (phase,) for phase in (_I, *_ACTIVE)}
_ANSWER: Final[Mapping[SessionPhase, tuple[SessionPhase, ...]]] = {_A: (_A, _R), _I: (_I,)}

SESSION_TABLE: Final[Mapping[str, Mapping[SessionPhase, tuple[SessionPhase, ...]]]] = {
    "session.start": {_I: (_P,)},
    "turn.start": {_P: (_P,), _R: (_P,)},
    "plan.draft": {_P: (_P,), _R: (_R,)},
    "plan.commit": {_P: (_E, _R)},
    "step.start": {_E: (_E,), _R: (_E,)},
    "step.end": {_E: (_E, _R), _A: (_A, _R), _R: (_R,)},
    "tool.call": {_E: (_A,), _A: (_A,)},
    "tool.result": _ANSWER,
    "tool.error": {**_ANSWER, _E: (_E, _R)},
    "budget.warn": {phase: (phase,) for phase in _ACTIVE},
    "session.pause": dict.fromkeys(_ACTIVE, (_I,)),
    "session.resume": {_I: (_I, *_ACTIVE)},
    "session.complete": dict.fromkeys((_I, *_ACTIVE), (_D,)),
    "steer_queued": _ANYWHERE,
    "follow_up_queued": _ANYWHERE,
    "unblocked": _ANYWHERE,
    "check_failed": {_R: (_R,)},
}
"""The contract: `event type → state → possible next states`; what is missing is illegal."""


def _illegal(state: SessionState, what: str) -> IllegalTransition:
    return IllegalTransition("session", state.phase, what, state.run_id, ())


def _session_start(state: SessionState, event: Event) -> SessionState:
    data = event.data
    if not isinstance(data, SessionStart) or state.is_started:
        raise _illegal(state, "session.start, a second time,")
    return replace(state, phase=_P, run_id=event.run_id, goal=data.goal, is_started=True)


def _turn_start(state: SessionState, data: TurnStart) -> SessionState:
    request = state.request
    expected = (state.turns + 1, 1) if request is None else (request.turn, request.attempt + 1)
    if (data.turn, data.attempt) != expected or state.draft is not None or state.work:
        raise _illegal(state, f"turn.start of turn {data.turn} attempt {data.attempt}")
    history, queued = state.history, state.queued
    if data.notes:
        history = history.extended(note for note in queued if note.id in data.notes)
        queued = Shared(note for note in queued if note.id not in data.notes)
    return replace(
        state,
        phase=_P,
        request=OpenRequest(data.turn, data.attempt, data.reason),
        turns=data.turn,
        history=history,
        queued=queued,
        reviewing=(),
    )


def _plan_draft(state: SessionState, data: PlanDraft) -> SessionState:
    if not data.dropped:
        if state.request is None or data.turn != state.request.turn or state.phase is not _P:
            raise _illegal(state, f"plan.draft of turn {data.turn}, which is not asked,")
        return replace(state, draft=data, draft_reason=state.request.reason, request=None, answered=None)
    if state.phase is _R:
        return replace(state, failure=LastFailure("hook", data.dropped), reviewing=(), answered=None)
    if state.draft is None:
        raise _illegal(state, "plan.draft that drops a draft, of which there is none,")
    return replace(state, draft=None, failure=LastFailure("draft", data.dropped), answered=None)


def _plan_commit(state: SessionState, data: PlanCommit) -> SessionState:
    if state.draft is None or data.turn != state.draft.turn:
        raise _illegal(state, f"plan.commit of turn {data.turn}, which has no draft,")
    before = {step.id: step for step in state.steps} if data.reason == "replan" else {}
    kept: dict[str | int, StepStatus] = {
        step.id: "done" for step in data.steps if state.status.get(step.id) == "done" and before.get(step.id) == step
    }
    return replace(
        state,
        phase=_R if len(kept) == len(data.steps) else _E,
        draft=None,
        steps=data.steps,
        positions={step.id: position for position, step in enumerate(data.steps)},
        is_final=data.final,
        is_planned=True,
        plan_turn=data.turn,
        status=kept,
        cursor=_past_ended(data.steps, kept, 0),
        work=(),
        ahead=0,
        waiting={},
        failure=None,
        answered=None,
    )


def _past_ended(steps: tuple[StepSpec, ...], status: Mapping[str | int, StepStatus], cursor: int) -> int:
    """Return the position of the first step from `cursor` on that has not ended."""
    while cursor < len(steps) and status.get(steps[cursor].id, "open") not in {"open", "started"}:
        cursor += 1
    return cursor


def _with_status(state: SessionState, step_id: str | int, status: StepStatus) -> Mapping[str | int, StepStatus]:
    """Note a step's status in the copy that belongs to this fold."""
    own = cast("dict[str | int, StepStatus]", state.status)
    own[step_id] = status
    return own


def _step_start(state: SessionState, data: StepStart) -> SessionState:
    step = state.next_step
    if step is None or step.id != data.step_id:
        raise _illegal(state, f"step.start of {data.step_id!r}, which is not the next step,")
    if state.work and not state.ahead:
        raise _illegal(state, f"step.start of {data.step_id!r} while another step is open")
    ahead = 0
    if step.batch is not None:
        ahead = (state.ahead or sum(1 for item in state.batch_of(step) if item.id not in state.status)) - 1
    return replace(
        state,
        phase=_E,
        work=(*state.work, StepWork(step)),
        ahead=ahead,
        status=_with_status(state, data.step_id, "started"),
        reviewing=() if state.phase is _R else state.reviewing,
        answered=None,
    )


def _is_over(state: SessionState, work: tuple[StepWork, ...]) -> bool:
    """Tell whether everything that was begun, and what belongs to one batch with it, has its answer."""
    if state.ahead:
        return False
    return not any(item.answer is None for item in work) if work else True


def _work_on(state: SessionState, step_id: str | int) -> StepWork | None:
    """Return the started step of that id."""
    for item in state.work:
        if item.step.id == step_id:
            return item
    return None


def _step_end(state: SessionState, data: StepEnd) -> SessionState:
    ended = _work_on(state, data.step_id)
    if ended is None:
        raise _illegal(state, f"step.end of {data.step_id!r}, which is not started,")
    if ended.is_open:
        raise _illegal(state, f"step.end of {data.step_id!r}, whose call is open,")
    failure = (
        LastFailure("step", f"step {data.step_id} failed: {data.error}") if data.status == "failed" else state.failure
    )
    waiting = state.waiting
    if waiting:
        waiting = {name: item for name, item in waiting.items() if item.call.step_id != data.step_id}
    work = () if len(state.work) == 1 else tuple(item for item in state.work if item is not ended)
    status = _with_status(state, data.step_id, data.status)
    return replace(
        state,
        phase=_R if _is_over(state, work) else state.phase,
        work=work,
        status=status,
        cursor=_past_ended(state.steps, status, state.cursor),
        reviewing=(*state.reviewing, data.step_id),
        history=state.history.appended(EndedStep(ended.step, data.status, as_data(data.result), data.error)),
        has_done_step=state.has_done_step or data.status == "done",
        failure=failure,
        waiting=waiting,
        answered=None,
    )


def _with_work(state: SessionState, old: StepWork, new: StepWork) -> tuple[StepWork, ...]:
    return (new,) if len(state.work) == 1 else tuple(new if item is old else item for item in state.work)


def _tool_call(state: SessionState, data: ToolCallGiven) -> SessionState:
    work = _work_on(state, data.step_id)
    if work is None or work.answer is not None or data.attempt != work.attempt + 1:
        raise _illegal(state, f"tool.call {data.call_id} attempt {data.attempt} of step {data.step_id!r}")
    waiting = state.waiting
    waits = waiting.get(data.call_id) if waiting else None
    is_approved = work.is_approved or (waits is not None and waits.decision is not None)
    called = StepWork(
        work.step, data.call_id, data.name, as_object(data.arguments), data.attempt, is_approved=is_approved
    )
    if waits is not None:
        waiting = {name: item for name, item in waiting.items() if name != data.call_id}
    return replace(state, phase=_A, work=_with_work(state, work, called), waiting=waiting)


def _answering(state: SessionState, work: StepWork | None, answer: CallAnswer, what: str) -> SessionState:
    if work is None or work.answer is not None:
        raise _illegal(state, what)
    waiting = state.waiting
    if waiting:
        waiting = {name: item for name, item in waiting.items() if item.call.step_id != work.step.id}
    works = _with_work(state, work, replace(work, answer=answer))
    if not _is_over(state, works):
        return replace(state, work=works, waiting=waiting)
    if state.paused is not None:
        return replace(state, work=works, waiting=waiting, paused=replace(state.paused, state=_R))
    return replace(state, phase=_R, work=works, waiting=waiting)


def _tool_result(state: SessionState, data: ToolResultGiven) -> SessionState:
    work = state.work_on(data.call_id) if data.call_id else None
    return _answering(state, work, CallAnswer(as_data(data.result)), f"tool.result of {data.call_id!r}")


def _tool_error(state: SessionState, data: ToolErrorGiven) -> SessionState:
    if data.call_id:
        work = state.work_on(data.call_id)
    else:
        work = next((item for item in state.work if item.step.id == data.step_id and not item.call_id), None)
    answer = CallAnswer(error=f"{data.kind}: {data.message}")
    return _answering(state, work, answer, f"tool.error of {data.call_id or data.step_id!r}")


def _budget_warn(state: SessionState, _data: BudgetWarn) -> SessionState:
    return state


def _session_pause(state: SessionState, data: SessionPause) -> SessionState:
    if data.state != state.phase:
        raise _illegal(state, f"session.pause that returns to {data.state}")
    asking = tuple(call.call_id for call in data.calls if call.asks)
    paused = Paused(
        data.reason, state.phase, data.topic, data.subject, data.message, data.position, as_data(data.kept), asking
    )
    after = replace(state, phase=_I, paused=paused)
    if data.calls:
        after = replace(after, waiting={**state.waiting, **{call.call_id: Waiting(call) for call in data.calls}})
    if data.reason == "planner_failed":
        return replace(after, request=None, failure=LastFailure("planner", data.message))
    if state.request is not None and not paused.is_budget:
        # Hooks stop a planning only before the planner is asked, so what was counted for it is still to be had.
        return replace(after, request=replace(state.request, is_held=True))
    if state.phase is _R and data.topic == "before_step":
        # The next step is asked about, so hooks have looked at what ended, and what they asked about it was answered: that need not be asked again.
        return replace(after, reviewing=())
    return after


def _decided(state: SessionState, call_id: str, decision: JsonData) -> SessionState:
    """Store the decision about one of several open calls."""
    paused, waits = state.paused, state.waiting.get(call_id)
    if paused is None or waits is None or call_id not in paused.open_calls:
        return state
    left = tuple(name for name in paused.open_calls if name != call_id)
    waiting = {**state.waiting, call_id: replace(waits, decision=decision)}
    return replace(state, paused=replace(paused, open_calls=left), waiting=waiting)


def _unblocked(state: SessionState, data: Unblocked) -> SessionState:
    kind, _, subject = data.cause_id.partition(":")
    return _decided(state, subject, data.answer) if kind in {"permission", "review"} else state


def _session_resume(state: SessionState, data: SessionResume) -> SessionState:
    if state.paused is None:
        raise _illegal(state, "session.resume, without a pause,")
    if data.extra is not None and not state.paused.is_budget:
        return state
    after = _decided(state, data.subject, data.decision)
    paused = after.paused
    if paused is None or paused.open_calls:
        return after
    answered = state.answered
    if paused.topic and paused.topic != "before_tool_call":
        answered = Answered(paused.topic, paused.subject, paused.position, paused.kept, data.decision)
    return replace(after, phase=paused.state, paused=None, answered=answered)


def _session_complete(state: SessionState, data: SessionComplete) -> SessionState:
    if not state.is_started:
        raise _illegal(state, "session.complete, before session.start,")
    return replace(state, phase=_D, outcome=data.reason, unread=data.unread, paused=None, request=None)


def _steer_queued(state: SessionState, data: SteerQueued) -> SessionState:
    return replace(state, queued=state.queued.appended(Note(data.note, data.text, "steer")))


def _follow_up_queued(state: SessionState, data: FollowUpQueued) -> SessionState:
    return replace(state, queued=state.queued.appended(Note(data.note, data.text, "follow_up")))


def _check_failed(state: SessionState, data: CheckFailed) -> SessionState:
    message = "; ".join(f"{finding.check}: {finding.message}" for finding in data.findings)
    findings = JsonData(
        [
            {"check": item.check, "subject": item.subject, "code": item.code, "message": item.message}
            for item in data.findings
        ]
    )
    return replace(state, failure=LastFailure("check", message, findings), reviewing=())


_HANDLERS: Final[Mapping[str, Callable[[SessionState, Event], SessionState]]] = {
    SessionStart.type: _session_start,
    TurnStart.type: narrowed(TurnStart, _turn_start),
    PlanDraft.type: narrowed(PlanDraft, _plan_draft),
    PlanCommit.type: narrowed(PlanCommit, _plan_commit),
    StepStart.type: narrowed(StepStart, _step_start),
    StepEnd.type: narrowed(StepEnd, _step_end),
    ToolCallGiven.type: narrowed(ToolCallGiven, _tool_call),
    ToolResultGiven.type: narrowed(ToolResultGiven, _tool_result),
    ToolErrorGiven.type: narrowed(ToolErrorGiven, _tool_error),
    BudgetWarn.type: narrowed(BudgetWarn, _budget_warn),
    SessionPause.type: narrowed(SessionPause, _session_pause),
    SessionResume.type: narrowed(SessionResume, _session_resume),
    SessionComplete.type: narrowed(SessionComplete, _session_complete),
    SteerQueued.type: narrowed(SteerQueued, _steer_queued),
    FollowUpQueued.type: narrowed(FollowUpQueued, _follow_up_queued),
    Unblocked.type: narrowed(Unblocked, _unblocked),
    CheckFailed.type: narrowed(CheckFailed, _check_failed),
}


def _type_of(event: Event) -> str:
    return event.data.type


def _subject_of(state: SessionState) -> str:
    return state.run_id


SESSION_MACHINE: Final[Machine[SessionState, Event]] = Machine(
    name="session",
    initial=(SessionPhase.IDLE,),
    ends=frozenset({SessionPhase.DONE}),
    edges={
        phase: {kind: row[phase] for kind, row in SESSION_TABLE.items() if row.get(phase)} for phase in SessionPhase
    },
    handlers=_HANDLERS,
    type_of=_type_of,
    subject_of=_subject_of,
)

_OTHERS: Final = frozenset({"unblocked", "check_failed", "steer_queued", "follow_up_queued"})
"""Events of the run that a session reads while it lives; the run says where they are legal."""
_WRITERS: Final = frozenset({StepStart.type, StepEnd.type})
"""Events whose handlers write into the status of the plan's steps."""


def evolve_session(state: SessionState, event: Event) -> SessionState:
    """Return the state after an event of the log; an event that is not the session's leaves it as it is.

    Raises:
        IllegalTransition: the table has no such edge, or the event is about a turn, step or call that is not open.
    """
    return fold_session((event,), state)


def fold_session(events: Iterable[Event], state: SessionState | None = None) -> SessionState:
    """Return the state that a log gives, from its start or from `state` on.

    Raises:
        IllegalTransition: an event that could not have happened there.
    """
    state = SessionState() if state is None else state
    is_own = False
    for event in events:
        kind = event.data.type
        if kind not in _HANDLERS or (kind in _OTHERS and state.phase is _D):
            continue
        if not is_own and kind in _WRITERS:
            # Handlers write the steps' status into one copy, which nobody else sees before the end: more of them would make long plans slow.
            state, is_own = replace(state, status=dict(state.status)), True
        state = SESSION_MACHINE.take(state, kind, event)
    return state
