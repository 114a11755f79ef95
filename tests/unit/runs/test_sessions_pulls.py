"""Pull points of durable runs: a tool that the task does not have is answered from outside, once; and the whole table of what an answer does in each state."""

from collections.abc import Awaitable, Callable
from typing import cast

import pytest
from msgspec.structs import replace

from checkrein.errors import Conflict, Rejected, ResumeError
from checkrein.harness.hooks import Pause
from checkrein.harness.model_planner import ModelPlanner
from checkrein.harness.planners import Plan, StepRecord
from checkrein.harness.pulls import PullRequest
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import ToolAccepted, ToolErrorGiven
from checkrein.kernel.state import PULL, Phase
from checkrein.messages import ToolCall
from checkrein.runs.task import Task
from checkrein.testing import ScriptedModel
from checkrein.testing.scripted import reply
from tests.unit.runs.scene import Exists, Scene, Script, gate, step, write
from tests.unit.runs.sessions import Doer, Fires, call_in, ends_of, hooked, kinds


async def _asked(scene: Scene, task: Task) -> str:
    """Return a run that waits for its caller."""
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    assert state.phase is Phase.BLOCKED
    return run_id


async def test_a_call_of_a_tool_that_the_task_does_not_have_is_granted_and_waits_for_a_caller(scene: Scene) -> None:
    task = scene.task([call_in("bring", batch=None, given={"what": "a fact"}), write()])
    run_id = await _asked(scene, task)
    types = await scene.types(run_id)
    assert types[-4:] == ["tool.call", "tool_granted", "tool_accepted", "blocked"]
    (accepted,) = kinds(await scene.log(run_id), ToolAccepted)
    assert accepted == ToolAccepted(call_id="1.0", handle=PULL)
    state = await scene.worker().state(run_id)
    assert [(cause.id, cause.kind, cause.call_id) for cause in state.causes] == [("answer:1.0", "answer", "1.0")]
    assert state.budget.used.tool_calls == 1
    assert (await scene.store.get(run_id)).lease.is_released
    seen = await scene.commands().pull(run_id)
    assert seen.pull is not None
    assert (seen.pull.kind, seen.pull.reason) == ("tool", "tool_result")
    assert {key: seen.pull.payload[key] for key in ("call_id", "name", "arguments")} == {
        "call_id": "1.0", "name": "bring", "arguments": {"what": "a fact"},
    }  # fmt: skip
    assert (await scene.worker(task).advance(run_id)).version == state.version


@pytest.mark.parametrize("value", [{"fact": 1}, None, "", [1, 2]])
async def test_a_result_from_outside_closes_the_call_and_the_run_goes_on(scene: Scene, value: object) -> None:
    script = Script(Plan([call_in("bring", batch=None)], final=False), [write()])
    task = scene.task(script)
    run_id = await _asked(scene, task)
    state = await scene.commands().respond(run_id, {"result": value})
    assert state.phase is Phase.RUNNING
    assert (await scene.types(run_id))[-3:] == ["tool.result", "tool_done", "unblocked"]
    state = await scene.worker(task).advance(run_id)
    assert (state.phase, state.budget.used.tool_calls) == (Phase.SUCCEEDED, 2)
    record = script.asked[1][0][0]
    assert isinstance(record, StepRecord)
    assert (record.status, record.result) == ("done", value)
    await scene.check_log(run_id)


async def test_a_result_without_data_is_recorded_as_empty(scene: Scene) -> None:
    task = scene.task([call_in("bring", batch=None), write()])
    run_id = await _asked(scene, task)
    await scene.commands().respond(run_id, {"result": None})
    bodies = await scene.store.read(run_id)
    assert any(b'"tool_done"' in body and b'"empty":true' in body for body in bodies)


