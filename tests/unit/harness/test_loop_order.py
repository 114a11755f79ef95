"""The order of everything: which hook is fired when, relative to the events, for whole sessions with every topic watched."""

import pytest

from checkrein.harness.hooks import SKIP, HookAbort, Pause
from checkrein.harness.planners import Plan
from checkrein.kernel.budget import Budget
from tests.unit.harness.loop_scene import Scene, Setting, called, ended, is_sound, paused, plain, tooled

PLANNED = "turn.start BEFORE_PLAN plan.draft AFTER_PLAN plan.commit"
CALLED = "BEFORE_STEP step.start BEFORE_TOOL_CALL tool.call"
DONE = "tool.result AFTER_TOOL_CALL step.end AFTER_STEP"
FAILED = "tool.error ON_ERROR AFTER_TOOL_CALL step.end AFTER_STEP"
END = "ON_COMPLETE session.complete"


def _is(scene: Scene, *parts: str) -> bool:
    assert scene.traced() == " ".join(parts).split()
    return is_sound(scene.loop)


async def test_a_session_of_plain_and_tool_steps() -> None:
    scene = Scene([plain(1), tooled(2), tooled(3)])
    scene.watch()
    called(await scene.run(), "1.1")
    assert _is(scene, "session.start", PLANNED, "BEFORE_STEP step.start step.end AFTER_STEP", CALLED)
    called(await scene.answer({"result": 1}), "1.2")
    assert _is(scene, DONE, CALLED)
    ended(await scene.answer({"result": 2}))
    assert _is(scene, DONE, END)


async def test_a_failed_call_and_the_revision_after_it() -> None:
    scene = Scene([tooled(1), plain(2)], [plain(3)])
    scene.watch()
    called(await scene.run(), "1.0")
    scene.traced()
    ended(await scene.answer({"error": "no"}))
    assert _is(scene, FAILED, PLANNED, "BEFORE_STEP step.start step.end AFTER_STEP", END)


async def test_a_batch_is_started_whole_then_asked_whole_then_granted_whole() -> None:
    scene = Scene([tooled(1, "b"), plain(2, "b"), tooled(3, "b")])
    scene.watch()
    called(await scene.run(), "1.0", "1.2")
    assert _is(
        scene,
        "session.start",
        PLANNED,
        "BEFORE_STEP step.start BEFORE_STEP step.start step.end BEFORE_STEP step.start",
        "BEFORE_TOOL_CALL BEFORE_TOOL_CALL tool.call tool.call",
    )
    await scene.answer({"result": 3, "call_id": "1.2"})
    ended(await scene.answer({"result": 1}))
    assert _is(
        scene,
        "tool.result tool.result AFTER_TOOL_CALL step.end AFTER_TOOL_CALL step.end",
        "AFTER_STEP AFTER_STEP AFTER_STEP",
        END,
    )


async def test_a_used_up_budget() -> None:
    scene = Scene([plain(1)], setting=Setting(budget=Budget(turns=0)))
    scene.watch()
    paused(await scene.run(), "budget_exceeded:turns")
    assert _is(scene, "session.start ON_BUDGET_EXCEEDED budget.warn session.pause ON_PAUSE")
    ended(await scene.answer({"extend": {"turns": 1}}))
    assert _is(scene, "session.resume", PLANNED, "BEFORE_STEP step.start step.end AFTER_STEP", END)


async def test_a_used_up_budget_of_calls_is_met_before_hooks_are_asked_about_the_call() -> None:
    scene = Scene([tooled(1)], setting=Setting(budget=Budget(tool_calls=0)))
    scene.watch()
    paused(await scene.run(), "budget_exceeded:tool_calls")
    assert _is(
        scene,
        "session.start",
        PLANNED,
        "BEFORE_STEP step.start ON_BUDGET_EXCEEDED budget.warn session.pause ON_PAUSE",
    )
    called(await scene.answer({"extend": {"tool_calls": 1}}), "1.0")
    assert _is(scene, "session.resume BEFORE_TOOL_CALL tool.call")


async def test_hooks_are_not_asked_again_about_calls_that_waited_for_the_budget() -> None:
    scene = Scene([tooled(1, "b"), tooled(2, "b")], setting=Setting(budget=Budget(tool_calls=1)))
    scene.watch()
    called(await scene.run(), "1.0")
    scene.traced()
    paused(await scene.answer({"result": 1}), "budget_exceeded:tool_calls")
    assert _is(scene, "tool.result ON_BUDGET_EXCEEDED budget.warn session.pause ON_PAUSE")
    called(await scene.answer({"extend": {"tool_calls": 1}}), "1.1")
    assert _is(scene, "session.resume tool.call")
    ended(await scene.answer({"result": 2}))
    assert _is(scene, "tool.result AFTER_TOOL_CALL step.end AFTER_TOOL_CALL step.end AFTER_STEP AFTER_STEP", END)


