"""The worker: claims runs of its tasks, advances several at a time, and hands them back when it is told to stop.

A worker holds nothing that is not in the store: it may be killed at any instruction, and another one goes on. Its users' side (`submit`, `steer`, `cancel`, …) appends
facts and never executes, so it works without `async with`, from any process.
"""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Literal, Self

import msgspec

from checkrein.clock import SystemClock, SystemIds
from checkrein.codec.wire import skim_events
from checkrein.errors import CheckreinError, Conflict, LeaseHeld, StoreError, TaskError
from checkrein.kernel.budget import Amounts
from checkrein.kernel.run import fold_run
from checkrein.kernel.state import Phase, RunState, is_claimable
from checkrein.ports.clock import Clock, IdSource
from checkrein.ports.store import RunQuery, RunRow, RunStore
from checkrein.runs.calls import CallRunner, Progress
from checkrein.runs.children import Children
from checkrein.runs.commands import Commands, Reconciled, RunPull
from checkrein.runs.driver import drive, waits_for_code
from checkrein.runs.fork import ForkResult, Forks
from checkrein.runs.held import HeldRun, LeaseLost
from checkrein.runs.journal import Journal
from checkrein.runs.lease import DEFAULT_LEASE_SECONDS, LeaseKeeper, claim, is_gone, our_identity
from checkrein.runs.task import Task
from checkrein.runs.workspace import prepare_folder
from checkrein.tools.outcomes import RetryPolicy
from checkrein.values import NULL, JsonData

__all__ = ["Worker", "WorkerFailure", "WorkerOptions"]

