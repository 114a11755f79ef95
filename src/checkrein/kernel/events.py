"""Every durable event: one envelope, one closed union of payloads.

A run's log holds the facts of all levels in one order: lifecycle (what a run may do), and session (how its goal is worked through a plan). Payloads
are past tense, frozen, and complete enough that a fold needs nothing else. `kernel/run.py` says which are legal when; `codec/` turns them into
bytes. Streaming updates are no events and never come here.

Call ids are ours: `<turn>.<index in the batch>`, unique in the run; the idempotency key handed to a tool is `<run id>/<call id>`.
"""

from collections.abc import Callable
from typing import ClassVar, Literal, TypeAlias, TypeVar, get_args

import msgspec
from msgspec.structs import force_setattr

from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.facts import (
    Artifact,
    Cause,
    CauseKind,
    CheckSpec,
    Evidence,
    Fact,
    FailureCode,
    Finding,
    PlanReason,
    StepSpec,
    TaskRecord,
    ToolSpec,
)
from checkrein.kernel.session_events import (
    BudgetWarn,
    HeldCall,
    PlanCommit,
    PlanDraft,
    SessionComplete,
    SessionPause,
    SessionResume,
    SessionStart,
    StepEnd,
    StepStart,
    ToolCallGiven,
    ToolErrorGiven,
    ToolResultGiven,
    TurnStart,
)
from checkrein.messages import Message, Usage
from checkrein.values import NULL, JsonData, StoredData, StoredObject, check_object

__all__ = [
    "RUN_EVENT_TYPES",
    "SESSION_EVENT_TYPES",
    "Artifact",
    "Blocked",
    "BudgetExtended",
    "BudgetReserved",
    "BudgetSettled",
    "BudgetWarn",
    "CancelRequested",
    "Cause",
    "CauseKind",
    "CheckFailed",
    "CheckPassed",
    "CheckSpec",
    "CodeAccepted",
    "Event",
    "EventData",
    "Evidence",
    "Failed",
    "FailureCode",
    "Finding",
    "FollowUpQueued",
    "HeldCall",
    "LeaseTaken",
    "PlanAccepted",
    "PlanCommit",
    "PlanDraft",
    "PlanReason",
    "Received",
    "SessionComplete",
    "SessionData",
    "SessionPause",
    "SessionResume",
    "SessionStart",
    "SteerQueued",
    "StepEnd",
    "StepSpec",
    "StepStart",
    "TaskRecord",
    "ToolAccepted",
    "ToolCallGiven",
    "ToolDone",
    "ToolErrorGiven",
    "ToolFailed",
    "ToolGranted",
    "ToolInDoubt",
    "ToolReconciled",
    "ToolResultGiven",
    "ToolSpec",
    "TranscriptCompacted",
    "TurnFinished",
    "TurnGranted",
    "TurnStart",
    "Unblocked",
    "WorkDone",
    "WorkStarted",
    "narrowed",
    "placed",
]


class Received(Fact, frozen=True, tag="received"):
    """The task is stored and valid; creates the run.

    Attributes:
        task: the facts of the task.
        budget: the limits.
        request_id: the caller's id of the request.
        parent: the run whose tool started this one; `""` for none.
        fork_of: the run whose history comes next, up to `fork_at`; `""` for a run that begins anew.
        fork_at: how many events of the log are that history, this one counted.
    """

    type: ClassVar[Literal["received"]] = "received"
    task: TaskRecord
    budget: Budget
    request_id: str = ""
    parent: str = ""
    fork_of: str = ""
    fork_at: int = 0


class LeaseTaken(Fact, frozen=True, tag="lease_taken"):
    """A worker owns the run from here on, under a new epoch.

    Attributes:
        lease: the new epoch, one more than the last.
        owner: the worker's identity.
        folder: name of the folder the run works in from here on; `""` keeps the last one.
        takeover: whether the last lease was not released.
    """

    type: ClassVar[Literal["lease_taken"]] = "lease_taken"
    lease: int
    owner: str
    folder: str = ""
    takeover: bool = False


