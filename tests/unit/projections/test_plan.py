"""The plan's view is a value of the log alone: the same however the log is cut, and never changed by what follows."""

import pytest

from checkrein.kernel.events import EventData, PlanCommit, StepEnd, StepSpec, StepStart, ToolCallGiven, ToolResultGiven
from checkrein.projections.plan import PlanView, fold_plan
from checkrein.values import JsonData, JsonObject
from tests.unit.kernel.story import running

STEPS = tuple(StepSpec(id=name, description=f"do {name}", tool_name="put") for name in ("a", "b", "c"))


def _worked() -> list[EventData]:
    data: list[EventData] = [PlanCommit(1, STEPS)]
    for position, step in enumerate(STEPS):
        call = f"1.{position}"
        data += [
            StepStart(step.id),
            ToolCallGiven(step.id, call, "put", JsonObject({"step": step.id})),
            ToolResultGiven(step.id, call, JsonData(position)),
            StepEnd(step.id, "done", JsonData(position)),
        ]
    return [*data, PlanCommit(2, STEPS[:1]), StepStart("a")]


def _views() -> list[PlanView]:
    story = running()
    story.worker(*_worked())
    return [fold_plan(story.log[:cut]) for cut in range(1, len(story.log) + 1)]


def test_view_is_the_same_however_the_log_is_cut() -> None:
    story = running()
    story.worker(*_worked())
    whole = fold_plan(story.log)
    assert (whole.status, whole.turn, len(whole.history)) == ({"a": "started"}, 2, 3)
    for cut in range(len(story.log) + 1):
        assert fold_plan(story.log[cut:], fold_plan(story.log[:cut])) == whole


def test_folding_on_leaves_a_view_as_it_was() -> None:
    story = running()
    story.worker(*_worked())
    for cut, view in enumerate(_views(), start=1):
        shown = repr(view)
        fold_plan(story.log[cut:], view)
        assert repr(view) == shown


def test_steps_are_found_by_their_id_in_the_newest_plan_alone() -> None:
    first, last = _views()[-3], _views()[-1]
    assert [first.index_of(step) for step in STEPS] == [0, 1, 2]
    assert first.next_step is None
    assert last.next_step == last.current == STEPS[0]
    with pytest.raises(KeyError):
        last.index_of(STEPS[1])
