"""What a session must survive: reloads, broken results, broken hooks, broken planners, and callers that call too often."""

import pytest

from checkrein.errors import AgentStateError, IllegalTransition, ResumeError
from checkrein.harness.hooks import Pause
from checkrein.harness.loop import HarnessLoop
from checkrein.harness.planners import Plan, Step
from checkrein.harness.pulls import PullRequest
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import PlanCommit, SessionPause, StepEnd, ToolErrorGiven
from checkrein.tools.function import tool
from tests.unit.harness.loop_scene import (
    Scene,
    Script,
    Setting,
    called,
    ended,
    is_sound,
    paused,
    plain,
    results_of,
    tooled,
)

THREE = (plain("read"), tooled("add", arguments={"first": 2}), tooled("check", arguments={"total": 5}))


async def test_the_three_step_plan_with_two_tool_steps_end_to_end() -> None:
    scene = Scene(THREE)
    pull = called(await scene.run(), "1.1")
    assert pull.payload["name"] == "look_up"
    assert (pull.payload["step_id"], pull.payload["arguments"]) == ("add", {"first": 2})
    pull = called(await scene.answer({"result": 5}), "1.2")
    result = ended(await scene.answer({"result": "yes"}))
    assert (result.result, result.unread, result.message) == ("yes", (), "")
    assert scene.types() == [
        "session.start",
        "turn.start",
        "plan.draft",
        "plan.commit",
        "step.start",
        "step.end",
        "step.start",
        "tool.call",
        "tool.result",
        "step.end",
        "step.start",
        "tool.call",
        "tool.result",
        "step.end",
        "session.complete",
    ]
    assert results_of(scene) == [5, "yes"]
    assert (result.budget.used.turns, result.budget.used.tool_calls, result.budget.used.steps) == (1, 2, 3)
    assert is_sound(scene.loop)


async def test_the_same_session_twice_gives_the_same_events() -> None:
    logs: list[list[object]] = []
    for _ in range(2):
        scene = Scene(THREE)
        await scene.run()
        await scene.answer({"result": 5})
        await scene.answer({"result": "yes"})
        logs.append([(event.offset, event.at, event.elapsed, event.data) for event in scene.loop.events])
    assert logs[0] == logs[1]


async def test_the_planner_is_replaced_while_the_session_runs() -> None:
    scene = Scene(Plan([tooled(1)], final=False))
    called(await scene.run(), "1.0")
    other = Script(Plan([tooled(2)], final=False), [])
    scene.loop.planner = other
    called(await scene.answer({"result": 1}), "2.0")
    ended(await scene.answer({"result": 2}))
    assert (len(scene.script.told), len(other.told)) == (1, 2)
    assert [getattr(item, "result", None) for item in other.told[1].history] == [1, 2]


async def test_a_planner_that_replaces_itself_while_it_is_asked_has_its_answer_taken() -> None:
    other = Script([])

    def reload() -> Plan:
        scene.loop.planner = other
        return Plan([plain(1)], final=False)

    scene = Scene(reload)
    ended(await scene.run())
    assert (len(scene.script.told), len(other.told)) == (1, 1)


@pytest.mark.parametrize(
    "value",
    [float("nan"), object(), {1, 2}, {"a": b"\xff"}, [float("inf")]],
    ids=["nan", "object", "set", "bytes", "infinity"],
)
async def test_a_result_that_is_no_json_becomes_the_calls_error(value: object) -> None:
    scene = Scene([tooled(1)], [])
    await scene.run()
    ended(await scene.answer({"result": value}), "gave_up")
    (failed,) = scene.events("tool.error")
    assert isinstance(failed.data, ToolErrorGiven)
    assert "not JSON" in failed.data.message
    assert scene.script.told[1].last_error is not None
    assert is_sound(scene.loop)


async def test_text_that_is_malformed_json_is_a_result_like_any_text() -> None:
    scene = Scene([tooled(1)])
    await scene.run()
    assert ended(await scene.answer({"result": '{"a": ['})).result == '{"a": ['