async def test_a_planner_that_fails() -> None:
    scene = Scene(RuntimeError("no"), [plain(1)])
    scene.watch()
    paused(await scene.run(), "planner_failed")
    assert _is(scene, "session.start turn.start BEFORE_PLAN ON_ERROR session.pause ON_PAUSE")
    ended(await scene.answer({"decision": "again"}))
    assert _is(scene, "session.resume", PLANNED, "BEFORE_STEP step.start step.end AFTER_STEP", END)


async def test_a_dropped_draft() -> None:
    scene = Scene([plain(1)], [plain(2)])
    scene.watch()
    scene.on("after_plan", HookAbort("too short"))
    ended(await scene.run())
    assert _is(
        scene,
        "session.start turn.start BEFORE_PLAN plan.draft AFTER_PLAN plan.draft",
        PLANNED,
        "BEFORE_STEP step.start step.end AFTER_STEP",
        END,
    )


async def test_the_end_without_a_plan() -> None:
    scene = Scene([])
    scene.watch()
    ended(await scene.run(), "no_plan")
    assert _is(scene, "session.start turn.start BEFORE_PLAN plan.draft AFTER_PLAN", END)


async def test_a_hook_before_a_call_that_refuses_it() -> None:
    scene = Scene([tooled(1)], [])
    scene.watch()
    scene.on("before_tool_call", HookAbort("not this"))
    ended(await scene.run(), "gave_up")
    assert _is(
        scene,
        "session.start",
        PLANNED,
        "BEFORE_STEP step.start BEFORE_TOOL_CALL tool.error ON_ERROR step.end AFTER_STEP",
        "turn.start BEFORE_PLAN plan.draft AFTER_PLAN",
        END,
    )


async def test_a_review_in_the_middle_of_a_topic_goes_on_after_the_hook_that_asked() -> None:
    scene = Scene([plain(1)])
    scene.watch("before_step")
    scene.on("before_step", Pause("look"))
    later = scene.on("before_step")
    paused(await scene.run(), "review:look")
    assert scene.traced()[-2:] == ["BEFORE_STEP", "session.pause"]
    assert later == []
    ended(await scene.answer({"decision": "fine"}))
    assert scene.traced() == ["session.resume", "step.start", "step.end", "session.complete"]
    assert [payload["decision"] for payload in later] == ["fine"]


async def test_a_skip_after_a_step_skips_the_next_one() -> None:
    scene = Scene([plain(1), tooled(2), plain(3)])
    scene.watch()
    scene.on("after_step", SKIP)
    ended(await scene.run())
    one = "BEFORE_STEP step.start step.end AFTER_STEP"
    assert _is(scene, "session.start", PLANNED, one, "step.start step.end AFTER_STEP", one, END)


async def test_a_plan_that_is_not_final_is_continued() -> None:
    scene = Scene(Plan([plain(1)], final=False), [])
    scene.watch()
    ended(await scene.run())
    one = "BEFORE_STEP step.start step.end AFTER_STEP"
    assert _is(scene, "session.start", PLANNED, one, PLANNED, END)


async def test_hooks_that_fail_are_told_to_on_error_where_they_failed() -> None:
    scene = Scene([plain(1)])
    scene.watch("on_error", "before_plan", "on_complete")
    scene.on("before_plan", RuntimeError("one"))
    scene.on("after_plan", RuntimeError("two"))
    scene.on("before_step", RuntimeError("three"))
    scene.on("after_step", RuntimeError("four"))
    scene.on("on_complete", RuntimeError("five"))
    ended(await scene.run())
    assert _is(
        scene,
        "session.start turn.start BEFORE_PLAN ON_ERROR plan.draft ON_ERROR plan.commit",
        "ON_ERROR step.start step.end ON_ERROR ON_COMPLETE ON_ERROR session.complete",
    )
    assert [error.message for error in scene.loop.hook_errors] == [
        f"RuntimeError: {name}" for name in ("one", "two", "three", "four", "five")
    ]


@pytest.mark.parametrize("count", [1, 3])
async def test_a_subject_is_shown_to_each_hook_once_whatever_happens_to_the_log_meanwhile(count: int) -> None:
    scene = Scene([plain(1), tooled(2)])

    async def steering(_payload: dict[str, object]) -> None:
        for _ in range(count):
            scene.loop.follow_up("and more")

    scene.loop.hooks.on("before_step", steering)
    seen = scene.on("before_step")
    called(await scene.run(), "1.1")
    assert len(seen) == 2
