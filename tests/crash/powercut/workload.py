"""What a store was doing when the power went, what it had promised by then, and whether a file found afterwards keeps the promises.

The workload is a real `SqliteStore` with several runs at once, so that operations of many runs share commits. It is recorded once; see `disk`.
"""

import asyncio
import random  # noqa: TID251  seeded, so that a cut can be made again
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from checkrein.errors import CheckreinError
from checkrein.ports.store import NewLease, Refusal, Row, RunHead
from checkrein.store import sqlite_rows
from checkrein.store.sqlite import SqliteOptions, SqliteStore
from checkrein.store.sqlite_connection import Connection
from checkrein.store.sqlite_file import open_store
from checkrein.testing.manual_clock import ManualClock
from tests.crash.powercut.disk import Disk, Entry, Recorder, Told

RUNS = 5
BATCHES = 20
# A small write-ahead log is moved into the file many times during one short workload.
OPTIONS = SqliteOptions(is_exclusive=True, checkpoint_pages=25)


@dataclass(frozen=True)
class Appended:
    """A caller was told that a run has this version."""

    run_id: str
    version: int


@dataclass(frozen=True)
class Leased:
    """A caller was told that it holds this epoch."""

    run_id: str
    epoch: int


@dataclass(frozen=True)
class Refused:
    """A caller was told that the run's audit has this many entries."""

    run_id: str
    count: int


@dataclass
class Promises:
    """The most that callers were told of each run."""

    versions: dict[str, int] = field(default_factory=dict[str, int])
    epochs: dict[str, int] = field(default_factory=dict[str, int])
    refusals: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, what: object) -> None:
        """Remember what a caller was told."""
        match what:
            case Appended():
                self.versions[what.run_id] = what.version
            case Leased():
                self.epochs[what.run_id] = what.epoch
            case Refused():
                self.refusals[what.run_id] = what.count
            case _:
                raise AssertionError(what)


@dataclass(frozen=True)
class Recording:
    """A workload, recorded.

    Attributes:
        before: the files when it began.
        unsynced: files with changes that were not on the disk when the new store got its name.
        trace: what happened.
        logs: every run's whole log, and the versions at the ends of its batches.
    """

    before: dict[str, bytes]
    unsynced: list[str]
    trace: list[Entry]
    logs: dict[str, tuple[list[bytes], set[int]]]


def record(folder: Path, seed: int) -> Recording:
    """Run the workload once on a recording disk; the recorder must be the process's first use of SQLite."""
    recorder = Recorder()
    path = folder / "runs.db"
    asyncio.run(_create(path))
    before, unsynced = {path.name: path.read_bytes()}, _unsynced(recorder.trace)
    recorder.trace.clear()
    logs = {f"run-{number}": _log(random.Random(f"{seed}/{number}"), number) for number in range(RUNS)}  # noqa: S311  data, no secret
    asyncio.run(_work(path, logs, recorder.trace))
    recorder.remove()
    ends = {run_id: _ends(batches) for run_id, batches in logs.items()}
    bodies = {run_id: [row.body for batch in batches for row in batch] for run_id, batches in logs.items()}
    return Recording(
        before, unsynced, list(recorder.trace), {run_id: (bodies[run_id], ends[run_id]) for run_id in logs}
    )


async def _create(path: Path) -> None:
    store = SqliteStore(path, options=OPTIONS)
    await store.find_request("none")
    await store.aclose()


def _unsynced(trace: list[Entry]) -> list[str]:
    disk = Disk({})
    for entry in trace:
        disk.play(entry)
    return [name for name, state in disk.files.items() if state.waiting]


def _log(chance: random.Random, number: int) -> list[list[Row]]:
    sizes = [chance.choice((1, 1, 1, 2, 4)) for _ in range(BATCHES)]
    return [[_row(f"{number}-{place}-{index}", chance) for index in range(size)] for place, size in enumerate(sizes)]


def _row(name: str, chance: random.Random) -> Row:
    # Most events are small; some need pages of their own.
    body = f"{name}:".encode() + chance.randbytes(chance.choice((30, 100, 300, 300, 300, 300, 600, 5000)))
    return Row(event_id=name, type="noted", fingerprint=body.ljust(32)[:32], body=body)