async def test_a_tool_that_returns_malformed_json_fails_its_step_and_no_more() -> None:
    @tool(inline=True)
    def look_up() -> object:
        return {"total": float("nan")}

    scene = Scene([tooled(1)], [plain(2)], setting=Setting(tools=(look_up,)))
    ended(await scene.run())
    assert scene.script.told[1].last_error is not None
    assert len(scene.events("tool.error")) == 1


async def test_a_hook_that_raises_before_a_tool_call_in_a_session_of_forty_turns() -> None:
    turns, broken = 40, 27
    scene = Scene(*(Plan([tooled(number)], final=False) for number in range(1, turns + 1)), [])
    count = 0

    def shaky(_payload: dict[str, object]) -> None:
        nonlocal count
        count += 1
        if count == broken:
            raise ZeroDivisionError

    scene.loop.hooks.on("before_tool_call", shaky)
    errors = scene.on("on_error")
    pull = await scene.run()
    while isinstance(pull, PullRequest):
        assert pull.kind == "tool"
        pull = await scene.answer({"result": count})
    ended(pull)
    assert (len(scene.events("turn.start")), len(scene.events("tool.call"))) == (turns + 1, turns - 1)
    (failed,) = scene.events("tool.error")
    assert isinstance(failed.data, ToolErrorGiven)
    assert (failed.data.call_id, failed.data.kind) == ("", "internal")
    assert "ZeroDivisionError" in failed.data.message
    assert len(errors) == 1
    told = scene.script.told[broken].last_error
    assert told is not None
    assert (told.kind, "ZeroDivisionError" in told.message) == ("step", True)
    assert pull.budget.used.tool_calls == turns - 1
    assert is_sound(scene.loop)


async def test_a_second_run_is_refused_wherever_the_session_stands() -> None:
    scene = Scene([tooled(1)], [])
    scene.on("before_plan", Pause("look"))
    for proceed in (scene.run, lambda: scene.answer({"decision": 1}), lambda: scene.answer({"result": 1})):
        await proceed()
        before = len(scene.loop.events)
        with pytest.raises(IllegalTransition) as caught:
            await scene.run()
        assert caught.value.phase == scene.loop.state
        assert "session.start" in str(caught.value)
        assert len(scene.loop.events) == before
    assert scene.loop.state == "DONE"


async def test_resume_before_run_and_after_the_end_is_refused() -> None:
    scene = Scene([plain(1)])
    with pytest.raises(ResumeError) as caught:
        await scene.answer({"result": 1})
    assert caught.value.code == "not_started"
    ended(await scene.run())
    before = len(scene.loop.events)
    with pytest.raises(ResumeError) as caught:
        await scene.answer({"close": "again"})
    assert (caught.value.code, len(scene.loop.events)) == ("done", before)


async def test_resume_while_the_session_is_driven_is_refused() -> None:
    codes: list[str] = []

    async def impatient(_payload: dict[str, object]) -> None:
        for call in (scene.answer({"close": "x"}), scene.loop.continue_()):
            with pytest.raises(ResumeError) as caught:
                await call
            codes.append(caught.value.code)
        with pytest.raises(IllegalTransition):
            await scene.run()

    scene = Scene([plain(1)])
    scene.loop.hooks.on("after_plan", impatient)
    ended(await scene.run())
    assert codes == ["running", "running"]


async def test_an_empty_plan_at_first_is_no_plan() -> None:
    scene = Scene([])
    result = ended(await scene.run(), "no_plan")
    assert result.message
    assert scene.types() == ["session.start", "turn.start", "plan.draft", "session.complete"]


async def test_an_empty_plan_after_a_failure_has_given_up() -> None:
    scene = Scene([plain(0), tooled(1)], [])
    await scene.run()
    result = ended(await scene.answer({"error": "no such key"}), "gave_up")
    assert "no such key" in result.message


