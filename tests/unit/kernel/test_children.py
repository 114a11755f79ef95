"""Shares of child runs: set aside before the child exists, given back once, and never left over at an end."""

from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import (
    Blocked,
    BudgetReserved,
    BudgetSettled,
    CancelRequested,
    Event,
    EventData,
    Failed,
    Received,
    ToolAccepted,
    ToolDone,
    WorkDone,
)
from checkrein.kernel.run import transition
from checkrein.kernel.state import CHILD, Phase
from tests.unit.kernel.story import Story, cause, done, grant, running

SHARE = Amounts(tool_calls=2, cost=1.0)


def _with_child(*more: EventData) -> Story:
    return running(None, grant("1.0"), BudgetReserved("child", SHARE, "1.0", "other"), *more)


def test_only_an_open_call_may_reserve_for_its_child() -> None:
    story = running(None, grant("1.0"))
    assert story.refused(BudgetReserved("child", SHARE, "1.1")) == "unknown_call"
    story.worker(BudgetReserved("child", SHARE, "1.0", "other"), done("1.0"))
    assert story.refused(BudgetReserved("child2", SHARE, "1.0")) == "unknown_call"
    share = story.state.reservation("child")
    assert share is not None
    assert (share.call_id, share.task, share.amounts) == ("1.0", "other", SHARE)
    story.check_fold()


def test_a_child_is_loose_once_its_call_has_an_outcome() -> None:
    story = _with_child(ToolAccepted("1.0", f"{CHILD}child"))
    assert story.state.open_calls[0].child == "child"
    assert story.state.loose_children == ()
    story.worker(done("1.0"))
    assert [item.child for item in story.state.loose_children] == ["child"]


def test_a_job_of_another_kind_names_no_child() -> None:
    assert _with_child(ToolAccepted("1.0", "job 7")).state.open_calls[0].child == ""
    assert _with_child().state.open_calls[0].child == ""


def test_work_is_not_done_while_a_child_has_a_share() -> None:
    story = _with_child(done("1.0"))
    assert story.refused(WorkDone()) == "calls_in_flight"
    story.worker(BudgetSettled("child", Amounts(tool_calls=1)), WorkDone())
    assert story.state.phase is Phase.VERIFYING


def test_an_outcome_that_completes_waits_for_the_child_of_another_call() -> None:
    story = _with_child(ToolDone("1.0", completes=True))
    assert story.state.phase is Phase.RUNNING


def test_a_share_is_settled_once_and_for_no_more_than_was_counted_out() -> None:
    story = _with_child(done("1.0"))
    assert story.refused(BudgetSettled("child", Amounts(tool_calls=3))) == "budget_exhausted"
    story.worker(BudgetSettled("child", Amounts(tool_calls=2, cost=1.5)))
    assert story.refused(BudgetSettled("child", Amounts())) == "unknown_call"
    assert (story.state.budget.used.tool_calls, story.state.budget.used.cost) == (3, 1.5)
    assert story.state.budget.reserved == Amounts()
    story.check_fold()


def test_what_is_unlimited_is_not_set_aside_and_charged_as_it_was_used() -> None:
    story = running(Budget(tool_calls=None, steps=5), BudgetReserved("child", Amounts(steps=1)))
    assert story.refused(BudgetSettled("child", Amounts(tool_calls=9, steps=2))) == "budget_exhausted"
    story.worker(BudgetSettled("child", Amounts(tool_calls=9, steps=1)))
    assert story.state.budget.used == Amounts(tool_calls=9, steps=1)


def test_a_run_that_ends_with_a_child_is_charged_with_the_whole_share() -> None:
    ends: tuple[tuple[EventData, ...], ...] = (
        (CancelRequested("enough"),),
        (Failed("step_failed", "no"),),
        (Blocked(cause()), Failed("closed", "closed")),
    )
    for facts in ends:
        story = _with_child(done("1.0"))
        story.worker(*facts)
        assert story.state.phase is Phase.FAILED
        assert story.state.reservations == ()
        assert (story.state.budget.used.tool_calls, story.state.budget.reserved) == (3, Amounts())
        story.check_fold()


def test_the_time_of_a_child_is_added_to_that_of_its_run_however_the_share_ends() -> None:
    share = Amounts(wall_seconds=10.0)
    settled: EventData = BudgetSettled("child", Amounts(wall_seconds=4.0))
    ends: tuple[tuple[EventData, float], ...] = ((settled, 9.0), (CancelRequested("enough"), 15.0))
    for last, seconds in ends:
        story = running(None, grant("1.0"))
        story.worker(BudgetReserved("child", share, "1.0", "other"), elapsed=2.0)
        story.worker(done("1.0"), elapsed=5.0)
        story.worker(last)
        assert story.state.budget.used.wall_seconds == seconds
        story.check_fold()


def test_the_outcome_that_ends_a_cancelled_run_charges_what_its_child_really_used() -> None:
    story = _with_child(ToolAccepted("1.0", f"{CHILD}child"))
    story.user(CancelRequested("enough"))
    assert story.refused(BudgetReserved("child2", Amounts(), "1.0")) == "rights_revoked"
    story.worker(BudgetSettled("child", Amounts()), done("1.0"))
    assert (story.state.phase, story.state.budget.used.tool_calls) == (Phase.FAILED, 1)


def test_a_run_knows_its_parent() -> None:
    story = Story()
    task = story.state.task
    event = Event("child", "e0", 0, 0.0, "run:parent", Received(task, Budget(), parent="parent"))
    assert (transition(None, event).parent, story.state.parent) == ("parent", "")
