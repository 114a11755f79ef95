"""A tool under observation: how often its body began and ended, and a hand on it before, after, at each `await` and at each line of the body.

The wrapper changes nothing but what a scenario asks for. Its means are two. A coroutine is driven step by step: between two steps the body stands at an `await`, and
there it can be held, cancelled, or left for dead. And a body's lines are traced while it runs, so that it can be left for dead at any of them. The invariant: every
act is done at most once, so whoever executes the call again meets the tool as it is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Generic, Literal, TypeAlias, TypeVar

from checkrein.clock import SystemClock
from checkrein.ports.tool import Accepted, PollResult, Reconciliation, Tool, ToolContext, ToolOutput, ToolTraits
from checkrein.testing.tool_lines import Died, Lines, bury
from checkrein.tools.calling import Callee
from checkrein.tools.function import FunctionTool
from checkrein.values import JsonObject

__all__ = ["Act", "Point", "WatchedTool", "is_plain"]

T = TypeVar("T")

Point: TypeAlias = int | Literal["before", "died", "after", "poll"]
"""A place in an execution: before the body, at its n-th `await`, where it died at a line, after the body and before anybody knows of its outcome, before a job is asked
about.
"""
Act: TypeAlias = Callable[[], Awaitable[None]]


def is_plain(tool: Tool) -> bool:
    """Tell whether a tool's body is a plain function, which has no awaits."""
    return isinstance(tool, FunctionTool) and not Callee(tool.function, tool.name).is_async


class WatchedTool:
    """A tool whose executions are watched; see `checkrein.ports.tool.Tool` for what they do.

    Attributes:
        lines: the lines of its bodies.
        begun: bodies begun.
        returned: what bodies returned.
        raised: what bodies raised, cancellation included.
        awaits: how often the last body stood at an `await`.
        longest_seconds: the longest time for which a body kept the event loop to itself.
        idle: set while no body runs.
    """

    def __init__(self, inner: Tool) -> None:
        self.lines = Lines(inner)
        self.begun = 0
        self.returned: list[ToolOutput | Accepted] = []
        self.raised: list[BaseException] = []
        self.awaits = 0
        self.longest_seconds = 0.0
        self.idle = asyncio.Event()
        self.idle.set()
        self._inner = inner
        self._acts: dict[Point, Act] = {}
        self._running = 0
        self._clock = SystemClock()

    def at(self, point: Point, act: Act) -> None:
        """Do something the next time that an execution gets there; an act that raises `Died` at an `await` ends the body there."""
        self._acts[point] = act

    @property
    def name(self) -> str:
        """The tool's name."""
        return self._inner.name

    @property
    def description(self) -> str:
        """What it does."""
        return self._inner.description

    @property
    def schema(self) -> JsonObject:
        """Its arguments."""
        return self._inner.schema

    @property
    def traits(self) -> ToolTraits:
        """What it promises."""
        return self._inner.traits

    def check(self, arguments: JsonObject) -> None:
        """Refuse arguments."""
        self._inner.check(arguments)

    async def call(self, arguments: JsonObject, context: ToolContext) -> ToolOutput | Accepted:
        """Run the body."""
        await self.reach("before")
        self.begun += 1
        self._running += 1
        self.idle.clear()
        try:
            made = await _Stepped(self._inner.call(arguments, context), self)
        except BaseException as error:
            self.raised.append(error)
            raise
        finally:
            self._running -= 1
            if not self._running:
                self.idle.set()
        self.returned.append(made)
        await self.reach("after")
        return made

    async def probe(self, arguments: JsonObject, context: ToolContext) -> Reconciliation:
        """Ask what became of a call."""
        return await self._inner.probe(arguments, context)

    async def poll(self, handle: str, arguments: JsonObject, context: ToolContext) -> PollResult:
        """Ask what became of a job."""
        await self.reach("poll")
        return await self._inner.poll(handle, arguments, context)

    async def reach(self, point: Point) -> None:
        """Do what is to be done at a point."""
        act = self._acts.pop(point, None)
        if act is not None:
            await act()

    def step(self, steps: Generator[object, None, T], error: BaseException | None) -> object:
        """Let a body go on to its next `await`, and return what it waits for.

        Raises:
            StopIteration: it returned.
            Died: it was left for dead at a line.
            BaseException: whatever it raises.
        """
        started = self._clock.monotonic()
        try:
            with self.lines.traced():
                return steps.send(None) if error is None else steps.throw(error)
        finally:
            self.longest_seconds = max(self.longest_seconds, self._clock.monotonic() - started)


class _Stepped(Generic[T]):
    """An awaitable that drives another one, and lets the tool's acts happen where that one waits."""

    def __init__(self, work: Awaitable[T], tool: WatchedTool) -> None:
        self._work = work
        self._tool = tool

    def __await__(self) -> Generator[object, None, T]:
        steps: Generator[object, None, T] = self._work.__await__()
        error: BaseException | None = None
        count = 0
        while True:
            try:
                waits_for = self._tool.step(steps, error)
            except StopIteration as end:
                self._tool.awaits = count
                return end.value
            except Died as death:
                bury(steps, death)
                break
            count, error = count + 1, None
            try:
                yield from self._tool.reach(count).__await__()
                yield waits_for
            except Died as death:
                # Of an act at this await, or of a plain function's thread, which is what this await waits for.
                bury(steps, death)
                break
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as caught:  # noqa: BLE001  handed to the body, which stands at this await
                error = caught
        yield from self._never()
        raise Died

    def _never(self) -> Generator[object, None, None]:
        """Be dead: tell whoever waits for it, and never go on."""
        yield from self._tool.reach("died").__await__()
        yield from asyncio.Event().wait().__await__()
