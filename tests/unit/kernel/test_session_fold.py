"""What the events of a session make of its state: plans, batches, notes, failures, pauses, and the counters beside them."""

from dataclasses import dataclass

import pytest

from checkrein.kernel.budget import Amounts, Budget, BudgetState
from checkrein.kernel.events import (
    BudgetExtended,
    CheckFailed,
    Finding,
    FollowUpQueued,
    PlanCommit,
    PlanDraft,
    PlanReason,
    SessionComplete,
    SessionPause,
    SessionResume,
    SessionStart,
    StepEnd,
    StepStart,
    TurnFinished,
    TurnStart,
    Unblocked,
)
from checkrein.kernel.session import evolve_session, fold_session
from checkrein.kernel.session_budget import spent
from checkrein.kernel.session_state import EndedStep, LastFailure, Note, SessionState
from checkrein.messages import Usage
from checkrein.values import JsonData
from tests.unit.kernel.session_story import (
    SessionStory,
    approvals,
    call,
    decide,
    error,
    plain,
    result,
    steer,
    tooled,
)

FINDINGS = CheckFailed((Finding("sum", "a.csv", "differs", "12 expected"), Finding("title", "", "missing", "none")))


def _started() -> SessionStory:
    return SessionStory().started()


def _long_story() -> SessionStory:
    """A session with a batch, a failure, a revision, notes, pauses of both kinds and an end."""
    story = _started().committed(plain(1), tooled(2, "b"), tooled(3, "b"), plain(4))
    story.send(StepStart(1), StepEnd(1, "done"), StepStart(2), StepStart(3), call(2, "1.1"), call(3, "1.2"))
    story.send(steer("n1"), error(3, "1.2")).paused("budget_exceeded:wall_seconds", subject="wall_seconds")
    story.send(result(2, "1.1"), SessionResume(extra=Amounts(wall_seconds=5)))
    story.send(StepEnd(2, "done", JsonData(5)), StepEnd(3, "failed", error="internal: it broke"))
    story.send(TurnStart(2, 1, ("n1",), "replan"), TurnStart(2, 2, (), "replan"))
    story.send(PlanDraft(2, (plain(4),)), PlanDraft(2, (), dropped="not that"))
    story.committed(plain(1), tooled(3), reason="replan")
    story.send(StepStart(3), call(3, "3.1"), error(3, "3.1"), StepEnd(3, "skipped"), FollowUpQueued("n2", "more"))
    return story.send(SessionComplete("closed:enough", ("n2",)))


def test_every_prefix_folds_to_what_the_session_was_there() -> None:
    log = _long_story().log
    state = SessionState()
    for offset, event in enumerate(log):
        assert fold_session(log[:offset]) == state
        state = evolve_session(state, event)
    assert state.phase == "DONE"


def test_a_fold_goes_on_from_any_state_and_leaves_that_state_alone() -> None:
    log = _long_story().log
    end = fold_session(log)
    for offset in range(len(log)):
        middle = fold_session(log[:offset])
        assert fold_session(log[offset:], middle) == end
        assert middle == fold_session(log[:offset])


def test_history_holds_what_ended_in_order_of_ending_and_notes_where_they_were_accepted() -> None:
    shown = [
        (item.step.id, item.status) if isinstance(item, EndedStep) else item.text
        for item in _long_story().state.history
    ]
    assert shown == [(1, "done"), (2, "done"), (3, "failed"), "text of n1", (3, "skipped")]


# Plans and revisions.


def test_a_commit_begins_with_the_first_step() -> None:
    state = _started().committed(plain("a"), plain("b")).state
    assert (state.phase, state.next_step, state.cursor, state.is_planned) == ("EXECUTING", plain("a"), 0, True)


def test_a_replan_keeps_a_done_step_that_it_repeats_unchanged() -> None:
    story = _started().reflecting(plain("x")).committed(plain("first"), plain("y"), reason="replan")
    assert story.state.status == {"first": "done"}
    assert story.state.next_step == plain("y")


def test_a_replan_that_repeats_only_done_steps_has_nothing_left_to_do() -> None:
    story = _started().reflecting(plain("x")).committed(plain("first"), reason="replan")
    assert (story.state.phase, story.state.next_step) == ("REFLECTING", None)


def test_a_kept_step_in_the_middle_is_stepped_over() -> None:
    story = _started().reflecting().committed(plain("a"), plain("first"), plain("b"), reason="replan")
    story.send(StepStart("a"), StepEnd("a", "done"))
    assert (story.state.next_step, story.state.cursor) == (plain("b"), 2)


def test_a_done_step_that_the_replan_changed_is_done_anew() -> None:
    story = _started().reflecting().committed(tooled("first"), reason="replan")
    assert story.state.next_step == tooled("first")


