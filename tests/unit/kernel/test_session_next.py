"""What must be done next, in each state of a session, within its limits and beyond them."""

from collections.abc import Callable
from typing import Literal

import pytest
from msgspec.structs import replace

from checkrein.kernel.budget import Amounts, Budget, BudgetState, Limit
from checkrein.kernel.events import (
    CheckFailed,
    Finding,
    FollowUpQueued,
    PlanDraft,
    SessionPause,
    SessionResume,
    StepEnd,
    StepStart,
    TurnStart,
)
from checkrein.kernel.session_next import (
    AskPlanner,
    AwaitCalls,
    CompleteSession,
    Effect,
    EndStep,
    GiveBack,
    MeetGoal,
    OnFailure,
    PauseForBudget,
    PrepareCalls,
    ReviewDraft,
    ReviewStep,
    StartStep,
    budget_reason,
    end_of_empty_plan,
    failure_to_answer,
    next_effect,
)
from checkrein.kernel.session_state import SessionState
from checkrein.values import JsonData
from tests.unit.kernel.session_story import SessionStory, approvals, call, decide, error, plain, result, steer, tooled

FINDINGS = CheckFailed((Finding("sum", "a.csv", "differs", "12 expected"),))
ENOUGH = BudgetState()


def _started() -> SessionStory:
    return SessionStory().started()


def _next(story: SessionStory, *, on_failure: OnFailure = "replan", budget: BudgetState = ENOUGH) -> Effect:
    """What comes next once hooks have looked at every step that ended."""
    return next_effect(story.state, budget, on_failure, reviewed=story.state.reviewing)


def _used_up(limit: Limit) -> BudgetState:
    return BudgetState(limits=replace(Budget(), **{limit: 0}))


def _failed(*more: str) -> SessionStory:
    story = _started().committed(plain(1), *(plain(name) for name in more))
    return story.send(StepStart(1), StepEnd(1, "failed", error="it broke"))


def _done() -> SessionStory:
    return _started().reflecting()


# The effect of each state.