class BudgetExtended(Fact, frozen=True, tag="budget_extended"):
    """Limits were raised by the actor.

    Raises:
        DataError: on creation, when an amount is negative or no finite number.
    """

    type: ClassVar[Literal["budget_extended"]] = "budget_extended"
    extra: Amounts

    def __post_init__(self) -> None:
        """Check the amounts."""
        self.extra.checked()


class BudgetReserved(Fact, frozen=True, tag="budget_reserved"):
    """A share of the budget was set aside for a child run, before the child exists.

    Attributes:
        child: the child's run id.
        amounts: its share.
        call_id: the call that starts it.
        task: the name of the child's task.
    """

    type: ClassVar[Literal["budget_reserved"]] = "budget_reserved"
    child: str
    amounts: Amounts
    call_id: str = ""
    task: str = ""

    def __post_init__(self) -> None:
        """Check the amounts."""
        self.amounts.checked()


class BudgetSettled(Fact, frozen=True, tag="budget_settled"):
    """A child run ended; its reservation is replaced by its real use."""

    type: ClassVar[Literal["budget_settled"]] = "budget_settled"
    child: str
    used: Amounts

    def __post_init__(self) -> None:
        """Check the amounts."""
        self.used.checked()


class SteerQueued(Fact, frozen=True, tag="steer_queued"):
    """A message for the next planning."""

    type: ClassVar[Literal["steer_queued"]] = "steer_queued"
    note: str
    text: str


class FollowUpQueued(Fact, frozen=True, tag="follow_up_queued"):
    """A message for when the goal would count as met."""

    type: ClassVar[Literal["follow_up_queued"]] = "follow_up_queued"
    note: str
    text: str


class CodeAccepted(Fact, frozen=True, tag="code_accepted"):
    """The actor trusts another hash of the task's code for this run."""

    type: ClassVar[Literal["code_accepted"]] = "code_accepted"
    code_hash: str
    version: int = 0


class PlanAccepted(Fact, frozen=True, tag="plan_accepted"):
    """A plan is committed.

    Attributes:
        steps: how many steps it has.
        reason: `first`, or why it was revised; only `replan` is charged to the budget.
    """

    type: ClassVar[Literal["plan_accepted"]] = "plan_accepted"
    steps: int
    reason: PlanReason = "first"


class WorkStarted(Fact, frozen=True, tag="work_started"):
    """Work may be granted from here on."""

    type: ClassVar[Literal["work_started"]] = "work_started"


class TurnGranted(Fact, frozen=True, tag="turn_granted"):
    """The only door to a planner or a model request; counted before it is made.

    Attributes:
        turn: 1-based number of the turn.
        attempt: 1 for the first try; a retry or recovery is one more.
        purpose: what the request is for.
        previous: the previous attempt's error, or `in_doubt` after a crash; empty on the first.
    """

    type: ClassVar[Literal["turn_granted"]] = "turn_granted"
    turn: int
    attempt: int = 1
    purpose: Literal["planning", "compaction"] = "planning"
    previous: str = ""


class TurnFinished(Fact, frozen=True, tag="turn_finished"):
    """The planner or model answered; `error` is set when it failed for good."""

    type: ClassVar[Literal["turn_finished"]] = "turn_finished"
    turn: int
    attempt: int = 1
    messages: tuple[Message, ...] = ()
    usage: Usage = Usage()
    error: str = ""


class TranscriptCompacted(Fact, frozen=True, tag="transcript_compacted"):
    """The oldest turns of the transcript were replaced by a summary."""

    type: ClassVar[Literal["transcript_compacted"]] = "transcript_compacted"
    through_turn: int
    summary: str
    usage: Usage = Usage()


