"""`MemoryStore`: runs in a dictionary, for tests, notebooks and conversations that need no file.

It keeps every promise of the port but durability, and it is the shortest description of the semantics. No method awaits between reading and
writing, so on one event loop each is a transaction. The invariant: `_Run.rows` only grows, and `_Run.offsets` names exactly its event ids.
"""

from collections.abc import AsyncIterator, Sequence

from checkrein.clock import SystemClock
from checkrein.errors import Conflict, DuplicateEvent, LeaseHeld, RunNotFound, StoreError
from checkrein.ports.clock import Clock
from checkrein.ports.store import Appended, Lease, NewLease, Refusal, Row, RunHead, RunQuery, RunRow, StoreReport
from checkrein.store import border
from checkrein.store.followers import Followers

__all__ = ["MemoryStore"]


class _Run:
    """One run: its rows, its head and its lease."""

    def __init__(self, run_id: str, request_id: str, created_at: float, head: RunHead, epoch: int) -> None:
        self.run_id = run_id
        self.request_id = request_id
        self.created_at = created_at
        self.head = head
        self.rows: list[Row] = []
        self.offsets: dict[str, int] = {}
        self.refusals: list[Refusal] = []
        self.owner = ""
        self.epoch = epoch
        self.expires_at = 0.0
        self.is_released = False

    @property
    def is_held(self) -> bool:
        """Whether somebody took the lease and did not give it back, however late it is."""
        return bool(self.owner) and not self.is_released

    def add(self, rows: Sequence[Row], head: RunHead) -> int:
        """Append a batch that was accepted and return the new version."""
        for row in rows:
            self.offsets[row.event_id] = len(self.rows)
            self.rows.append(row)
        self.head = head
        return len(self.rows)

    def recall(self, rows: Sequence[Row]) -> Appended | None:
        """Return the recorded outcome of a batch whose first event is known, None for a new batch.

        Raises:
            DuplicateEvent: an event id of it is taken by something else.
        """
        first, *others = rows
        offset = self.offsets.get(first.event_id)
        if offset is not None:
            if self.rows[offset].fingerprint != first.fingerprint:
                raise DuplicateEvent(self.run_id, first.event_id, offset)
            return Appended(version=min(offset + len(rows), len(self.rows)), is_known=True)
        for row in others:
            if row.event_id in self.offsets:
                raise DuplicateEvent(self.run_id, row.event_id, self.offsets[row.event_id])
        return None

    def demand(self, version: int, epoch: int | None) -> None:
        """Compare.

        Raises:
            Conflict: version or epoch are others, or the run is terminal.
        """
        expected, actual = (version, epoch), (len(self.rows), self.epoch)
        if epoch is not None and epoch != self.epoch:
            raise Conflict(self.run_id, "lease_lost", expected, actual)
        if version != len(self.rows) or self.head.is_terminal:
            raise Conflict(self.run_id, "stale_version", expected, actual)


