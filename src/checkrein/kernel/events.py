"""Every durable event: one envelope, one closed union of payloads.

A run's log holds the facts of all levels in one order: lifecycle (what a run may do), and session (how its goal is worked through a plan). Payloads
are past tense, frozen, and complete enough that a fold needs nothing else. `kernel/run.py` says which are legal when; `codec/` turns them into
bytes. Streaming updates are no events and never come here.

Call ids are ours: `<turn>.<index in the batch>`, unique in the run; the idempotency key handed to a tool is `<run id>/<call id>`.
"""

from typing import ClassVar, Literal, TypeAlias, get_args

import msgspec

from checkrein.kernel.budget import Amounts, Budget
from checkrein.messages import Message, Usage
from checkrein.values import NULL, JsonData, JsonObject

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
    "FailureCode",
    "Failed",
    "Finding",
    "FollowUpQueued",
    "LeaseTaken",
    "PlanAccepted",
    "PlanCommit",
    "PlanDraft",
    "Received",
    "SessionComplete",
    "SessionPause",
    "SessionResume",
    "SessionStart",
    "SteerQueued",
    "StepEnd",
    "StepRecord",
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
]

FailureCode: TypeAlias = Literal["check_failed", "cancelled", "no_plan", "gave_up", "step_failed", "closed", "error"]
CauseKind: TypeAlias = Literal["permission", "answer", "budget", "reconcile", "verifier", "code_changed"]


class CheckSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One required check of a task.

    Attributes:
        id: unique in the task, as shown to people.
        kind: which verifier measures.
        subject: the artifact it is about (a path relative to the run's folder, or `answer`); `""` when the run itself is the subject.
        title: what it proves, in words.
    """

    id: str
    kind: str
    subject: str = ""
    title: str = ""


class ToolSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a task's tool declares about itself; recovery and cancellation decide by it."""

    name: str
    idempotent: bool = False
    cancellable: bool = False
    has_probe: bool = False


class TaskRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The facts of a task that a run keeps for ever.

    Attributes:
        name: the task's name; workers claim runs by it.
        version: the task's version.
        goal: what is to be reached, in words.
        code_hash: hash of the task's code and file; `""` for a task made in code.
        checks: what must be proved; never empty.
        tools: the tools the task lists.
        data: everything else a person may want to see again (inputs with their digests, workspace).
    """

    name: str
    version: int
    goal: str
    code_hash: str
    checks: tuple[CheckSpec, ...]
    tools: tuple[ToolSpec, ...] = ()
    data: JsonObject = JsonObject()


class StepRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One planned step as it stands in the log."""

    id: str | int
    description: str
    tool_name: str | None = None
    arguments: JsonObject = JsonObject()
    expected_outcome: str = ""
    batch: str | int | None = None


class Artifact(msgspec.Struct, frozen=True):
    """A file (or the reported `answer`) that an accepted outcome named.

    Attributes:
        path: relative to the run's folder, with `/`.
        sha256: 64 hexadecimal digits over its bytes.
    """

    path: str
    sha256: str


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """A recorded measurement of one subject.

    Attributes:
        check: the id of the required check it is for.
        verifier: what measured.
        verifier_version: its version.
        run_id: the run it was measured for.
        subject: path of the artifact, or `""` for the run itself.
        sha256: digest of the artifact's bytes that were measured; `""` for the run itself.
        measurement: what was found, in words.
        at: seconds since 1970 (UTC).
        position: the log's version when it was measured.
        passed: whether the check is met.
    """

    check: str
    verifier: str
    verifier_version: str
    run_id: str
    subject: str
    sha256: str
    measurement: str
    at: float
    position: int
    passed: bool = True


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why one check is not met, as data for a repair."""

    check: str
    subject: str
    code: str
    message: str


class Cause(msgspec.Struct, frozen=True, omit_defaults=True):
    """One reason why a run cannot go on without a new fact or decision.

    Attributes:
        id: unique among the run's open causes.
        kind: what is missing.
        detail: for `budget` the limit's name; for `code_changed` both hashes; else empty or a short word.
        message: what a person must know to answer.
        who: who may answer.
        call_id: the call it is about, if any.
    """

    id: str
    kind: CauseKind
    message: str
    detail: str = ""
    who: Literal["user", "worker"] = "user"
    call_id: str = ""


class Received(msgspec.Struct, frozen=True, tag="received", omit_defaults=True):
    """The task is stored and valid; creates the run."""

    type: ClassVar[Literal["received"]] = "received"
    task: TaskRecord
    budget: Budget
    request_id: str = ""
    parent: str = ""


class LeaseTaken(msgspec.Struct, frozen=True, tag="lease_taken", omit_defaults=True):
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


class BudgetExtended(msgspec.Struct, frozen=True, tag="budget_extended"):
    """Limits were raised by the actor.

    Raises:
        DataError: on creation, when an amount is negative or no finite number.
    """

    type: ClassVar[Literal["budget_extended"]] = "budget_extended"
    extra: Amounts

    def __post_init__(self) -> None:
        """Check the amounts."""
        self.extra.checked()


class BudgetReserved(msgspec.Struct, frozen=True, tag="budget_reserved"):
    """A share of the budget was set aside for a child run."""

    type: ClassVar[Literal["budget_reserved"]] = "budget_reserved"
    child: str
    amounts: Amounts

    def __post_init__(self) -> None:
        """Check the amounts."""
        self.amounts.checked()


class BudgetSettled(msgspec.Struct, frozen=True, tag="budget_settled"):
    """A child run ended; its reservation is replaced by its real use."""

    type: ClassVar[Literal["budget_settled"]] = "budget_settled"
    child: str
    used: Amounts

    def __post_init__(self) -> None:
        """Check the amounts."""
        self.used.checked()


class SteerQueued(msgspec.Struct, frozen=True, tag="steer_queued"):
    """A message for the next planning."""

    type: ClassVar[Literal["steer_queued"]] = "steer_queued"
    note: str
    text: str


class FollowUpQueued(msgspec.Struct, frozen=True, tag="follow_up_queued"):
    """A message for when the goal would count as met."""

    type: ClassVar[Literal["follow_up_queued"]] = "follow_up_queued"
    note: str
    text: str


class CodeAccepted(msgspec.Struct, frozen=True, tag="code_accepted"):
    """The actor trusts another hash of the task's code for this run."""

    type: ClassVar[Literal["code_accepted"]] = "code_accepted"
    code_hash: str
    version: int = 0


class PlanAccepted(msgspec.Struct, frozen=True, tag="plan_accepted", omit_defaults=True):
    """A plan is committed.

    Attributes:
        steps: how many steps it has.
        reason: `first`, or why it was revised; only `replan` is charged to the budget.
    """

    type: ClassVar[Literal["plan_accepted"]] = "plan_accepted"
    steps: int
    reason: Literal["first", "replan", "repair", "continuation"] = "first"


class WorkStarted(msgspec.Struct, frozen=True, tag="work_started"):
    """Work may be granted from here on."""

    type: ClassVar[Literal["work_started"]] = "work_started"


class TurnGranted(msgspec.Struct, frozen=True, tag="turn_granted", omit_defaults=True):
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


class TurnFinished(msgspec.Struct, frozen=True, tag="turn_finished", omit_defaults=True):
    """The planner or model answered; `error` is set when it failed for good."""

    type: ClassVar[Literal["turn_finished"]] = "turn_finished"
    turn: int
    attempt: int = 1
    messages: tuple[Message, ...] = ()
    usage: Usage = Usage()
    error: str = ""


class TranscriptCompacted(msgspec.Struct, frozen=True, tag="transcript_compacted", omit_defaults=True):
    """The oldest turns of the transcript were replaced by a summary."""

    type: ClassVar[Literal["transcript_compacted"]] = "transcript_compacted"
    through_turn: int
    summary: str
    usage: Usage = Usage()


class ToolGranted(msgspec.Struct, frozen=True, tag="tool_granted", omit_defaults=True):
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
    arguments: JsonObject
    attempt: int = 1
    previous: str = ""
    model_call_id: str = ""


class ToolAccepted(msgspec.Struct, frozen=True, tag="tool_accepted", omit_defaults=True):
    """The tool answered with a job number, which is no result; `pull` as handle means that a caller brings the result."""

    type: ClassVar[Literal["tool_accepted"]] = "tool_accepted"
    call_id: str
    handle: str


class ToolDone(msgspec.Struct, frozen=True, tag="tool_done", omit_defaults=True):
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
    result: JsonData = NULL
    artifacts: tuple[Artifact, ...] = ()
    completes: bool = False
    empty: bool = False


class ToolFailed(msgspec.Struct, frozen=True, tag="tool_failed", omit_defaults=True):
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


class ToolInDoubt(msgspec.Struct, frozen=True, tag="tool_in_doubt", omit_defaults=True):
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


class ToolReconciled(msgspec.Struct, frozen=True, tag="tool_reconciled", omit_defaults=True):
    """A probe or a person said what became of a call; `unknown` closes it without knowing."""

    type: ClassVar[Literal["tool_reconciled"]] = "tool_reconciled"
    call_id: str
    outcome: Literal["done", "failed", "unknown"]
    by: Literal["probe", "person"] = "person"
    result: JsonData = NULL
    artifacts: tuple[Artifact, ...] = ()
    message: str = ""
    completes: bool = False


class WorkDone(msgspec.Struct, frozen=True, tag="work_done"):
    """No step remains; the artifacts are to be checked."""

    type: ClassVar[Literal["work_done"]] = "work_done"


class CheckPassed(msgspec.Struct, frozen=True, tag="check_passed"):
    """Every required check is met.

    Attributes:
        evidence: at least one passing measurement per required check.
        reread: digests of the subjects' bytes, read again after the last verifier ended.
    """

    type: ClassVar[Literal["check_passed"]] = "check_passed"
    evidence: tuple[Evidence, ...]
    reread: tuple[Artifact, ...]


class CheckFailed(msgspec.Struct, frozen=True, tag="check_failed"):
    """At least one check is not met; findings say which and why, evidence holds all measurements."""

    type: ClassVar[Literal["check_failed"]] = "check_failed"
    findings: tuple[Finding, ...]
    evidence: tuple[Evidence, ...] = ()


class Blocked(msgspec.Struct, frozen=True, tag="blocked"):
    """The run cannot go on without a new fact or decision."""

    type: ClassVar[Literal["blocked"]] = "blocked"
    cause: Cause


class Unblocked(msgspec.Struct, frozen=True, tag="unblocked", omit_defaults=True):
    """One cause was answered."""

    type: ClassVar[Literal["unblocked"]] = "unblocked"
    cause_id: str
    answer: JsonData = NULL


class CancelRequested(msgspec.Struct, frozen=True, tag="cancel_requested"):
    """The right to start anything new is withdrawn at once."""

    type: ClassVar[Literal["cancel_requested"]] = "cancel_requested"
    reason: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The run ended without success."""

    type: ClassVar[Literal["failed"]] = "failed"
    code: FailureCode
    message: str


class SessionStart(msgspec.Struct, frozen=True, tag="session.start"):
    """A goal is to be worked through a plan."""

    type: ClassVar[Literal["session.start"]] = "session.start"
    goal: str


class TurnStart(msgspec.Struct, frozen=True, tag="turn.start", omit_defaults=True):
    """A planning phase begins; `notes` are the ids of the messages it accepts."""

    type: ClassVar[Literal["turn.start"]] = "turn.start"
    turn: int
    notes: tuple[str, ...] = ()


class PlanDraft(msgspec.Struct, frozen=True, tag="plan.draft", omit_defaults=True):
    """The planner returned these steps; `dropped` says why they never became the plan."""

    type: ClassVar[Literal["plan.draft"]] = "plan.draft"
    turn: int
    steps: tuple[StepRecord, ...]
    final: bool = True
    dropped: str = ""


class PlanCommit(msgspec.Struct, frozen=True, tag="plan.commit", omit_defaults=True):
    """The draft is the plan; of a revision the ids it removed, added and revised."""

    type: ClassVar[Literal["plan.commit"]] = "plan.commit"
    turn: int
    steps: tuple[StepRecord, ...]
    final: bool = True
    removed: tuple[str | int, ...] = ()
    added: tuple[str | int, ...] = ()
    revised: tuple[str | int, ...] = ()


class StepStart(msgspec.Struct, frozen=True, tag="step.start"):
    """Work on a step begins."""

    type: ClassVar[Literal["step.start"]] = "step.start"
    step_id: str | int


class StepEnd(msgspec.Struct, frozen=True, tag="step.end", omit_defaults=True):
    """Work on a step ended; `result` is what the planner sees."""

    type: ClassVar[Literal["step.end"]] = "step.end"
    step_id: str | int
    status: Literal["done", "failed", "skipped"]
    result: JsonData = NULL
    error: str = ""


class ToolCallGiven(msgspec.Struct, frozen=True, tag="tool.call", omit_defaults=True):
    """Control was given to whoever runs the tool."""

    type: ClassVar[Literal["tool.call"]] = "tool.call"
    step_id: str | int
    call_id: str
    name: str
    arguments: JsonObject
    attempt: int = 1


class ToolResultGiven(msgspec.Struct, frozen=True, tag="tool.result", omit_defaults=True):
    """A result came back."""

    type: ClassVar[Literal["tool.result"]] = "tool.result"
    step_id: str | int
    call_id: str
    result: JsonData = NULL


class ToolErrorGiven(msgspec.Struct, frozen=True, tag="tool.error", omit_defaults=True):
    """An error came back, or the call was never made (`call_id` is then empty)."""

    type: ClassVar[Literal["tool.error"]] = "tool.error"
    step_id: str | int
    call_id: str
    kind: str
    message: str


class BudgetWarn(msgspec.Struct, frozen=True, tag="budget.warn"):
    """A limit is reached."""

    type: ClassVar[Literal["budget.warn"]] = "budget.warn"
    limit: str
    used: float
    allowed: float


class SessionPause(msgspec.Struct, frozen=True, tag="session.pause", omit_defaults=True):
    """Control went back to the caller, with the reason and the state to return to."""

    type: ClassVar[Literal["session.pause"]] = "session.pause"
    reason: str
    state: str
    topic: str = ""
    subject: str = ""


class SessionResume(msgspec.Struct, frozen=True, tag="session.resume", omit_defaults=True):
    """A pause was answered."""

    type: ClassVar[Literal["session.resume"]] = "session.resume"
    topic: str = ""
    subject: str = ""
    decision: JsonData = NULL
    extra: Amounts | None = None


class SessionComplete(msgspec.Struct, frozen=True, tag="session.complete", omit_defaults=True):
    """The session is over; `unread` are the notes no planning accepted."""

    type: ClassVar[Literal["session.complete"]] = "session.complete"
    reason: str
    unread: tuple[str, ...] = ()


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


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
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
    """

    run_id: str
    event_id: str
    expected_version: int
    at: float
    actor: str
    data: EventData
    epoch: int | None = None
    elapsed: float = 0.0

    @property
    def type(self) -> str:
        """The payload's type, such as `tool_granted`."""
        return self.data.type
