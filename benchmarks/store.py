"""How many durable steps a second does the SQLite store make, and how fast does it give a log back?

A step is one event of about 300 bytes, appended by compare-and-set and committed to the disk. Its floor is measured in the same run, in turns with the
store: one thread that uses apsw alone, with the same tables, the same two statements per step and one commit per round of all runs. Targets: at one run at
least 0.6 of the floor; at 32 runs at least 20,000 steps a second.

A log is read, decoded and folded (replayed), or opened with both folds, as a worker does. The floor of reading is one bare statement on one connection; that
of decoding and folding is msgspec with the same fields that calls nothing of ours, and a loop that counts. Targets: decoding and folding at least 0.38 of
their floor and, with reading, a million events a second; a log of 51,200 events and 50 MB open in less than 3 s. This is processor time, as far as it is not
the disk that is waited for.

The figures are those of the least disturbed of the repetitions. `--quick` does a tenth, twice. The script reports; it exits 1 only when something could not be run.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Union, get_args

import apsw
import msgspec

from checkrein.clock import SystemClock, SystemIds
from checkrein.codec.wire import row_of, skim_events
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import (
    CheckSpec,
    Event,
    EventData,
    LeaseTaken,
    PlanAccepted,
    PlanCommit,
    PlanDraft,
    Received,
    SessionStart,
    SteerQueued,
    StepEnd,
    StepSpec,
    StepStart,
    TaskRecord,
    ToolCallGiven,
    ToolDone,
    ToolGranted,
    ToolResultGiven,
    ToolSpec,
    TurnFinished,
    TurnGranted,
    TurnStart,
    WorkStarted,
)
from checkrein.kernel.run import fold_run
from checkrein.ports.store import Row, RunHead
from checkrein.runs.journal import Journal
from checkrein.store import SqliteStore
from checkrein.store.queries import migrations
from checkrein.store.sqlite_connection import Connection
from checkrein.values import JsonData, JsonObject

STEPS = {1: 600, 8: 3_200, 32: 9_600, 200: 20_000}
"""Steps to make with so many runs at once, in one of several short turns: a shared disk is seldom quiet for long."""
LOG_EVENTS = 51_200
STEPS_TARGET = {1: ("ratio", 0.6), 32: ("per_second", 20_000)}
FOLD_TARGET = 0.38
"""Decoding and folding beside the least that one can do: 1.0 of 2.6 million events a second."""
REPLAY_TARGET = 1_000_000
OPEN_TARGET = LOG_EVENTS // 3
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
    Budget(turns=None, tool_calls=None, steps=None, replans=None, wall_seconds=None),
)
PLAN_STEPS = 100
USERS = (Received, SessionStart, SteerQueued)


def note_log(events: int) -> list[Event]:
    """Return a log of messages, whose payloads hold no JSON of others."""
    return _log([FIRST, *(SteerQueued(note=f"n{number}", text="t" * 110) for number in range(1, events))])


def mixed_log(events: int, result_bytes: int) -> list[Event]:
    """Return a log of plans of 100 steps with one tool call each, whose results are of about that size: what a worker writes."""
    data: list[EventData] = [FIRST, SessionStart(goal="write the report"), LeaseTaken(lease=1, owner="w", folder="run")]
    turn = 0
    while len(data) < events:
        turn += 1
        data += _planning(turn)
        for number in range(PLAN_STEPS):
            data += _step(turn, number, JsonData({"rows": number, "note": "n" * result_bytes}))
    return _log(data[:events])


def _planning(turn: int) -> list[EventData]:
    steps = tuple(
        StepSpec(f"s{number}", "ask the database", TOOL.name, _arguments(number)) for number in range(PLAN_STEPS)
    )
    accepted = PlanAccepted(len(steps), "first" if turn == 1 else "continuation")
    begun: list[EventData] = [WorkStarted()] if turn == 1 else []
    planned = (TurnStart(turn), TurnGranted(turn), PlanDraft(turn, steps), TurnFinished(turn), PlanCommit(turn, steps))
    return [*planned, accepted, *begun]


def _arguments(number: int) -> JsonObject:
    return JsonObject({"table": f"invoices_{number}"})


def _step(turn: int, number: int, result: JsonData) -> list[EventData]:
    step, call, arguments = f"s{number}", f"{turn}.{number}", _arguments(number)
    return [
        StepStart(step),
        ToolCallGiven(step, call, TOOL.name, arguments),
        ToolGranted(call, TOOL, arguments),
        ToolResultGiven(step, call, result),
        ToolDone(call, result),
        StepEnd(step, "done", result),
    ]


def _log(data: list[EventData]) -> list[Event]:
    return [
        Event(
            run_id="run",
            event_id=f"{offset:016x}",
            expected_version=offset,
            at=1e9 + offset,
            actor="user:ann" if isinstance(item, USERS) else "worker:w",
            data=item,
            epoch=None if isinstance(item, USERS) else 1,
            elapsed=0.0 if isinstance(item, USERS) else offset / 1_000,
        )
        for offset, item in enumerate(data)
    ]


def _bare_decoder() -> Callable[[bytes], msgspec.Struct]:
    """Return a decoder of events of the same types and fields, of which none calls anything of ours but for the first event and the plans."""
    payloads = tuple(_bare(kind, {}) for kind in get_args(EventData))
    event = _bare(Event, {"data": Union[payloads]})  # noqa: UP007  a union of types made at run time

    def json_of(kind: type[JsonObject], value: object) -> object:
        return kind.from_canonical(msgspec.json.encode(value))

    return msgspec.json.Decoder(event, dec_hook=json_of).decode


def _bare(kind: type[msgspec.Struct], types: dict[str, object]) -> type[msgspec.Struct]:
    fields = [(item.name, types.get(item.name, item.type), item.default) for item in msgspec.structs.fields(kind)]
    return msgspec.defstruct(
        kind.__name__,
        [(name, type_) if default is msgspec.NODEFAULT else (name, type_, default) for name, type_, default in fields],
        tag=kind.__struct_config__.tag,
        frozen=True,
        gc=False,
        forbid_unknown_fields=True,
    )


class Round(msgspec.Struct, frozen=True):
    """Processor seconds of one reading of a log: ours, and those of the floors."""

    read: float
    fold: float
    opened: float
    raw_read: float
    bare: float


def replay_figures(folder: Path, log: list[Event], kind: str, repetitions: int, *, is_long: bool) -> list[Figure]:
    """Return how fast a log is read, decoded and folded, and opened; the store is opened anew each time."""
    path, events = folder / "runs.db", len(log)
    rows = [row_of(event) for event in log]
    asyncio.run(_write(path, rows))
    name = f"{kind} {sum(len(row.body) for row in rows) // events:,} B"
    log.clear()
    rows.clear()
    decode = _bare_decoder()
    rounds = [asyncio.run(_replay_once(path, decode)) for _ in range(repetitions)]
    read, fold, opened, raw_read, bare = (
        min(getattr(once, part) for once in rounds) for part in Round.__struct_fields__
    )
    floor, whole = events / (raw_read + bare), events / (read + fold)
    ratio = bare / fold
    return [
        Figure(f"read {name}", events / read, events / raw_read),
        Figure(f"decode, fold {name}", events / fold, events / bare, f"{FOLD_TARGET} of floor", ratio >= FOLD_TARGET),
        Figure(f"replay {name}", whole, floor)
        if is_long
        else Figure(f"replay {name}", whole, floor, f"{REPLAY_TARGET:,}/s", whole >= REPLAY_TARGET),
        Figure(f"open {name}", events / opened, floor, f"{OPEN_TARGET:,}/s", events / opened >= OPEN_TARGET),
    ]


async def _replay_once(path: Path, bare: Callable[[bytes], msgspec.Struct]) -> Round:
    times = [time.process_time()]
    store = SqliteStore(path)
    bodies = list(await store.read("run"))
    times.append(time.process_time())
    fold_run(skim_events(bodies, run_id="run"))
    times.append(time.process_time())
    await Journal.open(store, "run", clock=SystemClock(), ids=SystemIds())
    times.append(time.process_time())
    await store.aclose()
    times.append(time.process_time())
    _read_raw(path)
    times.append(time.process_time())
    _count(map(bare, bodies))
    times.append(time.process_time())
    read, fold, opened, _, raw_read, counted = (after - before for before, after in pairwise(times))
    return Round(read, fold, opened, raw_read, counted)


def _count(events: Iterable[msgspec.Struct]) -> int:
    """Do the least that a fold of events can do."""
    version = 0
    for _ in events:
        version += 1
    return version


async def _write(path: Path, rows: list[Row]) -> None:
    store = SqliteStore(path)
    await store.create("run", "", rows, HEAD)
    await store.aclose()


def _read_raw(path: Path) -> int:
    with closing(Connection(str(path))) as db:
        return len(db.column("SELECT body FROM events WHERE run = 1 ORDER BY position"))


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
    for log, kind, is_long in (
        (note_log(events), "notes", False),
        (mixed_log(events, 10), "steps", False),
        (mixed_log(events, 1_600), "steps", True),
    ):
        with tempfile.TemporaryDirectory() as name:
            figures += replay_figures(Path(name), log, kind, repetitions, is_long=is_long)
    print(f"{'store':<34}{'per second':>14}{'floor':>14}{'ratio':>8}   target")
    for figure in figures:
        verdict = "" if figure.is_met is None else f"{figure.target} {'met' if figure.is_met else 'MISSED'}"
        print(f"{figure.case:<34}{figure.per_second:>14,.0f}{figure.floor:>14,.0f}{figure.ratio:>8.2f}   {verdict}")
    rows = [{**msgspec.structs.asdict(figure), "ratio": figure.ratio} for figure in figures]
    print(json.dumps({"benchmark": "store", "quick": is_quick, "engine": apsw.sqlite_lib_version(), "rows": rows}))


if __name__ == "__main__":
    main()
