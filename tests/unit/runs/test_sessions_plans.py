"""Plans of durable runs over time: messages from other processes, repairs with findings, and revisions that keep what is done."""

from pathlib import Path

import pytest

from checkrein.errors import Rejected
from checkrein.harness.hooks import SKIP, Pause
from checkrein.harness.planners import Note, Plan, StepRecord
from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import PlanCommit, SessionComplete, TurnStart
from checkrein.kernel.state import Phase
from checkrein.store import SqliteStore
from checkrein.testing import CrashPoint
from tests.unit.runs.scene import Exists, Scene, Script, gate, misuse, step, write
from tests.unit.runs.sessions import Doer, Fires, ends_of, hooked, kinds, restarted


async def test_a_message_from_another_process_reaches_a_running_session_when_it_next_reflects(
    scene: Scene, tmp_path: Path
) -> None:
    await restarted(scene, tmp_path)
    other = SqliteStore(tmp_path / "runs.db", clock=scene.clock)
    held, handle = gate()
    script = Script([step("held"), step("rest"), write()], [write()])
    doer = Doer()
    task = scene.task(script, held, *doer.tools("rest"))
    run_id = await scene.worker().submit(task)
    advancing = scene.spawn(scene.worker(task).advance(run_id))
    await handle.entered.wait()
    await scene.worker(store=other).steer(run_id, "leave the rest")
    handle.release.set()
    assert (await advancing).phase is Phase.SUCCEEDED
    assert (script.notes(0), script.notes(1), doer.made) == ([], ["leave the rest"], [])
    turns = [item for item in kinds(await scene.log(run_id), TurnStart) if isinstance(item, TurnStart)]
    assert [(turn.reason, len(turn.notes)) for turn in turns] == [("first", 0), ("replan", 1)]
    await scene.check_log(run_id)
    await other.aclose()


async def test_a_steering_message_during_a_step_without_tool_is_read_before_the_next_one(scene: Scene) -> None:
    script = Script([step("work"), step("rest"), write()], [write()])
    doer = Doer()

    async def steer(_name: str) -> None:
        await scene.worker().steer(run_id, "stop there")

    point = CrashPoint(at=1, among=("after body work",), deed=steer)
    task = point.task(scene.task(script, *doer.tools("work", "rest")))
    run_id = await scene.worker().submit(task)
    assert (await scene.worker(task).advance(run_id)).phase is Phase.SUCCEEDED
    assert (doer.made, script.notes(1)) == (["work"], ["stop there"])


async def test_a_message_to_a_paused_run_waits_and_is_read_after_the_answer(scene: Scene) -> None:
    script = Script([step("work"), write()], [write()])
    doer = Doer()
    task = hooked(scene.task(script, *doer.tools("work")), Fires().on("before_tool_call", Pause("look")))
    run_id = await scene.worker().submit(task)
    await scene.worker(task).advance(run_id)
    await scene.commands().steer(run_id, "when you go on")
    assert (await scene.worker(task).advance(run_id)).phase is Phase.BLOCKED
    await scene.commands().respond(run_id, {"decision": "allow"})
    plain = scene.task(script, *doer.tools("work"))
    assert (await scene.worker(plain).advance(run_id)).phase is Phase.SUCCEEDED
    assert (doer.made, script.notes(1)) == (["work"], ["when you go on"])
    await scene.check_log(run_id)


async def test_a_follow_up_is_planned_before_the_work_is_handed_over_and_not_checked_in_between(scene: Scene) -> None:
    check = Exists()
    script = Script([write()], [write("more", "more.txt")])
    task = scene.task(script, checks=[check])
    run_id = await scene.worker().submit(task)
    await scene.commands().follow_up(run_id, "and one more")
    assert (await scene.worker(task).advance(run_id)).phase is Phase.SUCCEEDED
    assert (script.notes(0), script.notes(1), check.measured) == ([], ["and one more"], 1)
    assert (await scene.types(run_id)).count("work_done") == 1
    await scene.check_log(run_id)


async def test_a_planner_may_answer_a_note_with_its_old_remaining_steps(scene: Scene) -> None:
    doer = Doer()
    steps = [step("one"), step("two"), write()]
    script = Script(steps, steps[1:])

    async def steer(_name: str) -> None:
        await scene.worker().steer(run_id, "carry on")

    point = CrashPoint(at=1, among=("after body one",), deed=steer)
    task = point.task(scene.task(script, *doer.tools("one", "two")))
    run_id = await scene.worker().submit(task)
    assert (await scene.worker(task).advance(run_id)).phase is Phase.SUCCEEDED
    assert doer.made == ["one", "two"]
    await scene.check_log(run_id)


async def test_messages_that_come_while_artifacts_are_checked_are_read_by_a_repair_or_listed_as_unread(
    scene: Scene,
) -> None:
    async def speak(_context: object) -> None:
        if check.measured in {1, 3}:
            await scene.commands().follow_up(run_id, "late", request_id=f"note-{check.measured}")

    check = Exists(before=speak)
    script = Script([write(text="")], [write("again")])
    task = scene.task(script, checks=[check])
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    assert state.phase is Phase.SUCCEEDED
    assert (script.notes(1), check.measured) == (["late"], 4)
    (end,) = kinds(await scene.log(run_id), SessionComplete)
    assert isinstance(end, SessionComplete)
    assert (end.reason, end.unread) == ("goal_met", ("note-3",))
    with pytest.raises(Rejected, match="terminal"):
        await scene.commands().follow_up(run_id, "too late")
    await scene.check_log(run_id)