@pytest.mark.parametrize(
    ("answer", "text"),
    [({"error": "not there"}, "not there"), ({"result": object()}, "not JSON"), ({"result": float("nan")}, "not JSON")],
)
async def test_an_error_from_outside_or_a_result_that_is_no_json_fails_the_step(
    scene: Scene, answer: dict[str, object], text: str
) -> None:
    script = Script([call_in("bring", batch=None)], [write()])
    task = scene.task(script)
    run_id = await _asked(scene, task)
    await scene.commands().respond(run_id, answer)
    assert (await scene.worker(task).advance(run_id)).phase is Phase.SUCCEEDED
    error = script.asked[1][1]
    assert error is not None
    assert text in error.message
    await scene.check_log(run_id)


async def test_an_answer_is_taken_once_and_only_at_the_version_it_was_made_for(scene: Scene) -> None:
    task = scene.task([call_in("bring", batch=None), write()])
    run_id = await _asked(scene, task)
    commands = scene.commands()
    seen = await commands.pull(run_id)
    await commands.steer(run_id, "by the way")
    with pytest.raises(Conflict, match="moved on"):
        await commands.respond(run_id, {"result": 1}, version=seen.version)
    seen = await commands.pull(run_id)
    first = await commands.respond(run_id, {"result": 1}, version=seen.version, request_id="answer-1")
    again = await commands.respond(run_id, {"result": 1}, version=seen.version, request_id="answer-1")
    assert again.version == first.version
    with pytest.raises(ResumeError):
        await commands.respond(run_id, {"result": 2})
    with pytest.raises((Conflict, ResumeError)):
        await commands.respond(run_id, {"result": 2}, version=seen.version)
    assert (await scene.types(run_id)).count("tool_done") == 1


async def test_several_open_pulls_are_answered_in_any_order_beside_the_batch_s_own_bodies(scene: Scene) -> None:
    doer = Doer()
    script = Script([call_in("x"), call_in("own"), call_in("y"), write()])
    task = scene.task(script, *doer.tools("own"))
    run_id = await _asked(scene, task)
    assert doer.made == ["own"]
    commands = scene.commands()
    seen = await commands.pull(run_id)
    assert [call["call_id"] for call in _calls(seen.pull)] == ["1.0", "1.2"]
    with pytest.raises(ResumeError, match="which_call"):
        await commands.respond(run_id, {"result": 1})
    with pytest.raises(ResumeError, match="unknown_call"):
        await commands.respond(run_id, {"result": 1, "call_id": "1.1"})
    await commands.respond(run_id, {"result": "for y", "call_id": "1.2"})
    state = await scene.worker(task).advance(run_id)
    assert [cause.id for cause in state.causes] == ["answer:1.0"]
    await commands.respond(run_id, {"result": "for x", "call_id": "1.0"})
    assert (await scene.worker(task).advance(run_id)).phase is Phase.SUCCEEDED
    assert doer.made == ["own"]
    await scene.check_log(run_id)


def _calls(pull: PullRequest | None) -> list[dict[str, object]]:
    assert pull is not None
    return cast("list[dict[str, object]]", pull.payload["calls"])


@pytest.mark.parametrize(
    "point", ["before append step.start tool.call", "after append step.start tool.call", "before release"]
)
async def test_a_crash_around_the_grant_of_a_pull_neither_loses_nor_doubles_the_question(
    scene: Scene, point: str
) -> None:
    task = scene.task([call_in("bring", batch=None), write()])
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, point)
    state = await scene.worker(task).advance(run_id)
    assert [cause.id for cause in state.causes] == ["answer:1.0"]
    await scene.commands().respond(run_id, {"result": 1})
    state = await scene.worker(task).advance(run_id)
    assert (state.phase, state.budget.used.tool_calls) == (Phase.SUCCEEDED, 2)
    await scene.check_log(run_id)


