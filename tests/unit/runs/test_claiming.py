"""A worker that claims whatever it may: which runs it takes, and how it leaves alone what it cannot advance."""

from collections.abc import Sequence

from msgspec.structs import replace

from checkrein.clock import SystemIds
from checkrein.errors import StoreError
from checkrein.harness.planners import LastError, Note, Step, StepRecord
from checkrein.kernel.budget import Amounts
from checkrein.kernel.state import Phase
from checkrein.ports.tool import Accepted
from checkrein.runs.commands import Commands
from checkrein.runs.worker import Worker, WorkerOptions
from checkrein.store import MemoryStore
from checkrein.tools.function import tool
from tests.unit.runs.scene import Scene, Script, gate, step, write

REPORT = write()
HELD = step("held")


class Unreadable(MemoryStore):
    """A store whose logs cannot be read any more once `is_broken` is set; counts the tries."""

    is_broken = False
    tries = 0

    async def read(self, run_id: str, offset: int = 0, limit: int | None = None) -> Sequence[bytes]:
        if self.is_broken:
            self.tries += 1
            raise StoreError("disk gone")
        return await super().read(run_id, offset, limit)


async def _once(_goal: str, history: tuple[StepRecord | Note, ...], _error: LastError | None) -> list[Step]:
    return [] if history else [HELD, REPORT]


async def test_a_worker_advances_every_run_of_its_tasks_several_at_a_time(scene: Scene) -> None:
    held, handle = gate()
    task = scene.task(_once, held)
    async with Worker(
        store=scene.store, tasks=[task], clock=scene.clock, options=WorkerOptions(concurrency=3)
    ) as worker:
        runs = [await worker.submit(task) for _ in range(5)]
        while len(handle.attempts) < 3:
            await scene.clock.advance(0.5)
        assert len(worker.held) == 3
        handle.release.set()
        while len(handle.attempts) < 5:
            await scene.clock.advance(0.5)
        states = [await worker.wait(run_id) for run_id in runs]
    assert [state.phase for state in states] == [Phase.SUCCEEDED] * 5
    assert worker.failures == ()


async def test_a_run_that_cannot_be_advanced_is_tried_ever_more_seldom(scene: Scene) -> None:
    store = Unreadable(clock=scene.clock)
    task = scene.task([REPORT])
    worker = Worker(store=store, tasks=[task], clock=scene.clock, options=WorkerOptions(lease_seconds=5.0))
    await worker.submit(task)
    store.is_broken = True
    async with worker:
        await scene.clock.advance(3600)
    # 5 s, 10, 20, 40, and then every minute.
    assert 55 <= store.tries <= 70
    assert "disk gone" in worker.failures[-1].error


async def test_a_run_that_is_left_alone_is_tried_at_once_when_somebody_says_something(scene: Scene) -> None:
    store = Unreadable(clock=scene.clock)
    task = scene.task([write()])
    worker = Worker(store=store, tasks=[task], clock=scene.clock, options=WorkerOptions(lease_seconds=5.0))
    run_id = await worker.submit(task)
    store.is_broken = True
    async with worker:
        await scene.clock.advance(300)
        store.is_broken = False
        await Commands(store, clock=scene.clock, ids=SystemIds(), actor="user:other process").extend(
            run_id, Amounts(turns=1)
        )
        await scene.clock.advance(0.5)
        assert worker.held == (run_id,)
        assert (await worker.wait(run_id)).phase is Phase.SUCCEEDED


async def test_the_longest_unchanged_run_is_taken_first(scene: Scene) -> None:
    held, handle = gate()
    task = scene.task(Script(*[[HELD, REPORT]] * 3), held)
    worker = Worker(store=scene.store, tasks=[task], clock=scene.clock, options=WorkerOptions(concurrency=1))
    first = await worker.submit(task)
    for _ in range(2):
        await scene.clock.advance(1)
        await worker.submit(task)
    async with worker:
        while not handle.entered.is_set():
            await scene.clock.advance(0.5)
        assert worker.held == (first,)
        handle.release.set()


async def test_a_run_that_waits_for_its_old_code_is_not_claimed_again_and_again(scene: Scene) -> None:
    async def pending(_handle: str) -> None:
        return None

    @tool(name="held")
    async def job() -> Accepted:
        return Accepted("job 7", poll=pending, interval_seconds=5.0)

    task = scene.task(Script([HELD, REPORT]), job)
    first = scene.worker(task)
    run_id = await first.submit(task)
    advancing = scene.spawn(first.advance(run_id))
    await scene.until(run_id, lambda state: any(call.status == "accepted" for call in state.open_calls))
    await first.stop()
    await advancing
    async with Worker(store=scene.store, tasks=[replace(task, version=2)], clock=scene.clock) as other:
        state = await scene.until(run_id, lambda state: state.phase is Phase.BLOCKED)
        assert [cause.kind for cause in state.causes] == ["code_changed"]
        await scene.clock.advance(600)
        assert (await other.state(run_id)).version == state.version
