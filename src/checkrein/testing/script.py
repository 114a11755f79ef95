"""Scripts: what a model says, reply by reply, in a TOML file; for conversations, documentation and tests that need no model.

Everything that can be wrong with a file is said when it is read, with file, place and what to do; a script that was read plays.
"""

import difflib
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec

from checkrein.errors import InvalidJson, TaskError
from checkrein.values import JsonObject, shorten

__all__ = ["Call", "Reply", "Script", "read_script"]

_MOST_SECONDS: Final = 60
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
    "tool": "name a tool in quotes",
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


def read_script(file: Path, tools: Sequence[str] = ()) -> Script:
    """Return the script of a file.

    Args:
        file: the file.
        tools: what a reply may call; empty for anything.

    Raises:
        TaskError: it cannot be read, is no TOML, or is no script; the message names file, place and fix.
    """
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        problem, fix = f"cannot be read: {error.strerror}", "name a script in TOML, such as examples/chat/tour.toml"
        raise TaskError(str(file), "", problem, fix) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TaskError(str(file), "", f"is no TOML: {error}", "correct that place") from error
    try:
        script = msgspec.convert(data, Script)
    except msgspec.ValidationError as error:
        raise _explained(file, str(error), tools) from error
    for number, item in enumerate(script.reply, start=1):
        _check(file, number, item)
        for call_number, call in enumerate(item.call, start=1):
            _check_call(file, _place(number, call_number), call, tools)
    return script


def _explained(file: Path, problem: str, tools: Sequence[str]) -> TaskError:
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
        fix = f"write one of {', '.join(tools)} in quotes" if name == "tool" and tools else fix
    place = _place(*numbers) + (f"key `{name}`: " if name else "")
    return TaskError(str(file), "", f"{place}{what}", fix)


def _place(reply_number: int, call_number: int = 0) -> str:
    call = f"[[reply.call]] number {call_number}: " if call_number else ""
    return f"[[reply]] number {reply_number}: {call}" if reply_number else ""


def _check(file: Path, number: int, item: Reply) -> None:
    where = _place(number)
    if item.error and (item.text or item.thinking or item.call):
        problem = f"{where}key `error`: a reply that fails says and calls nothing"
        raise TaskError(str(file), "", problem, "remove the other keys, or `error`")
    if not item.error and not item.text.strip() and not item.call:
        raise TaskError(str(file), "", f"{where}it says nothing", 'write text = "…", a [[reply.call]], or error = "…"')


def _check_call(file: Path, where: str, call: Call, tools: Sequence[str]) -> None:
    if tools and call.tool not in tools:
        near = difflib.get_close_matches(call.tool, tools, n=1)
        fix = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(tools)}"
        raise TaskError(str(file), "", f"{where}key `tool`: there is no tool {shorten(call.tool, 64)!r}", fix)
    try:
        JsonObject(call.arguments)
    except InvalidJson as error:
        problem = f"{where}key `arguments`: {error}"
        raise TaskError(str(file), "", problem, "write text, numbers, booleans, lists and tables only") from error
