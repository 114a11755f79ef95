"""The system's clock, ids and tasks: the only module of checkrein that reads time, draws random numbers or creates tasks.

Everything else is handed a `Clock` and an `IdSource`, so tests own time and ids.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable, Coroutine
from typing import Final, TypeVar

from checkrein.ports.clock import TimerHandle

__all__ = ["SystemClock", "SystemIds", "close_loop", "jitter", "run_bounded", "spawn"]

T = TypeVar("T")

_running: set[asyncio.Task[object]] = set()


def spawn(work: Coroutine[object, object, T], *, name: str) -> asyncio.Task[T]:
    """Start a task, keep it referenced until it ends, and count its exception as observed.

    Raises:
        RuntimeError: no loop is running.
    """
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_settle)
    return task


def _settle(task: "asyncio.Task[object]") -> None:
    _running.discard(task)
    if not task.cancelled():
        task.exception()


def run_bounded(work: Coroutine[object, object, T], *, seconds: float) -> T:
    """Run a coroutine to its end on an event loop of its own, and close the loop within a bound, whatever tasks still run.

    A first Ctrl-C cancels the coroutine, as with `asyncio.run`.

    Raises:
        RuntimeError: an event loop is running in this thread.
        KeyboardInterrupt: the program was interrupted.
        BaseException: whatever the coroutine raises.
    """
    if _is_loop_running():
        work.close()
        msg = "an event loop is running in this thread already: await there instead"
        raise RuntimeError(msg)
    runner = asyncio.Runner()
    try:
        return runner.run(work)
    finally:
        work.close()
        close_loop(runner.get_loop(), seconds=seconds)
        asyncio.set_event_loop(None)


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def close_loop(loop: asyncio.AbstractEventLoop, *, seconds: float) -> None:
    """Cancel all tasks of a loop that is not running, wait for them and for open generators at most `seconds` each, and close it."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if not _wait_for(loop, left, seconds):
        # What still runs is left behind for good; that its generators cannot be closed is nothing to report.
        loop.set_exception_handler(_say_nothing)
    _wait_for(loop, {loop.create_task(loop.shutdown_asyncgens())}, seconds)
    # Nor is that it is destroyed one day.
    loop.set_exception_handler(_say_nothing)
    loop.close()


def _say_nothing(_loop: asyncio.AbstractEventLoop, _context: object) -> None:
    """Keep what a loop has to say to itself."""


def _wait_for(loop: asyncio.AbstractEventLoop, tasks: "set[asyncio.Task[object]]", seconds: float) -> bool:
    """Wait for tasks at most so long, and tell whether all of them ended."""
    if not tasks:
        return True
    done, pending = loop.run_until_complete(asyncio.wait(tasks, timeout=seconds))
    # Kept, because a coroutine that ignores being cancelled also ignores being closed, and says so.
    _running.update(pending)
    for task in done:
        _settle(task)
    return not pending


def jitter(seconds: float, *, spread: float = 0.5) -> float:
    """Return `seconds` varied at random by ± `spread` of it, so that many waiters do not wake together."""
    return seconds * (1 + spread * (2 * random.random() - 1))  # noqa: S311  no secret depends on it


class SystemClock:
    """The machine's own time."""

    def now(self) -> float:
        """Return seconds since 1970 (UTC)."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`.

        Raises:
            asyncio.CancelledError: the sleeping task was cancelled.
        """
        await asyncio.sleep(max(0.0, seconds))

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` on the running loop after `seconds`.

        Raises:
            RuntimeError: no loop is running.
        """
        return asyncio.get_running_loop().call_later(max(0.0, seconds), callback)

    def spawn(self, work: Coroutine[object, object, T], *, name: str) -> asyncio.Task[T]:
        """Start a task and keep it referenced until it ends.

        Raises:
            RuntimeError: no loop is running.
        """
        return spawn(work, name=name)


ID_BYTES: Final = 8
_DRAWN_AT_ONCE: Final = 512
_drawn = bytearray()
"""Random bytes that no id was made of yet; asking the system for a few at a time costs more than anything else an event needs."""
# A copy of the process must not make the same ids.
os.register_at_fork(after_in_child=_drawn.clear)


class SystemIds:
    """Random ids of the operating system."""

    def new_id(self) -> str:
        """Return 16 random hexadecimal digits."""
        if len(_drawn) < ID_BYTES:
            _drawn.extend(os.urandom(_DRAWN_AT_ONCE * ID_BYTES))
        drawn = bytes(_drawn[-ID_BYTES:])
        del _drawn[-ID_BYTES:]
        return drawn.hex()
