"""How far a goal is worked through its plan: the state of one session at one offset of its log.

Frozen values, no behaviour but questions. The six phases are those of the harness; `PAUSED` is no seventh: a paused session is IDLE and knows where it goes back to.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

from checkrein.kernel.facts import PlanReason, StepSpec
from checkrein.kernel.session_events import HeldCall, PlanDraft
from checkrein.values import NULL, JsonData, JsonObject, Shared

__all__ = [
    "Answered",
    "CallAnswer",
    "EndedStep",
    "LastFailure",
    "Note",
    "OpenRequest",
    "Paused",
    "SessionPhase",
    "SessionState",
    "StepStatus",
    "StepWork",
    "Waiting",
]

StepStatus: TypeAlias = Literal["open", "started", "done", "failed", "skipped"]


class SessionPhase(StrEnum):
    """The six states of a session.

    Attributes:
        IDLE: not started, or paused.
        PLANNING: the planner is asked, or its draft is looked at.
        EXECUTING: a step is begun.
        AWAITING_TOOL: a call was given away and its result is not there.
        REFLECTING: what was begun has ended; what comes next is decided.
        DONE: over; nothing follows.
    """

    IDLE = "IDLE"
    PLANNING = "PLANNING"
    EXECUTING = "EXECUTING"
    AWAITING_TOOL = "AWAITING_TOOL"
    REFLECTING = "REFLECTING"
    DONE = "DONE"


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
    """What the call of a step brought: a result, or an error."""

    result: JsonData = NULL
    error: str = ""


class StepWork(msgspec.Struct, frozen=True):
    """A step that was started and has not ended.

    Attributes:
        step: the step.
        call_id: the call it waits for; `""` before control was given away.
        name: the tool of that call.
        arguments: what the tool was given.
        attempt: executions of the call that were granted.
        answer: what the call brought, or why it was never made.
        is_approved: whether it was granted after a decision about it.
    """

    step: StepSpec
    call_id: str = ""
    name: str = ""
    arguments: JsonObject = JsonObject()
    attempt: int = 0
    answer: CallAnswer | None = None
    is_approved: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the call's result is missing."""
        return bool(self.call_id) and self.answer is None


class OpenRequest(msgspec.Struct, frozen=True):
    """A planning that was begun and has no draft yet.

    Attributes:
        turn: its number.
        attempt: how often it was begun.
        reason: why it is needed.
        is_held: a pause came before the planner was asked.
    """

    turn: int
    attempt: int
    reason: PlanReason
    is_held: bool = False


class Paused(msgspec.Struct, frozen=True):
    """A pause that was not answered yet.

    Attributes:
        reason: as in `session.pause`.
        state: where the session goes back to.
        topic: the hook topic that asked; `""` for a budget or a planner that failed.
        subject: what it asked about.
        message: what went wrong, if that is why.
        position: how many subscribers were called.
        kept: what they changed.
        open_calls: the calls of which each still needs a decision of its own.
    """

    reason: str
    state: SessionPhase
    topic: str = ""
    subject: str = ""
    message: str = ""
    position: int = 0
    kept: JsonData = NULL
    open_calls: tuple[str, ...] = ()

    @property
    def is_budget(self) -> bool:
        """Whether only a raised limit ends it."""
        return self.reason in {"step_budget", "replan_budget"} or self.reason.startswith("budget_exceeded:")


class Answered(msgspec.Struct, frozen=True):
    """An answered pause of a hook topic, with what was decided; the topic is not fired from the start again for that subject."""

    topic: str
    subject: str
    position: int
    kept: JsonData
    decision: JsonData


class Waiting(msgspec.Struct, frozen=True):
    """A prepared call that is not granted yet, with the decision about it; None while there is none."""

    call: HeldCall
    decision: JsonData | None = None


