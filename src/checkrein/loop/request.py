"""One model response: collected from its stream and checked against itself.

The invariant: a response leaves this module only when its stream ended with it, its chunks, message and request agree, and it is within the limits. Whatever else
happens is a `ModelError` with a code, and nothing of that response has had an effect.
"""

from collections.abc import Callable, Sequence

import msgspec

from checkrein.errors import ModelError
from checkrein.loop.options import ModelLimits
from checkrein.messages import (
    AssistantMessage,
    ContentBlock,
    Text,
    Thinking,
    ToolCall,
    Usage,
    clean_block,
    clean_call,
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
        if isinstance(item, ModelResponse):
            if self._held_text or self._held_thinking:
                self._release_held()
            if type(item.usage) is not Usage:
                raise _protocol(f"the response's usage is a {type(item.usage).__name__}")
            self.response = item
            return
        if not isinstance(item, (TextDelta, ToolCallDelta, ThinkingDelta)):
            raise _protocol(f"the stream gave a {type(item).__name__}")
        if item.request_id != self._request_id:
            raise _protocol(f"a chunk is for request {item.request_id!r}, not {self._request_id!r}")
        self._chunks += 1
        if self._chunks > self._limits.chunks:
            raise ModelError(f"more than {self._limits.chunks} chunks", code="MODEL_LIMIT")
        try:
            chunk = self._cleaned(item)
        except TypeError as error:
            raise _protocol(f"a chunk is invalid: {error}") from error
        self._publish(self._request_id, chunk)

    def _cleaned(self, item: TextDelta | ToolCallDelta | ThinkingDelta) -> Chunk:
        """Keep what a chunk holds, and return it with Unicode text; the same one when nothing was to be done.

        Raises:
            TypeError: it does not hold what it should.
        """
        if isinstance(item, ToolCallDelta):
            call = clean_call(item.call)
            self._calls.append(call)
            return item if call is item.call else ToolCallDelta(item.request_id, call)
        delta = item.delta
        self._characters += len(delta)
        if self._characters > self._limits.text_characters:
            raise ModelError(f"more than {self._limits.text_characters} characters of text", code="MODEL_LIMIT")
        if isinstance(item, TextDelta):
            if self._held_text or type(delta) is not str or not delta.isascii():
                delta, self._held_text = _whole(delta, self._held_text)
            self._text.append(delta)
        else:
            delta, self._held_thinking = _whole(delta, self._held_thinking)
            self._thinking.append(delta)
        return item if delta is item.delta else type(item)(item.request_id, delta)

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
        try:
            answer = _read(response.message, self._limits, self._calls)
        except TypeError as error:
            raise _protocol(f"the response's message is invalid: {error}") from error
        if response.stop_reason == "length":
            text = "the response was cut off by the model's output limit; none of it is used"
            raise ModelError(text, code="MODEL_OUTPUT_LIMIT")
        self._check_agreement(answer)
        _check_reason(response.stop_reason, answer)
        return answer

    def _check_agreement(self, answer: Answer) -> None:
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


def _whole(delta: str, held: str) -> tuple[str, str]:
    """Return a piece as Unicode, and the first half of a surrogate pair at its end, which waits for its second half in the next piece."""
    text = held + delta
    if text and "\ud800" <= text[-1] <= "\udbff":
        return clean_text(text[:-1]), text[-1]
    return clean_text(text), ""


def _read(given: object, limits: ModelLimits, streamed: Sequence[ToolCall]) -> Answer:
    """Return a response's message, cleaned, with its text and calls; calls that were streamed are clean already.

    Raises:
        TypeError: it is no well-shaped response.
        ModelError: it is beyond the limits, or a call has no name or no valid arguments.
    """
    if type(given) is not AssistantMessage or type(given.content) is not tuple:
        msg = f"it is a {type(given).__name__}, or holds no tuple of blocks"
        raise TypeError(msg)
    if len(given.content) > limits.content_blocks:
        raise ModelError(f"{len(given.content)} content blocks, more than {limits.content_blocks}", code="MODEL_LIMIT")
    blocks: list[ContentBlock] = []
    texts: list[str] = []
    calls: list[ToolCall] = []
    characters = 0
    for item in given.content:
        is_clean = len(calls) < len(streamed) and item is streamed[len(calls)]
        block = streamed[len(calls)] if is_clean else clean_block(item)
        blocks.append(block)
        if isinstance(block, ToolCall):
            _check_call(block, limits)
            calls.append(block)
            continue
        characters += len(block.text)
        if isinstance(block, Text):
            texts.append(block.text)
    if characters > limits.text_characters:
        raise ModelError(f"{characters} characters of text, more than {limits.text_characters}", code="MODEL_LIMIT")
    return Answer(AssistantMessage(clean_text(given.id), tuple(blocks)), "".join(texts), tuple(calls))


def _check_call(call: ToolCall, limits: ModelLimits) -> None:
    if not call.name:
        raise _protocol(f"call {call.id!r} names no tool")
    encoded = call.arguments.encoded
    if encoded[:1] != b"{" or (call.malformed and encoded != b"{}"):
        raise _protocol(f"the arguments of call {call.id!r} are no JSON object")
    if call.malformed:
        encoded = call.malformed.encode()
    if len(encoded) > limits.argument_bytes:
        raise ModelError(f"{len(encoded)} bytes of arguments, more than {limits.argument_bytes}", code="MODEL_LIMIT")
    # Only a text with that many brackets can be that deep.
    brackets = encoded.count(b"{") + encoded.count(b"[")
    if brackets > limits.argument_depth < _depth(call.arguments.decoded()):
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
