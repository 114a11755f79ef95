"""What happens while a goal is worked through a plan: the events of a session, as a run's log keeps them.

The run's lifecycle does not depend on them (it counts steps); plans, progress and transcripts are folded from them.
"""

from typing import ClassVar, Literal

from msgspec.structs import force_setattr

from checkrein.kernel.budget import Amounts
from checkrein.kernel.facts import Fact, StepSpec
from checkrein.values import NULL, JsonData, StoredData, StoredObject, check_object

__all__ = [
    "BudgetWarn",
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
    """A goal is to be worked through a plan."""

    type: ClassVar[Literal["session.start"]] = "session.start"
    goal: str


class TurnStart(Fact, frozen=True, tag="turn.start"):
    """A planning phase begins; `notes` are the ids of the messages it accepts."""

    type: ClassVar[Literal["turn.start"]] = "turn.start"
    turn: int
    attempt: int = 1
    notes: tuple[str, ...] = ()


class PlanDraft(Fact, frozen=True, tag="plan.draft"):
    """The planner returned these steps; `dropped` says why they never became the plan."""

    type: ClassVar[Literal["plan.draft"]] = "plan.draft"
    turn: int
    steps: tuple[StepSpec, ...]
    final: bool = True
    dropped: str = ""


class PlanCommit(Fact, frozen=True, tag="plan.commit"):
    """The draft is the plan; of a revision the ids it removed, added and revised."""

    type: ClassVar[Literal["plan.commit"]] = "plan.commit"
    turn: int
    steps: tuple[StepSpec, ...]
    final: bool = True
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


class SessionPause(Fact, frozen=True, tag="session.pause"):
    """Control went back to the caller, with the reason and the state to return to."""

    type: ClassVar[Literal["session.pause"]] = "session.pause"
    reason: str
    state: str
    topic: str = ""
    subject: str = ""


class SessionResume(Fact, frozen=True, tag="session.resume"):
    """A pause was answered."""

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
