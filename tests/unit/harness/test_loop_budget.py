"""Budgets of a session: n allowed means n made, a used-up limit yields, and an extension goes on where the session stood."""

import pytest

from checkrein.errors import DataError
from checkrein.harness.loop import HarnessLoop
from checkrein.harness.planners import Plan
from checkrein.harness.pulls import PullRequest, SessionResult
from checkrein.kernel.budget import Budget, Limit
from checkrein.kernel.events import BudgetWarn, Event, SessionPause, TurnFinished
from checkrein.messages import Usage
from tests.unit.harness.loop_scene import Scene, Script, Setting, called, ended, is_sound, paused, plain, tooled

ENDLESS = Plan([tooled("a"), tooled("b")], final=False)
REASONS: dict[Limit, str] = {
    "turns": "budget_exceeded:turns",
    "tool_calls": "budget_exceeded:tool_calls",
    "steps": "step_budget",
    "replans": "replan_budget",
}
COUNTED: tuple[Limit, ...] = ("turns", "tool_calls", "steps", "replans")


def _budget(limit: Limit, amount: int) -> Budget:
    limits = dict.fromkeys(COUNTED, 10_000)
    return Budget(**{**limits, limit: amount})


def _scene(limit: Limit, amount: int) -> Scene:
    return Scene(ENDLESS, setting=Setting(budget=_budget(limit, amount)))


async def _until_pause(scene: Scene, pull: PullRequest | SessionResult, *, fails: bool) -> PullRequest:
    while isinstance(pull, PullRequest) and pull.kind == "tool":
        pull = await scene.answer({"error": "no"} if fails else {"result": 1})
    assert isinstance(pull, PullRequest)
    return pull


def _made(scene: Scene, limit: Limit) -> int:
    match limit:
        case "turns":
            return len(scene.script.told)
        case "tool_calls":
            return len(scene.events("tool.call"))
        case "steps":
            return len(scene.events("step.start"))
        case _:
            return len(scene.script.told) - 1


@pytest.mark.parametrize("amount", [0, 1, 2, 7])
@pytest.mark.parametrize("limit", COUNTED)
async def test_n_allowed_means_n_made(limit: Limit, amount: int) -> None:
    scene = _scene(limit, amount)
    pull = await _until_pause(scene, await scene.run(), fails=limit == "replans")
    paused(pull, REASONS[limit])
    assert _made(scene, limit) == amount
    assert getattr(scene.loop.budget.used, limit) == amount
    assert scene.loop.session.work == () or limit == "tool_calls"
    (warn,) = scene.events("budget.warn")
    assert isinstance(warn.data, BudgetWarn)
    assert (warn.data.limit, warn.data.used, warn.data.allowed) == (limit, amount, amount)
    assert is_sound(scene.loop)


@pytest.mark.parametrize("limit", COUNTED)
async def test_an_extended_budget_goes_on_for_exactly_as_much_more(limit: Limit) -> None:
    scene = _scene(limit, 2)
    pull = await _until_pause(scene, await scene.run(), fails=limit == "replans")
    for more in (1, 3):
        before = _made(scene, limit)
        pull = await _until_pause(scene, await scene.answer({"extend": {limit: more}}), fails=limit == "replans")
        paused(pull, REASONS[limit])
        assert _made(scene, limit) == before + more
    assert is_sound(scene.loop)


@pytest.mark.parametrize("limit", COUNTED)
async def test_the_order_at_a_used_up_limit(limit: Limit) -> None:
    scene = _scene(limit, 1)
    scene.watch("on_budget_exceeded", "on_pause")
    await _until_pause(scene, await scene.run(), fails=limit == "replans")
    assert scene.traced()[-4:] == ["ON_BUDGET_EXCEEDED", "budget.warn", "session.pause", "ON_PAUSE"]
    (payload,) = [payload for topic, payload in scene.payloads if topic == "on_budget_exceeded"]
    assert (payload["limit"], payload["used"], payload["allowed"]) == (limit, 1, 1)
    assert payload["reason"] == REASONS[limit]


@pytest.mark.parametrize("limit", COUNTED)
async def test_a_session_that_needs_exactly_its_limit_never_pauses(limit: Limit) -> None:
    budget = Budget(turns=2, tool_calls=2, steps=2, replans=1) if limit != "replans" else Budget(replans=1)
    scene = Scene([tooled(1)], [tooled(2)], setting=Setting(budget=budget))
    await scene.run()
    await scene.answer({"error": "no"})
    ended(await scene.answer({"result": 1}))
    assert scene.events("budget.warn", "session.pause") == ()


