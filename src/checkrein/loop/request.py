"""One model response: collected from its stream and checked against itself.

The invariant: a response leaves this module only when its stream ended with it, its chunks, message and request agree, and it is within the limits. Whatever else
happens is a `ModelError` with a code, and nothing of that response has had an effect.
"""

from collections.abc import Callable
from typing import cast

import msgspec

from checkrein.errors import ModelError
from checkrein.loop.options import ModelLimits
from checkrein.messages import AssistantMessage, Text, Thinking, ToolCall, validate_transcript
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse, TextDelta, ThinkingDelta, ToolCallDelta
from checkrein.values import JsonValue, clean_text

__all__ = ["ResponseCollector"]

_STOP_REASONS = frozenset({"stop", "tool_call", "length", "refusal"})


def _protocol(message: str) -> ModelError:
    return ModelError(message, code="MODEL_PROTOCOL_ERROR")


class ResponseCollector:
    """Takes the items of one stream, in order.

    Args:
        request: what was asked.
        limits: what the response may hold.
        publish: told each chunk that agrees so far, cleaned.
    """

    __slots__ = (
        "_calls",
        "_characters",
        "_chunks",
        "_held",
        "_limits",
        "_publish",
        "_request",
        "_text",
        "_thinking",
        "response",
    )

    def __init__(self, request: ModelRequest, limits: ModelLimits, publish: Callable[[str, Chunk], None]) -> None:
        self._request = request
        self._limits = limits
        self._publish = publish
        self._chunks = 0
        self._characters = 0
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[ToolCall] = []
        self._held = ""
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
            delta = self._whole_characters(item.delta)
            self._characters_of(delta)
            self._text.append(delta)
            self._publish(self._request.id, item if delta is item.delta else TextDelta(item.request_id, delta))
        elif isinstance(item, ModelResponse):
            self.response = item
        elif isinstance(item, ThinkingDelta):
            self._count(item.request_id)
            delta = clean_text(item.delta)
            self._characters_of(delta)
            self._thinking.append(delta)
            self._publish(self._request.id, item if delta is item.delta else ThinkingDelta(item.request_id, delta))
        elif isinstance(item, ToolCallDelta):
            self._count(item.request_id)
            self._calls.append(item.call)
            self._publish(self._request.id, item)
        else:
            raise _protocol(f"the stream gave a {type(item).__name__}")

    def _count(self, request_id: str) -> None:
        if request_id != self._request.id:
            raise _protocol(f"a chunk is for request {request_id!r}, not {self._request.id!r}")
        self._chunks += 1
        if self._chunks > self._limits.chunks:
            raise ModelError(f"more than {self._limits.chunks} chunks", code="MODEL_LIMIT")

    def _characters_of(self, text: str) -> None:
        self._characters += len(text)
        if self._characters > self._limits.text_characters:
            raise ModelError(f"more than {self._limits.text_characters} characters of text", code="MODEL_LIMIT")

    def _whole_characters(self, delta: object) -> str:
        """Return a delta as Unicode; the first half of a surrogate pair waits for its second half in the next chunk."""
        if not isinstance(delta, str):
            raise _protocol(f"a text chunk holds a {type(delta).__name__}")
        if delta.isascii() and not self._held and type(delta) is str:
            return delta
        text, self._held = self._held + delta, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        return clean_text(text)

    def finished(self) -> ModelResponse:
        """Return the response once the stream ended, with its text cleaned.

        Raises:
            ModelError: `MODEL_STREAM_FAILED` without a response; `MODEL_PROTOCOL_ERROR` when it does not agree with the request, its
                chunks or itself; `MODEL_LIMIT`; `MODEL_OUTPUT_LIMIT` for one cut off by length; `MODEL_EMPTY` for one that says nothing.
        """
        response = self.response
        if response is None:
            raise ModelError("the stream ended without its response", is_transient=True)
        if response.request_id != self._request.id:
            raise _protocol(f"the response is for request {response.request_id!r}, not {self._request.id!r}")
        message = _cleaned(response.message)
        self._check_limits(message)
        if response.stop_reason == "length":
            raise ModelError(
                "the response was cut off by the model's output limit; none of it is used", code="MODEL_OUTPUT_LIMIT"
            )
        self._check_chunks(message)
        _check_reason(response, message)
        return response if message is response.message else msgspec.structs.replace(response, message=message)

    def _check_limits(self, message: AssistantMessage) -> None:
        limits = self._limits
        if len(message.content) > limits.content_blocks:
            raise ModelError(
                f"{len(message.content)} content blocks, more than {limits.content_blocks}", code="MODEL_LIMIT"
            )
        characters = 0
        for block in message.content:
            if isinstance(block, ToolCall):
                _check_arguments(block, limits)
            else:
                characters += len(block.text)
        if characters > limits.text_characters:
            raise ModelError(f"{characters} characters of text, more than {limits.text_characters}", code="MODEL_LIMIT")

    def _check_chunks(self, message: AssistantMessage) -> None:
        """Compare what was streamed, if any of its kind was, with what the message holds."""
        text = clean_text(self._held)
        if self._text or text:
            streamed = "".join(self._text) + text
            if streamed != "".join(block.text for block in message.content if isinstance(block, Text)):
                raise _protocol("the text of the chunks is not the text of the message")
        if self._thinking and "".join(self._thinking) != "".join(
            block.text for block in message.content if isinstance(block, Thinking)
        ):
            raise _protocol("the reasoning of the chunks is not the reasoning of the message")
        if self._calls and tuple(self._calls) != tuple(
            block for block in message.content if isinstance(block, ToolCall)
        ):
            raise _protocol("the calls of the chunks are not the calls of the message")


