"""Budget: eight allowed means eight made, on every path, and time counts only while the run is active."""

import asyncio

import pytest

from checkrein.errors import Rejected
from checkrein.harness.planners import Plan
from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.state import Phase
from checkrein.tools.function import tool
from checkrein.values import JsonData
from tests.unit.runs.scene import Scene, Script, gate, misuse, step, write


@pytest.mark.parametrize("limit", [0, 1, 2])
async def test_exactly_as_many_bodies_run_as_the_budget_allows_and_an_extension_goes_on(
    scene: Scene, limit: int
) -> None:
    held, handle = gate()
    handle.release.set()
    plan = [write("report"), *(step(f"again-{number}", "held") for number in range(3))]
    task = scene.task([*plan[1:], plan[0]], held, budget=Budget(tool_calls=limit))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert (state.phase, [cause.id for cause in state.causes]) == (Phase.BLOCKED, ["budget:tool_calls"])
    assert (len(handle.attempts), state.budget.used.tool_calls) == (limit, limit)
    with pytest.raises(Rejected, match="budget_exhausted"):
        await worker.unblock(run_id, "budget:tool_calls")
    assert (await worker.extend(run_id, Amounts(turns=1))).phase is Phase.BLOCKED
    assert (await worker.extend(run_id, Amounts(tool_calls=4 - limit))).phase is Phase.RUNNING
    state = await worker.advance(run_id)
    assert (state.phase, state.budget.used.tool_calls, len(handle.attempts)) == (Phase.SUCCEEDED, 4, 3)
    await scene.check_log(run_id)


async def test_finishing_exactly_at_the_limit_is_no_pause(scene: Scene) -> None:
    task = scene.task([write()], budget=Budget(tool_calls=1, turns=1, steps=1, replans=0, repairs=0))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED


async def test_the_grant_of_a_body_that_a_crash_ended_stays_counted_and_its_rerun_needs_another(scene: Scene) -> None:
    held, handle = gate(idempotent=True)
    handle.release.set()
    task = scene.task(Script([step("held"), write()]), held, budget=Budget(tool_calls=1))
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "after body held")
    worker = scene.worker(task)
    state = await worker.advance(run_id)
    assert (state.phase, [cause.id for cause in state.causes]) == (Phase.BLOCKED, ["budget:tool_calls"])
    assert [(call.status, call.attempt) for call in state.open_calls] == [("granted", 1)]
    await worker.extend(run_id, Amounts(tool_calls=2))
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    assert handle.attempts == [1, 2]
    await scene.check_log(run_id)


async def test_turns_steps_and_replans_are_limits_with_pauses_of_their_own(scene: Scene) -> None:
    script = Script(Plan([write()], final=False), Plan([write("again")], final=False), [write("last")])
    task = scene.task(script, budget=Budget(turns=1, steps=1))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    seen: list[str] = []
    state = await worker.advance(run_id)
    while state.phase is Phase.BLOCKED:
        (cause,) = state.causes
        seen.append(cause.detail)
        await worker.extend(run_id, Amounts(turns=int(cause.detail == "turns"), steps=int(cause.detail == "steps")))
        state = await worker.advance(run_id)
    assert state.phase is Phase.SUCCEEDED
    assert seen == ["turns", "steps", "turns", "steps"]
    assert (state.budget.used.turns, state.budget.used.steps) == (3, 3)
    await scene.check_log(run_id)


async def test_a_replan_beyond_the_limit_pauses(scene: Scene) -> None:
    script = Script([misuse()], [write()])
    task = scene.task(script, budget=Budget(replans=0))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert [cause.id for cause in state.causes] == ["budget:replans"]
    await worker.extend(run_id, Amounts(replans=1))
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED


async def test_time_counts_while_the_run_is_active_and_not_while_it_is_blocked_or_nobodys(scene: Scene) -> None:
    held, handle = gate()
    task = scene.task(
        Script([step("held"), write()]),
        held,
        budget=Budget(wall_seconds=100),
        policy=lambda name, _: "ask" if name == "put" else "allow",
    )
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    await scene.clock.advance(1000)
    advancing = scene.spawn(worker.advance(run_id))
    await handle.entered.wait()
    await scene.clock.advance(30)
    handle.release.set()
    state = await advancing
    assert (state.phase, state.budget.used.wall_seconds) == (Phase.BLOCKED, 30.0)
    await scene.clock.advance(1000)
    await worker.unblock(run_id, "permission:1.1", answer=JsonData("allow"))
    await scene.clock.advance(1000)
    state = await worker.advance(run_id)
    assert (state.phase, state.budget.used.wall_seconds) == (Phase.SUCCEEDED, 30.0)


async def test_the_time_between_a_crash_and_the_takeover_does_not_count(scene: Scene) -> None:
    held, handle = gate(idempotent=True)
    handle.release.set()
    task = scene.task(Script([step("held"), write()]), held, budget=Budget(wall_seconds=100))
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "after body held")
    await scene.clock.advance(1000)
    state = await scene.worker(task).advance(run_id)
    assert state.phase is Phase.SUCCEEDED
    assert state.budget.used.wall_seconds < 10


async def test_time_that_is_used_up_while_a_step_ran_pauses_before_the_next_planning(scene: Scene) -> None:
    """The log's last event knew of less time than there is now; the grant of the turn must not be tried in vain."""
    held, handle = gate()
    script = Script(Plan([step("held")], final=False), [write()])
    task = scene.task(script, held, budget=Budget(wall_seconds=10))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await handle.entered.wait()
    await scene.clock.advance(11)
    handle.release.set()
    state = await advancing
    assert [cause.id for cause in state.causes] == ["budget:wall_seconds"]
    assert await scene.refused(run_id) == []
    await worker.extend(run_id, Amounts(wall_seconds=10))
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED


async def test_time_that_is_used_up_while_a_planner_thinks_pauses_before_the_first_step(scene: Scene) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_goal: str, _history: object, _error: object) -> Plan:
        entered.set()
        await go_on.wait()
        return Plan([write()])

    task = scene.task(slow, budget=Budget(wall_seconds=10))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await entered.wait()
    await scene.clock.advance(10)
    go_on.set()
    assert [cause.id for cause in (await advancing).causes] == ["budget:wall_seconds"]


async def test_an_unlimited_budget_never_pauses(scene: Scene) -> None:
    @tool
    async def tick() -> str:
        return "tick"

    none = Budget(turns=None, tool_calls=None, wall_seconds=None, steps=None, replans=None, repairs=None)
    task = scene.task([*(step(f"tick-{number}", "tick") for number in range(50)), write()], tick, budget=none)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    assert (await worker.advance(run_id)).budget.used.tool_calls == 51