MAX_FAILURES = 100
MOST_CLAIMABLE = 1_000
LONGEST_PAUSE_SECONDS = 60.0
_STOPS = "the worker stops"


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker works.

    Attributes:
        name: stands in the log as `worker:<name>`.
        concurrency: runs advanced at the same time.
        claims: `all` takes every claimable run of its tasks; `named` only those given to `advance`.
        lease_seconds: how long a run stays ours without a renewal.
        poll_seconds: how often the store is asked for claimable runs.
        drain_seconds: how long running tool bodies may take to end when the worker stops.
        retry: how often a failed call of an idempotent tool is made again.
        on_progress: told the progress that tools report: run id, call id, text.
    """

    name: str = "worker"
    concurrency: int = 8
    claims: Literal["all", "named"] = "all"
    lease_seconds: float = DEFAULT_LEASE_SECONDS
    poll_seconds: float = 0.5
    drain_seconds: float = 10.0
    retry: RetryPolicy = RetryPolicy()
    on_progress: Progress | None = None


class WorkerFailure(msgspec.Struct, frozen=True):
    """Why the worker let go of a run that did not rest."""

    run_id: str
    error: str
    at: float


class _Pause(msgspec.Struct):
    """A run that is left alone until a time of the monotonic clock, or until its version is no longer the one it had when the pause was first looked at."""

    seconds: float
    until: float
    version: int = 0


class Worker:
    """Advances runs of some tasks in one store.

    Args:
        store: where the runs are.
        tasks: the tasks whose runs it may advance, their children included; names are unique.
        clock: the time; the system's by default.
        ids: makes ids; random by default.
        options: how it works.

    Raises:
        TaskError: two tasks have the same name.
    """

    def __init__(
        self,
        *,
        store: RunStore,
        tasks: Sequence[Task] = (),
        clock: Clock | None = None,
        ids: IdSource | None = None,
        options: WorkerOptions | None = None,
    ) -> None:
        self._store = store
        self._tasks: dict[str, Task] = {}
        for task in tasks:
            if task.name in self._tasks:
                raise TaskError(task.source, "name", f"two tasks are called {task.name!r}", "rename one")
            self._tasks[task.name] = task
        for task in (member for given in tasks for member in given.family()):
            known = self._tasks.setdefault(task.name, task)
            is_same = bool(task.code_hash) and (known.source, known.code_hash) == (task.source, task.code_hash)
            if known is not task and not is_same:
                raise TaskError(task.source, "name", f"two tasks are called {task.name!r}", "rename one")
        self._clock = clock or SystemClock()
        self._ids = ids or SystemIds()
        self._options = options or WorkerOptions()
        self._owner = our_identity(self._options.name, self._ids.new_id())
        self._stopping = False
        self._held: dict[str, HeldRun] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._lent: set[str] = set()
        self._claiming: asyncio.Task[None] | None = None
        self._failures: list[WorkerFailure] = []
        self._pauses: dict[str, _Pause] = {}
        self._woken = asyncio.Event()

    @property
    def owner(self) -> str:
        """Who it is as a lease's owner."""
        return self._owner

    @property
    def failures(self) -> tuple[WorkerFailure, ...]:
        """The last 100 reasons why a run was let go of before it rested."""
        return tuple(self._failures)

    @property
    def held(self) -> tuple[str, ...]:
        """The ids of the runs it advances now."""
        return tuple(self._running)

    def _commands(self) -> Commands:
        return Commands(self._store, clock=self._clock, ids=self._ids, actor=self._actor())

    def _actor(self) -> str:
        return f"user:{self._options.name}"

    async def submit(self, task: Task, *, request_id: str = "") -> str:
        """Store a run and return its id; see `Commands.submit`."""
        run_id = await self._commands().submit(task, request_id=request_id)
        self._woken.set()
        return run_id

    async def fork(self, run_id: str, task: Task, *, at: int, message: str = "", request_id: str = "") -> ForkResult:
        """Store a new run that has the first `at` events of another one and goes on with `task`; see `Forks.fork`."""
        forks = Forks(self._store, clock=self._clock, ids=self._ids, actor=self._actor())
        made = await forks.fork(run_id, task, at=at, message=message, request_id=request_id)
        self._woken.set()
        return made

    async def steer(self, run_id: str, text: str, *, request_id: str = "") -> RunState:
        """Queue a message for the next planning; see `Commands.steer`."""
        return await self._commands().steer(run_id, text, request_id=request_id)

    async def follow_up(self, run_id: str, text: str, *, request_id: str = "") -> RunState:
        """Queue a message for when the goal would count as met; see `Commands.follow_up`."""
        return await self._commands().follow_up(run_id, text, request_id=request_id)

    async def cancel(self, run_id: str, reason: str = "cancelled by request", *, request_id: str = "") -> RunState:
        """Cancel a run; see `Commands.cancel`."""
        return await self._commands().cancel(run_id, reason, request_id=request_id)

    async def unblock(
        self, run_id: str, cause_id: str, *, answer: JsonData = NULL, reconciled: Reconciled | None = None
    ) -> RunState:
        """Answer a cause; see `Commands.unblock`."""
        state = await self._commands().unblock(run_id, cause_id, answer=answer, reconciled=reconciled)
        self._woken.set()
        return state

    async def extend(self, run_id: str, extra: Amounts, *, request_id: str = "") -> RunState:
        """Raise limits; see `Commands.extend`."""
        state = await self._commands().extend(run_id, extra, request_id=request_id)
        self._woken.set()
        return state

    async def pull(self, run_id: str) -> RunPull:
        """Return what a run waits for from a caller; see `Commands.pull`."""
        return await self._commands().pull(run_id)

    async def respond(
        self, run_id: str, answer: object, *, version: int | None = None, request_id: str = ""
    ) -> RunState:
        """Answer the pull point that a run's session stands at; see `Commands.respond`."""
        state = await self._commands().respond(run_id, answer, version=version, request_id=request_id)
        self._woken.set()
        return state

    async def state(self, run_id: str) -> RunState:
        """Return a run's state as the store has it.

        Raises:
            RunNotFound: no such run.
            StoreError: the store cannot be read.
        """
        return fold_run(skim_events(await self._store.read(run_id), run_id=run_id))

    async def wait(self, run_id: str) -> RunState:
        """Return the run's state once it ended, or waits for a person.

        Raises:
            RunNotFound: no such run.
            StoreError: the store cannot be read.
        """
        state = await self.state(run_id)
        offset = state.version
        if _rests(state):
            return state
        async for body in self._store.follow(run_id, offset):
            state = fold_run(skim_events([body], run_id=run_id, offset=offset), state)
            offset += 1
            if _rests(state):
                break
        return state

    async def __aenter__(self) -> Self:
        """Start claiming runs."""
        self._stopping = False
        if self._options.claims == "all":
            self._claiming = self._clock.spawn(self._claim_forever(), name=f"claims-{self._options.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop cleanly; see `stop`."""
        await self.stop()

    async def stop(self) -> None:
        """Claim nothing more, let running calls end within the drain time, record what is known, and give every lease back.

        What only waits (for an accepted job, for the next try) is left at once. A lease is kept, to end by itself, while a body that did not obey still runs.
        """
        self._stopping = True
        for held in self._held.values():
            held.leaving.cancel(_STOPS)
        if self._claiming is not None:
            self._claiming.cancel()
            self._claiming = None
        running = list(self._running.values())
        if not running:
            return
        late = await self._late(running)
        for held in self._held.values():
            held.signal.cancel(_STOPS)
        if late:
            await asyncio.wait(late)

    async def _late(self, tasks: Sequence[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
        """Wait for tasks, at most the drain time, and return those that have not ended by then."""
        alarm = self._clock.spawn(self._clock.sleep(self._options.drain_seconds), name="drain")
        pending: set[asyncio.Task[None]] = set(tasks)
        try:
            while pending and not alarm.done():
                await asyncio.wait({*pending, alarm}, return_when=asyncio.FIRST_COMPLETED)
                pending = {task for task in pending if not task.done()}
        finally:
            alarm.cancel()
        return pending

    async def _claim_forever(self) -> None:
        while not self._stopping:
            self._woken.clear()
            await self._claim_some()
            alarm = self._clock.call_later(self._options.poll_seconds, self._woken.set)
            await self._woken.wait()
            alarm.cancel()

    async def _claim_some(self) -> None:
        free = self._options.concurrency - len(self._running.keys() - self._lent)
        if free <= 0:
            return
        try:
            query = RunQuery(tasks=tuple(self._tasks), claimable=True, limit=MOST_CLAIMABLE)
            rows = await self._store.list_runs(query) if self._tasks else ()
        except CheckreinError as error:
            self._note_failure("", error)
            return
        now = self._clock.monotonic()
        # The longest unchanged first, so that none waits for ever behind newer ones.
        waiting = (row for row in reversed(rows) if row.run_id not in self._running)
        ready = [row.run_id for row in waiting if self._is_ready(row, now)]
        for run_id in ready[:free]:
            self._running[run_id] = self._clock.spawn(self._supervise(run_id), name=f"run-{run_id}")

    def _lend(self, row: RunRow) -> None:
        """Advance a child that one of our runs waits for, whatever the concurrency: the one that waits does nothing meanwhile."""
        is_free = not row.lease.is_live or is_gone(row.lease.owner)
        is_ours = row.head.task in self._tasks and row.run_id not in self._running
        if (
            is_ours
            and is_free
            and row.head.is_claimable
            and not self._stopping
            and self._is_ready(row, self._clock.monotonic())
        ):
            self._lent.add(row.run_id)
            self._running[row.run_id] = self._clock.spawn(self._supervise(row.run_id), name=f"run-{row.run_id}")

    def _is_ready(self, row: RunRow, now: float) -> bool:
        """Tell whether a run is to be tried: its pause is over, or somebody has appended something since it began."""
        pause = self._pauses.get(row.run_id)
        if pause is None:
            return True
        pause.version = pause.version or row.version
        return pause.until <= now or pause.version != row.version

    async def _supervise(self, run_id: str) -> None:
        try:
            state = await self._advance(run_id)
            is_idle = not _rests(state) and not self._stopping
        except (LeaseHeld, LeaseLost, Conflict):
            is_idle = False  # another worker was quicker; that is what leases are for
        except Exception as error:  # noqa: BLE001  one run's failure must not end the others
            self._note_failure(run_id, error)
            is_idle = True
        finally:
            self._running.pop(run_id, None)
            self._lent.discard(run_id)
            self._woken.set()
        if is_idle:
            self._pause(run_id)
        else:
            self._pauses.pop(run_id, None)

    def _pause(self, run_id: str) -> None:
        """Leave a run alone for longer each time that nothing came of advancing it: every try is an event in its log."""
        last = self._pauses.get(run_id)
        seconds = min(LONGEST_PAUSE_SECONDS, last.seconds * 2 if last else self._options.lease_seconds)
        self._pauses[run_id] = _Pause(seconds, self._clock.monotonic() + seconds)

    def _note_failure(self, run_id: str, error: Exception) -> None:
        self._failures.append(WorkerFailure(run_id, f"{type(error).__name__}: {error}", self._clock.now()))
        del self._failures[:-MAX_FAILURES]

    async def advance(self, run_id: str) -> RunState:
        """Claim one run, advance it until it rests, and return its state.

        Raises:
            LeaseHeld: another worker holds it, or this one advances it already.
            LeaseLost: another worker took it over meanwhile.
            Conflict: another worker was quicker and has brought it to rest.
            TaskError: its task is none of ours.
            RunNotFound: no such run.
            StoreError: the store could not be read or written.
            OSError: its folder could not be prepared.
        """
        if run_id in self._running:
            raise LeaseHeld(run_id, self._owner, self._options.lease_seconds)
        current = asyncio.current_task()
        if current is not None:
            self._running[run_id] = current
        try:
            return await self._advance(run_id)
        finally:
            self._running.pop(run_id, None)

    async def _advance(self, run_id: str) -> RunState:
        journal = await Journal.open(self._store, run_id, clock=self._clock, ids=self._ids)
        if not is_claimable(journal.state):
            return journal.state
        task = self._tasks.get(journal.state.task.name)
        if task is None:
            known = ", ".join(self._tasks) or "none"
            raise TaskError(
                journal.state.task.name,
                "",
                f"run {run_id} is of a task that this worker does not have",
                f"give it that task; it has {known}",
            )
        if waits_for_code(journal.state, task):
            return journal.state
        if task.of_run is not None:
            task = task.of_run(task, journal.state.task)
        keeper = await self._claim(journal)
        try:
            is_free = await self._drive(journal, task, keeper)
        finally:
            keeper.stop()
        if is_free:
            await self._release(keeper, run_id)
        return journal.state

    async def _claim(self, journal: Journal) -> LeaseKeeper:
        seconds = self._options.lease_seconds
        while True:
            claimed_at = self._clock.monotonic()
            try:
                epoch = await claim(journal, owner=self._owner, seconds=seconds)
            except Conflict:
                if not is_claimable(journal.state):
                    raise
            else:
                return LeaseKeeper(journal, epoch=epoch, seconds=seconds, clock=self._clock, claimed_at=claimed_at)

    async def _release(self, keeper: LeaseKeeper, run_id: str) -> None:
        try:
            await keeper.release()
        except StoreError as error:
            # The run rests, and that is what the caller asked for; the lease ends by itself.
            self._note_failure(run_id, error)

    async def _drive(self, journal: Journal, task: Task, keeper: LeaseKeeper) -> bool:
        """Advance the run; False when a body that was given up still runs, so that its folder must not be used by the next owner."""
        folder = await prepare_folder(task.workspace, journal.state)
        held = HeldRun(
            journal, task=task, keeper=keeper, folder=folder, actor=f"worker:{self._options.name}", clock=self._clock
        )
        self._held[journal.run_id] = held
        try:
            speaker = Commands(self._store, clock=self._clock, ids=self._ids, actor=f"run:{journal.run_id}")
            children = Children(held, commands=speaker, lend=self._lend)
            options = self._options
            calls = CallRunner(held, children=children, retry=options.retry, on_progress=options.on_progress)
            await drive(held, calls, must_stop=self._must_stop)
            return not calls.has_running_body
        finally:
            self._held.pop(journal.run_id, None)

    def _must_stop(self) -> bool:
        return self._stopping


def _rests(state: RunState) -> bool:
    return state.phase.is_terminal or (state.phase is Phase.BLOCKED and not is_claimable(state))
