"""The bench: a fresh world for every execution, a clock that a scenario moves, and what a single clean execution looks like.

Everything runs against the real dispatcher. Time limits and graces are the clock's and pass only when they are struck; how long a body really takes is bounded by the
case's patience. The invariant: no two worlds share a folder, a key or a tool object, unless the case's own `make` shares them, and then the bench says so.
"""

import asyncio
import heapq
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from checkrein.clock import SystemClock, SystemIds
from checkrein.ports.tool import Accepted, CancelSignal, ToolContext
from checkrein.testing.manual_clock import ManualClock
from checkrein.testing.tool_baseline import Baseline, refuse_incomparable
from checkrein.testing.tool_case import MakeCase, ToolCase, effect_of, put_files
from checkrein.testing.tool_report import Finding, Unusable, broken
from checkrein.testing.tool_watch import WatchedTool, is_plain
from checkrein.tools.dispatch import Dispatcher, DispatchOptions, PreparedCall
from checkrein.tools.outcomes import AcceptedJob, Done, FailedCall, Outcome, OutcomeUnknown, Pending
from checkrein.values import JsonObject

__all__ = ["Bench", "Scene", "StruckClock", "wait_for", "within"]

T = TypeVar("T")

_SLICE_SECONDS = 0.02
_OPTIONS = DispatchOptions()
_END = 1.0


class StruckClock(ManualClock):
    """A clock that can also be moved between two instructions of whatever runs."""

    def strike(self, seconds: float) -> None:
        """Move time at once, and fire what is due by then."""
        end = self._elapsed + seconds
        while self._timers and self._timers[0][0] <= end:
            at, _, timer = heapq.heappop(self._timers)
            self._elapsed = max(self._elapsed, at)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self._elapsed = end


async def within(
    task: "asyncio.Task[T]", seconds: float, *, tick: Callable[[], Coroutine[object, object, None]] | None = None
) -> bool:
    """Wait for a task so many seconds of real time at most, and tell whether it ended.

    Args:
        task: what is waited for; it is left alone when it does not end.
        seconds: how long.
        tick: called again and again meanwhile, to let other clocks go on.
    """
    clock = SystemClock()
    end = clock.monotonic() + seconds
    while not task.done() and (left := end - clock.monotonic()) > 0:
        alarm = clock.spawn(clock.sleep(min(left, _SLICE_SECONDS) if tick else left), name="patience")
        await asyncio.wait([task, alarm], return_when=asyncio.FIRST_COMPLETED)
        alarm.cancel()
        if tick is not None and not task.done():
            await tick()
    return task.done()


class Scene:
    """One world, with one tool in it.

    Attributes:
        case: the case, made for this world.
        clock: the time of limits and graces.
        tool: the tool, watched.
        folder: the folder that bodies work in.
        dispatcher: what makes its calls.
    """

    def __init__(self, case: ToolCase, folder: Path) -> None:
        self.case = case
        self.clock = StruckClock()
        self.tool = WatchedTool(case.tool)
        self.folder = folder
        self.dispatcher = Dispatcher({self.tool.name: self.tool}, clock=self.clock, options=_OPTIONS)
        self._keys = SystemIds()
        self._tasks: list[asyncio.Task[object]] = []

    def new_key(self) -> str:
        """Return an idempotency key that no other call has."""
        return f"{self._keys.new_id()}/1.0"

    async def look(self) -> object:
        """Return the effect as it is now."""
        return await effect_of(self.case, self.folder)

    def prepared(self) -> PreparedCall:
        """Return the case's call.

        Raises:
            Unusable: it is refused.
        """
        call = self.dispatcher.prepare(self.tool.name, JsonObject(self.case.arguments))
        if isinstance(call, FailedCall):
            wrong = "the case gives arguments that the tool refuses"
            raise Unusable(broken("arguments", f"{wrong}: {call.message}", "give arguments with which a call succeeds"))
        return call

    def spawn(self, work: Coroutine[object, object, T]) -> "asyncio.Task[T]":
        """Start something that ends with the scene."""
        task = self.clock.spawn(work, name=f"scene of {self.tool.name}")
        self._tasks.append(task)
        return task

    def begin(self, *, key: str = "", attempt: int = 1, signal: CancelSignal | None = None) -> "asyncio.Task[Outcome]":
        """Start one execution of the case's call."""
        context = self.context(key or self.new_key(), attempt=attempt, signal=signal)
        return self.spawn(self.dispatcher.execute(self.prepared(), context))

    def context(self, key: str, *, attempt: int = 1, signal: CancelSignal | None = None) -> ToolContext:
        """Return what a body may know about its call."""
        return ToolContext(
            call_id="1.0",
            attempt=attempt,
            idempotency_key=key,
            signal=signal or CancelSignal(),
            workspace=self.folder,
            inputs=self.case.inputs,
        )

    async def ended(self, task: "asyncio.Task[Outcome]") -> Outcome | None:
        """Return the outcome of an execution; None when it took longer than the case's patience."""
        return task.result() if await within(task, self.case.patience_seconds) else None

    async def execute(self, *, key: str = "", attempt: int = 1) -> Outcome:
        """Make one execution, and wait for the result of the job if it answers with one.

        Raises:
            Unusable: it took longer than the case's patience.
        """
        key = key or self.new_key()
        outcome = await self.ended(self.begin(key=key, attempt=attempt))
        if outcome is None:
            limit = f"{self.case.patience_seconds:g} s"
            raise Unusable(
                broken(
                    "result",
                    f"a plain call did not end within {limit}",
                    "let the case answer sooner, or give it more patience_seconds",
                )
            )
        return await self.finished_job(outcome, key) if isinstance(outcome, AcceptedJob) else outcome

    async def finished_job(self, job: AcceptedJob, key: str) -> Outcome:
        """Poll a job to its end; one that nobody can be asked about is returned as it is.

        Raises:
            Unusable: it had no outcome within the case's patience.
        """
        clock = SystemClock()
        end = clock.monotonic() + self.case.patience_seconds
        while True:
            try:
                answer = await self.dispatcher.poll(self.prepared(), job, self.context(key))
            except LookupError:
                return job
            if not isinstance(answer, Pending):
                return answer
            if clock.monotonic() > end:
                raise Unusable(
                    broken("poll", f"job {job.handle} had no outcome within {self.case.patience_seconds:g} s ({answer.reason or 'not yet'})", "let the case's jobs end sooner, or give it more patience_seconds")
                )  # fmt: skip
            await clock.sleep(min(job.interval_seconds, _SLICE_SECONDS))

    async def told_to_stop(self, task: "asyncio.Task[Outcome]") -> tuple[Outcome, bool]:
        """Return the outcome of an execution whose body was told to stop, and whether the body ended; one that does not is given up after the grace."""
        if await within(task, self.case.patience_seconds):
            return task.result(), await self.is_idle()
        self.clock.strike(_OPTIONS.grace_seconds + _END)
        if await within(task, _END):
            return task.result(), False
        return OutcomeUnknown("cancelled", "nothing came of it", is_running=True), False

    async def is_idle(self) -> bool:
        """Wait for all bodies to end, with patience, and tell whether they did."""
        return await within(self.spawn(wait_for(self.tool.idle)), self.case.patience_seconds)

    async def close(self) -> None:
        """Stop what still runs; bodies that cannot be stopped are left behind."""
        self.tool.lines.disarm()
        for task in self._tasks:
            task.cancel()
        for _ in range(10):
            await self.clock.sleep(0)