class SessionState(msgspec.Struct, frozen=True):
    """One session at one offset.

    Attributes:
        phase: one of the six states.
        run_id: the run, for errors.
        goal: what is to be reached.
        is_started: whether it ever began.
        request: the planning that is asked.
        turns: number of the newest turn.
        draft: a draft that is neither committed nor dropped.
        draft_reason: why the draft was asked for.
        steps: the committed plan, in order; empty before the first commit.
        is_final: whether the goal is met when the plan's last step is done.
        is_planned: whether a plan was ever committed.
        plan_turn: the turn that made the plan.
        positions: 0-based position by step id in the plan.
        status: status by step id of the plan; a missing id is `open`.
        cursor: position of the first step that has not ended.
        work: steps that were started and have not ended, in order: one, or those of a batch.
        ahead: how many steps of the batch that is worked on were not started yet.
        reviewing: ids of the steps that ended since the session last moved on.
        history: steps that ended (of this and of earlier plans) and notes that were accepted, in order.
        has_done_step: whether any step of any plan was ever done.
        queued: notes that no planning accepted yet, in order.
        failure: what the next planning must answer.
        paused: the open pause.
        answered: the last answered pause of a hook, until what it was about is settled.
        waiting: calls that are prepared and not granted, by call id.
        outcome: the reason given when the session completed; `""` before.
        unread: notes that no planning accepted, at the end.
    """

    phase: SessionPhase = SessionPhase.IDLE
    run_id: str = ""
    goal: str = ""
    is_started: bool = False
    request: OpenRequest | None = None
    turns: int = 0
    draft: PlanDraft | None = None
    draft_reason: PlanReason = "first"
    steps: tuple[StepSpec, ...] = ()
    is_final: bool = True
    is_planned: bool = False
    plan_turn: int = 0
    positions: Mapping[str | int, int] = {}
    status: Mapping[str | int, StepStatus] = {}
    cursor: int = 0
    work: tuple[StepWork, ...] = ()
    ahead: int = 0
    reviewing: tuple[str | int, ...] = ()
    history: Shared[EndedStep | Note] = Shared()
    has_done_step: bool = False
    queued: Shared[Note] = Shared()
    failure: LastFailure | None = None
    paused: Paused | None = None
    answered: Answered | None = None
    waiting: Mapping[str, Waiting] = {}
    outcome: str = ""
    unread: tuple[str, ...] = ()

    @property
    def next_step(self) -> StepSpec | None:
        """The first step of the plan that was not started."""
        for position in range(self.cursor, len(self.steps)):
            step = self.steps[position]
            if step.id not in self.status:
                return step
        return None

    @property
    def remaining(self) -> tuple[StepSpec, ...]:
        """The steps of the plan that were not started, in order."""
        return tuple(self._unstarted())

    def _unstarted(self) -> Iterator[StepSpec]:
        for position in range(self.cursor, len(self.steps)):
            step = self.steps[position]
            if step.id not in self.status:
                yield step

    def is_ended(self, step_id: str | int) -> bool:
        """Tell whether a step of the plan has ended."""
        return self.status.get(step_id, "open") in {"done", "failed", "skipped"}

    def batch_of(self, step: StepSpec) -> tuple[StepSpec, ...]:
        """Return the steps of the plan that belong to one batch with `step`: itself, and its neighbours under the same batch name."""
        if step.batch is None:
            return (step,)
        first = last = self.positions[step.id]
        while first > 0 and self.steps[first - 1].batch == step.batch:
            first -= 1
        while last + 1 < len(self.steps) and self.steps[last + 1].batch == step.batch:
            last += 1
        return self.steps[first : last + 1]

    def queued_of(self, kind: Literal["steer", "follow_up"]) -> tuple[Note, ...]:
        """Return the queued notes of one kind."""
        return tuple(note for note in self.queued if note.kind == kind)

    def call_id_of(self, step: StepSpec) -> str:
        """Return the id under which the call of a step of the plan is granted: `<turn>.<0-based position in the plan>`.

        Raises:
            KeyError: the step is not in the plan.
        """
        return f"{self.plan_turn}.{self.positions[step.id]}"

    def work_on(self, call_id: str) -> StepWork | None:
        """Return the started step that waits for a call."""
        for item in self.work:
            if item.call_id == call_id:
                return item
        return None
