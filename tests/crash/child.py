"""What runs in the processes that are killed: a worker that advances one run, on a store that notes what it acknowledged.

A process is forked from a server that has everything imported, so that hundreds of them can die in a minute. Nothing but files and one pipe leaves it.
"""

import asyncio
import json
import os
import signal
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from checkrein.cli.tasks import compose, read_folder
from checkrein.clock import SystemClock
from checkrein.errors import CheckreinError, LeaseHeld
from checkrein.kernel.state import RunState
from checkrein.ports.store import Appended, NewLease, Row, RunHead
from checkrein.runs.worker import Worker, WorkerOptions
from checkrein.store import SqliteStore
from checkrein.testing import CrashPoint
from checkrein.testing.crash import EFFECTS

STORE = "runs.db"
TASK = "task"
ACKNOWLEDGED = "acknowledged.jsonl"
DEATHS = "deaths.jsonl"
LEASE_SECONDS = 0.3


@dataclass(frozen=True)
class Job:
    """What a process is to do.

    Attributes:
        folder: the arena's folder.
        run_id: the run to advance.
        at: which of the points does its deed, 0 for none.
        among: how the names of the points begin.
        stops: the deed is SIGSTOP and not SIGKILL.
        name: the worker's name.
        lease_seconds: how long its lease lasts.
        patience_seconds: how long it waits for the end of another worker's lease.
        go_at: when it begins, by the clock's `monotonic`, so that several begin at once.
    """

    folder: str
    run_id: str
    at: int = 0
    among: Sequence[str] = EFFECTS
    stops: bool = False
    name: str = "worker"
    lease_seconds: float = LEASE_SECONDS
    patience_seconds: float = 0.0
    go_at: float = 0.0


@dataclass(frozen=True)
class Said:
    """How a process says that its work ended.

    Attributes:
        phase: where the run stands; `""` when an error ended it.
        points: the points that were passed.
        error: the name of the error that ended it; `defect` when that is none of checkrein's.
        message: the error in words.
        at: the clock's `monotonic`, which all processes of a machine share, when the lease was taken; 0 when it never was.
    """

    phase: str = ""
    points: tuple[str, ...] = ()
    error: str = ""
    message: str = ""
    at: float = 0.0


class AcknowledgedStore(SqliteStore):
    """A store that writes down, after each append returned, what was promised by that."""

    claimed_at = 0.0

    async def append(
        self, run_id: str, *, version: int, epoch: int | None, rows: Sequence[Row], head: RunHead
    ) -> Appended:
        """Append a batch and note it."""
        done = await super().append(run_id, version=version, epoch=epoch, rows=rows, head=head)
        return self._noted(run_id, rows, done)

    async def claim(
        self, run_id: str, *, version: int, lease: NewLease, rows: Sequence[Row], head: RunHead
    ) -> Appended:
        """Take the lease and note it."""
        done = await super().claim(run_id, version=version, lease=lease, rows=rows, head=head)
        # The run's own lease; those of its children come later.
        self.claimed_at = self.claimed_at or SystemClock().monotonic()
        return self._noted(run_id, rows, done)

    def _noted(self, run_id: str, rows: Sequence[Row], done: Appended) -> Appended:
        line = {"run": run_id, "version": done.version, "ids": [row.event_id for row in rows]}
        note(self.path.parent / ACKNOWLEDGED, line)
        return done


def note(file: Path, line: Mapping[str, object]) -> None:
    """Add a line to a file that several processes write: one system call, whole or not at all."""
    opened = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(opened, (json.dumps(line) + "\n").encode())
    finally:
        os.close(opened)


def work(job: Job, pipe: Connection) -> None:
    """Be the process: advance the run, and tell the pipe when it begins and how it ended."""
    try:
        pipe.send(asyncio.run(_advance(job, pipe)))
    except CheckreinError as error:
        pipe.send(Said(error=type(error).__name__, message=str(error)))
    except BaseException:
        pipe.send(Said(error="defect", message=traceback.format_exc()))
        raise


async def _advance(job: Job, pipe: Connection) -> Said:
    folder = Path(job.folder)
    store = AcknowledgedStore(folder / STORE)

    def die(name: str) -> None:
        note(folder / DEATHS, {"run": job.run_id, "point": name})
        os.kill(os.getpid(), signal.SIGKILL)

    point = CrashPoint(job.at, among=job.among, deed="stop" if job.stops else die)
    worker = Worker(
        store=point.store(store),
        tasks=[point.task(compose(read_folder(folder / TASK)))],
        options=WorkerOptions(name=job.name, claims="named", lease_seconds=job.lease_seconds),
    )
    pipe.send("begins")
    clock = SystemClock()
    await clock.sleep(job.go_at - clock.monotonic())
    try:
        state = await _patiently(worker, job)
        return Said(phase=str(state.phase), points=tuple(point.passed), at=store.claimed_at)
    finally:
        # A child run that is advanced beside the run still has something to say when that is lost.
        await worker.stop()
        await store.aclose()


async def _patiently(worker: Worker, job: Job) -> RunState:
    """Advance the run; wait for the end of another worker's lease as often as the job allows."""
    clock = SystemClock()
    end = clock.monotonic() + job.patience_seconds
    while True:
        try:
            return await worker.advance(job.run_id)
        except LeaseHeld as error:
            if clock.monotonic() >= end:
                raise
            await clock.sleep(max(0.005, error.expires_in))
