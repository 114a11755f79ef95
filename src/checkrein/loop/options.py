"""What may be set on the agent loop: limits, retries, and the hooks by which a caller steps in."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from checkrein.clock import SystemClock, SystemIds, jitter
from checkrein.messages import Message, ToolCall, ToolResult
from checkrein.ports.clock import Clock, IdSource
from checkrein.ports.model import Model
from checkrein.ports.tool import Tool
from checkrein.values import JsonObject

__all__ = [
    "AfterToolHook",
    "AgentHooks",
    "Allow",
    "BeforeToolHook",
    "Deny",
    "LoopOptions",
    "ModelLimits",
    "PrepareHook",
    "Retry",
    "ShouldStopHook",
    "ToolDecision",
    "TransformHook",
    "TurnSettings",
    "check_choice",
    "check_whole",
]


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

    Made again is what may pass: a stream that raised, stalled or ended without its response, an empty response, a `TransientModelError`. A model that raises another
    `ModelError` has said itself that asking again is of no use.

    Attributes:
        attempts: requests in all, the first included; 1 never retries.
        first_seconds: the wait before the second.
        factor: by how much each further wait is longer.
        max_seconds: the longest wait of our own choice.
        max_asked_seconds: the longest wait that a provider may ask for; one that asks for more is not asked again.
    """

    attempts: int = 1
    first_seconds: float = 1.0
    factor: float = 2.0
    max_seconds: float = 60.0
    max_asked_seconds: float = 300.0

    def allows(self, attempt: int, *, asked: float | None = None) -> bool:
        """Tell whether another request may follow that attempt, from 1, when the provider asked to be left alone for `asked` seconds."""
        return attempt < self.attempts and (asked is None or asked <= self.max_asked_seconds)

    def delay(self, attempt: int, *, asked: float | None = None) -> float:
        """Return the seconds to wait after that attempt, from 1; never less than what was asked for."""
        try:
            waited = min(self.max_seconds, jitter(self.first_seconds * self.factor ** (attempt - 1)))
        except OverflowError:
            waited = self.max_seconds
        return max(waited, asked or 0.0)


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
BeforeToolHook: TypeAlias = Callable[[ToolCall], Awaitable[ToolDecision] | ToolDecision]
AfterToolHook: TypeAlias = Callable[[ToolCall, ToolResult], Awaitable[ToolResult | None] | ToolResult | None]
TransformHook: TypeAlias = Callable[[Sequence[Message]], Sequence[Message] | Awaitable[Sequence[Message]]]
PrepareHook: TypeAlias = Callable[[int], Awaitable[TurnSettings | None] | TurnSettings | None]
ShouldStopHook: TypeAlias = Callable[[Sequence[Message]], bool | Awaitable[bool]]


class AgentHooks(msgspec.Struct, frozen=True, kw_only=True):
    """Where a caller steps in; each is a plain or async function, and its answer is a value.

    A tool hook that raises makes an error result of its call; any other that raises fails the run with `AGENT_STATE_FAILED` and its name. A turn is in progress until its
    hooks have answered, `should_stop` included: a run that is cancelled or fails there has not adopted it.

    Attributes:
        before_tool_call: told the call; `Allow`, `Deny`, or None for allow.
        after_tool_call: told the call and its result; another result (same call) replaces it.
        transform_context: told the transcript; returns what the model is sent, which is checked: an invalid transcript fails the run with `INVALID_TRANSCRIPT`
            and reaches no model. The transcript itself stays.
        prepare_turn: told the number of the coming step, from 1.
        should_stop: told the transcript with a turn at its end; True ends the run there, whatever is queued.
    """

    before_tool_call: BeforeToolHook | None = None
    after_tool_call: AfterToolHook | None = None
    transform_context: TransformHook | None = None
    prepare_turn: PrepareHook | None = None
    should_stop: ShouldStopHook | None = None


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
        """Refuse values that make no sense.

        Raises:
            ValueError: naming the option.
        """
        check_choice("tool_execution", self.tool_execution, ("sequential", "parallel"))
        check_whole("request_sequence_start", self.request_sequence_start)
        check_whole("retry.attempts", self.retry.attempts)
        check_whole("max_buffered_deltas", self.max_buffered_deltas, least=0)
        if self.repeat_limit is not None:
            check_whole("repeat_limit", self.repeat_limit)
        for name in self.limits.__struct_fields__:
            check_whole(f"limits.{name}", getattr(self.limits, name))
        _check_seconds("grace_seconds", self.grace_seconds)
        _check_seconds("retry.first_seconds", self.retry.first_seconds)
        _check_seconds("retry.max_seconds", self.retry.max_seconds)
        _check_seconds("retry.max_asked_seconds", self.retry.max_asked_seconds)
        _check_seconds("retry.factor", self.retry.factor)
        if self.idle_timeout_seconds is not None:
            _check_seconds("idle_timeout_seconds", self.idle_timeout_seconds)
            if not self.idle_timeout_seconds:
                msg = "idle_timeout_seconds is more than 0, or None for no limit"
                raise ValueError(msg)


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse what is none of the choices.

    Raises:
        ValueError: it is none; the message names the option.
    """
    if value not in choices:
        msg = f"{name} is {' or '.join(choices)}, not {value!r}"
        raise ValueError(msg)


def check_whole(name: str, value: object, *, least: int = 1) -> None:
    """Refuse what is no whole number from `least` on.

    Raises:
        ValueError: it is none; the message names the option.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        msg = f"{name} is a whole number from {least}, not {value!r}"
        raise ValueError(msg)


def _check_seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (math.isfinite(value) and value >= 0):
        msg = f"{name} is a number, 0 or more, not {value!r}"
        raise ValueError(msg)
