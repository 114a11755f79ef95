"""The clock that tests move by hand."""

from checkrein.ports.clock import Clock
from checkrein.testing.manual_clock import ManualClock


def test_it_is_a_clock_that_stands_still() -> None:
    clock: Clock = ManualClock(start=100.0)
    assert [(clock.now(), clock.monotonic()) for _ in range(2)] == [(100.0, 0.0), (100.0, 0.0)]


async def test_timers_fire_in_the_order_of_their_time_each_at_its_own() -> None:
    clock = ManualClock(start=0.0)
    fired: list[tuple[str, float]] = []
    for name, seconds in (("late", 3.0), ("first", 1.0), ("second", 1.0), ("never", 9.0)):
        clock.call_later(seconds, lambda name=name: fired.append((name, clock.now())))
    await clock.advance(5.0)
    assert fired == [("first", 1.0), ("second", 1.0), ("late", 3.0)]
    assert (clock.now(), clock.timers) == (5.0, 1)


async def test_a_timer_set_by_a_timer_fires_within_the_same_advance() -> None:
    clock = ManualClock()
    fired: list[float] = []

    def again() -> None:
        fired.append(clock.monotonic())
        clock.call_later(1.0, again)

    clock.call_later(1.0, again)
    await clock.advance(3.5)
    assert fired == [1.0, 2.0, 3.0]


async def test_a_sleeping_task_wakes_at_its_time_and_may_sleep_again() -> None:
    clock = ManualClock()
    woken: list[float] = []

    async def sleeper() -> None:
        for _ in range(3):
            await clock.sleep(2.0)
            woken.append(clock.monotonic())

    task = clock.spawn(sleeper(), name="sleeper")
    await clock.wait_for_timers()
    await clock.advance(10.0)
    assert (woken, task.done()) == ([2.0, 4.0, 6.0], True)


async def test_a_cancelled_timer_or_sleeper_leaves_nothing() -> None:
    clock = ManualClock()
    fired: list[int] = []
    timer = clock.call_later(1.0, lambda: fired.append(1))
    task = clock.spawn(clock.sleep(1.0), name="sleeper")
    await clock.wait_for_timers(2)
    timer.cancel()
    timer.cancel()
    task.cancel()
    await clock.advance(2.0)
    assert (fired, clock.timers, task.cancelled()) == ([], 0, True)


async def test_waiting_for_timers_ends_when_enough_wait() -> None:
    clock = ManualClock()
    waiting = clock.spawn(clock.wait_for_timers(2), name="waiting")
    clock.call_later(1.0, lambda: None)
    await clock.advance(0)
    assert not waiting.done()
    clock.call_later(1.0, lambda: None)
    await waiting
