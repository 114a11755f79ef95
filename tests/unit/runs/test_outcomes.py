"""What may go wrong with the outcome of a call, and what the log says then."""

import asyncio

import pytest
from msgspec.structs import replace

from checkrein.clock import SystemIds
from checkrein.errors import DuplicateEvent, FatalToolError, Rejected, StoreBusy, TransientToolError
from checkrein.harness.planners import Plan, StepRecord
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import ToolDone, ToolGranted
from checkrein.kernel.state import Phase
from checkrein.ports.tool import Accepted, PollResult, ToolContext, ToolOutput
from checkrein.runs.commands import Reconciled
from checkrein.runs.journal import Journal
from checkrein.testing import CrashPoint
from checkrein.tools.function import tool
from checkrein.values import JsonData
from tests.unit.runs.scene import Gate, Scene, Script, gate, step, write


async def test_a_plain_run_succeeds_replays_and_gives_its_lease_back(scene: Scene) -> None:
    task = scene.task([write()])
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert (state.phase, state.outcome and state.outcome.code) == (Phase.SUCCEEDED, "goal_met")
    assert (await scene.store.get(run_id)).lease.is_released
    await scene.check_log(run_id)


async def test_a_second_outcome_is_refused_and_the_same_one_again_is_not_appended_twice(scene: Scene) -> None:
    held, handle = gate()
    task = scene.task([write(), step("held")], held)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await handle.entered.wait()
    journal = await Journal.open(scene.store, run_id, clock=scene.clock, ids=SystemIds())
    first = next(event for event in await scene.log(run_id) if isinstance(event.data, ToolDone))
    version = journal.state.version
    await journal.submit(replace(first, expected_version=version))
    with pytest.raises(Rejected, match="call_settled"):
        await journal.submit(replace(first, event_id="another", expected_version=version))
    assert (await worker.state(run_id)).version == version
    assert await scene.refused(run_id) == [("tool_done", "call_settled")]
    handle.release.set()
    assert (await advancing).phase is Phase.SUCCEEDED


async def test_an_outcome_is_appended_although_the_version_moved_while_the_body_ran(scene: Scene) -> None:
    held, handle = gate()
    task = scene.task(Script([step("held"), write()], [write()]), held)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await handle.entered.wait()
    await scene.worker().steer(run_id, "hurry")
    handle.release.set()
    assert (await advancing).phase is Phase.SUCCEEDED
    assert handle.attempts == [1]
    assert await scene.refused(run_id) == []
    await scene.check_log(run_id)


async def test_a_failure_that_may_pass_is_tried_again_under_a_grant_of_its_own_that_says_why(scene: Scene) -> None:
    attempts: list[str] = []

    @tool(idempotent=True)
    async def flaky() -> str:
        attempts.append("run")
        if len(attempts) < 3:
            raise TransientToolError("line busy")
        return "through"

    task = scene.task([step("flaky"), write()], flaky)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await scene.clock.wait_for_timers(2)  # the lease and the wait: the planner ran in a thread of its own
    await scene.clock.advance(60)
    assert (await advancing).phase is Phase.SUCCEEDED
    grants = [event.data for event in await scene.log(run_id) if isinstance(event.data, ToolGranted)]
    assert [(grant.attempt, grant.previous) for grant in grants if grant.tool.name == "flaky"] == [
        (1, ""),
        (2, "line busy"),
        (3, "line busy"),
    ]
    await scene.check_log(run_id)


async def test_a_note_that_comes_between_two_attempts_does_not_lose_what_the_first_one_said(scene: Scene) -> None:
    attempts: list[str] = []

    @tool(idempotent=True)
    async def flaky() -> str:
        attempts.append("run")
        if len(attempts) < 2:
            raise TransientToolError("line busy")
        return "through"

    async def steer(_name: str) -> None:
        await scene.worker().steer(run_id, "hurry")

    # The second grant is the second append that begins so.
    point = CrashPoint(at=1, among=("before append tool.call tool_granted",), deed=steer)
    task = scene.task(Script([step("flaky"), write()], [write()]), flaky)
    worker = scene.worker(task, store=point.store(scene.store))
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await scene.clock.wait_for_timers(2)  # the lease and the wait: the planner ran in a thread of its own
    await scene.clock.advance(60)
    assert (await advancing).phase is Phase.SUCCEEDED
    grants = [event.data for event in await scene.log(run_id) if isinstance(event.data, ToolGranted)]
    assert [grant.previous for grant in grants if grant.tool.name == "flaky"] == ["", "line busy"]


