"""Parents and children for the tests of child runs."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from checkrein.harness.permission import Decision
from checkrein.harness.planners import LastError, Note, Planner, Step, StepRecord
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import EventData
from checkrein.ports.tool import ChildRun, ToolContext
from checkrein.runs.task import Task
from checkrein.tools.function import FunctionTool, tool
from checkrein.values import JsonObject
from tests.unit.runs.scene import Scene, write

__all__ = ["SHARE", "always", "ask_to_send", "child_task", "delegate", "facts", "parent_task"]

SHARE: Final[Mapping[str, float]] = {"turns": 2, "tool_calls": 2, "steps": 3}
F = TypeVar("F", bound=EventData)


def always(*steps: Step) -> Planner:
    """Return a planner that gives the same plan each time, for tasks of which there are several runs."""

    def plan(_goal: str, _history: tuple[StepRecord | Note, ...], _last_error: LastError | None) -> Sequence[Step]:
        return steps

    return plan


def delegate(
    share: Mapping[str, float] | None = SHARE, *, name: str = "delegate", child: str = "child"
) -> FunctionTool:
    """Return a tool that hands its work to a child run."""

    async def body(context: ToolContext) -> ChildRun:
        return await context.runs.start(child, goal="the child's part", share=share)

    return tool(name=name, idempotent=True)(body)


def child_task(scene: Scene, planner: Planner | Sequence[Step] | None = None, *tools: FunctionTool) -> Task:
    """Return a task for children; by default one that writes its report."""
    return replace(scene.task(planner or always(write()), *tools), name="child")


def parent_task(
    scene: Scene, planner: Planner | Sequence[Step], *tools: FunctionTool, child: Task, budget: Budget | None = None
) -> Task:
    """Return a task whose tools may start runs of `child`."""
    return replace(scene.task(planner, *tools, budget=budget), children=(child,))


def ask_to_send(name: str, _arguments: JsonObject) -> Decision:
    """Ask a person before anything is sent."""
    return "ask" if name == "send" else "allow"


async def facts(scene: Scene, run_id: str, kind: type[F]) -> list[F]:
    """Return the facts of one kind in a run's log."""
    return [event.data for event in await scene.log(run_id) if isinstance(event.data, kind)]
