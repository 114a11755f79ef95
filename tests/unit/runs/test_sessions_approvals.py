"""Durable approvals: several at once, answered in any order, once, across a restart; what was decided is used and nobody is asked again."""

from itertools import permutations
from pathlib import Path
from typing import cast, get_args

import pytest

from checkrein.errors import Conflict, Rejected, ResumeError
from checkrein.harness.pulls import PullRequest
from checkrein.kernel.events import Blocked, ToolDone, ToolErrorGiven
from checkrein.kernel.state import Phase
from checkrein.runs.commands import Reconciled
from checkrein.values import JsonData
from tests.unit.runs.scene import Scene
from tests.unit.runs.sessions import Asking, Desk, ends_of, kinds, restarted

BYS: tuple[Asking, ...] = get_args(Asking)
OPEN = {
    "policy": ["permission:1.1", "permission:1.2"],
    "hook": ["review:1.1", "review:1.2"],
    "mixed": ["permission:1.1", "review:1.2"],
    "twice": ["review:1.1"],
}


@pytest.mark.parametrize("by", BYS)
async def test_no_body_of_a_batch_starts_while_any_call_of_it_is_asked_about(scene: Scene, by: Asking) -> None:
    desk = Desk(scene, by)
    run_id, state = await desk.begin()
    assert (state.phase, [cause.id for cause in state.causes]) == (Phase.BLOCKED, OPEN[by])
    assert (desk.doer.made, state.budget.used.tool_calls) == ([], 0)
    assert (await scene.store.get(run_id)).lease.is_released
    version = state.version
    assert (await desk.go_on(run_id)).version == version
    await scene.check_log(run_id)


@pytest.mark.parametrize("order", list(permutations(["1.1", "1.2"])))
@pytest.mark.parametrize("by", ["policy", "hook", "mixed"])
async def test_approvals_are_answered_in_any_order_one_at_a_time_with_a_restart_between(
    scene: Scene, tmp_path: Path, by: Asking, order: tuple[str, ...]
) -> None:
    await restarted(scene, tmp_path)
    desk = Desk(scene, by)
    run_id, _ = await desk.begin()
    for number, call_id in enumerate(order):
        await restarted(scene, tmp_path)
        state = await scene.commands().respond(run_id, {"decision": "allow", "call_id": call_id})
        assert len(state.causes) == 1 - number
        if number == 0:
            assert state.phase is Phase.BLOCKED
            assert (await desk.go_on(run_id)).version == state.version
            assert desk.doer.made == []
    await restarted(scene, tmp_path)
    state = await desk.go_on(run_id)
    assert state.phase is Phase.SUCCEEDED
    assert sorted(desk.doer.made) == ["free", "second", "third"]
    assert_asked_once(desk)
    await scene.check_log(run_id)


def assert_asked_once(desk: Desk) -> None:
    """Hold a desk to it that policy and hooks were asked once about each call, whatever restarts there were."""
    assert sorted(desk.policy_asked) == ["free", "put", "second", "third"]
    assert sorted(desk.hook_asked) == ["free", "report", "second", "third"]


async def test_a_call_that_a_hook_and_the_policy_ask_about_is_asked_twice_and_made_once(
    scene: Scene, tmp_path: Path
) -> None:
    await restarted(scene, tmp_path)
    desk = Desk(scene, "twice")
    run_id, _ = await desk.begin()
    await scene.commands().respond(run_id, {"decision": "allow"})
    await restarted(scene, tmp_path)
    state = await desk.go_on(run_id)
    assert [cause.id for cause in state.causes] == ["permission:1.1"]
    assert desk.doer.made == []
    await scene.commands().respond(run_id, {"decision": "allow"})
    await restarted(scene, tmp_path)
    assert (await desk.go_on(run_id)).phase is Phase.SUCCEEDED
    assert sorted(desk.doer.made) == ["free", "second", "third"]
    assert_asked_once(desk)
    await scene.check_log(run_id)


@pytest.mark.parametrize("by", ["policy", "hook", "mixed"])
async def test_an_approved_call_is_made_although_those_who_asked_think_otherwise_after_the_restart(
    scene: Scene, tmp_path: Path, by: Asking
) -> None:
    await restarted(scene, tmp_path)
    desk = Desk(scene, by)
    run_id, _ = await desk.begin()
    for call_id in ("1.2", "1.1"):
        await scene.commands().respond(run_id, {"decision": "allow", "call_id": call_id})
    await restarted(scene, tmp_path)
    desk.is_contrary = True
    state = await desk.go_on(run_id)
    assert state.phase is Phase.SUCCEEDED
    assert_asked_once(desk)
    assert sorted(desk.doer.made) == ["free", "second", "third"]
    await scene.check_log(run_id)


@pytest.mark.parametrize("by", ["policy", "hook", "mixed"])
@pytest.mark.parametrize("through", ["respond", "unblock"])
async def test_a_second_answer_for_a_call_is_refused_and_changes_nothing(
    scene: Scene, by: Asking, through: str
) -> None:
    desk = Desk(scene, by)
    run_id, state = await desk.begin()
    first, other = (cause.id for cause in state.causes)
    commands = scene.commands()
    version = (await commands.respond(run_id, {"decision": "allow", "call_id": "1.1"})).version
    if through == "respond":
        with pytest.raises(ResumeError, match="unknown_call"):
            await commands.respond(run_id, {"decision": "deny", "call_id": "1.1"})
    else:
        with pytest.raises(Rejected, match="illegal_in_phase"):
            await commands.unblock(run_id, first, answer=JsonData("deny"))
    assert (await scene.store.get(run_id)).version == version
    await commands.unblock(run_id, other, answer=JsonData({"deny": "not this one"}))
    assert (await desk.go_on(run_id)).phase is Phase.SUCCEEDED
    assert sorted(desk.doer.made) == ["free", "second"]
    await scene.check_log(run_id)