async def test_a_known_failure_without_budget_for_another_try_is_a_failure(scene: Scene) -> None:
    @tool(idempotent=True)
    async def flaky() -> str:
        raise TransientToolError("line busy")

    task = scene.task(Script([step("flaky")], []), flaky, budget=Budget(tool_calls=2))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await scene.clock.wait_for_timers(2)  # the lease and the wait: the planner ran in a thread of its own
    await scene.clock.advance(60)
    state = await advancing
    assert [(call.status, call.attempts) for call in state.effects] == [("failed", 2)]
    assert state.outcome is not None
    assert state.outcome.code == "gave_up"


async def test_a_call_that_a_person_settles_between_two_attempts_is_not_tried_again(scene: Scene) -> None:
    @tool(idempotent=True)
    async def flaky() -> str:
        raise TransientToolError("line busy")

    script = Script([step("flaky")], [write()])
    task = scene.task(script, flaky)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await scene.until(run_id, lambda state: bool(state.open_calls))
    await scene.clock.wait_for_timers(2)
    await scene.worker().unblock(run_id, "reconcile:1.0", reconciled=Reconciled("done", result=JsonData("by hand")))
    await scene.clock.advance(60)
    state = await advancing
    assert state.phase is Phase.SUCCEEDED
    assert [(call.status, call.attempts) for call in state.effects] == [("done", 1), ("done", 1)]
    await scene.check_log(run_id)


async def test_a_fatal_failure_ends_the_run_and_stays_known_when_a_cancel_comes_first(scene: Scene) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    @tool(cancellable=False)
    async def doomed() -> str:
        entered.set()
        await go_on.wait()
        raise FatalToolError("the disk is on fire")

    task = scene.task([step("doomed")], doomed)
    plain, cancelled = [await scene.worker(task).submit(task) for _ in range(2)]
    go_on.set()
    state = await scene.worker(scene.task([step("doomed")], doomed)).advance(plain)
    assert state.outcome is not None
    assert (state.outcome.code, state.outcome.message) == ("step_failed", "the disk is on fire")
    go_on.clear()
    entered.clear()

    async def cancel(_name: str) -> None:
        await scene.worker().cancel(cancelled)

    point = CrashPoint(at=1, among=("before append tool.error",), deed=cancel)
    worker = scene.worker(scene.task([step("doomed")], doomed), store=point.store(scene.store))
    go_on.set()
    state = await worker.advance(cancelled)
    assert state.outcome is not None
    assert state.outcome.code == "cancelled"
    assert [call.status for call in state.effects] == ["failed"]
    for run_id in (plain, cancelled):
        await scene.check_log(run_id)


async def test_an_accepted_job_is_no_result_until_its_poll_says_so(scene: Scene) -> None:
    answers: list[str | None] = [None, None, "printed"]

    @tool
    async def job() -> Accepted:
        return Accepted("job 7", poll=lambda _handle: answers.pop(0), interval_seconds=2.0)

    script = Script([step("job"), write()])
    task = scene.task(script, job)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    state = await scene.until(run_id, lambda state: any(call.status == "accepted" for call in state.open_calls))
    assert (state.phase, state.open_calls[0].handle) == (Phase.RUNNING, "job 7")
    while not advancing.done():
        await scene.clock.advance(1.0)
    state = await advancing
    assert state.phase is Phase.SUCCEEDED
    # The body and the report: polls are not counted.
    assert state.budget.used.tool_calls == 2


async def test_an_accepted_job_is_polled_on_by_the_next_worker_and_never_started_again(scene: Scene) -> None:
    started: list[str] = []

    async def asked(handle: str) -> PollResult:
        return PollResult(is_finished=True, output=ToolOutput(f"{handle} printed"))

    @tool(poll=asked)
    async def job() -> Accepted:
        started.append("job")
        return Accepted("job 7")

    task = scene.task(Script([step("job"), write()]), job)
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "after append tool_accepted")
    state = await scene.worker(task).advance(run_id)
    assert (state.phase, started) == (Phase.SUCCEEDED, ["job"])


