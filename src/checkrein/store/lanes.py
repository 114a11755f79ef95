"""Threads that own a SQLite connection each: one that reads, one that writes, so that no statement ever runs on the event loop.

A lane has a queue, a thread that is started by the first job, and a connection that its thread opens when it needs one. The writer takes all
jobs that wait, of all runs, runs them in one transaction and commits once: one wait for the disk pays for all (group commit). The invariant: a
job's future is resolved only after the commit that holds its writes, and a job that fails has written nothing.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Generic, TypeVar

import apsw

from checkrein.errors import CheckreinError, StoreError
from checkrein.store.sqlite_connection import Connection
from checkrein.store.sqlite_errors import FOREIGN, converted

__all__ = ["Job", "Lane", "Reader", "Writer"]

T = TypeVar("T")

GROUP_LIMIT = 512
"""Jobs in one transaction, at most: others who want to write wait for it."""


class Job(Generic[T]):
    """One operation on its way through a lane.

    Attributes:
        work: what to do with the connection.
        done: resolved on its own loop.
        run_id: the run whose followers must hear of it; `""` for none.
    """

    __slots__ = ("done", "error", "result", "run_id", "work")

    def __init__(self, work: Callable[[Connection], T], done: "asyncio.Future[T]", run_id: str) -> None:
        self.work = work
        self.done = done
        self.run_id = run_id
        self.result: T | None = None
        self.error: Exception | None = None

    def settle(self) -> None:
        """Resolve the future, unless its caller gave up."""
        if self.done.done():
            return
        if self.error is not None:
            self.done.set_exception(self.error)
        else:
            self.done.set_result(self.result)  # pyright: ignore[reportArgumentType]  a job without error has its result


class Lane(ABC):
    """A thread with a queue and a connection.

    Args:
        path: the file, for messages.
        connect: opens the connection; called in the lane's thread, again after the storage failed.
        heard: called on the loop with the run of each job that wrote.
    """

    def __init__(self, path: Path, connect: Callable[[], Connection], heard: Callable[[str], None]) -> None:
        self._path = path
        self._connect = connect
        self._heard = heard
        self._queue: SimpleQueue[Job[object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None
        self._is_closed = False
        self._ended: asyncio.Future[None] | None = None

    async def do(self, work: Callable[[Connection], T], run_id: str = "") -> T:
        """Run `work` in the lane and return what it returns.

        Raises:
            StoreError: the lane is closed, or the storage failed (as its subclasses say).
            CheckreinError: what `work` raised.
        """
        if self._is_closed:
            msg = f"{self._path}: this store is closed; open another one"
            raise StoreError(msg)
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._live, name=f"checkrein-{type(self).__name__.lower()}", daemon=True
            )
            self._thread.start()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put(Job(work, done, run_id))  # pyright: ignore[reportArgumentType]  a queue of jobs of every result
        return await done

    async def aclose(self) -> None:
        """Finish what was accepted and let go of the connection; safe to call again."""
        self._is_closed = True
        if self._thread is None:
            return
        if self._ended is None:
            self._ended = asyncio.get_running_loop().create_future()
            self._queue.put(None)
        await asyncio.shield(self._ended)

    def _live(self) -> None:
        """Be the thread."""
        is_open = True
        while is_open:
            is_open = self._serve(self._take_waiting())
        self._disconnect()
        if self._ended is not None:
            _call_soon(self._ended.get_loop(), self._ended.set_result, None)

    def _take_waiting(self) -> list[Job[object] | None]:
        """Wait for something to do, and return all that is there by then."""
        return [self._queue.get(), *self._take_more()]

    def _take_more(self) -> Iterator[Job[object] | None]:
        """Yield what waits by now, without waiting."""
        for _ in range(self._queue.qsize()):
            yield self._queue.get_nowait()

    @abstractmethod
    def _serve(self, waiting: list[Job[object] | None]) -> bool:
        """Settle jobs; False when one of them was the end."""

    def _opened(self) -> Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _disconnect(self) -> None:
        """Let go of the connection. What it leaves undone is undone for everybody, and what it leaves in the log the next who opens the file finds."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(apsw.Error):
                connection.close()

    def _failed(self, error: Exception) -> Exception:
        """Return our error for what the storage raised, and begin with a new connection."""
        self._disconnect()
        return converted(error, self._path) if isinstance(error, FOREIGN) else error

    def _settle(self, jobs: Iterable[Job[object]]) -> None:
        """Resolve jobs on their loops."""
        by_loop: dict[asyncio.AbstractEventLoop, list[Job[object]]] = {}
        for job in jobs:
            by_loop.setdefault(job.done.get_loop(), []).append(job)
        for loop, settled in by_loop.items():
            _call_soon(loop, self._tell, settled)

    def _tell(self, jobs: list[Job[object]]) -> None:
        for job in jobs:
            job.settle()
            if job.run_id and job.error is None:
                self._heard(job.run_id)


