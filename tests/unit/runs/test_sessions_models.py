"""Runs that a model plans: its calls are a batch under policy and budget, its text is the artifact `answer`, and its retries are attempts of the turn."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace

from checkrein.errors import ModelError
from checkrein.harness.permission import Decision
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import ToolDone, TurnFinished, TurnGranted
from checkrein.kernel.state import Phase, RunState
from checkrein.messages import ToolCall, ToolResult, Usage, validate_transcript
from checkrein.ports.model import ModelRequest
from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.runs.task import Task
from checkrein.testing import CrashPoint, ScriptedModel
from checkrein.testing.scripted import ScriptItem, reply
from checkrein.tools.function import FunctionTool
from checkrein.values import JsonObject
from tests.unit.runs.scene import Exists, Scene
from tests.unit.runs.sessions import Doer, kinds, restarted


def modelled(
    scene: Scene, script: Iterable[ScriptItem], *tools: FunctionTool, budget: Budget | None = None
) -> tuple[Task, ScriptedModel]:
    """Return a task that a model plans and whose answer must be there, with the model."""
    model = ScriptedModel(script)
    plain = scene.task([], *tools, checks=[Exists("answer")], budget=budget)
    return Task(
        name=plain.name, goal=plain.goal, checks=plain.checks, model=model, tools=plain.tools, budget=plain.budget, workspace=plain.workspace
    ), model  # fmt: skip


async def _patiently(scene: Scene, task: Task, run_id: str) -> RunState:
    """Advance a run while time passes."""
    advancing = scene.spawn(scene.worker(task).advance(run_id))
    while not advancing.done():
        await scene.clock.advance(1.0)
    return await advancing


def told(request: ModelRequest) -> list[tuple[str, str]]:
    """Return the results in a request, which is a valid transcript."""
    assert validate_transcript(tuple(request.messages)) == ()
    return [(item.tool_call_id, str(item.content)) for item in request.messages if isinstance(item, ToolResult)]


async def test_the_calls_of_a_response_are_one_batch_and_the_text_is_the_checked_answer(scene: Scene) -> None:
    doer = Doer()
    script = [reply(ToolCall("c1", "one", {}), ToolCall("c2", "two", {"text": "x"})), reply("Both are done.")]
    task, model = modelled(scene, script, *doer.tools("one", "two"))
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    assert (state.phase, sorted(doer.made), state.budget.used.turns) == (Phase.SUCCEEDED, ["one", "two"], 2)
    assert [(name, "one" in text or "two x" in text) for name, text in told(model.requests[1])] == [
        ("c1", True), ("c2", True),
    ]  # fmt: skip
    assert [item.name for item in model.requests[0].tools] == ["put", "one", "two"]
    (artifact,) = state.artifacts
    assert (artifact.path, artifact.sha256) == ("answer", hashlib.sha256(b"Both are done.").hexdigest())
    assert (scene.folder / run_id / "answer").read_text(encoding="utf-8") == "Both are done."
    await scene.check_log(run_id)


class Long(Exists):
    """A check that refuses short texts."""

    async def measure(self, context: CheckContext) -> Measurement:
        found = await super().measure(context)
        return replace(found, passed=not found.text.startswith("5 "), code="short")


async def test_an_answer_that_its_check_refuses_is_repaired_by_another_response(scene: Scene) -> None:
    task, model = modelled(scene, [reply("short"), reply("a longer answer")])

    task = replace(task, checks=[Long("answer")])
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    assert (state.phase, state.budget.used.repairs, model.call_count) == (Phase.SUCCEEDED, 1, 2)
    assert (scene.folder / run_id / "answer").read_text(encoding="utf-8") == "a longer answer"
    await scene.check_log(run_id)


async def test_a_failure_that_may_pass_is_tried_again_as_an_attempt_of_the_turn_each_counted(scene: Scene) -> None:
    failures = [ModelError("overloaded", is_transient=True) for _ in range(2)]
    task, model = modelled(scene, [*failures, reply("done", usage=Usage(10, 5))], budget=Budget(turns=3))
    run_id = await scene.worker().submit(task)
    state = await _patiently(scene, task, run_id)
    assert (state.phase, state.budget.used.turns, model.call_count) == (Phase.SUCCEEDED, 3, 3)
    events = await scene.log(run_id)
    grants = [
        (item.turn, item.attempt, bool(item.previous))
        for item in kinds(events, TurnGranted)
        if isinstance(item, TurnGranted)
    ]
    assert grants == [(1, 1, False), (1, 2, True), (1, 3, True)]
    ends = [(item.turn, item.attempt) for item in kinds(events, TurnFinished) if isinstance(item, TurnFinished)]
    assert ends == [(1, 3)]
    await scene.check_log(run_id)


@pytest.mark.parametrize("turns", [1, 2])
async def test_no_attempt_is_made_that_the_budget_of_turns_does_not_allow(scene: Scene, turns: int) -> None:
    failures = [ModelError("overloaded", is_transient=True) for _ in range(turns)]
    task, model = modelled(scene, [*failures, reply("done")], budget=Budget(turns=turns))
    run_id = await scene.worker().submit(task)
    state = await _patiently(scene, task, run_id)
    assert (state.phase, [cause.id for cause in state.causes]) == (Phase.BLOCKED, ["planner:1"])
    assert (model.call_count, state.budget.used.turns) == (turns, turns)
    await scene.commands().respond(run_id, {"decision": "again"})
    assert (await _patiently(scene, task, run_id)).causes[0].id == "budget:turns"
    await scene.commands().respond(run_id, {"extend": {"turns": 1}})
    assert (await _patiently(scene, task, run_id)).phase is Phase.SUCCEEDED
    await scene.check_log(run_id)


async def test_tokens_overshoot_by_one_turn_and_none_starts_after_it(scene: Scene) -> None:
    doer = Doer()
    script = [reply(ToolCall("c1", "one", {}), usage=Usage(80, 40)), reply("done", usage=Usage(1, 1))]
    task, model = modelled(scene, script, *doer.tools("one"), budget=Budget(tokens=100))
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    assert ([cause.id for cause in state.causes], model.call_count, doer.made) == (["budget:tokens"], 1, ["one"])
    await scene.commands().respond(run_id, {"extend": {"tokens": 100}})
    state = await scene.worker(task).advance(run_id)
    assert (state.phase, state.budget.used.tokens) == (Phase.SUCCEEDED, 122)
    await scene.check_log(run_id)


POINTS = ("after append turn.start", "after plan", "after append plan.draft", "after append plan.commit", "before body one",
          "after body one", "after append tool.result", "after append step.end", "after append work_done", "before append session.complete")  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
async def test_a_crash_leaves_a_valid_transcript_and_asks_no_finished_turn_again(
    scene: Scene, tmp_path: Path, point: str
) -> None:
    await restarted(scene, tmp_path)
    doer = Doer()
    call = reply(ToolCall("c1", "one", {}), ToolCall("c2", "two", {}))
    tools = [doer.tool(name, idempotent=True) for name in ("one", "two")]
    task, model = modelled(scene, [call, reply("done")], *tools)
    if point in {"after append turn.start", "after plan"}:
        task, model = modelled(
            scene, [call, call, reply("done")] if point == "after plan" else [call, reply("done")], *tools
        )
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, point)
    await restarted(scene, tmp_path)
    state = await scene.worker(task, name="another").advance(run_id)
    assert (state.phase, model.remaining) == (Phase.SUCCEEDED, 0)
    assert [name for name, _ in told(model.requests[-1])] == ["c1", "c2"]
    done = [item.call_id for item in kinds(await scene.log(run_id), ToolDone) if isinstance(item, ToolDone)]
    assert sorted(done) == ["1.0", "1.1"]
    await scene.check_log(run_id)


async def test_a_denied_call_of_a_model_is_told_to_it_as_the_calls_result(scene: Scene) -> None:
    doer = Doer()
    script = [reply(ToolCall("c1", "one", {}), ToolCall("c2", "two", {})), reply("done")]
    task, model = modelled(scene, script, *doer.tools("one", "two"))

    def policy(name: str, _arguments: JsonObject) -> Decision:
        return "ask" if name == "two" else "allow"

    task = replace(task, policy=policy)
    run_id = await scene.worker().submit(task)
    await scene.worker(task).advance(run_id)
    await scene.commands().respond(run_id, {"decision": {"deny": "too dear"}})
    assert (await scene.worker(task).advance(run_id)).phase is Phase.SUCCEEDED
    assert doer.made == ["one"]
    (first, second) = told(model.requests[1])
    assert (first[0], second[0], "too dear" in second[1]) == ("c1", "c2", True)
    await scene.check_log(run_id)


async def test_a_steering_message_is_in_the_next_request_of_the_model(scene: Scene) -> None:
    doer = Doer()

    async def steer(_name: str) -> None:
        await scene.worker().steer(run_id, "be brief")

    point = CrashPoint(at=1, among=("after body one",), deed=steer)
    task, model = modelled(scene, [reply(ToolCall("c1", "one", {})), reply("done")], *doer.tools("one"))
    task = point.task(task)
    run_id = await scene.worker().submit(task)
    assert (await scene.worker(task).advance(run_id)).phase is Phase.SUCCEEDED
    assert "be brief" in str(model.requests[1].messages[-1])
    await scene.check_log(run_id)
