"""`CrashPoint`: named places in the work of a process at which a test lets it die, stop, or fail.

A store, a task's tools and its planner are wrapped; nothing in production code knows of it. Each call passes two points, one before its effect and one after
it: `before append tool_done`, `after append tool_done`, `before body charge`. The n-th point that fits does its deed. The invariant: a wrapper changes nothing but
what the deed does, so a run with a point that is never reached is the run as it is without.
"""

import asyncio
import inspect
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Literal, TypeAlias, TypeVar

from msgspec.structs import replace

from checkrein.harness.asking import Drafted, DraftingPlanner, PlanningRequest, SessionPlanner
from checkrein.harness.cuts import CompactingPlanner
from checkrein.harness.planners import LastError, Note, Plan, Step, StepRecord
from checkrein.loop.compaction import Compaction
from checkrein.loop.summary import Summary, SummaryAsked
from checkrein.ports.model import ToolSchema
from checkrein.ports.store import Appended, NewLease, Refusal, Row, RunHead, RunQuery, RunRow, RunStore, StoreReport
from checkrein.ports.tool import (
    Accepted,
    CancelSignal,
    PollResult,
    Reconciliation,
    Tool,
    ToolContext,
    ToolOutput,
    ToolTraits,
)
from checkrein.runs.task import Task
from checkrein.values import JsonObject

__all__ = ["EFFECTS", "CrashPoint"]

T = TypeVar("T")

Deed: TypeAlias = Literal["kill", "exit", "stop"] | Callable[[str], object]

EFFECTS: Final = (
    "before append", "after append", "before claim", "after claim", "before release", "after release", "before body", "after body",
)  # fmt: skip
"""The beginnings of the points around all effects of a worker that advances a run."""
EXIT_CODE: Final = 70


class CrashPoint:
    """Does a deed at the n-th point that fits.

    Args:
        at: which of them, from 1; 0 for none, to find out which points there are.
        among: how the names of fitting points begin; `("",)` for all.
        deed: `kill` (SIGKILL, nothing is cleaned up), `exit` (at once, code 70), `stop` (SIGSTOP, while none of the process's writes is under way, because a
            process that is stopped inside a commit holds up every other one), or a function that is called with the point's name and may raise or be awaited.

    Attributes:
        passed: the names of the fitting points so far, in order.
    """

    def __init__(self, at: int = 0, *, among: Sequence[str] = EFFECTS, deed: Deed = "kill") -> None:
        self.passed: list[str] = []
        self._at = at
        self._among = tuple(among)
        self._deed = deed
        self._writes = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    def store(self, store: RunStore) -> RunStore:
        """Return the store with a point before and after each of its calls; of those that append, the name ends with the events' types."""
        return _Store(store, self)

    def tool(self, tool: Tool) -> Tool:
        """Return the tool with points around its body, its probe and its poll."""
        return _Tool(tool, self)

    def planner(self, planner: SessionPlanner) -> SessionPlanner:
        """Return the planner with points around its answer, and around its summaries if it writes any."""
        if isinstance(planner, DraftingPlanner) and isinstance(planner, CompactingPlanner):
            return _Compacting(planner, planner, self)
        if isinstance(planner, DraftingPlanner):
            return _Drafting(planner, self)

        async def planned(
            goal: str, history: tuple[StepRecord | Note, ...], last_error: LastError | None
        ) -> Plan | Sequence[Step]:
            await self.reach("before plan")
            answer = planner(goal, history, last_error)
            made = await answer if inspect.isawaitable(answer) else answer
            await self.reach("after plan")
            return made

        return planned

    def task(self, task: Task) -> Task:
        """Return the task with points around its tools and its planner, and around those of its children."""
        return replace(
            task,
            tools=tuple(map(self.tool, task.tools)),
            planner=self.planner(task.planner),
            children=tuple(map(self.task, task.children)),
        )

    async def reach(self, name: str) -> None:
        """Pass a point."""
        if not name.startswith(self._among):
            return
        self.passed.append(name)
        if len(self.passed) != self._at:
            return
        if not isinstance(self._deed, str):
            result = self._deed(name)
            if inspect.isawaitable(result):
                await result
        elif self._deed == "stop":
            await self._stop()
        elif self._deed == "exit":
            os._exit(EXIT_CODE)
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    async def _stop(self) -> None:
        while self._writes:
            self._quiet.clear()
            await self._quiet.wait()
        os.kill(os.getpid(), signal.SIGSTOP)

    async def around(self, name: str, work: Awaitable[T], *, writes: bool = False) -> T:
        """Await `work` between the two points of that name."""
        try:
            await self.reach(f"before {name}")
        except BaseException:
            if inspect.iscoroutine(work):
                work.close()
            raise
        self._writes += writes
        try:
            result = await work
        finally:
            self._writes -= writes
            if not self._writes:
                self._quiet.set()
        await self.reach(f"after {name}")
        return result


