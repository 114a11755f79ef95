"""What each power of each topic does to a session, and what a changed payload changes."""

import pytest

from checkrein.harness.hooks import POWERS, SKIP, TOPICS, HookAbort, HookAnswer, Pause, Topic
from checkrein.harness.loop import HarnessLoop
from checkrein.harness.planners import Plan, Step
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import PlanCommit, PlanDraft, SessionPause, StepEnd, ToolCallGiven, ToolErrorGiven
from checkrein.kernel.session_state import EndedStep
from checkrein.tools.function import tool
from checkrein.values import as_data, as_object
from tests.unit.harness.loop_scene import Scene, Script, Setting, called, ended, is_sound, paused, plain, tooled

PAUSING: tuple[Topic, ...] = (
    "before_plan",
    "after_plan",
    "before_step",
    "before_tool_call",
    "after_tool_call",
    "after_step",
)
DECIDED: tuple[Topic, ...] = (*PAUSING, "on_error")


def _ends(scene: Scene) -> list[tuple[str | int, str, object, str]]:
    return [
        (event.data.step_id, event.data.status, as_data(event.data.result).value, event.data.error)
        for event in scene.events("step.end")
        if isinstance(event.data, StepEnd)
    ]


def _errors(scene: Scene) -> list[tuple[str, str, str]]:
    return [
        (event.data.call_id, event.data.kind, event.data.message)
        for event in scene.events("tool.error")
        if isinstance(event.data, ToolErrorGiven)
    ]


async def _drive(scene: Scene, *, fails: bool = False) -> None:
    """Run to the end or to a pause, answering every call."""
    pull = await scene.run()
    while scene.loop.state == "AWAITING_TOOL":
        pull = await scene.answer({"error": "broken"} if fails else {"result": 5})
    assert pull is not None


def _pausing(topic: Topic, answer: HookAnswer = None) -> Scene:
    """A session that meets every topic; a call of it fails only where `on_error` is wanted."""
    scene = Scene([tooled(1), plain(2)], [plain(3)])
    scene.on(topic, answer or Pause("look"))
    return scene


# Pauses.


@pytest.mark.parametrize("topic", DECIDED)
async def test_a_pause_gives_control_back_and_a_decision_goes_on_with_the_later_hooks(topic: Topic) -> None:
    scene = _pausing(topic)
    first = scene.on(topic)
    await _drive(scene, fails=topic == "on_error")
    (event,) = scene.events("session.pause")
    assert isinstance(event.data, SessionPause)
    assert (event.data.reason, event.data.topic) == ("review:look", topic)
    assert first == []
    before = event.data.state
    await scene.answer({"decision": {"by": "ann"}})
    assert [payload["decision"] for payload in first[:1]] == [{"by": "ann"}]
    assert scene.types(event.offset)[:2] == ["session.pause", "session.resume"]
    assert before in {"PLANNING", "EXECUTING", "REFLECTING"}
    while scene.loop.state == "AWAITING_TOOL":
        await scene.answer({"result": 5})
    assert scene.loop.state == "DONE"
    assert len(scene.events("session.pause")) == 1
    assert all("decision" not in payload for payload in first[1:])
    assert is_sound(scene.loop)


@pytest.mark.parametrize("topic", DECIDED)
async def test_a_topic_that_paused_asks_every_later_hook_that_wants_to_pause_in_turn(topic: Topic) -> None:
    scene = _pausing(topic)
    scene.on(topic, Pause("look again"))
    third = scene.on(topic)
    await _drive(scene, fails=topic == "on_error")
    paused(await scene.answer({"decision": "one"}), "review:look again")
    assert third == []
    await scene.answer({"decision": "two"})
    assert third[0]["decision"] == "two"
    assert sum("decision" in payload for payload in third) == 1


@pytest.mark.parametrize("decision", ["deny", {"deny": "not now"}], ids=str)
@pytest.mark.parametrize("topic", PAUSING)
async def test_a_denial_is_an_abort_of_the_topic(topic: Topic, decision: object) -> None:
    words = "a person denied it" if decision == "deny" else "not now"
    scene = _pausing(topic)
    later = scene.on(topic)
    await _drive(scene)
    count = len(later)
    pull = await scene.loop.resume({"decision": decision})
    assert all("decision" not in payload for payload in later[count:])
    told = scene.script.told[-1].last_error if scene.script.told else None
    match topic:
        case "before_plan":
            paused(pull, f"aborted:{words}")
        case "after_plan":
            assert told is not None
            assert (told.kind, told.message) == ("draft", words)
        case "before_tool_call":
            assert _errors(scene) == [("", "denied", words)]
            assert scene.events("tool.call") == ()
        case "after_step":
            assert told is not None
            assert (told.kind, told.message) == ("hook", words)
        case _:
            assert _ends(scene)[0][1:] == ("failed", None, words)
    assert is_sound(scene.loop)


