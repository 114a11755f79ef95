"""One question at a terminal as a form: which keys answer it, what is typed after some of them, and the answer that comes of it.

Pure: no terminal, no store. The invariant: nothing but a key that is offered, or Enter after what was typed, is an answer; a key that does nothing changes nothing.
"""

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec
from rich.text import Text

from checkrein.cli.chat_keys import Key, Press, Typed
from checkrein.cli.chat_line import InputLine
from checkrein.cli.questions import Question
from checkrein.errors import InvalidJson
from checkrein.kernel.budget import COUNTED
from checkrein.values import parse_json

__all__ = ["AskForm", "Leave", "Reply"]


class Leave(StrEnum):
    """A question that was not answered."""

    SKIP = "skip"
    QUIT = "quit"


Reply: TypeAlias = Mapping[str, object] | Leave


class _Field(msgspec.Struct, frozen=True):
    """What is typed after a key: its label, and what makes an answer of it or raises ValueError."""

    label: str
    taken: Callable[[str], Mapping[str, object]]


_OFFERS: Final = {
    "decision": "y allow · n deny · s skip · q quit ",
    "planner": "y ask it again · s skip · q quit ",
    "result": "r type its result · f it failed · s skip · q quit ",
    "budget": "e extend · q quit ",
}

_ROOM: Final = 12
"""Columns for what is typed; where there are fewer, the label goes."""


class AskForm:
    """The form of one question.

    Args:
        question: what is asked.
        more: for a budget, how much more is proposed.

    Attributes:
        notice: what was wrong with what was typed; `""` when nothing was.
    """

    def __init__(self, question: Question, *, more: int = 0) -> None:
        self.notice = ""
        self._question = question
        self._more = more
        self._line = InputLine()
        self._field: _Field | None = None

    def press(self, press: Press) -> Reply | None:
        """Take a key, and return the reply once there is one."""
        self.notice = ""
        if press is Key.CLOSE:
            return Leave.QUIT
        if self._field is None:
            return self._choose(press.text) if isinstance(press, Typed) else None
        if press is Key.ESCAPE:
            self._line.take()
            self._field = None
        elif press is Key.ENTER:
            return self._enter(self._field)
        else:
            self._line.press(press)
        return None

    def line(self, width: int) -> tuple[Text, int]:
        """Return the row that the person types in, and the cursor's column."""
        if self._field is None:
            offer = _OFFERS[self._kind]
            return Text(offer, "bold"), max(0, min(len(offer), width - 1))
        label = self._field.label if width >= len(self._field.label) + _ROOM else ""
        text, column = self._line.view(max(1, width - len(label)))
        return Text.assemble((label, "bold"), text), column + len(label)

    @property
    def _kind(self) -> str:
        question = self._question
        return "planner" if question.kind == "decision" and not question.can_be_denied else question.kind

    def _choose(self, key: str) -> Reply | None:
        question = self._question
        match self._kind, key.lower():
            case _, "q":
                return Leave.QUIT
            case "decision" | "planner" | "result", "s":
                return Leave.SKIP
            case "decision" | "planner", "y":
                return question.answer("decision", "allow")
            case "decision", "n":
                self._field = _Field("why not? (Enter for no reason) ", self._denied)
            case "result", "r":
                self._field = _Field("result as JSON: ", self._result)
            case "result", "f":
                self._field = _Field("why did it fail? ", self._failed)
            case "budget", "e":
                what = question.subject.replace("_", " ")
                self._field = _Field(f"how many more {what}? [{self._more}] ", self._extended)
            case _:
                pass
        return None

    def _enter(self, field: _Field) -> Reply | None:
        try:
            return field.taken(self._line.text.strip())
        except ValueError as error:
            self.notice = str(error)
            return None

    def _denied(self, text: str) -> Mapping[str, object]:
        return self._question.answer("decision", {"deny": text} if text else "deny")

    def _result(self, text: str) -> Mapping[str, object]:
        try:
            return self._question.answer("result", parse_json(text))
        except InvalidJson as error:
            msg = f"no JSON: {error.reason}"
            raise ValueError(msg) from error

    def _failed(self, text: str) -> Mapping[str, object]:
        if not text:
            msg = "say why; the planner is told it"
            raise ValueError(msg)
        return self._question.answer("error", text)

    def _extended(self, text: str) -> Mapping[str, object]:
        name = self._question.subject
        is_whole = name in COUNTED or name == "tokens"
        try:
            amount = (int if is_whole else float)(text or str(self._more))
        except ValueError as error:
            msg = f"a {'whole ' if is_whole else ''}number, please"
            raise ValueError(msg) from error
        if not 0 < amount < math.inf:
            msg = "more than 0, please"
            raise ValueError(msg)
        return self._question.answer("extend", {name: amount})