async def test_a_repair_is_planned_with_the_findings_and_counts_as_no_replan(scene: Scene, tmp_path: Path) -> None:
    await restarted(scene, tmp_path)
    doer = Doer()
    script = Script([step("work"), write(text="")], [write("again")])
    task = scene.task(script, *doer.tools("work"), budget=Budget(repairs=1, replans=0))
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "after append check_failed")
    await restarted(scene, tmp_path)
    state = await scene.worker(task, name="another").advance(run_id)
    assert (state.phase, state.budget.used.repairs, state.budget.used.replans) == (Phase.SUCCEEDED, 1, 0)
    history, error = script.asked[1]
    assert error is not None
    assert (error.kind, error.data) == (
        "check",
        [{"check": "exists:report.txt", "subject": "report.txt", "code": "empty", "message": "0 characters"}],
    )
    assert [item.step.id for item in history if isinstance(item, StepRecord)] == ["work", "report"]
    assert doer.made == ["work"]
    commits = [item for item in kinds(await scene.log(run_id), PlanCommit) if isinstance(item, PlanCommit)]
    assert [commit.reason for commit in commits] == ["first", "repair"]
    await scene.check_log(run_id)


@pytest.mark.parametrize(("answer", "code"), [([], "check_failed"), ([write("again", text="")], "check_failed")])
async def test_a_repair_that_brings_nothing_ends_the_run_with_the_finding(
    scene: Scene, answer: list[object], code: str
) -> None:
    script = Script([write(text="")], answer)  # pyright: ignore[reportArgumentType]  a list of steps, or an empty one
    task = scene.task(script)
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    assert state.outcome is not None
    assert (state.outcome.code, len(script.asked)) == (code, 2)
    (end,) = kinds(await scene.log(run_id), SessionComplete)
    assert isinstance(end, SessionComplete)
    assert end.reason == code
    await scene.check_log(run_id)


async def test_a_replan_keeps_finished_steps_and_its_commit_says_what_changed(scene: Scene) -> None:
    doer = Doer()
    one, two = step("one"), step("two")
    script = Script([one, misuse(), two, write()], [one, step("new"), write(text="better")])
    task = scene.task(script, *doer.tools("one", "two", "new"))
    run_id = await scene.worker().submit(task)
    assert (await scene.worker(task).advance(run_id)).phase is Phase.SUCCEEDED
    assert doer.made == ["one", "new"]
    _, commit = kinds(await scene.log(run_id), PlanCommit)
    assert isinstance(commit, PlanCommit)
    assert (commit.removed, commit.added, commit.revised) == (("two",), ("new",), ("report",))
    await scene.check_log(run_id)


async def test_a_replan_after_a_crash_keeps_finished_steps(scene: Scene, tmp_path: Path) -> None:
    await restarted(scene, tmp_path)
    doer = Doer()
    one, two = step("one"), step("two")
    script = Script([one, misuse(), two, write()], [one, two, write()], [one, two, write()])
    task = scene.task(script, *doer.tools("one", "two"))
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "after plan", at=2)
    await restarted(scene, tmp_path)
    state = await scene.worker(task).advance(run_id)
    assert (state.phase, doer.made, state.budget.used.turns) == (Phase.SUCCEEDED, ["one", "two"], 3)
    await scene.check_log(run_id)


@pytest.mark.parametrize("count", [0, 1, 2])
async def test_replans_are_counted_to_the_limit_and_an_extension_goes_on(scene: Scene, count: int) -> None:
    script = Script(*([misuse()] for _ in range(3)), [write()])
    task = scene.task(script, budget=Budget(replans=count))
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    assert ([cause.id for cause in state.causes], state.budget.used.replans) == (["budget:replans"], count)
    assert len(script.asked) == count + 1
    await scene.commands().respond(run_id, {"extend": {"replans": 3 - count}})
    state = await scene.worker(task).advance(run_id)
    assert (state.phase, state.budget.used.replans) == (Phase.SUCCEEDED, 3)
    await scene.check_log(run_id)


async def test_a_plan_whose_steps_were_all_skipped_met_no_goal(scene: Scene) -> None:
    task = hooked(scene.task([write()]), Fires().on("before_step", SKIP))
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    assert state.outcome is not None
    assert state.outcome.code == "no_plan"
    await scene.check_log(run_id)


async def test_planning_goes_on_after_a_plan_that_is_not_final_with_the_whole_history(scene: Scene) -> None:
    doer = Doer()
    script = Script(Plan([step("one")], final=False), Plan([step("two")], final=False), [write()])
    task = scene.task(script, *doer.tools("one", "two"), budget=Budget(replans=0))
    run_id = await scene.worker().submit(task)
    await scene.worker().extend(run_id, Amounts(turns=1))
    state = await scene.worker(task).advance(run_id)
    assert (state.phase, state.budget.used.replans, state.budget.used.turns) == (Phase.SUCCEEDED, 0, 3)
    ids = [[item.step.id for item in history if not isinstance(item, Note)] for history, _ in script.asked]
    assert ids == [[], ["one"], ["one", "two"]]
    assert ends_of(await scene.log(run_id)) == {"one": "done", "two": "done", "report": "done"}
