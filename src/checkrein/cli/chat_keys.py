"""From the bytes of a terminal to keys, typed text and pasted text.

Pure: no terminal, no time. What a terminal sends is ambiguous, because the Esc key is also the first byte of every other special key; whoever feeds bytes asks `wait_seconds` how
long to wait for more, and calls `flush` when nothing came. The invariant: every sequence is taken whole or not at all, so no part of an unknown key is ever typed.
"""

import codecs
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

__all__ = ["Key", "KeyReader", "Pasted", "Press", "Typed"]


class Key(StrEnum):
    """A key that does something."""

    ENTER = "enter"
    ALT_ENTER = "alt-enter"
    ESCAPE = "escape"
    BACKSPACE = "backspace"
    DELETE = "delete"
    DELETE_WORD = "delete-word"
    DELETE_BEFORE = "delete-before"
    LEFT = "left"
    RIGHT = "right"
    HOME = "home"
    END = "end"
    CLOSE = "close"
    REDRAW = "redraw"


class Typed(msgspec.Struct, frozen=True):
    """Text that was typed."""

    text: str


class Pasted(msgspec.Struct, frozen=True):
    """Text that was pasted, with whatever it holds."""

    text: str


Press: TypeAlias = Key | Typed | Pasted

ESCAPE_SECONDS: Final = 0.05
"""How long after an Esc the rest of a sequence may come; terminals send a sequence at once."""
PASTE_SECONDS: Final = 1.0
"""How long a paste may pause before it counts as over."""

_PASTE_BEGINS, _PASTE_ENDS = "\x1b[200~", "\x1b[201~"
_CSI = re.compile(r"\x1b\[[0-?]{0,32}[ -/]{0,4}[@-~]")
_CSI_BEGUN = re.compile(r"\x1b\[[0-?]{0,32}[ -/]{0,4}\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

_PLAIN: Final = {
    "\r": Key.ENTER,
    "\n": Key.ENTER,
    "\x7f": Key.BACKSPACE,
    "\x08": Key.BACKSPACE,
    "\x01": Key.HOME,
    "\x02": Key.LEFT,
    "\x04": Key.CLOSE,
    "\x05": Key.END,
    "\x06": Key.RIGHT,
    "\x0c": Key.REDRAW,
    "\x15": Key.DELETE_BEFORE,
    "\x17": Key.DELETE_WORD,
}
_AFTER_ESCAPE: Final = {"\r": Key.ALT_ENTER, "\n": Key.ALT_ENTER, "\x7f": Key.DELETE_WORD, "\x08": Key.DELETE_WORD}
_SEQUENCES: Final = {
    "[C": Key.RIGHT,
    "[D": Key.LEFT,
    "[F": Key.END,
    "[H": Key.HOME,
    "[1~": Key.HOME,
    "[7~": Key.HOME,
    "[4~": Key.END,
    "[8~": Key.END,
    "[3~": Key.DELETE,
    # Alt+Enter of terminals that tell modifiers apart.
    "[13;3u": Key.ALT_ENTER,
    "[27;3;13~": Key.ALT_ENTER,
    "OC": Key.RIGHT,
    "OD": Key.LEFT,
    "OF": Key.END,
    "OH": Key.HOME,
    "OM": Key.ENTER,
}


class KeyReader:
    """Takes bytes as they come and gives presses."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._is_pasting = False

    @property
    def wait_seconds(self) -> float | None:
        """How long to wait for the rest of what came; None when nothing is unfinished."""
        if self._is_pasting:
            return PASTE_SECONDS
        return ESCAPE_SECONDS if self._held else None

    def feed(self, data: bytes) -> list[Press]:
        """Return the presses that are complete with these bytes."""
        self._held += self._decoder.decode(data)
        return list(self._presses())

    def flush(self) -> list[Press]:
        """Return what is held as it is: nothing more came."""
        if self._is_pasting:
            text, self._held, self._is_pasting = self._held, "", False
            return [Pasted(text)]
        held, self._held = self._held, ""
        return [Key.ESCAPE] if held == "\x1b" else []

    def _presses(self) -> Iterator[Press]:
        while self._held:
            before = self._held
            press = self._paste() if self._is_pasting else self._next()
            if press is not None:
                yield press
            elif before == self._held:
                return

    def _paste(self) -> Pasted | None:
        text, end, rest = self._held.partition(_PASTE_ENDS)
        if not end:
            return None
        self._held, self._is_pasting = rest, False
        return Pasted(text)

    def _take(self, length: int) -> str:
        taken, self._held = self._held[:length], self._held[length:]
        return taken

    def _next(self) -> Press | None:
        """Take the next press off what is held; None when it does nothing, or is unfinished and stays."""
        if self._held[0] == "\x1b":
            return self._escaped()
        found = _CONTROL.search(self._held)
        if found is None:
            return Typed(self._take(len(self._held)))
        if found.start():
            return Typed(self._take(found.start()))
        return _PLAIN.get(self._take(1))

    def _escaped(self) -> Press | None:
        second = self._held[1:2]
        if not second:
            return None
        if second == "\x1b":
            self._take(1)
            return Key.ESCAPE
        if second == "[":
            return self._sequence()
        if second == "O":
            return _SEQUENCES.get(self._take(3)[1:]) if len(self._held) > 2 else None  # noqa: PLR2004  ESC, O, letter
        return _AFTER_ESCAPE.get(self._take(2)[1])

    def _sequence(self) -> Press | None:
        whole = _CSI.match(self._held)
        if whole is None:
            if not _CSI_BEGUN.match(self._held):
                self._take(2)
            return None
        sequence = self._take(whole.end())
        if sequence == _PASTE_BEGINS:
            self._is_pasting = True
            return None
        return _SEQUENCES.get(sequence[1:])