@pytest.mark.parametrize("answer", [{"result": 1}, {"error": "too late"}, {"close": "over"}])
@pytest.mark.parametrize("count", [1, 2])
async def test_a_cancelled_run_with_open_pulls_ends_when_the_last_answer_comes(
    scene: Scene, answer: dict[str, object], count: int
) -> None:
    task = scene.task([*(call_in(f"bring-{number}") for number in range(count)), write()])
    run_id = await _asked(scene, task)
    state = await scene.commands().cancel(run_id)
    assert (state.phase, state.cancel is not None) == (Phase.BLOCKED, True)
    await scene.worker(task).advance(run_id)
    answers = [{**answer, "call_id": f"1.{number}"} for number in range(count)] if "close" not in answer else [answer]
    for item in answers:
        state = await scene.commands().respond(run_id, item)
    assert state.outcome is not None
    assert (state.phase, state.outcome.code) == (Phase.FAILED, "cancelled")
    await scene.check_log(run_id)


async def test_the_pull_of_a_cancelled_run_may_be_given_up_by_a_person(scene: Scene) -> None:
    task = scene.task([call_in("bring", batch=None), write()])
    run_id = await _asked(scene, task)
    await scene.commands().cancel(run_id)
    await scene.worker(task).advance(run_id)
    with pytest.raises(Rejected, match="calls_in_flight"):
        await scene.commands().close(run_id, "give up")
    await scene.check_log(run_id)


async def test_a_model_that_names_a_tool_the_task_does_not_have_is_told_so_and_nobody_is_asked(scene: Scene) -> None:
    model = ScriptedModel([reply(ToolCall("c1", "bring", {})), reply("It is done.")])
    task = replace(scene.task([], checks=[Exists("answer")]), planner=ModelPlanner(model))
    run_id = await scene.worker().submit(task)
    state = await scene.worker(task).advance(run_id)
    assert (state.phase, state.budget.used.tool_calls) == (Phase.SUCCEEDED, 0)
    (error,) = kinds(await scene.log(run_id), ToolErrorGiven)
    assert isinstance(error, ToolErrorGiven)
    assert error.kind == "not_found"
    await scene.check_log(run_id)


ANSWERS: dict[str, object] = {
    "result": {"result": 1},
    "error": {"error": "no"},
    "extend": {"extend": {"tool_calls": 5, "turns": 5}},
    "too little": {"extend": {"cost": 1}},
    "decision": {"decision": "go on"},
    "close": {"close": "enough"},
    "none": None,
    "empty": {},
    "both": {"result": 1, "error": "no"},
    "unknown key": {"answer": 1},
    "unknown call": {"decision": "go on", "call_id": "9.9"},
    "foreign result": {"result": 1, "call_id": "9.9"},
    "no mapping": "yes",
    "bad extension": {"extend": {"tool_calls": -1}},
}
REFUSED = dict.fromkeys(ANSWERS, "refused")


async def _not_begun(scene: Scene) -> str:
    return await scene.worker().submit(scene.task([write()]))


async def _done(scene: Scene) -> str:
    task = scene.task([write()])
    run_id = await scene.worker().submit(task)
    await scene.worker(task).advance(run_id)
    return run_id


async def _running(scene: Scene) -> str:
    held, handle = gate()
    task = scene.task([step("held"), write()], held)
    run_id = await scene.worker().submit(task)
    scene.spawn(scene.worker(task).advance(run_id))
    await handle.entered.wait()
    return run_id


async def _planning(scene: Scene) -> str:
    script = Script([write()])
    task = scene.task(script)
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "before plan")
    return run_id


async def _reconciling(scene: Scene) -> str:
    held, handle = gate()
    handle.release.set()
    task = scene.task([step("held"), write()], held)
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "before body held")
    state = await scene.worker(task).advance(run_id)
    assert [cause.kind for cause in state.causes] == ["reconcile"]
    return run_id


async def _pulling(scene: Scene) -> str:
    return await _asked(scene, scene.task([call_in("bring", batch=None), write()]))


async def _out_of_calls(scene: Scene) -> str:
    return await _asked(scene, scene.task([write()], budget=Budget(tool_calls=0)))


async def _out_of_turns(scene: Scene) -> str:
    return await _asked(scene, scene.task([write()], budget=Budget(turns=0)))