class MemoryStore:
    """Runs in memory; gone when the process is.

    Args:
        clock: decides when a lease is over; the system's by default.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._runs: dict[str, _Run] = {}
        self._requests: dict[str, str] = {}
        self._followers = Followers()
        self._is_closed = False

    async def create(self, run_id: str, request_id: str, rows: Sequence[Row], head: RunHead, *, epoch: int = 0) -> str:
        """Create a run with its first batch; see the port."""
        border.check_run_id(run_id)
        border.check_request_id(request_id, is_optional=True)
        border.check_count("epoch", epoch)
        border.check_batch(rows, head)
        self._check_open()
        known = self._requests.get(request_id)
        if known is not None:
            return known
        run = self._runs.get(run_id)
        if run is not None:
            if run.request_id != request_id or run.rows[0].event_id != rows[0].event_id or run.recall(rows[:1]) is None:
                raise DuplicateEvent(run_id, rows[0].event_id, 0)
            return run_id
        run = self._runs[run_id] = _Run(run_id, request_id, self._clock.now(), head, epoch)
        if request_id:
            self._requests[request_id] = run_id
        run.add(rows, head)
        return run_id

    async def append(
        self, run_id: str, *, version: int, epoch: int | None, rows: Sequence[Row], head: RunHead
    ) -> Appended:
        """Append a batch by compare-and-set; see the port."""
        border.check_run_id(run_id)
        border.check_count("version", version)
        border.check_epoch(epoch)
        border.check_batch(rows, head)
        run = self._run(run_id)
        known = run.recall(rows)
        if known is not None:
            return known
        run.demand(version, epoch)
        return self._added(run, rows, head)

    async def claim(
        self, run_id: str, *, version: int, lease: NewLease, rows: Sequence[Row], head: RunHead
    ) -> Appended:
        """Take the lease and append the batch that says so; see the port."""
        border.check_run_id(run_id)
        border.check_count("version", version)
        border.check_lease(lease)
        border.check_batch(rows, head)
        run = self._run(run_id)
        known = run.recall(rows)
        if known is not None:
            return known
        remaining = run.expires_at - self._clock.now()
        if run.is_held and remaining > 0 and run.owner not in {lease.owner, lease.dead_owner}:
            raise LeaseHeld(run_id, run.owner, remaining)
        run.demand(version, None)
        run.owner, run.is_released = lease.owner, False
        run.epoch += 1
        run.expires_at = self._clock.now() + lease.seconds
        return self._added(run, rows, head)

    def _added(self, run: _Run, rows: Sequence[Row], head: RunHead) -> Appended:
        version = run.add(rows, head)
        self._followers.ring(run.run_id)
        return Appended(version=version, is_known=False)

    async def renew(self, run_id: str, *, epoch: int, seconds: float) -> None:
        """Let the lease end `seconds` from now; see the port."""
        border.check_run_id(run_id)
        border.check_count("epoch", epoch)
        border.check_seconds("lease seconds", seconds)
        run = self._run(run_id)
        if epoch != run.epoch or not run.is_held:
            version = len(run.rows)
            raise Conflict(run_id, "lease_lost", (version, epoch), (version, run.epoch))
        run.expires_at = self._clock.now() + seconds

    async def release(self, run_id: str, *, epoch: int) -> bool:
        """Give the lease back; see the port."""
        border.check_run_id(run_id)
        border.check_count("epoch", epoch)
        run = self._run(run_id)
        if epoch != run.epoch or not run.is_held:
            return False
        run.is_released = True
        return True

    async def get(self, run_id: str) -> RunRow:
        """Return one run; see the port."""
        border.check_run_id(run_id)
        return self._row(self._run(run_id))

    async def find_event(self, run_id: str, event_id: str) -> tuple[int, bytes] | None:
        """Return `(offset, fingerprint)` of an accepted event, or None; see the port."""
        border.check_run_id(run_id)
        border.check_event_id(event_id)
        self._check_open()
        run = self._runs.get(run_id)
        if run is None or event_id not in run.offsets:
            return None
        offset = run.offsets[event_id]
        return offset, run.rows[offset].fingerprint

    async def find_request(self, request_id: str) -> str | None:
        """Return the id of the run created under `request_id`, or None; see the port."""
        border.check_request_id(request_id, is_optional=False)
        self._check_open()
        return self._requests.get(request_id)

    async def read(self, run_id: str, offset: int = 0, limit: int | None = None) -> Sequence[bytes]:
        """Return the bodies of a run's events; see the port."""
        border.check_run_id(run_id)
        border.check_count("offset", offset)
        if limit is not None:
            border.check_count("limit", limit)
        rows = self._run(run_id).rows
        return [row.body for row in rows[offset : None if limit is None else offset + limit]]

    def follow(self, run_id: str, offset: int = 0) -> AsyncIterator[bytes]:
        """Yield the bodies of a run's events, and new ones as they are appended; see the port."""
        border.check_run_id(run_id)
        border.check_count("offset", offset)
        return self._follow(run_id, offset)

    async def _follow(self, run_id: str, offset: int) -> AsyncIterator[bytes]:
        with self._followers.bell(run_id) as bell:
            while True:
                bell.clear()
                run = self._run(run_id)
                is_over = run.head.is_terminal
                for row in run.rows[offset:]:
                    offset += 1
                    yield row.body
                if is_over:
                    return
                await bell.wait()

    async def list_runs(self, query: RunQuery) -> Sequence[RunRow]:
        """Return the runs that fit, newest change first; see the port."""
        border.check_query(query)
        self._check_open()
        fitting = [row for row in map(self._row, self._runs.values()) if _fits(row, query)]
        fitting.sort(key=lambda row: (row.head.updated_at, row.run_id), reverse=True)
        return fitting[: query.limit]

    async def record_refusal(self, run_id: str, refusal: Refusal) -> None:
        """Append one refusal to the run's audit; see the port."""
        border.check_run_id(run_id)
        border.check_refusal(refusal)
        self._run(run_id).refusals.append(refusal)

    async def refusals(self, run_id: str) -> Sequence[Refusal]:
        """Return the run's audit, oldest first; see the port."""
        border.check_run_id(run_id)
        return list(self._run(run_id).refusals)

    async def report(self) -> StoreReport:
        """Count; memory has no damage of its own."""
        self._check_open()
        events = sum(len(run.rows) for run in self._runs.values())
        return StoreReport(location="memory", engine="memory", runs=len(self._runs), events=events, problems=())

    async def aclose(self) -> None:
        """Refuse everything from now on; see the port."""
        self._is_closed = True
        self._followers.ring_all()

    def _check_open(self) -> None:
        if self._is_closed:
            msg = "this store is closed; open another one"
            raise StoreError(msg)

    def _run(self, run_id: str) -> _Run:
        self._check_open()
        run = self._runs.get(run_id)
        if run is None:
            raise RunNotFound(run_id)
        return run

    def _row(self, run: _Run) -> RunRow:
        lease = Lease(
            owner=run.owner,
            epoch=run.epoch,
            expires_in=run.expires_at - self._clock.now() if run.is_held else 0.0,
            is_released=run.is_released,
        )
        return RunRow(
            run_id=run.run_id,
            request_id=run.request_id,
            version=len(run.rows),
            head=run.head,
            lease=lease,
            created_at=run.created_at,
        )


def _fits(row: RunRow, query: RunQuery) -> bool:
    return (
        (not query.phases or row.head.phase in query.phases)
        and (not query.tasks or row.head.task in query.tasks)
        and row.run_id.startswith(query.prefix)
        and (not query.claimable or (row.head.is_claimable and not row.head.is_terminal and not row.lease.is_live))
    )
