"""A clock that stands still until a test moves it.

It is a whole `Clock`: timers fire in the order of their time when `advance` passes them, and tasks get their turns in between, so a test of a
minute's timeout takes no time and always runs the same way. Nothing here waits for the machine's time.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable, Coroutine
from typing import TypeVar

from checkrein import clock as system

__all__ = ["ManualClock"]

T = TypeVar("T")

_EPOCH = 1_800_000_000.0
# Turns of the event loop after each timer: enough for a woken task to finish what it does without waiting.
_TURNS = 20


class _Timer:
    """A scheduled callback; a cancelled one has none."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Forget the callback."""
        self.callback = None


class ManualClock:
    """Time in a test's hand.

    Args:
        start: what `now()` says first, in seconds since 1970 (UTC); `monotonic()` begins at 0.
    """

    def __init__(self, start: float = _EPOCH) -> None:
        self._start = start
        self._elapsed = 0.0
        self._timers: list[tuple[float, int, _Timer]] = []
        self._numbers = itertools.count()
        self._watchers: list[asyncio.Event] = []

    def now(self) -> float:
        """Return seconds since 1970 (UTC)."""
        return self._start + self._elapsed

    def monotonic(self) -> float:
        """Return the seconds by which the clock was advanced."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Return after the clock was advanced by `seconds`; after one turn of the loop when that is 0 or less."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        if seconds <= 0:
            asyncio.get_running_loop().call_soon(wake)
            await future
            return
        timer = self.call_later(seconds, wake)
        try:
            await future
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> _Timer:
        """Call `callback` when the clock was advanced by `seconds`."""
        timer = _Timer(callback)
        heapq.heappush(self._timers, (self._elapsed + max(0.0, seconds), next(self._numbers), timer))
        for watcher in self._watchers:
            watcher.set()
        return timer

    def spawn(self, work: Coroutine[object, object, T], *, name: str) -> asyncio.Task[T]:
        """Start a task and keep it referenced until it ends.

        Raises:
            RuntimeError: no loop is running.
        """
        return system.spawn(work, name=name)

    @property
    def timers(self) -> int:
        """How many timers wait, sleeping tasks included."""
        return sum(timer.callback is not None for _, _, timer in self._timers)

    async def wait_for_timers(self, count: int = 1) -> None:
        """Return when at least `count` timers wait."""
        watcher = asyncio.Event()
        self._watchers.append(watcher)
        try:
            while self.timers < count:
                watcher.clear()
                await watcher.wait()
        finally:
            self._watchers.remove(watcher)

    def step_back(self, seconds: float) -> None:
        """Set `now()` back, as an administrator or a time server may; `monotonic()` and timers do not notice."""
        self._start -= seconds

    async def advance(self, seconds: float) -> None:
        """Move time by `seconds`, firing each timer at its time, and let tasks run after each.

        Timers that fired tasks set meanwhile fire too, if their time comes within `seconds`.
        """
        end = self._elapsed + seconds
        await self._turns()
        while self._timers and self._timers[0][0] <= end:
            at, _, timer = heapq.heappop(self._timers)
            if timer.callback is None:
                continue
            self._elapsed = max(self._elapsed, at)
            callback, timer.callback = timer.callback, None
            callback()
            await self._turns()
        self._elapsed = end

    async def _turns(self) -> None:
        for _ in range(_TURNS):
            await self.sleep(0)
