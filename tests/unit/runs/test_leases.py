"""Who may advance a run: one worker at a time, and what becomes of the one that lost the right."""

import asyncio

import pytest

from checkrein.errors import Conflict, LeaseHeld, StoreError
from checkrein.harness.planners import Step
from checkrein.kernel.events import LeaseTaken
from checkrein.kernel.state import Phase, RunState
from checkrein.ports.tool import Accepted, ToolContext
from checkrein.runs.held import LeaseLost
from checkrein.runs.worker import Worker
from checkrein.testing import CrashPoint
from checkrein.tools.function import tool
from tests.unit.runs.scene import LEASE_SECONDS, Exists, Scene, Script, gate, hang, step, write

REPORT = write()
HELD = step("held")


async def _folders(scene: Scene, run_id: str) -> list[str]:
    return [event.data.folder for event in await scene.log(run_id) if isinstance(event.data, LeaseTaken)]


async def test_of_two_workers_exactly_one_advances_the_run_and_the_other_gets_a_typed_conflict(scene: Scene) -> None:
    held, handle = gate()
    tasks = [scene.task(Script([HELD, REPORT]), held) for _ in range(2)]
    workers = [scene.worker(task) for task in tasks]
    run_id = await workers[0].submit(tasks[0])
    advancing = [scene.spawn(worker.advance(run_id)) for worker in workers]
    await handle.entered.wait()
    loser = next(iter((await asyncio.wait(advancing, return_when=asyncio.FIRST_COMPLETED))[0]))
    assert isinstance(loser.exception(), LeaseHeld | Conflict)
    handle.release.set()
    (winner,) = [item for item in advancing if item is not loser]
    assert (await winner).phase is Phase.SUCCEEDED
    assert handle.attempts == [1]
    assert (await scene.types(run_id)).count("lease_taken") == 1


async def test_a_worker_does_not_take_a_run_from_itself(scene: Scene) -> None:
    held, handle = gate()
    task = scene.task([HELD, REPORT], held)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    first = scene.spawn(worker.advance(run_id))
    await handle.entered.wait()
    with pytest.raises(LeaseHeld):
        await worker.advance(run_id)
    handle.release.set()
    assert (await first).phase is Phase.SUCCEEDED


async def test_a_worker_whose_lease_was_taken_records_nothing_and_its_late_outcome_is_in_the_audit(
    scene: Scene,
) -> None:
    held, handle = gate(idempotent=True, cancellable=False)
    task = scene.task(Script([HELD, REPORT]), held)
    stale, taker = scene.worker(task, store=scene.deaf(), name="stale"), scene.worker(task, name="taker")
    run_id = await stale.submit(task)
    stuck = scene.spawn(stale.advance(run_id))
    await handle.entered.wait()
    await scene.clock.advance(LEASE_SECONDS + 1)
    handle.entered.clear()
    taken = scene.spawn(taker.advance(run_id))
    await handle.entered.wait()
    handle.release.set()
    with pytest.raises(LeaseLost):
        await stuck
    assert (await taken).phase is Phase.SUCCEEDED
    assert handle.attempts == [1, 2]
    assert await scene.refused(run_id) in ([("tool_done", "lease_lost")], [("tool_done", "terminal")])
    assert await _folders(scene, run_id) == [run_id, f"{run_id}.2"]
    await scene.check_log(run_id)


async def test_a_late_write_of_a_worker_that_lost_its_lease_does_not_touch_what_is_verified(scene: Scene) -> None:
    entered, go_on, wrote = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool(name="held", idempotent=True, cancellable=False)
    async def late(context: ToolContext) -> str:
        if context.attempt == 1:
            entered.set()
            await go_on.wait()
            (context.folder() / "report.txt").write_text("late", encoding="utf-8")
            wrote.set()
        return "written"

    async def let_it_write(_context: object) -> None:
        go_on.set()
        await wrote.wait()

    task = scene.task(Script([REPORT, HELD]), late, checks=[Exists(before=let_it_write)])
    stale, taker = scene.worker(task, store=scene.deaf(), name="stale"), scene.worker(task, name="taker")
    run_id = await stale.submit(task)
    stuck = scene.spawn(stale.advance(run_id))
    await entered.wait()
    await scene.clock.advance(LEASE_SECONDS + 1)
    state = await taker.advance(run_id)
    assert state.phase is Phase.SUCCEEDED
    assert (scene.folder / state.folder / "report.txt").read_text(encoding="utf-8") == "all well"
    assert (scene.folder / run_id / "report.txt").read_text(encoding="utf-8") == "late"
    assert _latest(scene) == state.folder == f"{run_id}.2"
    with pytest.raises(LeaseLost):
        await stuck


async def test_no_body_starts_on_a_lease_that_may_be_over_before_the_store_confirmed_it(scene: Scene) -> None:
    """A process that was stopped between a grant and the body finds the clock beyond its lease when it goes on."""
    held, handle = gate()
    granted, go_on = asyncio.Event(), asyncio.Event()

    async def be_slow(_name: str) -> None:
        granted.set()
        await go_on.wait()

    slow = CrashPoint(at=1, among=("after append step.start tool.call",), deed=be_slow).store(scene.store)
    task = scene.task(Script([HELD], [REPORT]), held)
    stale, taker = scene.worker(task, store=scene.deaf(slow), name="stale"), scene.worker(task, name="taker")
    run_id = await stale.submit(task)
    stuck = scene.spawn(stale.advance(run_id))
    await granted.wait()
    await scene.clock.advance(LEASE_SECONDS + 1)
    state = await taker.advance(run_id)
    assert [cause.kind for cause in state.causes] == ["reconcile"]
    go_on.set()
    with pytest.raises(LeaseLost):
        await stuck
    assert handle.attempts == []