EFFECTS: dict[str, tuple[Callable[[], SessionStory], Effect]] = {
    "before the start": (SessionStory, GiveBack()),
    "paused": (lambda: _started().paused(), GiveBack()),
    "over": (lambda: _started().done(), GiveBack()),
    "started": (_started, AskPlanner(1, 1, "first")),
    "asked, and nobody knows what came of it": (
        lambda: _started().asked(),
        AskPlanner(1, 2, "first", previous="in_doubt"),
    ),
    "asked twice, and nobody knows": (
        lambda: _started().asked().send(TurnStart(1, 2)),
        AskPlanner(1, 3, "first", previous="in_doubt"),
    ),
    "stopped by a hook before the planner was asked": (
        lambda: (
            _started()
            .asked()
            .paused("aborted:no", "before_plan", "turn:1")
            .send(SessionResume("before_plan", "turn:1"))
        ),
        AskPlanner(1, 1, "first", is_held=True),
    ),
    "drafted": (lambda: _started().drafted(plain(1)), ReviewDraft(PlanDraft(1, (plain(1),)), "first")),
    "draft dropped": (
        lambda: _started().drafted(plain(1)).send(PlanDraft(1, (), dropped="no")),
        AskPlanner(2, 1, "first"),
    ),
    "planner failed": (
        lambda: _started().asked().send(SessionPause("planner_failed", "PLANNING", message="x"), SessionResume()),
        AskPlanner(2, 1, "first"),
    ),
    "committed": (lambda: _started().committed(plain(1)), StartStep(plain(1))),
    "next step": (lambda: _started().reflecting(tooled(2)), StartStep(tooled(2))),
    "a batch under way": (
        lambda: _started().committed(tooled(1, "b"), tooled(2, "b")).send(StepStart(1)),
        StartStep(tooled(2, "b")),
    ),
    "a draft of nothing where the goal would be met": (
        lambda: _done().drafted(reason="replan"),
        ReviewDraft(PlanDraft(2, ()), "replan"),
    ),
    "the plan was not final": (
        lambda: _started().committed(plain(1), final=False).send(StepStart(1), StepEnd(1, "done")),
        AskPlanner(2, 1, "continuation"),
    ),
    "the plan was final": (_done, MeetGoal()),
    "an empty plan after something was done": (lambda: _done().committed(reason="replan"), MeetGoal()),
    "nothing was done": (
        lambda: _started().committed(plain(1)).send(StepStart(1), StepEnd(1, "skipped")),
        CompleteSession("no_plan", "the plan ended and no step of it was done"),
    ),
    "rest of the plan dropped": (
        lambda: _started().reflecting(plain(2)).send(PlanDraft(1, (), dropped="enough")),
        AskPlanner(2, 1, "replan"),
    ),
    "findings": (lambda: _done().send(FINDINGS), AskPlanner(2, 1, "repair")),
    "a message": (lambda: _started().reflecting(plain(2)).send(steer("n1")), AskPlanner(2, 1, "replan", ("n1",))),
    "a follow-up in the middle waits": (
        lambda: _started().reflecting(plain(2)).send(FollowUpQueued("f1", "more")),
        StartStep(plain(2)),
    ),
    "a follow-up where the goal would be met": (
        lambda: _done().send(FollowUpQueued("f1", "more")),
        AskPlanner(2, 1, "replan", ("f1",)),
    ),
    "a follow-up after a plan that is not final waits": (
        lambda: (
            _started()
            .committed(plain(1), final=False)
            .send(StepStart(1), StepEnd(1, "done"), FollowUpQueued("f1", "more"))
        ),
        AskPlanner(2, 1, "continuation"),
    ),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_each_state_has_one_next_thing_to_do(name: str) -> None:
    make, effect = EFFECTS[name]
    assert _next(make()) == effect


def test_calls_are_prepared_when_the_whole_batch_is_started() -> None:
    story = _started().committed(tooled(1, "b"), tooled(2, "b")).send(StepStart(1), StepStart(2))
    assert _next(story) == PrepareCalls(story.state.work)


def test_a_step_without_tool_ends_before_the_calls_of_its_batch_are_made() -> None:
    story = _started().committed(plain(1, "b"), tooled(2, "b")).send(StepStart(1), StepStart(2))
    assert _next(story) == EndStep(story.state.work[0])


def test_open_calls_are_awaited_and_those_refused_are_not() -> None:
    story = _started().awaiting(tooled(1, "b"), tooled(2, "b")).send(result(1, "1.0"))
    assert _next(story) == AwaitCalls((story.state.work[1],))


def test_calls_that_the_budget_held_back_are_prepared_when_the_granted_ones_are_answered() -> None:
    story = _started().committed(tooled(1, "b"), tooled(2, "b")).send(StepStart(1), StepStart(2), call(1, "1.0"))
    assert _next(story) == AwaitCalls((story.state.work[0],))
    story.send(result(1, "1.0"))
    assert _next(story) == PrepareCalls((story.state.work[1],))
    assert _next(story, budget=_used_up("tool_calls")) == PauseForBudget("tool_calls")


def test_answered_steps_end_one_by_one_before_anything_else() -> None:
    story = _started().awaiting(tooled(1, "b"), tooled(2, "b")).send(error(2, "1.1"), result(1, "1.0"))
    assert _next(story) == EndStep(story.state.work[0])
    story.send(StepEnd(1, "done"))
    assert _next(story) == EndStep(story.state.work[0])


def test_decided_approvals_lead_to_their_grant() -> None:
    story = approvals("hook", "hook").send(decide("1.1"), decide("1.0"))
    assert _next(story) == PrepareCalls(story.state.work)


def test_hooks_look_at_every_step_that_ended_before_the_session_goes_on() -> None:
    story = _started().awaiting(tooled(1, "b"), tooled(2, "b")).send(result(1, "1.0"), result(2, "1.1"))
    story.send(StepEnd(1, "done"), StepEnd(2, "done"))
    seen = [next_effect(story.state, ENOUGH, reviewed=reviewed) for reviewed in ((), (1,), (2,), (1, 2))]
    assert seen == [ReviewStep(1), ReviewStep(2), ReviewStep(1), MeetGoal()]


# Limits.

LIMITS: dict[str, tuple[Callable[[], SessionStory], frozenset[Limit]]] = {
    "a first planning": (_started, frozenset({"turns", "wall_seconds", "tokens", "cost"})),
    "a planning begun before": (
        lambda: _started().asked(),
        frozenset({"turns", "wall_seconds", "tokens", "cost"}),
    ),
    "a planning that is counted already": (
        lambda: (
            _started().asked().paused("review:x", "before_plan", "turn:1").send(SessionResume("before_plan", "turn:1"))
        ),
        frozenset({"wall_seconds"}),
    ),
    "a revision": (_failed, frozenset({"turns", "wall_seconds", "tokens", "cost", "replans"})),
    "a repair": (lambda: _done().send(FINDINGS), frozenset({"turns", "wall_seconds", "tokens", "cost"})),
    "a plan's continuation": (
        lambda: _started().committed(plain(1), final=False).send(StepStart(1), StepEnd(1, "done")),
        frozenset({"turns", "wall_seconds", "tokens", "cost"}),
    ),
    "a draft": (lambda: _started().drafted(plain(1)), frozenset({"wall_seconds"})),
    "a step": (lambda: _started().committed(plain(1)), frozenset({"steps", "wall_seconds"})),
    "the next step": (lambda: _started().reflecting(plain(2)), frozenset({"steps", "wall_seconds"})),
    "a grant": (
        lambda: _started().committed(tooled(1)).send(StepStart(1)),
        frozenset({"tool_calls", "wall_seconds"}),
    ),
    "an open call": (lambda: _started().awaiting(), frozenset({"wall_seconds"})),
    "an answered call": (lambda: _started().awaiting().send(result(1, "1.0")), frozenset()),
    "the goal met": (_done, frozenset({"wall_seconds"})),
    "a pause": (lambda: _started().paused(), frozenset()),
    "the end": (lambda: _started().done(), frozenset()),
}
ALL_LIMITS: tuple[Limit, ...] = (
    "turns",
    "tool_calls",
    "wall_seconds",
    "tokens",
    "cost",
    "steps",
    "replans",
    "repairs",
)


@pytest.mark.parametrize("limit", ALL_LIMITS)
@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_stops_exactly_what_it_limits(name: str, limit: Limit) -> None:
    make, stopping = LIMITS[name]
    story = make()
    effect = _next(story, budget=_used_up(limit))
    assert effect == (PauseForBudget(limit) if limit in stopping else _next(story))


def test_finishing_at_a_limit_is_no_pause_and_one_more_is() -> None:
    budget = BudgetState(limits=Budget(turns=2), used=Amounts(turns=1))
    assert isinstance(_next(_started(), budget=budget), AskPlanner)
    assert _next(_started(), budget=budget.charged("turns")) == PauseForBudget("turns")
    assert _next(_done(), budget=budget.charged("turns")) == MeetGoal()


@pytest.mark.parametrize(
    ("limit", "reason"),
    [("steps", "step_budget"), ("replans", "replan_budget"), ("turns", "budget_exceeded:turns")],
)
def test_the_reason_of_a_pause_names_its_limit(limit: Limit, reason: str) -> None:
    assert budget_reason(limit) == reason


# Failures and the policy about them.


def test_a_failed_step_leads_where_the_policy_says() -> None:
    story = _failed("next")
    assert _next(story, on_failure="replan") == AskPlanner(2, 1, "replan")
    assert _next(story, on_failure="skip") == StartStep(plain("next"))
    assert _next(story, on_failure="abort") == CompleteSession("step_failed", "step 1 failed: it broke")


def test_only_a_failed_step_is_passed_over_by_the_policy_skip() -> None:
    failed, found = _failed().state.failure, _done().send(FINDINGS).state.failure
    state = SessionState(failure=failed)
    assert [failure_to_answer(state, policy) for policy in _POLICIES] == [failed, None, failed]
    assert [failure_to_answer(SessionState(failure=found), policy) for policy in _POLICIES] == [found] * 3


_POLICIES: tuple[OnFailure, ...] = ("replan", "skip", "abort")


def test_a_failure_comes_before_a_message_and_the_planning_takes_both() -> None:
    story = _failed("next").send(steer("n1"), FollowUpQueued("f1", "more"))
    assert _next(story) == AskPlanner(2, 1, "replan", ("n1",))


def test_a_repair_takes_every_message() -> None:
    story = _done().send(FINDINGS, FollowUpQueued("f1", "more"), steer("n1"))
    assert _next(story) == AskPlanner(2, 1, "repair", ("f1", "n1"))


# Empty plans.

EndName = Literal["gave_up", "no_plan", "check_failed", "goal"]


@pytest.mark.parametrize(
    ("make", "policy", "expected"),
    [
        (_started, "replan", "no_plan"),
        (_done, "replan", "goal"),
        (_failed, "replan", "gave_up"),
        (_failed, "skip", "no_plan"),
        (lambda: _done().send(FINDINGS), "replan", "check_failed"),
        (lambda: _started().drafted(plain(1)).send(PlanDraft(1, (), dropped="no")), "replan", "gave_up"),
        (lambda: _done().send(PlanDraft(1, (), dropped="no")), "skip", "gave_up"),
        (
            lambda: _started().committed(plain(1)).send(StepStart(1), StepEnd(1, "skipped")),
            "replan",
            "no_plan",
        ),
    ],
)
def test_an_empty_plan_ends_the_session_by_the_first_rule_that_fits(
    make: Callable[[], SessionStory], policy: OnFailure, expected: EndName
) -> None:
    end = end_of_empty_plan(make().state, policy)
    assert ("goal" if end is None else end.code) == expected


def test_an_answer_belongs_to_the_call_that_it_names() -> None:
    story = _started().awaiting(tooled(1, "b"), tooled(2, "b")).send(result(2, "1.1"))
    assert _next(story) == AwaitCalls((story.state.work[0],))
    assert story.state.work[1].answer is not None
    assert story.state.work[1].answer.result == JsonData(5)
