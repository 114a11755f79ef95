"""Child runs when a worker dies anywhere: one child, one share, settled once to what was really used."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import BudgetReserved, BudgetSettled, ToolFailed
from checkrein.kernel.state import Phase, RunState
from checkrein.ports.store import RunQuery
from checkrein.ports.tool import ChildRun, ToolContext
from checkrein.runs.children import child_id
from checkrein.runs.commands import Reconciled
from checkrein.runs.replay import replay_run
from checkrein.runs.task import Task
from checkrein.store import SqliteStore
from checkrein.testing import CrashPoint
from checkrein.testing.crash import EFFECTS
from checkrein.tools.function import tool
from tests.unit.runs.family import SHARE, always, child_task, delegate, facts, parent_task
from tests.unit.runs.scene import LEASE_SECONDS, Scene, Script, gate, hang, step, write

ALL = (*EFFECTS, "before create", "after create")
LAST: Mapping[str, float] = {"turns": 1, "tool_calls": 1, "steps": 1}


@pytest.fixture
async def on_disk(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path)
    scene.store = SqliteStore(tmp_path / "runs.db", clock=scene.clock)
    yield scene
    await scene.store.aclose()


async def killed(scene: Scene, task: Task, run_id: str, *names: str, at: int = 1) -> bool:
    """Let a worker advance a run and its children to the n-th point that fits, and all of it die there; False when it is not reached."""
    reached = asyncio.Event()

    async def die(_name: str) -> None:
        reached.set()
        await hang()

    point = CrashPoint(at=at, among=names or ALL, deed=die)
    wrapped = replace(point.task(task), children=tuple(point.task(child) for child in task.children))
    before = asyncio.all_tasks()
    worker = scene.worker(wrapped, store=point.store(scene.store), name="killed")
    ends = {scene.spawn(worker.advance(run_id)), scene.spawn(_wait(reached))}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    left = asyncio.all_tasks() - before
    for item in left:
        item.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await scene.clock.advance(LEASE_SECONDS + 1)
    return reached.is_set()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def children_of(scene: Scene) -> list[str]:
    return [row.run_id for row in await scene.store.list_runs(RunQuery(tasks=("child",)))]


async def check_family(scene: Scene, run_id: str, state: RunState) -> None:
    """Hold a parent that succeeded to what must be so whatever died before."""
    assert state.phase is Phase.SUCCEEDED
    assert await children_of(scene) == [child_id(run_id, "1.0", "")]
    child = await scene.worker().state(child_id(run_id, "1.0", ""))
    assert child.phase is Phase.SUCCEEDED
    types = await scene.types(run_id)
    assert (types.count("budget_reserved"), types.count("budget_settled")) == (1, 1)
    [settled] = await facts(scene, run_id, BudgetSettled)
    assert settled.used == child.budget.used
    assert state.budget.used.turns == types.count("turn_granted") + child.budget.used.turns
    assert state.budget.used.tool_calls == types.count("tool_granted") + child.budget.used.tool_calls
    for run in (run_id, child.run_id):
        assert (await replay_run(scene.store, run)).is_equal


async def test_wherever_a_worker_dies_there_is_one_child_and_one_settlement(tmp_path: Path) -> None:
    points = 0
    while True:
        scene = Scene(tmp_path / str(points))
        task = parent_task(scene, always(step("delegate"), write()), delegate(), child=child_task(scene))
        run_id = await scene.worker().submit(task)
        if not await killed(scene, task, run_id, at=points + 1):
            break
        points += 1
        await check_family(scene, run_id, await scene.worker(task).advance(run_id))
    assert points > 50


async def test_wherever_a_worker_dies_a_body_that_waits_finds_its_child_again(tmp_path: Path) -> None:
    @tool(idempotent=True)
    async def waits(context: ToolContext) -> str:
        return (await (await context.runs.start("child", share=SHARE)).result()).code

    points = 0
    while True:
        scene = Scene(tmp_path / str(points))
        task = parent_task(scene, always(step("waits"), write()), waits, child=child_task(scene))
        run_id = await scene.worker().submit(task)
        if not await killed(scene, task, run_id, at=points + 1):
            break
        points += 1
        await check_family(scene, run_id, await scene.worker(task).advance(run_id))
    assert points > 50


async def test_a_share_whose_child_was_never_created_is_given_back_when_its_call_is_settled(scene: Scene) -> None:
    @tool
    async def once(context: ToolContext) -> ChildRun:
        return await context.runs.start("child", share=SHARE)

    task = parent_task(scene, Script([step("once")], [write()]), once, child=child_task(scene))
    run_id = await scene.worker().submit(task)
    assert await killed(scene, task, run_id, "after append budget_reserved")
    worker = scene.worker(task)
    state = await worker.advance(run_id)
    assert (state.phase, len(state.reservations)) == (Phase.BLOCKED, 1)
    await worker.unblock(run_id, "reconcile:1.0", reconciled=Reconciled("unknown"))
    state = await worker.advance(run_id)
    assert (state.phase, state.budget.reserved) == (Phase.SUCCEEDED, Amounts())
    [settled] = await facts(scene, run_id, BudgetSettled)
    assert settled.used == Amounts()
    [child] = await children_of(scene)
    buried = await worker.state(child)
    assert buried.outcome is not None
    assert (buried.outcome.code, buried.epoch, buried.parent) == ("cancelled", 0, run_id)
    assert (await replay_run(scene.store, child)).is_equal


async def test_a_child_that_cannot_be_set_up_costs_nothing(scene: Scene, tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text("a,b", encoding="utf-8")
    child = replace(child_task(scene), inputs={"data": data})
    task = parent_task(scene, Script([step("delegate")], [write()]), delegate(), child=child)
    data.unlink()
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert (state.phase, state.budget.reserved, state.budget.used.tool_calls) == (Phase.SUCCEEDED, Amounts(), 2)
    [failed] = await facts(scene, run_id, ToolFailed)
    assert "FileNotFoundError" in failed.message
    assert [item.used for item in await facts(scene, run_id, BudgetSettled)] == [Amounts()]


async def test_with_budget_for_one_left_one_of_five_children_starts_and_after_a_crash_no_other(on_disk: Scene) -> None:
    names = [f"delegate{number}" for number in range(5)]
    batch = [replace(step(name), batch="all") for name in names]
    tools = [delegate(LAST, name=name) for name in names]
    task = parent_task(on_disk, always(*batch), *tools, child=child_task(on_disk), budget=Budget(turns=2))
    run_id = await on_disk.worker().submit(task)
    assert await killed(on_disk, task, run_id, "after append budget_reserved")
    await on_disk.store.aclose()
    on_disk.store = SqliteStore(on_disk.folder.parent / "runs.db", clock=on_disk.clock)
    worker = on_disk.worker(task)
    state = await worker.advance(run_id)
    [reserved] = await facts(on_disk, run_id, BudgetReserved)
    assert await children_of(on_disk) == [reserved.child]
    refused = await facts(on_disk, run_id, ToolFailed)
    assert [item.kind for item in refused] == ["budget_exceeded"] * 4
    assert len(await facts(on_disk, run_id, BudgetSettled)) == 1
    assert (state.budget.used.turns, state.budget.reserved) == (2, Amounts())
    # What is used up stays used up, in whatever process it is asked for.
    assert (state.phase, [cause.id for cause in state.causes]) == (Phase.BLOCKED, ["budget:turns"])


async def test_what_a_child_did_not_use_is_there_for_the_next_one_in_another_process(on_disk: Scene) -> None:
    script = Script([step("delegate")], [step("again")], [write()])
    tools = (delegate({"turns": 3, "tool_calls": 3}), delegate({"turns": 2, "tool_calls": 3}, name="again"))
    task = parent_task(on_disk, script, *tools, child=child_task(on_disk, always()), budget=Budget(turns=6))
    run_id = await on_disk.worker().submit(task)
    assert await killed(on_disk, task, run_id, "after append budget_settled")
    await on_disk.store.aclose()
    on_disk.store = SqliteStore(on_disk.folder.parent / "runs.db", clock=on_disk.clock)
    state = await on_disk.worker(task).advance(run_id)
    assert state.phase is Phase.SUCCEEDED
    assert [item.used.turns for item in await facts(on_disk, run_id, BudgetSettled)] == [1, 1]
    assert state.budget.used.turns == 5


async def test_a_child_that_another_worker_advances_is_left_to_it_and_taken_over_when_that_one_is_gone(
    scene: Scene,
) -> None:
    held, handle = gate(idempotent=True)
    child = child_task(scene, always(step("held"), write()), held)
    task = parent_task(scene, always(step("delegate"), write()), delegate({"tool_calls": 3}), child=child)
    run_id = await scene.worker().submit(task)
    assert await killed(scene, task, run_id, "after append tool_accepted")
    born = child_id(run_id, "1.0", "")
    other = scene.worker(child, store=scene.deaf(), name="other")
    scene.spawn(other.advance(born))
    await handle.entered.wait()
    worker = scene.worker(task)
    advancing = scene.spawn(worker.advance(run_id))
    await scene.clock.advance(LEASE_SECONDS - 1)
    assert (worker.held, handle.attempts) == ((run_id,), [1])
    await scene.clock.advance(LEASE_SECONDS)
    await scene.until(born, lambda state: state.epoch == 2)
    handle.release.set()
    await check_family(scene, run_id, await advancing)
    assert handle.attempts == [1, 2]
    assert worker.failures == ()
