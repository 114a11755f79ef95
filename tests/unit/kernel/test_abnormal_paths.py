"""The abnormal paths by name: duplicates, late results, two workers, lost leases, crashes, false evidence."""

import itertools

import pytest
from msgspec.structs import replace

from checkrein.errors import Rejected
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import (
    Artifact,
    Blocked,
    CancelRequested,
    Event,
    EventData,
    Failed,
    PlanAccepted,
    Received,
    TaskRecord,
    ToolAccepted,
    ToolDone,
    ToolFailed,
    ToolInDoubt,
    ToolReconciled,
    TurnFinished,
    TurnGranted,
    Unblocked,
    WorkDone,
    WorkStarted,
)
from checkrein.kernel.run import fold_run, transition
from checkrein.kernel.state import Phase
from tests.unit.kernel.story import (
    AGAIN,
    CHECKS,
    FOUND,
    PATH,
    A,
    B,
    Story,
    cause,
    done,
    grant,
    in_phase,
    proof,
    running,
)

# What may be said of a running run with a call open, by whom (None: a user).
SAID: dict[str, tuple[EventData, int | None]] = {
    "complete": (done("1.0", completes=True), 1),
    "fail": (ToolFailed("1.0", "internal", "no"), 1),
    "cancel": (CancelRequested("enough"), None),
    "block": (Blocked(cause()), 1),
    "progress": (grant("1.1"), 1),
}
# What may be said of a run whose artifacts are being checked.
JUDGED: dict[str, EventData] = {
    "found": FOUND,
    "cancel": CancelRequested("enough"),
    "block": Blocked(cause()),
    "fail": Failed("error", "no"),
}


def test_a_second_tool_done_is_refused() -> None:
    story = running(None, grant("1.0"), done("1.0"))
    assert story.refused(done("1.0")) == "call_settled"
    assert story.refused(done("1.0", B, completes=True)) == "call_settled"
    assert story.state.artifacts == (Artifact(PATH, A),)


def test_a_second_tool_done_after_the_first_began_the_verification_is_refused() -> None:
    story = running(None, grant("1.0"), done("1.0", completes=True))
    assert story.refused(done("1.0")) == "illegal_in_phase"


def test_a_result_after_the_cancel_request_closes_its_call_and_the_run() -> None:
    story = running(None, grant("1.0"))
    story.user(CancelRequested("enough"))
    story.worker(done("1.0", completes=True))
    assert story.state.outcome is not None
    assert story.state.outcome.code == "cancelled"
    assert [effect.status for effect in story.state.effects] == ["done"]


def test_a_check_may_fail_though_the_file_exists() -> None:
    story = in_phase(Phase.VERIFYING)
    assert story.state.artifact(PATH) is not None
    story.worker(FOUND, WorkDone(), FOUND)
    assert story.state.outcome is not None
    assert story.state.outcome.code == "check_failed"


def test_a_missing_permission_blocks_until_somebody_gives_it() -> None:
    story = running(None, Blocked(cause("permission 1.0", "permission")))
    assert story.refused(grant("1.0")) == "rights_revoked"
    story.user(Unblocked("permission 1.0"))
    assert story.worker(grant("1.0")).open_calls != ()


def test_a_spent_budget_starts_nothing_and_ends_nothing() -> None:
    story = running(Budget(turns=0, tool_calls=0))
    assert story.refused(grant("1.0")) == "budget_exhausted"
    assert story.refused(TurnGranted(1)) == "budget_exhausted"
    assert story.state.phase is Phase.RUNNING


def test_a_worker_that_lost_its_lease_mid_call_cannot_write_its_result() -> None:
    story = running(None, grant("1.0", AGAIN))
    mine = story.event(done("1.0"), epoch=1)
    story.lease()
    assert story.refusal(mine).code == "lease_lost"
    assert story.refusal(replace(mine, expected_version=story.state.version)).code == "lease_lost"
    story.worker(ToolInDoubt("1.0", "its worker is gone"), grant("1.0", AGAIN, 2), done("1.0", B))
    assert story.state.artifacts == (Artifact(PATH, B),)


# What the loser of a race meets when it says the same again at the newer version; every other pair is accepted.
REFUSED_AFTER = {
    ("complete", "fail"): "illegal_in_phase",
    ("complete", "progress"): "illegal_in_phase",
    ("fail", "complete"): "call_settled",
    ("cancel", "progress"): "rights_revoked",
    ("block", "progress"): "rights_revoked",
}


@pytest.mark.parametrize(("first", "second"), [*itertools.permutations(SAID, 2)])
def test_of_two_on_one_version_one_is_accepted_and_the_other_meets_a_newer_version(first: str, second: str) -> None:
    story = running(None, grant("1.0"))
    winner, loser = (story.event(data, epoch=epoch) for data, epoch in (SAID[first], SAID[second]))
    story.send(winner)
    assert story.refusal(loser).code == "stale_version"
    again = replace(loser, expected_version=story.state.version)
    code = REFUSED_AFTER.get((first, second))
    if code is None:
        story.send(again)
    else:
        assert story.refusal(again).code == code
    story.check_fold()


