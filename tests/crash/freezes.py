"""Freezes: a worker is stopped by SIGSTOP past the end of its lease, another one takes over and finishes, and the first goes on too late.

It is stopped while it has something to write: around a body, or before an append. The second one works in a copy of the folder. What the first one writes after SIGCONT, into
the log and into its folder, must change nothing that counts.
"""

import asyncio
import hashlib
import random  # noqa: TID251  seeded, so that a freeze can be made again
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from checkrein.kernel.events import LeaseTaken
from checkrein.ports.store import RunQuery
from checkrein.runs.workspace import digest_of
from tests.crash.arena import Arena, Child
from tests.crash.audit import audit_of, faults_of
from tests.crash.child import LEASE_SECONDS, Job

LANES = 4
PATIENCE_SECONDS = 20.0
EARLY = 0.5
"""Share of the stopped workers that go on while the other one still works."""
MOMENTS: tuple[str, ...] = (
    *(
        f"before append {name}"
        for name in ("tool.", "step.", "plan.", "turn.", "work_done", "check_failed", "session.")
    ),
    "before body stamp",
    "before body write_file",
    "after body",
)
"""Where a worker is stopped: something of it must come too late. A body that must not run twice is not stopped before it began, because once granted it begins late; nor is one
beside which others run, for a probe cannot see what a stopped thread is about to do. The share of a child is appended by a body, which ends with the lease and says nothing."""
LATE_FILES: tuple[str, ...] = ("before body stamp", "before body write_file")
"""Of these, those at which it goes on by writing a file into its folder."""
TAKEN = 3
"""The epoch of the taker: the run was asked about under the first, and the worker that is stopped has the second."""
FILES = 0.3
"""Share of the workers that are stopped at one of those."""


@dataclass
class Chill:
    """What the freezes came to."""

    seed: int
    freezes: int = 0
    refused: int = 0
    early: int = 0
    late_files: int = 0
    takeovers: list[float] = field(default_factory=list[float])
    faults: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    def __str__(self) -> str:
        """Say it in lines."""
        slowest = max(self.takeovers, default=0.0)
        lines = [
            f"SIGSTOP past the lease: {self.freezes} in {self.seconds:.0f} s, seed {self.seed}",
            f"  late writes refused and in the audit: {self.refused} of {self.freezes}; late files: {self.late_files}",
            f"  gone on while the taker worked: {self.early}, after the run's end: {self.freezes - self.early}",
            f"  slowest takeover: {slowest:.2f} s, allowed {LEASE_SECONDS + 1:.2f} s; faults: {len(self.faults)}",
        ]
        return "\n".join([*lines, *(f"  FAULT {fault}" for fault in self.faults[:20])])


async def freeze(folder: Path, *, times: int, seed: int) -> Chill:
    """Stop that many workers, and return what came of it.

    Args:
        folder: an empty folder.
        times: how many.
        seed: decides where.
    """
    arena = Arena(folder)
    chill = Chill(seed)
    begun = arena.clock.monotonic()
    numbers = iter(range(times))

    async def lane() -> None:
        for number in numbers:
            chance = random.Random(f"{seed}/{number}")  # noqa: S311  no secret
            try:
                await _one(arena, chill, chance, points)
            except AssertionError as error:
                chill.faults.append(f"freeze {number}: {error}")

    try:
        points = {among: await _points(arena, among) for among in (MOMENTS, LATE_FILES)}
        await asyncio.gather(*(lane() for _ in range(LANES)))
    finally:
        await arena.aclose()
    chill.seconds = arena.clock.monotonic() - begun
    return chill


async def _points(arena: Arena, among: Sequence[str]) -> int:
    """Return how many such moments there are in a run that nobody stops."""
    said = await arena.advance(Job(str(arena.folder), await _approved(arena), among=among))
    return len(said.points)


async def _approved(arena: Arena) -> str:
    """Return a run whose calls were asked about and allowed, so that all that is worth being stopped in lies ahead."""
    run_id = await arena.submit()
    await arena.advance(Job(str(arena.folder), run_id, name="asker"))
    await arena.answer(await arena.state(run_id))
    return run_id


