"""A write-ahead log that ends in the middle of a commit: that commit is gone, all others are there, and the run goes on."""

import asyncio
from pathlib import Path

from checkrein.store import SqliteStore
from checkrein.testing.conformance_base import head, row

FRAME_BYTES = 4096 + 24


async def _torn(folder: Path) -> tuple[dict[str, bytes], int]:
    """Return the files of a crashed store, and where in the write-ahead log its last commit begins."""
    path = folder / "whole.db"
    log = folder / "whole.db-wal"
    store = SqliteStore(path)
    await store.create("run", "", [row("e0")], head(at=0))
    begin = 0
    for version in range(1, 6):
        begin = log.stat().st_size
        await store.append("run", version=version, epoch=None, rows=[row(f"e{version}")], head=head(at=version))
    files = {"": path.read_bytes(), "-wal": log.read_bytes()}
    await store.aclose()
    return files, begin


def _places(begin: int, end: int) -> list[int]:
    """Return every byte near the borders of frames and headers, and some between."""
    near = {begin + frame + byte for frame in range(0, end - begin, FRAME_BYTES) for byte in range(-30, 31)}
    return sorted(place for place in {*near, *range(begin, end, 61)} if begin <= place < end)


async def _go_on(path: Path, files: dict[str, bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the log as it is found, and as it is after another append and another start."""
    for name, content in files.items():
        path.with_name(path.name + name).write_bytes(content)
    store = SqliteStore(path)
    found = list(await store.read("run"))
    await store.append("run", version=len(found), epoch=None, rows=[row("next")], head=head())
    await store.aclose()
    store = SqliteStore(path)
    after = list(await store.read("run"))
    assert (await store.report()).problems == ()
    await store.aclose()
    return found, after


def test_a_torn_last_commit_is_dropped_and_the_next_one_is_kept(fast_folder: Path) -> None:
    async def scenario() -> None:
        files, begin = await _torn(fast_folder)
        whole = files["-wal"]
        kept = [f"e{version}:".encode() for version in range(5)]
        places = _places(begin, len(whole))
        assert len(places) > 150
        for number, place in enumerate(places):
            # A file may also have its length and not its content.
            tail = whole[:place] + (bytes(len(whole) - place) if number % 2 else b"")
            found, after = await _go_on(fast_folder / f"{place}.db", {**files, "-wal": tail})
            assert (place, found) == (place, kept)
            assert after == [*kept, b"next:"]
        found, after = await _go_on(fast_folder / "all.db", files)
        assert (found, after) == ([*kept, b"e5:"], [*kept, b"e5:", b"next:"])

    asyncio.run(scenario())
