"""Several processes on one file: nothing is lost, nothing is doubled, and a follower sees all of it in order."""

import asyncio
import sys
from pathlib import Path

from checkrein.store import SqliteStore
from checkrein.testing.conformance_base import head, rows

ROOT = Path(__file__).resolve().parents[3]
NAMES = "xyz"
COUNT = 100


async def test_processes_that_append_to_one_run_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    await store.create("run", "", rows("a"), head())
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.unit.store.appender", path, name, str(COUNT), cwd=ROOT
        )
        for name in NAMES
    ]
    seen: list[bytes] = []
    async for body in store.follow("run"):
        seen.append(body)
        if len(seen) == 1 + COUNT * len(NAMES):
            break
    assert [await child.wait() for child in children] == [0] * len(NAMES)
    assert seen == list(await store.read("run"))
    assert sorted(seen) == sorted([b"a:", *(f"{name}{number}:".encode() for name in NAMES for number in range(COUNT))])
    for name in NAMES:
        own = [body for body in seen if body.startswith(name.encode())]
        assert own == [f"{name}{number}:".encode() for number in range(COUNT)]
    report = await store.report()
    assert (report.events, report.problems) == (1 + COUNT * len(NAMES), ())
    await store.aclose()
