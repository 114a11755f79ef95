"""A conversation's scripted side: replies from a TOML file, played by the scripted model.

Everything that can be wrong with a file is said when it is read, with file, place and what to do; a script that was read plays.
"""

import difflib
import re
import tomllib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec

from checkrein.cli.chat_tools import TOOL_NAMES
from checkrein.cli.exits import Usage
from checkrein.errors import InvalidJson, ModelError, TransientModelError
from checkrein.messages import ContentBlock, Text, Thinking, ToolCall
from checkrein.ports.clock import Clock
from checkrein.ports.model import (
    Chunk,
    ModelRequest,
    ModelResponse,
    ModelStream,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from checkrein.ports.tool import CancelSignal
from checkrein.testing.scripted import ScriptedModel, reply
from checkrein.values import JsonObject, shorten

__all__ = ["ScriptPlayer", "read_script"]

_MOST_SECONDS: Final = 60
_WORD = re.compile(r"\s*\S+\s*|\s+")
_PLACE = re.compile(r" - at `\$(?:\.reply\[(?P<reply>\d+)\])?(?:\.call\[(?P<call>\d+)\])?(?:\.(?P<key>[\w.\[\]]+))?`\Z")


_FIXES: Final = {
    "arguments": "write a table: arguments = { seconds = 5 }",
    "call": 'write each call as a table of its own: [[reply.call]] with tool = "…" and arguments = { … }',
    "delay": f"write seconds, 0 to {_MOST_SECONDS}, without quotes",
    "error": 'write error = "…"',
    "repeat": "write repeat = true or repeat = false",
    "reply": 'write at least one [[reply]] with text = "…"',
    "text": 'write text = "…"',
    "thinking": 'write thinking = "…"',
    "tool": f"write one of {', '.join(TOOL_NAMES)} in quotes",
}


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tool call of a reply."""

    tool: str
    arguments: dict[str, object] = {}


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to one model request.

    Attributes:
        text: what is said; streamed word by word.
        thinking: what is thought before that.
        delay: seconds before each word.
        call: what is called after the text.
        error: the request fails with this instead, as if the provider were overloaded.
    """

    text: str = ""
    thinking: str = ""
    delay: Annotated[float, msgspec.Meta(ge=0, le=_MOST_SECONDS)] = 0.0
    call: tuple[Call, ...] = ()
    error: str = ""


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All replies, in order; with `repeat`, from the beginning again after the last."""

    reply: Annotated[tuple[Reply, ...], msgspec.Meta(min_length=1)]
    repeat: bool = False


def read_script(file: Path) -> Script:
    """Return the script of a file.

    Raises:
        Usage: it cannot be read, is no TOML, or is no script; the message names file, place and fix.
    """
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"{file}: cannot be read: {error.strerror}; name a script in TOML, such as examples/chat/tour.toml"
        raise Usage(msg) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        msg = f"{file}: is no TOML: {error}; correct that place"
        raise Usage(msg) from error
    try:
        script = msgspec.convert(data, Script)
    except msgspec.ValidationError as error:
        raise Usage(_explained(file, str(error))) from error
    for number, item in enumerate(script.reply, start=1):
        _check(file, number, item)
    return script


def _explained(file: Path, problem: str) -> str:
    """Return a fault of the file's form with its place as a person counts, and a fix."""
    found = _PLACE.search(problem)
    what = problem if found is None else problem[: found.start()]
    numbers = [int(number) + 1 if number else 0 for number in (found["reply"], found["call"])] if found else [0, 0]
    known = Call if numbers[1] else Reply if numbers[0] else Script
    key = re.match(r"\w*", (found and found["key"]) or "")
    name = key.group() if key else ""
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", what)
    if unknown is not None:
        near = difflib.get_close_matches(unknown[1], known.__struct_fields__, n=1)
        fix = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known.__struct_fields__)}"
        what = f"unknown key `{shorten(unknown[1], 64)}`"
    else:
        missing = re.fullmatch(r"Object missing required field `(.*)`", what)
        name, what = (missing[1], "is missing") if missing else (name, f"{what[:1].lower()}{what[1:]}")
        fix = _FIXES.get(name, _FIXES["call"])
    place = _place(*numbers) + (f"key `{name}`: " if name else "")
    return f"{file}: {place}{what}; {fix}"


def _place(reply_number: int, call_number: int = 0) -> str:
    call = f"[[reply.call]] number {call_number}: " if call_number else ""
    return f"[[reply]] number {reply_number}: {call}" if reply_number else ""


def _check(file: Path, number: int, item: Reply) -> None:
    where = f"{file}: {_place(number)}"
    if item.error and (item.text or item.thinking or item.call):
        msg = f"{where}key `error`: a reply that fails says and calls nothing; remove the other keys, or `error`"
        raise Usage(msg)
    if not item.error and not item.text.strip() and not item.call:
        msg = f'{where}it says nothing; write text = "…", a [[reply.call]], or error = "…"'
        raise Usage(msg)
    for call_number, call in enumerate(item.call, start=1):
        where = f"{file}: {_place(number, call_number)}"
        if call.tool not in TOOL_NAMES:
            near = difflib.get_close_matches(call.tool, TOOL_NAMES, n=1)
            fix = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(TOOL_NAMES)}"
            msg = f"{where}key `tool`: there is no tool {shorten(call.tool, 64)!r}; {fix}"
            raise Usage(msg)
        try:
            JsonObject(call.arguments)
        except InvalidJson as error:
            msg = f"{where}key `arguments`: {error}; write text, numbers, booleans, lists and tables only"
            raise Usage(msg) from error


class ScriptPlayer:
    """A model that plays a script."""

    def __init__(self, script: Script, clock: Clock) -> None:
        self._script = script
        self._clock = clock
        self._calls = 0
        self._model = ScriptedModel()
        self._add()

    def stream(self, request: ModelRequest, signal: CancelSignal) -> ModelStream:
        """Play the next reply."""
        if not self._model.remaining:
            if self._script.repeat:
                self._add()
            else:
                self._model.append_response(ModelError("the script is over; `repeat = true` lets it begin anew"))
        return self._model.stream(request, signal)

    def _add(self) -> None:
        for item in self._script.reply:
            self._model.append_response(partial(self._play, item))

    async def _play(
        self, item: Reply, request: ModelRequest, _signal: CancelSignal
    ) -> AsyncIterator[Chunk | ModelResponse]:
        if item.error:
            raise TransientModelError(item.error)
        blocks: list[ContentBlock] = []
        if item.thinking:
            blocks.append(Thinking(item.thinking))
            async for word in self._words(item.thinking, item.delay):
                yield ThinkingDelta(request.id, word)
        if item.text:
            blocks.append(Text(item.text))
            async for word in self._words(item.text, item.delay):
                yield TextDelta(request.id, word)
        for call in item.call:
            self._calls += 1
            block = ToolCall(f"call-{self._calls}", call.tool, call.arguments)
            blocks.append(block)
            yield ToolCallDelta(request.id, block)
        yield reply(*blocks)

    async def _words(self, text: str, delay: float) -> AsyncIterator[str]:
        for word in _WORD.findall(text):
            await self._clock.sleep(delay)
            yield word