def _ends(batches: list[list[Row]]) -> set[int]:
    return {sum(map(len, batches[:count])) for count in range(len(batches) + 1)}


def _head(version: int, *, is_terminal: bool = False) -> RunHead:
    """Return a head that says which version it belongs to."""
    return RunHead(
        phase="SUCCEEDED" if is_terminal else "RUNNING",
        is_terminal=is_terminal,
        is_claimable=not is_terminal,
        task="task",
        task_version=version,
        goal="g" * 50,
        updated_at=float(version),
    )


async def _work(path: Path, logs: dict[str, list[list[Row]]], trace: list[Entry]) -> None:
    # Closing moves the log into the file and deletes it; the second half begins with a file that was closed.
    for begin, end in ((0, BATCHES // 2), (BATCHES // 2, BATCHES)):
        store = SqliteStore(path, clock=ManualClock(), options=OPTIONS)
        await asyncio.gather(
            *(_advance(store, run_id, batches, (begin, end), trace) for run_id, batches in logs.items())
        )
        await store.aclose()


async def _advance(
    store: SqliteStore, run_id: str, batches: list[list[Row]], span: tuple[int, int], trace: list[Entry]
) -> None:
    """Append the batches of a span, one after the other, claiming now and then; write down each promise."""
    for place in range(*span):
        version = sum(map(len, batches[:place]))
        rows, after = batches[place], _head(version + len(batches[place]), is_terminal=place == BATCHES - 1)
        if place == 0:
            await store.create(run_id, f"request-{run_id}", rows, after)
        elif place % 3 == 0:
            await store.claim(run_id, version=version, lease=NewLease(owner=run_id, seconds=5), rows=rows, head=after)
            trace.append(Told(Leased(run_id, place // 3)))
        else:
            await store.append(run_id, version=version, epoch=place // 3, rows=rows, head=after)
        trace.append(Told(Appended(run_id, version + len(rows))))
        if place % 4 == 1:
            await store.record_refusal(
                run_id, Refusal(event_id="e", type="t", code="c", detail="d" * 40, actor="a", at=1)
            )
            trace.append(Told(Refused(run_id, place // 4 + 1)))


def faults(path: Path, recording: Recording, promises: Promises) -> list[str]:
    """Open what was found after a cut as a store would, and return what is wrong with it."""
    try:
        with closing(open_store(path, SqliteOptions(is_exclusive=True), is_writer=True)) as db:
            found = sqlite_rows.survey(db)
            return [
                *(f"corrupt: {problem}" for problem in found.problems),
                *(
                    f"lost: {run_id}"
                    for run_id in promises.versions
                    if db.first("SELECT 1 FROM runs WHERE run_id = :id", {"id": run_id}) is None
                ),
                *(
                    fault
                    for run_id in db.column("SELECT run_id FROM runs")
                    for fault in _run_faults(db, str(run_id), recording, promises)
                ),
            ]
    except (apsw.Error, CheckreinError) as error:
        return [f"corrupt: {error!r}"]


def _run_faults(db: Connection, run_id: str, recording: Recording, promises: Promises) -> list[str]:
    whole, ends = recording.logs[run_id]
    run = sqlite_rows.get(db, run_id, 0.0)
    bodies = sqlite_rows.read_page(db, run_id, 0, 10_000).bodies
    audit = sqlite_rows.refusals(db, run_id)
    checks = {
        f"lost: {run_id} is at {run.version}, {promises.versions.get(run_id)} was promised": run.version
        >= promises.versions.get(run_id, 0),
        f"lost: the epoch of {run_id}": run.lease.epoch >= promises.epochs.get(run_id, 0),
        f"lost: a refusal of {run_id}": len(audit) >= promises.refusals.get(run_id, 0),
        f"corrupt: {run_id} has other events than were written": bodies == whole[: run.version]
        and len(bodies) == run.version,
        f"corrupt: {run_id} has half a batch": run.version in ends,
        f"corrupt: {run_id} has the head of another version": run.head.task_version == run.version,
        f"corrupt: {run_id} lost its request": sqlite_rows.find_request(db, f"request-{run_id}") == run_id,
    }
    return [fault for fault, is_fine in checks.items() if not is_fine]
