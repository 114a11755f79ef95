"""The blocks of one response while they come in: pieces of text, reasoning and calls, put together by the wire's own positions.

Pure. A decoder names each block by a key of its choice (an index, a pair of indices); blocks stand in the order in which they began. The invariant: a call is made only of
pieces that name it, and `content` is asked for only when the stream is complete, so no call exists before. What comes in is bounded while it comes in.
"""

from collections.abc import Hashable
from typing import Final

import msgspec

from checkrein.errors import ModelError
from checkrein.messages import ContentBlock, Text, Thinking, ToolCall
from checkrein.ports.model import Chunk, TextDelta, ThinkingDelta
from checkrein.providers.failures import broken
from checkrein.values import clean_text

__all__ = ["Blocks"]

_MAX_CHARACTERS: Final = 8 * 1024 * 1024
"""Characters of one response, arguments and signatures included; beyond it no limit of the loop would take the response."""
_MAX_BLOCKS: Final = 8_192


class _Block(msgspec.Struct):
    """A block that may still grow; `kind` says what it becomes."""

    kind: str
    parts: list[str]
    call_id: str = ""
    name: str = ""
    signature: str = ""

    def made(self) -> ContentBlock | None:
        """Return the finished block; None for one that says nothing."""
        text = "".join(self.parts)
        if self.kind == "call":
            return ToolCall.parsed(clean_text(self.call_id), clean_text(self.name), text)
        if self.kind == "text":
            return Text(clean_text(text)) if text else None
        return Thinking(clean_text(text), clean_text(self.signature)) if text or self.signature else None


class Blocks:
    """The blocks of the answer to one request, in order."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._blocks: dict[Hashable, _Block] = {}
        self._characters = 0

    def __contains__(self, key: Hashable) -> bool:
        """Tell whether a block of that key began."""
        return key in self._blocks

    @property
    def has_calls(self) -> bool:
        """Whether any call began."""
        return any(block.kind == "call" for block in self._blocks.values())

    def text(self, key: Hashable, delta: str) -> list[Chunk]:
        """Add a piece of text; return the chunk for it, none for an empty piece.

        Raises:
            ModelError: the block is of another kind, or the response is too large.
        """
        if not delta:
            return []
        self._grow(self._block(key, "text"), delta)
        return [TextDelta(self._request_id, delta)]

    def thinking(self, key: Hashable, delta: str, *, signature: str = "") -> list[Chunk]:
        """Add a piece of reasoning, and set its signature if one is given; return the chunk for it, none for an empty piece.

        Raises:
            ModelError: as `text`.
        """
        if not delta and not signature:
            return []
        block = self._block(key, "thinking")
        if signature:
            self._count(signature)
            block.signature = signature
        if not delta:
            return []
        self._grow(block, delta)
        return [ThinkingDelta(self._request_id, delta)]

    def begin_call(self, key: Hashable, call_id: str, name: str) -> None:
        """Begin a call.

        Raises:
            ModelError: the stream is broken: a block of that key began before, or the call has no name or id.
        """
        if key in self._blocks:
            raise broken(f"call {call_id!r:.80} began where another block had begun")
        if not name or not call_id:
            raise broken("a call began without a name or an id")
        block = self._block(key, "call")
        block.call_id, block.name = call_id, name

    def extend_call(self, key: Hashable, fragment: str) -> None:
        """Add a piece of a call's arguments.

        Raises:
            ModelError: no call of that key began, or the response is too large.
        """
        block = self._blocks.get(key)
        if block is None or block.kind != "call":
            raise broken(f"arguments came for call {key!r:.40}, which never began")
        self._grow(block, fragment)

    def replace_call(self, key: Hashable, arguments: str) -> None:
        """Set a call's arguments, where a wire says them as a whole at the end.

        Raises:
            ModelError: as `extend_call`; or what came in pieces was something else.
        """
        block = self._blocks.get(key)
        if block is None or block.kind != "call":
            raise broken(f"arguments came for call {key!r:.40}, which never began")
        if block.parts and clean_text("".join(block.parts)) != clean_text(arguments):
            raise broken(f"the pieces of the arguments of call {block.call_id!r:.80} are not the arguments")
        if not block.parts:
            self._grow(block, arguments)

    def call_of(self, key: Hashable) -> tuple[str, str] | None:
        """Return the id and name of the call of that key, None when there is none."""
        block = self._blocks.get(key)
        return None if block is None or block.kind != "call" else (block.call_id, block.name)

    def content(self) -> tuple[ContentBlock, ...]:
        """Return the finished blocks; to be asked for once the stream is complete."""
        made = (block.made() for block in self._blocks.values())
        return tuple(block for block in made if block is not None)

    def _block(self, key: Hashable, kind: str) -> _Block:
        block = self._blocks.get(key)
        if block is None:
            if len(self._blocks) >= _MAX_BLOCKS:
                raise ModelError(f"more than {_MAX_BLOCKS:,} blocks", code="MODEL_LIMIT")
            block = self._blocks[key] = _Block(kind, [])
        if block.kind != kind:
            raise broken(f"block {key!r:.40} is a {block.kind}, and was given {kind}")
        return block

    def _grow(self, block: _Block, piece: str) -> None:
        self._count(piece)
        block.parts.append(piece)

    def _count(self, piece: str) -> None:
        self._characters += len(piece)
        if self._characters > _MAX_CHARACTERS:
            raise ModelError(f"more than {_MAX_CHARACTERS:,} characters in one response", code="MODEL_LIMIT")