async def test_the_next_worker_waits_as_long_between_two_questions_as_the_tool_said(scene: Scene) -> None:
    asked_at: list[float] = []

    async def asked(handle: str) -> PollResult:
        asked_at.append(scene.clock.monotonic())
        return PollResult(is_finished=len(asked_at) == 2, output=ToolOutput(f"{handle} printed"))

    @tool(poll=asked)
    async def job() -> Accepted:
        return Accepted("job 7", interval_seconds=4.0)

    task = scene.task(Script([step("job"), write()]), job)
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "after append tool_accepted")
    advancing = scene.spawn(scene.worker(task).advance(run_id))
    while not advancing.done():
        await scene.clock.advance(1.0)
    assert (await advancing).phase is Phase.SUCCEEDED
    assert asked_at[1] - asked_at[0] == 4.0
    await scene.check_log(run_id)


async def test_an_accepted_job_that_nobody_can_ask_is_a_persons_question_and_no_failure(scene: Scene) -> None:
    @tool
    async def job() -> Accepted:
        return Accepted("job 7", poll=lambda _handle: None)

    script = Script([step("job"), write()])
    task = scene.task(script, job)
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "after append tool_accepted")
    worker = scene.worker(task)
    state = await worker.advance(run_id)
    assert (state.phase, [cause.id for cause in state.causes]) == (Phase.BLOCKED, ["reconcile:1.0"])
    version = (await worker.advance(run_id)).version
    assert version == state.version
    await worker.unblock(run_id, "reconcile:1.0", reconciled=Reconciled("done", result=JsonData("printed")))
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    await scene.check_log(run_id)


async def test_a_person_may_say_what_became_of_an_open_call_that_nobody_asked_about(scene: Scene) -> None:
    @tool
    async def job() -> Accepted:
        return Accepted("job 7", poll=lambda _handle: None, interval_seconds=5.0)

    task = scene.task([step("job"), write()], job)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await scene.until(run_id, lambda state: any(call.status == "accepted" for call in state.open_calls))
    await scene.worker().cancel(run_id)
    state = await scene.worker().unblock(run_id, "reconcile:1.0", reconciled=Reconciled("unknown"))
    assert state.outcome is not None
    assert (state.phase, state.outcome.code) == (Phase.FAILED, "cancelled")
    assert [call.status for call in state.effects] == ["unknown"]
    await scene.clock.advance(5)
    assert (await advancing).phase is Phase.FAILED
    await scene.check_log(run_id)


async def test_a_probe_is_not_believed_that_nothing_happened_while_the_body_still_runs(scene: Scene) -> None:
    handle = Gate()

    @tool(timeout_seconds=1.0, cancellable=False, reconcile=lambda: "failed")
    async def slow(context: ToolContext) -> str:
        return await handle.body(context, cancellable=False)

    task = scene.task([step("slow")], slow)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await handle.entered.wait()
    await scene.clock.advance(1.0)
    state = await advancing
    assert [cause.kind for cause in state.causes] == ["reconcile"]
    assert "still runs" in state.causes[0].message
    handle.release.set()


async def test_an_event_id_with_other_content_is_refused(scene: Scene) -> None:
    task = scene.task([write()])
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    await worker.steer(run_id, "one", request_id="note-1")
    version = (await worker.steer(run_id, "one", request_id="note-1")).version
    with pytest.raises(DuplicateEvent):
        await worker.steer(run_id, "other", request_id="note-1")
    assert await scene.refused(run_id) == [("steer_queued", "duplicate_event")]
    assert (await worker.state(run_id)).version == version
    assert [event.event_id for event in await scene.log(run_id) if event.type == "steer_queued"] == ["note-1"]


async def test_results_of_steps_reach_the_planner(scene: Scene) -> None:
    held, handle = gate()
    handle.release.set()
    script = Script(Plan([step("held")], final=False), [write()])
    task = scene.task(script, held)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    (record,) = [item for item in script.asked[1][0] if isinstance(item, StepRecord)]
    assert (record.step.id, record.status, record.result) == ("held", "done", "done in attempt 1")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_outcome_is_not_lost_because_the_store_is_locked_for_a_while(scene: Scene, when: str) -> None:
    held, handle = gate()
    handle.release.set()

    def be_busy(_name: str) -> None:
        raise StoreBusy("locked")

    point = CrashPoint(at=1, among=(f"{when} append tool.result",), deed=be_busy)
    task = scene.task([step("held"), write()], held)
    worker = scene.worker(task, store=point.store(scene.store))
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert (state.phase, handle.attempts) == (Phase.SUCCEEDED, [1])
    assert (await scene.types(run_id)).count("tool_done") == 2
    await scene.check_log(run_id)
