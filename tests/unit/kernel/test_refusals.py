"""Every refusal has a code; of several that fit, the first in the fixed order is reported; none touches the state."""

import itertools
from collections.abc import Callable
from typing import TypeAlias

import pytest
from msgspec.structs import replace

from checkrein.errors import Rejected
from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import (
    Artifact,
    Blocked,
    BudgetReserved,
    CancelRequested,
    CheckPassed,
    Event,
    EventData,
    Failed,
    LeaseTaken,
    PlanAccepted,
    Received,
    SteerQueued,
    TaskRecord,
    ToolDone,
    ToolFailed,
    ToolReconciled,
    TurnGranted,
    WorkDone,
    WorkStarted,
)
from checkrein.kernel.guards import GUARDS
from checkrein.kernel.run import create, transition, transition_batch, transition_under
from checkrein.kernel.state import Phase
from tests.unit.kernel.story import (
    AGAIN,
    CHECKS,
    PATH,
    A,
    B,
    Story,
    cause,
    done,
    evidence,
    grant,
    in_phase,
    proof,
    running,
)

ORDER = (
    "wrong_run",
    "terminal",
    "lease_lost",
    "stale_version",
    "rights_revoked",
    "illegal_in_phase",
    "budget_exhausted",
    "unknown_call",
    "call_settled",
    "calls_in_flight",
    "missing_evidence",
    "stale_evidence",
)
Case: TypeAlias = tuple[Story, Event]


def test_the_guards_are_asked_in_the_documented_order() -> None:
    assert tuple(GUARDS) == ORDER


def _holder(story: Story, data: EventData) -> Case:
    return story, story.event(data, epoch=story.state.epoch)


def _blocked() -> Story:
    return running(None, Blocked(cause()))


def _spent() -> Story:
    return running(Budget(turns=0, tool_calls=1), grant("1.0", AGAIN), done("1.0"))


def _verifying() -> Story:
    return in_phase(Phase.VERIFYING)


def _incomplete(digest: str = A) -> Case:
    story = _verifying()
    return _holder(story, CheckPassed((evidence(story.state, CHECKS[0], digest),), (Artifact(PATH, digest),)))


def _wrong_run() -> Case:
    story = running()
    return story, replace(story.event(WorkDone(), epoch=1), run_id="other")


def _lease_lost() -> Case:
    story = running()
    return story, story.event(WorkDone(), epoch=0)


def _stale_version() -> Case:
    story = running()
    return story, story.event(WorkDone(), epoch=1, version=story.state.version - 1)


ONE: dict[str, Callable[[], Case]] = {
    "wrong_run": _wrong_run,
    "terminal": lambda: _holder(in_phase(Phase.FAILED), WorkDone()),
    "lease_lost": _lease_lost,
    "stale_version": _stale_version,
    "rights_revoked": lambda: _holder(_blocked(), TurnGranted(1)),
    "illegal_in_phase": lambda: _holder(in_phase(Phase.PLANNED), WorkDone()),
    "budget_exhausted": lambda: _holder(_spent(), grant("1.1")),
    "unknown_call": lambda: _holder(running(), done("1.0")),
    "call_settled": lambda: _holder(_spent(), done("1.0")),
    "calls_in_flight": lambda: _holder(running(None, grant("1.0")), WorkDone()),
    "missing_evidence": _incomplete,
    "stale_evidence": lambda: _holder(story := _verifying(), proof(story.state, B)),
}


@pytest.mark.parametrize("code", ORDER)
def test_every_code_is_reported(code: str) -> None:
    story, event = ONE[code]()
    refusal = story.refusal(event)
    assert refusal.code == code
    assert (refusal.run_id, refusal.event) == ("run", event.data.type)
    assert (refusal.phase, refusal.version) == (story.state.phase, story.state.version)
    assert refusal.detail in str(refusal)
    assert next(name for name, guard in GUARDS.items() if guard(story.state, event) is not None) == code


def _after_the_end(*, epoch: int | None = 1, run_id: str = "run") -> Case:
    story = in_phase(Phase.FAILED)
    return story, replace(story.event(WorkDone(), epoch=epoch), run_id=run_id)