def _check_arguments(call: ToolCall, limits: ModelLimits) -> None:
    encoded = call.arguments.encoded if not call.malformed else call.malformed.encode()
    if len(encoded) > limits.argument_bytes:
        raise ModelError(f"{len(encoded)} bytes of arguments, more than {limits.argument_bytes}", code="MODEL_LIMIT")
    if (
        encoded.count(b"{") + encoded.count(b"[") > limits.argument_depth
        and _depth(call.arguments.decoded()) > limits.argument_depth
    ):
        raise ModelError(f"arguments nested deeper than {limits.argument_depth}", code="MODEL_LIMIT")


def _depth(value: JsonValue) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max((_depth(item) for item in inner), default=0)


def _cleaned(message: object) -> AssistantMessage:
    """Return the message with Unicode text; the same object when nothing was to be cleaned.

    Raises:
        ModelError: `MODEL_PROTOCOL_ERROR` when it is no assistant message, or an invalid one.
    """
    if not isinstance(message, AssistantMessage):
        raise _protocol(f"the response holds a {type(message).__name__}, no assistant message")
    wrong = [issue for issue in validate_transcript((message,)) if issue.code != "missing_result"]
    if wrong:
        raise _protocol(f"the response's message is invalid: {wrong[0].code} {wrong[0].detail}".rstrip())
    blocks = tuple(_cleaned_block(block) for block in message.content)
    same = all(new is old for new, old in zip(blocks, message.content, strict=True))
    return message if same else msgspec.structs.replace(message, content=blocks)


def _cleaned_block(block: Text | Thinking | ToolCall) -> Text | Thinking | ToolCall:
    if isinstance(block, ToolCall):
        malformed = clean_text(block.malformed)
        return block if malformed is block.malformed else msgspec.structs.replace(block, malformed=malformed)
    text = clean_text(block.text)
    return block if text is block.text else msgspec.structs.replace(block, text=text)


def _check_reason(response: ModelResponse, message: AssistantMessage) -> None:
    reason = cast("object", response.stop_reason)
    if reason not in _STOP_REASONS:
        raise _protocol(f"{reason!r} is no stop reason")
    has_call = any(isinstance(block, ToolCall) for block in message.content)
    if (reason == "tool_call") != has_call and reason in {"stop", "tool_call"}:
        raise _protocol(
            "it stopped for a tool call and holds none"
            if reason == "tool_call"
            else "it stopped, and holds a tool call"
        )
    if has_call and reason == "refusal":
        raise _protocol("it refused, and holds a tool call")
    if not has_call and not any(isinstance(block, Text) and block.text.strip() for block in message.content):
        raise ModelError("the model said nothing", code="MODEL_EMPTY", is_transient=True)
