"""The n-th call fails, for n = 1, 2, … until a run is clean: of the store before and after its effect, of the planner, of a tool, and of a hook."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import pytest
from msgspec.structs import replace

from checkrein.errors import StoreBusy, StoreError, ToolError, TransientToolError
from checkrein.harness.asking import SessionPlanner
from checkrein.harness.hooks import TOPICS, Hooks, Topic
from checkrein.harness.planners import LastError, Note, Plan, Planner, Step, StepRecord
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import ToolGranted
from checkrein.kernel.state import Phase, RunState
from checkrein.runs.commands import Reconciled
from checkrein.runs.task import Task
from checkrein.runs.worker import Worker
from checkrein.testing import CrashPoint
from checkrein.tools.function import FunctionTool, tool
from tests import counts
from tests.unit.runs.scene import LEASE_SECONDS, Scene, step, write

STEPS = (step("stamp"), step("charge"), step("pay"), write())
METHODS = ("create", "append", "claim", "release", "get", "read", "follow", "find_event", "record_refusal")


class World:
    """What happened outside."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def task(self, scene: Scene) -> Task:
        """Return a task with a tool of each kind, whose planner repeats what is not done."""

        async def plan(_goal: str, history: tuple[StepRecord | Note, ...], _error: LastError | None) -> Sequence[Step]:
            done = {item.step.id for item in history if isinstance(item, StepRecord) and item.status == "done"}
            return [item for item in STEPS if item.id not in done]

        @tool(idempotent=True, inline=True)
        def stamp() -> str:
            self.done.append("stamp")
            return "stamped"

        @tool(inline=True)
        def charge() -> str:
            self.done.append("charge")
            return "charged"

        @tool(inline=True, reconcile=lambda: "done" if "pay" in self.done else "failed")
        def pay() -> str:
            self.done.append("pay")
            return "paid"

        return scene.task(plan, stamp, charge, pay)


def _failing(error: Callable[[str], Exception], at: int, *among: str) -> CrashPoint:
    def fail(name: str) -> None:
        raise error(f"{name} failed on purpose")

    return CrashPoint(at=at, among=among, deed=fail)


async def _finish(scene: Scene, world: World, run_id: str, worker: Worker) -> RunState:
    """Advance a run to its end, as a person would who looks at the world before answering."""
    state = await worker.advance(run_id)
    while state.phase is Phase.BLOCKED:
        cause = state.causes[0]
        name = next((call.tool.name for call in state.open_calls if call.call_id == cause.call_id), "")
        found = Reconciled("done" if name in world.done else "failed") if cause.kind == "reconcile" else None
        await scene.worker().unblock(run_id, cause.id, reconciled=found)
        state = await worker.advance(run_id)
    return state


@pytest.mark.parametrize("error", [StoreError, StoreBusy])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_store_that_fails_before_or_after_its_effect_loses_nothing(
    scene: Scene, when: str, error: Callable[[str], Exception]
) -> None:
    among = tuple(f"{when} {method}" for method in METHODS)
    number = 0
    while True:
        number += 1
        world = World()
        task = world.task(scene)
        point = _failing(error, number, *among)
        state = await _survive(scene, world, task, point, request=f"{when} {number} {error.__name__}")
        assert state.phase is Phase.SUCCEEDED, point.passed
        assert (world.done.count("charge"), world.done.count("pay")) == (1, 1), point.passed[-1:]
        grants = [event.data for event in await scene.log(state.run_id) if isinstance(event.data, ToolGranted)]
        assert len(world.done) + 1 <= len(grants) <= 6
        await scene.check_log(state.run_id)
        if len(point.passed) < number:
            break
    assert number > 15
    counts.report(f"store call fails {when} its effect ({error.__name__})", number - 1, passed=number - 1)


async def _survive(scene: Scene, world: World, task: Task, point: CrashPoint, *, request: str) -> RunState:
    """Let a worker meet the failure, which must be typed, and another one go on."""
    worker = scene.worker(task, store=point.store(scene.store))
    try:
        run_id = await worker.submit(task, request_id=request)
    except StoreError:
        run_id = await worker.submit(task, request_id=request)
    # Anything but an error of the store's family fails the test.
    with suppress(StoreError):
        await worker.advance(run_id)
    await scene.clock.advance(LEASE_SECONDS + 1)
    return await _finish(scene, world, run_id, scene.worker(task))


@pytest.mark.parametrize("when", ["before", "after"])
async def test_users_commands_that_meet_a_failing_store_are_repeated_with_the_same_id(scene: Scene, when: str) -> None:
    number = 0
    while True:
        number += 1
        task = World().task(scene)
        run_id = await scene.worker().submit(task)
        point = _failing(StoreError, number, *(f"{when} {method}" for method in METHODS))
        worker = scene.worker(store=point.store(scene.store))
        for command in (
            partial(worker.steer, run_id, "note", request_id="note-1"),
            partial(worker.cancel, run_id, request_id="cancel-1"),
        ):
            try:
                await command()
            except StoreError:
                await command()
        types = await scene.types(run_id)
        assert (types.count("steer_queued"), types.count("cancel_requested"), types[-1]) == (1, 1, "cancel_requested")
        await scene.check_log(run_id)
        if len(point.passed) < number:
            break
    assert number > 4
    counts.report(f"store call of a user's command fails {when} its effect", number - 1, passed=number - 1)


async def test_a_lease_that_cannot_be_renewed_now_and_then_is_kept(scene: Scene) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def held() -> str:
        entered.set()
        await go_on.wait()
        return "done"

    point = _failing(StoreBusy, 2, "before renew")
    task = scene.task([step("held"), write()], held)
    worker = scene.worker(task, store=point.store(scene.store))
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await entered.wait()
    await scene.clock.advance(60)
    go_on.set()
    assert (await advancing).phase is Phase.SUCCEEDED
    assert len(point.passed) > 30


