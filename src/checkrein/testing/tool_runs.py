"""One run that calls the tool once, two workers on one store, and a crash of the first at a chosen point.

The workers, the store and the lifecycle are the real ones. The first worker has a clock of its own, which stands still: so it never renews its lease, and no limit of
its body strikes while it is dead or stopped. A crash is a worker that never goes on; a stopped worker goes on later as if nothing had happened. The invariant: the
second worker knows of the first only what the store says. Where it matters most, the two even have stores of their own on one file, as two processes have.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from checkrein.harness.planners import LastError, Note, Plan, Step, StepRecord
from checkrein.kernel.state import Call, RunState
from checkrein.ports.store import RunStore
from checkrein.ports.tool import Accepted, ToolContext
from checkrein.ports.verifier import CheckContext
from checkrein.runs.task import Task
from checkrein.runs.worker import Worker, WorkerOptions
from checkrein.runs.workspace import folder_of
from checkrein.store import MemoryStore, SqliteStore
from checkrein.testing.tool_bench import Bench, StruckClock, within
from checkrein.testing.tool_case import ToolCase, effect_of, put_files
from checkrein.testing.tool_lines import Died, Line
from checkrein.testing.tool_report import Unusable, broken
from checkrein.testing.tool_watch import Point, WatchedTool
from checkrein.tools.function import tool
from checkrein.tools.outcomes import RetryPolicy
from checkrein.verify.functions import FunctionVerifier

__all__ = ["Found", "RunScene", "run_scene"]

LEASE_SECONDS: Final = 5.0
_PUT: Final = "put_files_of_the_case"
_CALL: Final = "call"


class Found(msgspec.Struct, frozen=True):
    """What the next worker made of a run.

    Attributes:
        state: the run, at rest.
        call: the tool's call; None when it was never granted.
        effect: the effect at that time.
        bodies: bodies begun so far.
    """

    state: RunState
    call: Call | None
    effect: object
    bodies: int

    @property
    def status(self) -> str:
        """What became of the call."""
        return self.call.status if self.call is not None else "not made"

    @property
    def asks_person(self) -> bool:
        """Whether the run waits until a person says what became of the call."""
        return self.call is not None and self.state.asks_person(self.call)


class RunScene:
    """A world with a run in it.

    Attributes:
        clock: the time of leases, and of all workers but the first.
        tool: the tool, watched.
    """

    def __init__(self, case: ToolCase, workspace: Path, *, is_durable: bool) -> None:
        self.clock = StruckClock()
        self._first_clock = StruckClock()
        self.tool = WatchedTool(case.tool)
        self._case = case
        self._store: RunStore
        self._first_store: RunStore
        if is_durable:
            path = workspace / "runs.db"
            self._store = SqliteStore(path, clock=self.clock)
            self._first_store = SqliteStore(path, clock=self._first_clock)
        else:
            self._store = self._first_store = MemoryStore(clock=self.clock)
        self._task = _task(case, self.tool, workspace)
        self._run_id = ""
        self._resumed = asyncio.Event()
        self._tasks: list[asyncio.Task[RunState]] = []

    async def begin(self) -> "asyncio.Task[RunState]":
        """Store the run, and let a first worker, which never renews its lease, advance it."""
        self._run_id = await self._worker("first").submit(self._task)
        return self._advance(self._worker("first"))

    def _advance(self, worker: Worker) -> "asyncio.Task[RunState]":
        task = self.clock.spawn(worker.advance(self._run_id), name=f"run of {self.tool.name}")
        self._tasks.append(task)
        return task

    def _worker(self, name: str) -> Worker:
        is_first = name == "first"
        clock, store = (self._first_clock, self._first_store) if is_first else (self.clock, self._store)
        # Nothing is retried for a failure: each scenario is about one execution, or about a recovery.
        options = WorkerOptions(name=name, claims="named", lease_seconds=LEASE_SECONDS, retry=RetryPolicy(attempts=1))
        return Worker(store=store, tasks=[self._task], clock=clock, options=options)

    async def crash(self, point: Point | Line) -> bool:
        """Let the first worker die at a point, and its lease end; False when the body never got there."""
        reached = asyncio.Event()

        async def die() -> None:
            reached.set()
            if isinstance(point, int):
                raise Died
            await asyncio.Event().wait()

        if isinstance(point, Line):
            self.tool.lines.die_at(point)
        self.tool.at("died" if isinstance(point, Line) else point, die)
        return await self._until(reached, await self.begin())

    async def stop(self, point: Point) -> "asyncio.Task[RunState] | None":
        """Let the first worker stand still at a point until `resume`, whoever cancels it, and its lease end; None when the body never got there."""
        reached = asyncio.Event()

        async def stand_still() -> None:
            reached.set()
            await _deaf_to_cancellation(self._resumed)

        self.tool.at(point, stand_still)
        first = await self.begin()
        return first if await self._until(reached, first) else None

    async def _until(self, reached: asyncio.Event, first: "asyncio.Task[RunState]") -> bool:
        waiting = self.clock.spawn(reached.wait(), name="until")
        end = self.clock.spawn(_first_of(waiting, first), name="until or end")
        if not await within(end, self._case.patience_seconds, tick=self._let_jobs_go_on):
            self._refuse_slow("the run did not get to its call")
        waiting.cancel()
        if reached.is_set():
            await self.clock.advance(LEASE_SECONDS + 1)
        return reached.is_set()

    async def take_over(self) -> Found:
        """Let a second worker advance the run until it rests.

        Raises:
            Unusable: it did not rest within the case's patience.
        """
        return await self.rests(self._advance(self._worker("second")))

    async def rests(self, task: "asyncio.Task[RunState]") -> Found:
        """Return what a worker made of the run.

        Raises:
            Unusable: it did not rest within the case's patience.
        """
        if not await within(task, self._case.patience_seconds, tick=self._let_jobs_go_on):
            self._refuse_slow("the run did not come to rest")
        return await self.found(task.result())

    async def found(self, state: RunState | None = None) -> Found:
        """Return how the run stands now."""
        state = state or await self._worker("reader").state(self._run_id)
        calls = [call for call in (*state.settled_calls, *state.open_calls) if call.tool.name == self.tool.name]
        return Found(state, calls[-1] if calls else None, await self.look(state), self.tool.begun)

    async def look(self, state: RunState | None = None) -> object:
        """Return the effect as it is now, in the folder that counts."""
        state = state or await self._worker("reader").state(self._run_id)
        return await effect_of(self._case, folder_of(self._task.workspace, state))

    async def resume(self, first: "asyncio.Task[RunState]") -> BaseException | None:
        """Let a stopped worker go on, and return what it met; None when it noticed nothing."""
        self._resumed.set()
        if not await within(first, self._case.patience_seconds):
            self._refuse_slow("the stopped worker did not end after it went on")
        return None if first.cancelled() else first.exception()

    async def cancel(self) -> None:
        """Cancel the run, as its user would."""
        await self._worker("user").cancel(self._run_id, "enough")

    async def close(self) -> None:
        """Stop what still runs."""
        self.tool.lines.disarm()
        self._resumed.set()
        for task in self._tasks:
            task.cancel()
        for _ in range(10):
            await self.clock.sleep(0)
        for store in (self._first_store, self._store):
            await store.aclose()

    async def _let_jobs_go_on(self) -> None:
        """Let a second pass once a job was accepted; while a body runs no time passes, so that no limit strikes."""
        if any(isinstance(item, Accepted) for item in self.tool.returned):
            await self.clock.advance(1.0)
            await self._first_clock.advance(1.0)

    def _refuse_slow(self, what: str) -> None:
        seen = f"{what} within {self._case.patience_seconds:g} s"
        raise Unusable(broken("result", seen, "let the case answer sooner, or give it more patience_seconds"))


@asynccontextmanager
async def run_scene(bench: Bench, *, is_durable: bool = False) -> AsyncGenerator[RunScene]:
    """Yield a run in a fresh world, and stop what still runs in it afterwards.

    Args:
        bench: makes the world.
        is_durable: give each worker a store of its own on one database file, instead of one in memory that both share.
    """
    scene = RunScene(*bench.new_world(), is_durable=is_durable)
    try:
        yield scene
    finally:
        await scene.close()


def _task(case: ToolCase, watched: WatchedTool, workspace: Path) -> Task:
    @tool(name=_PUT, idempotent=True, inline=True)
    def put(context: ToolContext) -> None:
        put_files(case.files, context.folder())

    steps = [Step(id=_CALL, description=f"call {watched.name}", tool_name=watched.name, arguments=case.arguments)]
    if case.files:
        steps.insert(0, Step(id="files", description="put the case's files", tool_name=_PUT))

    async def plan(_goal: str, history: Sequence[StepRecord | Note], last_error: LastError | None) -> Plan:
        # Whatever became of the call, it is not planned twice.
        return Plan(() if history or last_error else steps)

    return Task(
        name="conformance",
        goal=f"call {watched.name} once",
        planner=plan,
        tools=[watched, put],
        checks=[FunctionVerifier(function=_true, title="the run ended")],
        inputs=case.inputs,
        workspace=workspace,
        on_failure="abort",
    )


def _true(_context: CheckContext) -> bool:
    return True


async def _deaf_to_cancellation(event: asyncio.Event) -> None:
    while not event.is_set():
        try:
            await event.wait()
        except asyncio.CancelledError:
            # A process that stands still hears nothing.
            continue


async def _first_of(*tasks: "asyncio.Task[object]") -> None:
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
