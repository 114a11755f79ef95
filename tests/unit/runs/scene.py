"""A store, a clock that stands still, tools that obey the test, and workers: what every test of runs begins with."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TypeVar

from checkrein.clock import SystemIds
from checkrein.codec.wire import decode_events
from checkrein.errors import VerifierFailed
from checkrein.harness.permission import Policy, allow_listed
from checkrein.harness.planners import LastError, Note, Plan, Planner, Step, StepRecord
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import Event
from checkrein.kernel.session_next import OnFailure
from checkrein.kernel.state import RunState
from checkrein.ports.store import Refusal, RunStore
from checkrein.ports.tool import ToolContext, ToolOutput
from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.runs.commands import Commands
from checkrein.runs.replay import replay_run
from checkrein.runs.task import Task
from checkrein.runs.worker import Worker, WorkerOptions
from checkrein.store import MemoryStore
from checkrein.testing import CrashPoint, ManualClock
from checkrein.tools.function import FunctionTool, tool
from checkrein.tools.outcomes import RetryPolicy

__all__ = ["Exists", "Gate", "Scene", "Script", "gate", "hang", "misuse", "put", "step", "write"]

LEASE_SECONDS = 5.0
T = TypeVar("T")


def step(name: str, tool_name: str = "") -> Step:
    """Return a step that calls a tool without arguments, by default the one of its own name."""
    return Step(id=name, description=f"call {name}", tool_name=tool_name or name)


def misuse() -> Step:
    """Return a step whose call its tool's schema refuses."""
    return Step(id="misuse", description="misuse", tool_name="put", arguments={"path": 1})


def write(name: str = "report", path: str = "report.txt", text: str = "all well") -> Step:
    """Return a step that writes a file."""
    return Step(id=name, description="write", tool_name="put", arguments={"path": path, "text": text})


async def hang(_name: str = "") -> None:
    """Wait for ever."""
    await asyncio.Event().wait()


@tool(idempotent=True, inline=True)
def put(path: str, text: str, context: ToolContext) -> ToolOutput:
    """Write a file."""
    (context.folder() / path).write_text(text, encoding="utf-8")
    return ToolOutput(len(text), artifacts=(path,))


class Exists:
    """A check that a file is there and not empty; `before` may interfere, `broken` makes it unable to run."""

    def __init__(
        self, path: str = "report.txt", before: Callable[[CheckContext], Awaitable[None]] | None = None
    ) -> None:
        self.subject = path
        self.before = before
        self.broken = ""
        self.measured = 0

    kind = "exists"
    version = "1"

    @property
    def title(self) -> str:
        return f"{self.subject} exists"

    async def measure(self, context: CheckContext) -> Measurement:
        self.measured += 1
        if self.before is not None:
            await self.before(context)
        if self.broken:
            raise VerifierFailed(self.broken)
        text = (context.folder / self.subject).read_text(encoding="utf-8")
        return Measurement(passed=bool(text), text=f"{len(text)} characters", code="" if text else "empty")


class Script:
    """A planner that gives the next of its answers each time, and remembers what it was told."""

    def __init__(self, *answers: Sequence[Step] | Plan | BaseException) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[tuple[StepRecord | Note, ...], LastError | None]] = []

    async def __call__(
        self, goal: str, history: tuple[StepRecord | Note, ...], last_error: LastError | None
    ) -> Sequence[Step] | Plan:
        assert goal
        self.asked.append((history, last_error))
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def notes(self, turn: int) -> list[str]:
        """The notes in the history that was given at that asking, counted from 0."""
        return [item.text for item in self.asked[turn][0] if isinstance(item, Note)]


def gate(name: str = "held", *, idempotent: bool = False, cancellable: bool = True) -> tuple[FunctionTool, "Gate"]:
    """Return a tool that tells when its body runs and then waits to be let go, and the handle on it."""
    handle = Gate()

    async def body(context: ToolContext) -> str:
        return await handle.body(context, cancellable=cancellable)

    return tool(name=name, idempotent=idempotent, cancellable=cancellable)(body), handle


