"""`worker`: claim and advance every run of some tasks, until told to stop."""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from checkrein.cli.exits import Exit, Usage
from checkrein.cli.figures import local_time
from checkrein.cli.invocation import Invocation
from checkrein.cli.models import ModelChoice, Models
from checkrein.cli.screen import Screen, shown
from checkrein.cli.shapes import event_record
from checkrein.cli.signals import heeding
from checkrein.cli.tasks import load_trusted
from checkrein.cli.view import RunView
from checkrein.cli.words import words
from checkrein.errors import CheckreinError
from checkrein.kernel.events import Event, LeaseTaken
from checkrein.ports.store import RunQuery, RunRow, RunStore
from checkrein.runs.task import Task
from checkrein.runs.worker import Worker, WorkerOptions

__all__ = ["WorkOptions", "work"]

_LOOK_SECONDS = 0.2
_MOST_RUNS = 1_000


class WorkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for.

    Attributes:
        paths: the task files, or their folders.
        once: end when no run can be claimed.
        trust: trust the folders' code as it is now.
        lease_seconds: how long a run stays ours without a renewal.
        model: which model plans the runs; none for that of each run, or its task's own planner.
    """

    paths: tuple[Path, ...]
    once: bool
    trust: bool
    lease_seconds: float
    model: ModelChoice = ModelChoice()


async def work(invocation: Invocation, options: WorkOptions) -> Exit:
    """Work; the code is 0 after SIGTERM or when nothing is left, 130 after Ctrl-C, 1 when a run could not be advanced.

    Raises:
        UntrustedTask: a task brings code that nobody has trusted; nothing was imported.
        TaskError: a task is invalid, or two have the same name.
        Usage: a record is wanted, or the model cannot be made.
        StoreError: the store cannot be opened.
    """
    screen = invocation.screen
    if options.model.record is not None:
        msg = "--record: a worker advances several runs at once; record one with run or resume"
        raise Usage(msg)
    models = Models(options.model)
    tasks = [load_trusted(path, screen, trust=options.trust, models=models) for path in options.paths]
    name = f"worker-{os.getpid()}"
    async with contextlib.aclosing(models), invocation.store(must_exist=False) as store:
        worker = Worker(
            store=store,
            tasks=tasks,
            clock=invocation.clock,
            ids=invocation.ids,
            options=WorkerOptions(name=name, lease_seconds=options.lease_seconds),
        )
        screen.note(f"{name} advances runs of {', '.join(shown(task.name) for task in tasks)}; Ctrl-C drains and ends")
        shift = _Shift(invocation, store, tasks=tasks, name=name)
        return await shift.serve(worker, once=options.once)


class _Shift:
    """A worker's time on duty: what it does is printed, and signals end it."""

    def __init__(self, invocation: Invocation, store: RunStore, *, tasks: Sequence[Task], name: str) -> None:
        self._screen: Screen = invocation.screen
        self._clock = invocation.clock
        self._store = store
        self._tasks = tuple(task.name for task in tasks)
        self._actor = f"worker:{name}"
        self._seen: dict[str, int] = {}
        self._views: dict[str, RunView] = {}
        self._ours: set[str] = set()
        self._failed: dict[str, str] = {}
        self._over = asyncio.Event()
        self._interrupted = False

    async def serve(self, worker: Worker, *, once: bool) -> Exit:
        """Let the worker work until it is to stop.

        Raises:
            StoreError: the store cannot be read.
        """
        farewell = "left at once; runs that were held are taken over by the next worker"
        with heeding(interrupt=self._interrupt, terminate=self._over.set, farewell=farewell):
            self._seen = {row.run_id: row.version for row in await self._newest()}
            async with worker:
                while not self._over.is_set():
                    await self._look(worker)
                    if once and await self._is_idle(worker):
                        break
                    await self._clock.sleep(_LOOK_SECONDS)
                if self._over.is_set():
                    self._screen.note("draining: no new run is claimed; Ctrl-C again leaves at once")
            await self._look(worker)
        if self._interrupted:
            return Exit.INTERRUPTED
        return Exit.FAILED if self._failed else Exit.SUCCEEDED

    def _interrupt(self) -> None:
        self._interrupted = True
        self._over.set()

    async def _newest(self) -> Sequence[RunRow]:
        return await self._store.list_runs(RunQuery(tasks=self._tasks, limit=_MOST_RUNS))

    async def _is_idle(self, worker: Worker) -> bool:
        """Tell whether no run is held, and none can be claimed but those that failed."""
        query = RunQuery(tasks=self._tasks, claimable=True, limit=len(self._failed) + 1)
        left = [row for row in await self._store.list_runs(query) if row.run_id not in self._failed]
        return not left and not worker.held

    async def _look(self, worker: Worker) -> None:
        """Print what is new in the runs that this worker advances, and why it let go of any."""
        for row in reversed(await self._newest()):
            if row.version > self._seen.get(row.run_id, 0):
                try:
                    await self._print_news(row.run_id)
                except CheckreinError as error:
                    self._seen[row.run_id] = row.version
                    self._fail(row.run_id, error.message)
        for failure in worker.failures:
            self._fail(failure.run_id, failure.error)

    def _fail(self, run_id: str, error: str) -> None:
        if self._failed.get(run_id) != error:
            self._failed[run_id] = error
            self._screen.error(f"run {run_id}: {error}" if run_id else error)

    async def _print_news(self, run_id: str) -> None:
        view = self._views.setdefault(run_id, RunView(run_id))
        for body in await self._store.read(run_id, view.version):
            event = view.take(body)
            if isinstance(event.data, LeaseTaken):
                (self._ours.add if event.actor == self._actor else self._ours.discard)(run_id)
            if run_id in self._ours and event.expected_version >= self._seen.get(run_id, 0):
                self._print(event, view)
        self._seen[run_id] = view.version
        if view.state is not None and view.state.phase.is_terminal:
            del self._views[run_id]
            self._ours.discard(run_id)

    def _print(self, event: Event, view: RunView) -> None:
        self._screen.record(event_record(event, view.state))
        phase = view.state.phase if view.state is not None else ""
        when = local_time(event.at)
        self._screen.line((f"{when}  ", "dim"), f"{view.run_id}  {phase:<9}  ", shown(words(event.data), limit=200))
