"""What a run of the agent loop tells while it happens, and how it ends: two closed unions.

Events are numbered from 0 without gaps within their run. Updates (`model.chunk`, `tool.progress`) are part of them and are never stored. The end is a value, never an
exception.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

import msgspec

from checkrein.messages import Message, ToolCall, ToolResult, Usage, UserMessage
from checkrein.ports.model import Chunk
from checkrein.values import JsonObject

__all__ = [
    "AgentEvent",
    "Cancelled",
    "Completed",
    "ErrorCode",
    "Failed",
    "MaxSteps",
    "MessageAccepted",
    "ModelChunk",
    "ModelRetried",
    "RunError",
    "RunFinished",
    "RunResult",
    "RunWarned",
    "ToolFinished",
    "ToolProgress",
    "ToolStarted",
    "UnadoptedCall",
]

ErrorCode: TypeAlias = Literal[
    "INVALID_TRANSCRIPT",
    "MODEL_PROTOCOL_ERROR",
    "MODEL_STREAM_FAILED",
    "MODEL_EMPTY",
    "MODEL_OUTPUT_LIMIT",
    "MODEL_LIMIT",
    "MODEL_AUTH",
    "MODEL_NOT_FOUND",
    "MODEL_REQUEST",
    "MODEL_CONTEXT",
    "MODEL_QUOTA",
    "MODEL_RATE_LIMIT",
    "MODEL_OVERLOADED",
    "MODEL_UNAVAILABLE",
    "TOOL_EXECUTION_FAILED",
    "TOOL_ARGUMENTS_LOOP",
    "AGENT_STATE_FAILED",
    "AGENT_MESSAGE_LIMIT",
]


class MessageAccepted(msgspec.Struct, frozen=True, gc=False):
    """A user message entered the transcript."""

    type: ClassVar[Literal["message.accepted"]] = "message.accepted"
    sequence: int
    run_id: str
    message: UserMessage


class ModelChunk(msgspec.Struct, frozen=True, gc=False):
    """The model said something; `sequence` is -1 for a chunk that the bounded log left out."""

    type: ClassVar[Literal["model.chunk"]] = "model.chunk"
    sequence: int
    run_id: str
    request_id: str
    chunk: Chunk


class ModelRetried(msgspec.Struct, frozen=True, gc=False):
    """A request failed and is made again: all its chunks so far are void.

    Attributes:
        sequence: position in the run.
        run_id: the run.
        request_id: the request, which keeps its id.
        attempt: the number of the attempt that follows, from 2.
        delay: seconds waited before it.
        error: why the last one failed.
    """

    type: ClassVar[Literal["model.retried"]] = "model.retried"
    sequence: int
    run_id: str
    request_id: str
    attempt: int
    delay: float
    error: str


class ToolStarted(msgspec.Struct, frozen=True, gc=False):
    """A tool's body is about to run, with these validated arguments."""

    type: ClassVar[Literal["tool.started"]] = "tool.started"
    sequence: int
    run_id: str
    call_id: str
    name: str
    arguments: JsonObject


class ToolProgress(msgspec.Struct, frozen=True, gc=False):
    """A tool reported progress; `sequence` is -1 for one that the bounded log left out."""

    type: ClassVar[Literal["tool.progress"]] = "tool.progress"
    sequence: int
    run_id: str
    call_id: str
    text: str


class ToolFinished(msgspec.Struct, frozen=True, gc=False):
    """A call has its result; it enters the transcript with its turn."""

    type: ClassVar[Literal["tool.finished"]] = "tool.finished"
    sequence: int
    run_id: str
    call_id: str
    name: str
    result: ToolResult


class RunWarned(msgspec.Struct, frozen=True, gc=False):
    """Something to know that does not end the run.

    Attributes:
        sequence: position in the run.
        run_id: the run.
        code: `repeated_call` (the same call brought the same result again and again) or `deltas_dropped` (the log is full of updates).
        message: in words.
        dropped: for `deltas_dropped` how many updates this marker stands for.
    """

    type: ClassVar[Literal["run.warned"]] = "run.warned"
    sequence: int
    run_id: str
    code: Literal["repeated_call", "deltas_dropped"]
    message: str
    dropped: int = 0


class UnadoptedCall(msgspec.Struct, frozen=True):
    """A call of the dropped turn, so that the caller can reconcile what happened.

    Attributes:
        call: what the model asked for.
        state: `not_started`, `finished` or `failed` (with the result), or `outcome_unknown` (it began and gave no outcome).
        result: the result that was not adopted.
    """

    call: ToolCall
    state: Literal["not_started", "finished", "failed", "outcome_unknown"]
    result: ToolResult | None = None


class RunError(msgspec.Struct, frozen=True):
    """Why a run failed."""

    code: ErrorCode
    message: str


class _End(msgspec.Struct, frozen=True, kw_only=True):
    """What every end has.

    Attributes:
        messages: the transcript, immutable; it shares its storage with the agent's.
        run_id: the run.
        usage: what all its responses consumed.
    """

    messages: Sequence[Message]
    run_id: str
    usage: Usage

    @property
    def cost(self) -> float | None:
        """USD that the run cost; None when a price is unknown."""
        return self.usage.cost


class Completed(_End, frozen=True, kw_only=True, tag="completed", tag_field="status"):
    """The model said what it had to say; `final_text` is the text of its last response."""

    status: ClassVar[Literal["completed"]] = "completed"
    final_text: str


class Cancelled(_End, frozen=True, kw_only=True, tag="cancelled", tag_field="status"):
    """The run was cancelled; the turn in progress is not in the transcript, its calls are listed."""

    status: ClassVar[Literal["cancelled"]] = "cancelled"
    reason: str
    unadopted_calls: tuple[UnadoptedCall, ...] = ()


class MaxSteps(_End, frozen=True, kw_only=True, tag="max_steps", tag_field="status"):
    """A limit was reached, which is no failure: the transcript is valid and can be continued.

    Attributes:
        max_steps: the limit on model requests.
        limit: which limit it was.
    """

    status: ClassVar[Literal["max_steps"]] = "max_steps"
    max_steps: int
    limit: Literal["max_steps", "repeated_call", "should_stop"] = "max_steps"


class Failed(_End, frozen=True, kw_only=True, tag="failed", tag_field="status"):
    """The run failed; the turn in progress is not in the transcript, its calls are listed."""

    status: ClassVar[Literal["failed"]] = "failed"
    error: RunError
    unadopted_calls: tuple[UnadoptedCall, ...] = ()


RunResult: TypeAlias = Completed | Cancelled | MaxSteps | Failed


class RunFinished(msgspec.Struct, frozen=True, gc=False):
    """The run's one end; nothing follows it."""

    type: ClassVar[Literal["run.finished"]] = "run.finished"
    sequence: int
    run_id: str
    result: RunResult


AgentEvent: TypeAlias = (
    MessageAccepted | ModelChunk | ModelRetried | ToolStarted | ToolProgress | ToolFinished | RunWarned | RunFinished
)
