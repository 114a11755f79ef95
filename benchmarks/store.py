"""How many durable steps a second does the SQLite store make, and how fast does it give a log back?

A step is one event of about 300 bytes, appended by compare-and-set and committed to the disk. Its floor is measured in the same run, in turns with the
store: one thread that uses apsw alone, with the same tables, the same two statements per step and one commit per round of all runs. Targets: at one run at
least 0.6 of the floor; at 32 runs at least 20,000 steps a second. Reading has as its floor one bare statement on one connection. Targets: at least a million
events a second read, decoded and folded; a log of 51,200 events and 50 MB open in less than 3 s. `--quick` does a tenth, once.

The figures are those of the least disturbed of the repetitions. The script reports; it exits 1 only when something could not be run.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import apsw
import msgspec

from checkrein.codec.wire import decode_events, row_of
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import (
    CheckSpec,
    Event,
    EventData,
    PlanAccepted,
    Received,
    SteerQueued,
    StepEnd,
    StepStart,
    TaskRecord,
    ToolCallGiven,
    ToolDone,
    ToolGranted,
    ToolResultGiven,
    ToolSpec,
    WorkStarted,
)
from checkrein.kernel.run import fold_run
from checkrein.ports.store import Row, RunHead
from checkrein.store import SqliteStore
from checkrein.store.queries import migrations
from checkrein.store.sqlite_connection import Connection
from checkrein.values import JsonData, JsonObject

STEPS = {1: 600, 8: 3_200, 32: 9_600, 200: 20_000}
"""Steps to make with so many runs at once, in one of several short turns: a shared disk is seldom quiet for long."""
LOG_EVENTS = 51_200
T = TypeVar("T")
STEPS_TARGET = {1: ("ratio", 0.6), 32: ("per_second", 20_000)}
REPLAY_TARGET = 1_000_000
LONG_LOG_TARGET = LOG_EVENTS // 3
"""A log of 50 MB must be open after 3 s."""
HEAD = RunHead(
    phase="RUNNING", is_terminal=False, is_claimable=True, task="task", task_version=1, goal="g" * 60, updated_at=1.0
)


class Figure(msgspec.Struct, frozen=True):
    """One line of the table."""

    case: str
    per_second: float
    floor: float
    target: str = ""
    is_met: bool | None = None

    @property
    def ratio(self) -> float:
        """The part of the floor that was reached."""
        return self.per_second / self.floor


def _row(run: int, version: int) -> Row:
    name = f"{run * 2_654_435_761 + version * 40_503:016x}"
    return Row(event_id=name, type="tool_done", fingerprint=name.encode() * 2, body=name.encode() + b"x" * 284)


def store_steps(folder: Path, runs: int, steps: int) -> float:
    """Return the store's steps per second with so many runs at once."""
    batches = [[_row(run, version) for version in range(1, steps // runs + 1)] for run in range(runs)]

    async def measure() -> float:
        store = SqliteStore(folder / "runs.db")
        for run in range(runs):
            await store.create(f"run-{run}", "", [_row(run, 0)], HEAD)

        async def advance(run: int) -> None:
            for version, row in enumerate(batches[run], start=1):
                await store.append(f"run-{run}", version=version, epoch=0, rows=[row], head=HEAD)

        begun = time.perf_counter()
        await asyncio.gather(*map(advance, range(runs)))
        seconds = time.perf_counter() - begun
        await store.aclose()
        return runs * (steps // runs) / seconds

    return asyncio.run(measure())


ADVANCE = """
UPDATE runs SET version = version + 1, phase = :phase, updated_at = :updated_at
WHERE run_id = :run_id AND version = :version AND epoch = :epoch AND is_terminal = 0
"""
INSERT = "INSERT INTO events (run, position, event_id, type, fingerprint, body) VALUES (:run, :version, :event_id, :type, :fingerprint, :body)"
CREATE = """
INSERT INTO runs (run_id, version, phase, is_terminal, is_claimable, task, task_version, updated_at, created_at, goal)
VALUES (:run_id, 1, 'RUNNING', 0, 1, 'task', 1, 1, 1, :goal)
"""


def raw_steps(folder: Path, runs: int, steps: int) -> float:
    """Return the steps per second of one thread with apsw alone and one commit per round of all runs."""
    path = folder / "raw.db"
    path.touch()
    with closing(Connection(str(path))) as db:
        db.pragma("journal_mode", "wal")
        db.pragma("synchronous", "full")
        for step in migrations("sqlite"):
            db.script(step.script)
        for run in range(runs):
            db.run(CREATE, {"run_id": f"run-{run}", "goal": HEAD.goal})
        rounds = [
            [(run, version, _row(run, version)) for run in range(runs)] for version in range(1, steps // runs + 1)
        ]
        begun = time.perf_counter()
        for group in rounds:
            db.run("BEGIN IMMEDIATE")
            for run, version, row in group:
                _raw_step(db, run, version, row)
            db.run("COMMIT")
        return runs * len(rounds) / (time.perf_counter() - begun)


def _raw_step(db: Connection, run: int, version: int, row: Row) -> None:
    values = {
        "run_id": f"run-{run}",
        "version": version,
        "epoch": 0,
        "phase": HEAD.phase,
        "updated_at": HEAD.updated_at,
    }
    if db.run(ADVANCE, values) != 1:
        raise AssertionError(values)
    event = {
        "run": run + 1,
        "version": version,
        "event_id": row.event_id,
        "type": row.type,
        "fingerprint": row.fingerprint,
        "body": row.body,
    }
    db.run(INSERT, event)


TOOL = ToolSpec("sql_query", idempotent=True)
FIRST = Received(
    TaskRecord("report", 1, "write the report", "code", (CheckSpec("total", "sql"),), (TOOL,)),
    Budget(tool_calls=None, steps=None, wall_seconds=None),
)


def note_log(events: int) -> list[Event]:
    """Return a log of messages, whose payloads hold no JSON of others."""
    return _log([FIRST, *(SteerQueued(note=f"n{number}", text="t" * 110) for number in range(1, events))])


def call_log(events: int, result_bytes: int) -> list[Event]:
    """Return a log of steps with one tool call each, whose results are of that size."""
    arguments = JsonObject({"query": "SELECT sum(total) FROM invoices WHERE country = :country", "country": "Norway"})
    result = JsonData([{"country": "Norway", "note": "n" * result_bytes}])
    data: list[EventData] = [FIRST, PlanAccepted(steps=events), WorkStarted()]
    while len(data) < events:
        step, call = f"s{len(data)}", f"1.{len(data)}"
        data += [
            StepStart(step_id=step),
            ToolCallGiven(step_id=step, call_id=call, name=TOOL.name, arguments=arguments),
            ToolGranted(call_id=call, tool=TOOL, arguments=arguments),
            ToolDone(call_id=call, result=result),
            ToolResultGiven(step_id=step, call_id=call, result=result),
            StepEnd(step_id=step, status="done", result=result),
        ]
    return _log(data[:events])


def _log(data: list[EventData]) -> list[Event]:
    return [
        Event(
            run_id="run",
            event_id=f"{offset:016x}",
            expected_version=offset,
            at=1e9 + offset,
            actor="user:ann",
            data=item,
        )
        for offset, item in enumerate(data)
    ]


def replay_figures(folder: Path, log: list[Event], repetitions: int, wanted: int) -> list[Figure]:
    """Return how fast a log is read, decoded and folded; the store is opened anew each time."""
    path = folder / "runs.db"
    rows, events = [row_of(event) for event in log], len(log)
    asyncio.run(_write(path, rows))
    rounds = [_replay_once(path) for _ in range(repetitions)]
    read, decode, fold, floor = (min(once[part] for once in rounds) for part in range(4))
    whole = min(sum(once[:3]) for once in rounds)
    size = f"{log[-1].type} {sum(len(row.body) for row in rows) / 1e6:.0f} MB"
    bare = events / floor
    return [
        Figure(f"read {size}", events / read, bare),
        Figure(f"decode {size}", events / decode, bare),
        Figure(f"fold {size}", events / fold, bare),
        Figure(f"replay {size}", events / whole, bare, f"{wanted:,}/s", events / whole >= wanted),
    ]


def _replay_once(path: Path) -> tuple[float, float, float, float]:
    """Return the seconds of reading, decoding, folding, and of reading with apsw alone."""
    bodies, reading = asyncio.run(_read(path))
    decoded, decoding = _timed(lambda: decode_events(bodies, run_id="run"))
    _, folding = _timed(lambda: fold_run(decoded))
    _, floor = _timed(lambda: _read_raw(path))
    return reading, decoding, folding, floor


async def _write(path: Path, rows: list[Row]) -> None:
    store = SqliteStore(path)
    await store.create("run", "", rows, HEAD)
    await store.aclose()


async def _read(path: Path) -> tuple[list[bytes], float]:
    begun = time.perf_counter()
    store = SqliteStore(path)
    bodies = list(await store.read("run"))
    seconds = time.perf_counter() - begun
    await store.aclose()
    return bodies, seconds


def _read_raw(path: Path) -> int:
    with closing(Connection(str(path))) as db:
        return len(db.column("SELECT body FROM events WHERE run = 1 ORDER BY position"))


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    begun = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begun


def step_figures(runs: int, steps: int, repetitions: int) -> Figure:
    """Return the store's steps and the floor's, each the best of rounds that take turns."""
    ours: list[float] = []
    floors: list[float] = []
    for _ in range(repetitions):
        for measure, found in ((raw_steps, floors), (store_steps, ours)):
            with tempfile.TemporaryDirectory() as name:
                found.append(measure(Path(name), runs, steps))
    best, floor = max(ours), max(floors)
    kind, wanted = STEPS_TARGET.get(runs, ("", 0.0))
    if not kind:
        return Figure(f"steps, {runs} runs", best, floor)
    is_met = (best / floor if kind == "ratio" else best) >= wanted
    return Figure(
        f"steps, {runs} runs", best, floor, f"{wanted:,}{'/s' if kind == 'per_second' else ' of floor'}", is_met
    )


def main() -> None:
    """Print a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    is_quick = parser.parse_args().quick
    part, repetitions = (10, 2) if is_quick else (1, 5)
    figures = [step_figures(runs, steps // part, repetitions) for runs, steps in STEPS.items()]
    events = LOG_EVENTS // part
    for log, wanted in (
        (note_log(events), REPLAY_TARGET),
        (call_log(events, 60), REPLAY_TARGET),
        (call_log(events, 1_500), LONG_LOG_TARGET),
    ):
        with tempfile.TemporaryDirectory() as name:
            figures += replay_figures(Path(name), log, repetitions, wanted)
    print(f"{'store':<30}{'per second':>14}{'floor':>14}{'ratio':>8}   target")
    for figure in figures:
        verdict = "" if figure.is_met is None else f"{figure.target} {'met' if figure.is_met else 'MISSED'}"
        print(f"{figure.case:<30}{figure.per_second:>14,.0f}{figure.floor:>14,.0f}{figure.ratio:>8.2f}   {verdict}")
    rows = [{**msgspec.structs.asdict(figure), "ratio": figure.ratio} for figure in figures]
    print(json.dumps({"benchmark": "store", "quick": is_quick, "engine": apsw.sqlite_lib_version(), "rows": rows}))


if __name__ == "__main__":
    main()
