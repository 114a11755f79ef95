"""Planning: a planner is asked when it must be, told what happened, and its failure or a person's word ends nothing by itself."""

import threading
from collections.abc import Sequence
from typing import cast

import pytest
from msgspec.structs import replace

from checkrein.errors import Rejected, TaskError
from checkrein.harness.planners import Plan, Step
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import CodeAccepted, SessionComplete, TurnGranted
from checkrein.kernel.session_next import OnFailure
from checkrein.kernel.state import Phase
from checkrein.testing import CrashPoint
from checkrein.tools.function import tool
from tests.unit.runs.scene import Scene, Script, gate, misuse, step, write


class Lazy(list[Step]):
    """Steps that fail when they are looked at."""

    def __len__(self) -> int:
        return 1 // 0


async def test_a_planner_that_raises_blocks_the_run_and_is_asked_again_when_a_person_says_so(scene: Scene) -> None:
    script = Script(RuntimeError("no idea"), [write()])
    task = scene.task(script)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert [(cause.id, cause.kind) for cause in state.causes] == [("planner:1", "answer")]
    assert "no idea" in state.causes[0].message
    assert (await worker.advance(run_id)).version == state.version
    assert (await worker.unblock(run_id, "planner:1")).phase is Phase.RECEIVED
    state = await worker.advance(run_id)
    assert (state.phase, state.budget.used.turns) == (Phase.SUCCEEDED, 2)
    error = script.asked[1][1]
    assert error is not None
    assert error.kind == "planner"
    await scene.check_log(run_id)


async def test_what_a_planner_says_is_kept_within_bounds(scene: Scene) -> None:
    long = Step(id="a", description="d" * 1_000_000, expected_outcome="e" * 1_000_000)
    task = scene.task(Script(RuntimeError("x" * 1_000_000), [long, write()]))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    assert len((await worker.advance(run_id)).causes[0].message) < 5_000
    await worker.unblock(run_id, "planner:1")
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    assert sum(map(len, await scene.store.read(run_id))) < 50_000


async def test_a_planner_that_exits_has_failed_and_the_process_goes_on(scene: Scene) -> None:
    task = scene.task(Script(SystemExit(0), [write()]))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    assert "SystemExit" in (await worker.advance(run_id)).causes[0].message
    await worker.unblock(run_id, "planner:1")
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("steps", "str"),
        ([1], "int"),
        ([write("a"), write("a")], "twice"),
        ([Step(id="a", description="", arguments={"x": float("nan")})], "arguments"),
        ([Step(id="a", description=cast("str", 3))], "description of step 'a' is int, expected str"),
        ([Step(id="a", description="", tool_name=cast("str", 3))], "expected str or NoneType"),
        ([Step(id="a", description="", batch=cast("str", 1.5))], "batch of step 'a' is float"),
        ([Step(id="", description="")], "step id ''"),
        ([Step(id="i" * 201, description="")], "200 characters"),
        ([Step(id=10**30, description="")], "2^53"),
        ([Step(id=True, description="")], "step id True"),
        ([Step(id=number, description="") for number in range(10_001)], "10,001 steps"),
        (
            [Step(id=number, description="", arguments={"x": "x" * 9_000_000}) for number in range(2)],
            "together larger than 16,777,216 bytes",
        ),
        (Plan(cast("Sequence[Step]", Lazy())), "ZeroDivisionError"),
    ],
)
async def test_an_answer_that_is_no_plan_is_the_planners_failure(
    scene: Scene, answer: Sequence[Step] | Plan, reason: str
) -> None:
    task = scene.task(Script(answer))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert [cause.kind for cause in state.causes] == ["answer"]
    assert reason in state.causes[0].message


async def test_a_planner_that_a_crash_ended_is_asked_again_and_counted_again(scene: Scene) -> None:
    script = Script([write()], [write()])
    task = scene.task(script)
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "before plan")
    state = await scene.worker(task).advance(run_id)
    assert (state.phase, state.budget.used.turns) == (Phase.SUCCEEDED, 2)
    turns = [event.data for event in await scene.log(run_id) if isinstance(event.data, TurnGranted)]
    assert [(turn.turn, turn.attempt, turn.previous) for turn in turns] == [(1, 1, ""), (1, 2, "in_doubt")]
    await scene.check_log(run_id)


async def test_a_finished_turn_is_not_asked_again(scene: Scene) -> None:
    script = Script([write()])
    task = scene.task(script)
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "after append plan.draft")
    assert (await scene.worker(task).advance(run_id)).phase is Phase.SUCCEEDED
    assert len(script.asked) == 1


async def test_a_plain_planner_that_never_returns_does_not_hold_up_the_end_of_the_process(scene: Scene) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def never(_goal: str, _history: object, _error: object) -> Plan:
        entered.set()
        go_on.wait()
        return Plan([])

    task = scene.task(never)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    while not entered.is_set():
        await scene.clock.advance(0)
    threads = [thread for thread in threading.enumerate() if thread.name == "planner"]
    assert [thread.daemon for thread in threads] == [True]
    await scene.worker().cancel(run_id)
    await advancing
    go_on.set()


async def test_a_steering_message_is_in_the_history_of_the_next_planning(scene: Scene) -> None:
    held, handle = gate()
    script = Script([step("held"), write("dropped")], [write()])
    task = scene.task(script, held)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await handle.entered.wait()
    await scene.worker().steer(run_id, "make it short")
    handle.release.set()
    state = await advancing
    assert (state.phase, script.notes(0), script.notes(1)) == (Phase.SUCCEEDED, [], ["make it short"])
    assert [call.tool for call in state.effects] == ["held", "put"]


