"""The operations of a SQLite store on one connection, each a few statements, none with a transaction of its own.

Callers bring the transaction: a writer puts many operations in one, a reader needs none. Time is an argument. The invariant of every writing operation:
it decides before it writes, so one of our errors means that nothing was written, and the others in the same transaction are not disturbed; any other
exception means that the whole transaction must be undone.
"""

from collections.abc import Sequence
from typing import cast

import apsw
import msgspec

from checkrein.errors import Conflict, DuplicateEvent, LeaseHeld, RunNotFound
from checkrein.ports.store import Appended, Lease, NewLease, Refusal, Row, RunHead, RunQuery, RunRow
from checkrein.store.queries import SQLITE as SQL
from checkrein.store.sqlite_connection import Columns, Connection, Values

__all__ = [
    "Batch",
    "LogPage",
    "Survey",
    "append",
    "claim",
    "create",
    "find_event",
    "find_request",
    "get",
    "list_runs",
    "read_news",
    "read_page",
    "record_refusal",
    "refusals",
    "release",
    "renew",
    "survey",
]


class Batch(msgspec.Struct, frozen=True):
    """Rows that are appended together, and the head after them."""

    run_id: str
    rows: Sequence[Row]
    head: RunHead


class LogPage(msgspec.Struct, frozen=True):
    """A part of a log.

    Attributes:
        bodies: the events' bytes.
        version: the log's end, read just before the events.
        is_terminal: nothing follows `version`.
    """

    bodies: list[bytes]
    version: int
    is_terminal: bool


class Survey(msgspec.Struct, frozen=True):
    """What a check of the whole file found."""

    runs: int
    events: int
    problems: tuple[str, ...]


class _State(msgspec.Struct, frozen=True):
    """What decides about a batch; `offset` is that of its first event, if that is there."""

    key: int
    version: int
    epoch: int
    is_terminal: int
    owner: str
    is_released: int
    expires_at: float
    offset: int | None


def create(db: Connection, batch: Batch, request_id: str, epoch: int, now: float) -> str:
    """Create a run with its first batch; see the port."""
    known = find_request(db, request_id) if request_id else None
    if known is not None:
        return known
    found = db.first(SQL.find_run, {"run_id": batch.run_id})
    if found is not None:
        return _same_run(db, batch, is_same_request=found[3] == request_id)
    values = {**_head_values(batch), "run_id": batch.run_id, "request_id": request_id, "epoch": epoch, "now": now}
    (key,) = cast("tuple[int]", db.first(SQL.create_run, values))
    _insert(db, key, 0, batch.rows)
    return batch.run_id


def _same_run(db: Connection, batch: Batch, *, is_same_request: bool) -> str:
    """Return the id of a run that is there already, if it is the very same.

    Raises:
        DuplicateEvent: it is another one.
    """
    first = batch.rows[0]
    if is_same_request and find_event(db, batch.run_id, first.event_id) == (0, first.fingerprint):
        return batch.run_id
    raise DuplicateEvent(batch.run_id, first.event_id, 0)


def append(db: Connection, batch: Batch, version: int, epoch: int | None) -> Appended:
    """Append a batch by compare-and-set; see the port."""
    state = _find_state(db, batch)
    known = _recall(db, batch, state)
    if known is not None:
        return known
    _demand(batch.run_id, state, version, epoch)
    return _advance(db, batch, state)


def claim(db: Connection, batch: Batch, version: int, lease: NewLease, now: float) -> Appended:
    """Take the lease and append the batch that says so; see the port."""
    state = _find_state(db, batch)
    known = _recall(db, batch, state)
    if known is not None:
        return known
    is_held = bool(state.owner) and not state.is_released and state.expires_at > now
    if is_held and state.owner not in {lease.owner, lease.dead_owner}:
        raise LeaseHeld(batch.run_id, state.owner, state.expires_at - now)
    _demand(batch.run_id, state, version, None)
    appended = _advance(db, batch, state)
    db.run(
        SQL.take_lease,
        {"key": state.key, "epoch": state.epoch, "owner": lease.owner, "seconds": lease.seconds, "now": now},
    )
    return appended


def _find_state(db: Connection, batch: Batch) -> _State:
    found = db.first(SQL.find_state, {"run_id": batch.run_id, "event_id": batch.rows[0].event_id})
    if found is None:
        raise RunNotFound(batch.run_id)
    return _State(*cast("tuple[int, int, int, int, str, int, float, int | None]", found))