@pytest.mark.parametrize("topic", PAUSING)
async def test_what_was_denied_stays_denied_where_the_hook_that_asked_is_not_registered(topic: Topic) -> None:
    logs: list[list[object]] = []
    for is_registered in (True, False):
        scene = _pausing(topic)
        await _drive(scene)
        offset = len(scene.loop.events)
        copy = HarnessLoop.replay(scene.loop.events, Script([plain(3)]), clock=scene.clock)
        if is_registered:
            copy.hooks.on(topic, lambda _payload: None)
        await copy.resume({"decision": {"deny": "not now"}})
        logs.append([event.data for event in copy.events.read(offset)])
    assert logs[0] == logs[1]
    assert "not now" in str(logs[0][1:])


@pytest.mark.parametrize("decision", [None, False, 0, "", "Deny", {"allow": True}, ["deny"]], ids=repr)
async def test_any_other_decision_means_to_go_on(decision: object) -> None:
    scene = _pausing("before_step")
    await _drive(scene)
    called(await scene.answer({"decision": decision}), "1.0")


async def test_a_denied_planning_can_be_decided_again() -> None:
    scene = Scene([plain(1)])
    scene.on("before_plan", Pause("look"))
    paused(await scene.run(), "review:look")
    paused(await scene.answer({"decision": "deny"}), "aborted:a person denied it")
    result = ended(await scene.answer({"decision": "go"}))
    assert result.budget.used.turns == 1


async def test_an_answer_is_about_one_step_and_not_about_the_next_one_with_its_name() -> None:
    scene = Scene([plain(1), tooled("pay", arguments={"amount": 1})], [tooled("pay", arguments={"amount": 1_000})], [])
    asked: list[object] = []

    def guard(payload: dict[str, object]) -> HookAnswer:
        step = payload["step"]
        assert isinstance(step, Step)
        if step.tool_name is None:
            return None
        asked.append(dict(step.arguments))
        return Pause("may I pay?")

    scene.loop.hooks.on("before_step", guard)
    paused(await scene.run(), "review:may I pay?")
    called(await scene.answer({"decision": "go"}), "1.1")
    paused(await scene.answer({"error": "no funds"}), "review:may I pay?")
    assert asked == [{"amount": 1}, {"amount": 1_000}]
    called(await scene.answer({"decision": "go"}), "2.0")


async def test_a_denied_step_that_comes_back_is_asked_about_again() -> None:
    scene = Scene([plain("pay")], [plain("pay")])
    scene.on("before_step", Pause("one"), Pause("two"))
    paused(await scene.run(), "review:one")
    paused(await scene.answer({"decision": "deny"}), "review:two")
    ended(await scene.answer({"decision": "go"}))


# Aborts.


async def test_an_abort_before_planning_pauses_and_a_decision_asks_the_planner_within_the_same_turn() -> None:
    scene = Scene([plain(1)], setting=Setting(budget=Budget(turns=1)))
    scene.on("before_plan", HookAbort("not today"))
    paused(await scene.run(), "aborted:not today")
    assert scene.script.told == []
    result = ended(await scene.answer({"decision": "go"}))
    assert (result.budget.used.turns, len(scene.script.told)) == (1, 1)
    assert scene.types()[:4] == ["session.start", "turn.start", "session.pause", "session.resume"]


async def test_an_abort_after_planning_drops_the_draft_and_the_planner_is_told_why() -> None:
    scene = Scene([plain(1)], [plain(2)])
    scene.on("after_plan", HookAbort("too short"))
    ended(await scene.run())
    drafts = [event.data for event in scene.events("plan.draft") if isinstance(event.data, PlanDraft)]
    assert [(draft.turn, draft.dropped, len(draft.steps)) for draft in drafts] == [
        (1, "", 1),
        (1, "too short", 0),
        (2, "", 1),
    ]
    told = scene.script.told[1].last_error
    assert told is not None
    assert (told.kind, told.message) == ("draft", "too short")
    assert scene.loop.plan == Plan((plain(2),))


