"""A journal holds what its log gives, however long the log is."""

import pytest
from msgspec.structs import replace

from checkrein.clock import SystemIds
from checkrein.codec.wire import row_of
from checkrein.errors import DamagedLog
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import Event, EventData, Received, SteerQueued
from checkrein.kernel.run import fold_run
from checkrein.kernel.session import fold_session
from checkrein.runs.journal import FOLDED_AT_ONCE, Journal, head_of
from checkrein.store import MemoryStore
from checkrein.testing import ManualClock
from tests.golden.scenarios import TASK


def _log(length: int) -> list[Event]:
    data: list[EventData] = [Received(TASK, Budget())]
    data += [SteerQueued(note=f"n{number}", text="hurry") for number in range(1, length)]
    return [
        Event("0123456789abcdef", f"e{offset}", offset, float(offset), "user:ann", item)
        for offset, item in enumerate(data)
    ]


@pytest.mark.parametrize("length", [1, FOLDED_AT_ONCE, FOLDED_AT_ONCE + 1, 2 * FOLDED_AT_ONCE + 1])
async def test_open_gives_both_folds_of_the_whole_log(length: int) -> None:
    clock, log = ManualClock(), _log(length)
    store = MemoryStore(clock=clock)
    await store.create(log[0].run_id, "", [row_of(event) for event in log], head_of(fold_run(log), 0.0))
    journal = await Journal.open(store, log[0].run_id, clock=clock, ids=SystemIds())
    assert journal.state == fold_run(log)
    assert journal.session == fold_session(log)
    assert (journal.state.version, len(journal.session.queued)) == (length, length - 1)
    assert not await journal.refresh()


async def test_open_names_the_damaged_event_of_a_long_log() -> None:
    clock, log = ManualClock(), _log(FOLDED_AT_ONCE + 9)
    store = MemoryStore(clock=clock)
    wrong = FOLDED_AT_ONCE + 3
    rows = [row_of(log[wrong - 1] if offset == wrong else event) for offset, event in enumerate(log)]
    rows[wrong] = replace(rows[wrong], event_id="another")
    await store.create(log[0].run_id, "", rows, head_of(fold_run(log), 0.0))
    with pytest.raises(DamagedLog) as caught:
        await Journal.open(store, log[0].run_id, clock=clock, ids=SystemIds())
    assert caught.value.offset == wrong
