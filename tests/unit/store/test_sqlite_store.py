"""How a SQLite store works inside: group commits, locks of others, followers, cancellation and closing."""

import asyncio
import gc
import re
from collections.abc import AsyncIterator, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from checkrein.clock import spawn
from checkrein.errors import Conflict, StoreBusy, StoreError
from checkrein.ports.store import RunQuery
from checkrein.store import SqliteOptions, SqliteStore
from checkrein.store.queries import SQLITE
from checkrein.store.sqlite import PAGE_EVENTS
from checkrein.store.sqlite_connection import Connection
from checkrein.store.sqlite_file import open_store
from checkrein.testing.conformance_base import head, refused, row, rows
from checkrein.testing.manual_clock import ManualClock

FRAME_BYTES = 24 + 4096


def commits(path: Path) -> int:
    """Return how many commits a write-ahead log holds: frames whose header says how large the file is after them."""
    log = path.with_name(f"{path.name}-wal").read_bytes()
    return sum(any(log[place + 4 : place + 8]) for place in range(32, len(log), FRAME_BYTES))


@contextmanager
def locked(path: Path) -> Generator[Connection]:
    """Hold the write lock, as another process would."""
    with closing(open_store(path, SqliteOptions(), is_writer=True)) as other:
        other.run("BEGIN IMMEDIATE")
        yield other
        other.run("COMMIT")


async def following(bodies: AsyncIterator[bytes]) -> bytes:
    """Return the next body; a task needs a coroutine."""
    return await anext(bodies)


