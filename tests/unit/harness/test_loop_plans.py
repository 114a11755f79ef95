"""Plans over time: what a planner is told, what a revision keeps, what follows a failure, and when messages are read."""

import pytest

from checkrein.harness.hooks import SKIP, HookAbort
from checkrein.harness.planners import LastError, Plan, Step, StepRecord
from checkrein.harness.pulls import PullRequest
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import PlanCommit, PlanReason, StepStart, TurnStart
from checkrein.kernel.session_next import OnFailure
from checkrein.kernel.session_state import EndedStep
from tests.unit.harness.loop_scene import Scene, Setting, called, ended, is_sound, paused, plain, tooled


def _commit(scene: Scene, turn: int) -> PlanCommit:
    (commit,) = [
        event.data
        for event in scene.events("plan.commit")
        if isinstance(event.data, PlanCommit) and event.data.turn == turn
    ]
    return commit


def _reasons(scene: Scene) -> list[PlanReason]:
    return [event.data.reason for event in scene.events("turn.start") if isinstance(event.data, TurnStart)]


def _shown(scene: Scene, turn: int) -> list[object]:
    """What the planner was told about the past in a turn, in short."""
    return [
        (item.step.id, item.status) if isinstance(item, StepRecord) else item.text
        for item in scene.script.told[turn - 1].history
    ]


# What a planner is told.


async def test_the_first_planning_is_told_the_goal_and_nothing_else() -> None:
    scene = Scene([plain(1)])
    ended(await scene.run())
    (told,) = scene.script.told
    assert (told.goal, told.history, told.last_error) == ("find the sum", (), None)


async def test_history_is_told_in_order_of_ending_with_results_and_errors() -> None:
    scene = Scene(Plan([plain("a"), tooled("b", arguments={"key": 1}), tooled("c")], final=False), [])
    scene.on("before_step", None, None, SKIP)
    await scene.run()
    ended(await scene.answer({"result": {"sum": 3}}))
    assert scene.script.told[1].history == (
        StepRecord(plain("a"), "done", None, ""),
        StepRecord(tooled("b", arguments={"key": 1}), "done", {"sum": 3}, ""),
        StepRecord(tooled("c"), "skipped", None, ""),
    )
    assert scene.script.told[1].last_error is None


async def test_the_last_error_is_told_until_a_plan_is_committed() -> None:
    scene = Scene([tooled(1)], [plain(2)], Plan([plain(3)], final=False), [])
    scene.on("after_plan", None, HookAbort("too short"))
    await scene.run()
    ended(await scene.answer({"error": "no key"}))
    told = [told.last_error for told in scene.script.told]
    assert told == [
        None,
        LastError("step", "step 1 failed: internal: no key"),
        LastError("draft", "too short"),
        None,
    ]


async def test_a_goal_with_characters_that_cannot_be_stored_is_cleaned() -> None:
    scene = Scene([plain(1)])
    ended(await scene.loop.run("find \ud800 it"))
    assert scene.script.told[0].goal == scene.loop.session.goal == "find \ufffd it"


# Revisions.


async def test_a_revision_keeps_done_steps_and_carries_its_diff() -> None:
    scene = Scene(
        [plain(1), tooled(2), plain(3), plain(4)],
        [plain(1), tooled(2, arguments={"key": "x"}), plain(4), plain(5)],
    )
    await scene.run()
    called(await scene.answer({"error": "no key"}), "2.1")
    commit = _commit(scene, 2)
    assert (commit.reason, commit.removed, commit.added, commit.revised) == ("replan", (3,), (5,), (2,))
    ended(await scene.answer({"result": 1}))
    ends = [(item.step.id, item.status) for item in scene.loop.session.history if isinstance(item, EndedStep)]
    assert ends == [(1, "done"), (2, "failed"), (2, "done"), (4, "done"), (5, "done")]


async def test_a_first_plan_has_no_diff() -> None:
    scene = Scene([plain(1)])
    ended(await scene.run())
    commit = _commit(scene, 1)
    assert (commit.reason, commit.removed, commit.added, commit.revised) == ("first", (), (), ())


