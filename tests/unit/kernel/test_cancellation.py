"""A cancel takes the right to start anything at once, waits for what is in flight, and wins over every other edge."""

import pytest

from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import (
    Artifact,
    Blocked,
    BudgetExtended,
    BudgetReserved,
    CancelRequested,
    EventData,
    ToolAccepted,
    ToolDone,
    ToolFailed,
    ToolInDoubt,
    ToolReconciled,
    TurnFinished,
    TurnGranted,
    Unblocked,
)
from checkrein.kernel.state import Effect, Phase
from tests.unit.kernel.story import AGAIN, PATH, A, B, Story, cause, done, grant, in_phase, proof, running

CANCEL = CancelRequested("enough")


def cancelled_with_call() -> Story:
    story = running(None, grant("1.0"), grant("1.1"), done("1.1"))
    story.user(CANCEL)
    return story


def assert_cancelled(story: Story) -> None:
    assert story.state.phase is Phase.FAILED
    assert story.state.outcome is not None
    assert (story.state.outcome.code, story.state.outcome.message) == ("cancelled", "enough")
    assert (story.state.causes, story.state.blocked_from, story.state.open_turn) == ((), None, None)
    story.check_fold()


@pytest.mark.parametrize("phase", [phase for phase in Phase if not phase.is_terminal])
def test_with_no_call_open_the_run_ends_at_once(phase: Phase) -> None:
    story = in_phase(phase)
    story.user(CANCEL)
    assert_cancelled(story)


def test_a_turn_in_flight_does_not_delay_the_end() -> None:
    story = running(None, TurnGranted(1))
    story.user(CANCEL)
    assert_cancelled(story)
    assert story.refused(TurnFinished(1)) == "terminal"


@pytest.mark.parametrize("between", [(), (ToolAccepted("1.0", "job"),), (ToolInDoubt("1.0", "lost"),)])
def test_with_a_call_open_the_run_waits_visibly(between: tuple[EventData, ...]) -> None:
    story = running(None, grant("1.0"), *between)
    story.user(CANCEL)
    assert (story.state.phase, story.state.cancel) == (Phase.RUNNING, "enough")


@pytest.mark.parametrize(
    "data",
    [grant("2.0"), grant("1.0", AGAIN, 2), TurnGranted(1), BudgetReserved("child", Amounts())],
    ids=["call", "second attempt", "turn", "child"],
)
def test_nothing_is_granted_after_it(data: EventData) -> None:
    story = running(None, grant("1.0", AGAIN))
    story.user(CANCEL)
    assert story.refused(data) == "rights_revoked"
    story.user(BudgetExtended(Amounts(tool_calls=5, turns=5)))
    assert story.refused(data) == "rights_revoked"


@pytest.mark.parametrize(
    "outcome",
    [
        done("1.0"),
        done("1.0", completes=True),
        ToolFailed("1.0", "cancelled", "told to stop"),
        ToolReconciled("1.0", "done", "probe"),
        ToolReconciled("1.0", "unknown"),
    ],
)
@pytest.mark.parametrize("blocked", [False, True])
def test_the_outcome_of_the_last_open_call_ends_the_run(outcome: EventData, *, blocked: bool) -> None:
    story = cancelled_with_call()
    if blocked:
        story.worker(Blocked(cause("reconcile 1.0", "reconcile")))
    story.worker(outcome)
    assert_cancelled(story)
    assert [effect.call_id for effect in story.state.effects] == ["1.1", "1.0"]
    assert story.state.causes == ()


def test_only_the_last_of_several_open_calls_ends_the_run() -> None:
    story = running(None, grant("1.0"), grant("1.1"))
    story.user(CANCEL)
    assert story.worker(done("1.1")).phase is Phase.RUNNING
    story.worker(ToolInDoubt("1.0", "did not stop"))
    story.user(ToolReconciled("1.0", "unknown"))
    assert_cancelled(story)
    assert story.state.effects == (Effect("1.1", "send_mail", "done", 1), Effect("1.0", "send_mail", "unknown", 1))


def test_artifacts_of_a_late_result_are_not_adopted() -> None:
    story = cancelled_with_call()
    story.worker(ToolDone("1.0", artifacts=(Artifact(PATH, B), Artifact("late.png", B))))
    assert story.state.artifacts == (Artifact(PATH, A),)


def test_a_second_cancel_changes_nothing_but_the_version() -> None:
    story = cancelled_with_call()
    before = story.state.version
    story.user(CancelRequested("really"))
    assert (story.state.cancel, story.state.phase, story.state.version) == ("enough", Phase.RUNNING, before + 1)


def test_it_is_accepted_in_blocked_and_after_unblocking_nothing_starts_either() -> None:
    story = running(None, grant("1.0"), Blocked(cause()))
    story.user(CANCEL)
    assert story.state.phase is Phase.BLOCKED
    story.user(Unblocked("question"))
    assert story.state.phase is Phase.RUNNING
    assert story.refused(grant("1.1")) == "rights_revoked"
    story.worker(done("1.0"))
    assert_cancelled(story)


def test_it_wins_over_verification() -> None:
    story = in_phase(Phase.VERIFYING)
    sound = proof(story.state)
    story.user(CANCEL)
    assert_cancelled(story)
    assert story.refused(sound) == "terminal"


def test_it_needs_no_budget_and_no_lease() -> None:
    story = Story(Budget(turns=0, tool_calls=0, wall_seconds=0, steps=0, replans=0, repairs=0))
    story.user(CANCEL)
    assert_cancelled(story)


def test_an_end_stays_reachable_for_a_person_alone() -> None:
    story = running(
        None, grant("1.0"), grant("1.1"), ToolInDoubt("1.1", "lost"), Blocked(cause()), Blocked(cause("more"))
    )
    story.user(CANCEL, ToolReconciled("1.0", "unknown"), ToolReconciled("1.1", "unknown"))
    assert_cancelled(story)
