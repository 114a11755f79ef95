"""`SqliteStore`: all runs in one SQLite file that survives power loss.

This is the asynchronous face: it checks arguments, hands operations to a thread that writes and one that reads (`lanes`), and serves followers.
What an operation does to rows stands in `sqlite_rows`, how the file is made and opened in `sqlite_file`. The invariant: nothing here blocks the event loop,
and no error of SQLite's leaves it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from os import PathLike, fspath
from pathlib import Path

import apsw

from checkrein.clock import SystemClock
from checkrein.errors import DamagedStore, DataError
from checkrein.ports.clock import Clock
from checkrein.ports.store import Appended, NewLease, Refusal, Row, RunHead, RunQuery, RunRow, StoreReport
from checkrein.store import border, sqlite_rows
from checkrein.store.followers import Followers
from checkrein.store.lanes import Reader, Writer
from checkrein.store.sqlite_connection import Connection
from checkrein.store.sqlite_file import SqliteOptions, open_store
from checkrein.store.sqlite_rows import Batch, Survey

__all__ = ["SqliteOptions", "SqliteStore"]

POLL_SECONDS = 0.1
"""How often a follower looks for what other processes wrote; what this process writes it hears at once."""
PAGE_EVENTS = 2000
"""Events read in one go, so that short reads get in between the parts of a long one."""


class SqliteStore:
    """Runs in one SQLite file; any number of processes of one machine may use it at once.

    The file (0600) and missing folders above it (0700) are made on first use. Constructing a store touches nothing.

    An error that the storage raised while it was told to commit (a disk that fails) leaves the outcome open until the next commit or restart: repeat
    the call with the same ids.

    Args:
        path: the file, on a local disk: SQLite's locks do not work over networks.
        clock: decides when a lease is over; the system's by default.
        options: how SQLite is used.

    Raises:
        DataError: no file can have that path.
    """

    def __init__(
        self, path: str | PathLike[str], *, clock: Clock | None = None, options: SqliteOptions | None = None
    ) -> None:
        if not fspath(path) or "\0" in fspath(path):
            msg = f"store path {fspath(path)!r}: expected the path of a file"
            raise DataError(msg)
        self._path = Path(path).absolute()
        self._clock = clock or SystemClock()
        self._options = options or SqliteOptions()
        self._followers = Followers()
        self._writer = Writer(
            self._path,
            partial(self._connect, is_writer=True),
            self._followers.ring,
            log_pages=self._options.checkpoint_pages,
        )
        self._reader = Reader(self._path, partial(self._connect, is_writer=False), self._followers.ring)

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def _connect(self, *, is_writer: bool) -> Connection:
        return open_store(self._path, self._options, is_writer=is_writer)

    async def create(self, run_id: str, request_id: str, rows: Sequence[Row], head: RunHead, *, epoch: int = 0) -> str:
        """Create a run with its first batch; see the port."""
        border.check_run_id(run_id)
        border.check_request_id(request_id, is_optional=True)
        border.check_count("epoch", epoch)
        border.check_batch(rows, head)
        batch = Batch(run_id=run_id, rows=rows, head=head)
        return await self._writer.do(
            lambda db: sqlite_rows.create(db, batch, request_id, epoch, self._clock.now()), run_id
        )

    async def append(
        self, run_id: str, *, version: int, epoch: int | None, rows: Sequence[Row], head: RunHead
    ) -> Appended:
        """Append a batch by compare-and-set; see the port."""
        border.check_run_id(run_id)
        border.check_count("version", version)
        border.check_epoch(epoch)
        border.check_batch(rows, head)
        batch = Batch(run_id=run_id, rows=rows, head=head)
        return await self._writer.do(lambda db: sqlite_rows.append(db, batch, version, epoch), run_id)

    async def claim(
        self, run_id: str, *, version: int, lease: NewLease, rows: Sequence[Row], head: RunHead
    ) -> Appended:
        """Take the lease and append the batch that says so; see the port."""
        border.check_run_id(run_id)
        border.check_count("version", version)
        border.check_lease(lease)
        border.check_batch(rows, head)
        batch = Batch(run_id=run_id, rows=rows, head=head)
        return await self._writer.do(lambda db: sqlite_rows.claim(db, batch, version, lease, self._clock.now()), run_id)

    async def renew(self, run_id: str, *, epoch: int, seconds: float) -> None:
        """Let the lease end `seconds` from now; see the port."""
        border.check_run_id(run_id)
        border.check_count("epoch", epoch)
        border.check_seconds("lease seconds", seconds)
        await self._writer.do(lambda db: sqlite_rows.renew(db, run_id, epoch, seconds, self._clock.now()))

    async def release(self, run_id: str, *, epoch: int) -> bool:
        """Give the lease back; see the port."""
        border.check_run_id(run_id)
        border.check_count("epoch", epoch)
        return await self._writer.do(lambda db: sqlite_rows.release(db, run_id, epoch))

    async def get(self, run_id: str) -> RunRow:
        """Return one run; see the port."""
        border.check_run_id(run_id)
        return await self._reader.do(lambda db: sqlite_rows.get(db, run_id, self._clock.now()))

    async def find_event(self, run_id: str, event_id: str) -> tuple[int, bytes] | None:
        """Return `(offset, fingerprint)` of an accepted event, or None; see the port."""
        border.check_run_id(run_id)
        border.check_event_id(event_id)
        return await self._reader.do(lambda db: sqlite_rows.find_event(db, run_id, event_id))

    async def find_request(self, request_id: str) -> str | None:
        """Return the id of the run created under `request_id`, or None; see the port."""
        border.check_request_id(request_id, is_optional=False)
        return await self._reader.do(lambda db: sqlite_rows.find_request(db, request_id))

    async def read(self, run_id: str, offset: int = 0, limit: int | None = None) -> Sequence[bytes]:
        """Return the bodies of a run's events; see the port."""
        border.check_run_id(run_id)
        border.check_count("offset", offset)
        if limit is not None:
            border.check_count("limit", limit)
        bodies: list[bytes] = []
        while True:
            wanted = PAGE_EVENTS if limit is None else min(PAGE_EVENTS, limit - len(bodies))
            page = await self._reader.do(
                partial(sqlite_rows.read_page, run_id=run_id, offset=offset + len(bodies), limit=wanted)
            )
            bodies += page.bodies
            if len(page.bodies) < PAGE_EVENTS:
                return bodies

    def follow(self, run_id: str, offset: int = 0) -> AsyncIterator[bytes]:
        """Yield the bodies of a run's events, and new ones as they are appended; see the port."""
        border.check_run_id(run_id)
        border.check_count("offset", offset)
        return self._follow(run_id, offset)

    async def _follow(self, run_id: str, offset: int) -> AsyncIterator[bytes]:
        seen: int | None = None
        with self._followers.bell(run_id) as bell:
            while True:
                bell.clear()
                news = await self._reader.do(
                    partial(sqlite_rows.read_news, run_id=run_id, offset=offset, limit=PAGE_EVENTS, seen=seen)
                )
                if news is None:
                    await self._ring_or_pause(bell)
                    continue
                seen, page = news
                for body in page.bodies:
                    offset += 1
                    yield body
                if page.is_terminal and offset >= page.version:
                    return
                if len(page.bodies) == PAGE_EVENTS:
                    seen = None

    async def _ring_or_pause(self, bell: asyncio.Event) -> None:
        """Return when this process has committed something, or it is time to look for what others did."""
        timer = self._clock.call_later(POLL_SECONDS, bell.set)
        try:
            await bell.wait()
        finally:
            timer.cancel()

    async def list_runs(self, query: RunQuery) -> Sequence[RunRow]:
        """Return the runs that fit, newest change first; see the port."""
        border.check_query(query)
        return await self._reader.do(lambda db: sqlite_rows.list_runs(db, query, self._clock.now()))

    async def record_refusal(self, run_id: str, refusal: Refusal) -> None:
        """Append one refusal to the run's audit; see the port."""
        border.check_run_id(run_id)
        border.check_refusal(refusal)
        await self._writer.do(lambda db: sqlite_rows.record_refusal(db, run_id, refusal))

    async def refusals(self, run_id: str) -> Sequence[Refusal]:
        """Return the run's audit, oldest first; see the port."""
        border.check_run_id(run_id)
        return await self._reader.do(lambda db: sqlite_rows.refusals(db, run_id))

    async def report(self) -> StoreReport:
        """Read every page and check every index and log, without holding up other readers; see the port.

        Damage inside the file is among the problems; a file that is no store at all is a `DamagedStore`.
        """
        surveyor = Reader(self._path, partial(self._connect, is_writer=False), self._followers.ring)
        await self._reader.do(_touch)
        try:
            found = await surveyor.do(sqlite_rows.survey)
        except DamagedStore as error:
            found = Survey(runs=0, events=0, problems=(error.reason,))
        finally:
            await surveyor.aclose()
        return StoreReport(
            location=str(self._path),
            engine=f"SQLite {apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})",
            runs=found.runs,
            events=found.events,
            problems=found.problems,
        )

    async def aclose(self) -> None:
        """Finish what was accepted and let go of the file; see the port."""
        # The writer last: the last connection moves the write-ahead log into the file, and a reader must not.
        await self._reader.aclose()
        await self._writer.aclose()
        self._followers.ring_all()


def _touch(db: Connection) -> None:
    """Do nothing: it is the opening that may fail."""