async def test_an_abort_before_a_step_fails_it_without_doing_it() -> None:
    scene = Scene([tooled(1), plain(2)], [plain(3)])
    scene.on("before_step", HookAbort("not this one"))
    ended(await scene.run())
    assert _ends(scene) == [(1, "failed", None, "not this one"), (3, "done", None, "")]
    assert scene.events("tool.call", "tool.error") == ()


async def test_an_abort_before_a_call_makes_an_error_and_counts_nothing() -> None:
    scene = Scene([tooled(1)], [plain(2)])
    scene.on("before_tool_call", HookAbort("not this one"))
    result = ended(await scene.run())
    assert _errors(scene) == [("", "denied", "not this one")]
    assert result.budget.used.tool_calls == 0
    assert scene.events("tool.call") == ()


async def test_an_abort_after_a_call_fails_the_step_and_the_log_keeps_what_the_tool_returned() -> None:
    scene = Scene([tooled(1)], [plain(2)])
    scene.on("after_tool_call", HookAbort("that cannot be"))
    await scene.run()
    ended(await scene.answer({"result": 5}))
    assert _ends(scene)[0] == (1, "failed", None, "that cannot be")
    assert len(scene.events("tool.result")) == 1


async def test_an_abort_after_a_step_drops_the_rest_of_the_plan() -> None:
    scene = Scene([plain(1), plain(2)], [plain(3)])
    scene.on("after_step", HookAbort("enough"))
    ended(await scene.run())
    assert [end[0] for end in _ends(scene)] == [1, 3]
    told = scene.script.told[1].last_error
    assert told is not None
    assert (told.kind, told.message) == ("hook", "enough")


async def test_a_hook_that_decides_after_one_step_of_a_batch_is_obeyed_when_all_were_shown() -> None:
    for decision in (HookAbort("enough"), SKIP):
        scene = Scene([plain(1, "b"), plain(2, "b"), plain(3, "b"), plain(4), plain(5)], [plain(6)])
        seen: list[object] = []

        def hook(
            payload: dict[str, object], decision: HookAnswer | HookAbort = decision, seen: list[object] = seen
        ) -> HookAnswer:
            step = payload["step"]
            assert isinstance(step, Step)
            seen.append(step.id)
            if step.id != 1:
                return None
            if isinstance(decision, HookAbort):
                raise decision
            return decision

        scene.loop.hooks.on("after_step", hook)
        ended(await scene.run())
        statuses = [(end[0], end[1]) for end in _ends(scene)]
        assert seen == [end[0] for end in _ends(scene)]
        assert statuses[3:] == ([(6, "done")] if isinstance(decision, HookAbort) else [(4, "skipped"), (5, "done")])


# Skips.


async def test_a_skip_before_a_step_starts_and_ends_it() -> None:
    scene = Scene([tooled(1), plain(2)])
    scene.on("before_step", SKIP)
    ended(await scene.run())
    assert _ends(scene) == [(1, "skipped", None, ""), (2, "done", None, "")]


async def test_a_skip_before_a_call_skips_its_step() -> None:
    scene = Scene([tooled(1), plain(2)])
    scene.on("before_tool_call", SKIP)
    result = ended(await scene.run())
    assert _ends(scene) == [(1, "skipped", None, ""), (2, "done", None, "")]
    assert (result.budget.used.tool_calls, scene.events("tool.call", "tool.error")) == (0, ())


async def test_a_skip_after_the_last_step_skips_nothing() -> None:
    scene = Scene([plain(1)])
    scene.on("after_step", SKIP)
    ended(await scene.run())
    assert _ends(scene) == [(1, "done", None, "")]


async def test_a_plan_of_which_every_step_was_skipped_is_no_plan() -> None:
    scene = Scene([plain(1), plain(2)])
    scene.on("before_step", SKIP, SKIP)
    ended(await scene.run(), "no_plan")


async def test_a_skip_after_a_step_skips_the_first_of_a_batch_only() -> None:
    scene = Scene([plain(1), tooled(2, "b"), tooled(3, "b")])
    scene.on("after_step", SKIP)
    called(await scene.run(), "1.2")
    assert _ends(scene) == [(1, "done", None, ""), (2, "skipped", None, "")]


