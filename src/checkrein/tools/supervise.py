"""One running body, watched: its time limit, its cancellation, its grace, and its end.

A `Flight` is one execution that any number of callers may wait for. It knows tasks, timers and signals, and nothing of tools or results.
Invariants: the verdict is given exactly once; whatever the body does after it is observed and dropped; a slot taken is given back exactly
once, and not held by a body that was given up.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from checkrein.ports.clock import Clock, TimerHandle
from checkrein.ports.tool import CancelSignal

__all__ = ["Desk", "Flight", "Raised", "Returned", "Stopped", "TimedOut", "Verdict", "Watch"]


class Returned(msgspec.Struct, frozen=True):
    """The body returned `value`."""

    value: object


class Raised(msgspec.Struct, frozen=True):
    """The body raised `error`."""

    error: BaseException


class TimedOut(msgspec.Struct, frozen=True):
    """The body did not end within its limit; `is_running` when it did not end within the grace either."""

    is_running: bool


class Stopped(msgspec.Struct, frozen=True):
    """The body was told to stop for `reason`, and gave no outcome.

    Attributes:
        reason: why it was told.
        has_begun: the body ran at all.
        is_running: it did not end within the grace.
    """

    reason: str
    has_begun: bool
    is_running: bool


Verdict: TypeAlias = Returned | Raised | TimedOut | Stopped


class Watch(msgspec.Struct, frozen=True):
    """How one body is watched.

    Attributes:
        name: the task's name.
        limit_seconds: how long it may take from the moment it has a slot; None for no limit.
        grace_seconds: how long it may take to end after it was told to stop.
        is_cancellable: its task may be cancelled; else it is only told by its signal.
        needs_slot: it waits for one of the desk's slots.
    """

    name: str
    limit_seconds: float | None
    grace_seconds: float
    is_cancellable: bool
    needs_slot: bool = True


class Desk:
    """What flights share: the clock, the slots, and the bodies that were given up."""

    def __init__(self, clock: Clock, limit: int) -> None:
        self.clock = clock
        self.slots = asyncio.Semaphore(limit)
        self.abandoned: set[asyncio.Task[object]] = set()


class Flight:
    """One execution of a body.

    Attributes:
        stop: the body's own signal; set when it is to stop, for whatever reason.
    """

    def __init__(self, desk: Desk, watch: Watch, *, outer: CancelSignal) -> None:
        self.stop = CancelSignal()
        self._desk = desk
        self._watch = watch
        self._outer = outer
        self._verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._body: asyncio.Task[object] | None = None
        self._timer: TimerHandle | None = None
        self._unsubscribe: Callable[[], None] = _nothing
        self._stopping: str = ""
        self._returned: Returned | None = None
        self._has_begun = False
        self._has_slot = False
        self._waiters = 0

    @property
    def is_open(self) -> bool:
        """Whether the verdict is still to come."""
        return not self._verdict.done()

    def start(self, make: Callable[[], Awaitable[object]], *, on_end: Callable[[], None]) -> None:
        """Start the body as a task; `on_end` is called when the verdict is there."""
        self._verdict.add_done_callback(lambda _: on_end())
        # Subscribed first, so that no body begins after the signal, also where tasks start at once.
        self._unsubscribe = self._outer.subscribe(self._on_cancel)
        self._body = self._desk.clock.spawn(self._work(make), name=self._watch.name)
        self._body.add_done_callback(self._on_body_done)
        if self._stopping:
            self._body.cancel(self.stop.reason)

    async def join(self) -> Verdict:
        """Wait for the verdict.

        When the last waiter is cancelled the body is told to stop, and nobody waits for it.

        Raises:
            asyncio.CancelledError: the waiting task was cancelled.
            KeyboardInterrupt: the body raised it.
        """
        self._waiters += 1
        try:
            return await asyncio.shield(self._verdict)
        except asyncio.CancelledError:
            if self._waiters == 1 and self.is_open:
                self._on_cancel("nobody waits for it any more")
            raise
        finally:
            self._waiters -= 1

    async def _work(self, make: Callable[[], Awaitable[object]]) -> object:
        if self._watch.needs_slot:
            await self._desk.slots.acquire()
            self._has_slot = True
        if not self.is_open or self._stopping:
            self._give_back()
            raise asyncio.CancelledError(self._stopping)
        self._has_begun = True
        if self._watch.limit_seconds is not None:
            self._timer = self._desk.clock.call_later(self._watch.limit_seconds, self._on_timeout)
        try:
            value = await make()
        except SystemExit as error:
            # A task that raises it would stop the loop, and with it every other body.
            msg = f"it called sys.exit({error.code!r:.200})"
            raise RuntimeError(msg) from error
        # Kept here as well: a body that is cancelled while it returns has a task that knows only of the cancellation.
        self._returned = Returned(value)
        return value

    def _on_timeout(self) -> None:
        if self._stopping or not self.is_open:
            return
        self._stopping = "timeout"
        self.stop.cancel(f"timed out after {self._watch.limit_seconds:g} s")
        if self._watch.is_cancellable:
            self._tell()
        else:
            # It cannot be stopped and its outcome is decided: waiting would only make the limit longer.
            self._abandon()

    def _on_cancel(self, reason: str) -> None:
        if self._stopping or not self.is_open:
            return
        self._stopping = "cancel"
        self.stop.cancel(reason)
        self._tell()

    def _tell(self) -> None:
        self._cancel_timer()
        self._timer = self._desk.clock.call_later(self._watch.grace_seconds, self._abandon)
        if self._body is not None and (self._watch.is_cancellable or not self._has_begun):
            self._body.cancel(self.stop.reason)

    def _abandon(self) -> None:
        if not self.is_open:
            return
        if self._body is not None:
            self._desk.abandoned.add(self._body)
        timed_out = self._stopping == "timeout"
        self._decide(
            TimedOut(is_running=True) if timed_out else Stopped(self.stop.reason, self._has_begun, is_running=True)
        )

    def _on_body_done(self, task: "asyncio.Task[object]") -> None:
        self._desk.abandoned.discard(task)
        error = None if task.cancelled() else task.exception()
        if not self.is_open:
            return
        if isinstance(error, KeyboardInterrupt):
            self._settle()
            self._verdict.set_exception(error)
            # Observed, should nobody wait: the loop has raised it already.
            self._verdict.exception()
        elif self._stopping == "timeout":
            self._decide(TimedOut(is_running=False))
        elif error is not None:
            self._decide(Raised(error))
        elif self._returned is not None:
            self._decide(self._returned)
        elif self._stopping:
            self._decide(Stopped(self.stop.reason, self._has_begun, is_running=False))
        else:
            self._decide(Raised(asyncio.CancelledError("the body cancelled itself")))

    def _decide(self, verdict: Verdict) -> None:
        self._settle()
        self._verdict.set_result(verdict)

    def _settle(self) -> None:
        self._cancel_timer()
        self._unsubscribe()
        self._give_back()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_back(self) -> None:
        if self._has_slot:
            self._has_slot = False
            self._desk.slots.release()


def _nothing() -> None:
    """Forget nothing: there is no subscription yet."""