async def wait_for(event: asyncio.Event) -> None:
    """Wait until an event is set."""
    await event.wait()


class Bench:
    """Makes scenes of one case.

    Args:
        make: makes the case in a fresh folder.
        root: folder for all worlds.
    """

    def __init__(self, make: MakeCase, root: Path) -> None:
        self._make = make
        self._root = root
        self._worlds = 0
        self._baseline: Baseline | None = None

    def new_world(self) -> tuple[ToolCase, Path]:
        """Return a case in a fresh place, and the place for its runs."""
        self._worlds += 1
        place, runs = (self._root / f"{name}-{self._worlds}" for name in ("world", "runs"))
        place.mkdir(parents=True)
        runs.mkdir()
        return self._make(place), runs

    @asynccontextmanager
    async def scene(self) -> AsyncGenerator[Scene]:
        """Yield a scene, and stop what still runs in it afterwards."""
        case, workspace = self.new_world()
        folder = workspace / "run"
        folder.mkdir()
        put_files(case.files, folder)
        scene = Scene(case, folder)
        try:
            yield scene
        finally:
            await scene.close()

    async def baseline(self) -> Baseline:
        """Return what a clean execution looks like; made on first use, in two worlds, so that effects are known to be comparable.

        Raises:
            Unusable: the case's call does not succeed, or its effect differs from world to world.
        """
        if self._baseline is None:
            first, second = await self._clean(is_traced=True), await self._clean(is_traced=False)
            refuse_incomparable(first, second)
            # Tracing takes time, so how long a body keeps the loop is told by the other execution.
            self._baseline = replace(first, longest_seconds=second.longest_seconds)
        return self._baseline

    async def _clean(self, *, is_traced: bool) -> Baseline:
        async with self.scene() as scene:
            none = await scene.look()
            scene.tool.lines.is_on = is_traced
            outcome = await scene.execute()
            scene.tool.lines.is_on = False
            if not isinstance(outcome, (Done, AcceptedJob)):
                raise Unusable(_useless(outcome, scene.tool))
            is_plain_tool = is_plain(scene.case.tool)
            return Baseline(
                none=none,
                once=await scene.look(),
                outcome=outcome,
                awaits=0 if is_plain_tool else scene.tool.awaits,
                lines=scene.tool.lines.count,
                longest_seconds=0.0 if is_plain_tool and not scene.tool.traits.inline else scene.tool.longest_seconds,
                traits=scene.tool.traits,
                is_plain=is_plain_tool,
                is_job=any(isinstance(item, Accepted) for item in scene.tool.returned),
            )


def _useless(outcome: FailedCall | OutcomeUnknown, tool: WatchedTool) -> Finding:
    said = outcome.message if isinstance(outcome, FailedCall) else outcome.reason
    if isinstance(outcome, FailedCall) and tool.returned:
        return broken(
            "result",
            f"the body ran, and what it returned cannot be recorded, so the call counts as failed: {said}",
            "return None, booleans, numbers, text, lists, dicts with text keys, or models of them; name artifacts by relative paths",
        )
    return broken(
        "result", f"the case's own call does not succeed: {said}", "give arguments and a world in which a call succeeds"
    )