async def test_an_empty_plan_after_something_was_done_meets_the_goal() -> None:
    scene = Scene(Plan([plain(1)], final=False), [])
    ended(await scene.run())
    assert scene.types()[-4:] == ["turn.start", "plan.draft", "plan.commit", "session.complete"]


@pytest.mark.parametrize(
    "answer", [RuntimeError("no connection"), None, 7, "steps", [1], [plain(1), plain(1)]], ids=repr
)
async def test_a_planner_that_raises_or_returns_no_plan_pauses_the_session(answer: object) -> None:
    scene = Scene(lambda: _raise_or_return(answer), [plain(1)])
    errors = scene.on("on_error")
    pull = paused(await scene.run(), "planner_failed")
    assert pull.payload["message"]
    assert len(errors) == 1
    (event,) = scene.events("session.pause")
    assert isinstance(event.data, SessionPause)
    assert event.data.message == pull.payload["message"]
    result = ended(await scene.answer({"decision": "again"}))
    assert result.budget.used.turns == 2
    told = scene.script.told[1].last_error
    assert told is not None
    assert told.kind == "planner"
    assert is_sound(scene.loop)


def _raise_or_return(answer: object) -> list[Step]:
    if isinstance(answer, Exception):
        raise answer
    return answer  # pyright: ignore[reportReturnType]  a planner is the user's code and may return anything


async def test_a_planner_that_never_recovers_pauses_each_time_it_is_asked() -> None:
    scene = Scene(RuntimeError("no connection"), setting=Setting(budget=Budget(turns=3)))
    paused(await scene.run(), "planner_failed")
    paused(await scene.answer({"decision": None}), "planner_failed")
    paused(await scene.answer({"decision": None}), "planner_failed")
    paused(await scene.answer({"decision": None}), "budget_exceeded:turns")
    assert len(scene.script.told) == 3


async def test_the_same_failing_plan_for_ever_ends_in_a_pause_of_the_replan_budget() -> None:
    scene = Scene([tooled(1)], setting=Setting(budget=Budget(replans=4)))
    pull = await scene.run()
    while isinstance(pull, PullRequest) and pull.kind == "tool":
        pull = await scene.answer({"error": "no such key"})
    paused(pull, "replan_budget")
    assert len(scene.script.told) == 5
    commits = [event.data for event in scene.events("plan.commit") if isinstance(event.data, PlanCommit)]
    assert [commit.reason for commit in commits] == ["first", *["replan"] * 4]
    ends = [event.data for event in scene.events("step.end") if isinstance(event.data, StepEnd)]
    assert {end.status for end in ends} == {"failed"}
    called(await scene.answer({"extend": {"replans": 1}}), "6.0")
    assert is_sound(scene.loop)


async def test_messages_after_the_end_are_refused() -> None:
    scene = Scene([plain(1)])
    ended(await scene.run())
    for queue in (scene.loop.steer, scene.loop.follow_up):
        with pytest.raises(AgentStateError):
            queue("too late")
    assert scene.types()[-1] == "session.complete"


async def test_a_cancelled_driver_is_taken_up_again() -> None:
    scene = Scene([tooled(1)])
    hold = [True]

    async def stall(_payload: dict[str, object]) -> None:
        while hold[0]:
            await scene.clock.sleep(1)

    scene.loop.hooks.on("after_plan", stall)
    work = scene.clock.spawn(scene.run(), name="driver")
    await scene.clock.advance(3)
    work.cancel()
    await scene.clock.advance(1)
    assert work.cancelled()
    with pytest.raises(ResumeError) as caught:
        await scene.answer({"result": 1})
    assert caught.value.code == "nothing_open"
    hold[0] = False
    called(await scene.loop.continue_(), "1.0")
    ended(await scene.answer({"result": 1}))
    assert len(scene.script.told) == 1


