"""Two processes on one store and one run: exactly one advances it, the other is told so by a typed conflict."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests import counts
from tests.crash.arena import Arena, Child
from tests.crash.audit import audit_of, faults_of
from tests.crash.child import Job

TRIALS = 20
AHEAD_SECONDS = 0.3


@pytest.fixture
async def arena(tmp_path: Path) -> AsyncIterator[Arena]:
    made = Arena(tmp_path / "arena")
    yield made
    await made.aclose()


async def test_of_two_processes_that_begin_at_once_exactly_one_advances_the_run(arena: Arena) -> None:
    trials = counts.amount(TRIALS)
    conflicts = 0
    for _ in range(trials):
        run_id = await arena.submit()
        go_at = arena.clock.monotonic() + AHEAD_SECONDS
        children = [Child(Job(str(arena.folder), run_id, name=name, go_at=go_at)) for name in ("first", "second")]
        try:
            said = [(await child.ended())[1] for child in children]
        finally:
            for child in children:
                child.dispose()
        winners = [item for item in said if item.phase]
        losers = [item.error for item in said if item.error]
        assert len(winners) == 1, said
        assert losers in (["LeaseHeld"], ["Conflict"]), said
        events = await arena.events(run_id)
        assert [event.type for event in events].count("lease_taken") == 1
        assert len({event.actor for event in events if event.epoch is not None}) == 1
        await arena.finish(run_id)
        assert await faults_of(arena, await audit_of(arena, run_id)) == []
        conflicts += 1
    counts.report("two processes on one run: one advances it, the other gets a conflict", trials, passed=conflicts)
