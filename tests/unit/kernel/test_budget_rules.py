"""The durable budget: every grant counts one before it happens, on every path, and nothing starts when it is used up."""

import math

import pytest

from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import (
    Blocked,
    BudgetExtended,
    BudgetReserved,
    BudgetSettled,
    EventData,
    PlanAccepted,
    StepStart,
    TranscriptCompacted,
    TurnFinished,
    TurnGranted,
    Unblocked,
)
from checkrein.kernel.state import OpenTurn, Phase
from checkrein.messages import Usage
from tests.unit.kernel.story import AGAIN, Story, cause, done, grant, running


@pytest.mark.parametrize("limit", [0, 1, 2, 8, 64])
def test_n_tool_calls_allowed_are_n_granted(limit: int) -> None:
    story = running(Budget(tool_calls=limit))
    for number in range(limit):
        story.worker(grant(f"1.{number}"), done(f"1.{number}"))
    assert story.refused(grant(f"1.{limit}")) == "budget_exhausted"
    assert story.state.budget.used.tool_calls == limit
    story.check_fold()


def test_retries_and_parallel_calls_draw_on_the_same_counter() -> None:
    story = running(Budget(tool_calls=3), grant("1.0", AGAIN), grant("1.1", AGAIN), grant("1.0", AGAIN, 2))
    assert story.refused(grant("1.1", AGAIN, 2)) == "budget_exhausted"
    assert story.refused(grant("1.2", AGAIN)) == "budget_exhausted"


def test_a_crash_after_the_grant_has_counted_already() -> None:
    story = running(Budget(tool_calls=1), grant("1.0", AGAIN))
    story.lease()
    assert story.state.budget.used.tool_calls == 1
    assert story.refused(grant("1.0", AGAIN, 2)) == "budget_exhausted"
    assert story.state.open_calls[0].status == "granted"


