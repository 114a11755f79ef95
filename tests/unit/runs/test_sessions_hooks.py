"""Hooks in durable runs: every topic that may pause does so across a restart, is decided about, and is not asked again; what hooks changed is kept."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from checkrein.errors import HookAbort
from checkrein.harness.hooks import SKIP, Hooks, Pause, Topic
from checkrein.harness.planners import Step, StepRecord
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import (
    PlanCommit,
    SessionComplete,
    SessionPause,
    SessionResume,
    StepEnd,
    ToolErrorGiven,
    ToolResultGiven,
)
from checkrein.kernel.state import Phase
from checkrein.runs.task import Task
from checkrein.values import as_data
from tests.unit.runs.scene import Exists, Scene, Script, misuse, step, write
from tests.unit.runs.sessions import Doer, Fires, call_in, ends_of, hooked, kinds, restarted

PAUSING: tuple[Topic, ...] = (
    "before_plan",
    "after_plan",
    "before_step",
    "before_tool_call",
    "after_tool_call",
    "after_step",
)
SUBJECTS = {
    "before_plan": "review:turn:1",
    "after_plan": "review:turn:1",
    "before_step": "review:step:work",
    "before_tool_call": "review:1.0",
    "after_tool_call": "review:1.0",
    "after_step": "review:step:work",
}


def about_work(payload: dict[str, object]) -> bool:
    """Whether a hook is asked about the first step, or about the plan that has it."""
    steps = payload.get("steps")
    if isinstance(steps, Sequence):
        return any(isinstance(item, Step) and item.id == "work" for item in cast("Sequence[object]", steps))
    item = payload.get("step")
    return item is None or (isinstance(item, Step) and item.id == "work")


@pytest.mark.parametrize("topic", PAUSING)
async def test_a_pause_of_a_hook_is_answered_across_a_restart_and_the_hook_is_not_asked_again(
    scene: Scene, tmp_path: Path, topic: Topic
) -> None:
    await restarted(scene, tmp_path)
    doer, asking, later = Doer(), Fires(), Fires()
    script = Script([step("work"), write()])

    def task() -> Task:
        plain = scene.task(script, *doer.tools("work"))
        return hooked(plain, asking.on(topic, Pause("look"), when=about_work), later.on(topic, when=about_work))

    first = task()
    run_id = await scene.worker().submit(first)
    state = await scene.worker(first).advance(run_id)
    assert (state.phase, [cause.id for cause in state.causes]) == (Phase.BLOCKED, [SUBJECTS[topic]])
    assert (len(asking.fired), later.fired) == (1, [])
    await restarted(scene, tmp_path)
    await scene.commands().respond(run_id, {"decision": "go on"})
    await restarted(scene, tmp_path)
    state = await scene.worker(task(), name="another").advance(run_id)
    assert state.phase is Phase.SUCCEEDED
    assert len(asking.fired) == 1
    assert (len(later.fired), later.decisions) == (1, ["go on"])
    assert doer.made == ["work"]
    assert len(script.asked) == 1
    # A request that was held for the review is granted anew, for nobody could say that it was not made.
    assert state.budget.used.turns == (2 if topic == "before_plan" else 1)
    assert state.budget.used.tool_calls == 2
    events = await scene.log(run_id)
    pauses = [item for item in kinds(events, SessionPause) if isinstance(item, SessionPause)]
    assert [(item.reason, item.topic) for item in pauses] == [("review:look", topic)]
    assert len(kinds(events, SessionResume)) == 1
    await scene.check_log(run_id)


@pytest.mark.parametrize("answer", ["deny", {"deny": "not so"}])
@pytest.mark.parametrize("topic", PAUSING)
async def test_a_pause_that_is_denied_across_a_restart_is_an_abort(
    scene: Scene, tmp_path: Path, topic: Topic, answer: str | dict[str, str]
) -> None:
    await restarted(scene, tmp_path)
    doer, asking = Doer(), Fires()
    script = Script([step("work"), write()], [write("mended")])

    def task() -> Task:
        return hooked(scene.task(script, *doer.tools("work")), asking.on(topic, Pause("look"), when=about_work))

    first = task()
    run_id = await scene.worker().submit(first)
    await scene.worker(first).advance(run_id)
    await scene.commands().respond(run_id, {"decision": answer})
    await restarted(scene, tmp_path)
    state = await scene.worker(task(), name="another").advance(run_id)
    text = "not so" if isinstance(answer, dict) else "denied"
    if topic == "before_plan":
        assert state.phase is Phase.BLOCKED
        assert text in state.causes[0].message
        assert script.asked == []
        await scene.commands().respond(run_id, {"decision": "go on"})
        assert (await scene.worker(task()).advance(run_id)).phase is Phase.SUCCEEDED
    else:
        assert state.phase is Phase.SUCCEEDED
        error = script.asked[1][1]
        assert error is not None
        assert text in error.message
        kind = {"after_plan": "draft", "after_step": "hook"}.get(topic, "step")
        assert error.kind == kind
        assert doer.made == (["work"] if topic in {"after_tool_call", "after_step"} else [])
        ended = ends_of(await scene.log(run_id))
        assert ended.get("work") == {"after_plan": None, "after_step": "done"}.get(topic, "failed")
        assert ended["mended"] == "done"
    assert len(asking.fired) == 1
    await scene.check_log(run_id)


async def test_steps_that_a_hook_changed_before_its_pause_are_kept_across_a_restart(
    scene: Scene, tmp_path: Path
) -> None:
    await restarted(scene, tmp_path)
    doer, script = Doer(), Script([step("work"), write()])

    def change(payload: dict[str, object]) -> Pause:
        payload["steps"] = [step("other"), write()]
        return Pause("I changed it")

    task = hooked(scene.task(script, *doer.tools("work", "other")), Fires().on("after_plan", change))
    run_id = await scene.worker().submit(task)
    await scene.worker(task).advance(run_id)
    await scene.commands().respond(run_id, {"decision": "fine"})
    await restarted(scene, tmp_path)
    plain = scene.task(script, *doer.tools("work", "other"))
    assert (await scene.worker(plain).advance(run_id)).phase is Phase.SUCCEEDED
    assert doer.made == ["other"]
    (commit,) = kinds(await scene.log(run_id), PlanCommit)
    assert isinstance(commit, PlanCommit)
    assert [item.id for item in commit.steps] == ["other", "report"]
    await scene.check_log(run_id)


@pytest.mark.parametrize("registered", ["the hook", "none"])
async def test_arguments_that_a_hook_changed_before_its_pause_are_what_the_tool_is_given(
    scene: Scene, tmp_path: Path, registered: str
) -> None:
    await restarted(scene, tmp_path)
    doer = Doer()

    def change(payload: dict[str, object]) -> Pause:
        call = payload["call"]
        assert isinstance(call, dict)
        call["arguments"] = {"text": "changed"}
        return Pause("I changed them")

    plain = scene.task(Script([call_in("work", batch=None, given={"text": "planned"}), write()]), *doer.tools("work"))
    task = hooked(plain, Fires().on("before_tool_call", change, when=about_work))
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    assert "changed" in state.causes[0].message
    await scene.commands().respond(run_id, {"decision": "fine"})
    await restarted(scene, tmp_path)
    other = hooked(plain, Fires().on("before_tool_call")) if registered == "the hook" else plain
    assert (await scene.worker(other).advance(run_id)).phase is Phase.SUCCEEDED
    assert doer.given == [(f"{run_id}/1.0", "changed")]
    await scene.check_log(run_id)


async def test_changed_arguments_that_the_schema_refuses_make_no_call(scene: Scene) -> None:
    doer, script = Doer(), Script([step("work"), write()], [write("mended")])

    def change(payload: dict[str, object]) -> None:
        call = payload["call"]
        assert isinstance(call, dict)
        call["arguments"] = {"text": 7}

    task = hooked(scene.task(script, *doer.tools("work")), Fires().on("before_tool_call", change, when=about_work))
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    assert (state.phase, doer.made, state.budget.used.tool_calls) == (Phase.SUCCEEDED, [], 1)
    (error,) = kinds(await scene.log(run_id), ToolErrorGiven)
    assert isinstance(error, ToolErrorGiven)
    assert (error.call_id, error.kind) == ("", "schema")
    assert "/text" in error.message
    await scene.check_log(run_id)


@pytest.mark.parametrize("power", ["change", "pause"])
async def test_a_result_that_a_hook_changed_is_what_the_planner_sees_and_the_log_keeps_what_the_tool_returned(
    scene: Scene, tmp_path: Path, power: str
) -> None:
    await restarted(scene, tmp_path)
    doer = Doer()
    script = Script([step("work"), misuse()], [write()])

    def change(payload: dict[str, object]) -> Pause | None:
        assert payload["result"] == "work"
        payload["result"] = {"redacted": True}
        return Pause("I changed it") if power == "pause" else None

    task = hooked(scene.task(script, *doer.tools("work")), Fires().on("after_tool_call", change, when=about_work))
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    if power == "pause":
        assert state.phase is Phase.BLOCKED
        await scene.commands().respond(run_id, {"decision": "fine"})
        await restarted(scene, tmp_path)
        state = await scene.worker(task).advance(run_id)
    assert state.phase is Phase.SUCCEEDED
    events = await scene.log(run_id)
    given = [as_data(item.result).value for item in kinds(events, ToolResultGiven) if isinstance(item, ToolResultGiven)]
    ended = [as_data(item.result).value for item in kinds(events, StepEnd) if isinstance(item, StepEnd)]
    assert given[0] == "work"
    assert ended[0] == {"redacted": True}
    record = script.asked[1][0][0]
    assert record == StepRecord(step("work"), "done", {"redacted": True}, "")
    await scene.check_log(run_id)


@pytest.mark.parametrize("power", ["abort", "skip"])
async def test_after_a_step_a_hook_drops_the_rest_of_the_plan_or_skips_the_next_step(scene: Scene, power: str) -> None:
    doer, script = Doer(), Script([step("work"), step("rest"), write()], [write("mended")])
    answer = HookAbort("enough") if power == "abort" else SKIP
    task = hooked(scene.task(script, *doer.tools("work", "rest")), Fires().on("after_step", answer, when=about_work))
    run_id = await scene.worker().submit(task)
    assert (await scene.worker(task).advance(run_id)).phase is Phase.SUCCEEDED
    assert doer.made == ["work"]
    ended = ends_of(await scene.log(run_id))
    if power == "abort":
        assert ended == {"work": "done", "mended": "done"}
        error = script.asked[1][1]
        assert error is not None
        assert (error.kind, error.message) == ("hook", "enough")
    else:
        assert ended == {"work": "done", "rest": "skipped", "report": "done"}
    await scene.check_log(run_id)


@pytest.mark.parametrize("topic", ["before_step", "before_tool_call"])
@pytest.mark.parametrize("power", ["abort", "skip"])
async def test_before_a_step_or_its_call_a_hook_fails_or_skips_it_and_nothing_is_counted(
    scene: Scene, topic: Topic, power: str
) -> None:
    doer, script = Doer(), Script([step("work"), write()], [write("mended")])
    answer = HookAbort("never") if power == "abort" else SKIP
    task = hooked(scene.task(script, *doer.tools("work")), Fires().on(topic, answer, when=about_work))
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    assert (state.phase, doer.made, state.budget.used.tool_calls) == (Phase.SUCCEEDED, [], 1)
    ended = ends_of(await scene.log(run_id))
    assert ended["work"] == ("failed" if power == "abort" else "skipped")
    assert len(script.asked) == (2 if power == "abort" else 1)
    await scene.check_log(run_id)


async def test_on_error_pauses_a_run_and_goes_on_when_it_is_answered(scene: Scene, tmp_path: Path) -> None:
    await restarted(scene, tmp_path)
    doer, asking = Doer(), Fires()
    script = Script([call_in("work", batch=None, given={"text": 7})], [write()])

    def task() -> Task:
        return hooked(scene.task(script, *doer.tools("work")), asking.on("on_error", Pause("look")))

    first = task()
    run_id = await scene.worker().submit(first)
    state = await scene.worker(first).advance(run_id)
    assert (state.phase, len(asking.fired)) == (Phase.BLOCKED, 1)
    await scene.commands().respond(run_id, {"decision": "seen"})
    await restarted(scene, tmp_path)
    state = await scene.worker(task()).advance(run_id)
    assert state.phase is Phase.SUCCEEDED
    assert len(asking.fired) == 1
    await scene.check_log(run_id)


async def test_on_error_is_told_of_tools_planners_and_hooks_once_each(scene: Scene) -> None:
    doer, told = Doer(), Fires()
    script = Script(
        ValueError("no idea"), [step("work"), call_in("bad", "work", batch=None, given={"text": 7})], [write()]
    )
    task = hooked(
        scene.task(script, *doer.tools("work")),
        Fires().on("before_step", ZeroDivisionError("hook"), when=about_work),
        told.on("on_error"),
    )
    run_id = await scene.worker().submit(task)
    worker = scene.worker(task)
    await worker.advance(run_id)
    await scene.commands().respond(run_id, {"decision": "again"})
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    assert [subject for _, subject in told.fired] == ["planner_failed", "hook_failed", "bad"]


async def test_a_hook_answers_a_pause_at_once_and_the_run_never_rests(scene: Scene) -> None:
    doer = Doer()

    def answer(payload: dict[str, object]) -> None:
        payload["resume"] = {"decision": "by rule"}

    later = Fires()
    task = hooked(
        scene.task([step("work"), write()], *doer.tools("work")),
        Fires().on("before_tool_call", Pause("look"), when=about_work),
        later.on("before_tool_call", when=about_work),
        Fires().on("on_pause", answer),
    )
    run_id = await scene.worker().submit(task)
    assert (await scene.worker(task).advance(run_id)).phase is Phase.SUCCEEDED
    assert (doer.made, later.decisions) == (["work"], ["by rule"])
    types = await scene.types(run_id)
    at = types.index("session.pause")
    assert types[at : at + 4] == ["session.pause", "blocked", "unblocked", "session.resume"]
    await scene.check_log(run_id)


async def test_a_hook_extends_a_budget_at_once_and_its_firing_comes_before_the_warning(scene: Scene) -> None:
    doer, told = Doer(), Fires()
    seen: list[str] = []

    async def note(_payload: dict[str, object]) -> None:
        seen.append((await scene.types(run_id))[-1])

    def answer(payload: dict[str, object]) -> None:
        payload["resume"] = {"extend": {"tool_calls": 1}}

    def install(hooks: Hooks) -> None:
        hooks.on("on_budget_exceeded", note)

    task = hooked(
        scene.task([step("work"), write()], *doer.tools("work"), budget=Budget(tool_calls=1)),
        install,
        told.on("on_budget_exceeded"),
        Fires().on("on_pause", answer),
    )
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    assert (state.phase, state.budget.used.tool_calls, state.budget.limits.tool_calls) == (Phase.SUCCEEDED, 2, 2)
    assert told.fired == [("on_budget_exceeded", "budget_exceeded:tool_calls")]
    assert seen == ["step.start"]
    types = await scene.types(run_id)
    at = types.index("budget.warn")
    assert types[at : at + 6] == [
        "budget.warn", "session.pause", "blocked", "budget_extended", "unblocked", "session.resume",
    ]  # fmt: skip
    await scene.check_log(run_id)


async def test_a_hook_closes_a_paused_run_and_the_end_is_announced_once(scene: Scene) -> None:
    told = Fires()

    def answer(payload: dict[str, object]) -> None:
        payload["resume"] = {"close": "not today"}

    task = hooked(
        scene.task([write()], budget=Budget(tool_calls=0)),
        Fires().on("on_pause", answer),
        told.on("on_complete"),
    )
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    assert state.outcome is not None
    assert state.outcome.code == "closed"
    assert told.fired == [("on_complete", "closed:not today")]
    await scene.check_log(run_id)


async def test_an_answer_of_a_hook_that_is_not_taken_there_leaves_the_run_paused(scene: Scene) -> None:
    def answer(payload: dict[str, object]) -> None:
        payload["resume"] = {"result": "nonsense"}

    task = hooked(scene.task([write()]), Fires().on("before_step", Pause("look")), Fires().on("on_pause", answer))
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    assert [cause.id for cause in state.causes] == ["review:step:report"]


async def test_an_answer_of_a_hook_that_leads_to_the_same_pull_again_appends_nothing(scene: Scene) -> None:
    def answer(payload: dict[str, object]) -> None:
        payload["resume"] = {"decision": "go on, although nothing is left"}

    task = hooked(scene.task([write()], budget=Budget(tool_calls=0)), Fires().on("on_pause", answer))
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    assert [cause.id for cause in state.causes] == ["budget:tool_calls"]
    assert (await scene.types(run_id))[-2:] == ["session.pause", "blocked"]


def _goal_met(scene: Scene) -> Task:
    return scene.task([write()])


def _no_plan(scene: Scene) -> Task:
    return scene.task([])


def _gave_up(scene: Scene) -> Task:
    return scene.task(Script([call_in("work", "put", batch=None)], []))


def _step_failed(scene: Scene) -> Task:
    return scene.task([call_in("work", "put", batch=None)], on_failure="abort")


def _check_failed(scene: Scene) -> Task:
    return scene.task(Script([write(text="")], [write("again", text="")]), checks=[Exists()])


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_goal_met, "goal_met"),
        (_no_plan, "no_plan"),
        (_gave_up, "gave_up"),
        (_step_failed, "step_failed"),
        (_check_failed, "check_failed"),
    ],
)
async def test_on_complete_fires_once_before_the_end_that_a_driver_brings(
    scene: Scene, make: Callable[[Scene], Task], reason: str
) -> None:
    told, at = Fires(), list[str]()

    async def note(_payload: dict[str, object]) -> None:
        at.extend(kind for kind in await scene.types(run_id) if kind == "session.complete")

    def install(hooks: Hooks) -> None:
        hooks.on("on_complete", note)

    task = hooked(make(scene), told.on("on_complete"), install)
    run_id = await scene.worker().submit(task)
    await scene.worker(task).advance(run_id)
    assert (told.fired, at) == ([("on_complete", reason)], [])
    (end,) = kinds(await scene.log(run_id), SessionComplete)
    assert isinstance(end, SessionComplete)
    assert end.reason == reason
    await scene.check_log(run_id)


async def test_on_complete_is_not_fired_where_a_person_ends_the_run(scene: Scene) -> None:
    told = Fires()
    task = hooked(scene.task(Script(ValueError("no idea"))), told.on("on_complete"))
    for end in ("cancel", "close"):
        run_id = await scene.worker().submit(task)
        worker = scene.worker(hooked(scene.task(Script(ValueError("no idea"))), told.on("on_complete")))
        await worker.advance(run_id)
        commands = scene.commands()
        state = await (commands.cancel(run_id) if end == "cancel" else commands.close(run_id, "enough"))
        assert state.phase is Phase.FAILED
        await worker.advance(run_id)
        await scene.check_log(run_id)
    assert told.fired == []


async def test_all_topics_fire_in_their_order_in_a_run(scene: Scene) -> None:
    doer, told = Doer(), Fires()
    order: tuple[Topic, ...] = (
        "before_plan", "after_plan", "before_step", "before_tool_call", "after_tool_call", "after_step", "on_error",
        "on_pause", "on_budget_exceeded", "on_complete",
    )  # fmt: skip
    task = hooked(scene.task([step("work"), write()], *doer.tools("work")), *(told.on(topic) for topic in order))
    run_id = await scene.worker().submit(task)
    assert (await scene.worker(task).advance(run_id)).phase is Phase.SUCCEEDED
    per_step = ["before_step", "before_tool_call", "after_tool_call", "after_step"]
    assert [topic for topic, _ in told.fired] == ["before_plan", "after_plan", *per_step, *per_step, "on_complete"]
