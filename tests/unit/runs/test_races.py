"""Two who decide on one version: every pair, in both orders. One wins, the other learns it from a typed conflict, and a run ends once."""

import asyncio
import itertools

import pytest
from msgspec.structs import replace

from checkrein.clock import SystemIds
from checkrein.errors import Conflict, Rejected
from checkrein.kernel.budget import Amounts
from checkrein.kernel.events import (
    Artifact,
    Blocked,
    BudgetExtended,
    CancelRequested,
    Cause,
    CheckFailed,
    CheckPassed,
    EventData,
    Evidence,
    Failed,
    Finding,
    SteerQueued,
)
from checkrein.kernel.state import Phase
from checkrein.runs.journal import Journal
from tests.unit.runs.scene import Exists, Scene, hang, write

ENDS = {"complete", "cancel", "fail"}
"""What ends a run that is being verified; the others move it on."""


async def _verifying(scene: Scene) -> str:
    """Return a run that is being verified by a worker which stopped there, without its lease being over."""
    entered = asyncio.Event()

    async def never(_context: object) -> None:
        entered.set()
        await hang()

    task = scene.task([write()], checks=[Exists(before=never)])
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    scene.spawn(worker.advance(run_id))
    await entered.wait()
    return run_id


def _moves(journal: Journal) -> dict[str, tuple[EventData, int | None]]:
    """Return what may be said of a run that is being verified, and under which epoch."""
    state = journal.state
    recorded = state.artifact("report.txt")
    assert recorded is not None
    proof = Evidence(
        check="exists:report.txt",
        verifier="exists",
        verifier_version="1",
        run_id=state.run_id,
        subject="report.txt",
        sha256=recorded.sha256,
        measurement="8 characters",
        at=0.0,
        position=state.version,
    )
    finding = Finding(check="exists:report.txt", subject="report.txt", code="empty", message="it is empty")
    cause = Cause(id="verifier:x", kind="verifier", message="cannot run")
    return {
        "complete": (CheckPassed((proof,), (Artifact("report.txt", recorded.sha256),)), state.epoch),
        "progress": (CheckFailed((finding,)), state.epoch),
        "fail": (Failed(code="error", message="given up"), state.epoch),
        "block": (Blocked(cause), state.epoch),
        "cancel": (CancelRequested("enough"), None),
        "steer": (SteerQueued("note", "hurry"), None),
        "extend": (BudgetExtended(Amounts(turns=1)), None),
    }


@pytest.mark.parametrize(("first", "second"), list(itertools.product(
    ["complete", "progress", "fail", "block", "cancel", "steer", "extend"], repeat=2
)))  # fmt: skip
async def test_of_two_facts_on_one_version_one_wins_and_the_other_gets_a_typed_conflict(
    scene: Scene, first: str, second: str
) -> None:
    run_id = await _verifying(scene)
    journals = [await Journal.open(scene.store, run_id, clock=scene.clock, ids=SystemIds()) for _ in range(2)]
    (won, won_epoch), (lost, lost_epoch) = _moves(journals[0])[first], _moves(journals[1])[second]
    await journals[0].append([won], actor="worker:first", epoch=won_epoch)
    with pytest.raises(Conflict) as conflict:
        await journals[1].append([lost], actor="worker:second", epoch=lost_epoch)
    assert conflict.value.code == "stale_version"
    # The loser has read what won, and what it says now is decided anew.
    assert journals[1].state == journals[0].state
    if first in ENDS:
        with pytest.raises(Rejected, match="terminal"):
            await journals[1].append([lost], actor="worker:second", epoch=lost_epoch)
        assert [code for _, code in await scene.refused(run_id)] == ["terminal"]
    await scene.check_log(run_id)


async def test_the_same_terminal_event_again_is_known_and_another_one_is_refused(scene: Scene) -> None:
    run_id = await _verifying(scene)
    first, second = [await Journal.open(scene.store, run_id, clock=scene.clock, ids=SystemIds()) for _ in range(2)]
    batch = first.batch_of([CancelRequested("enough")], actor="user:a", epoch=None)
    await first.send(batch)
    assert first.state.phase is Phase.FAILED
    events = batch.events
    for event in events:
        await second.submit(event)
    assert second.state.version == first.state.version - len(events)
    with pytest.raises(Rejected, match="terminal"):
        await first.submit(replace(events[-1], event_id="another", expected_version=first.state.version))
    assert (await scene.types(run_id)).count("session.complete") == 1


async def test_a_save_of_the_former_holder_that_comes_late_is_refused_and_recorded(scene: Scene) -> None:
    run_id = await _verifying(scene)
    stale = await Journal.open(scene.store, run_id, clock=scene.clock, ids=SystemIds())
    fact, epoch = _moves(stale)["complete"]
    assert epoch is not None
    taker = scene.worker(scene.task([write()]))
    assert await scene.store.release(run_id, epoch=epoch)
    assert (await taker.advance(run_id)).phase is Phase.SUCCEEDED
    with pytest.raises(Conflict) as conflict:
        await stale.append([fact], actor="worker:stale", epoch=epoch)
    assert conflict.value.code == "lease_lost"
    assert await scene.refused(run_id) == [("check_passed", "lease_lost")]


async def test_users_commands_of_many_processes_at_once_are_all_appended_in_one_order(scene: Scene) -> None:
    run_id = await _verifying(scene)
    await asyncio.gather(
        *(scene.commands().steer(run_id, f"note {number}", request_id=f"note-{number}") for number in range(20))
    )
    notes = [event for event in await scene.log(run_id) if event.type == "steer_queued"]
    assert sorted(event.event_id for event in notes) == sorted(f"note-{number}" for number in range(20))
    await scene.check_log(run_id)
