"""A model that drafts plans of several steps: what it is told, what becomes of its plan, and what of a response that is none."""

import json
from collections.abc import Mapping
from typing import cast

import pytest

from checkrein.harness.hooks import Pause
from checkrein.harness.pulls import PullRequest
from checkrein.harness.structured import StructuredPlanner, plan_schema
from checkrein.messages import Usage
from checkrein.providers.chat.encode import is_strict_schema
from checkrein.testing.scripted import ScriptItem, reply
from checkrein.values import JsonObject
from tests.unit.harness.model_scene import Scene, call, done

STEP = {"id": "1", "description": "Add", "tool": "add", "arguments": '{"a": 1, "b": 2}'}


def drafted(*steps: Mapping[str, object], final: bool = True) -> ScriptItem:
    return reply(json.dumps({"steps": steps, "final": final}), usage=Usage(10, 5))


def scene_of(*script: ScriptItem) -> Scene:
    scene = Scene(script)
    scene.loop.planner = StructuredPlanner(scene.model, settings={"system": "You add.", "temperature": 0})
    return scene


async def test_a_plan_of_several_steps_is_done_without_asking_in_between() -> None:
    scene = scene_of(drafted(STEP, {**STEP, "id": "2", "arguments": '{"a": 3, "b": 4}'}))
    out = done(await scene.run())
    assert (out.state, out.reason) == ("DONE", "goal_met")
    assert len(scene.loop.session.history) == 2
    assert (out.budget.used.turns, out.budget.used.tool_calls) == (1, 2)


async def test_the_model_is_told_of_the_tools_and_asked_for_json_of_a_schema() -> None:
    scene = scene_of(drafted(STEP))
    await scene.run()
    (request,) = scene.model.requests
    settings = request.settings.decoded()
    assert request.tools == ()
    assert settings["temperature"] == 0
    system = cast("str", settings["system"])
    assert system.startswith("You add.")
    assert '"name": "add"' in system
    assert settings["response_schema"] == plan_schema(["add", "fail"])
    assert is_strict_schema(JsonObject(plan_schema(["add"]))), "the strictest provider holds the model to it"


async def test_a_plan_that_is_not_final_is_planned_on_with_its_results() -> None:
    scene = scene_of(
        drafted(STEP, final=False), drafted({**STEP, "id": "2", "arguments": {"a": 3, "b": 4}}), reply("x")
    )
    out = done(await scene.run())
    assert (out.reason, out.budget.used.turns, out.budget.used.tool_calls) == ("goal_met", 2, 2)
    assert any("step 1 (Add), add with" in text and "is done: 3" in text for text in scene.said(1))


async def test_a_failed_step_is_told_and_planned_anew() -> None:
    broken = {**STEP, "id": "1", "tool": "fail", "arguments": ""}
    scene = scene_of(drafted(broken, {**STEP, "id": "2"}), drafted(STEP))
    out = done(await scene.run())
    assert out.reason == "goal_met"
    assert any("failed" in text for text in scene.said(1))


async def test_nothing_left_to_do_ends_the_session() -> None:
    scene = scene_of(drafted(STEP, final=False), drafted())
    assert done(await scene.run()).reason == "goal_met"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("First I would add.", "malformed"),
        ('{"plan": []}', "missing required field `steps`"),
        ('{"steps": [{"id": "1", "arguments": 3}], "final": true}', "$.steps[0].arguments"),
        ('{"steps": [{"id": 1.5}], "final": true}', "$.steps[0].id"),
    ],
)
async def test_text_that_is_no_plan_is_asked_for_again_and_the_fault_is_told(text: str, said: str) -> None:
    scene = scene_of(reply(text, usage=Usage(7, 3)), drafted(STEP))
    out = done(await scene.run())
    assert (out.reason, out.budget.used.turns) == ("goal_met", 2)
    assert out.budget.used.tokens == 25, "what the refused text consumed counts"
    told = scene.said(1)[-1]
    assert told.startswith("that was no plan: ")
    assert said in told
    assert "expected JSON like" in told


async def test_a_model_that_never_drafts_a_plan_pauses_the_session() -> None:
    scene = scene_of(*[reply("no")] * 9)
    out = await scene.run()
    assert isinstance(out, PullRequest)
    assert out.reason == "planner_failed"
    assert scene.model.call_count == 3


async def test_a_plan_in_a_fence_is_a_plan() -> None:
    text = json.dumps({"steps": [STEP], "final": True})
    assert done(await scene_of(reply(f"```json\n{text}\n```")).run()).reason == "goal_met"


async def test_arguments_that_are_no_object_fail_their_step_alone() -> None:
    scene = scene_of(drafted({**STEP, "arguments": "[1, 2"}), drafted(STEP))
    assert done(await scene.run()).reason == "goal_met"
    assert any("[1, 2" in text for text in scene.said(1))


async def test_a_call_in_place_of_a_plan_is_refused() -> None:
    scene = scene_of(reply(call()), drafted(STEP))
    out = done(await scene.run())
    assert (out.reason, out.budget.used.tool_calls) == ("goal_met", 1)


async def test_a_hook_sees_the_whole_plan_before_its_first_step() -> None:
    scene = scene_of(drafted(STEP, {**STEP, "id": "2"}))
    seen: list[int] = []

    def look(payload: dict[str, object]) -> Pause:
        seen.append(len(cast("list[object]", payload["steps"])))
        return Pause("the plan is to be read")

    scene.loop.hooks.on("after_plan", look)
    out = await scene.run()
    assert isinstance(out, PullRequest)
    assert seen == [2]
    assert done(await scene.resume({"decision": "approve"})).budget.used.tool_calls == 2
