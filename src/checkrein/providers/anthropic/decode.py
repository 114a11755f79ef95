"""The stream of a Messages call, decoded.

Pure. The wire's end marker is `message_stop`, and it counts only after a stop reason and the end of every block: `content_block_stop` alone ends a block, however complete its
arguments look. Blocks begin in the order of their indices, without a gap. A `ping` is no progress. Reasoning keeps its signature, and reasoning that the provider hides keeps
its data, so that both go back unchanged.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from checkrein.errors import ModelError
from checkrein.ports.model import Chunk
from checkrein.providers.anthropic.encode import REDACTED, SIGNED
from checkrein.providers.failures import broken
from checkrein.providers.pricing import Tokens
from checkrein.providers.signature import sealed
from checkrein.providers.stops import stop_reason
from checkrein.providers.stream import Decoder, WireEvent, read_error_event, read_event
from checkrein.values import shorten

__all__ = ["MessagesDecoder"]

_DONE: Final = "[DONE]"
_EXPLANATION: Final = "explanation"
_REFUSED: Final = "The provider refused to answer."


class _OutputDetails(msgspec.Struct):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct):
    """Counts so far; the last one said of each kind holds. `input_tokens` leaves out what the cache read or wrote."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: _OutputDetails | None = None


class _Message(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None


class _Block(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, object] | None = None


class _StopDetails(msgspec.Struct):
    explanation: str | None = None


class _Delta(msgspec.Struct):
    """What changed: a block when `type` is set, else the message."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None


class _Event(msgspec.Struct):
    type: str = ""
    index: int | None = None
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None


class MessagesDecoder(Decoder):
    """Decodes one Messages stream."""

    def __init__(self, request_id: str) -> None:
        super().__init__(request_id)
        self._has_begun = False
        self._word = ""
        self._begun = 0
        self._open: dict[int, str] = {}
        self._signatures: dict[int, str] = {}
        self._given: dict[int, str] = {}
        self._usage = _Usage()
        self._has_text = False
        self._is_done = False
        self._takers: Mapping[str, Callable[[_Event], Sequence[Chunk]]] = {
            "message_start": self._start,
            "content_block_start": self._begin,
            "content_block_delta": self._delta,
            "content_block_stop": self._end_block,
            "message_delta": self._message_delta,
            "message_stop": self._stop,
        }

    def take(self, event: WireEvent) -> Sequence[Chunk]:
        """Return the chunks of the next event. One `[DONE]` after the end is what some servers add, and says nothing.

        Raises:
            ModelError: the stream is broken.
            InBandError: the provider reports a failure.
        """
        if self.is_closed and not self._is_done and event.data.strip() == _DONE:
            self._is_done = True
            return ()
        return super().take(event)

    def _take(self, event: WireEvent) -> Sequence[Chunk]:
        """Decode one event. Kinds that nobody knows yet, and keep-alives, say nothing."""
        if event.event == "error":
            raise read_error_event(event.data)
        item = read_event(event.data, _Event)
        kind = item.type or event.event
        if kind == "error":
            raise read_error_event(event.data)
        taker = self._takers.get(kind)
        if taker is None:
            return ()
        if not self._has_begun and kind != "message_start":
            raise broken(f"{kind} came before the message began")
        return taker(item)

    def _start(self, item: _Event) -> Sequence[Chunk]:
        if self._has_begun:
            raise broken("a second message began")
        message = item.message
        if message is None:
            raise broken("a message began without itself")
        self._has_begun = True
        self.response_id, self.model = message.id or "", message.model or ""
        self._count(message.usage)
        self.progress += 1
        return ()

    def _begin(self, item: _Event) -> Sequence[Chunk]:
        """Begin a block.

        Raises:
            ModelError: a block before it never began, the message is over, or the block is of a kind that we cannot send back.
        """
        index, block = item.index, item.content_block
        if block is None or index is None or index != self._begun:
            raise broken(f"block {index} began, and block {self._begun} was to come")
        self._refuse_after_end()
        self._begun += 1
        self._open[index] = block.type
        self.progress += 1
        if block.type == "tool_use":
            self.blocks.begin_call(index, block.id or "", block.name or "")
            if block.input:
                self._given[index] = json.dumps(block.input)
            return ()
        if block.type == "text":
            return self._text(index, block.text or "")
        if block.type == "thinking":
            self._sign(index, block.signature or "")
            return self.blocks.thinking(index, block.thinking or "")
        if block.type == "redacted_thinking":
            return self.blocks.thinking(index, "", signature=sealed("messages", f"{REDACTED}:{block.data or ''}"))
        text = f"the answer holds a block of the kind {shorten(block.type, 80)!r}, which cannot be kept"
        raise ModelError(text, code="MODEL_PROTOCOL_ERROR")

    def _delta(self, item: _Event) -> Sequence[Chunk]:
        """Add to a block.

        Raises:
            ModelError: the block is not open, or is of another kind.
        """
        index, delta = item.index, item.delta
        if index is None or delta is None or index not in self._open:
            raise broken(f"a piece came for block {index}, which is not open")
        kind = _KIND_OF_DELTA.get(delta.type)
        if kind is None:
            raise broken(f"a piece of the unknown kind {shorten(delta.type, 80)!r} came")
        if kind != self._open[index]:
            raise broken(f"a piece of {kind} came for block {index}, which is {shorten(self._open[index], 80)!r}")
        chunks = self._add(index, delta)
        self.progress += bool(chunks or delta.partial_json or delta.signature)
        return chunks

    def _add(self, index: int, delta: _Delta) -> Sequence[Chunk]:
        if delta.type == "text_delta":
            return self._text(index, delta.text or "")
        if delta.type == "thinking_delta":
            return self.blocks.thinking(index, delta.thinking or "")
        if delta.type == "signature_delta":
            self._sign(index, delta.signature or "")
        elif delta.partial_json:
            if index in self._given:
                raise broken(f"arguments came for block {index}, which began with all of them")
            self.blocks.extend_call(index, delta.partial_json)
        return ()

    def _end_block(self, item: _Event) -> Sequence[Chunk]:
        kind = None if item.index is None else self._open.pop(item.index, None)
        if kind is None or item.index is None:
            raise broken(f"block {item.index} ended, which is not open")
        self.progress += 1
        if item.index in self._given:
            self.blocks.extend_call(item.index, self._given[item.index])
        return ()

    def _text(self, index: int, piece: str) -> Sequence[Chunk]:
        self._has_text = self._has_text or bool(piece.strip())
        return self.blocks.text(index, piece)

    def _sign(self, index: int, piece: str) -> None:
        """Add to the signature of a block of reasoning."""
        if piece:
            signature = self._signatures[index] = self._signatures.get(index, "") + piece
            self.blocks.thinking(index, "", signature=sealed("messages", f"{SIGNED}:{signature}"))

    def _message_delta(self, item: _Event) -> Sequence[Chunk]:
        """Take the stop reason and the final counts."""
        self._count(item.usage)
        word = "" if item.delta is None else item.delta.stop_reason or ""
        if not word or item.delta is None or word == self._word:
            return ()
        if self._word:
            raise broken(f"two stop reasons came: {self._word!r:.40} and {word!r:.40}")
        if self._open:
            raise broken(f"the message stopped, and block {min(self._open)} never ended")
        self._word = word
        self.stop = stop_reason("messages", word, has_calls=self.blocks.has_calls)
        self.progress += 1
        if self.stop == "refusal" and not self._has_text:
            # A refusal is an answer, and an answer says something.
            details = item.delta.stop_details
            return self.blocks.text(_EXPLANATION, (details and details.explanation) or _REFUSED)
        return ()

    def _stop(self, _item: _Event) -> Sequence[Chunk]:
        if not self._word:
            raise broken("the message ended without a stop reason")
        self.is_complete = self.is_closed = True
        self.progress += 1
        return ()

    def _refuse_after_end(self) -> None:
        if self._word:
            raise broken("the answer went on after its stop reason")

    def _count(self, usage: _Usage | None) -> None:
        """Take counts, each in place of the one said before."""
        if usage is None:
            return
        for name in usage.__struct_fields__:
            value = getattr(usage, name)
            if value is not None:
                setattr(self._usage, name, value)
        self.tokens = _tokens(self._usage)


_KIND_OF_DELTA: Final[Mapping[str, str]] = {
    "citations_delta": "text",
    "input_json_delta": "tool_use",
    "signature_delta": "thinking",
    "text_delta": "text",
    "thinking_delta": "thinking",
}
"""The kind of block that a piece belongs to."""


def _tokens(usage: _Usage) -> Tokens:
    written, cached = usage.cache_creation_input_tokens or 0, usage.cache_read_input_tokens or 0
    details = usage.output_tokens_details or _OutputDetails()
    return Tokens(
        input=(usage.input_tokens or 0) + written + cached,
        output=usage.output_tokens or 0,
        cached=cached,
        cache_written=written,
        reasoning=details.thinking_tokens or 0,
    )