async def test_a_skip_after_a_step_waits_for_the_budget_that_the_skipped_step_needs() -> None:
    scene = Scene([plain(1), plain(2), plain(3)], setting=Setting(budget=Budget(steps=1)))
    scene.on("after_step", SKIP)
    seen = scene.on("after_step")
    paused(await scene.run(), "step_budget")
    ended(await scene.answer({"extend": {"steps": 2}}))
    assert [(end[0], end[1]) for end in _ends(scene)] == [(1, "done"), (2, "skipped"), (3, "done")]
    assert len(seen) == 2


async def test_a_skip_of_a_call_that_was_decided_after_a_restart_beside_a_call_that_was_made() -> None:
    setting = Setting(budget=Budget(tool_calls=1))
    scene = Scene([tooled(1, "b"), tooled(2, "b")], setting=setting)
    await scene.run()
    await scene.answer({"result": 1})
    log = list(scene.loop.events)
    copy = HarnessLoop.replay(log[:-2], Script([]), clock=scene.clock)
    copy.hooks.on("before_tool_call", lambda _payload: SKIP)
    await copy.continue_()
    ended(await copy.resume({"extend": {"tool_calls": 1}}))
    history = [(item.step.id, item.status) for item in copy.session.history if isinstance(item, EndedStep)]
    assert history == [(2, "skipped"), (1, "done")]


# Powers that a topic does not have.

FORBIDDEN: list[tuple[Topic, str]] = [
    (topic, power)
    for topic in TOPICS
    for power, has in (
        ("abort", POWERS[topic].abort),
        ("skip", POWERS[topic].skip),
        ("pause", POWERS[topic].pause),
    )
    if not has
]


@pytest.mark.parametrize(("topic", "power"), FORBIDDEN)
async def test_a_power_that_a_topic_does_not_have_is_its_hooks_failure_and_nothing_else(
    topic: Topic, power: str
) -> None:
    answers: dict[str, HookAnswer | Exception] = {"abort": HookAbort("no"), "skip": SKIP, "pause": Pause("look")}
    scene = Scene([tooled(1), plain(2)], [], setting=Setting(budget=Budget(turns=0)))
    scene.on(topic, answers[power])
    errors = scene.on("on_error")
    paused(await scene.run(), "budget_exceeded:turns")
    called(await scene.answer({"extend": {"turns": 2}}), "1.0")
    ended(await scene.answer({"error": "no"}), "gave_up")
    (failure,) = scene.loop.hook_errors
    assert (failure.topic, failure.type) == (topic, "HookPowerError")
    assert topic in failure.message
    assert power in failure.message
    assert len(errors) == (1 if topic == "on_error" else 2)
    assert is_sound(scene.loop)


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic not in {"before_tool_call", "on_pause"}])
async def test_a_hook_that_fails_pauses_the_session_where_that_is_asked_for(topic: Topic) -> None:
    scene = Scene([tooled(1), plain(2)], [], setting=Setting(budget=Budget(turns=0)))
    scene.loop.hooks.pauses_on_failure = True
    scene.on(topic, RuntimeError("broken"))
    await scene.run()
    for answer in ({"decision": 1}, {"extend": {"turns": 2}}, {"decision": 1}, {"error": "no"}, {"decision": 1}):
        if scene.loop.state == "AWAITING_TOOL":
            await scene.answer({"error": "no"})
        elif scene.loop.state != "DONE" and "error" not in answer:
            await scene.answer(answer)
    reasons = [event.data.reason for event in scene.events("session.pause") if isinstance(event.data, SessionPause)]
    expected = [] if topic in {"on_error", "on_complete"} else ["review:hook_failed"]
    assert sorted(reasons) == sorted(["budget_exceeded:turns", *expected])
    assert scene.loop.state == "DONE"
    assert [error.topic for error in scene.loop.hook_errors] == [topic]


async def test_a_planning_that_a_failed_hook_paused_is_counted_once() -> None:
    scene = Scene([plain(1)], setting=Setting(budget=Budget(turns=1)))
    scene.loop.hooks.pauses_on_failure = True
    scene.on("before_plan", RuntimeError("broken"))
    paused(await scene.run(), "review:hook_failed")
    result = ended(await scene.answer({"decision": "go"}))
    assert (result.budget.used.turns, len(scene.script.told)) == (1, 1)