async def _planner_failed(scene: Scene) -> str:
    return await _asked(scene, scene.task(Script(ValueError("no idea"), [write()])))


async def _under_review(scene: Scene) -> str:
    return await _asked(scene, hooked(scene.task([write()]), Fires().on("before_step", Pause("look"))))


async def _permission(scene: Scene) -> str:
    return await _asked(scene, scene.task([write()], policy=lambda _name, _arguments: "ask"))


async def _two_permissions(scene: Scene) -> str:
    steps = [
        call_in("one", "put", given={"path": "a", "text": "a"}),
        call_in("two", "put", given={"path": "report.txt", "text": "b"}),
    ]
    return await _asked(scene, scene.task(steps, policy=lambda _name, _arguments: "ask"))


SAME = dict.fromkeys(("too little", "decision", "none", "empty", "both", "unknown key", "unknown call"), "same")
BUDGET = {**REFUSED, **SAME, "extend": "taken", "close": "ends"}
PAUSE = {**REFUSED, "extend": "taken", "too little": "taken", "decision": "taken", "close": "ends"}

TABLE: list[tuple[Callable[[Scene], Awaitable[str]], dict[str, str]]] = [
    (_not_begun, REFUSED),
    (_done, REFUSED),
    (_running, REFUSED),
    (_planning, REFUSED),
    (_reconciling, REFUSED),
    (_pulling, {**REFUSED, "result": "taken", "error": "taken", "close": "ends"}),
    (_out_of_calls, BUDGET),
    (_out_of_turns, BUDGET),
    (_planner_failed, PAUSE),
    (_under_review, PAUSE),
    (_permission, PAUSE),
    (_two_permissions, {**PAUSE, "decision": "refused"}),
]


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize(("begin", "expected"), [pytest.param(*row, id=row[0].__name__[1:]) for row in TABLE])
async def test_an_answer_does_in_each_state_what_the_table_says(
    scene: Scene, begin: Callable[[Scene], Awaitable[str]], expected: dict[str, str], name: str
) -> None:
    run_id = await begin(scene)
    commands = scene.commands()
    before, version = await commands.pull(run_id), (await scene.store.get(run_id)).version
    if expected[name] == "refused":
        with pytest.raises(ResumeError):
            await commands.respond(run_id, ANSWERS[name])
        assert (await scene.store.get(run_id)).version == version
        return
    state = await commands.respond(run_id, ANSWERS[name])
    if expected[name] == "same":
        assert state.version == version
        assert await commands.pull(run_id) == before
    elif expected[name] == "taken":
        assert state.version > version
        assert not state.phase.is_terminal
        assert (await commands.pull(run_id)) != before
    else:
        assert state.outcome is not None
        assert (state.phase, state.outcome.code) == (Phase.FAILED, "closed")
        assert "enough" in state.outcome.message
    await scene.check_log(run_id)


async def test_an_extension_at_a_review_adds_to_the_limits_and_asks_the_same_again(scene: Scene) -> None:
    run_id = await _under_review(scene)
    commands = scene.commands()
    before = (await commands.pull(run_id)).pull
    assert before is not None
    state = await commands.respond(run_id, {"extend": {"turns": 5}})
    after = (await commands.pull(run_id)).pull
    assert after is not None
    assert (state.phase, state.budget.limits.turns) == (Phase.BLOCKED, 69)
    assert (after.reason, after.payload["subject"]) == (before.reason, before.payload["subject"])


async def test_a_closed_pull_gives_its_call_an_error_before_the_end(scene: Scene) -> None:
    run_id = await _pulling(scene)
    state = await scene.commands().respond(run_id, {"close": "nobody knows"})
    assert [cause.id for cause in (state.outcome.causes if state.outcome else ())] == ["answer:1.0"]
    events = await scene.log(run_id)
    assert [event.type for event in events[-4:]] == ["tool.error", "tool_failed", "session.complete", "failed"]
    assert ends_of(events) == {}
    await scene.check_log(run_id)
