"""The whole exception tree of checkrein.

Every error carries attributes for programs and one message for people; the message names the run, the state, the event and
what to do next, as far as they exist. Nothing here imports anything, and no error is raised from this module.

    CheckreinError
    ├── DataError                  a value, an argument or stored bytes break a stated rule
    │   ├── InvalidJson            not canonical JSON: NaN, huge integer, duplicate key, too deep, too large
    │   ├── DamagedLog             stored bytes that are no event of ours, or a log with a gap
    │   └── UnknownTopic           no hook topic has that name; also a ValueError
    ├── IllegalTransition          a machine has no edge for this event in this phase
    ├── Rejected                   the lifecycle refused an event; `code` says why
    ├── StoreError                 the store could not do what was asked
    │   ├── RunNotFound            no run has that id
    │   ├── AmbiguousRun           several runs share that id prefix
    │   ├── Conflict               the log moved on: version or epoch differ from what the caller expected
    │   ├── DuplicateEvent         an event id came again with other bytes
    │   ├── LeaseHeld              another worker holds the run
    │   ├── StoreBusy              the store stayed locked for longer than the caller was willing to wait
    │   └── DamagedStore           the file is no store of ours, or its pages are damaged
    ├── TaskError                  a task is invalid; names file, key and fix
    │   ├── UntrustedTask          a task folder brings code that nobody has trusted
    │   └── MissingExtra           a task needs an optional part that is not installed
    ├── ToolError                  a tool call failed
    │   ├── InvalidArguments       arguments do not match the tool's schema (JSON-Pointer issues)
    │   ├── ChildRefused           a tool may not start that child run; `code` says why
    │   ├── TransientToolError     a failure that may pass if the call is made again
    │   └── FatalToolError         a failure that ends the whole run
    ├── HookAbort                  raised by a hook: what it was asked about must not happen; `text` says why
    ├── HookPowerError             a hook used a power that its topic does not have
    ├── ResumeError                an answer to a pull point was refused; `code` says why
    ├── PathEscape                 a path leads outside the folder it must stay in
    ├── VerifierFailed             a verifier could not run; nothing is known about the artifact
    ├── AgentError                 an agent refused what was asked; `code` says why
    │   ├── AgentStateError        it cannot do that in the state it is in
    │   │   └── AgentBusyError     a run owns the transcript
    │   └── AgentMessageLimitError the message would not fit
    └── ModelError                 a model request brought no usable response; `code` says why
        └── TransientModelError    the failure may pass: overload, a broken connection
"""

from collections.abc import Mapping

__all__ = [
    "AgentBusyError",
    "AgentError",
    "AgentMessageLimitError",
    "AgentStateError",
    "AmbiguousRun",
    "CheckreinError",
    "ChildRefused",
    "Conflict",
    "DamagedLog",
    "DamagedStore",
    "DataError",
    "DuplicateEvent",
    "FatalToolError",
    "HookAbort",
    "HookPowerError",
    "IllegalTransition",
    "InvalidArguments",
    "InvalidJson",
    "LeaseHeld",
    "MissingExtra",
    "ModelError",
    "PathEscape",
    "Rejected",
    "ResumeError",
    "RunNotFound",
    "StoreBusy",
    "StoreError",
    "TaskError",
    "ToolError",
    "TransientModelError",
    "TransientToolError",
    "UnknownTopic",
    "UntrustedTask",
    "VerifierFailed",
]


class CheckreinError(Exception):
    """The root of all errors that checkrein raises on purpose."""

    @property
    def message(self) -> str:
        """The text for people, without the class name."""
        return str(self)


class DataError(CheckreinError):
    """A value, an argument or stored bytes break a stated rule."""


class InvalidJson(DataError):
    """A value has no canonical JSON form, or bytes are not canonical JSON.

    Attributes:
        pointer: JSON Pointer to the offending place, `""` for the whole value.
        reason: the rule that is broken.
    """

    def __init__(self, reason: str, pointer: str = "") -> None:
        super().__init__(f"{reason} (at {pointer or 'the top'})")
        self.reason = reason
        self.pointer = pointer


class DamagedLog(DataError):
    """Stored bytes are no event of ours, or a log has a gap.

    Attributes:
        run_id: the run whose log is damaged.
        offset: the 0-based position of the first bad event.
    """

    def __init__(self, run_id: str, offset: int, reason: str) -> None:
        super().__init__(f"the log of run {run_id} is damaged at offset {offset}: {reason}")
        self.run_id = run_id
        self.offset = offset
        self.reason = reason


class UnknownTopic(DataError, ValueError):
    """No hook topic has that name.

    Attributes:
        topic: what was asked for.
        topics: those there are.
    """

    def __init__(self, topic: object, topics: tuple[str, ...]) -> None:
        super().__init__(f"{topic!r:.80} is no hook topic; the topics are {', '.join(topics)}")
        self.topic = topic
        self.topics = topics


