"""The timer on progress: it interrupts who waits, takes its interruption back, and leaves everybody else's alone."""

import asyncio

import pytest

from checkrein.clock import spawn
from checkrein.providers.watch import ProgressWatch, Stalled
from checkrein.testing import ManualClock


class Source:
    """Something to wait for."""

    def __init__(self) -> None:
        self.given = asyncio.Event()

    async def bring(self) -> str:
        await self.given.wait()
        return "brought"


async def test_what_comes_in_time_is_returned() -> None:
    clock, source = ManualClock(), Source()
    watch = ProgressWatch(clock, 10)
    waiting = spawn(watch.wait(source.bring()), name="wait")
    await clock.advance(9)
    source.given.set()
    assert await waiting == "brought"
    watch.stop()
    assert clock.timers == 0


async def test_no_progress_is_a_stall_and_the_task_may_go_on() -> None:
    clock, source = ManualClock(), Source()
    watch = ProgressWatch(clock, 10)

    async def twice() -> tuple[bool, int]:
        try:
            await watch.wait(source.bring())
        except Stalled:
            task = asyncio.current_task()
            assert task is not None
            await asyncio.sleep(0)
            return True, task.cancelling()
        return False, 0

    waiting = spawn(twice(), name="wait")
    await clock.advance(11)
    assert await waiting == (True, 0)
    watch.stop()


async def test_progress_starts_the_time_anew() -> None:
    clock, source = ManualClock(), Source()
    watch = ProgressWatch(clock, 10)
    waiting = spawn(watch.wait(source.bring()), name="wait")
    for _ in range(5):
        await clock.advance(9)
        watch.hear()
    assert not waiting.done()
    await clock.advance(11)
    with pytest.raises(Stalled):
        await waiting


async def test_time_in_which_nobody_waits_is_not_counted() -> None:
    clock, source = ManualClock(), Source()
    watch = ProgressWatch(clock, 10)
    await clock.advance(1_000)
    waiting = spawn(watch.wait(source.bring()), name="wait")
    await clock.advance(8)
    assert not waiting.done()
    source.given.set()
    assert await waiting == "brought"
    watch.stop()


async def test_a_cancellation_by_somebody_else_passes_through() -> None:
    clock, source = ManualClock(), Source()
    watch = ProgressWatch(clock, 10)
    waiting = spawn(watch.wait(source.bring()), name="wait")
    await asyncio.sleep(0)
    waiting.cancel("theirs")
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert waiting.cancelled()
    watch.stop()


async def test_a_stall_and_a_cancellation_at_once_are_a_cancellation() -> None:
    clock, source = ManualClock(), Source()
    watch = ProgressWatch(clock, 10)
    waiting = spawn(watch.wait(source.bring()), name="wait")
    await asyncio.sleep(0)
    watch.seconds = 0
    watch._ring()  # pyright: ignore[reportPrivateUsage]  both in one turn of the loop, which no clock brings about
    waiting.cancel("theirs")
    with pytest.raises(asyncio.CancelledError):
        await waiting
    watch.stop()


async def test_cancelling_interrupts_now_and_every_later_wait() -> None:
    clock, source = ManualClock(), Source()
    watch = ProgressWatch(clock, 10)
    waiting = spawn(watch.wait(source.bring()), name="wait")
    await asyncio.sleep(0)
    watch.cancel("enough")
    with pytest.raises(asyncio.CancelledError):
        await waiting
    source.given.set()
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await watch.wait(source.bring())
    watch.stop()


async def test_work_that_swallows_the_interruption_is_a_stall_all_the_same() -> None:
    clock, source = ManualClock(), Source()
    watch = ProgressWatch(clock, 10)

    async def deaf() -> str:
        try:
            return await source.bring()
        except asyncio.CancelledError:
            return "deaf"

    waiting = spawn(watch.wait(deaf()), name="wait")
    await clock.advance(11)
    with pytest.raises(Stalled):
        await waiting
    watch.stop()


async def test_what_the_work_raises_is_raised() -> None:
    watch = ProgressWatch(ManualClock(), 10)

    async def broken() -> str:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await watch.wait(broken())
    watch.stop()
