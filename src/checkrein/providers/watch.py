"""A timer on progress: interrupts whoever waits for a stream that gets nowhere.

One timer, no task. The invariant: what `wait` raises for lack of progress is `Stalled`, the interruption is taken back from the task, and a cancellation by anybody else
passes through untouched. Time during which nobody waits (a slow reader of chunks) is not counted.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from checkrein.ports.clock import Clock, TimerHandle

__all__ = ["ProgressWatch", "Stalled"]

T = TypeVar("T")


class Stalled(Exception):
    """Nothing got on for too long."""


class ProgressWatch:
    """Bounds the time between two signs of progress.

    Args:
        clock: time.
        seconds: the longest time without progress.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self.seconds = seconds
        self._since = clock.monotonic()
        self._task: asyncio.Task[object] | None = None
        self._reason: str | None = None
        self._has_rung = False
        self._timer: TimerHandle = clock.call_later(seconds, self._ring)

    def hear(self, *, seconds: float | None = None) -> None:
        """Take note of progress; from now on `seconds` may pass until the next, if given."""
        self._since = self._clock.monotonic()
        if seconds is not None and seconds != self.seconds:
            self.seconds = seconds
            self._timer.cancel()
            self._timer = self._clock.call_later(seconds, self._ring)

    def cancel(self, reason: str) -> None:
        """Interrupt who waits with a cancellation for that reason; later waits raise it at once."""
        self._reason = reason
        if self._task is not None and not self._has_rung:
            self._has_rung = True
            self._task.cancel(reason)

    async def wait(self, work: Awaitable[T]) -> T:
        """Return what `work` brings.

        Raises:
            Stalled: it brought nothing in time.
            asyncio.CancelledError: `cancel` was called, or the task was cancelled.
            BaseException: whatever the work raises.
        """
        task = self._task = asyncio.current_task()
        try:
            done = await work
        except asyncio.CancelledError:
            if self._take_back(task) and self._reason is None:
                raise Stalled from None
            raise
        except BaseException:
            self._take_back(task)
            raise
        finally:
            self._task = None
        if self._take_back(task) and self._reason is None:
            raise Stalled
        if self._reason is not None:
            raise asyncio.CancelledError(self._reason)
        return done

    def stop(self) -> None:
        """Stop watching."""
        self._timer.cancel()

    def _take_back(self, task: "asyncio.Task[object] | None") -> bool:
        """Take our own interruption back; tell whether there was one and nobody else's."""
        if not self._has_rung:
            return False
        self._has_rung = False
        return task is None or task.uncancel() == 0

    def _ring(self) -> None:
        left = self.seconds - (self._clock.monotonic() - self._since)
        if self._task is None:
            left = self.seconds
            self._since = self._clock.monotonic()
        # Rounding must not make a timer of next to nothing.
        if left > self.seconds / 1000:
            self._timer = self._clock.call_later(left, self._ring)
        elif not self._has_rung and self._task is not None:
            self._has_rung = True
            self._task.cancel("no progress")