def _old(story: Story, data: EventData, *, epoch: int) -> Case:
    return story, story.event(data, epoch=epoch, version=story.state.version - 1)


# Events that two guards object to; the first is reported.
TWO: dict[tuple[str, str], Callable[[], Case]] = {
    ("wrong_run", "terminal"): lambda: _after_the_end(run_id="other"),
    ("terminal", "lease_lost"): lambda: _after_the_end(epoch=0),
    ("lease_lost", "stale_version"): lambda: _old(running(), WorkDone(), epoch=0),
    ("stale_version", "rights_revoked"): lambda: _old(_blocked(), TurnGranted(1), epoch=1),
    ("rights_revoked", "illegal_in_phase"): lambda: _holder(_blocked(), grant("1.0")),
    ("illegal_in_phase", "budget_exhausted"): lambda: _holder(_planned_without_calls(), grant("1.0")),
    ("budget_exhausted", "unknown_call"): lambda: _holder(_spent(), grant("9.9", AGAIN, 2)),
    ("unknown_call", "call_settled"): lambda: _holder(running(), TurnGranted(7)),
    ("missing_evidence", "stale_evidence"): lambda: _incomplete(B),
    ("terminal", "stale_version"): lambda: _old(in_phase(Phase.SUCCEEDED), WorkDone(), epoch=1),
    ("lease_lost", "rights_revoked"): lambda: (story := _blocked(), story.event(grant("1.0"), epoch=0)),
    ("lease_lost", "illegal_in_phase"): lambda: (story := in_phase(Phase.PLANNED), story.event(WorkDone(), epoch=0)),
    ("stale_version", "illegal_in_phase"): lambda: _old(in_phase(Phase.PLANNED), WorkDone(), epoch=1),
    ("rights_revoked", "budget_exhausted"): lambda: _holder(_spent_and_blocked(), grant("1.1")),
    ("rights_revoked", "call_settled"): lambda: _holder(_blocked_with_call(), grant("1.0")),
    ("illegal_in_phase", "unknown_call"): lambda: _holder(_verifying(), done("9.9")),
    ("illegal_in_phase", "call_settled"): lambda: _holder(_verifying(), done("1.0")),
    ("illegal_in_phase", "calls_in_flight"): lambda: _holder(_blocked_with_call(), WorkDone()),
    ("illegal_in_phase", "missing_evidence"): lambda: _holder(running(), CheckPassed((), ())),
    ("illegal_in_phase", "stale_evidence"): lambda: _holder(story := running(), proof(story.state)),
    ("budget_exhausted", "call_settled"): lambda: _holder(_spent(), grant("1.0")),
}


def _planned_without_calls() -> Story:
    story = Story(Budget(tool_calls=0))
    story.lease()
    story.worker(PlanAccepted(1))
    return story


def _spent_and_blocked() -> Story:
    story = _spent()
    story.worker(Blocked(cause()))
    return story


def _blocked_with_call() -> Story:
    return running(None, grant("1.0"), Blocked(cause()))


@pytest.mark.parametrize(("first", "second"), TWO)
def test_of_two_objections_the_first_is_reported(first: str, second: str) -> None:
    story, event = TWO[first, second]()
    assert ORDER.index(first) < ORDER.index(second)
    assert GUARDS[first](story.state, event) is not None
    assert GUARDS[second](story.state, event) is not None
    assert story.refusal(event).code == first


def test_neighbours_that_no_event_can_violate_together_are_asked_about_different_events() -> None:
    # An outcome or a grant names a call; `work_done` and `failed` wait for calls; only `check_passed` and `check_failed` carry evidence.
    neighbours = set(itertools.pairwise(ORDER))
    assert neighbours - set(TWO) == {("call_settled", "calls_in_flight"), ("calls_in_flight", "missing_evidence")}


def test_a_guard_that_is_left_out_is_not_asked() -> None:
    story, event = ONE["calls_in_flight"]()
    guards = {code: guard for code, guard in GUARDS.items() if code != "calls_in_flight"}
    assert transition_under(guards, story.state, event).phase is Phase.VERIFYING


