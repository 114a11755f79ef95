"""BLOCKED holds its causes, takes outcomes, grants nothing, and is left when the last cause is answered."""

import pytest

from checkrein.kernel.events import (
    Blocked,
    Cause,
    CauseKind,
    CodeAccepted,
    Failed,
    FollowUpQueued,
    LeaseTaken,
    SteerQueued,
    ToolAccepted,
    ToolInDoubt,
    ToolReconciled,
    TranscriptCompacted,
    TurnFinished,
    TurnGranted,
    Unblocked,
)
from checkrein.kernel.state import Phase, is_claimable
from tests.unit.kernel.story import AGAIN, PROBED, Story, cause, done, grant, in_phase, running


def asked(call_id: str, kind: CauseKind = "reconcile") -> Cause:
    """Return the cause that asks a person what became of a call."""
    return Cause(f"reconcile {call_id}", kind, "say what became of it", call_id=call_id)


ORIGINS = [Phase.RECEIVED, Phase.PLANNED, Phase.RUNNING, Phase.VERIFYING]


@pytest.mark.parametrize("origin", ORIGINS)
def test_the_last_answer_leads_back_to_where_it_came_from(origin: Phase) -> None:
    story = in_phase(origin)
    story.worker(Blocked(cause("a")), Blocked(cause("b", "permission")))
    assert (story.state.phase, story.state.blocked_from) == (Phase.BLOCKED, origin)
    assert [item.id for item in story.state.causes] == ["a", "b"]
    story.user(Unblocked("a"))
    assert story.state.phase is Phase.BLOCKED
    story.user(Unblocked("b"))
    assert (story.state.phase, story.state.causes, story.state.blocked_from) == (origin, (), None)
    story.check_fold()


def test_a_cause_is_opened_once_and_answered_once() -> None:
    story = running(None, Blocked(cause("a")), Blocked(cause("b")))
    assert story.refused(Blocked(cause("a", "budget"))) == "illegal_in_phase"
    assert story.refused(Unblocked("c"), user=True) == "illegal_in_phase"
    story.user(Unblocked("a"))
    assert story.refused(Unblocked("a"), user=True) == "illegal_in_phase"
    assert story.worker(Blocked(cause("a"))).cause("a") == cause("a")


def test_nothing_is_granted_and_outcomes_are_accepted() -> None:
    story = running(None, grant("1.0", AGAIN), grant("1.1"), TurnGranted(1), Blocked(cause()))
    assert story.refused(grant("1.2")) == "rights_revoked"
    assert story.refused(grant("1.0", AGAIN, 2)) == "rights_revoked"
    assert story.refused(TurnGranted(1, 2)) == "rights_revoked"
    story.worker(TurnFinished(1), TranscriptCompacted(1, "so far"), ToolAccepted("1.1", "job"), done("1.1"))
    story.worker(ToolInDoubt("1.0", "lost"), ToolReconciled("1.0", "failed", "probe"))
    assert (story.state.phase, story.state.open_calls) == (Phase.BLOCKED, ())
    story.check_fold()


def test_a_completing_outcome_does_not_leave_blocked() -> None:
    story = running(None, grant("1.0"), Blocked(cause()), done("1.0", completes=True))
    assert story.state.phase is Phase.BLOCKED
    story.user(Unblocked("question"))
    assert story.state.phase is Phase.RUNNING


def test_it_can_be_closed_by_a_person_once_no_call_is_open() -> None:
    story = running(None, grant("1.0"), Blocked(cause("a")), Blocked(cause("b")))
    assert story.refused(Failed("closed", "give up"), user=True) == "calls_in_flight"
    story.user(ToolReconciled("1.0", "unknown"), Failed("closed", "give up"))
    outcome = story.state.outcome
    assert outcome is not None
    assert (outcome.code, outcome.message) == ("closed", "give up")
    assert [item.id for item in outcome.causes] == ["a", "b"]
    assert [effect.status for effect in story.state.effects] == ["unknown"]
    story.check_fold()


def test_a_person_closes_only_what_is_blocked_and_only_as_closed() -> None:
    assert running().refused(Failed("closed", "give up"), user=True) == "lease_lost"
    assert in_phase(Phase.BLOCKED).refused(Failed("error", "give up"), user=True) == "lease_lost"


@pytest.mark.parametrize("phase", [phase for phase in Phase if not phase.is_terminal])
def test_messages_and_trust_need_no_lease(phase: Phase) -> None:
    story = in_phase(phase)
    story.user(SteerQueued("n1", "look again"), FollowUpQueued("n2", "translate it"), CodeAccepted("code2", 2))
    assert (story.state.phase, story.state.code_hash, story.state.task.version) == (phase, "code2", 2)
    story.user(CodeAccepted("code3"))
    assert (story.state.code_hash, story.state.task.version) == ("code3", 2)


def test_a_lease_may_move_the_folder_and_every_folder_is_remembered() -> None:
    story = Story()
    story.lease("run")
    story.lease("run.2")
    story.lease()
    story.lease("run.2")
    assert (story.state.folder, story.state.folders, story.state.epoch) == ("run.2", ("run", "run.2"), 4)
    story.check_fold()


def test_a_worker_may_take_any_run_that_is_not_over_or_blocked() -> None:
    assert [is_claimable(in_phase(phase).state) for phase in ORIGINS] == [True] * 4
    for phase in (Phase.BLOCKED, Phase.SUCCEEDED, Phase.FAILED):
        assert not is_claimable(in_phase(phase).state)


@pytest.mark.parametrize(
    ("story", "claimable"),
    [
        (running(None, grant("1.0"), Blocked(cause())), False),
        (running(None, grant("1.0"), ToolAccepted("1.0", "job"), Blocked(cause())), True),
        (running(None, grant("1.0"), ToolAccepted("1.0", "job"), Blocked(asked("1.0"))), False),
        (running(None, grant("1.0"), ToolAccepted("1.0", "job"), Blocked(asked("1.1"))), True),
        (running(None, grant("1.0"), ToolAccepted("1.0", "job"), Blocked(asked("1.0", "answer"))), True),
        (running(None, grant("1.0"), ToolAccepted("1.0", "pull"), Blocked(cause())), False),
        (running(None, grant("1.0", PROBED), Blocked(cause())), True),
        (running(None, grant("1.0", PROBED), ToolInDoubt("1.0", "lost"), Blocked(cause())), True),
        (running(None, grant("1.0", PROBED), ToolInDoubt("1.0", "?", probed=True), Blocked(cause())), False),
        (running(None, grant("1.0", AGAIN), ToolInDoubt("1.0", "lost"), Blocked(cause())), False),
        (running(None, grant("1.0", PROBED), done("1.0"), Blocked(cause())), False),
    ],
    ids=[
        "granted",
        "job",
        "job asked about",
        "other asked about",
        "asked else",
        "pull",
        "probe",
        "doubt with probe",
        "probe asked",
        "idempotent",
        "done",
    ],
)
def test_a_blocked_run_is_taken_only_to_poll_or_to_probe(story: Story, *, claimable: bool) -> None:
    assert is_claimable(story.state) is claimable


def test_a_lease_is_accepted_in_blocked() -> None:
    story = in_phase(Phase.BLOCKED)
    assert story.send(story.event(LeaseTaken(2, "w2"), epoch=2)).epoch == 2
