"""There is no unverified success: evidence for every check, of this run, about these bytes, measured in this verification."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import pytest
from msgspec.structs import replace

from checkrein.kernel.budget import Budget
from checkrein.kernel.events import (
    Artifact,
    Blocked,
    CheckFailed,
    CheckPassed,
    CheckSpec,
    Evidence,
    PlanAccepted,
    SteerQueued,
    Unblocked,
    WorkDone,
    WorkStarted,
)
from checkrein.kernel.state import Phase
from tests.unit.kernel.story import (
    CHECKS,
    FINDING,
    FOUND,
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


def verifying() -> Story:
    return in_phase(Phase.VERIFYING)


def changed(story: Story, change: Callable[[Evidence], Evidence], index: int = 0) -> CheckPassed:
    """Return sound evidence with one item changed."""
    sound = proof(story.state)
    items = list(sound.evidence)
    items[index] = change(items[index])
    return CheckPassed(tuple(items), sound.reread)


def test_complete_fresh_evidence_is_success() -> None:
    story = verifying()
    sound = proof(story.state)
    state = story.worker(sound)
    assert state.phase is Phase.SUCCEEDED
    assert state.evidence == sound.evidence
    assert state.outcome is not None
    assert (state.outcome.code, state.outcome.causes) == ("goal_met", ())
    story.check_fold()


Change: TypeAlias = Callable[[Evidence], Evidence]
ABOUT_SOMETHING_ELSE: Mapping[str, Change] = {
    "failed": lambda item: replace(item, passed=False),
    "of another run": lambda item: replace(item, run_id="other"),
    "of another check": lambda item: replace(item, check="another check"),
    "of another artifact": lambda item: replace(item, subject="other.md"),
    "without a verifier": lambda item: replace(item, verifier=""),
    "without its version": lambda item: replace(item, verifier_version=""),
}
OF_ANOTHER_TIME: Mapping[str, Change] = {
    "other bytes": lambda item: replace(item, sha256=B),
    "no digest": lambda item: replace(item, sha256=""),
    "before the verification": lambda item: replace(item, position=item.position - 1),
    "from the future": lambda item: replace(item, position=item.position + 1),
    "at the start": lambda item: replace(item, position=0),
}


@pytest.mark.parametrize("what", ABOUT_SOMETHING_ELSE)
def test_evidence_that_proves_something_else_is_missing(what: str) -> None:
    story = verifying()
    assert story.refused(changed(story, ABOUT_SOMETHING_ELSE[what])) == "missing_evidence"


@pytest.mark.parametrize("index", range(len(CHECKS)))
def test_every_required_check_must_be_proved(index: int) -> None:
    story = verifying()
    sound = proof(story.state)
    left = tuple(item for number, item in enumerate(sound.evidence) if number != index)
    refusal = story.refusal(story.event(CheckPassed(left, sound.reread), epoch=1))
    assert refusal.code == "missing_evidence"
    assert CHECKS[index].id in refusal.detail
    assert story.refused(CheckPassed((), ())) == "missing_evidence"


def test_a_failed_or_foreign_measurement_beside_sound_ones_is_refused_too() -> None:
    story = verifying()
    sound = proof(story.state)
    for stray in (replace(sound.evidence[1], passed=False), replace(sound.evidence[1], run_id="other")):
        assert story.refused(CheckPassed((*sound.evidence, stray), sound.reread)) == "missing_evidence"


@pytest.mark.parametrize("what", OF_ANOTHER_TIME)
def test_evidence_about_other_bytes_or_of_another_time_is_stale(what: str) -> None:
    story = verifying()
    assert story.refused(changed(story, OF_ANOTHER_TIME[what])) == "stale_evidence"


def test_the_runs_own_evidence_has_a_position_too() -> None:
    story = verifying()
    assert story.refused(changed(story, lambda item: replace(item, position=0), index=1)) == "stale_evidence"


@pytest.mark.parametrize(
    "reread", [(), (Artifact(PATH, B),), (Artifact("other.md", A),), (Artifact(PATH, B), Artifact(PATH, A))]
)
def test_bytes_that_differ_when_read_again_are_stale(reread: tuple[Artifact, ...]) -> None:
    story = verifying()
    assert story.refused(CheckPassed(proof(story.state).evidence, reread)) == "stale_evidence"


def test_all_evidence_about_one_artifact_carries_one_digest() -> None:
    checks = (CheckSpec("exists", "file", PATH), CheckSpec("headings", "markdown", PATH))
    story = Story(checks=checks)
    story.lease()
    story.worker(PlanAccepted(1), WorkStarted(), grant("1.0"), done("1.0", completes=True))
    first, second = (evidence(story.state, check) for check in checks)
    assert story.refused(CheckPassed((first, replace(second, sha256=B)), (Artifact(PATH, A),))) == "stale_evidence"
    assert story.worker(CheckPassed((first, second), (Artifact(PATH, A),))).phase is Phase.SUCCEEDED


def test_an_artifact_that_no_outcome_named_proves_nothing() -> None:
    story = running(None, WorkDone())
    assert story.refused(proof(story.state)) == "stale_evidence"


def test_evidence_of_an_older_digest_is_stale_after_a_repair() -> None:
    story = verifying()
    old = proof(story.state)
    story.worker(FOUND, grant("2.0"), done("2.0", B, completes=True))
    assert story.refused(old) == "stale_evidence"
    assert story.refused(proof(story.state, A)) == "stale_evidence"
    assert story.worker(proof(story.state, B)).phase is Phase.SUCCEEDED
    story.check_fold()


def test_evidence_of_an_older_verification_is_stale_even_with_the_same_bytes() -> None:
    story = verifying()
    old = proof(story.state)
    story.worker(FOUND, WorkDone())
    assert story.refused(old) == "stale_evidence"
    assert story.worker(proof(story.state)).phase is Phase.SUCCEEDED


def test_evidence_from_before_a_block_is_stale() -> None:
    story = verifying()
    old = proof(story.state)
    story.worker(Blocked(cause("verifier", "verifier")))
    story.user(Unblocked("verifier"))
    assert story.state.phase is Phase.VERIFYING
    assert story.refused(old) == "stale_evidence"
    assert story.worker(proof(story.state)).phase is Phase.SUCCEEDED


def test_a_message_during_verification_does_not_make_evidence_stale() -> None:
    story = verifying()
    old = proof(story.state)
    story.user(SteerQueued("n", "look again"))
    assert story.worker(old).phase is Phase.SUCCEEDED


def test_a_wider_set_of_evidence_is_welcome_when_it_is_sound() -> None:
    story = verifying()
    sound = proof(story.state)
    extra = replace(sound.evidence[1], check="not required")
    assert story.worker(CheckPassed((*sound.evidence, extra), sound.reread)).phase is Phase.SUCCEEDED


def test_a_task_that_only_reports_is_proved_by_its_answer() -> None:
    checks = (CheckSpec("report", "report", "answer"),)
    story = Story(checks=checks)
    story.lease()
    story.worker(PlanAccepted(1), WorkStarted(), grant("1.0"))
    story.worker(type(done("1.0"))("1.0", artifacts=(Artifact("answer", A),)), WorkDone())
    said = replace(evidence(story.state, checks[0]), measurement="in other words")
    assert story.worker(CheckPassed((said,), (Artifact("answer", A),))).phase is Phase.SUCCEEDED


def test_a_failed_check_goes_back_with_its_findings_while_a_repair_is_left() -> None:
    story = verifying()
    measured = (replace(evidence(story.state, CHECKS[0]), passed=False),)
    state = story.worker(CheckFailed((FINDING,), measured))
    assert (state.phase, state.findings, state.evidence) == (Phase.RUNNING, (FINDING,), measured)
    assert state.budget.used.repairs == 1
    story.worker(WorkDone())
    assert (story.state.findings, story.state.evidence) == ((), ())
    assert story.worker(FOUND).phase is Phase.FAILED
    assert story.state.outcome is not None
    assert story.state.outcome.code == "check_failed"
    assert FINDING.check in story.state.outcome.message
    assert story.state.budget.used.repairs == 1
    story.check_fold()


def test_without_repairs_the_first_failed_check_ends_the_run() -> None:
    story = running(Budget(repairs=0), WorkDone())
    assert story.worker(FOUND).phase is Phase.FAILED


def test_a_failed_check_must_say_what_it_found() -> None:
    story = verifying()
    assert story.refused(CheckFailed(())) == "missing_evidence"
