"""The line that a person types: text, a cursor, and what of it fits into a terminal's row.

Pure: no terminal. The cursor moves and deletes by what a reader sees as one character, and columns are measured as a terminal counts them. The invariant: the cursor stands
between two such characters, never inside one, and is always within the row.
"""

import itertools

from rich.cells import cell_len, split_graphemes

from checkrein.cli.chat_keys import Key, Pasted, Press, Typed
from checkrein.values import clean_text, visible_text

__all__ = ["InputLine"]

_NEWLINE = "↵"
_CUT = "…"


class InputLine:
    """One line of input.

    Attributes:
        text: what is in it; a newline of pasted text is part of it.
        cursor: position in `text`.
    """

    def __init__(self) -> None:
        self.text = ""
        self.cursor = 0

    def press(self, press: Press) -> bool:
        """Let a key edit the line; False when it is no key for that."""
        match press:
            case Typed(text):
                self._insert(text)
            case Pasted(text):
                self._insert(text.replace("\r\n", "\n").replace("\r", "\n"))
            case Key.HOME | Key.END | Key.LEFT | Key.RIGHT:
                self.cursor = self._goal(press)
            case Key.BACKSPACE | Key.DELETE | Key.DELETE_WORD | Key.DELETE_BEFORE:
                self._delete(press)
            case _:
                return False
        return True

    def take(self) -> str:
        """Empty the line and return what was in it."""
        text, self.text, self.cursor = self.text, "", 0
        return text

    def give_back(self, text: str) -> None:
        """Put text before what is in the line, with the cursor at the end."""
        self.text = f"{text}\n{self.text}" if self.text else text
        self.cursor = len(self.text)

    def view(self, width: int) -> tuple[str, int]:
        """Return what is shown in a row of `width` columns, and the cursor's column in it.

        Longer text is cut so that the cursor is in sight; an ellipsis marks each cut.
        """
        before, after = _shown(self.text[: self.cursor]), _shown(self.text[self.cursor :])
        room = max(0, width - 1)  # the cursor may stand behind the last character
        left, right = cell_len(before), cell_len(after)
        if left + right <= room:
            return before + after, left
        keep_left = min(left, max(room * 2 // 3, room - right))
        before = _last(before, keep_left)
        return before + _first(after, room - cell_len(before)), cell_len(before)

    def _insert(self, text: str) -> None:
        before = self.text[: self.cursor] + clean_text(text)
        self.text = before + self.text[self.cursor :]
        self.cursor = len(before)
        if self.cursor not in self._borders():
            self.cursor = self._right()

    def _delete(self, key: Key) -> None:
        goal = self._goal(key)
        start, end = min(goal, self.cursor), max(goal, self.cursor)
        self.text = self.text[:start] + self.text[end:]
        self.cursor = start
        if self.cursor not in self._borders():
            self.cursor = self._left()

    def _goal(self, key: Key) -> int:
        """Return where a key moves the cursor, or up to where it deletes."""
        match key:
            case Key.LEFT | Key.BACKSPACE:
                return self._left()
            case Key.RIGHT | Key.DELETE:
                return self._right()
            case Key.DELETE_WORD:
                before = self.text[: self.cursor]
                return len(before.rstrip().rpartition(" ")[0]) + (" " in before.strip())
            case Key.END:
                return len(self.text)
            case _:
                return 0

    def _borders(self) -> tuple[int, ...]:
        """Return where a cursor may stand."""
        return (0, *(end for _, end, _ in split_graphemes(self.text)[0]))

    def _left(self) -> int:
        return max((border for border in self._borders() if border < self.cursor), default=0)

    def _right(self) -> int:
        return min((border for border in self._borders() if border > self.cursor), default=len(self.text))


def _shown(text: str) -> str:
    return visible_text(text).replace("\n", _NEWLINE).replace("\t", " ")


def _first(text: str, room: int) -> str:
    """Return the beginning of a text that fits, and an ellipsis for the rest."""
    if cell_len(text) <= room:
        return text
    ends = list(itertools.accumulate(width for _, _, width in split_graphemes(text)[0]))
    fitting = sum(1 for end in ends if end <= room - 1)
    return text[: _end(text, fitting)] + _CUT if room > 0 else ""


def _last(text: str, room: int) -> str:
    """Return the end of a text that fits, and an ellipsis for the rest."""
    if cell_len(text) <= room:
        return text
    spans = split_graphemes(text)[0]
    ends = list(itertools.accumulate(width for _, _, width in reversed(spans)))
    fitting = sum(1 for end in ends if end <= room - 1)
    return _CUT + (text[spans[len(spans) - fitting][0] :] if fitting else "") if room > 0 else ""


def _end(text: str, graphemes: int) -> int:
    return split_graphemes(text)[0][graphemes - 1][1] if graphemes else 0