async def test_an_answer_that_comes_twice_with_one_request_id_counts_once(scene: Scene) -> None:
    desk = Desk(scene, "policy")
    run_id, _ = await desk.begin()
    commands = scene.commands()
    answer = {"decision": "allow", "call_id": "1.1"}
    once = await commands.respond(run_id, answer, request_id="answer-1")
    assert (await commands.respond(run_id, answer, request_id="answer-1")).version == once.version
    await scene.check_log(run_id)


async def test_an_answer_to_what_was_seen_at_an_older_version_is_refused(scene: Scene) -> None:
    desk = Desk(scene, "policy")
    run_id, _ = await desk.begin()
    commands = scene.commands()
    seen = await commands.pull(run_id)
    await commands.steer(run_id, "wait a moment")
    with pytest.raises(Conflict, match="moved on since"):
        await commands.respond(run_id, {"decision": "allow", "call_id": "1.1"}, version=seen.version)
    fresh = await commands.pull(run_id)
    await commands.respond(run_id, {"decision": "allow", "call_id": "1.1"}, version=fresh.version)
    assert [call["call_id"] for call in _calls((await commands.pull(run_id)).pull)] == ["1.2"]


def _calls(pull: PullRequest | None) -> list[dict[str, object]]:
    assert pull is not None
    return cast("list[dict[str, object]]", pull.payload["calls"])


@pytest.mark.parametrize("by", ["policy", "hook", "mixed"])
async def test_a_denied_call_of_a_batch_is_an_error_and_its_siblings_are_made_once(scene: Scene, by: Asking) -> None:
    desk = Desk(scene, by)
    run_id, _ = await desk.begin()
    await scene.commands().respond(run_id, {"decision": {"deny": "too dear"}, "call_id": "1.2"})
    await scene.commands().respond(run_id, {"decision": "allow", "call_id": "1.1"})
    state = await desk.go_on(run_id)
    assert (state.phase, sorted(desk.doer.made)) == (Phase.SUCCEEDED, ["free", "second"])
    events = await scene.log(run_id)
    assert ends_of(events) == {"free": "done", "second": "done", "third": "failed", "mended": "done"}
    error = desk.told[1]
    assert error is not None
    assert (error.kind, "too dear" in error.message) == ("step", True)
    errors = [item for item in kinds(events, ToolErrorGiven) if isinstance(item, ToolErrorGiven)]
    assert [(item.call_id, item.kind, item.message) for item in errors] == [("", "denied", "too dear")]
    assert state.budget.used.tool_calls == 3
    await scene.check_log(run_id)


@pytest.mark.parametrize(
    "point", ["before append tool.call", "after append tool.call", "after body", "after append tool.result"]
)
@pytest.mark.parametrize("by", ["policy", "hook", "mixed"])
async def test_a_crash_after_the_answers_repeats_no_question_and_no_finished_sibling(
    scene: Scene, by: Asking, point: str
) -> None:
    desk = Desk(scene, by)
    run_id, _ = await desk.begin()
    for call_id in ("1.1", "1.2"):
        await scene.commands().respond(run_id, {"decision": "allow", "call_id": call_id})
    await scene.crash(desk.task(), run_id, point)
    state = await desk.go_on(run_id)
    while state.phase is Phase.BLOCKED:
        for cause in state.causes:
            name = {"1.0": "free", "1.1": "second", "1.2": "third"}[cause.call_id]
            found = Reconciled("done" if name in desk.doer.made else "failed")
            await scene.commands().unblock(run_id, cause.id, reconciled=found)
        state = await desk.go_on(run_id)
    assert state.phase is Phase.SUCCEEDED
    assert all(desk.doer.made.count(name) <= 1 for name in ("free", "second", "third"))
    events = await scene.log(run_id)
    done = [item.call_id for item in kinds(events, ToolDone) if isinstance(item, ToolDone)]
    assert len(done) == len(set(done))
    # A decision that a crash kept out of the log is taken anew; one that a person took is not.
    assert desk.hook_asked.count("third") == 1
    assert by == "hook" or desk.policy_asked.count("second") == 1
    asked = [item.cause.id for item in kinds(events, Blocked) if isinstance(item, Blocked)]
    assert [cause for cause in asked if not cause.startswith("reconcile")] == OPEN[by]
    await scene.check_log(run_id)


async def test_the_cancellation_of_a_run_that_waits_for_approvals_ends_it_and_no_answer_is_taken_then(
    scene: Scene,
) -> None:
    desk = Desk(scene, "mixed")
    run_id, _ = await desk.begin()
    state = await scene.commands().cancel(run_id)
    assert state.phase is Phase.FAILED
    with pytest.raises(ResumeError, match="done"):
        await scene.commands().respond(run_id, {"decision": "allow", "call_id": "1.1"})
    assert desk.doer.made == []
    await scene.check_log(run_id)
