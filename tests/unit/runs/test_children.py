"""Child runs: a share of the parent's budget, one child per call and key, an outcome that is the call's, and an end with the parent's."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from checkrein.errors import ChildRefused, TaskError
from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import BudgetReserved, BudgetSettled, ToolAccepted, ToolDone, ToolFailed
from checkrein.kernel.state import CHILD, Phase, RunState
from checkrein.ports.tool import CancelSignal, ChildOutcome, ChildRun, ToolContext
from checkrein.runs.children import child_id
from checkrein.runs.commands import MAX_DEPTH
from checkrein.runs.replay import replay_run
from checkrein.runs.task import Task
from checkrein.runs.worker import Worker, WorkerOptions
from checkrein.testing import ScriptedModel
from checkrein.testing.scripted import reply
from checkrein.tools.function import tool
from checkrein.values import JsonData, as_data
from tests.unit.runs.family import SHARE, always, ask_to_send, child_task, delegate, facts, parent_task
from tests.unit.runs.scene import Exists, Scene, Script, gate, step, write


def only_child(run_id: str, call_id: str = "1.0", key: str = "") -> str:
    return child_id(run_id, call_id, key)


async def test_what_a_child_comes_to_is_the_result_of_the_call_that_started_it(scene: Scene) -> None:
    task = parent_task(scene, [step("delegate"), write()], delegate(), child=child_task(scene))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert state.phase is Phase.SUCCEEDED
    child = await worker.state(only_child(run_id))
    assert (child.phase, child.parent, child.task.goal) == (Phase.SUCCEEDED, run_id, "the child's part")
    assert child.budget.limits == replace(Budget(), turns=2, tool_calls=2, steps=3, replans=8, wall_seconds=1800.0)
    [accepted] = await facts(scene, run_id, ToolAccepted)
    assert accepted == ToolAccepted("1.0", f"{CHILD}{child.run_id}")
    [done, *_] = await facts(scene, run_id, ToolDone)
    told = as_data(done.result).value
    assert isinstance(told, dict)
    assert (told["run_id"], told["phase"], told["code"]) == (child.run_id, "SUCCEEDED", "goal_met")
    assert told["artifacts"] == {"report.txt": child.artifacts[0].sha256}
    assert state.budget.used == replace(
        Amounts(turns=1, tool_calls=2, steps=2).plus(child.budget.used), wall_seconds=0.0
    )
    assert state.budget.reserved == Amounts()
    await scene.check_log(child.run_id)


async def test_the_share_stands_in_the_parents_log_before_the_child_exists_and_is_settled_once(scene: Scene) -> None:
    task = parent_task(scene, [step("delegate"), write()], delegate(), child=child_task(scene))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    await worker.advance(run_id)
    types = await scene.types(run_id)
    assert types.index("tool_granted") < types.index("budget_reserved") < types.index("tool_accepted")
    assert types[types.index("budget_settled") :][:3] == ["budget_settled", "tool.result", "tool_done"]
    assert (types.count("budget_reserved"), types.count("budget_settled")) == (1, 1)


async def test_a_child_that_failed_is_an_error_of_the_call_with_its_code(scene: Scene) -> None:
    script = Script([step("delegate")], [write()])
    task = parent_task(scene, script, delegate(), child=child_task(scene, always()))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert state.phase is Phase.SUCCEEDED
    [failed] = await facts(scene, run_id, ToolFailed)
    assert f"child run {only_child(run_id)} of child failed (no_plan)" in failed.message
    error = script.asked[1][1]
    assert error is not None
    assert "no_plan" in error.message
    assert state.reservations == ()


async def test_the_answer_of_a_child_is_told_to_its_parent_as_long_as_it_is_what_was_recorded(scene: Scene) -> None:
    outcomes: list[ChildOutcome] = []

    @tool(idempotent=True)
    async def ask(context: ToolContext) -> str:
        run = await context.runs.start("child", share=SHARE)
        outcomes.append(await run.result())
        (Path(outcomes[0].folder) / "answer").write_text("something else", encoding="utf-8")
        outcomes.append(await run.result())
        return outcomes[0].answer

    plain = scene.task([], checks=[Exists("answer")])
    child = Task(
        name="child", goal="an answer", checks=plain.checks, model=ScriptedModel([reply("Forty-two.")]),
        workspace=plain.workspace,
    )  # fmt: skip
    task = parent_task(scene, [step("ask"), write()], ask, child=child)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    assert [(item.phase, item.answer) for item in outcomes] == [("SUCCEEDED", "Forty-two."), ("SUCCEEDED", "")]
    assert len(await facts(scene, run_id, BudgetSettled)) == 1


async def test_a_child_that_is_cancelled_alone_fails_its_call_and_the_parent_goes_on(scene: Scene) -> None:
    held, handle = gate()
    script = Script([step("delegate")], [write()])
    task = parent_task(scene, script, delegate(), child=child_task(scene, [step("held")], held))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await handle.entered.wait()
    await scene.worker().cancel(only_child(run_id), "not that one")
    state = await advancing
    assert state.phase is Phase.SUCCEEDED
    [failed] = await facts(scene, run_id, ToolFailed)
    assert "(cancelled): not that one" in failed.message


@pytest.mark.parametrize("share", [{"turns": 3}, {"steps": 1_000}, {"wall_seconds": 3_601.0}])
async def test_a_share_that_does_not_fit_is_a_failed_call_and_no_child(
    scene: Scene, share: Mapping[str, float]
) -> None:
    script = Script([step("delegate")], [write()])
    budget = Budget(turns=3, steps=10)
    task = parent_task(scene, script, delegate(share), child=child_task(scene), budget=budget)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    [failed] = await facts(scene, run_id, ToolFailed)
    assert failed.kind == "budget_exceeded"
    assert await facts(scene, run_id, BudgetReserved) == []
    assert await scene.store.find_request(f"child:{only_child(run_id)}") is None


async def test_of_five_children_at_once_one_gets_the_last_share_and_gives_the_rest_back(scene: Scene) -> None:
    names = [f"delegate{number}" for number in range(5)]
    batch = [replace(step(name), batch="all") for name in names]
    script = Script(batch, [step("again"), write()])
    tools = [delegate({"turns": 1, "tool_calls": 1, "steps": 1}, name=name) for name in (*names, "again")]
    budget = Budget(turns=4, tool_calls=20, steps=20)
    task = parent_task(scene, script, *tools, child=child_task(scene), budget=budget)
    # Two turns are the parent's, so there are two left: one for the batch, one for the child that is started after it.
    task = replace(task, budget=replace(budget, turns=3))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    reserved = await facts(scene, run_id, BudgetReserved)
    assert len(reserved) == len(await facts(scene, run_id, BudgetSettled))
    failed = await facts(scene, run_id, ToolFailed)
    assert {item.kind for item in failed} == {"budget_exceeded"}
    assert state.budget.taken("turns") <= 3


async def test_a_body_may_wait_for_its_child_and_start_the_next_one_with_what_it_gave_back(scene: Scene) -> None:
    seen: list[ChildOutcome] = []

    @tool(idempotent=True)
    async def two(context: ToolContext) -> list[str]:
        for key in ("a", "b"):
            run = await context.runs.start("child", share={"turns": 1, "tool_calls": 1, "steps": 1}, key=key)
            seen.append(await run.result())
        return [item.code for item in seen]

    budget = Budget(turns=3, tool_calls=4, steps=4)
    task = parent_task(scene, [step("two"), write()], two, child=child_task(scene), budget=budget)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert state.phase is Phase.SUCCEEDED
    assert [item.code for item in seen] == ["goal_met", "goal_met"]
    assert [item.run_id for item in seen] == [only_child(run_id, key=key) for key in ("a", "b")]
    assert state.budget.used.turns == 3


async def test_a_call_and_a_key_name_one_child(scene: Scene) -> None:
    runs: list[ChildRun] = []

    @tool(idempotent=True)
    async def twice(context: ToolContext) -> ChildRun:
        runs.extend(await asyncio.gather(*(context.runs.start("child", share=SHARE, key="k") for _ in range(3))))
        return runs[0]

    task = parent_task(scene, [step("twice"), write()], twice, child=child_task(scene))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    assert {run.run_id for run in runs} == {only_child(run_id, key="k")}
    assert len(await facts(scene, run_id, BudgetReserved)) == 1


async def test_a_key_that_names_a_run_of_another_task_is_refused(scene: Scene) -> None:
    refused: list[str] = []

    @tool(idempotent=True)
    async def mixed(context: ToolContext) -> ChildRun:
        first = await context.runs.start("child", share=SHARE)
        for name, share in (("other", SHARE), ("nobody", SHARE), ("child", {"turn": 1}), ("child", {"turns": 1.5})):
            with pytest.raises(ChildRefused) as error:
                await context.runs.start(name, share=share)
            refused.append(error.value.code)
        return first

    other = replace(child_task(scene), name="other")
    task = replace(parent_task(scene, [step("mixed"), write()], mixed, child=child_task(scene)))
    task = replace(task, children=(*task.children, other))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    assert refused == ["key_in_use", "unknown_task", "bad_share", "bad_share"]


async def test_a_parent_is_not_done_before_a_child_that_no_call_waits_for(scene: Scene) -> None:
    held, handle = gate()

    @tool(idempotent=True)
    async def scatter(context: ToolContext) -> str:
        return (await context.runs.start("child", share=SHARE)).run_id

    task = parent_task(
        scene, [step("scatter"), write()], scatter, child=child_task(scene, [step("held"), write()], held)
    )
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await handle.entered.wait()
    waiting = await worker.state(run_id)
    assert (waiting.phase, len(waiting.settled_calls), len(waiting.loose_children)) == (Phase.RUNNING, 2, 1)
    handle.release.set()
    state = await advancing
    assert state.phase is Phase.SUCCEEDED
    assert len(await facts(scene, run_id, BudgetSettled)) == 1


async def test_a_parent_that_gives_up_cancels_its_children_and_ends_after_them(scene: Scene) -> None:
    held, handle = gate()

    @tool(idempotent=True)
    async def scatter(context: ToolContext) -> str:
        run = await context.runs.start("child", share=SHARE)
        scene.spawn(worker.advance(run.run_id))
        await handle.entered.wait()
        msg = "that did not work"
        raise ValueError(msg)

    child = child_task(scene, [step("held"), write()], held)
    task = parent_task(scene, Script([step("scatter")], []), scatter, child=child)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert state.outcome is not None
    assert (state.phase, state.outcome.code) == (Phase.FAILED, "gave_up")
    ended = await worker.state(only_child(run_id))
    assert ended.outcome is not None
    assert ended.outcome.code == "cancelled"
    assert len(await facts(scene, run_id, BudgetSettled)) == 1
    assert (await replay_run(scene.store, run_id)).is_equal


async def test_a_parent_waits_for_what_its_children_give_back_before_it_says_that_its_budget_is_used_up(
    scene: Scene,
) -> None:
    @tool(idempotent=True)
    async def scatter(context: ToolContext) -> str:
        return (await context.runs.start("child", share={"turns": 1, "tool_calls": 3, "steps": 1})).run_id

    budget = Budget(tool_calls=5, turns=3)
    task = parent_task(
        scene, [step("scatter"), write("one"), write("two")], scatter, child=child_task(scene), budget=budget
    )
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert (state.phase, state.budget.used.tool_calls) == (Phase.SUCCEEDED, 4)


async def test_one_worker_with_one_place_advances_a_parent_its_child_and_its_grandchild(scene: Scene) -> None:
    grandchild = replace(child_task(scene), name="grandchild")
    child = child_task(
        scene,
        always(step("deeper"), write()),
        delegate({"turns": 1, "tool_calls": 1}, name="deeper", child="grandchild"),
    )
    child = replace(child, children=(grandchild,))
    shares = {"turns": 4, "tool_calls": 4}
    task = parent_task(scene, always(step("delegate"), write()), delegate(shares), child=child)
    options = WorkerOptions(concurrency=1)
    async with Worker(store=scene.store, tasks=[task], clock=scene.clock, options=options) as worker:
        runs = [await worker.submit(task) for _ in range(2)]
        states = [await worker.wait(run_id) for run_id in runs]
    assert [state.phase for state in states] == [Phase.SUCCEEDED] * 2
    assert worker.failures == ()


async def test_children_of_two_parents_are_two_runs(scene: Scene) -> None:
    task = parent_task(scene, always(step("delegate"), write()), delegate(), child=child_task(scene))
    worker = scene.worker(task)
    runs = [await worker.submit(task) for _ in range(2)]
    states = [await worker.advance(run_id) for run_id in runs]
    assert [state.phase for state in states] == [Phase.SUCCEEDED] * 2
    children = [await worker.state(only_child(run_id)) for run_id in runs]
    assert [child.parent for child in children] == runs


async def test_runs_are_nested_eight_deep_at_most(scene: Scene) -> None:
    free = Budget(turns=None, tool_calls=None, wall_seconds=None, steps=None, replans=None, repairs=None)
    task = replace(child_task(scene), name="leaf", budget=free)
    for depth in range(MAX_DEPTH + 1):
        script = Script([step("delegate")], [write()])
        made = scene.task(script, delegate(None, child=task.name), budget=free)
        task = replace(made, name=f"level{depth}", children=(task,))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    await worker.advance(run_id)
    messages: list[str] = []
    depth = 0
    while True:
        failed = await facts(scene, run_id, ToolFailed)
        messages += [item.message for item in failed]
        run_id = only_child(run_id)
        if await scene.store.find_request(f"child:{run_id}") is None:
            break
        depth += 1
    assert depth == MAX_DEPTH
    assert [text for text in messages if "too_deep" in text] != []


async def test_a_tool_outside_a_run_cannot_start_children() -> None:
    context = ToolContext(call_id="1.0", attempt=1, idempotency_key="k", signal=CancelSignal())
    with pytest.raises(ChildRefused, match="there is no run"):
        await context.runs.start("child")
    with pytest.raises(ChildRefused, match="not started by a run"):
        await ChildRun(handle="x").result()


def test_a_worker_knows_the_tasks_of_children_and_refuses_two_of_one_name(scene: Scene) -> None:
    child = child_task(scene)
    task = parent_task(scene, [write()], child=child)
    assert [item.name for item in task.family()] == ["scene", "child"]
    scene.worker(task, child)
    with pytest.raises(TaskError, match="two tasks are called 'child'"):
        scene.worker(task, replace(child, goal="another"))
    with pytest.raises(TaskError, match="stands there twice"):
        replace(task, children=(child, child))


async def test_a_child_that_waits_for_a_person_keeps_its_parent_waiting_and_is_named(scene: Scene) -> None:
    child = child_task(scene, always(step("send"), write()), tool(name="send", inline=True)(lambda: "sent"))
    child = replace(child, policy=ask_to_send)
    task = parent_task(scene, [step("delegate"), write()], delegate(), child=child)
    told: list[tuple[str, str, str]] = []
    options = WorkerOptions(claims="named", on_progress=lambda run, call, text: told.append((run, call, text)))
    worker = Worker(store=scene.store, tasks=[task], clock=scene.clock, options=options)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    blocked = await _blocked(scene, run_id)
    [cause] = blocked.causes
    assert (await worker.state(run_id)).phase is Phase.RUNNING
    for _ in range(3):
        await scene.clock.advance(1.5)
    await scene.worker().unblock(blocked.run_id, cause.id, answer=JsonData("allow"))
    await scene.clock.advance(1.5)
    assert (await advancing).phase is Phase.SUCCEEDED
    told_of_child = f"child run {blocked.run_id} waits for an answer: checkrein show {blocked.run_id}"
    assert told == [(run_id, "1.0", told_of_child)]


async def _blocked(scene: Scene, run_id: str) -> RunState:
    await scene.until(run_id, lambda state: any(call.child for call in state.open_calls))
    return await scene.until(only_child(run_id), lambda state: state.phase is Phase.BLOCKED)


async def test_what_a_person_adds_to_a_child_is_not_charged_to_its_parent(scene: Scene) -> None:
    child = child_task(scene, always(write("one"), write("two"), write("three")))
    task = parent_task(
        scene, [step("delegate"), write()], delegate({"turns": 1, "tool_calls": 1, "steps": 5}), child=child
    )
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    blocked = await _blocked(scene, run_id)
    await scene.worker().extend(blocked.run_id, Amounts(tool_calls=5))
    await scene.clock.advance(1.5)
    state = await advancing
    assert state.phase is Phase.SUCCEEDED
    assert (await worker.state(only_child(run_id))).budget.used.tool_calls == 3
    assert state.budget.used.tool_calls == 3


async def test_the_time_of_a_child_is_charged_beside_the_time_that_its_parent_waited_and_the_clock_goes_on(
    scene: Scene,
) -> None:
    inner, child_gate = gate("inner")
    outer, parent_gate = gate("outer")
    child = child_task(scene, always(step("inner"), write()), inner)
    task = parent_task(scene, [step("delegate"), step("outer"), write()], delegate(), outer, child=child)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await child_gate.entered.wait()
    await scene.clock.advance(7.0)
    child_gate.release.set()
    await parent_gate.entered.wait()
    await scene.clock.advance(3.0)
    parent_gate.release.set()
    state = await advancing
    assert state.phase is Phase.SUCCEEDED
    assert (await worker.state(only_child(run_id))).budget.used.wall_seconds == 7.0
    assert state.budget.used.wall_seconds == 7.0 + 7.0 + 3.0
