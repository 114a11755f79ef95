"""For any planner, tools, hooks, answers and failures of the store: the log alone is run and session, nobody gets more than the budget, and both levels agree on the end."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings, strategies as st

from checkrein.kernel.budget import COUNTED, BudgetState
from checkrein.kernel.events import Blocked, Event, SessionComplete, ToolGranted, Unblocked
from checkrein.kernel.run import evolve, fold_run
from checkrein.kernel.session import evolve_session, fold_session
from checkrein.kernel.session_budget import spent
from checkrein.kernel.session_state import SessionPhase, SessionState
from checkrein.kernel.state import RunState
from checkrein.runs.replay import Replay, replay_run
from tests.counts import amount
from tests.property.runs.run_world import RunWorld

TAPES = st.lists(st.integers(0, 255), min_size=30, max_size=260)


def _lived(numbers: Sequence[int]) -> tuple[RunWorld, list[Event], Replay]:
    async def live() -> tuple[list[Event], Replay]:
        await world.live()
        return await world.log(), await replay_run(world.store, world.run_id)

    with tempfile.TemporaryDirectory() as folder:
        world = RunWorld(numbers, Path(folder))
        return (world, *asyncio.run(live()))


def _states(log: Sequence[Event]) -> list[tuple[RunState, SessionState]]:
    """Return run and session after every event."""
    run, session = fold_run(log[:1]), evolve_session(SessionState(), log[0])
    states = [(run, session)]
    for event in log[1:]:
        run, session = evolve(run, event), evolve_session(session, event)
        states.append((run, session))
    return states


@given(TAPES)
@settings(max_examples=amount(150), deadline=None)
def test_run_and_session_are_the_folds_of_the_log_at_every_moment_and_agree(numbers: list[int]) -> None:
    world, log, replay = _lived(numbers)
    states = _states(log)
    for version, session, state in world.seen:
        assert states[version - 1] == (state, session)
        assert (session.phase is SessionPhase.DONE) == state.phase.is_terminal
    assert replay.is_equal, replay.divergence
    assert (replay.state, replay.session) == states[-1]
    assert (fold_run(log), fold_session(log)) == states[-1]


@given(TAPES)
@settings(max_examples=amount(150), deadline=None)
def test_there_is_one_end_of_both_levels_and_they_name_it_alike(numbers: list[int]) -> None:
    _, log, _ = _lived(numbers)
    run, session = _states(log)[-1]
    assert run.phase.is_terminal
    assert run.outcome is not None
    assert (session.phase, session.outcome) == (SessionPhase.DONE, run.outcome.code)
    ends = [offset for offset, event in enumerate(log) if isinstance(event.data, SessionComplete)]
    assert ends == [len(log) - 2]
    assert not fold_run(log[:-1]).phase.is_terminal


@given(TAPES)
@settings(max_examples=amount(150), deadline=None)
def test_nothing_is_granted_beyond_the_budget_and_both_levels_count_the_same(numbers: list[int]) -> None:
    world, log, _ = _lived(numbers)
    counted, batches = BudgetState(), {version for version, _, _ in world.seen} | {len(log)}
    for version, (event, (run, _)) in enumerate(zip(log, _states(log), strict=True), start=1):
        counted = spent(counted, event)
        # Within a batch one level is ahead of the other by an event.
        assert version not in batches or counted.used == run.budget.used
        for limit in COUNTED:
            allowed = run.budget.limits.limit(limit)
            assert allowed is None or run.budget.taken(limit) <= allowed
    grants = {(item.data.call_id, item.data.attempt) for item in log if isinstance(item.data, ToolGranted)}
    for (name, call_id, attempt), count in world.bodies.items():
        assert count == 1
        assert (call_id, attempt) in grants
        assert attempt == 1 or name == "look"


@given(TAPES)
@settings(max_examples=amount(100), deadline=None)
def test_a_call_that_waits_for_a_decision_is_asked_about_once_and_granted_only_after_it_was_allowed(
    numbers: list[int],
) -> None:
    _, log, _ = _lived(numbers)
    waiting: dict[str, str] = {}
    denied, asked = set[str](), Counter[str]()
    for event in log:
        match event.data:
            case Blocked(cause=cause) if cause.call_id and cause.id.startswith(("permission:", "review:")):
                waiting[cause.id] = cause.call_id
                asked[cause.id] += 1
            case Unblocked(cause_id=cause_id) if cause_id in waiting:
                call_id, answer = waiting.pop(cause_id), event.data.answer.value
                denied |= {call_id} if answer == "deny" or (isinstance(answer, dict) and "deny" in answer) else set()
            case ToolGranted(call_id=call_id):
                assert call_id not in waiting.values()
                assert call_id not in denied
            case _:
                pass
    assert set(asked.values()) <= {1}