async def test_a_planning_that_was_cancelled_is_asked_again_and_counted_again() -> None:
    scene = Scene([plain(1)])
    stalls = [True]

    async def slow(*_told: object) -> list[Step]:
        while stalls[0]:
            await scene.clock.sleep(1)
        return [plain(1)]

    scene.loop.planner = slow
    hooked = scene.on("before_plan")
    work = scene.clock.spawn(scene.run(), name="driver")
    await scene.clock.advance(3)
    work.cancel()
    await scene.clock.advance(1)
    stalls[0] = False
    result = ended(await scene.loop.continue_())
    assert (result.budget.used.turns, len(hooked)) == (2, 1)


async def test_a_planning_that_was_reviewed_and_then_cancelled_is_counted_again_when_it_is_asked_again() -> None:
    scene = Scene([plain(1)])
    scene.on("before_plan", Pause("look"))
    stalls = [True]

    async def slow(*_told: object) -> list[Step]:
        while stalls[0]:
            await scene.clock.sleep(1)
        return [plain(1)]

    scene.loop.planner = slow
    paused(await scene.run(), "review:look")
    work = scene.clock.spawn(scene.answer({"decision": "go"}), name="driver")
    await scene.clock.advance(3)
    work.cancel()
    await scene.clock.advance(1)
    stalls[0] = False
    assert ended(await scene.loop.continue_()).budget.used.turns == 2


async def test_a_loop_that_never_began_cannot_go_on() -> None:
    with pytest.raises(ResumeError) as caught:
        await Scene([]).loop.continue_()
    assert caught.value.code == "not_started"


async def test_a_replay_of_any_prefix_is_the_session_at_that_offset_and_calls_nobody() -> None:
    scene = Scene(THREE)
    states = [scene.loop.session]
    budgets = [scene.loop.budget]
    for answer in ("run", {"result": 5}, {"result": "yes"}):
        await (scene.run() if isinstance(answer, str) else scene.answer(answer))
    log = list(scene.loop.events)
    planner = Script([])
    for offset in range(len(log) + 1):
        copy = HarnessLoop.replay(log[:offset], planner, clock=scene.clock)
        states.append(copy.session)
        budgets.append(copy.budget)
        assert list(copy.events) == log[:offset]
    assert planner.told == []
    assert states[-1] == scene.loop.session
    assert budgets[-1] == scene.loop.budget


async def test_a_replayed_session_goes_on_under_its_own_name() -> None:
    scene = Scene([tooled(1)])
    await scene.run()
    copy = HarnessLoop.replay(scene.loop.events, Script([]), clock=scene.clock)
    called(await copy.continue_(), "1.0")
    ended(await copy.resume({"result": 1}))
    assert len({event.run_id for event in copy.events}) == 1
    assert len({event.event_id for event in copy.events}) == len(copy.events)
    assert scene.loop.state == "AWAITING_TOOL"
    assert is_sound(copy)


async def test_a_step_without_tool_that_was_begun_and_not_ended_is_ended_after_a_replay() -> None:
    for plan in ([plain(1), plain(2)], [plain(1, "b"), tooled(2, "b")]):
        scene = Scene(plan)
        await scene.run()
        log = list(scene.loop.events)
        at = next(event.offset for event in log if event.type == "step.start") + 1
        copy = HarnessLoop.replay(log[:at], scene.script, clock=scene.clock)
        await copy.continue_()
        assert sorted(event.type for event in copy.events) == sorted(event.type for event in log)
        assert copy.state == scene.loop.state


async def test_a_replay_without_a_planner_pauses_when_one_is_needed() -> None:
    scene = Scene(Plan([tooled(1)], final=False))
    await scene.run()
    copy = HarnessLoop.replay(scene.loop.events, clock=scene.clock)
    pull = paused(await copy.resume({"result": 1}), "planner_failed")
    assert "loop.planner" in str(pull.payload["message"])
    copy.planner = Script([])
    ended(await copy.resume({"decision": "again"}), "gave_up")