class ToolGranted(Fact, frozen=True, tag="tool_granted"):
    """The only door to a tool's body: one event per execution, counted before it happens.

    Attributes:
        call_id: ours, `<turn>.<index in the batch>`.
        tool: the tool's declaration at the time.
        arguments: validated arguments.
        attempt: 1 for the first execution; more only for idempotent tools.
        previous: the previous attempt's error, or `in_doubt`; empty on the first.
        model_call_id: the model's own id, if a model asked.
    """

    type: ClassVar[Literal["tool_granted"]] = "tool_granted"
    call_id: str
    tool: ToolSpec
    arguments: StoredObject
    attempt: int = 1
    previous: str = ""
    model_call_id: str = ""

    def __post_init__(self) -> None:
        """Check that the arguments are an object, whoever looks at them."""
        check_object(self.arguments)


class ToolAccepted(Fact, frozen=True, tag="tool_accepted"):
    """The tool answered with a job number, which is no result; `pull` as handle means that a caller brings the result.

    `interval_seconds` is how long to wait between two questions about it, also for a worker that did not hear the answer.
    """

    type: ClassVar[Literal["tool_accepted"]] = "tool_accepted"
    call_id: str
    handle: str
    interval_seconds: float = 1.0

    def __post_init__(self) -> None:
        """Make a float of the interval, so that equal facts have equal bytes."""
        force_setattr(self, "interval_seconds", float(self.interval_seconds))


class ToolDone(Fact, frozen=True, tag="tool_done"):
    """A call ended with a result.

    Attributes:
        call_id: the call.
        result: what the tool returned; JSON null with `empty` True when it returned nothing.
        artifacts: the files it wrote, with their digests.
        completes: set by drivers without a session when nothing remains to do.
        empty: the tool returned no data.
    """

    type: ClassVar[Literal["tool_done"]] = "tool_done"
    call_id: str
    result: StoredData = NULL
    artifacts: tuple[Artifact, ...] = ()
    completes: bool = False
    empty: bool = False


class ToolFailed(Fact, frozen=True, tag="tool_failed"):
    """A call ended with an error and no attempt follows.

    Attributes:
        call_id: the call.
        kind: which kind of failure.
        message: for the planner and for people.
        attempts: how many were made.
    """

    type: ClassVar[Literal["tool_failed"]] = "tool_failed"
    call_id: str
    kind: Literal["timeout", "transient", "schema", "not_found", "denied", "internal", "budget_exceeded", "cancelled"]
    message: str
    attempts: int = 1


class ToolInDoubt(Fact, frozen=True, tag="tool_in_doubt"):
    """Nobody knows whether the body ran: its worker is gone, or it timed out.

    Attributes:
        call_id: the call.
        reason: what is known.
        probed: the tool's probe was asked and could not tell.
    """

    type: ClassVar[Literal["tool_in_doubt"]] = "tool_in_doubt"
    call_id: str
    reason: str
    probed: bool = False


class ToolReconciled(Fact, frozen=True, tag="tool_reconciled"):
    """A probe or a person said what became of a call; `unknown` closes it without knowing."""

    type: ClassVar[Literal["tool_reconciled"]] = "tool_reconciled"
    call_id: str
    outcome: Literal["done", "failed", "unknown"]
    by: Literal["probe", "person"] = "person"
    result: JsonData = NULL
    artifacts: tuple[Artifact, ...] = ()
    message: str = ""
    completes: bool = False


class WorkDone(Fact, frozen=True, tag="work_done"):
    """No step remains; the artifacts are to be checked. `artifacts` holds `answer`, when the work ended with a reported answer."""

    type: ClassVar[Literal["work_done"]] = "work_done"
    artifacts: tuple[Artifact, ...] = ()


class CheckPassed(Fact, frozen=True, tag="check_passed"):
    """Every required check is met.

    Attributes:
        evidence: at least one passing measurement per required check.
        reread: digests of the subjects' bytes, read again after the last verifier ended.
    """

    type: ClassVar[Literal["check_passed"]] = "check_passed"
    evidence: tuple[Evidence, ...]
    reread: tuple[Artifact, ...]


class CheckFailed(Fact, frozen=True, tag="check_failed"):
    """At least one check is not met; findings say which and why, evidence holds all measurements."""

    type: ClassVar[Literal["check_failed"]] = "check_failed"
    findings: tuple[Finding, ...]
    evidence: tuple[Evidence, ...] = ()