# Changes.


async def test_changed_steps_become_the_plan() -> None:
    scene = Scene([plain(1), plain(2)])

    def change(payload: dict[str, object]) -> None:
        payload["steps"] = [plain("mine"), *_steps(payload)[1:]]
        payload["final"] = False
        payload["goal"] = "another"

    scene.loop.hooks.on("after_plan", change)
    seen = scene.on("after_plan")
    ended(await scene.run())
    assert seen[0]["steps"] == [plain("mine"), plain(2)]
    (draft,) = scene.events("plan.draft")
    (commit,) = scene.events("plan.commit")
    assert isinstance(draft.data, PlanDraft)
    assert isinstance(commit.data, PlanCommit)
    assert [step.id for step in draft.data.steps] == [1, 2]
    assert ([step.id for step in commit.data.steps], commit.data.final) == (["mine", 2], True)
    assert scene.loop.session.goal == "find the sum"


def _steps(payload: dict[str, object]) -> list[Step]:
    steps = payload["steps"]
    assert isinstance(steps, list)
    return [step for step in steps if isinstance(step, Step)]  # pyright: ignore[reportUnknownVariableType]


async def test_steps_that_were_changed_before_a_pause_are_the_plan_after_it() -> None:
    scene = Scene([plain(1), plain(2)])

    def change(payload: dict[str, object]) -> HookAnswer:
        payload["steps"] = [tooled("mine", name="find", arguments={"key": [1]})]
        return Pause("look")

    scene.loop.hooks.on("after_plan", change)
    paused(await scene.run(), "review:look")
    copy = HarnessLoop.replay(scene.loop.events, clock=scene.clock)
    copy.hooks.on("after_plan", change)
    for loop in (scene.loop, copy):
        pull = called(await loop.resume({"decision": "go"}), "1.0")
        assert (pull.payload["name"], pull.payload["arguments"]) == ("find", {"key": [1]})


@pytest.mark.parametrize("steps", [None, 5, "ab", [1], [plain(1), plain(1)]], ids=repr)
async def test_steps_that_are_no_plan_any_more_are_the_hooks_failure(steps: object) -> None:
    scene = Scene([plain("a")])
    scene.loop.hooks.on("after_plan", lambda payload: payload.update(steps=steps))
    ended(await scene.run())
    assert scene.loop.plan == Plan((plain("a"),))
    assert [error.topic for error in scene.loop.hook_errors] == ["after_plan"]


async def test_a_draft_of_which_hooks_left_nothing_is_an_empty_plan() -> None:
    scene = Scene([plain("a")])
    scene.loop.hooks.on("after_plan", lambda payload: payload.update(steps=[]))
    ended(await scene.run(), "no_plan")


def _argument(payload: dict[str, object]) -> dict[str, object]:
    call = payload["call"]
    assert isinstance(call, dict)
    arguments = call["arguments"]  # pyright: ignore[reportUnknownVariableType]
    assert isinstance(arguments, dict)
    return arguments  # pyright: ignore[reportUnknownVariableType]


async def test_changed_arguments_are_what_the_tool_is_given() -> None:
    scene = Scene([tooled(1, arguments={"key": "a"})])
    scene.loop.hooks.on("before_tool_call", lambda payload: _argument(payload).update(key="b"))
    pull = called(await scene.run(), "1.0")
    assert pull.payload["arguments"] == {"key": "b"}
    (given,) = scene.events("tool.call")
    assert isinstance(given.data, ToolCallGiven)
    assert as_object(given.data.arguments).decoded() == {"key": "b"}
    assert scene.loop.plan == Plan((tooled(1, arguments={"key": "a"}),))


async def test_changed_arguments_are_validated_again() -> None:
    @tool(inline=True)
    def look_up(key: int) -> int:
        return key

    for key, outcome in (("x", "gave_up"), (7, "goal_met")):
        scene = Scene([tooled(1, arguments={"key": 1})], [], setting=Setting(tools=(look_up,)))
        scene.loop.hooks.on("before_tool_call", lambda payload, key=key: _argument(payload).update(key=key))
        result = ended(await scene.run(), outcome)
        assert result.result == (7 if outcome == "goal_met" else None)