@pytest.mark.parametrize("status", ["failed", "skipped"])
def test_a_step_that_was_not_done_is_tried_again_by_a_replan(status: str) -> None:
    how = "failed" if status == "failed" else "skipped"
    story = _started().committed(plain("a"), plain("b")).send(StepStart("a"), StepEnd("a", how))
    assert story.committed(plain("a"), reason="replan").state.next_step == plain("a")


@pytest.mark.parametrize("reason", ["first", "repair", "continuation"])
def test_only_a_replan_keeps_steps(reason: PlanReason) -> None:
    story = _started().reflecting().committed(plain("first"), reason=reason)
    assert story.state.next_step == plain("first")


def test_an_empty_plan_leaves_nothing_to_do() -> None:
    assert _started().reflecting().committed(reason="replan").state.phase == "REFLECTING"


# Batches.


def test_a_batch_is_started_whole_before_it_can_be_over() -> None:
    story = _started().committed(tooled(1, "b"), plain(2, "b"), tooled(3, "b"), plain(4))
    ahead: list[int] = []
    for step_id in (1, 2, 3):
        story.send(StepStart(step_id))
        ahead.append(story.state.ahead)
    assert ahead == [2, 1, 0]
    assert [item.step.id for item in story.state.work] == [1, 2, 3]


def test_a_member_that_ends_early_does_not_end_the_batch() -> None:
    story = _started().committed(tooled(1, "b"), tooled(2, "b")).send(StepStart(1), StepEnd(1, "failed", error="no"))
    assert (story.state.phase, story.state.ahead) == ("EXECUTING", 1)
    story.send(StepStart(2), StepEnd(2, "skipped"))
    assert (story.state.phase, story.state.reviewing) == ("REFLECTING", (1, 2))


def test_neighbours_with_another_batch_name_or_none_are_no_members() -> None:
    story = _started().committed(tooled(1), tooled(2, "b"), tooled(3, "b"), tooled(4, "c"), tooled(5, "b"))
    assert [[step.id for step in story.state.batch_of(item)] for item in story.state.steps] == [
        [1],
        [2, 3],
        [2, 3],
        [4],
        [5],
    ]


def test_kept_members_of_a_batch_are_not_waited_for() -> None:
    story = _started().committed(plain(1, "b")).send(StepStart(1), StepEnd(1, "done"))
    story.committed(plain(1, "b"), tooled(2, "b"), reason="replan").send(StepStart(2))
    assert story.state.ahead == 0


def test_the_session_reflects_when_the_last_call_of_a_batch_is_answered_in_any_order() -> None:
    story = _started().awaiting(tooled(1, "b"), tooled(2, "b"), tooled(3, "b"))
    for step_id, call_id in ((3, "1.2"), (1, "1.0")):
        assert story.send(result(step_id, call_id)).state.phase == "AWAITING_TOOL"
    assert story.send(error(2, "1.1")).state.phase == "REFLECTING"


def test_call_ids_are_unique_over_all_plans() -> None:
    story = _started().awaiting(tooled("x")).send(error("x", "1.0"), StepEnd("x", "failed", error="no"))
    story.committed(plain("y"), tooled("x"), reason="replan")
    assert [story.state.call_id_of(step) for step in story.state.steps] == ["2.0", "2.1"]


# Notes.


def test_a_turn_accepts_the_notes_it_names_and_leaves_the_others_queued() -> None:
    story = _started().send(steer("n1"), FollowUpQueued("n2", "later"), steer("n3")).asked(notes=("n1", "n3"))
    assert [item.text for item in story.state.history if isinstance(item, Note)] == ["text of n1", "text of n3"]
    assert [note.id for note in story.state.queued] == ["n2"]


def test_notes_that_nobody_accepted_are_unread_at_the_end() -> None:
    story = _started().send(steer("n1"), SessionComplete("closed:x", ("n1",)))
    assert (story.state.unread, [note.id for note in story.state.queued]) == (("n1",), ["n1"])


# Failures.


def test_a_commit_clears_the_failure() -> None:
    story = _started().committed(plain(1)).send(StepStart(1), StepEnd(1, "failed", error="it broke"))
    assert story.state.failure == LastFailure("step", "step 1 failed: it broke")
    assert story.drafted(plain(2), reason="replan").state.failure is not None
    assert story.send(PlanCommit(2, (plain(2),), reason="replan")).state.failure is None