async def _one(arena: Arena, chill: Chill, chance: random.Random, points: Mapping[tuple[str, ...], int]) -> None:
    run_id = await _approved(arena)
    among = LATE_FILES if chance.random() < FILES else MOMENTS
    at, is_early = chance.randint(1, points[among]), chance.random() < EARLY
    stale = Child(Job(str(arena.folder), run_id, at=at, among=among, stops=True, name="stale"))
    taker = None
    try:
        await _until_stopped(arena, stale)
        stopped_at = arena.clock.monotonic()
        taker = Child(Job(str(arena.folder), run_id, name="taker", patience_seconds=PATIENCE_SECONDS))
        if is_early:
            await _until_taken(arena, run_id)
        else:
            await _finish(arena, chill, run_id, taker, stopped_at)
        before = _digests(arena.workspace / run_id)
        stale.signal(signal.SIGCONT)
        _, said = await stale.ended()
        assert said.error in {"LeaseLost", ""}, f"the stale worker ended with {said}"
        if is_early:
            await _finish(arena, chill, run_id, taker, stopped_at)
        chill.freezes += 1
        chill.early += is_early
        chill.late_files += _digests(arena.workspace / run_id) != before
        await _hold(arena, chill, run_id)
    finally:
        stale.dispose()
        if taker is not None:
            taker.dispose()


async def _until_stopped(arena: Arena, child: Child) -> None:
    while not child.is_stopped():
        assert child.is_alive(), "the worker ended without being stopped"
        await arena.clock.sleep(0.005)


async def _until_taken(arena: Arena, run_id: str) -> None:
    """Return when the taker has the run, and those of its children that the stopped worker had; until then nothing that one writes is too late."""
    while (await arena.store.get(run_id)).lease.epoch < TAKEN or not await _has_children(arena, run_id):
        await arena.clock.sleep(0.005)


async def _has_children(arena: Arena, run_id: str) -> bool:
    audit = await audit_of(arena, run_id)
    rows = [row for row in await arena.store.list_runs(RunQuery()) if row.run_id in audit.children]
    return all(row.head.is_terminal or row.lease.epoch != 1 or row.lease.is_released for row in rows)


async def _finish(arena: Arena, chill: Chill, run_id: str, taker: Child, stopped_at: float) -> None:
    """Let the taker go on until the run rests, and bring it to its end."""
    code, said = await taker.ended()
    assert (code, said.error) == (0, ""), f"the taker ended with {code}: {said}"
    took = said.at - stopped_at
    assert took <= LEASE_SECONDS + 1, f"the takeover took {took:.2f} s"
    chill.takeovers.append(took)
    await arena.finish(run_id)


async def _hold(arena: Arena, chill: Chill, run_id: str) -> None:
    """Hold a run to what must be true after the stale worker has gone on and ended."""
    audit = await audit_of(arena, run_id)
    family = (run_id, *audit.children)
    refusals = [item for one in family for item in await arena.store.refusals(one) if item.actor == "worker:stale"]
    faults = await faults_of(arena, audit)
    epochs = [event.epoch for event in audit.events if event.actor == "worker:stale"]
    if set(epochs) != {TAKEN - 1}:
        faults.append(f"the stale worker appended under the epochs {sorted(map(str, set(epochs)))}")
    leases = [event.data for event in audit.events if isinstance(event.data, LeaseTaken)]
    taken = leases[TAKEN - 1]
    if not (taken.takeover and taken.folder == f"{run_id}.{TAKEN}"):
        faults.append(f"the takeover was none, or in no folder of its own: {taken}")
    folder = arena.workspace / audit.state.folder
    changed = [item.path for item in audit.state.artifacts if digest_of(folder, item.path) != item.sha256]
    if changed:
        faults.append(f"a late write changed what was verified: {changed}")
    chill.refused += bool(refusals) and {item.code for item in refusals} <= {"lease_lost", "terminal"}
    chill.faults += [f"run {run_id}: {fault}" for fault in faults]


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
