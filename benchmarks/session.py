"""What does a session cost per step: in memory, over the loop that one would write by hand; durable, over the store alone; and read back from its log?

One step calls an async tool of one line whose arguments and result change each time, so it is four events: start, call, result, end. The floor in memory is measured in the
same process: a loop that looks the tool up, awaits it and keeps one frozen record per event. The floor of durable steps is the same store with the same bytes, appended by as
many coroutines at once and nothing around them. Targets: a step in memory costs at most 15 % more after 4,000 steps than after 100; a log of 51,200 events and 50 MB opens, as a
worker opens it, in less than 3 s, and its session folds at a million events a second.

Processor time is measured, not the wall's, except where the disk is waited for; the least disturbed of the repetitions counts. `--quick` does a part of it, once. The
script reports; it exits 1 only when something could not be run.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec

from checkrein import Budget, HarnessLoop, Phase, PullRequest, Step, Task, Worker, tool
from checkrein.clock import SystemClock, SystemIds
from checkrein.codec.wire import skim_events
from checkrein.kernel.events import Event, EventData
from checkrein.kernel.session import fold_session
from checkrein.ports.store import Row, RunHead
from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.runs.journal import Journal
from checkrein.runs.worker import WorkerOptions
from checkrein.store import MemoryStore, SqliteStore
from checkrein.verify.functions import check

UNLIMITED = Budget(turns=None, tool_calls=None, steps=None, replans=None, wall_seconds=None)
RUNS = 32
LOG_EVENTS = 51_200
LOG_BYTES = 50_000_000
TARGET_GROWTH = 1.15
TARGET_FOLD = 1_000_000
TARGET_OPEN_SECONDS = 3.0
RESULT_BYTES = 3_500
"""A result of about that size in every step makes a log of 50 MB of 51,200 events."""


class Figure(msgspec.Struct, frozen=True):
    """One line of the table."""

    case: str
    value: float
    unit: str
    floor: float | None = None
    ratio: float | None = None
    target: str = ""
    is_met: bool | None = None


@tool(idempotent=True)
async def add(number: int) -> dict[str, int]:
    """Add one."""
    return {"sum": number + 1}


@check(title="nothing to prove: the steps are what is measured")
def nothing(_context: CheckContext) -> Measurement:
    """Pass."""
    return Measurement(passed=True, text="nothing to prove")


def planner_of(steps: int) -> Callable[..., Awaitable[Sequence[Step]]]:
    """Return a planner of one plan with so many steps."""

    async def planner(_goal: str, history: Sequence[object], _last_error: object) -> Sequence[Step]:
        if history:
            return []
        return [
            Step(id=number, description="add one", tool_name="add", arguments={"number": number})
            for number in range(steps)
        ]

    return planner


class Record(msgspec.Struct, frozen=True):
    """What the floor keeps of an event."""

    offset: int
    type: str
    data: object


async def by_hand(steps: int) -> float:
    """Return the microseconds per step of a hand-written loop."""

    async def body(number: int) -> dict[str, int]:
        return {"sum": number + 1}

    tools = {"add": body}
    plan = [(number, "add", {"number": number}) for number in range(steps)]
    log: list[Record] = []
    begun = time.process_time()
    for name, wanted, arguments in plan:
        log.append(Record(len(log), "step.start", name))
        log.append(Record(len(log), "tool.call", arguments))
        result = await tools[wanted](**arguments)
        log.append(Record(len(log), "tool.result", result))
        log.append(Record(len(log), "step.end", result))
    return (time.process_time() - begun) / steps * 1e6


async def in_memory(steps: int, *, makes_calls: bool) -> float:
    """Return the microseconds per step of a session whose calls are made by the loop, or brought by the caller."""
    loop = HarnessLoop(planner=planner_of(steps), budget=UNLIMITED, tools=[add] if makes_calls else None)
    begun = time.process_time()
    out = await loop.run("add")
    while isinstance(out, PullRequest):
        out = await loop.resume({"result": {"sum": 1}})
    if out.reason != "goal_met":
        raise AssertionError(out)
    return (time.process_time() - begun) / steps * 1e6


async def durable(store: SqliteStore | MemoryStore, folder: Path, steps: int) -> float:
    """Return the steps per second of 32 runs on one worker, each of so many steps."""
    task = Task(
        name="bench",
        goal="add",
        planner=planner_of(steps),
        tools=[add],
        checks=[nothing],
        budget=UNLIMITED,
        workspace=folder,
    )
    worker = Worker(store=store, tasks=[task], options=WorkerOptions(concurrency=RUNS, claims="named"))
    runs = [await worker.submit(task) for _ in range(RUNS)]
    begun = time.perf_counter()
    states = await asyncio.gather(*map(worker.advance, runs))
    seconds = time.perf_counter() - begun
    if any(state.phase is not Phase.SUCCEEDED for state in states):
        raise AssertionError(states[0].outcome)
    return RUNS * steps / seconds


async def store_alone(store: SqliteStore, steps: int) -> float:
    """Return the steps per second when as many coroutines append as many batches of the same size and do nothing else."""
    head = RunHead(
        phase="RUNNING", is_terminal=False, is_claimable=True, task="task", task_version=1, goal="add", updated_at=1.0
    )

    def row(run: int, version: int) -> Row:
        name = f"{run * 2_654_435_761 + version * 40_503:016x}"
        return Row(event_id=name, type="tool_done", fingerprint=name.encode() * 2, body=name.encode() + b"x" * 200)

    batches = [
        [[row(run, 3 * step + part + 1) for part in range(3)] for step in range(2 * steps)] for run in range(RUNS)
    ]
    for run in range(RUNS):
        await store.create(f"run-{run}", "", [row(run, 0)], head)

    async def advance(run: int) -> None:
        for step, rows in enumerate(batches[run]):
            await store.append(f"run-{run}", version=3 * step + 1, epoch=0, rows=rows, head=head)

    begun = time.perf_counter()
    await asyncio.gather(*map(advance, range(RUNS)))
    return RUNS * steps / (time.perf_counter() - begun)


async def long_log(folder: Path, events: int) -> tuple[list[bytes], Path]:
    """Return the stored events of one real run with large results, and the file they are in."""

    @tool(idempotent=True)
    async def look(number: int) -> dict[str, object]:
        return {"number": number, "text": "r" * RESULT_BYTES}

    steps = events // 6
    task = Task(
        name="long",
        goal="look",
        planner=_looking(steps),
        tools=[look],
        checks=[nothing],
        budget=UNLIMITED,
        workspace=folder / "out",
    )
    path = folder / "long.db"
    store = SqliteStore(path)
    worker = Worker(store=store, tasks=[task], options=WorkerOptions(claims="named"))
    run_id = await worker.submit(task)
    await worker.advance(run_id)
    bodies = list(await store.read(run_id))
    await store.aclose()
    return bodies, path


def _looking(steps: int) -> Callable[..., Awaitable[Sequence[Step]]]:
    async def planner(_goal: str, history: Sequence[object], _last_error: object) -> Sequence[Step]:
        return [
            Step(id=number, description="look", tool_name="look", arguments={"number": number})
            for number in range(0 if history else steps)
        ]

    return planner


async def opening(path: Path, run_id: str) -> float:
    """Return the seconds that it takes to open a run as a worker does, with both folds."""
    store = SqliteStore(path)
    begun = time.perf_counter()
    journal = await Journal.open(store, run_id, clock=SystemClock(), ids=SystemIds())
    seconds = time.perf_counter() - begun
    await store.aclose()
    if journal.state.phase is not Phase.SUCCEEDED:
        raise AssertionError(journal.state.phase)
    return seconds


class Bare(msgspec.Struct, frozen=True):
    """What the floor of a fold keeps: the fields that change with a step."""

    count: int = 0
    phase: str = ""
    last: EventData | None = None


def bare_fold(events: Sequence[Event]) -> Bare:
    """Fold events into a new frozen record each, which is the least that a fold can do."""
    state = Bare()
    for event in events:
        state = Bare(state.count + 1, event.data.type, event.data)
    return state


def _per_second(work: Callable[[], object], count: int) -> float:
    begun = time.process_time()
    work()
    return count / (time.process_time() - begun)


def of_memory(repeats: int, sizes: Sequence[int]) -> list[Figure]:
    """Return the figures of sessions in memory."""
    asyncio.run(in_memory(50, makes_calls=True))  # the first call compiles the tool's schema
    figures: list[Figure] = []
    for makes_calls in (False, True):
        who = "made by the loop" if makes_calls else "brought by the caller"
        costs = {
            steps: min(asyncio.run(in_memory(steps, makes_calls=makes_calls)) for _ in range(repeats))
            for steps in sizes
        }
        floor = min(asyncio.run(by_hand(sizes[-1])) for _ in range(repeats))
        figures += [
            Figure(f"step in memory, call {who}, {steps} steps", cost, "µs", floor, cost / floor)
            for steps, cost in costs.items()
        ]
        growth = costs[sizes[-1]] / costs[sizes[0]]
        figures.append(
            Figure(
                f"growth to {sizes[-1]} steps, call {who}",
                growth,
                "×",
                target=f"≤ {TARGET_GROWTH}",
                is_met=growth <= TARGET_GROWTH,
            )
        )
    return figures


def of_durable(repeats: int, steps: int) -> list[Figure]:
    """Return the figures of durable steps."""

    async def once(folder: Path) -> tuple[float, float, float]:
        async with (
            aclosing(SqliteStore(folder / "floor.db")) as floor,
            aclosing(SqliteStore(folder / "runs.db")) as store,
        ):
            alone = await store_alone(floor, steps)
            return alone, await durable(store, folder / "a", steps), await durable(MemoryStore(), folder / "b", steps)

    found: list[tuple[float, float, float]] = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            found.append(asyncio.run(once(Path(folder))))
    alone, whole, memory = (max(item[place] for item in found) for place in range(3))
    return [
        Figure(f"durable steps at {RUNS} runs, whole stack on SQLite", whole, "/s", alone, whole / alone),
        Figure("the same on the store in memory: what the processor allows", memory, "/s"),
    ]


def of_log(repeats: int, events: int) -> list[Figure]:
    """Return the figures of a long log."""
    with tempfile.TemporaryDirectory() as name:
        bodies, path = asyncio.run(long_log(Path(name), events))
        run_id = json.loads(bodies[0])["run_id"]
        seconds = min(asyncio.run(opening(path, run_id)) for _ in range(repeats))
        size = sum(map(len, bodies))
        decoded = list(skim_events(bodies, run_id=run_id))
        folded = max(_per_second(lambda: fold_session(decoded), len(decoded)) for _ in range(repeats))
        floor = max(_per_second(lambda: bare_fold(decoded), len(decoded)) for _ in range(repeats))
    return [
        Figure(
            f"open a run of {len(bodies):,} events, {size / 1e6:.0f} MB",
            seconds,
            "s",
            target=f"< {TARGET_OPEN_SECONDS:g}",
            is_met=seconds < TARGET_OPEN_SECONDS,
        ),
        Figure("fold of its session", folded, "/s", floor, folded / floor, f"≥ {TARGET_FOLD:,}", folded >= TARGET_FOLD),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="measure a part of it, once")
    is_quick = parser.parse_args().quick
    figures = [
        *of_memory(1 if is_quick else 5, (100, 400) if is_quick else (100, 1_000, 4_000)),
        *of_durable(1 if is_quick else 3, 10 if is_quick else 100),
        *of_log(1 if is_quick else 3, LOG_EVENTS // 16 if is_quick else LOG_EVENTS),
    ]
    for figure in figures:
        ratio = "" if figure.ratio is None else f"{figure.ratio:>7.2f} × floor of {figure.floor:,.1f}"
        verdict = "" if figure.is_met is None else f"{figure.target:>14}  {'met' if figure.is_met else 'MISSED'}"
        print(f"{figure.case:<62}{figure.value:>12,.2f} {figure.unit:<4}{ratio:<32}{verdict}")
    print(json.dumps([msgspec.to_builtins(figure) for figure in figures]))


if __name__ == "__main__":
    main()
