"""A state is a value: immutable, hashable, comparable, and it explains itself."""

from collections.abc import Sequence
from typing import cast

import msgspec
import pytest

from checkrein.errors import IllegalTransition, Rejected
from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import BudgetReserved, BudgetSettled, SteerQueued, StepStart, WorkDone
from checkrein.kernel.run import evolve, fold_run
from checkrein.kernel.state import Phase, RunState
from checkrein.values import JsonData, JsonObject, Shared
from tests.unit.kernel.story import FINDING, Story, done, grant, in_phase, running
from tests.unit.kernel.test_abnormal_paths import whole_life

LEAVES = (str, int, float, bool, bytes, type(None), JsonObject, JsonData)


def assert_immutable(value: object, place: str) -> None:
    """Fail for any part of a value that could be changed in place."""
    if isinstance(value, msgspec.Struct):
        assert type(value).__struct_config__.frozen, place
        for name in value.__struct_fields__:
            assert_immutable(getattr(value, name), f"{place}.{name}")
    elif isinstance(value, (tuple, Shared)):
        for index, item in enumerate(cast("Sequence[object]", value)):
            assert_immutable(item, f"{place}[{index}]")
    else:
        assert isinstance(value, LEAVES), f"{place} is a {type(value).__name__}"


def test_no_part_of_a_state_can_be_changed() -> None:
    states = [fold_run(whole_life().log[:cut]) for cut in range(1, len(whole_life().log) + 1)]
    for state in states:
        assert_immutable(state, "state")
        assert hash(state) == hash(fold_run([], state))
    assert len(set(states)) == len(states)
    with pytest.raises(AttributeError):
        setattr(states[0], "phase", Phase.SUCCEEDED)  # noqa: B010  a type checker refuses the plain assignment


def test_a_state_stays_as_it_is_while_later_ones_grow_from_it() -> None:
    story = running(None, grant("1.0"), done("1.0"), grant("1.1"))
    before, shown = story.state, repr(story.state)
    story.worker(done("1.1"))
    other = evolve(before, story.event(done("1.1"), epoch=1))
    assert repr(before) == shown
    assert [call.call_id for call in before.settled_calls] == ["1.0"]
    assert other.settled_calls == story.state.settled_calls


def test_every_event_advances_the_version_by_one() -> None:
    story = running()
    version = story.state.version
    story.user(SteerQueued("n", "t"))
    story.worker(StepStart("s"), grant("1.0"))
    assert story.state.version == version + 3 == len(story.log)


def test_a_run_begins_with_the_facts_of_its_task() -> None:
    state = Story(Budget(turns=3)).state
    assert (state.run_id, state.phase, state.version, state.epoch) == ("run", Phase.RECEIVED, 1, 0)
    assert (state.code_hash, state.task.name, state.budget.limits.turns) == ("code", "report", 3)
    assert (state.open_calls, state.settled_calls, state.artifacts, state.outcome) == ((), (), (), None)


def test_events_that_only_carry_time_advance_version_and_clock_in_the_fold_too() -> None:
    story = running()
    for seconds in (3.0, 9.0, 5.0):
        story.send(story.event(SteerQueued("n", "t"), epoch=None, elapsed=seconds))
    story.worker(grant("1.0"), elapsed=7.0)
    story.user(SteerQueued("n", "t"), SteerQueued("n", "t"))
    assert (story.state.version, story.state.budget.used.wall_seconds) == (len(story.log), 9.0)
    story.check_fold()
    for cut in range(1, len(story.log) + 1):
        assert fold_run(story.log[cut:], fold_run(story.log[:cut])) == story.state


def test_a_childs_time_is_added_to_the_clock_as_it_stood_in_the_fold_too() -> None:
    story = running()
    for data, seconds in (
        (SteerQueued("n", "t"), 10.0),
        (BudgetReserved("child", Amounts(turns=1)), 10.0),
        (BudgetSettled("child", Amounts(turns=1, wall_seconds=5.0)), 11.0),
        (StepStart("s"), 12.0),
    ):
        story.worker(data, elapsed=seconds)
    assert story.state.budget.used.wall_seconds == 16.0
    for cut in range(1, len(story.log) + 1):
        assert fold_run(story.log[cut:], fold_run(story.log[:cut])) == story.state


def test_a_phase_knows_whether_it_is_an_end() -> None:
    assert [phase for phase in Phase if phase.is_terminal] == [Phase.SUCCEEDED, Phase.FAILED]


def test_an_empty_log_is_no_run_and_a_log_must_begin_with_received() -> None:
    with pytest.raises(ValueError, match="empty log"):
        fold_run([])
    with pytest.raises(Rejected):
        fold_run(running().log[1:])


def test_a_log_that_was_never_accepted_is_named_as_such() -> None:
    story = running()
    stray = [story.event(done("1.0"), epoch=1), story.event(grant("1.0"), epoch=1)]
    with pytest.raises(IllegalTransition, match=r"'1\.0', which is not open"):
        fold_run(stray, story.state)
    with pytest.raises(IllegalTransition):
        fold_run([story.event(WorkDone(), epoch=1)], in_phase(Phase.SUCCEEDED).state)
    with pytest.raises(IllegalTransition):
        fold_run([story.event(SteerQueued("n", "t"), epoch=None)], in_phase(Phase.FAILED).state)
    with pytest.raises(IllegalTransition):
        fold_run([*whole_life().log, story.event(SteerQueued("n", "t"), epoch=None)])


def test_the_end_keeps_what_a_person_wants_to_know() -> None:
    state = whole_life().state
    assert isinstance(state, RunState)
    assert [(effect.call_id, effect.attempts) for effect in state.effects] == [("1.0", 2), ("1.1", 1), ("2.0", 1)]
    assert len(state.evidence) == len(state.task.checks)
    assert FINDING not in state.findings