def _recall(db: Connection, batch: Batch, state: _State) -> Appended | None:
    """Return the recorded outcome of a batch whose first event is known, None for a new batch.

    Raises:
        DuplicateEvent: an event id of it is taken by something else.
    """
    first = batch.rows[0]
    if state.offset is not None:
        if find_event(db, batch.run_id, first.event_id) != (state.offset, first.fingerprint):
            raise DuplicateEvent(batch.run_id, first.event_id, state.offset)
        return Appended(version=min(state.offset + len(batch.rows), state.version), is_known=True)
    for row in batch.rows[1:]:
        taken = find_event(db, batch.run_id, row.event_id)
        if taken is not None:
            raise DuplicateEvent(batch.run_id, row.event_id, taken[0])
    return None


def _demand(run_id: str, state: _State, version: int, epoch: int | None) -> None:
    """Compare.

    Raises:
        Conflict: version or epoch are others, or the run is terminal.
    """
    expected, actual = (version, epoch), (state.version, state.epoch)
    if epoch is not None and epoch != state.epoch:
        raise Conflict(run_id, "lease_lost", expected, actual)
    if version != state.version or state.is_terminal:
        raise Conflict(run_id, "stale_version", expected, actual)


def _advance(db: Connection, batch: Batch, state: _State) -> Appended:
    """Set, and insert the rows."""
    values = {**_head_values(batch), "key": state.key, "version": state.version, "epoch": state.epoch}
    if db.run(SQL.advance, values) != 1:
        raise Conflict(batch.run_id, "stale_version", (state.version, state.epoch), (state.version, state.epoch))
    _insert(db, state.key, state.version, batch.rows)
    return Appended(version=state.version + len(batch.rows), is_known=False)


def _head_values(batch: Batch) -> Values:
    head = batch.head
    return {
        "count": len(batch.rows),
        "phase": head.phase,
        "is_terminal": head.is_terminal,
        "is_claimable": head.is_claimable,
        "task": head.task,
        "task_version": head.task_version,
        "goal": head.goal,
        "updated_at": head.updated_at,
    }


def _insert(db: Connection, key: int, version: int, rows: Sequence[Row]) -> None:
    for offset, row in enumerate(rows, version):
        values = {
            "key": key,
            "offset": offset,
            "event_id": row.event_id,
            "type": row.type,
            "fingerprint": row.fingerprint,
            "body": row.body,
        }
        db.run(SQL.insert_event, values)


def renew(db: Connection, run_id: str, epoch: int, seconds: float, now: float) -> None:
    """Let the lease end `seconds` from now; see the port."""
    if db.run(SQL.renew, {"run_id": run_id, "epoch": epoch, "seconds": seconds, "now": now}) != 1:
        row = get(db, run_id, now)
        raise Conflict(run_id, "lease_lost", (row.version, epoch), (row.version, row.lease.epoch))


def release(db: Connection, run_id: str, epoch: int) -> bool:
    """Give the lease back; see the port."""
    if db.run(SQL.release, {"run_id": run_id, "epoch": epoch}) == 1:
        return True
    _find_run(db, run_id)
    return False


def _find_run(db: Connection, run_id: str) -> tuple[int, int, bool]:
    """Return key, version and whether the run is terminal."""
    found = db.first(SQL.find_run, {"run_id": run_id})
    if found is None:
        raise RunNotFound(run_id)
    key, version, is_terminal, _ = cast("tuple[int, int, int, str]", found)
    return key, version, bool(is_terminal)


def get(db: Connection, run_id: str, now: float) -> RunRow:
    """Return one run; see the port."""
    found = db.first(SQL.get_run, {"run_id": run_id})
    if found is None:
        raise RunNotFound(run_id)
    return _run_row(found, now)


def list_runs(db: Connection, query: RunQuery, now: float) -> list[RunRow]:
    """Return the runs that fit, newest change first; see the port."""
    statement = SQL.list_claimable if query.claimable else SQL.list_runs
    values = {
        "prefix": query.prefix,
        "phases": msgspec.json.encode(query.phases).decode(),
        "tasks": msgspec.json.encode(query.tasks).decode(),
        "limit": query.limit,
        "now": now,
    }
    return [_run_row(found, now) for found in db.rows(statement, values)]