async def test_a_run_whose_log_cannot_be_followed_for_a_moment_still_hears_of_its_cancellation(scene: Scene) -> None:
    entered = asyncio.Event()

    @tool
    async def held() -> str:
        entered.set()
        await asyncio.Event().wait()
        return "never"

    point = _failing(StoreBusy, 1, "before follow")
    task = scene.task([step("held"), write()], held)
    worker = scene.worker(task, store=point.store(scene.store))
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await entered.wait()
    await scene.clock.advance(1)
    await scene.worker().cancel(run_id)
    state = await advancing
    assert state.outcome is not None
    assert state.outcome.code == "cancelled"


async def test_a_planner_that_fails_at_any_asking_is_asked_again(scene: Scene) -> None:
    number = 0
    while True:
        number += 1
        world = World()
        point = _failing(ValueError, number, "before plan", "after plan")
        task = point.task(world.task(scene))
        worker = scene.worker(task)
        run_id = await worker.submit(task)
        await worker.steer(run_id, "one more planning")
        state = await _finish(scene, world, run_id, worker)
        assert (state.phase, sorted(world.done)) == (Phase.SUCCEEDED, ["charge", "pay", "stamp"])
        await scene.check_log(run_id)
        if len(point.passed) < number:
            break
    counts.report("planner fails", number - 1, passed=number - 1)


@pytest.mark.parametrize("error", [ToolError, TransientToolError, ConnectionError, ZeroDivisionError, KeyError])
async def test_a_tool_that_fails_before_its_effect_at_any_call_is_planned_again_or_tried_again(
    scene: Scene, error: Callable[[str], Exception]
) -> None:
    number = 0
    while True:
        number += 1
        world = World()
        point = _failing(error, number, "before body")
        task = point.task(world.task(scene))
        worker = scene.worker(task)
        run_id = await worker.submit(task)
        advancing = scene.spawn(_finish(scene, world, run_id, worker))
        while not advancing.done():
            await scene.clock.advance(1.0)
        state = await advancing
        assert (state.phase, sorted(world.done)) == (Phase.SUCCEEDED, ["charge", "pay", "stamp"])
        await scene.check_log(run_id)
        if len(point.passed) < number:
            break
    assert number == len(STEPS) + 1
    counts.report(f"tool fails ({error.__name__})", number - 1, passed=number - 1)


def _hooked(task: Task, point: CrashPoint, *, pauses: bool) -> Task:
    """Return the task with a hook at every topic that passes a point; the one of `on_pause` raises a limit that is used up."""

    def install(hooks: Hooks) -> None:
        hooks.pauses_on_failure = pauses
        for topic in TOPICS:
            hooks.on(topic, partial(_passes, point, topic))

    return replace(task, hooks=install)


async def _passes(point: CrashPoint, topic: Topic, payload: dict[str, object]) -> None:
    await point.reach(f"hook {topic}")
    if topic == "on_pause" and payload["reason"] == "budget_exceeded:tool_calls":
        payload["resume"] = {"extend": {"tool_calls": 2}}


async def _answer_all(scene: Scene, world: World, run_id: str, worker: Worker) -> RunState:
    """Advance a run to its end, as a person would who lets everything go on."""
    state = await worker.advance(run_id)
    while state.phase is Phase.BLOCKED:
        (cause,) = state.causes
        answer = {"extend": {cause.detail: 2}} if cause.kind == "budget" else {"decision": "go on"}
        assert cause.kind in {"budget", "answer"}, cause
        await scene.worker().respond(run_id, answer)
        state = await worker.advance(run_id)
    assert world.done
    return state


@pytest.mark.parametrize("mode", ["goes on", "pauses"])
async def test_a_hook_that_fails_at_any_firing_loses_nothing_and_doubles_nothing(scene: Scene, mode: str) -> None:
    number, topics = 0, set[str]()
    while True:
        number += 1
        world = World()
        point = _failing(ZeroDivisionError, number, "hook ")
        plain = world.task(scene)
        task = replace(
            plain,
            tools=(*plain.tools, _flaky()),
            planner=_first(step("flaky"), plain.planner),
            budget=Budget(tool_calls=3),
        )
        task = _hooked(task, point, pauses=mode == "pauses")
        worker = scene.worker(task)
        run_id = await worker.submit(task)
        state = await _answer_all(scene, world, run_id, worker)
        assert (state.phase, sorted(world.done)) == (Phase.SUCCEEDED, ["charge", "pay", "stamp"]), point.passed[-1:]
        await scene.check_log(run_id)
        topics |= {name.removeprefix("hook ") for name in point.passed}
        if len(point.passed) < number:
            break
    assert topics == set(TOPICS)
    counts.report(f"hook fails (session {mode})", number - 1, passed=number - 1)


def _flaky() -> FunctionTool:
    """Return a tool whose first call fails."""
    tries: list[str] = []

    @tool(inline=True)
    def flaky() -> str:
        tries.append("flaky")
        if len(tries) == 1:
            raise ToolError("not yet")
        return "at last"

    return flaky


def _first(item: Step, planner: SessionPlanner) -> Planner:
    """Return a planner that has one more step before all others until it is done."""
    assert callable(planner)

    async def plan(goal: str, history: tuple[StepRecord | Note, ...], error: LastError | None) -> Sequence[Step]:
        done = {record.step.id for record in history if isinstance(record, StepRecord) and record.status == "done"}
        answer = planner(goal, history, error)
        others = await answer if inspect.isawaitable(answer) else answer
        assert not isinstance(others, Plan)
        return [*([] if item.id in done else [item]), *others]

    return plan
