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
LONGEST_NAME: Final = 32
RENEWALS_PER_LEASE: Final = 10 / 3
"""A lease of 5 s is renewed every 1.5 s, so two renewals in a row may fail."""


def our_identity(name: str, number: str) -> str:
    """Return who we are as a lease's owner.

    Boot id, pid namespace, process id and start time let others tell when we are gone; the number tells the workers of one process apart.
    """
    pid = os.getpid()
    identity = {
        "boot": _boot_id(),
        "namespace": _pid_namespace(),
        "pid": pid,
        "started": _start_time(pid),
        "name": name[:LONGEST_NAME],
        "number": number[:8],
    }
    return json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


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
    await journal.send(journal.batch_of([data], actor=_actor(owner), epoch=epoch), lease)
    return epoch


def _actor(owner: str) -> str:
    return f"worker:{json.loads(owner)['name']}"


class LeaseKeeper:
    """Renews one lease in the background until it is released or lost.

    Args:
        journal: the run's log.
        epoch: the lease's epoch.
        seconds: how long a renewal lasts.
        clock: the time.
        claimed_at: what the clock's `monotonic` said before the lease was claimed.

    Attributes:
        lost: set when the lease is certainly not ours any more.
    """

    def __init__(self, journal: Journal, *, epoch: int, seconds: float, clock: Clock, claimed_at: float) -> None:
        self.lost = CancelSignal()
        self.epoch = epoch
        self._journal = journal
        self._seconds = seconds
        self._clock = clock
        self._renewed_at = claimed_at
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
            await self._renew_now()
        except StoreError as error:
            if self._is_over():
                self.lost.cancel(f"the lease could not be renewed: {error}")
        if self._is_kept and not self.lost.is_cancelled:
            self._timer = self._schedule()

    async def _renew_now(self) -> None:
        asked_at = self._clock.monotonic()
        try:
            await self._journal.store.renew(self._journal.run_id, epoch=self.epoch, seconds=self._seconds)
        except Conflict:
            self.lost.cancel("another worker took the lease")
        else:
            self._renewed_at = asked_at

    def _is_over(self) -> bool:
        """Tell whether the lease may have ended, by our own clock."""
        return self._clock.monotonic() - self._renewed_at >= self._seconds

    async def confirm(self) -> None:
        """Ask the store whether the lease is still ours, if it may have ended; `lost` is set when it is not.

        A process that was stopped and goes on does not know it, but its clock does.

        Raises:
            StoreError: the store could not be asked.
        """
        if self._is_over() and not self.lost.is_cancelled:
            await self._renew_now()

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