async def test_operations_that_wait_together_share_a_commit(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    for number in range(50):
        await store.create(f"run{number}", "", rows("a"), head())
    before = commits(path)
    await asyncio.gather(
        *(store.append(f"run{number}", version=1, epoch=None, rows=rows("b"), head=head()) for number in range(50))
    )
    assert 1 <= commits(path) - before <= 10
    assert {run.version for run in await store.list_runs(RunQuery())} == {2}
    await store.aclose()


async def test_a_refused_operation_does_not_disturb_others_in_its_commit(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db")
    await store.create("run", "", rows("a"), head())
    calls = [
        store.append("run", version=1 + number // 2, epoch=None, rows=rows(f"e{number}"), head=head())
        for number in range(20)
    ]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(outcome, Conflict) for outcome in outcomes] == [False, True] * 10
    assert list(await store.read("run")) == [b"a:", *(f"e{number}:".encode() for number in range(0, 20, 2))]
    await store.aclose()


async def test_a_lock_of_another_process_is_waited_for_and_then_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SqliteStore(path, options=SqliteOptions(patience_seconds=0.05))
    await store.create("run", "", rows("a"), head())
    with locked(path):
        calls = [
            store.append("run", version=1, epoch=None, rows=rows(f"e{number}"), head=head()) for number in range(20)
        ]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {StoreBusy}
        # Readers do not wait for writers.
        assert (await store.get("run")).version == 1
    assert (await store.append("run", version=1, epoch=None, rows=rows("b"), head=head())).version == 2
    await store.aclose()


async def test_a_lock_that_is_let_go_in_time_is_got(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    await store.create("run", "", rows("a"), head())
    with locked(path):
        waiting = spawn(store.append("run", version=1, epoch=None, rows=rows("b"), head=head()), name="append")
        for _ in range(20):
            await store.get("run")
        assert not waiting.done()
    assert (await waiting).version == 2
    await store.aclose()


async def test_a_follower_needs_no_time_to_pass_for_what_its_own_store_wrote(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db", clock=ManualClock())
    await store.create("run", "", rows("a"), head())
    bodies = aiter(store.follow("run"))
    assert await anext(bodies) == b"a:"
    for version in range(1, 5):
        waiting = spawn(following(bodies), name="follower")
        await store.append("run", version=version, epoch=None, rows=rows(f"e{version}"), head=head())
        assert await waiting == f"e{version}:".encode()
    await store.aclose()


async def test_a_follower_looks_again_for_what_others_wrote_and_reads_only_then(tmp_path: Path) -> None:
    clock = ManualClock()
    store, other = (SqliteStore(tmp_path / "runs.db", clock=clock) for _ in range(2))
    await store.create("run", "", rows("a"), head())
    bodies = aiter(store.follow("run"))
    assert await anext(bodies) == b"a:"
    waiting = spawn(following(bodies), name="follower")
    await clock.wait_for_timers()
    await other.append("run", version=1, epoch=None, rows=rows("b"), head=head())
    await store.get("run")
    assert not waiting.done()
    await clock.advance(1)
    assert await waiting == b"b:"
    await store.aclose()
    await other.aclose()


async def test_a_long_log_is_followed_whole(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db")
    batch = [row(f"e{number}") for number in range(PAGE_EVENTS)]
    await store.create("run", "", batch, head())
    seen = 0
    async for _ in store.follow("run"):
        seen += 1
        if seen == PAGE_EVENTS:
            await store.append("run", version=seen, epoch=None, rows=rows("end"), head=head("FAILED"))
    assert seen == PAGE_EVENTS + 1
    await store.aclose()


async def test_a_follower_that_goes_away_leaves_nothing_behind(tmp_path: Path) -> None:
    clock = ManualClock()
    store = SqliteStore(tmp_path / "runs.db", clock=clock)
    await store.create("run", "", rows("a"), head())

    async def follow() -> None:
        async for _ in store.follow("run"):
            pass

    tasks = [spawn(follow(), name="follower") for _ in range(3)]
    await clock.wait_for_timers(3)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    gc.collect()
    assert clock.timers == 0
    await store.aclose()


async def test_closing_finishes_what_was_accepted(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    await store.create("run", "", rows("a"), head())
    appends = [
        spawn(store.append("run", version=version, epoch=None, rows=rows(f"e{version}"), head=head()), name="append")
        for version in range(1, 30)
    ]
    await asyncio.sleep(0)
    await asyncio.gather(store.aclose(), store.aclose())
    assert [(await append).version for append in appends] == list(range(2, 31))
    assert [file.name for file in path.parent.iterdir()] == ["runs.db"]


async def test_a_store_that_failed_to_open_opens_when_the_cause_is_gone(tmp_path: Path) -> None:
    blocker = tmp_path / "folder"
    blocker.write_text("in the way", encoding="utf-8")
    store = SqliteStore(blocker / "runs.db")
    await refused(StoreError, store.create("run", "", rows("a"), head()))
    await refused(StoreError, store.get("run"))
    blocker.unlink()
    await store.create("run", "", rows("a"), head())
    assert (await store.get("run")).version == 1
    await store.aclose()


async def test_the_file_can_be_used_from_one_loop_after_another(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "runs.db")
    await asyncio.to_thread(asyncio.run, store.create("run", "", rows("a"), head()))
    await asyncio.to_thread(asyncio.run, store.append("run", version=1, epoch=None, rows=rows("b"), head=head()))
    assert (await store.get("run")).version == 2
    await store.aclose()


# A scan of a table is right only where all of it is wanted.
SCANS = {"count_all", "find_gaps", "list_runs"}


@pytest.mark.parametrize("name", sorted(set(SQLITE.__struct_fields__) - SCANS))
def test_statements_find_their_rows_by_an_index(name: str, tmp_path: Path) -> None:
    statement: str = getattr(SQLITE, name)
    values = dict.fromkeys(re.findall(r":(\w+)", statement), 1)
    with closing(open_store(tmp_path / "runs.db", SqliteOptions(), is_writer=True)) as db:
        plan = [str(step[3]) for step in db.rows(f"EXPLAIN QUERY PLAN {statement}", values)]
    assert [step for step in plan if step.startswith("SCAN") and "json_each" not in step] == []