def test_a_cancelled_run_is_never_completed_and_a_completed_one_never_cancelled() -> None:
    for first, code in (("pass", "goal_met"), ("cancel", "cancelled")):
        story = in_phase(Phase.VERIFYING)
        events = {
            "pass": story.event(proof(story.state), epoch=1),
            "cancel": story.event(CancelRequested("enough"), epoch=None),
        }
        story.send(events.pop(first))
        (late,) = events.values()
        assert story.refusal(late).code == "terminal"
        assert story.refusal(replace(late, expected_version=story.state.version)).code == "terminal"
        assert story.state.outcome is not None
        assert story.state.outcome.code == code


@pytest.mark.parametrize(("first", "second"), [*itertools.permutations(JUDGED, 2)])
def test_of_two_judgements_on_one_version_one_is_accepted(first: str, second: str) -> None:
    story = in_phase(Phase.VERIFYING)
    winner, loser = (story.event(JUDGED[name], epoch=None if name == "cancel" else 1) for name in (first, second))
    ended = story.send(winner).phase.is_terminal
    assert story.refusal(loser).code == ("terminal" if ended else "stale_version")


@pytest.mark.parametrize("first", [0, 1])
def test_two_workers_on_one_version_one_advances_the_run(first: int) -> None:
    story = running()
    stale, live = (
        story.event(grant("1.0"), epoch=1),
        story.event(grant("1.0"), epoch=2, version=story.state.version + 1),
    )
    story.lease()
    order = (stale, live) if first == 0 else (live, stale)
    codes: list[str] = []
    for event in order:
        try:
            story.send(event)
        except Rejected as refusal:
            codes.append(refusal.code)
    assert codes == ["lease_lost"]
    assert [call.attempt for call in story.state.open_calls] == [1]


def test_the_same_terminal_event_again_is_refused_as_terminal() -> None:
    story = in_phase(Phase.SUCCEEDED)
    again = replace(story.log[-1], event_id="new", expected_version=story.state.version)
    assert story.refusal(again).code == "terminal"


def whole_life() -> Story:
    """Return a run that met a crash, doubt, a block, a repair and succeeded."""
    story = Story(Budget(repairs=1))
    story.lease("run")
    story.worker(TurnGranted(1), TurnFinished(1), PlanAccepted(2), WorkStarted(), grant("1.0", AGAIN))
    story.lease("run.2")
    story.worker(ToolInDoubt("1.0", "its worker is gone"), grant("1.0", AGAIN, 2), done("1.0"))
    story.worker(grant("1.1"), ToolAccepted("1.1", "job"), Blocked(cause()), ToolDone("1.1"))
    story.user(Unblocked("question"))
    story.worker(WorkDone(), FOUND, grant("2.0"), done("2.0", B, completes=True))
    story.worker(proof(story.state, B))
    return story


def test_after_a_crash_between_any_two_writes_the_fold_goes_on_where_the_log_ends() -> None:
    story = whole_life()
    assert story.state.phase is Phase.SUCCEEDED
    for cut in range(1, len(story.log) + 1):
        state = fold_run(story.log[:cut])
        assert state.version == cut
        assert fold_run(story.log[cut:], state) == story.state


def test_after_a_crash_between_any_two_writes_another_worker_can_lead_the_run_to_an_end() -> None:
    log = whole_life().log
    for cut in range(1, len(log)):
        story = Story()
        story.log, story.state = list(log[:cut]), fold_run(log[:cut])
        story.lease()
        for call in story.state.open_calls:
            story.user(ToolReconciled(call.call_id, "unknown"))
        story.user(CancelRequested("enough"))
        assert story.state.outcome is not None
        story.check_fold()


def test_a_result_whose_write_failed_is_accepted_later_under_the_same_id() -> None:
    story = running(None, grant("1.0"))
    result = story.event(done("1.0"), epoch=1)
    story.worker(grant("1.1"))
    assert story.refusal(result).code == "stale_version"
    story.send(replace(result, expected_version=story.state.version))
    assert story.state.artifacts == (Artifact(PATH, A),)


@pytest.mark.parametrize("what", ["run", "artifact", "digest"])
def test_evidence_for_something_else_is_refused(what: str) -> None:
    story = in_phase(Phase.VERIFYING)
    sound = proof(story.state)
    changes: dict[str, tuple[dict[str, str], str]] = {
        "run": ({"run_id": "another"}, "missing_evidence"),
        "artifact": ({"subject": "another.md"}, "missing_evidence"),
        "digest": ({"sha256": B}, "stale_evidence"),
    }
    change, code = changes[what]
    first = replace(sound.evidence[0], **change)
    assert story.refused(replace(sound, evidence=(first, *sound.evidence[1:]))) == code


def test_a_task_without_checks_is_never_received() -> None:
    event = Event("run", "e0", 0, 1.0, "user:ann", Received(TaskRecord("t", 1, "g", "", ()), Budget()))
    with pytest.raises(Rejected) as caught:
        transition(None, event)
    assert caught.value.code == "missing_evidence"
    assert len(CHECKS) > 0
