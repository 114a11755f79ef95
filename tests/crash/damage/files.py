"""A healthy store, what it says, and many ways to damage its files."""

import random  # noqa: TID251  seeded, so that a damage can be made again
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from string import ascii_letters

from checkrein.codec.wire import decode_events, row_of
from checkrein.errors import DamagedLog, DamagedStore, RunNotFound, StoreError
from checkrein.kernel.events import Event, SteerQueued
from checkrein.ports.store import NewLease, Refusal, Row, RunHead, RunQuery, RunRow
from checkrein.store.sqlite import SqliteStore
from checkrein.testing.manual_clock import ManualClock

RUNS = 6
EVENTS = 25
PAGE_BYTES = 4096


@dataclass(frozen=True)
class Saying:
    """All that a store says about one run."""

    row: RunRow
    events: tuple[Event, ...]
    refusals: tuple[Refusal, ...]
    places: tuple[tuple[int, bytes] | None, ...]
    by_request: str | None


Answer = Saying | tuple[RunRow, ...] | StoreError | DamagedLog
ALL = "all"


async def fill(store: SqliteStore) -> None:
    """Write several runs with logs, leases and refusals; some events need pages of their own."""
    chance = random.Random(5)  # noqa: S311  data, no secret
    for number in range(RUNS):
        run_id = f"run-{number}"
        for version in range(EVENTS):
            rows = [_row(run_id, version, chance)]
            head = RunHead(
                phase="RUNNING",
                is_terminal=False,
                is_claimable=True,
                task="task",
                task_version=1,
                goal="a goal " * 20,
                updated_at=float(version),
            )
            if version == 0:
                await store.create(run_id, f"request-{number}", rows, head)
            elif version == 1:
                await store.claim(run_id, version=1, lease=NewLease(owner="me", seconds=5), rows=rows, head=head)
            else:
                await store.append(run_id, version=version, epoch=1, rows=rows, head=head)
        await store.record_refusal(run_id, Refusal(event_id="e", type="t", code="c", detail="d", actor="a", at=1))


def _row(run_id: str, version: int, chance: random.Random) -> Row:
    text = "".join(chance.choices(ascii_letters, k=chance.choice((20, 200, 300, 1200, 5000))))
    return row_of(
        Event(
            run_id=run_id,
            event_id=str(version),
            expected_version=version,
            at=1.5,
            actor="user:me",
            data=SteerQueued(note=str(version), text=text),
        )
    )


async def healthy(path: Path, *, is_closed: bool) -> dict[str, bytes]:
    """Return the files of a healthy store, closed or as a crash leaves it, with a write-ahead log."""
    store = SqliteStore(path, clock=ManualClock())
    await fill(store)
    crashed = _files(path)
    await store.aclose()
    return _files(path) if is_closed else crashed


def _files(path: Path) -> dict[str, bytes]:
    """Return the store's file and its write-ahead log, if there is one."""
    return {file.name: file.read_bytes() for file in (path, path.with_name(f"{path.name}-wal")) if file.exists()}


def lay(files: dict[str, bytes], folder: Path) -> None:
    """Make these the only files of a folder."""
    for left in folder.iterdir():
        left.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def rewritten(files: dict[str, bytes], folder: Path) -> list[str]:
    """Return which of these files are gone or have other bytes now."""
    return [f"rewritten: {name}" for name, content in files.items() if _bytes(folder / name) != content]


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


async def ask(path: Path) -> dict[str, Answer]:
    """Return what a store says about each run, and of all; any exception that is not one of the store's comes through."""
    store = SqliteStore(path, clock=ManualClock())
    answers = {ALL: await _or_error(_ask_all(store))}
    for number in range(RUNS):
        answers[f"run-{number}"] = await _or_error(_ask_run(store, number))
    await store.aclose()
    return answers


async def _or_error(question: Coroutine[object, object, Answer]) -> Answer:
    try:
        return await question
    except (StoreError, DamagedLog) as error:
        return error


async def _ask_all(store: SqliteStore) -> Answer:
    return tuple(await store.list_runs(RunQuery()))


async def _ask_run(store: SqliteStore, number: int) -> Answer:
    run_id = f"run-{number}"
    return Saying(
        row=await store.get(run_id),
        events=tuple(decode_events(await store.read(run_id), run_id=run_id)),
        refusals=tuple(await store.refusals(run_id)),
        places=tuple([await store.find_event(run_id, str(event)) for event in (0, EVENTS // 2, EVENTS - 1, EVENTS)]),
        by_request=await store.find_request(f"request-{number}"),
    )


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return a file's bytes with one of many damages: a flipped bit, other bytes, a lost page, a cut end."""
    result = bytearray(content)
    place = chance.randrange(len(result))
    page = place // PAGE_BYTES * PAGE_BYTES
    manner = chance.randrange(10)
    if manner < 4:
        result[place] ^= 1 << chance.randrange(8)
    elif manner == 4:
        result[place : place + 64] = chance.randbytes(min(64, len(result) - place))
    elif manner == 5:
        result[page : page + PAGE_BYTES] = bytes(len(result[page : page + PAGE_BYTES]))
    elif manner in {6, 7}:
        del result[place:]
    elif manner == 8:
        del result[page:]
    else:
        # The first hundred bytes say what the file is; a random place seldom hits them.
        result[chance.randrange(100)] = chance.randrange(256)
    return bytes(result)


def faults(answers: dict[str, Answer], truth: dict[str, Answer]) -> list[str]:
    """Return where a store with a damaged file neither refused nor told the truth."""
    return [
        f"{name}: {answer!r:.300}"
        for name, answer in answers.items()
        if not isinstance(answer, DamagedStore | DamagedLog) and answer != truth[name]
    ]


def log_faults(answers: dict[str, Answer], truth: dict[str, Answer]) -> list[str]:
    """Return where a store with a damaged write-ahead log neither refused nor went back to an earlier commit.

    SQLite cannot tell a damaged end of that log from one that a power cut tore, so it goes back to the last commit that is whole.
    """
    return [
        f"{name}: {answer!r:.300}"
        for name, answer in answers.items()
        if name != ALL and not _is_earlier(answer, truth[name])
    ]


def _is_earlier(answer: Answer, truth: Answer) -> bool:
    if not isinstance(answer, Saying) or not isinstance(truth, Saying):
        return isinstance(answer, DamagedStore | DamagedLog | RunNotFound)
    version = len(answer.events)
    return (
        answer.events == truth.events[:version]
        and answer.row.version == version
        and answer.row.head.updated_at == version - 1
        and answer.refusals == truth.refusals[: len(answer.refusals)]
        and answer.by_request == truth.by_request
    )
