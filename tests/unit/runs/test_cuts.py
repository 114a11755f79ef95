"""Where a log may be cut: the stored logs of the first release, and what no worker would write."""

from msgspec.structs import replace

from checkrein.kernel.budget import Amounts
from checkrein.kernel.events import BudgetReserved, BudgetSettled, Event, EventData
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