def _run_row(found: Columns, now: float) -> RunRow:
    columns = cast("tuple[str, str, int, str, int, int, str, int, str, float, str, int, float, int, float]", found)
    (
        run_id,
        request_id,
        version,
        phase,
        is_terminal,
        is_claimable,
        task,
        task_version,
        goal,
        updated_at,
        *lease,
        created_at,
    ) = columns
    owner, epoch, expires_at, is_released = cast("tuple[str, int, float, int]", tuple(lease))
    is_held = bool(owner) and not is_released
    return RunRow(
        run_id=run_id,
        request_id=request_id,
        version=version,
        head=RunHead(
            phase=phase,
            is_terminal=bool(is_terminal),
            is_claimable=bool(is_claimable),
            task=task,
            task_version=task_version,
            goal=goal,
            updated_at=updated_at,
        ),
        lease=Lease(
            owner=owner, epoch=epoch, expires_in=expires_at - now if is_held else 0.0, is_released=bool(is_released)
        ),
        created_at=created_at,
    )


def find_event(db: Connection, run_id: str, event_id: str) -> tuple[int, bytes] | None:
    """Return `(offset, fingerprint)` of an accepted event, or None; see the port."""
    return cast("tuple[int, bytes] | None", db.first(SQL.find_event, {"run_id": run_id, "event_id": event_id}))


def find_request(db: Connection, request_id: str) -> str | None:
    """Return the id of the run created under `request_id`, or None; see the port."""
    found = db.first(SQL.find_request, {"request_id": request_id})
    return None if found is None else cast("str", found[0])


def read_page(db: Connection, run_id: str, offset: int, limit: int) -> LogPage:
    """Return a part of a log.

    Raises:
        RunNotFound: no such run.
        apsw.CorruptError: the log is shorter than its version says.
    """
    key, version, is_terminal = _find_run(db, run_id)
    bodies = cast("list[bytes]", db.column(SQL.read_events, {"key": key, "offset": offset, "limit": limit}))
    if len(bodies) < min(limit, version - offset):
        msg = f"the log of run {run_id} has a gap after offset {offset + len(bodies)}"
        raise apsw.CorruptError(msg)
    return LogPage(bodies=bodies, version=version, is_terminal=is_terminal)


def read_news(db: Connection, run_id: str, offset: int, limit: int, seen: int | None) -> tuple[int, LogPage] | None:
    """Return the file's data version and a part of a log; None when another connection wrote nothing since the data had the version `seen`.

    Raises:
        RunNotFound: no such run.
        apsw.CorruptError: the log is shorter than its version says.
    """
    data_version = cast("int", db.pragma("data_version"))
    if data_version == seen:
        return None
    return data_version, read_page(db, run_id, offset, limit)


def record_refusal(db: Connection, run_id: str, refusal: Refusal) -> None:
    """Append one refusal to the run's audit; see the port."""
    if db.run(SQL.insert_refusal, {"run_id": run_id, **_refusal_values(refusal)}) != 1:
        raise RunNotFound(run_id)


def _refusal_values(refusal: Refusal) -> Values:
    return {
        "event_id": refusal.event_id,
        "type": refusal.type,
        "code": refusal.code,
        "detail": refusal.detail,
        "actor": refusal.actor,
        "at": refusal.at,
    }


def refusals(db: Connection, run_id: str) -> list[Refusal]:
    """Return the run's audit, oldest first; see the port."""
    key, _, _ = _find_run(db, run_id)
    found = cast("list[tuple[str, str, str, str, str, float]]", db.rows(SQL.list_refusals, {"key": key}))
    return [
        Refusal(event_id=event_id, type=kind, code=code, detail=detail, actor=actor, at=at)
        for event_id, kind, code, detail, actor, at in found
    ]


def survey(db: Connection) -> Survey:
    """Check every page, every index and every log's length."""
    problems = [str(problem) for problem in db.column("PRAGMA integrity_check(20)") if problem != "ok"]
    problems += [f"the log of run {run_id} has a gap" for run_id in db.column(SQL.find_gaps)]
    runs, events = cast("tuple[int, int]", db.first(SQL.count_all))
    return Survey(runs=runs, events=events, problems=tuple(problems))
