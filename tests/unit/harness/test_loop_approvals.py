"""Approvals and policies: who may let a call pass, once each, in any order, and that nobody is asked twice."""

import itertools

import pytest

from checkrein.errors import ResumeError
from checkrein.harness.hooks import HookAnswer, Pause
from checkrein.harness.loop import HarnessLoop
from checkrein.harness.permission import Decision
from checkrein.harness.planners import Step
from checkrein.harness.pulls import PullRequest
from checkrein.kernel.events import SessionPause, ToolCallGiven, ToolErrorGiven
from checkrein.tools.function import FunctionTool, tool
from checkrein.values import JsonObject
from tests.unit.harness.loop_scene import (
    Scene,
    Script,
    Setting,
    called,
    calls_of,
    ended,
    is_sound,
    paused,
    plain,
    tooled,
)

BATCH = (
    tooled("a", "b", name="free"),
    tooled("b", "b", name="pay"),
    tooled("c", "b", name="pay"),
    tooled("d", "b", name="pay"),
)


class Counting:
    """A policy that asks about payments and keeps what it was asked."""

    def __init__(self, decision: Decision = "ask") -> None:
        self.decision: Decision = decision
        self.asked: list[tuple[str, object]] = []

    def __call__(self, name: str, arguments: JsonObject) -> Decision:
        self.asked.append((name, arguments.decoded()))
        return self.decision if name == "pay" else "allow"


def _ids(pull: PullRequest) -> list[object]:
    return [item["call_id"] for item in calls_of(pull)]


def _granted(scene: Scene) -> list[str]:
    return [event.data.call_id for event in scene.events("tool.call") if isinstance(event.data, ToolCallGiven)]


def _denied(scene: Scene) -> list[tuple[str | int, str, str]]:
    return [
        (event.data.step_id, event.data.kind, event.data.message)
        for event in scene.events("tool.error")
        if isinstance(event.data, ToolErrorGiven)
    ]


@pytest.mark.parametrize("order", tuple(itertools.permutations(("1.1", "1.2", "1.3"))), ids="-".join)
async def test_several_approvals_are_answered_in_any_order_before_the_first_body(order: tuple[str, ...]) -> None:
    policy = Counting()
    scene = Scene(BATCH, [plain(1)], setting=Setting(policy=policy))
    pull = paused(await scene.run(), "review:permission")
    left = ["1.1", "1.2", "1.3"]
    for call_id in order[:-1]:
        assert _ids(pull) == left
        assert _granted(scene) == []
        left.remove(call_id)
        decision = "deny" if call_id == "1.1" else "allow"
        pull = paused(await scene.answer({"decision": decision, "call_id": call_id}), "review:permission")
        with pytest.raises(ResumeError) as caught:
            await scene.answer({"decision": "allow", "call_id": call_id})
        assert caught.value.code == "unknown_call"
    called(await scene.answer({"decision": "deny" if order[-1] == "1.1" else "allow"}), "1.0", "1.2", "1.3")
    assert _denied(scene) == [("b", "denied", "a person denied it")]
    assert len(policy.asked) == 4
    for call_id in ("1.3", "1.0", "1.2"):
        await scene.answer({"result": call_id, "call_id": call_id})
    assert scene.loop.state == "DONE"
    assert is_sound(scene.loop)


async def test_approvals_are_answered_across_a_restart_and_the_policy_is_not_asked_again() -> None:
    scene = Scene(BATCH, setting=Setting(policy=Counting()))
    await scene.run()
    await scene.answer({"decision": "allow", "call_id": "1.2"})
    other = Counting("deny")
    copy = HarnessLoop.replay(scene.loop.events, Script([]), clock=scene.clock, policy=other)
    pull = paused(await copy.continue_(), "review:permission")
    assert _ids(pull) == ["1.1", "1.3"]
    await copy.resume({"decision": {"deny": "too much"}, "call_id": "1.3"})
    called(await copy.resume({"decision": "allow"}), "1.0", "1.1", "1.2")
    assert other.asked == []


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_what_was_answered_stays_answered_at_every_offset(count: int) -> None:
    scene = Scene(BATCH, setting=Setting(policy=Counting()))
    await scene.run()
    for call_id in ("1.1", "1.2", "1.3")[:count]:
        await scene.answer({"decision": {"deny": call_id}, "call_id": call_id})
    resumed = [event.offset for event in scene.events("session.resume")]
    copy = HarnessLoop.replay(scene.loop.events.read()[: resumed[-1] + 1], Script([]), clock=scene.clock)
    await copy.continue_()
    assert copy.session == scene.loop.session


async def test_a_policy_that_denies_makes_an_error_and_asks_nobody() -> None:
    scene = Scene([tooled(1, name="pay")], [], setting=Setting(policy=Counting("deny")))
    ended(await scene.run(), "gave_up")
    assert _denied(scene) == [(1, "denied", "the policy denies it")]
    assert _granted(scene) == []