async def test_a_plan_that_leaves_everything_out_removes_what_was_left() -> None:
    scene = Scene([plain(1), tooled(2), plain(3)], [plain("x")])
    await scene.run()
    ended(await scene.answer({"error": "no"}))
    commit = _commit(scene, 2)
    assert (commit.removed, commit.added, commit.revised) == ((3,), ("x",), ())


async def test_the_committed_plan_is_shown() -> None:
    scene = Scene(Plan([tooled(1, arguments={"key": "a"}), plain(2)], final=False))
    assert scene.loop.plan is None
    await scene.run()
    assert scene.loop.plan == Plan((tooled(1, arguments={"key": "a"}), plain(2)), final=False)


async def test_a_continuation_is_no_replan() -> None:
    scene = Scene(Plan([plain(1)], final=False), Plan([plain(2)], final=False), [])
    result = ended(await scene.run())
    assert _reasons(scene) == ["first", "continuation", "continuation"]
    assert result.budget.used.replans == 0


@pytest.mark.parametrize("steps", [(1, 2), (2, 1)])
async def test_ids_may_be_numbers_or_texts_that_look_like_them(steps: tuple[int, int]) -> None:
    scene = Scene([plain(number) for number in steps] + [plain(str(number)) for number in steps])
    ended(await scene.run())
    assert len(scene.events("step.end")) == 4


# What follows a failure.


@pytest.mark.parametrize(
    ("policy", "reason", "steps"), [("replan", "gave_up", 1), ("skip", "goal_met", 2), ("abort", "step_failed", 1)]
)
async def test_a_failed_step_leads_where_the_policy_says(policy: OnFailure, reason: str, steps: int) -> None:
    scene = Scene([tooled(1), plain(2)], [], setting=Setting(on_failure=policy))
    await scene.run()
    result = ended(await scene.answer({"error": "no key"}), reason)
    assert len(scene.events("step.start")) == steps
    assert ("no key" in result.message) == (reason != "goal_met")


async def test_the_policy_skip_tells_a_planner_of_no_error() -> None:
    scene = Scene(Plan([tooled(1)], final=False), [], setting=Setting(on_failure="skip"))
    await scene.run()
    ended(await scene.answer({"error": "no"}), "no_plan")
    assert (_shown(scene, 2), scene.script.told[1].last_error) == ([(1, "failed")], None)


@pytest.mark.parametrize("policy", ["replan", "skip", "abort"])
async def test_a_failed_step_never_ends_its_batch(policy: OnFailure) -> None:
    scene = Scene([tooled(1, "b"), tooled(2, "b"), plain(3)], [], setting=Setting(on_failure=policy))
    called(await scene.run(), "1.0", "1.1")
    called(await scene.answer({"error": "no", "call_id": "1.0"}), "1.1")
    await scene.answer({"result": 2})
    assert len(scene.events("tool.result", "tool.error")) == 2
    assert scene.loop.state == "DONE"


async def test_steps_of_a_batch_that_fail_before_they_begin_leave_the_others_to_be_done() -> None:
    scene = Scene([tooled(1, "b"), tooled(2, "b"), tooled(3, "b")], [])
    scene.on("before_step", HookAbort("not 1"))
    scene.on("before_tool_call", SKIP)
    called(await scene.run(), "1.2")
    ended(await scene.answer({"result": 3}), "gave_up")
    assert _shown(scene, 2) == [(1, "failed"), (2, "skipped"), (3, "done")]


# Messages.


async def test_a_steering_message_makes_the_next_reflecting_plan_and_is_in_the_history() -> None:
    scene = Scene([tooled(1), tooled(2)], [tooled(1), tooled(2), plain(3)])
    called(await scene.run(), "1.0")
    scene.loop.steer("also note it")
    called(await scene.answer({"result": 1}), "2.1")
    assert _shown(scene, 2) == [(1, "done"), "also note it"]
    assert scene.script.told[1].last_error is None
    assert _commit(scene, 2).added == (3,)
    ended(await scene.answer({"result": 2}))
    assert is_sound(scene.loop)