def test_the_table_refuses_even_when_no_guard_does() -> None:
    story, event = ONE["illegal_in_phase"]()
    with pytest.raises(Rejected) as caught:
        transition_under({}, story.state, event)
    assert caught.value.code == "illegal_in_phase"


@pytest.mark.parametrize("data", [done("1.0"), ToolFailed("1.0", "internal", "no"), ToolReconciled("1.0", "unknown")])
def test_an_outcome_of_a_call_that_is_not_open_is_refused_even_when_no_guard_does(data: EventData) -> None:
    story = running()
    with pytest.raises(Rejected):
        transition_under({}, story.state, story.event(data, epoch=1))


def test_a_run_begins_with_received_at_version_0() -> None:
    story = Story()
    first = story.log[0]
    for event, code in (
        (replace(first, data=WorkStarted()), "illegal_in_phase"),
        (replace(first, expected_version=1), "stale_version"),
        (replace(first, data=Received(TaskRecord("t", 1, "g", "", ()), Budget())), "missing_evidence"),
    ):
        with pytest.raises(Rejected) as caught:
            create(event)
        assert caught.value.code == code


def test_a_run_is_received_once() -> None:
    story = in_phase(Phase.RUNNING)
    data = story.log[0].data
    assert story.refused(data) == "illegal_in_phase"
    assert story.refused(data, user=True) == "lease_lost"


def test_a_batch_is_accepted_whole_or_not_at_all() -> None:
    story = running()
    good = story.event(grant("1.0"), epoch=1)
    bad = story.event(grant("1.0"), epoch=1, version=story.state.version + 1)
    before = (story.state, repr(story.state))
    with pytest.raises(Rejected) as caught:
        transition_batch(story.state, [good, bad])
    assert caught.value.code == "call_settled"
    assert (story.state, repr(story.state)) == before
    assert transition_batch(story.state, [good]) == transition(story.state, good)


def test_a_batch_counts_versions_inside_itself() -> None:
    story = running()
    first = story.event(grant("1.0"), epoch=1)
    second = story.event(SteerQueued("n", "t"), epoch=None, version=story.state.version + 1)
    assert transition_batch(story.state, [first, second]).version == story.state.version + 2
    with pytest.raises(Rejected) as caught:
        transition_batch(story.state, [first, replace(second, expected_version=story.state.version)])
    assert caught.value.code == "stale_version"


def test_a_batch_may_create_a_run_and_an_empty_one_changes_nothing() -> None:
    story = running()
    assert transition_batch(None, story.log) == story.state
    assert transition_batch(story.state, []) == story.state
    with pytest.raises(ValueError, match="empty batch"):
        transition_batch(None, [])


def test_a_share_for_a_child_is_refused_like_a_grant() -> None:
    share = BudgetReserved("child", Amounts(tool_calls=1))
    assert _blocked().refused(share) == "rights_revoked"
    assert _spent().refused(share) == "budget_exhausted"
    cancelled = running(None, grant("1.0"))
    cancelled.user(CancelRequested("enough"))
    assert cancelled.refused(share) == "rights_revoked"


def test_only_a_cancel_ends_a_run_as_cancelled() -> None:
    assert running().refused(Failed("cancelled", "I say so")) == "illegal_in_phase"


def test_a_lease_is_one_more_than_the_last() -> None:
    story = running()
    for epoch, lease in ((1, 1), (3, 3), (2, 3), (3, 2), (1, 2)):
        assert story.refusal(story.event(LeaseTaken(lease, "w2"), epoch=epoch)).code == "lease_lost"
    assert story.refusal(story.event(LeaseTaken(2, "w2"), epoch=None)).code == "lease_lost"
    assert story.lease().epoch == 2


def test_nothing_is_the_holders_before_the_first_lease() -> None:
    story = Story()
    assert story.refusal(story.event(PlanAccepted(1), epoch=0)).code == "lease_lost"
    assert story.refusal(story.event(TurnGranted(1), epoch=None)).code == "lease_lost"


def test_an_unknown_tool_result_is_no_result_of_another_call() -> None:
    story = running(None, grant("1.0"))
    for call_id in ("1.1", "1", "1.0.0", "01.0", "", "1.²"):
        assert story.refused(ToolDone(call_id)) == "unknown_call"
