"""A run that has been through much, and what forks of it are held to."""

from collections.abc import Sequence

from msgspec.structs import replace

from checkrein.clock import SystemIds
from checkrein.harness.permission import Decision
from checkrein.harness.planners import LastError, Note, Plan, Step, StepRecord
from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import Event, LeaseTaken
from checkrein.kernel.state import Phase, RunState
from checkrein.ports.tool import ToolContext
from checkrein.runs.fork import ForkResult, Forks
from checkrein.runs.task import Task
from checkrein.tools.function import FunctionTool, tool
from checkrein.values import JsonData, JsonObject
from tests.unit.runs.scene import Scene, step, write

__all__ = ["Story"]


class Story:
    """A task whose planner remembers nothing, with tools that say under which keys they ran.

    Its run is steered, asks for a permission, has a step that fails and is planned anew, uses its budget up and is extended, reports a file that proves nothing, is
    repaired, and succeeds.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.ran: list[str] = []
        self.told: list[str] = []
        self.task = self.make()

    def make(self, *, code_hash: str = "", version: int = 1, text: str = "all well") -> Task:
        """Return the task; another `text` is another plan."""

        async def planner(
            _goal: str, history: tuple[StepRecord | Note, ...], last_error: LastError | None
        ) -> Sequence[Step] | Plan:
            return self.plan(text, history, last_error)

        task = self.scene.task(planner, *self.tools(), budget=Budget(tool_calls=3), policy=ask_to_pay)
        return replace(task, version=version, code_hash=code_hash)

    def tools(self) -> tuple[FunctionTool, ...]:
        """Return tools none of which may run twice: one works, one fails."""

        @tool(name="pay", inline=True)
        def pay(context: ToolContext) -> str:
            self.ran.append(context.idempotency_key)
            return "paid"

        @tool(name="fail", inline=True)
        def fail(context: ToolContext) -> str:
            self.ran.append(context.idempotency_key)
            msg = "no"
            raise ValueError(msg)

        return pay, fail

    def plan(
        self, text: str, history: Sequence[StepRecord | Note], last_error: LastError | None
    ) -> Sequence[Step] | Plan:
        """Decide by what happened alone."""
        self.told += [item.text for item in history if isinstance(item, Note) and item.text not in self.told]
        if last_error is not None and last_error.kind == "check":
            return [write("again", text=text)]
        if last_error is None:
            return Plan([write("draft", text=""), step("pay"), step("fail")], final=False)
        return [Step(id="look", description="look"), step("pay again", "pay"), write("empty", text="")]

    async def run(self) -> str:
        """Work a run to its end and return its id."""
        worker = self.scene.worker(self.task)
        run_id = await worker.submit(self.task, request_id="order")
        await worker.steer(run_id, "be kind")
        state = await self.finish(run_id, self.task)
        assert state.phase is Phase.SUCCEEDED, state
        return run_id

    async def finish(self, run_id: str, task: Task) -> RunState:
        """Advance a run to its end, and say yes to whatever it asks."""
        worker = self.scene.worker(task)
        while (state := await worker.advance(run_id)).phase is Phase.BLOCKED:
            for cause in state.causes:
                if cause.kind == "budget":
                    await worker.extend(run_id, Amounts(tool_calls=9))
                else:
                    await worker.unblock(run_id, cause.id, answer=JsonData("allow"))
        return state

    def forks(self) -> Forks:
        """Return what makes forks."""
        return Forks(self.scene.store, clock=self.scene.clock, ids=SystemIds(), actor="user:ann")

    async def check_copy(self, made: ForkResult, events: Sequence[Event]) -> None:
        """Hold a fork to the log it was made of: the same facts about another run, but for what was measured, which stays about the old one."""
        log = await self.scene.log(made.run_id)
        await self.scene.check_log(made.run_id)
        assert {event.run_id for event in log} == {made.run_id}
        for old, new in zip(events[1 : made.fork_at], log[1 : made.fork_at], strict=True):
            if isinstance(old.data, LeaseTaken):
                folder = made.run_id if old.data.folder else ""
                assert new == replace(old, run_id=made.run_id, data=replace(old.data, folder=folder))
            else:
                assert new == replace(old, run_id=made.run_id)


def ask_to_pay(name: str, _arguments: JsonObject) -> Decision:
    """Ask a person before each payment."""
    return "ask" if name == "pay" else "allow"