async def test_the_same_pull_again_resets_nothing() -> None:
    scene = _scene("turns", 0)
    pull = await scene.run()
    for answer in (None, {}, {"decision": "go"}, {"extend": {"turns": 0}}, {"extend": {"steps": 5}}):
        assert await scene.answer(answer) == pull
    assert len(scene.events("session.pause", "budget.warn")) == 2


async def test_a_closed_budget_pause_ends_the_session() -> None:
    scene = _scene("steps", 0)
    await scene.run()
    ended(await scene.answer({"close": "too dear"}), "closed:too dear")


async def test_calls_of_a_batch_that_do_not_fit_wait_for_the_budget() -> None:
    scene = Scene([tooled(number, "b") for number in range(4)], setting=Setting(budget=Budget(tool_calls=2)))
    called(await scene.run(), "1.0", "1.1")
    called(await scene.answer({"result": 1, "call_id": "1.1"}), "1.0")
    paused(await scene.answer({"result": 0}), "budget_exceeded:tool_calls")
    assert scene.loop.session.paused is not None
    assert scene.loop.session.paused.state == "AWAITING_TOOL"
    called(await scene.answer({"extend": {"tool_calls": 1}}), "1.2")
    paused(await scene.answer({"result": 2}), "budget_exceeded:tool_calls")
    called(await scene.answer({"extend": {"tool_calls": 1}}), "1.3")
    ended(await scene.answer({"result": 3}))
    assert scene.loop.budget.used.tool_calls == 4


async def test_a_batch_that_does_not_fit_the_step_budget_makes_no_call_of_it() -> None:
    scene = Scene([tooled(number, "b") for number in range(3)], setting=Setting(budget=Budget(steps=2)))
    paused(await scene.run(), "step_budget")
    assert scene.events("tool.call") == ()
    called(await scene.answer({"extend": {"steps": 1}}), "1.0", "1.1", "1.2")


# Time.


async def test_time_runs_while_a_tool_is_awaited_and_not_while_paused() -> None:
    scene = Scene([tooled(1), tooled(2), plain(3)], setting=Setting(budget=Budget(wall_seconds=10, turns=0)))
    paused(await scene.run(), "budget_exceeded:turns")
    await scene.clock.advance(100)
    called(await scene.answer({"extend": {"turns": 1}}), "1.0")
    await scene.clock.advance(9)
    called(await scene.answer({"result": 1}), "1.1")
    assert scene.loop.budget.used.wall_seconds == 9
    await scene.clock.advance(0.5)
    assert scene.loop.budget.used.wall_seconds == 9.5
    await scene.clock.advance(0.5)
    paused(await scene.answer({"result": 2}), "budget_exceeded:wall_seconds")
    await scene.clock.advance(100)
    assert scene.loop.budget.used.wall_seconds == 10
    result = ended(await scene.answer({"extend": {"wall_seconds": 1}}))
    assert result.budget.used.wall_seconds == 10


async def test_time_is_used_up_at_the_limit_itself() -> None:
    for seconds, reason in ((4.999, None), (5.0, "budget_exceeded:wall_seconds")):
        scene = Scene([tooled(1)], setting=Setting(budget=Budget(wall_seconds=5)))
        await scene.run()
        await scene.clock.advance(seconds)
        pull = await scene.answer({"result": 1})
        assert (paused(pull, reason) if reason else ended(pull)) is pull


async def test_no_time_at_all_pauses_before_anything_is_asked() -> None:
    scene = Scene([plain(1)], setting=Setting(budget=Budget(wall_seconds=0)))
    paused(await scene.run(), "budget_exceeded:wall_seconds")
    assert scene.script.told == []


async def test_time_that_is_used_up_while_one_of_two_calls_is_open_gives_that_call_back_after_the_pause() -> None:
    scene = Scene([tooled(1, "b"), tooled(2, "b")], setting=Setting(budget=Budget(wall_seconds=5)))
    called(await scene.run(), "1.0", "1.1")
    await scene.clock.advance(6)
    paused(await scene.answer({"result": 1, "call_id": "1.0"}), "budget_exceeded:wall_seconds")
    called(await scene.answer({"extend": {"wall_seconds": 5}}), "1.1")
    ended(await scene.answer({"result": 2}))


async def test_time_that_a_planner_takes_counts() -> None:
    scene = Scene([])

    async def slow(*_told: object) -> list[object]:
        await scene.clock.sleep(7)
        return []

    scene.loop.planner = slow  # pyright: ignore[reportAttributeAccessIssue]  an empty list of anything is a plan
    work = scene.clock.spawn(scene.run(), name="driver")
    await scene.clock.advance(8)
    assert ended(await work, "no_plan").budget.used.wall_seconds >= 7


