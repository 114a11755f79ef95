"""The lines of a tool's body, counted while it runs, and a death at any one of them.

What is traced are lines of the files beside the one in which the tool's function is written, and of that one, run by the body: in its own thread for a plain function,
between two awaits for an async one. A death is an exception that no `except Exception` catches, raised in place of the line: `with` and `finally` blocks are left, as the end of a process gives back
what it held, and no other line runs. So nothing dies at the head of a `with`, which is passed again on the way out, or in a `finally`: what is held would stay held.
The invariant: tracing is on while a body's step runs and at no other time, and whoever traced before (a debugger, a coverage tool) goes on afterwards.
"""

import ast
import functools
import gc
import inspect
import linecache
import sys
import threading
import traceback
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from checkrein.ports.tool import Tool
from checkrein.tools.function import FunctionTool
from checkrein.values import shorten

if TYPE_CHECKING:
    from _typeshed import TraceFunction

__all__ = ["Died", "Line", "Lines", "bury"]

TraceEvent: TypeAlias = Literal["call", "line", "return", "exception", "opcode"]

_SHOWN_CHARACTERS: Final = 60


class Died(BaseException):
    """The process that ran the body is gone: nothing of it goes on."""


def bury(steps: Generator[object, None, object], death: Died) -> None:
    """Give back what a dead body held in its variables (connections, files): nobody else would close them.

    Args:
        steps: the body, which may stand at an `await`.
        death: what it died of.
    """
    with warnings.catch_warnings():
        # That nothing is closed properly is what a death is.
        warnings.simplefilter("ignore", ResourceWarning)
        with suppress(Exception):
            steps.close()
        traceback.clear_frames(death.__traceback__)
        for frame, _ in traceback.walk_tb(death.__traceback__):
            # A traced frame also has a copy of its variables, which is renewed when it is looked at.
            _ = frame.f_locals
        # A connection may be held by nothing but itself; it is young, so there is no need to look at everything.
        gc.collect(1)


class Line(msgspec.Struct, frozen=True):
    """The n-th line that a body runs, counted from 1."""

    number: int


class Lines:
    """Counts lines of bodies.

    Attributes:
        is_on: whether bodies are traced.
        count: lines run so far.
        died_at: the line in place of which a body died, as it is written, with its file and number.
    """

    def __init__(self, tool: Tool) -> None:
        self.is_on = False
        self.count = 0
        self.died_at = ""
        self._dies_at = 0
        self._thread = f"tool {tool.name}"
        self._folder = _folder_of(tool)
        self._before: TraceFunction | None = None

    def die_at(self, line: Line) -> None:
        """Let the next body that runs so many lines die in place of that one; once."""
        self.is_on = bool(self._folder)
        self._dies_at = self.count + line.number

    @contextmanager
    def traced(self) -> Generator[None]:
        """Trace what this thread runs until the end of the block, and the thread that a plain function gets meanwhile."""
        if not self.is_on or not self._folder:
            yield
            return
        before = sys.gettrace()
        self._arm()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def disarm(self) -> None:
        """Trace no thread that begins from now on."""
        if threading.gettrace() == self._in_thread:
            threading.settrace(self._before)  # type: ignore[arg-type]  # None, which gettrace returns, is taken as well

    def _arm(self) -> None:
        if threading.gettrace() != self._in_thread:
            self._before = threading.gettrace()
            threading.settrace(self._in_thread)

    def _in_thread(self, frame: FrameType, event: TraceEvent, arg: object) -> "TraceFunction | None":
        """Begin to trace the body's own thread; leave any other to whoever traced before."""
        if threading.current_thread().name != self._thread:
            return self._before(frame, event, arg) if self._before is not None else None
        # Not at the end of the step that started it: the thread looks for its tracer only after that.
        self.disarm()
        sys.settrace(self._called)
        return self._called(frame, event, arg)

    def _called(self, frame: FrameType, _event: TraceEvent, _arg: object) -> "TraceFunction | None":
        return self._line if _parent(frame.f_code.co_filename) == self._folder else None

    def _line(self, frame: FrameType, event: TraceEvent, _arg: object) -> "TraceFunction | None":
        if event == "line" and frame.f_lineno not in _sheltered(frame.f_code.co_filename):
            self.count += 1
            if self.count == self._dies_at:
                self.is_on, self._dies_at = False, 0
                self.died_at = _written(frame)
                raise Died
        return self._line


def _written(frame: FrameType) -> str:
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    return f"`{shorten(text, _SHOWN_CHARACTERS)}` ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"


@functools.lru_cache(maxsize=64)
def _sheltered(file: str) -> frozenset[int]:
    """Return the lines of a file at which what is held is taken or given back."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return frozenset()
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            found.update(range(node.lineno, node.body[0].lineno))
        elif isinstance(node, ast.Try) and node.finalbody:
            found.update(range(node.finalbody[0].lineno, (node.finalbody[-1].end_lineno or node.lineno) + 1))
    return frozenset(found)


@functools.lru_cache(maxsize=1_024)
def _parent(file: str) -> str:
    return str(Path(file).parent)


def _folder_of(tool: Tool) -> str:
    """Return the folder of the file that holds the tool's body, `""` when it cannot be told."""
    function: object = tool.function if isinstance(tool, FunctionTool) else type(tool).call
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
    return _parent(code.co_filename) if isinstance(code, CodeType) else ""