class IllegalTransition(CheckreinError):
    """A machine has no edge for this event in this phase.

    Attributes:
        machine: which table was asked (`run`, `session`, `agent`).
        phase: the phase the machine is in.
        event: the event's type.
        subject: the id of the run or agent, `""` when there is none yet.
        allowed: the event types that are legal in that phase, sorted.
    """

    def __init__(self, machine: str, phase: str, event: str, subject: str, allowed: tuple[str, ...]) -> None:
        legal = ", ".join(allowed) or "none: this phase is an end"
        super().__init__(f"{machine} {subject or '(new)'}: {event} is illegal in {phase}; legal here: {legal}")
        self.machine = machine
        self.phase = phase
        self.event = event
        self.subject = subject
        self.allowed = allowed


class Rejected(CheckreinError):
    """The lifecycle refused an event and changed nothing.

    Attributes:
        code: one of the refusal codes (`wrong_run`, `duplicate_event`, `terminal`, `lease_lost`, `stale_version`, `rights_revoked`,
            `illegal_in_phase`, `budget_exhausted`, `unknown_call`, `call_settled`, `calls_in_flight`, `missing_evidence`, `stale_evidence`).
        run_id: the run that refused.
        phase: its phase when it refused.
        version: its version when it refused.
        event: the refused event's type.
        detail: what exactly was wrong.
    """

    def __init__(self, code: str, detail: str, coordinates: Mapping[str, str | int]) -> None:
        self.code = code
        self.detail = detail
        self.run_id = str(coordinates.get("run_id", ""))
        self.phase = str(coordinates.get("phase", ""))
        self.version = int(coordinates.get("version", -1))
        self.event = str(coordinates.get("event", ""))
        super().__init__(
            f"{code}: run {self.run_id or '(new)'} in {self.phase or 'no phase'} at version {self.version} refused {self.event}: {detail}"
        )


class StoreError(CheckreinError):
    """The store could not do what was asked; nothing was written unless a subclass says so."""


class RunNotFound(StoreError):
    """No run has that id or prefix."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"no run {run_id!r} in this store; `checkrein list` shows those it has")
        self.run_id = run_id


class AmbiguousRun(StoreError):
    """Several runs share that id prefix.

    Attributes:
        prefix: what was asked for.
        candidates: up to ten ids that begin with it.
    """

    def __init__(self, prefix: str, candidates: tuple[str, ...]) -> None:
        super().__init__(f"{prefix!r} fits several runs: {', '.join(candidates)}; give more characters")
        self.prefix = prefix
        self.candidates = candidates


class Conflict(StoreError):
    """A compare-and-set lost: the run's version or epoch is not what the caller expected. Nothing was written.

    Attributes:
        run_id: the run.
        code: `stale_version` or `lease_lost`.
        expected: the caller's `(version, epoch)`; epoch is None for a user's append.
        actual: the store's `(version, epoch)`.
    """

    def __init__(self, run_id: str, code: str, expected: tuple[int, int | None], actual: tuple[int, int]) -> None:
        epochs = ("", "") if expected[1] is None else (f", epoch {actual[1]}", f", epoch {expected[1]}")
        super().__init__(
            f"{code}: run {run_id} is at version {actual[0]}{epochs[0]}; expected was version {expected[0]}{epochs[1]}; read it again"
        )
        self.run_id = run_id
        self.code = code
        self.expected = expected
        self.actual = actual


class DuplicateEvent(StoreError):
    """An event id came again with other bytes. Nothing was written."""

    def __init__(self, run_id: str, event_id: str, offset: int) -> None:
        super().__init__(
            f"duplicate_event: run {run_id} has event {event_id} at offset {offset} with other content; use a new id"
        )
        self.run_id = run_id
        self.event_id = event_id
        self.offset = offset


class LeaseHeld(StoreError):
    """Another worker holds the run's lease. Nothing was written.

    Attributes:
        run_id: the run.
        owner: the holder's identity as stored.
        expires_in: seconds until the lease ends, by the store's clock.
    """

    def __init__(self, run_id: str, owner: str, expires_in: float) -> None:
        super().__init__(f"run {run_id} is held by {owner} for another {expires_in:.1f} s; wait, or stop that worker")
        self.run_id = run_id
        self.owner = owner
        self.expires_in = expires_in


class StoreBusy(StoreError):
    """The store stayed locked for longer than the caller was willing to wait. Nothing was written."""


class DamagedStore(StoreError):
    """The file is no store of ours, is of a newer version, or its pages are damaged.

    Attributes:
        path: the file.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}; keep the file, restore a backup, or name another one with --store")
        self.path = path
        self.reason = reason


class TaskError(CheckreinError):
    """A task is invalid.

    Attributes:
        source: the file, or `task` for one made in code.
        key: the dotted key or line that is wrong.
        fix: what to do about it.
    """

    def __init__(self, source: str, key: str, problem: str, fix: str) -> None:
        super().__init__(f"{source}: {key}: {problem}; {fix}" if key else f"{source}: {problem}; {fix}")
        self.source = source
        self.key = key
        self.problem = problem
        self.fix = fix


