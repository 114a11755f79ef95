"""Let the n-th operation on the disk fail, for n = 1, 2, … until a workload meets no failure, and print what came of it as one line of JSON.

`python -m tests.crash.faults --folder F`

The failing disk lies under SQLite's layer of checksums, so it must be there before SQLite's first file: hence a process of its own.
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import TypeVar

import apsw

from checkrein.errors import StoreError
from checkrein.ports.store import Appended, NewLease, Row
from checkrein.store import SqliteOptions, SqliteStore, sqlite_rows
from checkrein.store.sqlite_file import open_store
from checkrein.testing.conformance_base import head, row
from checkrein.testing.manual_clock import ManualClock

T = TypeVar("T")

# A write-ahead log of a few pages, so that moving it into the file is part of the short workload.
OPTIONS = SqliteOptions(is_exclusive=True, checkpoint_pages=6)
EVENTS = 8
FAILURES: tuple[type[apsw.Error], ...] = (apsw.IOError, apsw.FullError)


class FailingDisk(apsw.VFS):
    """The system's files, of which one operation fails."""

    NAME = "failing"

    def __init__(self) -> None:
        super().__init__(self.NAME, "unix", makedefault=True)
        self.left = 0
        self.failure: type[apsw.Error] = apsw.IOError

    def fail_at(self, number: int, failure: type[apsw.Error]) -> None:
        """Let the operation of that number from here on fail; 0 for none."""
        self.left, self.failure = number, failure

    def step(self) -> None:
        """Count one operation.

        Raises:
            apsw.Error: it is the one.
        """
        self.left -= 1
        if self.left == 0:
            raise self.failure("made to fail")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> "FailingFile":  # noqa: N802  apsw's name
        return FailingFile(self, name, flags)


class FailingFile(apsw.VFSFile):
    """A file that asks the disk before each operation."""

    def __init__(self, disk: FailingDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._disk = disk

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._disk.step()
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.step()
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType]  apsw's Buffer is unknown before Python 3.12

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.step()
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.step()
        super().xSync(flags)


class Trial:
    """One run of the workload with one failure."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.doubled: list[str] = []

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call with the same ids until it succeeds; only errors of the store are met with patience."""
        while True:
            try:
                answer = await call()
            except StoreError as error:
                self.errors.append(type(error).__name__)
                continue
            if self.errors and isinstance(answer, Appended) and answer.is_known:
                self.doubled.append(repr(answer))
            return answer

    async def work(self, path: Path) -> None:
        """Create a run, claim it, append to it and end it."""
        store = SqliteStore(path, clock=ManualClock(), options=OPTIONS)
        await self.insist(lambda: store.create("run", "request", [_row(0)], head(at=0)))
        lease = NewLease(owner="me", seconds=5)
        await self.insist(lambda: store.claim("run", version=1, lease=lease, rows=[_row(1)], head=head(at=1)))
        for version in range(2, EVENTS):
            after = head("SUCCEEDED" if version == EVENTS - 1 else "RUNNING", at=version)
            await self.insist(
                lambda v=version, h=after: store.append("run", version=v, epoch=1, rows=[_row(v)], head=h)
            )
        await store.aclose()


def _row(number: int) -> Row:
    return row(f"e{number}", body=f"e{number}".encode() * 300)


def faults(path: Path) -> list[str]:
    """Return what is wrong with the file after the workload."""
    with closing(open_store(path, OPTIONS, is_writer=True)) as db:
        found = sqlite_rows.survey(db)
        bodies = sqlite_rows.read_page(db, "run", 0, 100).bodies
    wrong = list(found.problems)
    if bodies != [_row(number).body for number in range(EVENTS)]:
        wrong.append(f"the log holds {bodies!r:.200}")
    return wrong


def fail_everywhere(
    disk: FailingDisk, failure: type[apsw.Error], folder: Path
) -> Iterator[tuple[Trial, bool, list[str]]]:
    """Yield a trial, whether it met the failure, and what is wrong after it, until one did not meet it."""
    is_met = True
    for number in count(1):
        if not is_met:
            return
        path, trial = folder / f"{failure.__name__}-{number}.db", Trial()
        disk.fail_at(number, failure)
        asyncio.run(trial.work(path))
        is_met = disk.left <= 0
        disk.fail_at(0, failure)
        wrong = [f"{failure.__name__} at {number}: {fault}" for fault in (*faults(path), *trial.doubled)]
        yield trial, is_met, wrong


def main() -> None:
    """Let each operation fail once, in each manner, and print the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    folder: Path = parser.parse_args().folder
    disk, counts, errors, found = FailingDisk(), Counter[str](), Counter[str](), list[str]()
    for failure in FAILURES:
        for trial, is_met, wrong in fail_everywhere(disk, failure, folder):
            errors.update(trial.errors)
            counts.update({"trials": 1, "met": is_met, "told": bool(trial.errors)})
            found += wrong
    sys.stdout.write(json.dumps({**counts, "errors": errors, "wrong": found[:5]}))


if __name__ == "__main__":
    main()