class Reader(Lane):
    """A lane in which each job sees all that was committed before it began."""

    def _serve(self, waiting: list[Job[object] | None]) -> bool:
        for job in waiting:
            if job is None:
                return False
            try:
                job.result = job.work(self._opened())
            except CheckreinError as error:
                job.error = error
            except Exception as error:  # noqa: BLE001  the thread's supervision: whatever it was is the caller's
                job.error = self._failed(error)
            self._settle([job])
        return True


class Writer(Lane):
    """A lane that commits the jobs of all runs in groups.

    Between two groups, when nobody waits for it, it moves the write-ahead log into the file. SQLite would do that within a commit, which would delay the
    answer, and a failure of it would look like one of the commit.

    Args:
        log_pages: how many pages the write-ahead log gathers before they are moved.
    """

    def __init__(
        self, path: Path, connect: Callable[[], Connection], heard: Callable[[str], None], *, log_pages: int
    ) -> None:
        super().__init__(path, connect, heard)
        self._log_pages = log_pages
        self._moved_pages = 0

    def _serve(self, waiting: list[Job[object] | None]) -> bool:
        group: list[Job[object]] = []
        try:
            connection = self._opened()
            connection.run("BEGIN IMMEDIATE")
            is_open = self._attempt_all(connection, waiting, group)
            connection.run("COMMIT")
        except Exception as error:  # noqa: BLE001  the thread's supervision: whatever it was is told to all whose writes are undone
            # Those who came while the storage failed would fail the same way, one patience after the other.
            waiting += self._take_more()
            is_open = None not in waiting
            failure = self._failed(error)
            group = [*group, *(job for job in waiting if job is not None)]
            for job in group:
                # Also where a job was refused: it was by writes that never came to be.
                job.error = failure
        self._settle(group)
        self._move_log()
        return is_open

    def _move_log(self) -> None:
        connection = self._connection
        if connection is None:
            return
        # A log that readers still need goes on growing; one that begins anew is shorter than it was.
        self._moved_pages = min(self._moved_pages, connection.log_pages)
        if connection.log_pages - self._moved_pages >= self._log_pages:
            self._moved_pages = connection.log_pages
            try:
                connection.rows("PRAGMA wal_checkpoint(PASSIVE)")
            except apsw.Error as error:
                # Everything is in the log still; whoever comes next tries again, with a new connection.
                self._failed(error)

    def _attempt_all(self, connection: Connection, waiting: list[Job[object] | None], group: list[Job[object]]) -> bool:
        """Move jobs from `waiting` to `group` and run them, and those that come meanwhile; False when one of them was the end."""
        while waiting:
            job = waiting.pop(0)
            if job is None:
                return False
            group.append(job)
            try:
                job.result = job.work(connection)
            except CheckreinError as error:
                job.error = error
            if not waiting and len(group) < GROUP_LIMIT:
                waiting.extend(self._take_more())
        return True


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[T], None], argument: T) -> None:
    """Call back on a loop, unless it is closed and nobody waits any more."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, argument)