async def test_a_planner_may_answer_a_message_with_its_old_remaining_steps() -> None:
    scene = Scene([tooled(1), plain(2)], [plain(2)])
    await scene.run()
    scene.loop.steer("go on")
    ended(await scene.answer({"result": 1}))
    commit = _commit(scene, 2)
    assert (commit.removed, commit.added, commit.revised) == ((), (), ())
    assert len(scene.events("step.start")) == 2


async def test_messages_before_the_start_and_while_planning_are_read_in_order() -> None:
    scene = Scene([plain(1)], [])
    scene.loop.steer("one")
    scene.loop.steer("two")

    async def hook(_payload: dict[str, object]) -> None:
        scene.loop.steer("three")

    remove = scene.loop.hooks.on("after_plan", hook)
    scene.loop.hooks.on("after_plan", lambda _payload: remove())
    ended(await scene.run())
    assert _shown(scene, 1) == ["one", "two"]
    assert _shown(scene, 2) == ["one", "two", (1, "done"), "three"]


async def test_a_follow_up_waits_until_the_goal_would_be_met() -> None:
    scene = Scene([tooled(1), tooled(2)], [plain(3)])
    await scene.run()
    scene.loop.follow_up("and then?")
    called(await scene.answer({"result": 1}), "1.1")
    ended(await scene.answer({"result": 2}))
    assert _shown(scene, 2) == [(1, "done"), (2, "done"), "and then?"]
    assert _reasons(scene) == ["first", "replan"]


async def test_a_follow_up_is_read_before_an_empty_plan_meets_the_goal() -> None:
    scene = Scene(Plan([tooled(1)], final=False), [], [plain(2)])
    await scene.run()
    scene.loop.follow_up("and then?")
    ended(await scene.answer({"result": 1}))
    assert _shown(scene, 3) == [(1, "done"), "and then?"]


async def test_steering_comes_before_a_follow_up() -> None:
    scene = Scene([tooled(1)], [plain(2)], [plain(3)])
    await scene.run()
    scene.loop.follow_up("later")
    scene.loop.steer("now")
    ended(await scene.answer({"result": 1}))
    assert _shown(scene, 2) == [(1, "done"), "now"]
    assert _shown(scene, 3) == [(1, "done"), "now", (2, "done"), "later"]


async def test_messages_that_no_planning_accepted_are_unread() -> None:
    scene = Scene([tooled(1)], [], setting=Setting(on_failure="abort"))
    await scene.run()
    scene.loop.steer("now")
    scene.loop.follow_up("later")
    assert ended(await scene.answer({"error": "no"}), "step_failed").unread == ("now", "later")


async def test_a_message_given_while_paused_is_read_after_the_pause() -> None:
    scene = Scene([plain(1)], [plain(2)], setting=Setting(budget=Budget(steps=0)))
    paused(await scene.run(), "step_budget")
    scene.loop.steer("wait")
    ended(await scene.answer({"extend": {"steps": 2}}))
    assert _shown(scene, 2) == [(1, "done"), "wait"]


async def test_a_message_is_read_once_however_often_the_planner_fails() -> None:
    scene = Scene(RuntimeError("no"), RuntimeError("no"), [plain(1)])
    scene.loop.steer("now")
    pull = await scene.run()
    while isinstance(pull, PullRequest):
        pull = await scene.answer({"decision": "again"})
    assert [_shown(scene, turn) for turn in (1, 2, 3)] == [["now"]] * 3


# Large and odd plans.


async def test_a_long_plan_is_worked_through_step_by_step() -> None:
    scene = Scene([plain(number) for number in range(200)])
    ended(await scene.run())
    started = [event.data.step_id for event in scene.events("step.start") if isinstance(event.data, StepStart)]
    assert started == list(range(200))


async def test_a_planner_may_be_plain_and_take_its_time_in_a_thread() -> None:
    def planner(_goal: str, _history: object, _last_error: object) -> list[Step]:
        return [plain(1)]

    scene = Scene([])
    scene.loop.planner = planner
    ended(await scene.run())
