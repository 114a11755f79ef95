"""Leases of one worker: its identity, claiming a run, and keeping the lease until it is given back or lost.

Only the store compares times. What a worker believes about its own lease stops new work early; what protects the log is the epoch that every append names.
"""

import json
import os
from pathlib import Path
from typing import Final

from checkrein.errors import Conflict, StoreError
from checkrein.kernel.events import LeaseTaken
from checkrein.ports.clock import Clock, TimerHandle
from checkrein.ports.store import NewLease
from checkrein.ports.tool import CancelSignal
from checkrein.runs.journal import Journal

__all__ = ["DEFAULT_LEASE_SECONDS", "LeaseKeeper", "claim", "is_gone", "our_identity"]

DEFAULT_LEASE_SECONDS: Final = 5.0
RENEWALS_PER_LEASE: Final = 10 / 3
"""A lease of 5 s is renewed every 1.5 s, so two renewals in a row may fail."""


def our_identity(name: str) -> str:
    """Return who we are as a lease's owner: boot id, pid namespace, process id and start time, so that others can tell when we are gone."""
    pid = os.getpid()
    return json.dumps(
        {"boot": _boot_id(), "namespace": _pid_namespace(), "pid": pid, "started": _start_time(pid), "name": name},
        sort_keys=True,
    )


def is_gone(owner: str) -> bool:
    """Tell whether an owner is certainly gone: its boot id and pid namespace are ours, and its process is not there or has another start time."""
    try:
        identity = json.loads(owner)
        boot, namespace, pid, started = (identity[key] for key in ("boot", "namespace", "pid", "started"))
    except (ValueError, TypeError, KeyError):
        return False
    if not boot or boot != _boot_id() or namespace != _pid_namespace() or not isinstance(pid, int):
        return False
    return _start_time(pid) != started


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _start_time(pid: int) -> str:
    """Return a process's start time in clock ticks since boot, `""` when there is no such process (or it is a zombie)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    state, start_time = fields[0], fields[19]
    return "" if state in {"Z", "X"} else start_time


async def claim(journal: Journal, *, owner: str, seconds: float) -> int:
    """Take the lease of a run and say so in its log.

    Returns:
        The new epoch.

    Raises:
        LeaseHeld: another worker holds it.
        Conflict: the log moved on meanwhile; the journal has re-read it.
        Rejected: the run is terminal.
        StoreError: the store could not do it.
    """
    row = await journal.store.get(journal.run_id)
    held_before, epoch = row.lease.owner, journal.state.epoch + 1
    takeover = bool(held_before) and not row.lease.is_released
    folder = (
        "" if journal.state.folder and not takeover else journal.run_id if not takeover else f"{journal.run_id}.{epoch}"
    )
    lease = NewLease(owner=owner, seconds=seconds, dead_owner=held_before if takeover and is_gone(held_before) else "")
    data = LeaseTaken(lease=epoch, owner=owner, folder=folder, takeover=takeover)
    await journal.send(journal.events_of([data], actor=_actor(owner), epoch=epoch), lease)
    return epoch


def _actor(owner: str) -> str:
    return f"worker:{json.loads(owner)['name']}"


class LeaseKeeper:
    """Renews one lease in the background until it is released or lost.

    Attributes:
        lost: set when the lease is certainly not ours any more.
    """

    def __init__(self, journal: Journal, *, epoch: int, seconds: float, clock: Clock) -> None:
        self.lost = CancelSignal()
        self.epoch = epoch
        self._journal = journal
        self._seconds = seconds
        self._clock = clock
        self._renewed_at = clock.monotonic()
        self._is_kept = True
        self._timer = self._schedule()

    def _schedule(self) -> TimerHandle:
        return self._clock.call_later(self._seconds / RENEWALS_PER_LEASE, self._fire)

    def _fire(self) -> None:
        self._clock.spawn(self._renew(), name=f"renew-{self._journal.run_id}")

    async def _renew(self) -> None:
        if not self._is_kept:
            return
        try:
            await self._journal.store.renew(self._journal.run_id, epoch=self.epoch, seconds=self._seconds)
            self._renewed_at = self._clock.monotonic()
        except Conflict:
            self.lost.cancel("another worker took the lease")
            return
        except StoreError as error:
            if self._clock.monotonic() - self._renewed_at >= self._seconds:
                self.lost.cancel(f"the lease could not be renewed: {error}")
                return
        if self._is_kept:
            self._timer = self._schedule()

    def stop(self) -> None:
        """Stop renewing; the lease then ends by itself unless it is released."""
        self._is_kept = False
        self._timer.cancel()

    async def release(self) -> None:
        """Stop renewing and give the lease back, so that the next worker need not wait and keeps the run's folder.

        Raises:
            StoreError: the store could not be written; the lease then ends by itself.
        """
        self.stop()
        await self._journal.store.release(self._journal.run_id, epoch=self.epoch)
