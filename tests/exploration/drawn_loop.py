"""An event loop without I/O, whose next step somebody else draws.

Time is virtual: it moves when a timer is fired. The order of what is ready is not that of asyncio but the drawer's, so a test sees orders that a real loop shows once in
a million runs, and the same draws give the same run again.
"""

import asyncio
import heapq
import itertools
import weakref
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar, cast

from checkrein.clock import SystemClock

T = TypeVar("T")


class DrawnLoop(asyncio.BaseEventLoop):
    """Runs one step at a time: `turn` is called for each, and calls `step`, `fire` or does something of its own.

    Attributes:
        ready: what can run now, oldest first.
        now: the virtual time in seconds.
        turn: decides what happens next; calls `stop` when nothing is left to do.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ready: list[asyncio.Handle] = []
        self.now = 0.0
        self.turn: Callable[[], None] = self.stop
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        # The loop's own: asyncio.all_tasks looks through the tasks of all loops, of which a test makes tens of thousands.
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()

    def time(self) -> float:
        """Return the virtual time."""
        return self.now

    def call_soon(self, callback: Callable[..., object], *args: object, context: Context | None = None) -> Any:
        """Make a callback ready."""
        handle = asyncio.Handle(callback, args, self, context)
        self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Make a callback ready when its timer is fired."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Start a task that `unfinished` knows of."""
        task = super().create_task(coro, name=name, context=context)
        self._tasks.add(task)
        return task

    @property
    def unfinished(self) -> list[asyncio.Task[Any]]:
        """The tasks that are not done, in order of their names."""
        return sorted((task for task in self._tasks if not task.done()), key=asyncio.Task[Any].get_name)

    @property
    def has_timer(self) -> bool:
        """Whether a timer waits that nobody cancelled."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return bool(self._timers)

    @property
    def is_due(self) -> bool:
        """Whether a timer was fired whose callback did not run yet; time stands still until it did."""
        return any(isinstance(handle, asyncio.TimerHandle) for handle in self.ready)

    def fire(self) -> None:
        """Move time to the next timer and make its callback ready."""
        when, _, timer = heapq.heappop(self._timers)
        self.now = max(self.now, when)
        self.ready.append(timer)

    def step(self, index: int) -> str:
        """Run one of the things that are ready; return the name of its task, or `callback`."""
        handle = self.ready.pop(index)
        if handle.cancelled():
            return ""
        inner = cast("Any", handle)
        owner = getattr(inner._callback, "__self__", None)
        inner._run()
        name = owner.get_name() if isinstance(owner, asyncio.Task) else "callback"
        # Tasks that nobody named are numbered through all of the process, and so not the same in the next one.
        return "a task" if name.startswith("Task-") else name

    def _run_once(self) -> None:
        self.turn()


class DrawnClock(SystemClock):
    """The clock of a drawn loop: its time is the loop's."""

    def __init__(self, loop: DrawnLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        """Return the virtual time as seconds since 1970."""
        return self._loop.now

    def monotonic(self) -> float:
        """Return the virtual time."""
        return self._loop.now
