"""What may be set on the agent loop: limits, retries, and the hooks by which a caller steps in."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from checkrein.clock import SystemClock, SystemIds
from checkrein.messages import Message, ToolCall, ToolResult
from checkrein.ports.clock import Clock, IdSource
from checkrein.ports.model import Model
from checkrein.ports.tool import Tool
from checkrein.values import JsonObject

__all__ = ["AgentHooks", "Allow", "Deny", "LoopOptions", "ModelLimits", "Retry", "ToolDecision", "TurnSettings"]


class ModelLimits(msgspec.Struct, frozen=True):
    """What one response may hold; more is `MODEL_LIMIT`, before any effect.

    Attributes:
        content_blocks: blocks of the message.
        chunks: chunks of the stream.
        text_characters: code points of text and reasoning together.
        argument_depth: containers inside containers in a call's arguments.
        argument_bytes: canonical JSON of a call's arguments.
    """

    content_blocks: int = 1024
    chunks: int = 65_536
    text_characters: int = 1_048_576
    argument_depth: int = 32
    argument_bytes: int = 64 * 1024


class Retry(msgspec.Struct, frozen=True):
    """How often a failed model request is made again, off the step count.

    Attributes:
        attempts: requests in all, the first included; 1 never retries.
        first_seconds: the wait before the second.
        factor: by how much each further wait is longer.
        max_seconds: the longest wait.
    """

    attempts: int = 1
    first_seconds: float = 1.0
    factor: float = 2.0
    max_seconds: float = 60.0


class Allow(msgspec.Struct, frozen=True):
    """A call may be made; with `arguments` set, with these instead, which are validated again."""

    arguments: Mapping[str, object] | None = None


class Deny(msgspec.Struct, frozen=True):
    """A call is not made; its result is an error with the reason."""

    reason: str


class TurnSettings(msgspec.Struct, frozen=True):
    """What one turn uses instead of the run's own; None leaves a thing as it is."""

    model: Model | None = None
    tools: Sequence[Tool] | None = None
    settings: Mapping[str, object] | None = None


ToolDecision: TypeAlias = Allow | Deny | None
_BeforeTool: TypeAlias = Callable[[ToolCall], Awaitable[ToolDecision] | ToolDecision]
_AfterTool: TypeAlias = Callable[[ToolCall, ToolResult], Awaitable[ToolResult | None] | ToolResult | None]
_Transform: TypeAlias = Callable[[Sequence[Message]], Sequence[Message] | Awaitable[Sequence[Message]]]
_Prepare: TypeAlias = Callable[[int], Awaitable[TurnSettings | None] | TurnSettings | None]
_ShouldStop: TypeAlias = Callable[[Sequence[Message]], bool | Awaitable[bool]]


class AgentHooks(msgspec.Struct, frozen=True, kw_only=True):
    """Where a caller steps in; each is a plain or async function, and its answer is a value.

    A tool hook that raises makes an error result of its call; any other that raises fails the run with `AGENT_STATE_FAILED` and its name.

    Attributes:
        before_tool_call: told the call; `Allow`, `Deny`, or None for allow.
        after_tool_call: told the call and its result; another result (same call) replaces it.
        transform_context: told the transcript; returns what the model is sent. The transcript itself stays.
        prepare_turn: told the number of the coming step, from 1.
        should_stop: told the transcript after a turn; True ends the run there.
    """

    before_tool_call: _BeforeTool | None = None
    after_tool_call: _AfterTool | None = None
    transform_context: _Transform | None = None
    prepare_turn: _Prepare | None = None
    should_stop: _ShouldStop | None = None


class LoopOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a run.

    Attributes:
        request_sequence_start: number of the first request, so that several loops of one run count on.
        tool_execution: whether the calls of a turn run one after the other or overlap.
        limits: what a response may hold.
        hooks: where the caller steps in.
        retry: when a model request is made again.
        idle_timeout_seconds: how long a model's stream may say nothing; None for ever.
        grace_seconds: how long a cancelled model or tool may take to end before it is left behind.
        repeat_limit: the same call with the same result so many times in a row is warned of, and at twice that the run stops; None never.
        max_buffered_deltas: updates kept in the run's log.
        settings: the provider's settings for each request.
        clock: time and tasks.
        ids: makes run ids.
    """

    request_sequence_start: int = 1
    tool_execution: Literal["sequential", "parallel"] = "sequential"
    limits: ModelLimits = ModelLimits()
    hooks: AgentHooks = AgentHooks()
    retry: Retry = Retry()
    idle_timeout_seconds: float | None = None
    grace_seconds: float = 5.0
    repeat_limit: int | None = None
    max_buffered_deltas: int = 65_536
    settings: JsonObject = JsonObject()
    clock: Clock = SystemClock()
    ids: IdSource = SystemIds()

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense.

        Raises:
            ValueError: naming the option.
        """
        if self.tool_execution not in {"sequential", "parallel"}:
            msg = f"tool_execution is sequential or parallel, not {self.tool_execution!r}"
            raise ValueError(msg)
        whole = {
            "request_sequence_start": self.request_sequence_start,
            "retry.attempts": self.retry.attempts,
            "repeat_limit": self.repeat_limit if self.repeat_limit is not None else 1,
            **{f"limits.{name}": getattr(self.limits, name) for name in self.limits.__struct_fields__},
        }
        for name, value in whole.items():
            if isinstance(value, bool) or value < 1:
                msg = f"{name} is a whole number from 1, not {value!r}"
                raise ValueError(msg)
        for name, seconds in (
            ("grace_seconds", self.grace_seconds),
            ("idle_timeout_seconds", self.idle_timeout_seconds or 1.0),
        ):
            if not (math.isfinite(seconds) and seconds >= 0):
                msg = f"{name} is a number of seconds, 0 or more, not {seconds!r}"
                raise ValueError(msg)