def test_each_kind_of_failure_is_kept_for_the_next_planning() -> None:
    dropped = _started().drafted(plain(1)).send(PlanDraft(1, (), dropped="too long")).state
    assert (dropped.failure, dropped.draft) == (LastFailure("draft", "too long"), None)
    stopped = _started().reflecting(plain(2)).send(PlanDraft(1, (), dropped="enough")).state
    assert (stopped.failure, stopped.reviewing) == (LastFailure("hook", "enough"), ())
    failed = _started().asked().send(SessionPause("planner_failed", "PLANNING", message="division by zero")).state
    assert (failed.failure, failed.request) == (LastFailure("planner", "division by zero"), None)


def test_findings_become_the_failure_with_their_data() -> None:
    failure = _started().reflecting().send(FINDINGS).state.failure
    assert failure is not None
    assert (failure.kind, failure.message) == ("check", "sum: 12 expected; title: none")
    assert failure.data.value == [
        {"check": "sum", "subject": "a.csv", "code": "differs", "message": "12 expected"},
        {"check": "title", "subject": "", "code": "missing", "message": "none"},
    ]


def test_a_batch_that_failed_in_part_names_its_last_failure() -> None:
    story = _started().committed(plain(1, "b"), plain(2, "b"))
    story.send(StepStart(1), StepEnd(1, "failed", error="one"), StepStart(2), StepEnd(2, "done"))
    assert story.state.failure == LastFailure("step", "step 1 failed: one")


# Pauses.


def test_a_review_pause_returns_with_the_decision_to_where_it_was() -> None:
    story = _started().asked()
    story.send(SessionPause("review:look", "PLANNING", "before_plan", "turn:1", position=2, kept=JsonData([1])))
    assert story.state.request is not None
    assert story.state.request.is_held
    story.send(SessionResume("before_plan", "turn:1", JsonData("yes")))
    answered = story.state.answered
    assert story.state.phase == "PLANNING"
    assert answered is not None
    assert (answered.topic, answered.subject, answered.position) == ("before_plan", "turn:1", 2)
    assert (answered.kept.value, answered.decision.value) == ([1], "yes")


@pytest.mark.parametrize("reason", ["step_budget", "replan_budget", "budget_exceeded:tokens"])
def test_a_budget_pause_is_no_answer_of_a_hook(reason: str) -> None:
    story = _started().paused(reason, subject="tokens")
    assert story.state.paused is not None
    assert story.state.paused.is_budget
    assert story.send(SessionResume("", "tokens", extra=Amounts(tokens=9))).state.answered is None


def test_more_budget_alone_does_not_end_a_review() -> None:
    story = _started().paused("review:look", "after_plan", "turn:1")
    assert story.send(SessionResume(extra=Amounts(turns=1))).state.phase == "IDLE"
    assert story.send(SessionResume("after_plan", "turn:1")).state.phase == "PLANNING"


def test_a_planning_that_a_hook_stopped_is_still_to_be_had_whatever_the_pause_is_called() -> None:
    story = _started().asked().send(SessionPause("review:hook_failed", "PLANNING"), SessionResume())
    assert story.state.request is not None
    assert story.state.request.is_held


def test_a_planning_whose_outcome_is_unknown_is_not_held_by_a_used_up_budget() -> None:
    story = _started().asked().paused("budget_exceeded:turns", subject="turns")
    assert story.state.request is not None
    assert not story.state.request.is_held


@pytest.mark.parametrize(
    ("reason", "topic", "left"),
    [
        ("budget_exceeded:turns", "", ("first",)),
        ("review:x", "before_step", ()),
        ("review:x", "after_step", ("first",)),
    ],
)
def test_what_hooks_have_looked_at_is_not_shown_again_once_the_next_step_is_asked_about(
    reason: str, topic: str, left: tuple[str, ...]
) -> None:
    assert _started().reflecting(plain(2)).paused(reason, topic).state.reviewing == left


def test_a_hooks_answer_lasts_until_what_it_was_about_is_settled() -> None:
    story = _started().reflecting(plain(2)).paused("review:x", "before_step", "step:2")
    story.send(SessionResume("before_step", "step:2", JsonData("go")))
    assert story.state.answered is not None
    assert story.send(StepStart(2)).state.answered is None


@dataclass(frozen=True)
class Ask:
    order: tuple[str, ...]
    left: tuple[tuple[str, ...], ...]


@pytest.mark.parametrize(
    "ask",
    [
        Ask(("1.0", "1.1", "1.2"), (("1.1", "1.2"), ("1.2",), ())),
        Ask(("1.2", "1.0", "1.1"), (("1.0", "1.1"), ("1.1",), ())),
    ],
)
def test_approvals_are_answered_by_id_in_any_order(ask: Ask) -> None:
    story = approvals("hook", "policy", "hook")
    for call_id, left in zip(ask.order, ask.left, strict=True):
        story.send(decide(call_id, {"deny": call_id}))
        assert (story.state.paused.open_calls if story.state.paused is not None else ()) == left
    assert story.state.phase == "EXECUTING"
    assert {name: item.decision for name, item in story.state.waiting.items()} == {
        name: JsonData({"deny": name}) for name in ("1.0", "1.1", "1.2")
    }


