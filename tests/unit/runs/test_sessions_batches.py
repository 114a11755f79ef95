"""Batches in durable runs: calls side by side or one by one, one result for each whatever happens to its siblings, and a budget that ends in the middle."""

import asyncio
from pathlib import Path

import pytest

from checkrein.errors import HookAbort
from checkrein.harness.hooks import SKIP
from checkrein.harness.planners import Plan, Step, StepRecord
from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import StepEnd, ToolCallGiven, ToolFailed
from checkrein.kernel.state import Phase
from checkrein.runs.commands import Reconciled
from checkrein.store import SqliteStore
from checkrein.testing import CrashPoint
from checkrein.tools.function import tool
from tests.unit.runs.scene import Scene, Script, gate, write
from tests.unit.runs.sessions import Doer, Fires, batched, call_in, ends_of, hooked, kinds, restarted

NAMES = ("a", "b", "c", "d", "e")


async def test_the_calls_of_a_batch_run_side_by_side(scene: Scene) -> None:
    tools, handles = zip(*(gate(name) for name in NAMES[:3]), strict=True)
    task = scene.task([*batched(*NAMES[:3]), write()], *tools)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    for handle in handles:
        await handle.entered.wait()
    for handle in reversed(handles):
        handle.release.set()
    assert (await advancing).phase is Phase.SUCCEEDED
    assert [handle.attempts for handle in handles] == [[1], [1], [1]]
    await scene.check_log(run_id)


async def test_all_calls_of_a_batch_are_granted_together_before_the_first_body(scene: Scene) -> None:
    doer = Doer()
    task = scene.task([*batched(*NAMES[:3]), write()], *doer.tools(*NAMES[:3]))
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "before body")
    granted = [
        item.call_id for item in kinds(await scene.log(run_id), ToolCallGiven) if isinstance(item, ToolCallGiven)
    ]
    assert granted == ["1.0", "1.1", "1.2"]


async def test_where_one_tool_wants_to_be_alone_the_calls_run_one_by_one_in_order(scene: Scene) -> None:
    running: list[str] = []
    seen: list[tuple[str, ...]] = []

    @tool(sequential=True)
    async def alone(who: str) -> str:
        running.append(who)
        await asyncio.sleep(0)
        seen.append(tuple(running))
        running.remove(who)
        return who

    @tool
    async def other(who: str) -> str:
        running.append(who)
        await asyncio.sleep(0)
        seen.append(tuple(running))
        running.remove(who)
        return who

    steps = [
        call_in("a", "other", given={"who": "a"}),
        call_in("b", "alone", given={"who": "b"}),
        call_in("c", "other", given={"who": "c"}),
    ]
    task = scene.task([*steps, write()], alone, other)
    run_id = await scene.worker().submit(task)
    assert (await scene.worker(task).advance(run_id)).phase is Phase.SUCCEEDED
    assert seen == [("a",), ("b",), ("c",)]
    await scene.check_log(run_id)


async def test_three_allowed_of_five_make_three_and_an_extension_makes_the_other_two(scene: Scene) -> None:
    doer, script = Doer(), Script(Plan(batched(*NAMES), final=False), [write()])
    task = scene.task(script, *doer.tools(*NAMES), budget=Budget(tool_calls=3))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert (state.phase, [cause.id for cause in state.causes]) == (Phase.BLOCKED, ["budget:tool_calls"])
    assert (doer.made, state.budget.used.tool_calls) == (["a", "b", "c"], 3)
    await scene.commands().respond(run_id, {"extend": {"tool_calls": 3}})
    state = await scene.worker(task, name="another").advance(run_id)
    assert (state.phase, doer.made) == (Phase.SUCCEEDED, list(NAMES))
    assert len(script.asked) == 2
    assert [item.status for item in script.asked[1][0] if isinstance(item, StepRecord)] == ["done"] * 5
    await scene.check_log(run_id)


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 4, 5])
async def test_a_batch_never_makes_more_calls_than_the_budget_allows_however_it_is_extended(
    scene: Scene, limit: int
) -> None:
    doer = Doer()
    task = scene.task([*batched(*NAMES), write()], *doer.tools(*NAMES), budget=Budget(tool_calls=limit))
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    while state.phase is Phase.BLOCKED:
        allowed = state.budget.limits.tool_calls
        assert allowed == state.budget.used.tool_calls == len(doer.made)
        await scene.commands().extend(run_id, Amounts(tool_calls=1))
        state = await scene.worker(task).advance(run_id)
    assert (state.phase, sorted(doer.made)) == (Phase.SUCCEEDED, list(NAMES))
    await scene.check_log(run_id)


async def test_the_limit_of_steps_stops_a_batch_before_its_first_call_and_an_extension_goes_on(scene: Scene) -> None:
    doer = Doer()
    task = scene.task([*batched(*NAMES), write()], *doer.tools(*NAMES), budget=Budget(steps=3))
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    assert ([cause.id for cause in state.causes], doer.made) == (["budget:steps"], [])
    await scene.commands().respond(run_id, {"extend": {"steps": 3}})
    state = await scene.worker(task).advance(run_id)
    assert (state.phase, doer.made) == (Phase.SUCCEEDED, list(NAMES))
    await scene.check_log(run_id)


