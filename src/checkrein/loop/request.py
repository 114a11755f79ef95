"""One model response: collected from its stream and checked against itself.

The invariant: a response leaves this module only when its stream ended with it, its chunks, message and request agree, and it is within the limits. Whatever else
happens is a `ModelError` with a code, and nothing of that response has had an effect.
"""

from collections.abc import Callable
from typing import cast

import msgspec

from checkrein.errors import ModelError
from checkrein.loop.options import ModelLimits
from checkrein.messages import (
    AssistantMessage,
    Text,
    Thinking,
    ToolCall,
    Usage,
    clean_block,
    clean_message,
)
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse, TextDelta, ThinkingDelta, ToolCallDelta
from checkrein.values import JsonValue, clean_text

__all__ = ["Answer", "ResponseCollector"]

_STOP_REASONS = frozenset({"stop", "tool_call", "length", "refusal"})


class Answer(msgspec.Struct, frozen=True):
    """A response that may be used.

    Attributes:
        message: what enters the transcript.
        text: its text.
        calls: its tool calls, in order.
    """

    message: AssistantMessage
    text: str
    calls: tuple[ToolCall, ...]


class ResponseCollector:
    """Takes the items of one stream, in order.

    Args:
        request: what was asked.
        limits: what the response may hold.
        publish: told each chunk that agrees so far, cleaned.

    Attributes:
        response: the response, once it came.
    """

    __slots__ = (
        "_calls",
        "_characters",
        "_chunks",
        "_held_text",
        "_held_thinking",
        "_limits",
        "_publish",
        "_request_id",
        "_text",
        "_thinking",
        "response",
    )

    def __init__(self, request: ModelRequest, limits: ModelLimits, publish: Callable[[str, Chunk], None]) -> None:
        self._request_id = request.id
        self._limits = limits
        self._publish = publish
        self._chunks = 0
        self._characters = 0
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[ToolCall] = []
        self._held_text = ""
        self._held_thinking = ""
        self.response: ModelResponse | None = None

    def take(self, item: object) -> None:
        """Take the next item.

        Raises:
            ModelError: `MODEL_PROTOCOL_ERROR` for a stranger, an item of another request or one after the response; `MODEL_LIMIT`.
        """
        if self.response is not None:
            raise _protocol("the stream went on after its response")
        if isinstance(item, TextDelta):
            self._count(item.request_id)
            delta, self._held_text = self._whole(item.delta, self._held_text)
            self._text.append(delta)
            self._publish(self._request_id, item if delta is item.delta else TextDelta(item.request_id, delta))
        elif isinstance(item, ModelResponse):
            self._release_held()
            if type(item.usage) is not Usage:
                raise _protocol(f"the response's usage is a {type(item.usage).__name__}")
            self.response = item
        elif isinstance(item, ToolCallDelta):
            self._count(item.request_id)
            call = _call_of(item)
            self._calls.append(call)
            self._publish(self._request_id, item if call is item.call else ToolCallDelta(item.request_id, call))
        elif isinstance(item, ThinkingDelta):
            self._count(item.request_id)
            delta, self._held_thinking = self._whole(item.delta, self._held_thinking)
            self._thinking.append(delta)
            self._publish(self._request_id, item if delta is item.delta else ThinkingDelta(item.request_id, delta))
        else:
            raise _protocol(f"the stream gave a {type(item).__name__}")

    def _count(self, request_id: str) -> None:
        if request_id != self._request_id:
            raise _protocol(f"a chunk is for request {request_id!r}, not {self._request_id!r}")
        self._chunks += 1
        if self._chunks > self._limits.chunks:
            raise ModelError(f"more than {self._limits.chunks} chunks", code="MODEL_LIMIT")

    def _whole(self, delta: str, held: str) -> tuple[str, str]:
        """Return a delta as Unicode, and the first half of a surrogate pair at its end, which waits for its second half in the next chunk."""
        try:
            text = held + delta
        except TypeError as error:
            raise _protocol(f"a chunk's delta is a {type(delta).__name__}") from error
        self._characters += len(delta)
        if self._characters > self._limits.text_characters:
            raise ModelError(f"more than {self._limits.text_characters} characters of text", code="MODEL_LIMIT")
        rest = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
        return clean_text(text[:-1] if rest else text), rest

    def _release_held(self) -> None:
        """Publish halves of pairs whose other half never came, as what replaces them."""
        if self._held_text:
            self._text.append(clean_text(self._held_text))
            self._publish(self._request_id, TextDelta(self._request_id, self._text[-1]))
        if self._held_thinking:
            self._thinking.append(clean_text(self._held_thinking))
            self._publish(self._request_id, ThinkingDelta(self._request_id, self._thinking[-1]))

    def finished(self) -> Answer:
        """Return the answer once the stream ended, with its text cleaned.

        Raises:
            ModelError: `MODEL_STREAM_FAILED` without a response; `MODEL_PROTOCOL_ERROR` when it does not agree with the request, its
                chunks or itself; `MODEL_LIMIT`; `MODEL_OUTPUT_LIMIT` for one cut off by length; `MODEL_EMPTY` for one that says nothing.
        """
        response = self.response
        if response is None:
            raise ModelError("the stream ended without its response", is_transient=True)
        if response.request_id != self._request_id:
            raise _protocol(f"the response is for request {response.request_id!r}, not {self._request_id!r}")
        answer = _read(_message_of(response), self._limits)
        if response.stop_reason == "length":
            text = "the response was cut off by the model's output limit; none of it is used"
            raise ModelError(text, code="MODEL_OUTPUT_LIMIT")
        self._check_chunks(answer)
        _check_reason(response.stop_reason, answer)
        return answer

    def _check_chunks(self, answer: Answer) -> None:
        """Compare what was streamed, if any of its kind was, with what the message holds."""
        if self._text and "".join(self._text) != answer.text:
            raise _protocol("the text of the chunks is not the text of the message")
        if self._thinking and "".join(self._thinking) != "".join(
            block.text for block in answer.message.content if isinstance(block, Thinking)
        ):
            raise _protocol("the reasoning of the chunks is not the reasoning of the message")
        if self._calls and tuple(self._calls) != answer.calls:
            raise _protocol("the calls of the chunks are not the calls of the message")


