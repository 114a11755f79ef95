"""Time, ids and tasks as a port, so that tests own them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Protocol, TypeVar

__all__ = ["Clock", "IdSource", "TimerHandle"]

T = TypeVar("T")


class TimerHandle(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Forget the callback; safe to call again, and after it ran."""
        ...


class Clock(Protocol):
    """The only source of time and of tasks."""

    def now(self) -> float:
        """Return seconds since 1970 (UTC); data, never an order."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back, from an arbitrary start."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`; at once, but not before other tasks had a turn, when that is 0 or less.

        Raises:
            asyncio.CancelledError: the sleeping task was cancelled.
        """
        ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` on the running loop after `seconds`.

        Raises:
            RuntimeError: no loop is running.
        """
        ...

    def spawn(self, work: Coroutine[object, object, T], *, name: str) -> asyncio.Task[T]:
        """Start a task and keep it referenced until it ends; its exception counts as observed.

        Raises:
            RuntimeError: no loop is running.
        """
        ...


class IdSource(Protocol):
    """The only source of ids."""

    def new_id(self) -> str:
        """Return an id that never comes twice: 16 hexadecimal digits, random from the first one on, so that short prefixes are unique."""
        ...
