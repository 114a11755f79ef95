"""The port of durable storage: a dumb, append-only table of opaque rows with compare-and-set, and leases in the same transaction.

A store knows no lifecycle. It promises exactly this, and `checkrein.testing.RunStoreConformance` holds every implementation to it:

* what a call returned normally survives power loss; a call that raised wrote nothing (a call that was *cancelled* may have written: repeat it with
  the same ids);
* offsets of a run are 0, 1, 2 … without gaps; a batch is appended whole or not at all;
* of two appends that expect the same version exactly one is accepted; an append under an old epoch never is;
* event ids are unique in a run: the same id with the same fingerprint returns the recorded outcome, with another fingerprint it is refused;
* only the store compares times of leases, with its own clock;
* the log of a terminal run is never written again; its audit of refusals still is.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

__all__ = [
    "Appended",
    "Lease",
    "NewLease",
    "Refusal",
    "Row",
    "RunHead",
    "RunQuery",
    "RunRow",
    "RunStore",
    "StoreReport",
]


class Row(msgspec.Struct, frozen=True):
    """One event as a store sees it.

    Attributes:
        event_id: unique in the run, at most 200 characters.
        type: the event's type, for people and filters.
        fingerprint: SHA-256 (32 bytes) over type, run id, actor and data.
        body: the canonical bytes of the whole event.
    """

    event_id: str
    type: str
    fingerprint: bytes
    body: bytes


class RunHead(msgspec.Struct, frozen=True):
    """What a store keeps beside a run's log, so that runs can be listed and claimed without folding.

    Attributes:
        phase: the phase after the batch.
        is_terminal: nothing may follow.
        is_claimable: a worker may take the run when no lease on it is live.
        task: the task's name.
        task_version: the task's version.
        goal: the goal, in words.
        updated_at: seconds since 1970 (UTC) of the batch's last event.
    """

    phase: str
    is_terminal: bool
    is_claimable: bool
    task: str
    task_version: int
    goal: str
    updated_at: float


class Lease(msgspec.Struct, frozen=True):
    """Who may advance a run.

    Attributes:
        owner: the holder's identity (opaque to the store); `""` when nobody ever held it.
        epoch: the fencing token; before the first lease what the run was created with, which is 0 unless it has another run's history.
        expires_in: seconds until it ends by the store's clock; 0 or less when it is over or was released.
        is_released: the last holder gave it back.
    """

    owner: str
    epoch: int
    expires_in: float
    is_released: bool

    @property
    def is_live(self) -> bool:
        """Whether somebody holds it now."""
        return bool(self.owner) and not self.is_released and self.expires_in > 0


class NewLease(msgspec.Struct, frozen=True):
    """A claim.

    Attributes:
        owner: the claimant's identity.
        seconds: how long the lease lasts from now, by the store's clock; more than 0.
        dead_owner: an owner known to be gone: its lease counts as over at once; `""` for none.
    """

    owner: str
    seconds: float
    dead_owner: str = ""


class Appended(msgspec.Struct, frozen=True):
    """What an append did.

    Attributes:
        version: the log's end after the batch (of the recorded batch, when it was known).
        is_known: the batch was there already and nothing was written.
    """

    version: int
    is_known: bool


class RunRow(msgspec.Struct, frozen=True):
    """A run as a store lists it."""

    run_id: str
    request_id: str
    version: int
    head: RunHead
    lease: Lease
    created_at: float


class RunQuery(msgspec.Struct, frozen=True):
    """Which runs to list, newest change first; empty fields do not filter.

    Attributes:
        phases: only runs in one of these phases.
        tasks: only runs of one of these tasks.
        prefix: only runs whose id begins so; ASCII letters, digits, `-` and `_`.
        claimable: only runs that a worker may take right now (claimable by their head, and no live lease).
        limit: at most so many; 1 or more.
    """

    phases: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    prefix: str = ""
    claimable: bool = False
    limit: int = 100


class Refusal(msgspec.Struct, frozen=True):
    """One refused event, as kept in the audit."""

    event_id: str
    type: str
    code: str
    detail: str
    actor: str
    at: float


class StoreReport(msgspec.Struct, frozen=True):
    """What a store says about its own health.

    Attributes:
        location: where the data is.
        engine: name and version of the engine.
        runs: number of runs.
        events: number of events.
        problems: what is wrong, in words; empty when sound.
    """

    location: str
    engine: str
    runs: int
    events: int
    problems: tuple[str, ...]


class RunStore(Protocol):
    """The durable truth of all runs. Every method may be called from any task of one event loop.

    Every method may raise `DataError` (an argument breaks a rule of `checkrein.store.border`; nothing was asked of the storage), `DamagedStore` (the storage
    cannot be trusted or read), `StoreBusy` (locked by another process for too long) and `StoreError` (closed, or the disk is full); those are not repeated below.
    Where several refusals fit, the first in the order of a method's `Raises` is raised.
    """

    async def create(self, run_id: str, request_id: str, rows: Sequence[Row], head: RunHead, *, epoch: int = 0) -> str:
        """Create a run with its first batch; nobody holds it.

        Args:
            run_id: the new run's id.
            request_id: the caller's id of the request, `""` for none; the same id names the same run for ever.
            rows: the first batch, at least one row.
            head: the run's head after the batch.
            epoch: where the batch is a copy of another run's history, the epoch of the last lease in it; the first claim is one more.

        Returns:
            The run's id: `run_id`, or the id of the run that was created under `request_id` before (nothing is written then).

        Raises:
            DuplicateEvent: `run_id` exists already, under another request id or with another first event.
        """
        ...

    async def append(
        self, run_id: str, *, version: int, epoch: int | None, rows: Sequence[Row], head: RunHead
    ) -> Appended:
        """Append a batch by compare-and-set.

        Args:
            run_id: the run.
            version: the version that the log must have.
            epoch: the epoch that the lease must have; None for a user's events, which need no lease.
            rows: at least one row.
            head: the run's head after the batch.

        Returns:
            The new version; with `is_known` when the first row's event id is there with the same fingerprint (checked before all else).

        Raises:
            RunNotFound: no such run.
            DuplicateEvent: the first event's id is there with another fingerprint, or a later one of a new batch is there at all.
            Conflict: `lease_lost` when `epoch` is not the run's epoch; `stale_version` when `version` is not its version or the run is terminal.
        """
        ...

    async def claim(
        self, run_id: str, *, version: int, lease: NewLease, rows: Sequence[Row], head: RunHead
    ) -> Appended:
        """Take the lease and append the batch that says so, in one transaction; the run's epoch grows by one. A holder may claim its own lease anew.

        Returns:
            The new version; with `is_known` as for `append`, and then nothing was taken.

        Raises:
            RunNotFound: no such run.
            DuplicateEvent: as for `append`.
            LeaseHeld: another owner's lease is live (and is not `lease.dead_owner`'s).
            Conflict: `stale_version` when `version` is not the run's version or the run is terminal.
        """
        ...

    async def renew(self, run_id: str, *, epoch: int, seconds: float) -> None:
        """Let the lease end `seconds` from now, also when it was over and nobody took it.

        Raises:
            RunNotFound: no such run.
            Conflict: `lease_lost` when `epoch` is not the run's epoch or the lease was released.
        """
        ...

    async def release(self, run_id: str, *, epoch: int) -> bool:
        """Give the lease back; False when `epoch` is not the run's epoch any more or it was released before.

        Raises:
            RunNotFound: no such run.
        """
        ...

    async def get(self, run_id: str) -> RunRow:
        """Return one run.

        Raises:
            RunNotFound: no such run.
        """
        ...

    async def find_event(self, run_id: str, event_id: str) -> tuple[int, bytes] | None:
        """Return `(offset, fingerprint)` of an accepted event; None for an unknown event or run."""
        ...

    async def find_request(self, request_id: str) -> str | None:
        """Return the id of the run created under `request_id`, or None."""
        ...

    async def read(self, run_id: str, offset: int = 0, limit: int | None = None) -> Sequence[bytes]:
        """Return the bodies of a run's events from `offset` on, at most `limit`; empty at or past the end.

        Raises:
            RunNotFound: no such run.
        """
        ...

    def follow(self, run_id: str, offset: int = 0) -> AsyncIterator[bytes]:
        """Yield the bodies of a run's events from `offset` on, and new ones as they are appended, also by other processes, until the run is terminal.

        Raises:
            RunNotFound: no such run.
        """
        ...

    async def list_runs(self, query: RunQuery) -> Sequence[RunRow]:
        """Return the runs that fit, newest change first (equal times: larger id first)."""
        ...

    async def record_refusal(self, run_id: str, refusal: Refusal) -> None:
        """Append one refusal to the run's audit.

        Raises:
            RunNotFound: no such run.
        """
        ...

    async def refusals(self, run_id: str) -> Sequence[Refusal]:
        """Return the run's audit, oldest first.

        Raises:
            RunNotFound: no such run.
        """
        ...

    async def report(self) -> StoreReport:
        """Check the storage and say what was found."""
        ...

    async def aclose(self) -> None:
        """Finish what was accepted and let go of everything; safe to call again."""
        ...