class _Drafting:
    """A planner that drafts between two points."""

    def __init__(self, inner: DraftingPlanner, point: CrashPoint) -> None:
        self._inner = inner
        self._point = point

    async def draft(self, request: PlanningRequest) -> Drafted:
        """Return what the planner drafts."""
        return await self._point.around("plan", self._inner.draft(request))


class _Compacting(_Drafting):
    """A planner that drafts and writes summaries, each between two points."""

    def __init__(self, inner: DraftingPlanner, writer: CompactingPlanner, point: CrashPoint) -> None:
        super().__init__(inner, point)
        self._writer = writer

    @property
    def compaction(self) -> Compaction | None:
        """Return when the planner makes its transcript shorter."""
        return self._writer.compaction

    def offered(self, tools: tuple[ToolSchema, ...]) -> tuple[ToolSchema, ...]:
        """Return the tools that it sends."""
        return self._writer.offered(tools)

    async def summarise(self, asked: SummaryAsked, signal: CancelSignal) -> Summary:
        """Return its summary."""
        return await self._point.around("summary", self._writer.summarise(asked, signal))


class _Store:
    """A store whose calls pass points; see `checkrein.ports.store.RunStore` for what they do."""

    def __init__(self, inner: RunStore, point: CrashPoint) -> None:
        self._inner = inner
        self._around = point.around
        self._reach = point.reach

    async def create(self, run_id: str, request_id: str, rows: Sequence[Row], head: RunHead, *, epoch: int = 0) -> str:
        """Create a run."""
        work = self._inner.create(run_id, request_id, rows, head, epoch=epoch)
        return await self._around(f"create {_types(rows)}", work, writes=True)

    async def append(
        self, run_id: str, *, version: int, epoch: int | None, rows: Sequence[Row], head: RunHead
    ) -> Appended:
        """Append a batch."""
        work = self._inner.append(run_id, version=version, epoch=epoch, rows=rows, head=head)
        return await self._around(f"append {_types(rows)}", work, writes=True)

    async def claim(
        self, run_id: str, *, version: int, lease: NewLease, rows: Sequence[Row], head: RunHead
    ) -> Appended:
        """Take the lease."""
        work = self._inner.claim(run_id, version=version, lease=lease, rows=rows, head=head)
        return await self._around(f"claim {_types(rows)}", work, writes=True)

    async def renew(self, run_id: str, *, epoch: int, seconds: float) -> None:
        """Renew the lease."""
        await self._around("renew", self._inner.renew(run_id, epoch=epoch, seconds=seconds), writes=True)

    async def release(self, run_id: str, *, epoch: int) -> bool:
        """Give the lease back."""
        return await self._around("release", self._inner.release(run_id, epoch=epoch), writes=True)

    async def get(self, run_id: str) -> RunRow:
        """Return one run."""
        return await self._around("get", self._inner.get(run_id))

    async def find_event(self, run_id: str, event_id: str) -> tuple[int, bytes] | None:
        """Return an accepted event's place."""
        return await self._around("find_event", self._inner.find_event(run_id, event_id))

    async def find_request(self, request_id: str) -> str | None:
        """Return the run of a request."""
        return await self._around("find_request", self._inner.find_request(request_id))

    async def read(self, run_id: str, offset: int = 0, limit: int | None = None) -> Sequence[bytes]:
        """Return events."""
        return await self._around("read", self._inner.read(run_id, offset, limit))

    async def follow(self, run_id: str, offset: int = 0) -> AsyncIterator[bytes]:
        """Yield events as they come."""
        await self._reach("before follow")
        async for body in self._inner.follow(run_id, offset):
            yield body
            await self._reach("after follow")

    async def list_runs(self, query: RunQuery) -> Sequence[RunRow]:
        """Return runs."""
        return await self._around("list_runs", self._inner.list_runs(query))

    async def record_refusal(self, run_id: str, refusal: Refusal) -> None:
        """Append to the audit."""
        name = f"record_refusal {refusal.type}"
        await self._around(name, self._inner.record_refusal(run_id, refusal), writes=True)

    async def refusals(self, run_id: str) -> Sequence[Refusal]:
        """Return the audit."""
        return await self._around("refusals", self._inner.refusals(run_id))

    async def report(self) -> StoreReport:
        """Check the storage."""
        return await self._around("report", self._inner.report())

    async def aclose(self) -> None:
        """Close the store."""
        await self._inner.aclose()


def _types(rows: Sequence[Row]) -> str:
    return " ".join(row.type for row in rows)


class _Tool:
    """A tool whose executions pass points; see `checkrein.ports.tool.Tool` for what they do."""

    def __init__(self, inner: Tool, point: CrashPoint) -> None:
        self._inner = inner
        self._around = point.around

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
        return await self._around(f"body {self.name}", self._inner.call(arguments, context))

    async def probe(self, arguments: JsonObject, context: ToolContext) -> Reconciliation:
        """Ask what became of a call."""
        return await self._around(f"probe {self.name}", self._inner.probe(arguments, context))

    async def poll(self, handle: str, arguments: JsonObject, context: ToolContext) -> PollResult:
        """Ask what became of a job."""
        return await self._around(f"poll {self.name}", self._inner.poll(handle, arguments, context))
