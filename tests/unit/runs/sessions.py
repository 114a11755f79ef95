"""What the tests of runs that drive sessions share: tools that remember what they did, hooks that can be counted, a restart on the same file, and a task with a batch."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from checkrein.errors import HookAbort
from checkrein.harness.hooks import Hooks, Pause, Topic
from checkrein.harness.permission import Decision
from checkrein.harness.planners import LastError, Note, Plan, Step, StepRecord
from checkrein.kernel.events import Event, EventData, StepEnd
from checkrein.kernel.state import RunState
from checkrein.ports.tool import ToolContext
from checkrein.runs.task import Task
from checkrein.store import SqliteStore
from checkrein.tools.function import FunctionTool, tool
from checkrein.values import JsonObject
from tests.unit.runs.scene import Scene, write

__all__ = ["Desk", "Doer", "Fires", "batched", "call_in", "ends_of", "hooked", "kinds", "restarted"]


NOTHING: Mapping[str, object] = {}


def call_in(
    name: str, tool_name: str = "", *, batch: str | None = "batch", given: Mapping[str, object] = NOTHING
) -> Step:
    """Return a step of a batch that calls a tool, by default the one of its own name."""
    return Step(id=name, description=f"call {name}", tool_name=tool_name or name, arguments=given, batch=batch)


def batched(*names: str) -> list[Step]:
    """Return a batch of calls, each of the tool of its name."""
    return [call_in(name) for name in names]


class Doer:
    """Tools that write down each execution; the list stands for the world outside and outlives workers."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.given: list[tuple[str, str]] = []

    def tool(self, name: str, *, idempotent: bool = False, sequential: bool = False) -> FunctionTool:
        """Return a tool that does one thing."""

        async def body(context: ToolContext, text: str = "") -> str:
            self.made.append(name)
            self.given.append((context.idempotency_key, text))
            return f"{name} {text}".strip()

        return tool(name=name, idempotent=idempotent, sequential=sequential)(body)

    def tools(self, *names: str) -> tuple[FunctionTool, ...]:
        """Return one tool for each name."""
        return tuple(self.tool(name) for name in names)


class Fires:
    """Counts the firings of topics, and answers each the way it is told."""

    def __init__(self) -> None:
        self.fired: list[tuple[str, str]] = []
        self.decisions: list[object] = []

    def on(
        self, topic: Topic, *answers: object, when: Callable[[dict[str, object]], bool] = lambda _payload: True
    ) -> Callable[[Hooks], None]:
        """Return what registers a hook that gives one answer after another: a value, an exception to raise, or a function of the payload; afterwards None."""
        left = list(answers)

        async def hook(payload: dict[str, object]) -> object:
            if not when(payload):
                return None
            self.fired.append((topic, subject_of(payload)))
            if "decision" in payload:
                self.decisions.append(payload["decision"])
            answer = left.pop(0) if left else None
            if isinstance(answer, BaseException):
                raise answer
            return answer(payload) if callable(answer) else answer

        def install(hooks: Hooks) -> None:
            hooks.on(topic, hook)  # pyright: ignore[reportArgumentType]  it answers what a test wants, also what a hook may not

        return install


def subject_of(payload: dict[str, object]) -> str:
    """Return the id of the step that a hook is asked about, else the reason."""
    step = payload.get("step")
    return str(step.id) if isinstance(step, Step) else str(payload.get("reason", ""))


def hooked(task: Task, *installs: Callable[[Hooks], None]) -> Task:
    """Return the task with hooks."""

    def install(hooks: Hooks) -> None:
        for item in installs:
            item(hooks)

    return replace(task, hooks=install)


async def restarted(scene: Scene, folder: Path) -> None:
    """Let everything that is kept in memory go: the scene has a new handle on the store's file, as a new process would."""
    if isinstance(scene.store, SqliteStore):
        await scene.store.aclose()
    scene.store = SqliteStore(folder / "runs.db", clock=scene.clock)


def kinds(events: Sequence[Event], *types: type[EventData]) -> list[EventData]:
    """Return the data of the events of some types, in order."""
    return [event.data for event in events if isinstance(event.data, types)]


def ends_of(events: Sequence[Event]) -> dict[str, str]:
    """Return how each step ended, by its id."""
    return {str(event.data.step_id): event.data.status for event in events if isinstance(event.data, StepEnd)}


Asking = Literal["policy", "hook", "mixed", "twice"]


class Desk:
    """A task whose plan begins with a batch: `free` is made unasked, `second` and `third` are asked about; counts who is asked what.

    Attributes:
        by: who asks: the policy, a hook, one call each, or for `second` both one after the other.
        is_contrary: policy and hook deny what they were asked about before.
    """

    def __init__(self, scene: Scene, by: Asking) -> None:
        self.scene = scene
        self.by: Asking = by
        self.is_contrary = False
        self.doer = Doer()
        self.policy_asked: list[str] = []
        self.hook_asked: list[str] = []
        self.told: list[LastError | None] = []
        self.seen: list[tuple[StepRecord | Note, ...]] = []

    def task(self) -> Task:
        """Return the task as a new process would load it."""
        task = self.scene.task(self._plan, *self.doer.tools("free", "second", "third"), policy=self._policy)
        return replace(task, hooks=self._install)

    async def _plan(self, _goal: str, history: tuple[StepRecord | Note, ...], error: LastError | None) -> Plan:
        self.told.append(error)
        self.seen.append(history)
        return Plan([*batched("free", "second", "third"), write()] if error is None else [write("mended")])

    def _asked_by(self, who: str, name: str) -> bool:
        asked = {
            "policy": {("policy", "second"), ("policy", "third")},
            "hook": {("hook", "second"), ("hook", "third")},
            "mixed": {("policy", "second"), ("hook", "third")},
            "twice": {("policy", "second"), ("hook", "second")},
        }
        return (who, name) in asked[self.by]

    def _policy(self, name: str, _arguments: JsonObject) -> Decision:
        self.policy_asked.append(name)
        if self.is_contrary and name in self.policy_asked[:-1]:
            return "deny"
        return "ask" if self._asked_by("policy", name) else "allow"

    def _install(self, hooks: Hooks) -> None:
        @hooks.on("before_tool_call")
        async def review(payload: dict[str, object]) -> Pause | None:
            step = payload["step"]
            assert isinstance(step, Step)
            self.hook_asked.append(str(step.id))
            if self.is_contrary and step.id in self.hook_asked[:-1]:
                raise HookAbort("it has changed its mind")
            return Pause(f"look at {step.id}") if self._asked_by("hook", str(step.id)) else None

    async def begin(self) -> tuple[str, RunState]:
        """Store a run and advance it until it asks."""
        task = self.task()
        worker = self.scene.worker(task)
        run_id = await worker.submit(task)
        return run_id, await worker.advance(run_id)

    async def go_on(self, run_id: str) -> RunState:
        """Advance it by a worker of a new process."""
        return await self.scene.worker(self.task(), name="another").advance(run_id)
