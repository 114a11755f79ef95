"""Whatever a run went through: each prefix of its log is a run of its own or is refused with the nearest that are, and a fork does nothing again."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from checkrein.clock import SystemIds
from checkrein.harness.hooks import Hooks, Pause
from checkrein.harness.planners import LastError, Note, Plan, Step, StepRecord
from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import Event, ToolGranted
from checkrein.kernel.state import Phase, RunState
from checkrein.ports.tool import ToolContext
from checkrein.runs.cuts import end_of, legal_cuts
from checkrein.runs.fork import ForkRefused, Forks
from checkrein.runs.replay import replay_run
from checkrein.runs.task import Task
from checkrein.tools.function import FunctionTool, tool
from checkrein.values import JsonData
from tests.counts import amount
from tests.unit.runs.scene import Scene

KINDS = ("works", "fails", "bring", "ask", "plain", "put")


class Drawn(msgspec.Struct, frozen=True):
    """What is drawn of a run.

    Attributes:
        plans: in the order of the turns: what their steps do, whether they are one batch, whether the plan is final.
        denies: the person refuses what a permission is asked for.
        reviews: hooks ask for a review after each plan and each error.
        tool_calls: the limit before it is extended.
        steps: likewise.
    """

    plans: list[tuple[list[str], bool, bool]]
    denies: bool
    reviews: bool
    tool_calls: int
    steps: int


RUNS = st.builds(
    Drawn,
    plans=st.lists(
        st.tuples(st.lists(st.sampled_from(KINDS), max_size=4), st.booleans(), st.booleans()), min_size=1, max_size=4
    ),
    denies=st.booleans(),
    reviews=st.booleans(),
    tool_calls=st.integers(0, 6),
    steps=st.integers(1, 8),
)


class World:
    """One task that is drawn, its tools, and a person who answers whatever a run waits for, always in the same way."""

    def __init__(self, folder: Path, drawn: Drawn) -> None:
        self.scene = Scene(folder)
        self.drawn = drawn
        self.ran: list[str] = []

    def task(self) -> Task:
        """Return the task."""
        budget = Budget(tool_calls=self.drawn.tool_calls, steps=self.drawn.steps, turns=5, replans=2)
        task = self.scene.task(
            self.plan, *self.tools(), budget=budget, policy=lambda name, _: "ask" if name == "ask" else "allow"
        )
        return replace(task, hooks=self.hook if self.drawn.reviews else None)

    def hook(self, hooks: Hooks) -> None:
        """Ask for a review after each plan and each error."""
        hooks.on("after_plan", lambda payload: None if "decision" in payload else Pause("look"))
        hooks.on("on_error", lambda payload: None if "decision" in payload else Pause("see"))

    def tools(self) -> tuple[FunctionTool, ...]:
        """Return tools that say under which keys they ran."""

        async def body(context: ToolContext) -> str:
            self.ran.append(context.idempotency_key)
            return "ran"

        async def failing(context: ToolContext) -> str:
            self.ran.append(context.idempotency_key)
            msg = "no"
            raise ValueError(msg)

        return tool(name="works")(body), tool(name="ask")(body), tool(name="fails")(failing)

    async def plan(
        self, _goal: str, history: tuple[StepRecord | Note, ...], last_error: LastError | None
    ) -> Sequence[Step] | Plan:
        """Return the next plan by what the history alone says."""
        ended = (item.step.id for item in history if isinstance(item, StepRecord))
        turn = 1 + max((int(str(name).partition("-")[0]) for name in ended), default=0)
        if turn > len(self.drawn.plans):
            return [] if last_error is None else [put_step(turn)]
        kinds, is_batch, is_final = self.drawn.plans[turn - 1]
        steps = [
            Step(
                id=f"{turn}-{number}",
                description=kind,
                tool_name=None if kind == "plain" else kind,
                arguments={"path": "report.txt", "text": "well"} if kind == "put" else {},
                batch=turn if is_batch else None,
            )
            for number, kind in enumerate(kinds)
        ]
        return Plan(steps, final=is_final)

    async def finish(self, run_id: str, task: Task) -> RunState:
        """Advance a run, and answer what it waits for, until it ended or was answered often enough."""
        worker = self.scene.worker(task, attempts=1)
        for _ in range(40):
            state = await worker.advance(run_id)
            if state.phase is not Phase.BLOCKED:
                break
            for cause in state.causes:
                if cause.kind == "budget":
                    await worker.extend(run_id, Amounts(turns=2, tool_calls=2, steps=3, replans=2))
                elif cause.id.startswith("answer:"):
                    await worker.respond(run_id, {"result": 1, "call_id": cause.call_id})
                else:
                    answer = "deny" if self.drawn.denies and cause.kind == "permission" else "allow"
                    await worker.unblock(run_id, cause.id, answer=JsonData(answer))
        return await worker.state(run_id)


def put_step(turn: int) -> Step:
    """Return a step that writes the report."""
    arguments = {"path": "report.txt", "text": "well"}
    return Step(id=f"{turn}-0", description="put", tool_name="put", arguments=arguments)


def granted(events: Sequence[Event]) -> set[str]:
    """Return the calls that were granted in these events."""
    return {event.data.call_id for event in events if isinstance(event.data, ToolGranted)}


def ending(state: RunState) -> tuple[Phase, str]:
    """Return how a run stands."""
    return state.phase, state.outcome.code if state.outcome is not None else ""


def forks(scene: Scene) -> Forks:
    """Return what makes forks."""
    return Forks(scene.store, clock=scene.clock, ids=SystemIds(), actor="user:ann")


async def forked_everywhere(world: World, chosen: int, message: str) -> None:
    """Work a run, fork it at every offset, and work the fork at one of them to its end."""
    scene, task = world.scene, world.task()
    run_id = await scene.worker(task).submit(task)
    await scene.commands().steer(run_id, "be kind")
    ended = await world.finish(run_id, task)
    log = await scene.log(run_id)
    legal = [cut.at for cut in legal_cuts(log)]
    assert legal[0] == 2
    for at in range(len(log) + 2):
        if (min(at, end_of(log)) if at <= len(log) else at) in legal:
            await check_fork(world, task, log, at=at, message=message)
        else:
            await check_refusal(world, task, log, at=at, legal=legal)
    at = legal[chosen % len(legal)]
    made = await forks(scene).fork(run_id, task, at=at)
    after = await world.finish(made.run_id, task)
    replay = await replay_run(scene.store, made.run_id)
    assert replay.is_equal, replay.divergence
    assert ending(after) == ending(ended)
    keys = [key.partition("/")[2] for key in world.ran if key.startswith(made.run_id)]
    assert granted(log[:at]).isdisjoint(keys)
    assert len(keys) == len(set(keys))
    assert await scene.log(run_id) == log


async def check_refusal(world: World, task: Task, log: list[Event], *, at: int, legal: list[int]) -> None:
    """Hold a refusal to naming the nearest offsets at which it would be no refusal."""
    with pytest.raises(ForkRefused) as refusal:
        await forks(world.scene).fork(log[0].run_id, task, at=at)
    assert refusal.value.before == max((offset for offset in legal if offset < at), default=None)
    assert refusal.value.after == min((offset for offset in legal if offset > at), default=None)


async def check_fork(world: World, task: Task, log: list[Event], *, at: int, message: str) -> None:
    """Hold a fork to its log."""
    scene = world.scene
    made = await forks(scene).fork(log[0].run_id, task, at=at, message=message)
    replay = await replay_run(scene.store, made.run_id)
    assert replay.is_equal, replay.divergence
    assert replay.state == made.state
    assert made.state.version == made.fork_at + bool(message)
    assert made.state.open_calls == ()
    assert made.calls_kept == len(granted(log[: made.fork_at]))


@settings(max_examples=amount(30), deadline=None)
@given(drawn=RUNS, chosen=st.integers(0, 200), message=st.sampled_from(("", "be quick")))
def test_each_prefix_of_a_log_is_a_run_of_its_own_or_is_refused(drawn: Drawn, chosen: int, message: str) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(forked_everywhere(World(Path(folder), drawn), chosen, message))