async def test_arguments_that_were_changed_before_an_approval_are_what_was_approved() -> None:
    scene = Scene([tooled(1, arguments={"amount": 5})])

    def change(payload: dict[str, object]) -> HookAnswer:
        _argument(payload).update(amount=4)
        return Pause("may I?")

    scene.loop.hooks.on("before_tool_call", change)
    later = scene.on("before_tool_call")
    pull = paused(await scene.run(), "review:may I?")
    assert str(pull.payload["calls"]).count("'amount': 4") == 1
    copy = HarnessLoop.replay(scene.loop.events, clock=scene.clock)
    for loop in (scene.loop, copy):
        assert called(await loop.resume({"decision": "go"}), "1.0").payload["arguments"] == {"amount": 4}
    assert [_argument(payload) for payload in later] == [{"amount": 4}]


BROKEN: dict[str, object] = {
    "no call": None,
    "a list": {"arguments": [1]},
    "no arguments": {},
    "a set inside": {"arguments": {"key": {1}}},
}


@pytest.mark.parametrize("name", BROKEN)
async def test_arguments_that_are_no_object_any_more_refuse_the_call(name: str) -> None:
    scene = Scene([tooled(1)], [])
    scene.loop.hooks.on("before_tool_call", lambda payload: payload.update(call=BROKEN[name]))
    ended(await scene.run(), "gave_up")
    assert [kind for _, kind, _ in _errors(scene)] == ["schema"]


async def test_a_changed_result_is_what_the_planner_sees() -> None:
    scene = Scene(Plan([tooled(1)], final=False), [])
    scene.loop.hooks.on("after_tool_call", lambda payload: payload.update(result={"sum": 12}, error="no matter"))
    await scene.run()
    ended(await scene.answer({"result": 11}))
    assert _ends(scene) == [(1, "done", {"sum": 12}, "")]
    assert [getattr(item, "result", None) for item in scene.script.told[1].history] == [{"sum": 12}]


async def test_a_changed_error_is_what_the_planner_sees() -> None:
    scene = Scene([tooled(1)], [])
    scene.loop.hooks.on("after_tool_call", lambda payload: payload.update(error="ask for a key", result=5))
    await scene.run()
    ended(await scene.answer({"error": "no such key"}), "gave_up")
    assert _ends(scene) == [(1, "failed", None, "ask for a key")]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_result_or_error_without_a_json_form_is_the_hooks_failure(*, fails: bool) -> None:
    scene = Scene([tooled(1)], [])
    scene.loop.hooks.on("after_tool_call", lambda payload: payload.update(result={1}, error={1}))
    await scene.run()
    await scene.answer({"error": "no"} if fails else {"result": 5})
    assert _ends(scene) == [(1, "failed", None, "internal: no") if fails else (1, "done", 5, "")]
    assert [error.topic for error in scene.loop.hook_errors] == ["after_tool_call"]


async def test_a_result_that_was_changed_before_a_pause_stays_changed() -> None:
    scene = Scene([tooled(1)])

    def change(payload: dict[str, object]) -> HookAnswer:
        payload["result"] = 12
        return Pause("look")

    scene.loop.hooks.on("after_tool_call", change)
    later = scene.on("after_tool_call")
    await scene.run()
    paused(await scene.answer({"result": 11}), "review:look")
    copy = HarnessLoop.replay(scene.loop.events, clock=scene.clock)
    for loop in (scene.loop, copy):
        assert ended(await loop.resume({"decision": "go"})).result == 12
    assert [payload["result"] for payload in later] == [12]


@pytest.mark.parametrize("topic", ["before_plan", "before_step", "after_step", "on_error", "on_budget_exceeded"])
async def test_changes_of_other_payloads_change_nothing(topic: Topic) -> None:
    logs: list[list[object]] = []
    for is_changed in (False, True):
        scene = Scene([tooled(1)], [plain(2)], setting=Setting(budget=Budget(turns=1)))
        if is_changed:
            scene.loop.hooks.on(topic, lambda payload: payload.update(dict.fromkeys(payload, None)))
        await scene.run()
        await scene.answer({"error": "no"})
        await scene.answer({"extend": {"turns": 1}})
        assert scene.loop.state == "DONE"
        logs.append([event.data for event in scene.loop.events])
    assert logs[0] == logs[1]


# Pauses and their own hooks.


