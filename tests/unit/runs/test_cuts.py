"""Where a log may be cut: the stored logs of the first release, and what no worker would write."""

import pytest
from msgspec.structs import replace

from checkrein.kernel.budget import Amounts
from checkrein.kernel.events import (
    Blocked,
    BudgetReserved,
    BudgetSettled,
    Cause,
    CodeAccepted,
    Event,
    EventData,
    SessionPause,
    StepEnd,
    StepStart,
    ToolErrorGiven,
    Unblocked,
)
from checkrein.kernel.run import fold_run
from checkrein.runs.cuts import end_of, legal_cuts, objection_to
from tests.golden.scenarios import cancelled, failed, repaired


def with_next(log: tuple[Event, ...], data: EventData) -> tuple[Event, ...]:
    """Return a log with one more event of a worker."""
    return (*log, replace(log[-1], event_id=f"more-{len(log)}", expected_version=len(log), data=data, epoch=1))


def test_the_cuts_of_a_long_log_are_these() -> None:
    log = repaired()
    kept = [(cut.at, cut.last.type) for cut in legal_cuts(log)]
    assert kept == [
        (2, "session.start"),
        (3, "lease_taken"),
        (4, "steer_queued"),
        (5, "follow_up_queued"),
        (6, "code_accepted"),
        (8, "turn_granted"),
        (10, "turn_finished"),
        (13, "work_started"),
        (14, "transcript_compacted"),
        (22, "step.end"),
        (24, "budget_settled"),
        (27, "blocked"),
        (30, "session.resume"),
        (31, "lease_taken"),
        (32, "step.start"),
        (34, "blocked"),
        (36, "session.resume"),
        (41, "tool_reconciled"),
        (42, "step.end"),
        (49, "step.end"),
        (50, "work_done"),
        (51, "check_failed"),
        (52, "work_done"),
    ]
    assert [cut.state for cut in legal_cuts(log)] == [fold_run(log[:at]) for at, _ in kept]


def test_the_cuts_around_a_planner_that_failed_are_these() -> None:
    assert [cut.at for cut in legal_cuts(failed())] == [2, 3, 5, 8, 10, 12, 14, 15, 17, 19]


def test_what_is_no_legal_cut_is_told_why() -> None:
    log = repaired()
    legal = {cut.at for cut in legal_cuts(log)}
    for at in range(len(log) + 2):
        assert bool(objection_to(log, at)) is (at not in legal)
    assert objection_to(log, 1) == "a run begins with its task and its goal, so at least two events are kept"
    assert objection_to(log, 7) == "turn.start and turn_granted were recorded together"
    assert "call 1.1 of pay has no outcome there" in objection_to(log, 39)
    assert "call 1.2 of export has no outcome there" in objection_to(log, 46)
    assert objection_to(log, len(log)) == "the end of a run is not kept"
    assert objection_to(log, len(log) + 1) == f"its log has {len(log)} events"


def test_the_end_of_a_run_begins_with_the_end_of_its_session() -> None:
    assert [end_of(log) for log in (repaired(), cancelled(), failed(), repaired()[:9])] == [52, 2, 19, 9]
    assert [cut.at for cut in legal_cuts(cancelled())] == [2]


def test_a_child_that_has_not_ended_belongs_to_its_run_alone() -> None:
    log = repaired()[:3]
    log = with_next(log, BudgetReserved(child="c1", amounts=Amounts(turns=1)))
    assert objection_to(log, 4) == "child run c1 has not ended there; it belongs to that run alone"
    assert [cut.at for cut in legal_cuts(log)] == [2, 3]
    log = with_next(log, BudgetSettled(child="c1", used=Amounts(turns=1)))
    assert [cut.at for cut in legal_cuts(log)] == [2, 3, 5]


@pytest.mark.parametrize(
    ("at", "kinds"),
    [
        (7, "turn.start and turn_granted"),
        (9, "plan.draft and turn_finished"),
        (11, "plan.commit and plan_accepted"),
        (12, "plan_accepted and work_started"),
        (25, "budget.warn and session.pause"),
        (26, "session.pause and blocked"),
        (28, "budget_extended and unblocked"),
        (29, "unblocked and session.resume"),
    ],
)
def test_what_was_recorded_together_stays_together(at: int, kinds: str) -> None:
    assert objection_to(repaired(), at) == f"{kinds} were recorded together"


@pytest.mark.parametrize(
    "follows",
    [
        StepEnd(step_id="write", status="skipped"),
        ToolErrorGiven(step_id="write", call_id="", kind="denied", message="no"),
    ],
)
def test_a_step_that_was_not_to_be_done_is_not_cut_off_from_what_says_so(follows: EventData) -> None:
    log = with_next(with_next(repaired()[:13], StepStart(step_id="write")), follows)
    assert objection_to(log, 14) == f"step.start and {follows.type} were recorded together"
    assert [cut.at for cut in legal_cuts(log)][-2:] == [13, 15]


def test_accepted_code_is_not_cut_off_from_the_question_that_it_answers() -> None:
    log = with_next(repaired()[:3], Blocked(cause=Cause(id="code_changed", kind="code_changed", message="changed")))
    log = with_next(with_next(log, CodeAccepted(code_hash="e" * 64)), Unblocked(cause_id="code_changed"))
    assert [cut.at for cut in legal_cuts(log)] == [2, 3, 4, 6]


def test_a_pause_without_what_blocks_the_run_is_no_place_to_go_on_from() -> None:
    pause = SessionPause(reason="review:look", state="PLANNING", topic="before_plan", subject="turn:1")
    log = with_next(repaired()[:8], pause)
    assert objection_to(log, 9) == "a pause is only half recorded there"
    log = with_next(log, Blocked(cause=Cause(id="verifier:x", kind="verifier", message="of something else")))
    assert objection_to(log, 10) == "a pause is only half recorded there"
    log = with_next(log, Blocked(cause=Cause(id="review:turn:1", kind="answer", message="look")))
    assert objection_to(log, 11) == ""
    assert objection_to(repaired()[:7], 7) == "a planning is only half recorded there"


def test_a_call_that_ended_while_a_person_was_still_asked_about_it_is_answered_first() -> None:
    asked = Blocked(cause=Cause(id="reconcile:1.1", kind="reconcile", message="what became of it?", call_id="1.1"))
    log = with_next(repaired()[:39], asked)
    for event in repaired()[39:41]:
        log = with_next(log, event.data)
    assert objection_to(log, 42) == "the outcome of a call is only half recorded there"
    log = with_next(log, Unblocked(cause_id="reconcile:1.1"))
    assert objection_to(log, 43) == ""
