"""A run under our lease: what every part of the driver works on.

It binds the journal to an epoch, an actor and the time that counts. Each append is fenced; a lease that is lost surfaces as `LeaseLost` at the next append and stops
everything that looks at `signal` before that.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TypeVar

from checkrein.codec.wire import decode_event
from checkrein.errors import CheckreinError, Conflict, Rejected, StoreError
from checkrein.kernel.budget import BudgetState
from checkrein.kernel.events import CancelRequested, EventData
from checkrein.kernel.session_state import SessionState
from checkrein.kernel.state import Phase, RunState
from checkrein.ports.clock import Clock
from checkrein.ports.tool import CancelSignal
from checkrein.runs.journal import Journal
from checkrein.runs.lease import LeaseKeeper
from checkrein.runs.task import Task

__all__ = ["HeldRun", "Interrupted", "LeaseLost", "Moved"]

T = TypeVar("T")

WATCH_AGAIN_SECONDS = 0.5


class LeaseLost(CheckreinError):
    """Another worker advances the run now; ours must stop at once."""


class Moved(CheckreinError):
    """Somebody else appended first; the state was read again and what to do must be decided anew."""


class Interrupted(CheckreinError):
    """The run was cancelled or its lease lost while something was waited for."""


class HeldRun:
    """One run that this worker may advance.

    Attributes:
        journal: its log.
        task: the task it executes.
        folder: the folder it works in.
        clock: the time.
        signal: set when what runs must stop: the run is cancelled, its lease is lost, or the worker has drained.
        leaving: set when what only waits must stop: the lease is lost, or the worker stops.
    """

    def __init__(
        self, journal: Journal, *, task: Task, keeper: LeaseKeeper, folder: Path, actor: str, clock: Clock
    ) -> None:
        self.journal = journal
        self.task = task
        self.folder = folder
        self.clock = clock
        self.signal = CancelSignal()
        self.leaving = CancelSignal()
        self._keeper = keeper
        self._actor = actor
        self._active_since: float | None = None
        self._active_before = journal.state.budget.used.wall_seconds
        # Several bodies of a batch report at their own time; what one appends is decided on what the last one left.
        self._appending = asyncio.Lock()

    @property
    def state(self) -> RunState:
        """The lifecycle's state."""
        return self.journal.state

    @property
    def session(self) -> SessionState:
        """The session it drives."""
        return self.journal.session

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.journal.run_id

    def elapsed(self) -> float:
        """Return the run's active seconds in total; while it is blocked no time passes."""
        if self.state.phase is Phase.BLOCKED:
            self._active_before = self.state.budget.used.wall_seconds
            self._active_since = None
            return self._active_before
        if self._active_since is None:
            self._active_before = self.state.budget.used.wall_seconds
            self._active_since = self.clock.monotonic()
        now, used = self.clock.monotonic(), self.state.budget.used.wall_seconds
        elapsed = self._active_before + now - self._active_since
        if used > elapsed:  # a child's time was added to the run's own
            self._active_before, self._active_since = used, now
            return used
        return elapsed

    def budget(self) -> BudgetState:
        """Return the budget at this moment."""
        return self.state.budget.with_elapsed(self.elapsed())

    async def append(self, *data: EventData) -> None:
        """Append facts that were decided on the present state.

        Raises:
            Moved: the log moved on; decide again.
            LeaseLost: the lease is not ours any more.
            Rejected: the lifecycle refuses them although nothing moved.
        """
        async with self._appending:
            self.check_lease()
            try:
                await self.journal.append(data, actor=self._actor, epoch=self._keeper.epoch, elapsed=self.elapsed())
            except Conflict as error:
                raise self._lost_or_moved(error) from error
            except Rejected as error:
                # Time goes on between a decision and its guard, and may use up the last of the budget.
                is_late = error.code == "budget_exhausted" and self.budget().is_reached("wall_seconds")
                if await self.journal.refresh() or is_late or error.code == "lease_lost":
                    raise self._lost_or_moved(error) from error
                raise

    async def append_outcome(self, *data: EventData) -> None:
        """Append what already happened, as often as the version moves.

        Raises:
            Moved: it is not accepted any more; it stands in the audit.
            LeaseLost: the lease is not ours any more.
        """
        await self.append_outcome_of(lambda: data)

    async def append_outcome_of(self, build: Callable[[], Sequence[EventData]]) -> None:
        """Append what already happened and what follows from it in the present state, built anew as often as the version moves.

        Raises:
            Moved: it is not accepted any more; it stands in the audit.
            LeaseLost: the lease is not ours any more.
        """
        async with self._appending:
            try:
                await self.journal.append_outcome(
                    build, actor=self._actor, epoch=self._keeper.epoch, elapsed=self.elapsed()
                )
            except (Conflict, Rejected) as error:
                if isinstance(error, Rejected):
                    await self.journal.refresh()
                raise self._lost_or_moved(error) from error

    async def refresh(self) -> bool:
        """Read what others appended; True when there was anything. A cancellation among it sets `signal`, without waiting for who follows the log.

        Raises:
            LeaseLost: another worker has taken the lease since.
            StoreError: the store cannot be read.
        """
        async with self._appending:
            moved = await self.journal.refresh()
        if self.state.epoch != self._keeper.epoch:
            self._keeper.lost.cancel(f"epoch {self.state.epoch} was taken by another worker")
        self.check_lease()
        if self.state.cancel is not None:
            self.signal.cancel(self.state.cancel)
        return moved

    async def confirm_lease(self) -> None:
        """Make sure, before an effect, that the lease did not end unnoticed.

        Raises:
            LeaseLost: it did, and another worker has it.
            StoreError: the store could not be asked.
        """
        await self._keeper.confirm()
        self.check_lease()

    def check_lease(self) -> None:
        """Go on only while the lease is not known to be lost.

        Raises:
            LeaseLost: it is.
        """
        if self._keeper.lost.is_cancelled:
            raise LeaseLost(self._keeper.lost.reason)

    def _lost_or_moved(self, error: Conflict | Rejected) -> CheckreinError:
        if error.code == "lease_lost" or self.state.epoch != self._keeper.epoch:
            self._keeper.lost.cancel(str(error))
            return LeaseLost(str(error))
        return Moved(str(error))

    async def watch(self) -> None:
        """Set `signal` when somebody cancels the run or the lease is lost; ends when the run does, or when it is cancelled."""
        self._keeper.lost.subscribe(self._let_go)
        while True:
            try:
                await self._watch_log()
            except StoreError:
                # A store that is busy now and then must not make the run deaf to its cancellation.
                await self.clock.sleep(WATCH_AGAIN_SECONDS)
            else:
                return

    def _let_go(self, reason: str) -> None:
        self.leaving.cancel(reason)
        self.signal.cancel(reason)

    async def _watch_log(self) -> None:
        offset = self.state.version
        if self.state.cancel is not None:
            self.signal.cancel(self.state.cancel)
        async for body in self.journal.store.follow(self.run_id, offset):
            if b'"cancel_requested"' in body:
                data = decode_event(body, run_id=self.run_id, offset=offset).data
                if isinstance(data, CancelRequested):
                    self.signal.cancel(data.reason)
            offset += 1

    async def sleep(self, seconds: float) -> None:
        """Wait, while nothing runs.

        Raises:
            Interrupted: the lease was lost, or the worker stops.
        """
        await self.uninterrupted(self.clock.sleep(seconds), name=f"sleep-{self.run_id}", until=self.leaving)

    async def uninterrupted(
        self,
        work: Coroutine[object, object, T],
        *,
        name: str,
        seconds: float | None = None,
        until: CancelSignal | None = None,
    ) -> T:
        """Return what `work` returns, unless a signal (by default `signal`) is set, or the time is over before.

        Raises:
            Interrupted: the signal came first; the work was cancelled and is not waited for.
            TimeoutError: the time was over first; likewise.
        """
        signal = until or self.signal
        task = self.clock.spawn(work, name=name)
        stop = self.clock.spawn(signal.wait(), name=f"{name}-stop")
        alarm = self.clock.spawn(self.clock.sleep(seconds), name=f"{name}-alarm") if seconds is not None else None
        others: list[asyncio.Task[object]] = [item for item in (stop, alarm) if item is not None]
        try:
            await asyncio.wait([task, *others], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if stop.done():
                raise Interrupted(signal.reason)
            raise TimeoutError
        finally:
            for item in (task, *others):
                item.cancel()