async def test_a_hook_of_a_pause_may_answer_it_at_once() -> None:
    scene = Scene([plain(1)], setting=Setting(budget=Budget(turns=0)))
    scene.loop.hooks.on("on_pause", lambda payload: payload.update(resume={"extend": {"turns": 1}}))
    ended(await scene.run())
    assert scene.types()[:5] == ["session.start", "budget.warn", "session.pause", "session.resume", "turn.start"]


async def test_a_hook_of_a_pause_that_denies_for_ever_gives_control_back() -> None:
    scene = Scene([plain(1)])
    scene.on("before_plan", HookAbort("not today"))
    scene.loop.hooks.on("on_pause", lambda payload: payload.update(resume={"decision": "deny"}))
    paused(await scene.run(), "aborted:a person denied it")
    assert len(scene.events("session.pause")) == 2
    ended(await scene.answer({"decision": "go"}))


async def test_an_answer_of_a_hook_that_is_refused_is_its_failure_and_control_goes_back() -> None:
    scene = Scene([plain(1)])
    scene.on("before_plan", Pause("look"))
    scene.loop.hooks.on("on_pause", lambda payload: payload.update(resume={"result": 1}))
    paused(await scene.run(), "review:look")
    assert [(error.topic, error.subscriber) for error in scene.loop.hook_errors] == [("on_pause", "resume")]


async def test_an_answer_of_a_hook_that_changes_nothing_gives_control_back() -> None:
    scene = Scene([plain(1)], setting=Setting(budget=Budget(turns=0)))
    scene.loop.hooks.on("on_pause", lambda payload: payload.update(resume={"extend": {"tokens": 1}}))
    paused(await scene.run(), "budget_exceeded:turns")


async def test_a_hook_of_a_pause_may_close_the_session() -> None:
    scene = Scene([plain(1)], setting=Setting(budget=Budget(turns=0)))
    scene.loop.hooks.on("on_pause", lambda payload: payload.update(resume={"close": "no money"}))
    heard = scene.on("on_complete")
    ended(await scene.run(), "closed:no money")
    assert [payload["reason"] for payload in heard] == ["closed:no money"]


# Errors.


async def test_a_review_of_an_error_calls_the_later_hooks_once() -> None:
    scene = Scene([tooled(1), tooled(2)], [plain(3)])
    scene.on("on_error", Pause("look"))
    later = scene.on("on_error")
    await scene.run()
    paused(await scene.answer({"error": "no"}), "review:look")
    ended(await scene.answer({"decision": "go on"}))
    assert [payload["decision"] for payload in later] == ["go on"]


async def test_each_error_of_a_step_that_comes_back_is_told() -> None:
    scene = Scene([tooled(1)], setting=Setting(budget=Budget(replans=2)))
    scene.on("before_tool_call", *[HookAbort("no") for _ in range(3)])
    scene.on("on_error", Pause("look"))
    errors = scene.on("on_error")
    paused(await scene.run(), "review:look")
    paused(await scene.answer({"decision": "go on"}), "replan_budget")
    assert len(errors) == 3


async def test_every_step_of_every_plan_is_shown_after_it_ended() -> None:
    scene = Scene([tooled(1)], [tooled(1)], [plain(1)])
    seen = scene.on("after_step")
    await scene.run()
    await scene.answer({"error": "no"})
    ended(await scene.answer({"error": "no"}))
    assert [(payload["status"], payload["error"]) for payload in seen] == [
        ("failed", "internal: no"),
        ("failed", "internal: no"),
        ("done", ""),
    ]


async def test_payloads_name_what_they_are_about() -> None:
    scene = Scene([tooled("a", arguments={"key": 1})], [plain("b")])
    scene.watch()
    await scene.run()
    ended(await scene.answer({"error": "no"}))
    first = dict(reversed(scene.payloads))
    assert all(payload["goal"] == "find the sum" for _, payload in scene.payloads)
    assert first["before_plan"]["reason"] == "first"
    assert first["before_step"]["step"] == tooled("a", arguments={"key": 1})
    assert first["before_tool_call"]["call"] == {"call_id": "1.0", "name": "look_up", "arguments": {"key": 1}}
    assert first["after_tool_call"]["call"] == {"call_id": "1.0", "name": "look_up", "attempt": 1}
    assert first["after_tool_call"]["error"] == first["on_error"]["error"] == "internal: no"
    assert (first["after_step"]["status"], first["on_complete"]["reason"]) == ("failed", "goal_met")
