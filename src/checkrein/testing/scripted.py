"""A model that plays a script: the deterministic model for tests, examples and replays.

It fails on a request it has no item for and, as a context manager, on items nobody asked for, so a test cannot pass by talking less or more than it says.
"""

import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Self, TypeAlias, cast

from checkrein.errors import ModelError
from checkrein.messages import AssistantMessage, ContentBlock, Image, Text, Thinking, ToolCall, Usage
from checkrein.ports.model import (
    Chunk,
    ModelRequest,
    ModelResponse,
    ModelStream,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from checkrein.ports.tool import CancelSignal

__all__ = ["ScriptItem", "ScriptedModel", "reply"]

Generator: TypeAlias = Callable[[ModelRequest, CancelSignal], AsyncIterator[Chunk | ModelResponse]]
ScriptItem: TypeAlias = ModelResponse | BaseException | Generator


def reply(
    *blocks: str | ContentBlock, stop_reason: StopReason | None = None, usage: Usage | None = None
) -> ModelResponse:
    """Return a response with empty ids, for a script.

    Args:
        blocks: a `str` is a `Text`; other blocks as they are.
        stop_reason: by default `tool_call` when there is a call, else `stop`.
        usage: what it is said to have consumed.
    """
    content = tuple(Text(block) if isinstance(block, str) else block for block in blocks)
    has_call = any(isinstance(block, ToolCall) for block in content)
    return ModelResponse(
        id="",
        request_id="",
        message=AssistantMessage(id="", content=content),
        stop_reason=stop_reason or ("tool_call" if has_call else "stop"),
        usage=usage or Usage(),
    )


class ScriptedModel:
    """Plays its items in order, one per request.

    An item is a `ModelResponse` (streamed as one chunk per block), an exception to raise, or an async generator function `(request, signal)` whose last yield is a
    `ModelResponse`, so that a test can hold a turn open. Response, message and request ids are stamped.

    Attributes:
        requests: every request so far.
    """

    def __init__(self, items: Iterable[ScriptItem] = ()) -> None:
        self.requests: list[ModelRequest] = []
        self._items: deque[ScriptItem] = deque(items)
        self._numbers = itertools.count(1)

    @property
    def call_count(self) -> int:
        """How many requests were made."""
        return len(self.requests)

    @property
    def remaining(self) -> int:
        """How many items nobody asked for yet."""
        return len(self._items)

    def append_response(self, item: ScriptItem) -> None:
        """Add an item at the end of the script."""
        self._items.append(item)

    def stream(self, request: ModelRequest, signal: CancelSignal) -> ModelStream:
        """Play the next item.

        Raises:
            ModelError: from the iterator: `MODEL_STREAM_FAILED`, the script has no item left.
            BaseException: from the iterator: the item is an exception.
        """
        self.requests.append(request)
        if not self._items:
            return _raising(ModelError(f"the script has no item for request {request.id}, number {self.call_count}"))
        item = self._items.popleft()
        if isinstance(item, BaseException):
            return _raising(item)
        if isinstance(item, ModelResponse):
            return _playing(self._stamped(item, request), request)
        return self._held(item, request, signal)

    def _stamped(self, response: ModelResponse, request: ModelRequest) -> ModelResponse:
        number, message = next(self._numbers), response.message
        return ModelResponse(
            response.id or f"scripted-response-{number:06}",
            response.request_id or request.id,
            message if message.id else AssistantMessage(f"scripted-message-{number:06}", message.content),
            response.stop_reason,
            response.usage,
        )

    async def _held(
        self, make: Generator, request: ModelRequest, signal: CancelSignal
    ) -> AsyncIterator[Chunk | ModelResponse]:
        held = make(request, signal)
        try:
            async for item in held:
                yield self._stamped(item, request) if isinstance(item, ModelResponse) else item
        finally:
            close = getattr(held, "aclose", None)
            if close is not None:
                await close()

    def __enter__(self) -> Self:
        """Return the model."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Fail on items that nobody asked for.

        Raises:
            AssertionError: the script was not played to its end, and nothing else went wrong.
        """
        if error is None and self._items:
            msg = f"{len(self._items)} scripted items were never asked for"
            raise AssertionError(msg)


async def _raising(error: BaseException) -> AsyncIterator[Chunk | ModelResponse]:
    for never in cast("tuple[ModelResponse, ...]", ()):
        yield never
    raise error


async def _playing(response: ModelResponse, request: ModelRequest) -> AsyncIterator[Chunk | ModelResponse]:
    for block in response.message.content:
        match block:
            case Text():
                yield TextDelta(request.id, block.text)
            case Thinking():
                yield ThinkingDelta(request.id, block.text)
            case ToolCall():
                yield ToolCallDelta(request.id, block)
            case Image():
                pass  # none belongs in a response, and whoever reads it says so
    yield response