def test_a_second_answer_to_an_approval_changes_nothing() -> None:
    story = approvals("hook", "hook").send(decide("1.0", "allow"))
    before = story.state
    assert story.send(decide("1.0", "deny")).state == before


def test_a_call_that_asks_nothing_only_waits() -> None:
    story = approvals("hook", "")
    assert story.state.paused is not None
    assert story.state.paused.open_calls == ("1.0",)
    assert set(story.state.waiting) == {"1.0", "1.1"}
    story.send(decide("1.0"), call(1, "1.1"))
    assert set(story.state.waiting) == {"1.0"}


def test_a_step_that_ends_without_its_call_leaves_nothing_waiting() -> None:
    story = approvals("hook", "").send(decide("1.0"), StepEnd(1, "skipped"))
    assert set(story.state.waiting) == {"1.0"}


@pytest.mark.parametrize("kind", ["permission", "review"])
def test_a_runs_answer_to_a_cause_is_the_decision_of_its_call(kind: str) -> None:
    story = approvals("policy", "policy").send(Unblocked(f"{kind}:1.1", JsonData("deny")))
    assert story.state.waiting["1.1"].decision == JsonData("deny")
    assert story.state.waiting["1.0"].decision is None


def test_answers_to_other_causes_decide_nothing() -> None:
    story = approvals("policy")
    before = story.state
    assert story.send(Unblocked("reconcile:1.0", JsonData("done"))).state == before


def test_the_last_result_that_arrives_in_a_pause_moves_where_the_pause_returns_to() -> None:
    story = _started().awaiting().paused("budget_exceeded:wall_seconds", subject="wall_seconds")
    story.send(result(1, "1.0"), SessionResume(extra=Amounts(wall_seconds=1)))
    assert story.state.phase == "REFLECTING"


# Counters.


def test_the_budget_is_counted_from_the_same_events() -> None:
    used = _long_story().budget.used
    assert (used.turns, used.tool_calls, used.steps, used.replans, used.repairs) == (4, 3, 4, 1, 0)


def test_each_attempt_of_a_turn_and_of_a_call_is_counted() -> None:
    story = _started().asked().send(TurnStart(1, 2), PlanDraft(1, (tooled(1),)), PlanCommit(1, (tooled(1),)))
    story.send(StepStart(1), call(1, "1.0"), call(1, "1.0", 2), call(1, "1.0", 3), result(1, "1.0"))
    assert (story.budget.used.turns, story.budget.used.tool_calls) == (2, 3)


@pytest.mark.parametrize(
    ("reason", "replans"), [("first", 0), ("replan", 1), ("repair", 0), ("continuation", 0)], ids=str
)
def test_only_a_replan_is_charged_as_one(reason: PlanReason, replans: int) -> None:
    assert _started().committed(plain(1), reason=reason).budget.used.replans == replans


def test_findings_cost_a_repair_as_long_as_one_is_left() -> None:
    story = SessionStory(Budget(repairs=1)).started().reflecting().send(FINDINGS)
    assert story.budget.used.repairs == 1
    assert story.send(FINDINGS).budget.used.repairs == 1


def test_tokens_and_cost_are_known_after_a_turn() -> None:
    story = _started().asked()
    budget = spent(story.budget, story.event(TurnFinished(1, usage=Usage(40, 2, cost=0.5))))
    assert (budget.used.tokens, budget.used.cost) == (42, 0.5)


def test_limits_come_from_the_start_and_grow_by_each_extension() -> None:
    story = SessionStory(Budget(turns=1, cost=None)).started().paused("budget_exceeded:turns", subject="turns")
    story.send(SessionResume(extra=Amounts(turns=2, cost=1.0)))
    assert story.budget.limits == Budget(turns=3, cost=None)
    assert spent(story.budget, story.event(BudgetExtended(Amounts(turns=1)))).limits.turns == 4


def test_elapsed_time_never_goes_back() -> None:
    story = SessionStory().send(SessionStart("goal", Budget()), elapsed=2.0).send(steer(), elapsed=1.0)
    assert story.budget.used.wall_seconds == 2.0


def test_a_session_without_limits_of_its_own_keeps_those_it_has() -> None:
    story = SessionStory()
    limits = BudgetState(limits=Budget(turns=3))
    assert spent(limits, story.event(SessionStart("goal"))) == limits