async def test_a_policy_that_raises_denies() -> None:
    def broken(_name: str, _arguments: JsonObject) -> Decision:
        raise ZeroDivisionError

    scene = Scene([tooled(1)], [], setting=Setting(policy=broken))
    ended(await scene.run(), "gave_up")
    assert "ZeroDivisionError" in _denied(scene)[0][2]


async def test_hooks_are_asked_first_then_the_policy_and_both_approvals_are_needed() -> None:
    policy = Counting()
    scene = Scene([tooled(1, name="pay", arguments={"amount": 5})], setting=Setting(policy=policy))

    def hook(payload: dict[str, object]) -> HookAnswer:
        call = payload["call"]
        assert isinstance(call, dict)
        call["arguments"] = {"amount": 4}
        return Pause("look")

    scene.loop.hooks.on("before_tool_call", hook)
    paused(await scene.run(), "review:look")
    assert policy.asked == []
    paused(await scene.answer({"decision": "go"}), "review:permission")
    assert policy.asked == [("pay", {"amount": 4})]
    called(await scene.answer({"decision": "allow"}), "1.0")
    assert len(policy.asked) == 1


async def test_a_denial_of_the_hooks_review_is_never_shown_to_the_policy() -> None:
    policy = Counting()
    scene = Scene([tooled(1, name="pay")], [], setting=Setting(policy=policy))
    scene.on("before_tool_call", Pause("look"))
    await scene.run()
    ended(await scene.answer({"decision": {"deny": "no"}}), "gave_up")
    assert (policy.asked, _denied(scene)) == ([], [(1, "denied", "no")])


async def test_a_revision_that_asks_for_the_same_call_is_asked_about_again() -> None:
    policy = Counting()
    scene = Scene([tooled(1, name="pay")], [tooled(1, name="pay")], setting=Setting(policy=policy))
    await scene.run()
    await scene.answer({"decision": "allow"})
    paused(await scene.answer({"error": "no funds"}), "review:permission")
    called(await scene.answer({"decision": "allow"}), "2.0")
    assert len(policy.asked) == 2


async def test_a_pause_holds_the_calls_that_wait_beside_it() -> None:
    scene = Scene(BATCH, setting=Setting(policy=Counting()))
    await scene.run()
    (pause,) = scene.events("session.pause")
    assert isinstance(pause.data, SessionPause)
    assert [(call.call_id, call.asks) for call in pause.data.calls] == [
        ("1.1", "policy"),
        ("1.2", "policy"),
        ("1.3", "policy"),
        ("1.0", ""),
    ]


def _tools(bodies: list[str]) -> tuple[FunctionTool, ...]:
    @tool(inline=True)
    def free() -> str:
        bodies.append("free")
        return "free"

    @tool(inline=True)
    def pay() -> str:
        bodies.append("pay")
        return "paid"

    return free, pay


async def test_with_tools_no_body_runs_before_every_approval_is_answered_and_each_runs_once() -> None:
    bodies: list[str] = []
    scene = Scene(BATCH, [plain(1)], setting=Setting(policy=Counting(), tools=_tools(bodies)))
    await scene.run()
    for call_id in ("1.3", "1.1"):
        await scene.answer({"decision": "allow", "call_id": call_id})
        assert bodies == []
    ended(await scene.answer({"decision": "deny", "call_id": "1.2"}))
    assert sorted(bodies) == ["free", "pay", "pay"]
    assert len(scene.events("tool.result")) == 3


async def test_a_finished_sibling_never_runs_again() -> None:
    bodies: list[str] = []
    plan: list[Step] = [tooled("a", name="free"), tooled("b", name="pay")]
    setting = Setting(policy=Counting(), tools=_tools(bodies))
    scene = Scene(plan, setting=setting)
    paused(await scene.run(), "review:permission")
    assert bodies == ["free"]
    copy = HarnessLoop.replay(scene.loop.events, Script(plan), clock=scene.clock, tools=_tools(bodies))
    ended(await copy.resume({"decision": "allow"}))
    assert bodies == ["free", "pay"]


async def test_a_call_that_is_refused_leaves_the_others_of_its_batch_to_be_decided() -> None:
    bodies: list[str] = []
    plan = [
        tooled("a", "b", name="free", arguments={"extra": 1}),
        tooled("b", "b", name="pay"),
        tooled("c", "b", name="nobody"),
    ]
    scene = Scene(plan, [plain(1)], setting=Setting(policy=Counting(), tools=_tools(bodies)))
    pull = paused(await scene.run(), "review:permission")
    assert _ids(pull) == ["1.1"]
    assert [(step, kind) for step, kind, _ in _denied(scene)] == [("a", "schema"), ("c", "not_found")]
    ended(await scene.answer({"decision": "allow"}))
    assert bodies == ["pay"]