async def test_each_call_of_a_batch_has_one_end_whatever_became_of_its_siblings(scene: Scene) -> None:
    doer, script = Doer(), Script([*batched("done", "failed", "denied", "skipped", "refused"), write()], [write()])

    @tool
    async def failed() -> str:
        raise ValueError("broken")

    abort = Fires().on("before_tool_call", HookAbort("no"), when=lambda given: given["step"] == call_in("denied"))
    skip = Fires().on("before_tool_call", SKIP, when=lambda given: given["step"] == call_in("skipped"))
    task = scene.task(
        script, *doer.tools("done", "denied", "skipped", "refused"), failed,
        policy=lambda name, _arguments: "deny" if name == "refused" else "allow",
    )  # fmt: skip
    task = hooked(task, abort, skip)
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    assert (state.phase, doer.made, state.budget.used.tool_calls) == (Phase.SUCCEEDED, ["done"], 3)
    events = await scene.log(run_id)
    assert ends_of(events) == {
        "done": "done", "failed": "failed", "denied": "failed", "skipped": "skipped", "refused": "failed", "report": "done",
    }  # fmt: skip
    assert [item.step_id for item in kinds(events, StepEnd) if isinstance(item, StepEnd)].count("failed") == 1
    assert len(script.asked) == 2
    await scene.check_log(run_id)


POINTS = [("before append step.start", 2), ("before append tool.call", 1), ("before body", 1), ("before body", 2), ("after body", 1), ("after body", 2),
          ("before append tool.result", 2), ("after append tool.result", 1), ("after append tool.result", 3), ("before append step.end", 2)]  # fmt: skip


@pytest.mark.parametrize("is_idempotent", ["again", "once"])
@pytest.mark.parametrize(("point", "at"), POINTS)
async def test_a_crash_in_the_middle_of_a_batch_repeats_nothing_that_is_done(
    scene: Scene, point: str, at: int, is_idempotent: str
) -> None:
    doer = Doer()

    async def plan(_goal: str, history: tuple[object, ...], _error: object) -> list[Step]:
        done = {item.step.id for item in history if isinstance(item, StepRecord) and item.status == "done"}
        return [item for item in [*batched(*NAMES[:3]), write()] if item.id not in done]

    tools = [doer.tool(name, idempotent=is_idempotent == "again", sequential=True) for name in NAMES[:3]]
    task = scene.task(plan, *tools)
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, point, at=at)
    finished = set(ends_of(await scene.log(run_id)))
    before = len(doer.made)
    state = await scene.worker(task).advance(run_id)
    while state.phase is Phase.BLOCKED:
        for cause in state.causes:
            name = NAMES[int(cause.call_id.partition(".")[2])] if cause.call_id.startswith("1.") else ""
            found = Reconciled("done" if name in doer.made else "failed")
            await scene.commands().unblock(run_id, cause.id, reconciled=found)
        state = await scene.worker(task).advance(run_id)
    assert state.phase is Phase.SUCCEEDED
    assert set(doer.made) == set(NAMES[:3])
    assert not set(doer.made[before:]) & finished
    if is_idempotent == "once":
        assert len(doer.made) == 3
    keys = [key for key, _ in doer.given]
    assert all(key.startswith(f"{run_id}/") for key in keys)
    await scene.check_log(run_id)


async def test_a_cancelled_batch_ends_with_one_outcome_for_each_call(scene: Scene) -> None:
    tools, handles = zip(*(gate(name) for name in NAMES[:3]), strict=True)
    task = scene.task([*batched(*NAMES[:3]), write()], *tools)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    for handle in handles:
        await handle.entered.wait()
    handles[1].release.set()
    await scene.until(run_id, lambda state: len(state.open_calls) == 2)
    await scene.worker().cancel(run_id)
    state = await advancing
    assert state.outcome is not None
    assert (state.phase, state.outcome.code) == (Phase.FAILED, "cancelled")
    assert sorted((call.tool, call.status) for call in state.effects) == [
        ("a", "failed"),
        ("b", "done"),
        ("c", "failed"),
    ]
    types = await scene.types(run_id)
    assert (types.count("tool_done"), types.count("tool_failed"), types.count("session.complete")) == (1, 2, 1)
    await scene.check_log(run_id)


@pytest.mark.parametrize(
    "point", ["before body a", "after body a", "before append tool.result", "after append tool.result"]
)
async def test_no_further_body_of_a_batch_begins_once_a_cancellation_is_in_the_log(
    scene: Scene, tmp_path: Path, point: str
) -> None:
    await restarted(scene, tmp_path)
    other = SqliteStore(tmp_path / "runs.db", clock=scene.clock)
    doer = Doer()
    tools = [doer.tool(name, sequential=True) for name in NAMES[:3]]

    async def cancel(_name: str) -> None:
        await scene.worker(store=other).cancel(run_id)

    crash = CrashPoint(at=1, among=(point,), deed=cancel)
    task = crash.task(scene.task([*batched(*NAMES[:3]), write()], *tools))
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task, store=crash.store(scene.store)).advance(run_id)
    assert state.outcome is not None
    assert state.outcome.code == "cancelled"
    assert doer.made in ([], ["a"])
    errors = [item.message for item in kinds(await scene.log(run_id), ToolFailed) if isinstance(item, ToolFailed)]
    assert all(message.startswith("not started") for message in errors[-2:]), errors
    await scene.check_log(run_id)
    await other.aclose()