def _protocol(message: str) -> ModelError:
    return ModelError(message, code="MODEL_PROTOCOL_ERROR")


def _call_of(item: ToolCallDelta) -> ToolCall:
    try:
        call = clean_block(item.call)
    except TypeError as error:
        raise _protocol(f"a chunk's call is invalid: {error}") from error
    if type(call) is not ToolCall:
        raise _protocol(f"a chunk's call is a {type(call).__name__}")
    return call


def _message_of(response: ModelResponse) -> AssistantMessage:
    try:
        message = clean_message(response.message)
    except TypeError as error:
        raise _protocol(f"the response's message is invalid: {error}") from error
    if type(message) is not AssistantMessage:
        raise _protocol(f"the response's message is a {type(message).__name__}")
    return message


def _read(message: AssistantMessage, limits: ModelLimits) -> Answer:
    """Return a well-formed message with its text and calls.

    Raises:
        ModelError: it is beyond the limits, or a call has no name or no valid arguments.
    """
    if len(message.content) > limits.content_blocks:
        raise ModelError(
            f"{len(message.content)} content blocks, more than {limits.content_blocks}", code="MODEL_LIMIT"
        )
    texts: list[str] = []
    calls: list[ToolCall] = []
    characters = 0
    for block in message.content:
        if type(block) is ToolCall:
            _check_call(block, limits)
            calls.append(block)
        elif type(block) is Text:
            texts.append(block.text)
            characters += len(block.text)
        else:
            characters += len(cast("Thinking", block).text)
    if characters > limits.text_characters:
        raise ModelError(f"{characters} characters of text, more than {limits.text_characters}", code="MODEL_LIMIT")
    return Answer(message, "".join(texts), tuple(calls))


def _check_call(call: ToolCall, limits: ModelLimits) -> None:
    if not call.name:
        raise _protocol(f"call {call.id!r} names no tool")
    encoded = call.malformed.encode() if call.malformed else call.arguments.encoded
    if len(encoded) > limits.argument_bytes:
        raise ModelError(f"{len(encoded)} bytes of arguments, more than {limits.argument_bytes}", code="MODEL_LIMIT")
    try:
        arguments = cast("JsonValue", call.arguments.decoded())
    except msgspec.DecodeError as error:
        raise _protocol(f"the arguments of call {call.id!r} are no JSON") from error
    if not isinstance(arguments, dict) or (call.malformed and arguments):
        raise _protocol(f"the arguments of call {call.id!r} are no JSON object")
    # Only a text with that many brackets can be that deep.
    if encoded.count(b"{") + encoded.count(b"[") > limits.argument_depth < _depth(arguments):
        raise ModelError(f"arguments nested deeper than {limits.argument_depth}", code="MODEL_LIMIT")


def _depth(value: JsonValue) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max((_depth(item) for item in inner), default=0)


def _check_reason(reason: object, answer: Answer) -> None:
    if reason not in _STOP_REASONS:
        raise _protocol(f"{reason!r} is no stop reason")
    if reason == "tool_call" and not answer.calls:
        raise _protocol("it stopped for a tool call and holds none")
    if reason != "tool_call" and answer.calls:
        raise _protocol(
            "it stopped, and holds a tool call" if reason == "stop" else "it refused, and holds a tool call"
        )
    if not answer.calls and not answer.text.strip():
        raise ModelError("the model said nothing", code="MODEL_EMPTY", is_transient=True)