class Blocked(Fact, frozen=True, tag="blocked"):
    """The run cannot go on without a new fact or decision."""

    type: ClassVar[Literal["blocked"]] = "blocked"
    cause: Cause


class Unblocked(Fact, frozen=True, tag="unblocked"):
    """One cause was answered."""

    type: ClassVar[Literal["unblocked"]] = "unblocked"
    cause_id: str
    answer: JsonData = NULL


class CancelRequested(Fact, frozen=True, tag="cancel_requested"):
    """The right to start anything new is withdrawn at once."""

    type: ClassVar[Literal["cancel_requested"]] = "cancel_requested"
    reason: str


class Failed(Fact, frozen=True, tag="failed"):
    """The run ended without success."""

    type: ClassVar[Literal["failed"]] = "failed"
    code: FailureCode
    message: str


RunData: TypeAlias = (
    Received
    | LeaseTaken
    | BudgetExtended
    | BudgetReserved
    | BudgetSettled
    | SteerQueued
    | FollowUpQueued
    | CodeAccepted
    | PlanAccepted
    | WorkStarted
    | TurnGranted
    | TurnFinished
    | TranscriptCompacted
    | ToolGranted
    | ToolAccepted
    | ToolDone
    | ToolFailed
    | ToolInDoubt
    | ToolReconciled
    | WorkDone
    | CheckPassed
    | CheckFailed
    | Blocked
    | Unblocked
    | CancelRequested
    | Failed
)
SessionData: TypeAlias = (
    SessionStart
    | TurnStart
    | PlanDraft
    | PlanCommit
    | StepStart
    | StepEnd
    | ToolCallGiven
    | ToolResultGiven
    | ToolErrorGiven
    | BudgetWarn
    | SessionPause
    | SessionResume
    | SessionComplete
)
EventData: TypeAlias = RunData | SessionData
"""The closed union of payloads."""


RUN_EVENT_TYPES: tuple[str, ...] = tuple(member.type for member in get_args(RunData))
SESSION_EVENT_TYPES: tuple[str, ...] = tuple(member.type for member in get_args(SessionData))


class Event(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One durable fact.

    `run_id`, `actor` and `data` are what the event says; the rest is its envelope.

    Attributes:
        run_id: the run.
        event_id: unique in the run; the same id with the same content is the same event.
        expected_version: the version the log must have when it is appended; also its offset.
        at: seconds since 1970 (UTC); data, never an order.
        actor: who says so: `worker:<name>` or `user:<name>`.
        data: what happened.
        epoch: the lease's epoch for a worker's event, None for a user's.
        elapsed: total seconds of active time; 0 when the writer does not measure it.
        v: version of the payload's schema as it was written; see `checkrein.codec.schema`.
    """

    run_id: str
    event_id: str
    expected_version: int
    at: float
    actor: str
    data: EventData
    epoch: int | None = None
    elapsed: float = 0.0
    v: int = 1

    @property
    def type(self) -> str:
        """The payload's type, such as `tool_granted`."""
        return self.data.type

    @property
    def offset(self) -> int:
        """Its 0-based position in the log."""
        return self.expected_version


D = TypeVar("D")
S = TypeVar("S")


def narrowed(kind: type[D], handler: Callable[[S, D], S]) -> Callable[[S, Event], S]:
    """Return a fold's step for one type of payload, made of a handler that takes the payload."""

    def step(state: S, event: Event) -> S:
        data = event.data
        if not isinstance(data, kind):
            msg = f"{type(data).__name__} came to the handler of {kind.__name__}"
            raise TypeError(msg)
        return handler(state, data)

    return step


def placed(kind: type[D], handler: Callable[[S, D, int], S]) -> Callable[[S, Event], S]:
    """Return what `narrowed` does, of a handler that also takes the event's offset in the log."""

    def step(state: S, event: Event) -> S:
        data = event.data
        if not isinstance(data, kind):
            msg = f"{type(data).__name__} came to the handler of {kind.__name__}"
            raise TypeError(msg)
        return handler(state, data, event.expected_version)

    return step