async def test_a_stopped_worker_lets_a_running_body_end_and_gives_the_lease_back(scene: Scene) -> None:
    held, handle = gate()
    task = scene.task(Script([HELD, REPORT]), held)
    first, second = scene.worker(task, name="first"), scene.worker(task, name="second")
    run_id = await first.submit(task)
    advancing = scene.spawn(first.advance(run_id))
    await handle.entered.wait()
    stopping = scene.spawn(first.stop())
    await scene.clock.wait_for_timers()
    handle.release.set()
    state = await advancing
    await stopping
    assert state.phase is Phase.RUNNING
    assert [call.status for call in state.settled_calls] == ["done"]
    await _is_handed_over(scene, run_id, await second.advance(run_id))


async def test_a_stopped_worker_that_was_planning_gives_the_lease_back(scene: Scene) -> None:
    entered = asyncio.Event()

    async def never(_goal: object, history: object, _error: object) -> list[Step]:
        if not entered.is_set():
            entered.set()
            await asyncio.Event().wait()
        return [] if history else [REPORT]

    task = scene.task(never)
    first, second = scene.worker(task, name="first"), scene.worker(task, name="second")
    run_id = await first.submit(task)
    advancing = scene.spawn(first.advance(run_id))
    await entered.wait()
    await _stop_after_the_drain(scene, first)
    assert (await advancing).phase is Phase.RECEIVED
    await _is_handed_over(scene, run_id, await second.advance(run_id))


async def test_a_stopped_worker_hands_a_told_body_back_in_doubt(scene: Scene) -> None:
    held, handle = gate(idempotent=True)
    task = scene.task(Script([HELD, REPORT]), held)
    first, second = scene.worker(task, name="first"), scene.worker(task, name="second")
    run_id = await first.submit(task)
    advancing = scene.spawn(first.advance(run_id))
    await handle.entered.wait()
    await _stop_after_the_drain(scene, first)
    state = await advancing
    assert [call.status for call in state.open_calls] == ["in_doubt"]
    handle.release.set()
    await _is_handed_over(scene, run_id, await second.advance(run_id))
    assert handle.attempts == [1, 2]


async def test_a_lease_is_not_given_back_while_a_body_that_was_given_up_still_runs(scene: Scene) -> None:
    held, handle = gate(idempotent=True, cancellable=False)
    task = scene.task(Script([HELD, REPORT]), held)
    first, second = scene.worker(task, name="first"), scene.worker(task, name="second")
    run_id = await first.submit(task)
    advancing = scene.spawn(first.advance(run_id))
    await handle.entered.wait()
    await _stop_after_the_drain(scene, first)
    await advancing
    assert not (await scene.store.get(run_id)).lease.is_released
    handle.release.set()
    await scene.clock.advance(LEASE_SECONDS + 1)
    state = await second.advance(run_id)
    assert (state.phase, state.folder) == (Phase.SUCCEEDED, f"{run_id}.2")


async def test_a_stopped_worker_does_not_wait_for_an_accepted_jobs_next_poll(scene: Scene) -> None:
    answers: list[str] = []

    async def asked(_handle: str) -> str | None:
        return answers.pop() if answers else None

    @tool(name="held")
    async def job() -> Accepted:
        return Accepted("job 7", poll=asked, interval_seconds=3600)

    task = scene.task(Script([HELD, REPORT]), job)
    first = scene.worker(task, name="first")
    run_id = await first.submit(task)
    advancing = scene.spawn(first.advance(run_id))
    await scene.until(run_id, lambda state: any(call.status == "accepted" for call in state.open_calls))
    await scene.clock.wait_for_timers(2)
    await first.stop()
    assert [call.status for call in (await advancing).open_calls] == ["accepted"]
    assert (await scene.store.get(run_id)).lease.is_released


async def test_a_stopped_worker_does_not_wait_for_the_answer_to_a_poll(scene: Scene) -> None:
    asked = asyncio.Event()

    async def never(_handle: str) -> None:
        asked.set()
        await hang()

    @tool(name="held")
    async def job() -> Accepted:
        return Accepted("job 7", poll=never)

    task = scene.task(Script([HELD, REPORT]), job)
    first = scene.worker(task, name="first")
    run_id = await first.submit(task)
    advancing = scene.spawn(first.advance(run_id))
    await asked.wait()
    await first.stop()
    assert [call.status for call in (await advancing).open_calls] == ["accepted"]
    assert (await scene.store.get(run_id)).lease.is_released


async def test_a_lease_that_cannot_be_given_back_does_not_hide_the_end(scene: Scene) -> None:
    def fail(_name: str) -> None:
        raise StoreError("disk full")

    stuck = CrashPoint(at=1, among=("before release",), deed=fail).store(scene.store)
    task = scene.task([REPORT])
    worker = scene.worker(task, store=stuck)
    run_id = await worker.submit(task)
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    assert [failure.run_id for failure in worker.failures] == [run_id]


def _latest(scene: Scene) -> str:
    return (scene.folder / "latest").resolve().name


async def _stop_after_the_drain(scene: Scene, worker: Worker) -> None:
    """Stop a worker, and let the time pass that bodies have to end, and then the grace of those that were told to."""
    stopping = scene.spawn(worker.stop())
    await scene.clock.advance(10.0)
    await scene.clock.advance(5.0)
    await stopping


async def _is_handed_over(scene: Scene, run_id: str, state: RunState) -> None:
    assert state.phase is Phase.SUCCEEDED
    assert state.folder == run_id
    leases = [event.data for event in await scene.log(run_id) if isinstance(event.data, LeaseTaken)]
    assert [lease.takeover for lease in leases] == [False, False]
    await scene.check_log(run_id)
