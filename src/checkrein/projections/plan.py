"""How far a goal is worked through its plan: the fold of a run's session events.

The invariant: the view is a function of the log alone, so it is the same in the process that works, in one that only looks, and after a crash. It grows with
the events and copies nothing per event but what changed.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from checkrein.errors import DamagedLog
from checkrein.kernel.events import (
    CheckFailed,
    Event,
    FollowUpQueued,
    PlanCommit,
    PlanDraft,
    SessionComplete,
    SessionStart,
    SteerQueued,
    StepEnd,
    StepSpec,
    StepStart,
    ToolCallGiven,
    ToolErrorGiven,
    ToolResultGiven,
    TurnFinished,
    TurnStart,
    Unblocked,
    narrowed,
)
from checkrein.values import NULL, JsonData, Shared, as_data

__all__ = ["EndedStep", "LastFailure", "Note", "PlanView", "StepStatus", "fold_plan"]

StepStatus: TypeAlias = Literal["open", "started", "done", "failed", "skipped"]


class EndedStep(msgspec.Struct, frozen=True):
    """A step that ended, in the order of ending."""

    step: StepSpec
    status: Literal["done", "failed", "skipped"]
    result: JsonData
    error: str


class Note(msgspec.Struct, frozen=True):
    """A message that a person queued."""

    id: str
    text: str
    kind: Literal["steer", "follow_up"]


class LastFailure(msgspec.Struct, frozen=True):
    """Why the next planning is asked: what went wrong last, until a plan is committed."""

    kind: Literal["step", "hook", "planner", "draft", "check"]
    message: str
    data: JsonData = NULL


class CallAnswer(msgspec.Struct, frozen=True):
    """What a call of the current step brought: a result, or an error."""

    call_id: str
    result: JsonData = NULL
    error: str = ""


class PlanView(msgspec.Struct, frozen=True):
    """The plan and its progress at one version.

    Attributes:
        goal: the goal of the session.
        steps: the committed plan, in order; empty before the first commit.
        is_final: whether the goal is met when the plan's last step is done.
        turn: the turn that made the plan.
        positions: 0-based position by step id in the current plan.
        status: status by step id of the current plan; a missing id is `open`.
        current: the step that was started and has not ended.
        call_id: the call that the current step waits for.
        answer: what the current step's call brought, when it has its outcome.
        history: steps that ended (of this and of earlier plans) and notes that were accepted, in order.
        queued: notes that no planning accepted yet, in order.
        accepted: notes that the open turn carries; they enter the history when it begins.
        failure: what the next planning must answer.
        decisions: answers to causes, by cause id.
        outcome: the reason given when the session completed; `""` before.
    """

    goal: str = ""
    steps: tuple[StepSpec, ...] = ()
    is_final: bool = True
    turn: int = 0
    positions: Mapping[str | int, int] = {}
    status: Mapping[str | int, StepStatus] = {}
    current: StepSpec | None = None
    call_id: str = ""
    answer: CallAnswer | None = None
    history: Shared[EndedStep | Note] = Shared()
    queued: Shared[Note] = Shared()
    failure: LastFailure | None = None
    decisions: Mapping[str, JsonData] = {}
    outcome: str = ""

    @property
    def next_step(self) -> StepSpec | None:
        """The first step of the plan that has not ended."""
        return next((step for step in self.steps if self.status.get(step.id, "open") in {"open", "started"}), None)

    @property
    def has_done_step(self) -> bool:
        """Whether any step of any plan was ever done."""
        return any(isinstance(item, EndedStep) and item.status == "done" for item in self.history)

    def queued_of(self, kind: Literal["steer", "follow_up"]) -> tuple[Note, ...]:
        """Return the queued notes of one kind."""
        return tuple(note for note in self.queued if note.kind == kind)

    def index_of(self, step: StepSpec) -> int:
        """Return the 0-based position of a step in the plan.

        Raises:
            KeyError: the step is not in the plan.
        """
        return self.positions[step.id]


def fold_plan(events: Iterable[Event], view: PlanView | None = None) -> PlanView:
    """Return the view after `events`; other events than those of plans and notes change nothing.

    Raises:
        DamagedLog: an event is about a step that is not in the plan.
    """
    # The handlers write the steps' status into this one copy, which nobody else sees before the end: a copy for every step would make long plans slow.
    view = PlanView() if view is None else replace(view, status=dict(view.status))
    for event in events:
        handler = _HANDLERS.get(event.data.type)
        if handler is not None:
            try:
                view = handler(view, event)
            except KeyError as error:
                reason = f"{event.data.type} is about step {error}, which is not in the plan"
                raise DamagedLog(event.run_id, event.expected_version, reason) from error
    return view


def _session_start(view: PlanView, data: SessionStart) -> PlanView:
    return replace(view, goal=data.goal)


def _steer_queued(view: PlanView, data: SteerQueued) -> PlanView:
    return replace(view, queued=view.queued.appended(Note(data.note, data.text, "steer")))


def _follow_up_queued(view: PlanView, data: FollowUpQueued) -> PlanView:
    return replace(view, queued=view.queued.appended(Note(data.note, data.text, "follow_up")))


def _turn_start(view: PlanView, data: TurnStart) -> PlanView:
    if not data.notes:
        return view
    history = view.history
    for note in view.queued:
        if note.id in data.notes:
            history = history.appended(note)
    return replace(view, history=history, queued=Shared(note for note in view.queued if note.id not in data.notes))


def _plan_draft(view: PlanView, data: PlanDraft) -> PlanView:
    return replace(view, failure=LastFailure("draft", data.dropped)) if data.dropped else view


def _turn_finished(view: PlanView, data: TurnFinished) -> PlanView:
    return replace(view, failure=LastFailure("planner", data.error)) if data.error else view


def _plan_commit(view: PlanView, data: PlanCommit) -> PlanView:
    return replace(
        view,
        steps=data.steps,
        positions={step.id: position for position, step in enumerate(data.steps)},
        is_final=data.final,
        turn=data.turn,
        status={},
        current=None,
        call_id="",
        answer=None,
        failure=None,
    )


def _with_status(view: PlanView, step_id: str | int, status: StepStatus) -> Mapping[str | int, StepStatus]:
    """Note a step's status in the copy that belongs to this fold."""
    own = cast("dict[str | int, StepStatus]", view.status)
    own[step_id] = status
    return own