@pytest.mark.parametrize("limit", [0, 1, 2, 64])
def test_n_turns_allowed_are_n_granted_retries_included(limit: int) -> None:
    story = Story(Budget(turns=limit))
    story.lease()
    for number in range(limit):
        turn, attempt = number // 2 + 1, number % 2 + 1
        story.worker(TurnGranted(turn, attempt, previous="in_doubt" if attempt > 1 else ""))
        if attempt == 2:
            story.worker(TurnFinished(turn, 2))
    following = TurnGranted(limit // 2 + 1, limit % 2 + 1)
    assert story.refused(following) == "budget_exhausted"
    assert story.state.budget.used.turns == limit


def test_a_compaction_is_a_turn() -> None:
    story = running(Budget(turns=1), TurnGranted(1, purpose="compaction"), TurnFinished(1))
    assert story.refused(TurnGranted(2)) == "budget_exhausted"


def test_turns_follow_each_other_and_attempts_do_too() -> None:
    story = running()
    for wrong in (TurnGranted(2), TurnGranted(1, 0)):
        assert story.refused(wrong) == "unknown_call"
    for over in (TurnGranted(1, 2), TurnGranted(0), TurnFinished(0)):
        assert story.refused(over) == "call_settled"
    story.worker(TurnGranted(1))
    assert story.state.open_turn == OpenTurn(1, 1)
    assert story.refused(TurnGranted(1)) == "call_settled"
    assert story.refused(TurnGranted(2)) == "call_settled"
    assert story.refused(TurnFinished(2)) == "unknown_call"
    assert story.refused(TurnFinished(1, 2)) == "call_settled"
    story.worker(TurnGranted(1, 2, previous="in_doubt"))
    assert story.refused(TurnFinished(1)) == "call_settled"
    story.worker(TurnFinished(1, 2))
    assert story.refused(TurnFinished(1, 2)) == "call_settled"
    assert story.worker(TurnGranted(2)).turns_started == 2


def test_tokens_and_cost_stop_the_next_turn_and_no_tool_call() -> None:
    for budget, usage in ((Budget(tokens=100), Usage(90, 30)), (Budget(cost=0.1), Usage(1, 1, cost=0.2))):
        story = running(budget, TurnGranted(1), TurnFinished(1, usage=usage))
        assert story.refused(TurnGranted(2)) == "budget_exhausted"
        assert story.worker(grant("1.0")).open_calls != ()


def test_a_compactions_own_usage_counts() -> None:
    story = running(Budget(tokens=100), TurnGranted(1), TurnFinished(1, usage=Usage(40, 10)))
    story.worker(TranscriptCompacted(1, "so far so good", Usage(40, 10)))
    assert story.state.budget.used.tokens == 100
    assert story.refused(TurnGranted(2)) == "budget_exhausted"


@pytest.mark.parametrize("data", [grant("1.0"), TurnGranted(1)])
def test_the_wall_clock_is_asked_at_the_grant(data: EventData) -> None:
    story = running(Budget(wall_seconds=10))
    late = story.event(data, epoch=1, elapsed=10.0)
    assert story.refusal(late).code == "budget_exhausted"
    story.send(story.event(data, epoch=1, elapsed=9.9))
    assert story.state.budget.used.wall_seconds == 9.9
    story.check_fold()


def test_elapsed_time_is_kept_by_every_event_and_never_shrinks() -> None:
    story = running(Budget(wall_seconds=10))
    story.worker(PlanAccepted(2, "continuation"), elapsed=10.0)
    story.worker(PlanAccepted(2, "continuation"), elapsed=3.0)
    assert story.state.budget.used.wall_seconds == 10.0
    assert story.refused(grant("1.0")) == "budget_exhausted"
    assert story.refusal(story.event(grant("1.0"), epoch=1, elapsed=math.nan)).code == "budget_exhausted"


def test_outcomes_are_accepted_when_everything_is_used_up() -> None:
    story = running(Budget(tool_calls=1, wall_seconds=10), grant("1.0"))
    assert story.worker(done("1.0"), elapsed=99.0).open_calls == ()


def test_steps_and_replans_are_hard_limits_and_repairs_and_continuations_are_no_replan() -> None:
    story = running(Budget(steps=1, replans=1), StepStart("a"), PlanAccepted(1, "replan"))
    assert story.refused(StepStart("b")) == "budget_exhausted"
    assert story.refused(PlanAccepted(1, "replan")) == "budget_exhausted"
    story.worker(PlanAccepted(1, "repair"), PlanAccepted(1, "continuation"))
    assert (story.state.budget.used.steps, story.state.budget.used.replans) == (1, 1)


def test_the_first_plan_is_the_first_and_a_revision_says_why() -> None:
    story = Story()
    story.lease()
    for reason in ("replan", "repair", "continuation"):
        assert story.refused(PlanAccepted(1, reason)) == "illegal_in_phase"
    assert running().refused(PlanAccepted(1, "first")) == "illegal_in_phase"


def test_an_extension_makes_room_and_nothing_else_does() -> None:
    story = running(Budget(tool_calls=1), grant("1.0"), done("1.0"), Blocked(cause("budget", "budget")))
    story.user(Unblocked("budget"))
    assert story.refused(grant("1.1")) == "budget_exhausted"
    story.user(BudgetExtended(Amounts(tool_calls=1)))
    story.worker(grant("1.1"))
    assert story.refused(grant("1.2")) == "budget_exhausted"
    assert (story.state.budget.used.tool_calls, story.state.budget.limits.tool_calls) == (2, 2)
    story.check_fold()


def test_extensions_beyond_all_numbers_are_accepted() -> None:
    story = running()
    for _ in range(3):
        story.user(BudgetExtended(Amounts(turns=2**53 - 1, cost=float(2**53 - 1))))
    assert story.state.phase is Phase.RUNNING


def test_children_share_one_budget_and_one_check() -> None:
    story = running(Budget(tool_calls=3), grant("1.0"), done("1.0"))
    story.worker(BudgetReserved("child", Amounts(tool_calls=2)))
    assert story.refused(BudgetReserved("other", Amounts(tool_calls=1))) == "budget_exhausted"
    assert story.refused(grant("1.1")) == "budget_exhausted"
    assert story.refused(BudgetReserved("child", Amounts())) == "call_settled"
    story.lease()
    assert story.refused(grant("1.1")) == "budget_exhausted"
    story.worker(BudgetSettled("child", Amounts(tool_calls=1)))
    assert story.state.reservations == ()
    assert story.refused(BudgetSettled("child", Amounts(tool_calls=1))) == "unknown_call"
    story.worker(grant("1.1"))
    assert story.refused(grant("1.2")) == "budget_exhausted"
    story.check_fold()


def test_of_five_children_one_gets_the_last_share() -> None:
    story = running(Budget(tool_calls=1))
    story.worker(BudgetReserved("c0", Amounts(tool_calls=1)))
    for number in range(1, 5):
        assert story.refused(BudgetReserved(f"c{number}", Amounts(tool_calls=1))) == "budget_exhausted"
    story.worker(BudgetSettled("c0", Amounts()))
    assert story.worker(BudgetReserved("c1", Amounts(tool_calls=1))).reservations != ()


def test_a_child_is_settled_after_the_parent_is_blocked() -> None:
    story = running(None, BudgetReserved("child", Amounts(turns=2)), Blocked(cause()))
    assert story.worker(BudgetSettled("child", Amounts(turns=2))).budget.used.turns == 2
