"""The port of models: one method that streams chunks and ends with one response.

A model never runs a tool and never retries; it says what one request brought. Whoever calls it checks that chunks, response and request agree.
"""

from collections.abc import AsyncIterator, Sequence
from typing import ClassVar, Literal, Protocol, TypeAlias

import msgspec

from checkrein.messages import AssistantMessage, Message, ToolCall, Usage
from checkrein.ports.tool import CancelSignal
from checkrein.values import JsonObject

__all__ = [
    "Chunk",
    "Model",
    "ModelRequest",
    "ModelResponse",
    "ModelStream",
    "StopReason",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallDelta",
    "ToolSchema",
]

StopReason: TypeAlias = Literal["stop", "tool_call", "length", "refusal"]


class TextDelta(msgspec.Struct, frozen=True, gc=False, tag="text_delta"):
    """A piece of the response's text; all pieces together are its text blocks together."""

    type: ClassVar[Literal["text_delta"]] = "text_delta"
    request_id: str
    delta: str


class ThinkingDelta(msgspec.Struct, frozen=True, gc=False, tag="thinking_delta"):
    """A piece of the response's reasoning."""

    type: ClassVar[Literal["thinking_delta"]] = "thinking_delta"
    request_id: str
    delta: str


class ToolCallDelta(msgspec.Struct, frozen=True, gc=False, tag="tool_call_delta"):
    """One complete tool call of the response, in the response's order."""

    type: ClassVar[Literal["tool_call_delta"]] = "tool_call_delta"
    request_id: str
    call: ToolCall


Chunk: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta


class ModelResponse(msgspec.Struct, frozen=True, gc=False):
    """What one request brought, as a whole.

    Attributes:
        id: the response's id.
        request_id: the id of the request it answers.
        message: what the model says.
        stop_reason: why it ended.
        usage: what it consumed.
    """

    id: str
    request_id: str
    message: AssistantMessage
    stop_reason: StopReason
    usage: Usage = Usage()


class ToolSchema(msgspec.Struct, frozen=True):
    """A tool as a model sees it; `parameters` is JSON Schema 2020-12."""

    name: str
    description: str
    parameters: JsonObject


class ModelRequest(msgspec.Struct, frozen=True, gc=False):
    """What a model is asked.

    Attributes:
        id: `request-001`, … within one run; a retry keeps it.
        messages: the transcript to answer, immutable.
        tools: the tools it may call.
        settings: the provider's settings for this request.
    """

    id: str
    messages: Sequence[Message]
    tools: tuple[ToolSchema, ...] = ()
    settings: JsonObject = JsonObject()


ModelStream: TypeAlias = AsyncIterator[Chunk | ModelResponse]


class Model(Protocol):
    """Something that answers requests."""

    def stream(self, request: ModelRequest, signal: CancelSignal) -> ModelStream:
        """Return chunks, and last exactly one `ModelResponse`.

        Args:
            request: what is asked.
            signal: set when the answer is not wanted any more.

        Raises:
            TransientModelError: from the iterator: a failure that may pass (overload, a broken connection).
            ModelError: from the iterator: a failure that asking again does not mend.
            Exception: from the iterator: any other failure; it counts as a broken stream, which may pass.
        """
        ...