async def test_a_follow_up_waits_until_the_goal_would_count_as_met(scene: Scene) -> None:
    held, handle = gate()
    script = Script([step("held"), write()], [write("more")])
    task = scene.task(script, held)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await handle.entered.wait()
    await scene.worker().follow_up(run_id, "and the summary")
    await scene.worker().steer(run_id, "first this")
    handle.release.set()
    script.answers.insert(1, [write("steered")])
    state = await advancing
    assert state.phase is Phase.SUCCEEDED
    assert [script.notes(turn) for turn in range(3)] == [[], ["first this"], ["first this", "and the summary"]]


async def test_a_note_of_a_crashed_planning_is_told_again_and_one_that_nobody_read_is_listed(scene: Scene) -> None:
    held, handle = gate(idempotent=True)
    script = Script([step("held"), write()], [write()], [write()])
    task = scene.task(script, held)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    await worker.steer(run_id, "kept")
    await scene.crash(task, run_id, "before plan")
    advancing = scene.spawn(worker.advance(run_id))
    await handle.entered.wait()
    await worker.follow_up(run_id, "unread", request_id="note-2")
    await worker.cancel(run_id)
    handle.release.set()
    state = await advancing
    assert state.phase is Phase.FAILED
    assert script.notes(0) == ["kept"]
    ends = [event.data for event in await scene.log(run_id) if isinstance(event.data, SessionComplete)]
    assert [(end.reason, end.unread) for end in ends] == [("cancelled", ("note-2",))]
    with pytest.raises(Rejected, match="terminal"):
        await worker.steer(run_id, "too late")


async def test_other_code_blocks_the_run_until_it_is_accepted(scene: Scene) -> None:
    task = scene.task([write()])
    changed = replace(task, code_hash="f" * 64)
    run_id = await scene.worker().submit(task)
    worker = scene.worker(changed)
    state = await worker.advance(run_id)
    assert [(cause.id, cause.kind) for cause in state.causes] == [("code_changed", "code_changed")]
    assert state.budget.used.turns == 0
    with pytest.raises(Rejected, match="--trust"):
        await worker.unblock(run_id, "code_changed")
    assert (await scene.commands().accept_code(run_id, changed)).phase is Phase.RECEIVED
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    (fact,) = [event for event in await scene.log(run_id) if isinstance(event.data, CodeAccepted)]
    assert fact.actor == "user:test"
    await scene.check_log(run_id)


async def test_a_note_that_comes_while_other_code_is_found_does_not_lose_the_finding(scene: Scene) -> None:
    async def steer(_name: str) -> None:
        await scene.worker().steer(run_id, "hurry")

    task = scene.task([write()])
    point = CrashPoint(at=1, among=("before append blocked",), deed=steer)
    worker = scene.worker(replace(task, version=2), store=point.store(scene.store))
    run_id = await worker.submit(task)
    assert [cause.kind for cause in (await worker.advance(run_id)).causes] == ["code_changed"]


@pytest.mark.parametrize(("policy", "code"), [("abort", "step_failed"), ("replan", "gave_up"), ("skip", "no_plan")])
async def test_a_failed_step_ends_by_the_tasks_policy(scene: Scene, policy: OnFailure, code: str) -> None:
    @tool
    async def fails() -> str:
        raise ValueError("broken")

    script = Script([step("fails")], [])
    task = scene.task(script, fails)
    task = replace(task, on_failure=policy)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert state.outcome is not None
    assert state.outcome.code == code
    await scene.check_log(run_id)


async def test_an_empty_plan_is_the_last_one_whatever_it_says_of_itself(scene: Scene) -> None:
    script = Script(Plan([write()], final=False), Plan([], final=False))
    task = scene.task(script)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    assert len(script.asked) == 2


async def test_a_failure_that_the_tasks_policy_skips_is_no_error_that_a_planner_must_answer(scene: Scene) -> None:
    script = Script(Plan([write(), misuse()], final=False), [])
    task = scene.task(script, on_failure="skip")
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    assert [error for _, error in script.asked] == [None, None]


async def test_a_closed_run_ends_failed_and_lists_what_it_waited_for(scene: Scene) -> None:
    task = scene.task(Script(RuntimeError("no idea")))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    with pytest.raises(Rejected, match="lease_lost"):
        await scene.commands().close(run_id, "not blocked yet")
    await worker.advance(run_id)
    state = await scene.commands().close(run_id, "nobody will mend it")
    assert state.outcome is not None
    assert (state.outcome.code, [cause.id for cause in state.outcome.causes]) == ("closed", ["planner:1"])
    await scene.check_log(run_id)


async def test_the_same_request_gives_the_same_run_and_another_task_is_refused(scene: Scene) -> None:
    task = scene.task([write()])
    worker = scene.worker(task)
    first, again = [await worker.submit(task, request_id="order-1") for _ in range(2)]
    assert first == again
    assert await worker.submit(task, request_id="order-2") != first
    with pytest.raises(Rejected, match="order-1"):
        await worker.submit(replace(task, name="other"), request_id="order-1")


async def test_many_steps_without_tools_are_marked_in_order(scene: Scene) -> None:
    marks = [Step(id=number, description="mark") for number in range(5)]
    task = scene.task([*marks, write()], budget=Budget(steps=6))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert (state.phase, state.budget.used.steps, state.budget.used.tool_calls) == (Phase.SUCCEEDED, 6, 1)


async def test_a_run_whose_task_nobody_has_is_left_alone(scene: Scene) -> None:
    task = scene.task([write()])
    run_id = await scene.worker().submit(task)
    with pytest.raises(TaskError, match="scene"):
        await scene.worker(replace(task, name="other")).advance(run_id)
    assert (await scene.types(run_id)).count("lease_taken") == 0
