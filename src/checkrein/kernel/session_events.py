"""What happens while a goal is worked through a plan: the events of a session, as a run's log keeps them.

The run's lifecycle does not depend on them (it counts steps); plans, progress and transcripts are folded from them.
"""

from typing import ClassVar, Literal

from msgspec.structs import force_setattr

from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.facts import Fact, PlanReason, StepSpec
from checkrein.values import NULL, JsonData, JsonObject, StoredData, StoredObject, check_object

__all__ = [
    "BudgetWarn",
    "HeldCall",
    "PlanCommit",
    "PlanDraft",
    "SessionComplete",
    "SessionPause",
    "SessionResume",
    "SessionStart",
    "StepEnd",
    "StepStart",
    "ToolCallGiven",
    "ToolErrorGiven",
    "ToolResultGiven",
    "TurnStart",
]


class SessionStart(Fact, frozen=True, tag="session.start"):
    """A goal is to be worked through a plan; `budget` is set where no run's own event carries the limits."""

    type: ClassVar[Literal["session.start"]] = "session.start"
    goal: str
    budget: Budget | None = None


class TurnStart(Fact, frozen=True, tag="turn.start"):
    """A planning phase begins; `notes` are the ids of the messages it accepts, `reason` says why it is needed."""

    type: ClassVar[Literal["turn.start"]] = "turn.start"
    turn: int
    attempt: int = 1
    notes: tuple[str, ...] = ()
    reason: PlanReason = "first"


class PlanDraft(Fact, frozen=True, tag="plan.draft"):
    """The planner returned these steps.

    A draft with `dropped` has no steps: it says why the draft before it never became the plan or, while the session reflects, why the rest of the plan
    was given up.
    """

    type: ClassVar[Literal["plan.draft"]] = "plan.draft"
    turn: int
    steps: tuple[StepSpec, ...]
    final: bool = True
    dropped: str = ""


class PlanCommit(Fact, frozen=True, tag="plan.commit"):
    """The draft is the plan; of a revision the ids it removed, added and revised. Only the reason `replan` is charged to the budget."""

    type: ClassVar[Literal["plan.commit"]] = "plan.commit"
    turn: int
    steps: tuple[StepSpec, ...]
    final: bool = True
    reason: PlanReason = "first"
    removed: tuple[str | int, ...] = ()
    added: tuple[str | int, ...] = ()
    revised: tuple[str | int, ...] = ()


class StepStart(Fact, frozen=True, tag="step.start"):
    """Work on a step begins."""

    type: ClassVar[Literal["step.start"]] = "step.start"
    step_id: str | int


class StepEnd(Fact, frozen=True, tag="step.end"):
    """Work on a step ended; `result` is what the planner sees."""

    type: ClassVar[Literal["step.end"]] = "step.end"
    step_id: str | int
    status: Literal["done", "failed", "skipped"]
    result: StoredData = NULL
    error: str = ""


class ToolCallGiven(Fact, frozen=True, tag="tool.call"):
    """Control was given to whoever runs the tool."""

    type: ClassVar[Literal["tool.call"]] = "tool.call"
    step_id: str | int
    call_id: str
    name: str
    arguments: StoredObject
    attempt: int = 1

    def __post_init__(self) -> None:
        """Check that the arguments are an object, whoever looks at them."""
        check_object(self.arguments)


class ToolResultGiven(Fact, frozen=True, tag="tool.result"):
    """A result came back."""

    type: ClassVar[Literal["tool.result"]] = "tool.result"
    step_id: str | int
    call_id: str
    result: StoredData = NULL


class ToolErrorGiven(Fact, frozen=True, tag="tool.error"):
    """An error came back, or the call was never made (`call_id` is then empty)."""

    type: ClassVar[Literal["tool.error"]] = "tool.error"
    step_id: str | int
    call_id: str
    kind: str
    message: str


class BudgetWarn(Fact, frozen=True, tag="budget.warn"):
    """A limit is reached."""

    type: ClassVar[Literal["budget.warn"]] = "budget.warn"
    limit: str
    used: float
    allowed: float

    def __post_init__(self) -> None:
        """Make floats of counters, so that equal facts have equal bytes."""
        force_setattr(self, "used", float(self.used))
        force_setattr(self, "allowed", float(self.allowed))


class HeldCall(Fact, frozen=True):
    """A call that was prepared before a pause and is granted after it.

    Attributes:
        step_id: its step.
        call_id: the id it will be granted under.
        name: the tool.
        arguments: what the tool will be given, as hooks left them.
        position: how many subscribers of `before_tool_call` were called.
        asks: who must decide before the grant; `""` when nothing is asked any more.
        reason: what is asked.
    """

    step_id: str | int
    call_id: str
    name: str
    arguments: JsonObject
    position: int = 0
    asks: Literal["", "hook", "policy"] = ""
    reason: str = ""


class SessionPause(Fact, frozen=True, tag="session.pause"):
    """Control went back to the caller, with the reason and the state to return to.

    Attributes:
        reason: `budget_exceeded:<limit>`, `step_budget`, `replan_budget`, `review:<reason>`, `aborted:<text>` or `planner_failed`.
        state: the state to return to.
        topic: the hook topic that asked.
        subject: what it asked about: `turn:<n>`, `step:<id>`, a call id; of a budget pause the limit.
        message: what went wrong, when that is why.
        position: how many subscribers of the topic were called; those after them are called with the decision.
        kept: what they changed, null for nothing.
        calls: calls that are prepared and wait, each for its own decision or for nothing but the grant.
    """

    type: ClassVar[Literal["session.pause"]] = "session.pause"
    reason: str
    state: str
    topic: str = ""
    subject: str = ""
    message: str = ""
    position: int = 0
    kept: StoredData = NULL
    calls: tuple[HeldCall, ...] = ()


class SessionResume(Fact, frozen=True, tag="session.resume"):
    """A pause was answered: limits were raised, or something was decided (of several approvals the one that `subject` names)."""

    type: ClassVar[Literal["session.resume"]] = "session.resume"
    topic: str = ""
    subject: str = ""
    decision: JsonData = NULL
    extra: Amounts | None = None


class SessionComplete(Fact, frozen=True, tag="session.complete"):
    """The session is over; `unread` are the notes no planning accepted."""

    type: ClassVar[Literal["session.complete"]] = "session.complete"
    reason: str
    unread: tuple[str, ...] = ()
