"""An append-only log of events with a separate result, and any number of readers.

The invariant: readers never influence the writer. A reader that is slow, absent or cancelled neither blocks the run nor loses the result; every reader sees every event
in order from the offset it chose. The writer holds a `StreamLog`, everybody else its `EventStream`; one event loop owns both.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence, Sized
from typing import Generic, TypeVar, overload

__all__ = ["EventStream", "StreamLog"]

E = TypeVar("E")
R = TypeVar("R")


class StreamLog(Generic[E, R]):
    """The writer's side of a stream.

    Args:
        audience: who is told of each event as it is appended; nobody while it is empty.
        tell: tells them.

    Attributes:
        events: what has been appended so far; only `append` adds to it.
        result: the result, once there is one, as a tuple of one.
    """

    __slots__ = ("_at_end", "_at_event", "_audience", "_tell", "events", "result")

    def __init__(self, audience: Sized = (), tell: Callable[[E], object] | None = None) -> None:
        self.events: list[E] = []
        self._audience = audience
        self._tell = tell
        self.result: tuple[R] | None = None
        self._at_event: list[asyncio.Future[None]] = []
        self._at_end: list[asyncio.Future[None]] = []

    @property
    def stream(self) -> "EventStream[E, R]":
        """The readers' side."""
        return EventStream(self)

    def append(self, event: E) -> None:
        """Add an event, wake who follows and tell the audience.

        Raises:
            RuntimeError: the result is there already; nothing may follow it.
        """
        if self.result is not None:
            msg = "an event after the result of its stream"
            raise RuntimeError(msg)
        self.events.append(event)
        if self._at_event:
            _wake(self._at_event)
        if self._audience:
            self.tell(event)

    def tell(self, event: E) -> None:
        """Tell the audience of an event, also of one that is not kept."""
        if self._audience and self._tell is not None:
            self._tell(event)

    def finish(self, result: R) -> None:
        """Set the result and wake everybody.

        Raises:
            RuntimeError: there is a result already.
        """
        if self.result is not None:
            msg = "a second result for one stream"
            raise RuntimeError(msg)
        self.result = (result,)
        # Whoever keeps the stream does not keep those who listened.
        self._audience, self._tell = (), None
        _wake(self._at_event)
        _wake(self._at_end)

    async def next_event(self) -> None:
        """Return after the next event, or with the result."""
        await _wait_in(self._at_event)

    async def end(self) -> R:
        """Return the result once it is there."""
        while self.result is None:
            await _wait_in(self._at_end)
        return self.result[0]


def _wake(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done() and not waiter.get_loop().is_closed():
            waiter.set_result(None)
    waiters.clear()


async def _wait_in(waiters: list[asyncio.Future[None]]) -> None:
    """Wait on a future of our own, so that cancelling one waiter touches no other."""
    waiter = asyncio.get_running_loop().create_future()
    waiters.append(waiter)
    try:
        await waiter
    finally:
        if waiter in waiters:
            waiters.remove(waiter)


class EventStream(Sequence[E], Generic[E, R]):
    """The events of one run, as far as they happened, and its result.

    `async for event in stream` reads from the start and ends with the run; `await stream` gives the result, as often as wanted. As a sequence it shows what has been
    appended so far. Never reading it neither blocks the run nor loses the result.
    """

    __slots__ = ("_log",)

    def __init__(self, log: StreamLog[E, R]) -> None:
        self._log = log

    @property
    def is_done(self) -> bool:
        """Whether the result is there, and so nothing will be appended any more."""
        return self._log.result is not None

    def read(self, offset: int = 0) -> tuple[E, ...]:
        """Return what has been appended from `offset` on.

        Raises:
            ValueError: `offset` is negative.
        """
        if offset < 0:
            msg = f"offsets count from 0, not {offset}"
            raise ValueError(msg)
        return tuple(self._log.events[offset:])

    def subscribe(self, offset: int = 0) -> AsyncIterator[E]:
        """Iterate over the events from `offset` on, as they come, to the end.

        Raises:
            ValueError: `offset` is negative.
        """
        if offset < 0:
            msg = f"offsets count from 0, not {offset}"
            raise ValueError(msg)
        return self._follow(offset)

    async def _follow(self, offset: int) -> AsyncIterator[E]:
        log = self._log
        while True:
            while offset < len(log.events):
                yield log.events[offset]
                offset += 1
            if log.result is not None:
                return
            await log.next_event()

    def __aiter__(self) -> AsyncIterator[E]:
        """Iterate from the first event to the last."""
        return self.subscribe()

    def __await__(self) -> Generator[object, None, R]:
        """Return the result; cancelling who waits does not cancel the run."""
        return self._log.end().__await__()

    def __len__(self) -> int:
        """Return the number of events so far."""
        return len(self._log.events)

    @overload
    def __getitem__(self, index: int) -> E: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[E, ...]: ...
    def __getitem__(self, index: int | slice) -> E | tuple[E, ...]:
        """Return an event, or a tuple of events, that happened already.

        Raises:
            IndexError: there is no such event yet.
        """
        events = self._log.events
        return tuple(events[index]) if isinstance(index, slice) else events[index]

    def __iter__(self) -> Iterator[E]:
        """Iterate over what has been appended so far."""
        return iter(tuple(self._log.events))