def _step_start(view: PlanView, data: StepStart) -> PlanView:
    step = view.steps[view.positions[data.step_id]]
    return replace(view, current=step, call_id="", answer=None, status=_with_status(view, data.step_id, "started"))


def _tool_call(view: PlanView, data: ToolCallGiven) -> PlanView:
    return replace(view, call_id=data.call_id)


def _tool_result(view: PlanView, data: ToolResultGiven) -> PlanView:
    return replace(view, answer=CallAnswer(data.call_id, result=as_data(data.result)))


def _tool_error(view: PlanView, data: ToolErrorGiven) -> PlanView:
    return replace(view, answer=CallAnswer(data.call_id, error=f"{data.kind}: {data.message}"))


def _step_end(view: PlanView, data: StepEnd) -> PlanView:
    step = view.steps[view.positions[data.step_id]]
    failure = (
        LastFailure("step", f"step {data.step_id} failed: {data.error}") if data.status == "failed" else view.failure
    )
    return replace(
        view,
        current=None,
        call_id="",
        answer=None,
        status=_with_status(view, data.step_id, data.status),
        history=view.history.appended(EndedStep(step, data.status, as_data(data.result), data.error)),
        failure=failure,
    )


def _check_failed(view: PlanView, data: CheckFailed) -> PlanView:
    message = "; ".join(f"{finding.check}: {finding.message}" for finding in data.findings)
    findings = JsonData(
        [
            {"check": item.check, "subject": item.subject, "code": item.code, "message": item.message}
            for item in data.findings
        ]
    )
    return replace(view, failure=LastFailure("check", message, findings))


def _unblocked(view: PlanView, data: Unblocked) -> PlanView:
    return replace(view, decisions={**view.decisions, data.cause_id: data.answer})


def _session_complete(view: PlanView, data: SessionComplete) -> PlanView:
    return replace(view, outcome=data.reason)


_HANDLERS: Mapping[str, Callable[[PlanView, Event], PlanView]] = {
    SessionStart.type: narrowed(SessionStart, _session_start),
    SteerQueued.type: narrowed(SteerQueued, _steer_queued),
    FollowUpQueued.type: narrowed(FollowUpQueued, _follow_up_queued),
    TurnStart.type: narrowed(TurnStart, _turn_start),
    PlanDraft.type: narrowed(PlanDraft, _plan_draft),
    TurnFinished.type: narrowed(TurnFinished, _turn_finished),
    PlanCommit.type: narrowed(PlanCommit, _plan_commit),
    StepStart.type: narrowed(StepStart, _step_start),
    ToolCallGiven.type: narrowed(ToolCallGiven, _tool_call),
    ToolResultGiven.type: narrowed(ToolResultGiven, _tool_result),
    ToolErrorGiven.type: narrowed(ToolErrorGiven, _tool_error),
    StepEnd.type: narrowed(StepEnd, _step_end),
    CheckFailed.type: narrowed(CheckFailed, _check_failed),
    Unblocked.type: narrowed(Unblocked, _unblocked),
    SessionComplete.type: narrowed(SessionComplete, _session_complete),
}