class UntrustedTask(TaskError):
    """A task folder brings code that nobody has trusted; nothing of it was imported.

    Attributes:
        code_hash: the hash to trust.
    """

    def __init__(self, source: str, code_hash: str, fix: str) -> None:
        super().__init__(source, "", f"this folder brings code that is not trusted ({code_hash})", fix)
        self.code_hash = code_hash


class MissingExtra(TaskError):
    """A task needs an optional part of checkrein that is not installed.

    Attributes:
        extra: the extra's name.
    """

    def __init__(self, source: str, key: str, extra: str) -> None:
        super().__init__(source, key, f"needs the extra {extra!r}", f"run: pip install 'checkrein[{extra}]'")
        self.extra = extra


class ToolError(CheckreinError):
    """A tool call failed; raise it (or any exception) in a tool to give the planner an error result."""


class InvalidArguments(ToolError):
    """Arguments do not match a tool's schema; the body was not called.

    Attributes:
        issues: pairs of JSON Pointer and what was expected there.
    """

    def __init__(self, tool: str, issues: tuple[tuple[str, str], ...]) -> None:
        listed = "; ".join(f"{pointer or '/'}: {expected}" for pointer, expected in issues)
        super().__init__(f"invalid arguments for {tool}: {listed}")
        self.tool = tool
        self.issues = issues


class ChildRefused(ToolError):
    """A tool may not start that child run; nothing was started.

    Attributes:
        code: `no_run` (the tool was called outside a run), `unknown_task`, `bad_share`, `budget_exhausted`, `rights_revoked`, `unknown_call` (the call has its
            outcome), `too_deep`, `key_in_use`, or another refusal of the lifecycle.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"no child run was started ({code}): {detail}")
        self.code = code


class TransientToolError(ToolError):
    """A failure that may pass if the call is made again; an idempotent tool's call is repeated within the budget."""


class FatalToolError(ToolError):
    """A failure that ends the whole run, whatever the failure policy says."""


class HookAbort(CheckreinError):
    """Raise it in a hook: what the hook was asked about must not happen. What happens instead depends on the topic.

    Attributes:
        text: why, for people and for the planner.
    """

    text: str = ""

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self.text = text


class HookPowerError(CheckreinError):
    """A hook used a power that its topic does not have; it counts as that hook's failure.

    Attributes:
        topic: the hook's topic.
        power: `abort`, `skip` or `pause`.
    """

    def __init__(self, topic: str, power: str) -> None:
        super().__init__(f"a hook of {topic} cannot {power}")
        self.topic = topic
        self.power = power


class ResumeError(CheckreinError):
    """An answer to a pull point was refused; nothing was appended.

    Attributes:
        code: `not_started`, `running`, `done`, `nothing_open`, `empty`, `both`, `unknown_key`, `unknown_call`, `which_call`, `not_taken_here` or `bad_value`.
        detail: what was wrong, and what would be taken.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class PathEscape(CheckreinError):
    """A path leads outside the folder it must stay in; nothing was opened.

    Attributes:
        path: the path as given.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path!r} is refused: {reason}; give a relative path below the run's folder")
        self.path = path
        self.reason = reason


class VerifierFailed(CheckreinError):
    """A verifier could not run, so nothing is known about the artifact; the run blocks and nothing counts as failed."""


class AgentError(CheckreinError):
    """An agent refused what was asked; nothing changed.

    Attributes:
        code: why, for programs.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class AgentStateError(AgentError):
    """An agent cannot do that in the state it is in."""


class AgentBusyError(AgentStateError):
    """A run owns the transcript; wait for it, cancel it, or queue a message with `steer` or `follow_up`."""

    def __init__(self) -> None:
        super().__init__("AGENT_BUSY", "Agent is already running")


class AgentMessageLimitError(AgentError):
    """A message would not fit into the queues or the transcript."""

    def __init__(self, message: str) -> None:
        super().__init__("AGENT_MESSAGE_LIMIT", message)


class ModelError(CheckreinError):
    """A model request brought no usable response, and nothing of it had an effect.

    Attributes:
        code: one of the run's error codes, such as `MODEL_STREAM_FAILED`.
        is_transient: making the request again may help.
        retry_after: seconds for which the provider asked not to be asked again; None when it did not say.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "MODEL_STREAM_FAILED",
        is_transient: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.is_transient = is_transient
        self.retry_after = retry_after


class TransientModelError(ModelError):
    """A model failure that may pass; raise it from a model to have the request made again where retries are allowed."""

    def __init__(self, message: str, *, code: str = "MODEL_STREAM_FAILED", retry_after: float | None = None) -> None:
        super().__init__(message, code=code, is_transient=True, retry_after=retry_after)
