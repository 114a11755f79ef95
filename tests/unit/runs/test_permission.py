"""Permission: asked before each effect, answered by a person once, and never asked again for what was answered."""

from typing import cast

import pytest

from checkrein.errors import Rejected
from checkrein.harness.permission import Decision
from checkrein.harness.planners import Plan
from checkrein.kernel.budget import Amounts
from checkrein.kernel.state import Phase
from checkrein.testing import CrashPoint
from checkrein.values import JsonData, JsonObject
from tests.unit.runs.scene import Scene, Script, gate, step, write


class Asked:
    """A policy with an answer for each asking; what it has no answer for, it allows."""

    def __init__(self, *answers: Decision) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, tool: str, arguments: JsonObject) -> Decision:
        assert arguments is not None
        self.asked.append(tool)
        return self.answers.pop(0) if self.answers else "allow"


async def test_a_call_that_is_asked_about_waits_and_an_allowed_one_is_made_once(scene: Scene) -> None:
    held, handle = gate()
    handle.release.set()
    policy = Asked("ask", "allow", "deny")
    task = scene.task([step("held"), write()], held, policy=policy)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert (state.phase, [cause.id for cause in state.causes]) == (Phase.BLOCKED, ["permission:1.0"])
    assert state.budget.used.tool_calls == 0
    assert (await scene.store.get(run_id)).lease.is_released
    version = (await worker.advance(run_id)).version
    assert version == state.version
    await worker.unblock(run_id, "permission:1.0", answer=JsonData("allow"))
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    assert (policy.asked, handle.attempts) == (["held", "put"], [1])
    await scene.check_log(run_id)


async def test_the_stored_answer_is_used_after_a_crash_although_the_policy_has_changed_its_mind(scene: Scene) -> None:
    held, handle = gate()
    handle.release.set()
    task = scene.task(Script([step("held"), write()]), held, policy=Asked("ask"))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    await worker.advance(run_id)
    await worker.unblock(run_id, "permission:1.0", answer=JsonData("allow"))
    await scene.crash(task, run_id, "before append tool.call")
    changed = scene.task(Script(), held, policy=lambda tool, _arguments: "deny" if tool == "held" else "allow")
    assert (await scene.worker(changed).advance(run_id)).phase is Phase.SUCCEEDED
    assert handle.attempts == [1]


@pytest.mark.parametrize("answer", ["deny", {"deny": "too dear"}])
async def test_a_denied_call_is_an_error_that_the_planner_is_told(scene: Scene, answer: str | dict[str, str]) -> None:
    held, handle = gate()
    script = Script([step("held")], [write()])
    task = scene.task(script, held, policy=Asked("ask"))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    await worker.advance(run_id)
    await worker.unblock(run_id, "permission:1.0", answer=JsonData(answer))
    state = await worker.advance(run_id)
    assert state.phase is Phase.SUCCEEDED
    error = script.asked[1][1]
    assert error is not None
    assert ("too dear" if isinstance(answer, dict) else "denied") in error.message
    assert (handle.attempts, [call.tool for call in state.effects]) == ([], ["put"])


async def test_a_policy_that_denies_or_fails_makes_no_call_and_counts_none(scene: Scene) -> None:
    held, handle = gate()

    def policy(tool: str, _arguments: JsonObject) -> Decision:
        if tool == "held":
            raise LookupError("no rule")
        return "deny"

    script = Script([step("held")], [write()], [])
    task = scene.task(script, held, policy=policy)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert state.outcome is not None
    assert (state.outcome.code, state.budget.used.tool_calls, state.effects) == ("gave_up", 0, ())
    messages = [error.message for _, error in script.asked if error is not None]
    assert "no rule" in messages[0]
    assert "denies" in messages[1]
    assert handle.attempts == []


@pytest.mark.parametrize("answer", [["allow"], "yes", None, SystemExit(0)])
async def test_a_policy_that_answers_with_anything_else_permits_nothing(scene: Scene, answer: object) -> None:
    held, handle = gate()

    def policy(tool: str, _arguments: JsonObject) -> Decision:
        if isinstance(answer, BaseException):
            raise answer
        return cast("Decision", answer) if tool == "held" else "allow"

    task = scene.task(Script([step("held")], []), held, policy=policy)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert (state.phase, state.budget.used.tool_calls, handle.attempts) == (Phase.FAILED, 0, [])


async def test_a_policy_is_asked_once_for_a_call_although_the_log_moved_before_its_grant(scene: Scene) -> None:
    held, handle = gate()
    handle.release.set()
    policy = Asked("allow", "allow", "deny")

    async def extend(_name: str) -> None:
        await scene.worker().extend(run_id, Amounts(turns=1))

    point = CrashPoint(at=1, among=("before append step.start tool.call",), deed=extend)
    task = scene.task([step("held"), write()], held, policy=policy)
    worker = scene.worker(task, store=point.store(scene.store))
    run_id = await worker.submit(task)
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    assert (policy.asked, handle.attempts) == (["held", "put"], [1])


async def test_an_answer_is_taken_once_and_must_fit(scene: Scene) -> None:
    task = scene.task([write()], policy=Asked("ask"))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    await worker.advance(run_id)
    with pytest.raises(Rejected, match="allow or deny"):
        await worker.unblock(run_id, "permission:1.0", answer=JsonData("perhaps"))
    await worker.unblock(run_id, "permission:1.0", answer=JsonData("allow"))
    with pytest.raises(Rejected, match="illegal_in_phase"):
        await worker.unblock(run_id, "permission:1.0", answer=JsonData("deny"))
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED


async def test_a_finished_step_does_not_run_again_when_a_later_one_was_asked_about(scene: Scene) -> None:
    free, free_handle = gate("free")
    paid, paid_handle = gate("paid")
    for handle in (free_handle, paid_handle):
        handle.release.set()
    script = Script(Plan([step("free"), step("paid"), write()]))
    task = scene.task(script, free, paid, policy=Asked("allow", "ask"))
    run_id = await scene.worker().submit(task)
    worker = scene.worker(task)
    assert [cause.id for cause in (await worker.advance(run_id)).causes] == ["permission:1.1"]
    await scene.worker().unblock(run_id, "permission:1.1", answer=JsonData("allow"))
    assert (await scene.worker(task, name="another").advance(run_id)).phase is Phase.SUCCEEDED
    assert (free_handle.attempts, paid_handle.attempts) == ([1], [1])
    await scene.check_log(run_id)
