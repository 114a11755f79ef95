"""The events of the Responses wire, as far as we read them, and the outputs of a response while they come in.

Pure. Fields that a server leaves out or sets to null are None; what we do not read may have any shape. The invariant: the parts of an output have no gap.
"""

from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec.structs import replace

from checkrein.providers.failures import broken
from checkrein.providers.pricing import Tokens

__all__ = ["Item", "ItemEvent", "Output", "Part", "PieceEvent", "Response", "ResponseEvent", "tokens_of"]

_READ = frozenset({"message", "function_call", "reasoning"})
"""The outputs we read; others are counted."""


class Part(msgspec.Struct, frozen=True):
    """A part of a message or of reasoning."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None


class Item(msgspec.Struct, frozen=True):
    """One output; `raw` is all of it."""

    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    status: str | None = None
    phase: str | None = None
    content: list[Part] | None = None
    summary: list[Part] | None = None
    encrypted_content: str | None = None
    raw: dict[str, object] = {}


class ItemEvent(msgspec.Struct, frozen=True):
    """An output begins or is done."""

    item: dict[str, object]
    output_index: int | None = None

    def read(self) -> Item:
        """Return the output.

        Raises:
            ModelError: it is malformed.
        """
        return _read(self.item)


class PieceEvent(msgspec.Struct, frozen=True):
    """Something within an output."""

    output_index: int | None = None
    item_id: str | None = None
    content_index: int | None = None
    summary_index: int | None = None
    delta: str | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None


class _InputDetails(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True):
    """What was consumed."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Incomplete(msgspec.Struct, frozen=True):
    reason: str | None = None


class Response(msgspec.Struct, frozen=True):
    """The response as a whole, so far."""

    id: str | None = None
    model: str | None = None
    status: str | None = None
    error: object = None
    incomplete_details: _Incomplete | None = None
    output: list[dict[str, object]] | None = None
    usage: Usage | None = None

    def items(self) -> Sequence[Item]:
        """Return its outputs.

        Raises:
            ModelError: one is malformed.
        """
        return [_read(item) for item in self.output or ()]


class ResponseEvent(msgspec.Struct, frozen=True):
    """Something about the response as a whole."""

    response: Response


class Output:
    """An output that began.

    Args:
        index: its position.
        kind: its type.
        names: the ids by which events may name it.

    Attributes:
        parts: how many parts it has.
        is_done: it came as a whole.
    """

    __slots__ = ("index", "is_done", "kind", "names", "parts")

    def __init__(self, index: int, kind: str, names: frozenset[str]) -> None:
        self.index = index
        self.kind = kind
        self.names = names
        self.parts = 0
        self.is_done = False

    def begin_part(self, index: int) -> None:
        """Take note of a part, which may have begun before.

        Raises:
            ModelError: a part before it is missing.
        """
        if not 0 <= index <= self.parts:
            raise broken(f"part {index} of output {self.index} began where part {self.parts} should")
        self.parts = max(self.parts, index + 1)


def tokens_of(usage: Usage) -> Tokens:
    """Return what was consumed as all wires count it."""
    read = usage.input_tokens_details or _InputDetails()
    written = usage.output_tokens_details or _OutputDetails()
    return Tokens(
        input=usage.input_tokens or 0,
        output=usage.output_tokens or 0,
        cached=read.cached_tokens or 0,
        cache_written=read.cache_write_tokens or 0,
        reasoning=written.reasoning_tokens or 0,
    )


def _read(raw: dict[str, object]) -> Item:
    kind = raw.get("type")
    if kind not in _READ:
        name = raw.get("id")
        return Item(type=str(kind), id=name if isinstance(name, str) else None)
    try:
        item = msgspec.convert(cast("object", raw), Item)
    except (msgspec.ValidationError, RecursionError) as error:
        raise broken(f"an output is malformed: {error}") from error
    return replace(item, raw=raw)
