"""The examples as tasks: copied to a folder of the test's own, and driven to their rest in this process."""

import shutil
from pathlib import Path

import msgspec
from msgspec.structs import replace

from checkrein import RunState, Task, Worker
from checkrein.cli.resolver import FolderResolver
from checkrein.cli.trust import take_folder
from checkrein.codec.wire import decode_events
from checkrein.harness.asking import DraftingPlanner
from checkrein.harness.planners import LastError, Note, Plan, Planner, StepRecord
from checkrein.kernel.events import EventData, ToolGranted
from checkrein.ports.store import RunStore
from checkrein.runs.worker import WorkerOptions
from checkrein.store import MemoryStore

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
REPORT = "store-report"
LIAR = "store-report-liar"

History = tuple[StepRecord | Note, ...]


def copied(folder: Path) -> Path:
    """Return a copy of the examples, without results of earlier runs."""
    target = folder / "examples"
    shutil.copytree(EXAMPLES, target, ignore=shutil.ignore_patterns("out", "__pycache__"))
    return target


def loaded(examples: Path, name: str = REPORT) -> Task:
    """Return the task of a copied example."""
    folder = examples / name
    return Task.load(folder, resolve=FolderResolver(take_folder(folder / "task.toml")))


class Bench:
    """One task, one store, one worker that advances only what it is told to."""

    def __init__(self, task: Task, store: RunStore | None = None) -> None:
        self.task = task
        self.store = store or MemoryStore()
        self.worker = Worker(store=self.store, tasks=[task], options=WorkerOptions(claims="named"))

    async def run(self, *, steer: str = "", follow_up: str = "") -> RunState:
        """Submit a run, queue the notes, and advance it until it rests."""
        run_id = await self.worker.submit(self.task)
        if steer:
            await self.worker.steer(run_id, steer)
        if follow_up:
            await self.worker.follow_up(run_id, follow_up)
        return await self.worker.advance(run_id)

    async def facts(self, run_id: str) -> list[EventData]:
        """Return what the run's log holds, in order."""
        return [event.data for event in decode_events(await self.store.read(run_id), run_id=run_id)]

    async def granted(self, run_id: str) -> list[str]:
        """Return the tools that were granted, in order."""
        return [fact.tool.name for fact in await self.facts(run_id) if isinstance(fact, ToolGranted)]

    def file(self, state: RunState, path: str) -> Path:
        """Return a file of the run."""
        return self.task.workspace / state.folder / path

    def text(self, state: RunState, path: str = "report.md") -> str:
        """Return a text that the run wrote."""
        return self.file(state, path).read_text(encoding="utf-8")


def planned_by(task: Task, planner: Planner) -> Task:
    """Return the task with another planner."""
    return replace(task, planner=planner)


def limited(task: Task, tool_calls: int) -> Task:
    """Return the task with another limit on tool calls."""
    return replace(task, budget=msgspec.structs.replace(task.budget, tool_calls=tool_calls))


def asked(task: Task, history: History, last_error: LastError | None) -> Plan:
    """Ask a task's plain planner."""
    planner = task.planner
    assert not isinstance(planner, DraftingPlanner)
    answer = planner(task.goal, history, last_error)
    assert isinstance(answer, Plan)
    return answer