async def test_every_event_carries_the_time_so_far() -> None:
    scene = Scene([tooled(1), tooled(2)])
    await scene.run()
    await scene.clock.advance(2)
    await scene.answer({"result": 1})
    await scene.clock.advance(3)
    await scene.answer({"result": 1})
    elapsed = [event.elapsed for event in scene.loop.events]
    assert elapsed == sorted(elapsed)
    assert {*elapsed} == {0.0, 2.0, 5.0}
    copy = HarnessLoop.replay(scene.loop.events, clock=scene.clock)
    assert copy.budget == scene.loop.budget


async def test_no_time_passes_between_a_crash_and_the_takeover() -> None:
    scene = Scene([tooled(1)], setting=Setting(budget=Budget(wall_seconds=10)))
    await scene.run()
    log = list(scene.loop.events)
    await scene.clock.advance(60)
    copy = HarnessLoop.replay(log, Script([]), clock=scene.clock)
    await scene.clock.advance(3)
    assert ended(await copy.resume({"result": 1})).budget.used.wall_seconds == 3


# Tokens and cost.


@pytest.mark.parametrize(
    ("limit", "usage", "amount"),
    [("tokens", Usage(60, 40), 100), ("cost", Usage(1, 1, cost=0.5), 0.5), ("tokens", Usage(100, 40), 100)],
)
async def test_the_turn_that_crosses_the_limit_is_the_last(limit: Limit, usage: Usage, amount: float) -> None:
    budget = Budget(tokens=100 if limit == "tokens" else None, cost=0.5 if limit == "cost" else None)
    scene = Scene(ENDLESS, setting=Setting(budget=budget))
    await scene.run()
    log = list(scene.loop.events)
    at = next(event.offset for event in log if event.type == "plan.draft") + 1
    spent = [*log[:at], _usage_event(log[at], usage), *(_later(event) for event in log[at:])]
    copy = HarnessLoop.replay(spent, scene.script, clock=scene.clock)
    called(await copy.continue_(), "1.0")
    called(await copy.resume({"result": 1}), "1.1")
    pull = paused(await copy.resume({"result": 1}), f"budget_exceeded:{limit}")
    assert getattr(copy.budget.used, limit) >= amount
    assert len(scene.script.told) == 1
    assert pull.payload["subject"] == limit
    called(await copy.resume({"extend": {limit: 1000}}), "2.0")


def _usage_event(like: Event, usage: Usage) -> Event:
    return Event(like.run_id, "usage", like.offset, like.at, like.actor, TurnFinished(1, usage=usage))


def _later(event: Event) -> Event:
    return Event(event.run_id, event.event_id, event.offset + 1, event.at, event.actor, event.data)


# Limits themselves.


@pytest.mark.parametrize("bad", [-1, float("nan"), True], ids=repr)
def test_a_limit_that_is_no_amount_is_refused(bad: float) -> None:
    with pytest.raises(DataError):
        Budget(wall_seconds=bad)


async def test_an_unlimited_budget_never_pauses() -> None:
    unlimited = Budget(turns=None, tool_calls=None, wall_seconds=None, steps=None, replans=None)
    scene = Scene(*[Plan([tooled(number)], final=False) for number in range(70)], [], setting=Setting(budget=unlimited))
    pull = await scene.run()
    while isinstance(pull, PullRequest):
        await scene.clock.advance(1_000)
        pull = await scene.answer({"result": 1})
    assert ended(pull).budget.used.turns == 71


async def test_the_limits_stand_in_the_log() -> None:
    scene = Scene([tooled(1)], setting=Setting(budget=Budget(turns=3, cost=1.5)))
    assert scene.loop.budget.limits == Budget(turns=3, cost=1.5)
    await scene.run()
    assert HarnessLoop.replay(scene.loop.events).budget.limits == Budget(turns=3, cost=1.5)


async def test_a_pause_names_the_state_it_returns_to() -> None:
    for limit, state in (("turns", "PLANNING"), ("steps", "EXECUTING"), ("tool_calls", "EXECUTING")):
        scene = Scene([tooled(1)], setting=Setting(budget=Budget(**{limit: 0})))
        await scene.run()
        (pause,) = scene.events("session.pause")
        assert isinstance(pause.data, SessionPause)
        assert (pause.data.state, scene.loop.state) == (state, "IDLE")
