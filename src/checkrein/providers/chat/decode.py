"""The stream of an OpenAI-compatible Chat Completions call, decoded.

Pure. The wire's end marker is a `finish_reason`; after it only usage may come, then `[DONE]` or a clean end of the stream (many servers send no `[DONE]`). The invariant: the
calls of a response are whole or there are none: their indices have no gap, each has a name, and its fragments are in order.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from checkrein.ports.model import Chunk
from checkrein.providers.chat.encode import DETAILS, EXTRAS
from checkrein.providers.failures import broken
from checkrein.providers.pricing import Tokens
from checkrein.providers.signature import sealed
from checkrein.providers.stops import stop_reason
from checkrein.providers.stream import Decoder, WireEvent, read_error_event, read_event

__all__ = ["ChatDecoder"]

_DONE: Final = "[DONE]"
_TEXT: Final = "text"
_THINKING: Final = "thinking"
_Detail: TypeAlias = dict[str, object]


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, object] | None = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: dict[str, object] | None = None


class _Part(msgspec.Struct):
    """A part of a content that is a list, as some servers say text and reasoning together."""

    text: str | None = None
    thinking: "str | list[_Part] | None" = None


class _Delta(msgspec.Struct):
    content: str | list[_Part] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[_Detail] | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    index: int | None = 0
    delta: _Delta | None = None
    finish_reason: str | None = None


class _InputDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None


class _Event(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None


class ChatDecoder(Decoder):
    """Decodes one Chat stream."""

    def __init__(self, request_id: str) -> None:
        super().__init__(request_id)
        self._finish = ""
        self._is_refusal = False
        self._calls = 0
        self._details: list[_Detail] = []
        self._extras: dict[str, object] = {}

    def _take(self, event: WireEvent) -> Sequence[Chunk]:
        """Decode one event."""
        data = event.data.strip()
        if data == _DONE:
            if not self.is_complete:
                raise broken("the stream was closed without a finish reason")
            self.is_closed = True
            return ()
        if event.event == "error":
            raise read_error_event(data)
        item = read_event(data, _Event)
        self.response_id = self.response_id or item.id or ""
        self.model = self.model or item.model or ""
        if item.usage is not None:
            self.tokens = _tokens(item.usage)
            self.progress += 1
        return [chunk for choice in item.choices or () for chunk in self._choice(choice)]

    def _choice(self, choice: _Choice) -> list[Chunk]:
        if choice.index:
            raise broken(f"choice {choice.index} came, and one was asked for")
        chunks = [] if choice.delta is None else self._delta(choice.delta)
        if choice.finish_reason:
            self._end(choice.finish_reason)
        return chunks

    def _delta(self, delta: _Delta) -> list[Chunk]:
        chunks = self._reasoning(delta)
        for part in delta.content if isinstance(delta.content, list) else ():
            chunks += self.blocks.thinking(_THINKING, _text_of(part.thinking))
            chunks += self.blocks.text(_TEXT, part.text or "")
        chunks += self.blocks.text(_TEXT, delta.content if isinstance(delta.content, str) else "")
        if delta.refusal:
            self._is_refusal = True
            chunks += self.blocks.text(_TEXT, delta.refusal)
        for call in delta.tool_calls or ():
            self._call(call)
        if (chunks or delta.tool_calls) and self.is_complete:
            raise broken("the answer went on after its finish reason")
        self.progress += len(chunks)
        return chunks

    def _reasoning(self, delta: _Delta) -> list[Chunk]:
        """Take reasoning from whichever field holds it, and note which, because it must go back there."""
        field = "reasoning_content" if delta.reasoning_content else "reasoning"
        piece = delta.reasoning_content or delta.reasoning or ""
        if delta.reasoning_details:
            for detail in delta.reasoning_details:
                _merge(self._details, detail)
            self.progress += 1
            return self.blocks.thinking(_THINKING, piece, signature=sealed("chat", f"{DETAILS}:"))
        signature = "" if self._details else sealed("chat", field)
        return self.blocks.thinking(_THINKING, piece, signature=signature) if piece else []

    def _call(self, call: _Call) -> None:
        """Begin a call, or add to it. A server that sends whole calls may leave the index out, or give all the same one."""
        function = call.function or _Function()
        key = self._key(call, function)
        arguments = function.arguments
        piece = json.dumps(arguments) if isinstance(arguments, dict) else arguments or ""
        if key == self._calls:
            self.blocks.begin_call(key, call.id or f"call_{self.response_id[-24:]}_{key}", function.name or "")
            self._calls += 1
            self.progress += 1
        if piece:
            self.blocks.extend_call(key, piece)
            self.progress += 1
        if call.extra_content:
            self._extras[str(key)] = call.extra_content

    def _key(self, call: _Call, function: _Function) -> int:
        """Return the position of the call that a fragment belongs to.

        Raises:
            ModelError: the fragment belongs to no call, or a call before it is missing.
        """
        is_start = bool(call.id and function.name)
        if call.index is None:
            if not is_start:
                raise broken("a piece of a call came without index, id and name")
            return self._calls
        known = self.blocks.call_of(call.index)
        if known is not None:
            return self._calls if is_start and call.id != known[0] else call.index
        if call.index != self._calls:
            raise broken(f"call {call.index} began, and call {self._calls} never did")
        return call.index

    def _end(self, word: str) -> None:
        if self.is_complete:
            if word != self._finish:
                raise broken(f"two finish reasons came: {self._finish!r:.40} and {word!r:.40}")
            return
        self._finish = word
        reason = stop_reason("chat", word, has_calls=self.blocks.has_calls)
        self.stop = "refusal" if self._is_refusal and reason == "stop" else reason
        if self._details:
            details = json.dumps(self._details, ensure_ascii=False)
            self.blocks.thinking(_THINKING, "", signature=sealed("chat", f"{DETAILS}:{details}"))
        if self._extras:
            extras = json.dumps(self._extras, ensure_ascii=False)
            self.blocks.thinking(EXTRAS, "", signature=sealed("chat", f"{EXTRAS}:{extras}"))
        self.is_complete = True
        self.progress += 1


def _text_of(thinking: str | list[_Part] | None) -> str:
    if isinstance(thinking, list):
        return "".join(part.text or "" for part in thinking)
    return thinking or ""


def _tokens(usage: _Usage) -> Tokens:
    read = usage.prompt_tokens_details or _InputDetails()
    written = usage.completion_tokens_details or _OutputDetails()
    return Tokens(
        input=usage.prompt_tokens or 0,
        output=usage.completion_tokens or 0,
        cached=read.cached_tokens or 0,
        cache_written=read.cache_write_tokens or 0,
        reasoning=written.reasoning_tokens or 0,
    )


def _merge(details: list[_Detail], piece: Mapping[str, object]) -> None:
    """Add a piece of reasoning details to the item it continues: the last one, of the same kind and index."""
    last = details[-1] if details else None
    if last is None or (last.get("type"), last.get("index")) != (piece.get("type"), piece.get("index")):
        details.append(dict(piece))
        return
    for name, value in piece.items():
        held = last.get(name)
        if name in {"text", "summary", "data"} and isinstance(held, str) and isinstance(value, str):
            last[name] = held + value
        elif value is not None:
            last[name] = value