class Gate:
    """The test's hand on a tool's body."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.attempts: list[int] = []
        self.ended = 0

    async def body(self, context: ToolContext, *, cancellable: bool) -> str:
        self.attempts.append(context.attempt)
        self.entered.set()
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                if cancellable:
                    raise
        self.ended += 1
        return f"done in attempt {context.attempt}"


class Scene:
    """One store, one clock, one workspace."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.store: RunStore = MemoryStore(clock=self.clock)
        self.folder = folder / "out"

    def task(
        self,
        planner: Planner | Sequence[Step],
        *tools: FunctionTool,
        checks: Sequence[Exists] = (),
        budget: Budget | None = None,
        policy: Policy = allow_listed,
        on_failure: OnFailure = "replan",
    ) -> Task:
        """Return a task whose planner may be a fixed plan; `put` is always among its tools."""
        return Task(
            name="scene",
            goal="a report",
            planner=planner if callable(planner) else Script(planner),
            tools=(put, *tools),
            checks=checks or (Exists(),),
            budget=budget or Budget(),
            workspace=self.folder,
            policy=policy,
            on_failure=on_failure,
        )

    def worker(self, *tasks: Task, store: RunStore | None = None, name: str = "worker", attempts: int = 3) -> Worker:
        """Return a worker that advances only what it is told to."""
        options = WorkerOptions(
            name=name, claims="named", lease_seconds=LEASE_SECONDS, retry=RetryPolicy(attempts=attempts)
        )
        return Worker(store=store or self.store, tasks=tasks, clock=self.clock, options=options)

    def commands(self) -> Commands:
        """Return the users' side."""
        return Commands(self.store, clock=self.clock, ids=SystemIds(), actor="user:test")

    def deaf(self, store: RunStore | None = None) -> RunStore:
        """Return the store as a process sees it that was stopped: its lease is never renewed."""
        return CrashPoint(at=1, among=("before renew",), deed=hang).store(store or self.store)

    async def crash(self, task: Task, run_id: str, *names: str, at: int = 1) -> None:
        """Let a worker advance a run to the n-th point whose name begins so, never go on, and lose its lease."""
        reached = asyncio.Event()

        async def die(_name: str) -> None:
            reached.set()
            await hang()

        point = CrashPoint(at=at, among=names, deed=die)
        worker = self.worker(point.task(task), store=self.deaf(point.store(self.store)), name="crashed")
        self.spawn(worker.advance(run_id))
        await reached.wait()
        await self.clock.advance(LEASE_SECONDS + 1)

    def spawn(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Start something beside the test."""
        return self.clock.spawn(work, name="test")

    async def log(self, run_id: str) -> list[Event]:
        """Return a run's events."""
        return decode_events(await self.store.read(run_id), run_id=run_id)

    async def types(self, run_id: str) -> list[str]:
        """Return the types of a run's events."""
        return [event.type for event in await self.log(run_id)]

    async def refused(self, run_id: str) -> list[tuple[str, str]]:
        """Return type and code of what the audit holds."""
        found: Sequence[Refusal] = await self.store.refusals(run_id)
        return [(item.type, item.code) for item in found]

    async def until(self, run_id: str, holds: Callable[[RunState], bool]) -> RunState:
        """Return the first state of a run that fits, as soon as it is there."""
        worker = self.worker()
        async for _ in self.store.follow(run_id):
            state = await worker.state(run_id)
            if holds(state):
                return state
        msg = f"run {run_id} ended without it: {await self.types(run_id)}"
        raise AssertionError(msg)

    async def check_log(self, run_id: str) -> None:
        """Hold a log to what every log must be: it replays, and a terminal run has one end."""
        replay = await replay_run(self.store, run_id)
        assert replay.is_equal, replay.divergence
        types = [event.type for event in replay.events]
        state = replay.state
        assert state is not None
        assert types.count("session.complete") == (1 if state.phase.is_terminal else 0)
        assert state.budget.used.tool_calls == types.count("tool_granted") == types.count("tool.call")
        assert state.budget.used.turns == types.count("turn_granted")
