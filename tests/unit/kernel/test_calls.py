"""A tool call from its grant to its one outcome: ids, attempts, jobs, doubt, pulls, and who may say what."""

from typing import Literal

import pytest

from checkrein.kernel.budget import Budget
from checkrein.kernel.events import (
    Artifact,
    Blocked,
    EventData,
    ToolAccepted,
    ToolDone,
    ToolFailed,
    ToolGranted,
    ToolInDoubt,
    ToolReconciled,
    ToolSpec,
)
from checkrein.kernel.state import PULL, Effect, Phase, call_order
from checkrein.values import JsonData, JsonObject
from tests.unit.kernel.story import AGAIN, PATH, PLAIN, PROBED, A, B, cause, done, grant, running


def test_a_granted_call_is_open_until_its_outcome() -> None:
    story = running(None, grant("1.0"))
    call = story.state.open_call("1.0")
    assert call is not None
    assert (call.status, call.attempt, call.tool, call.granted_at) == ("granted", 1, PLAIN, story.state.version - 1)
    story.worker(done("1.0"))
    assert story.state.open_calls == ()
    assert [item.status for item in story.state.settled_calls] == ["done"]
    assert story.state.effects == (Effect("1.0", "send_mail", "done", 1),)
    story.check_fold()


@pytest.mark.parametrize("between", [(ToolAccepted("1.0", "job 7"),), (ToolInDoubt("1.0", "timed out"),)])
def test_accepted_and_in_doubt_calls_are_open(between: tuple[EventData, ...]) -> None:
    story = running(None, grant("1.0"), *between)
    assert story.state.phase is Phase.RUNNING
    assert [call.call_id for call in story.state.open_calls] == ["1.0"]
    assert story.state.artifacts == ()


def test_a_job_number_is_no_result() -> None:
    story = running(None, grant("1.0"), ToolAccepted("1.0", "job 7"))
    call = story.state.open_call("1.0")
    assert call is not None
    assert (call.status, call.handle, call.is_pull) == ("accepted", "job 7", False)
    assert story.refused(ToolAccepted("1.0", "job 8")) == "call_settled"
    for probed in (False, True):
        assert story.refused(ToolInDoubt("1.0", "lost", probed)) == "call_settled"


def test_an_accepted_job_is_polled_and_never_begun_again() -> None:
    story = running(None, grant("1.0", AGAIN), ToolAccepted("1.0", "job 7"))
    assert story.refused(grant("1.0", AGAIN, 2)) == "call_settled"
    story.worker(done("1.0"))
    assert story.state.effects == (Effect("1.0", "write_file", "done", 1),)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (done("1.0"), "done"),
        (ToolFailed("1.0", "internal", "no"), "failed"),
        (ToolReconciled("1.0", "done"), "done"),
        (ToolReconciled("1.0", "failed"), "failed"),
        (ToolReconciled("1.0", "unknown"), "unknown"),
    ],
)
@pytest.mark.parametrize("between", [(), (ToolAccepted("1.0", "job"),), (ToolInDoubt("1.0", "lost"),)])
def test_every_outcome_closes_every_open_call_once(
    outcome: EventData, status: str, between: tuple[EventData, ...]
) -> None:
    story = running(None, grant("1.0"), *between)
    story.worker(outcome)
    assert [call.status for call in story.state.settled_calls] == [status]
    assert story.refused(outcome) == "call_settled"
    assert story.refused(ToolAccepted("1.0", "late")) == "call_settled"
    assert story.refused(ToolInDoubt("1.0", "late")) == "call_settled"
    story.check_fold()


def test_an_outcome_of_a_call_nobody_granted_is_unknown() -> None:
    story = running()
    for outcome in (done("1.0"), ToolFailed("1.0", "internal", ""), ToolInDoubt("1.0", ""), ToolAccepted("1.0", "x")):
        assert story.refused(outcome) == "unknown_call"
    assert story.refused(ToolReconciled("1.0", "unknown"), user=True) == "unknown_call"


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("1.0", (1, 0)),
        ("12.34", (12, 34)),
        ("0.0", (0, 0)),
        ("", None),
        ("1", None),
        ("1.", None),
        (".1", None),
        ("1.2.3", None),
        ("01.0", None),
        ("1.00", None),
        ("-1.0", None),
        ("1.0 ", None),
        ("١.0", None),
        ("1.²", None),
    ],
)
def test_a_call_id_is_turn_and_index(text: str, order: tuple[int, int] | None) -> None:
    assert call_order(text) == order


def test_a_grant_with_another_kind_of_id_is_refused() -> None:
    story = running()
    for call_id in ("", "call_7", "1.x", "1.0.0"):
        assert story.refused(grant(call_id)) == "unknown_call"
    assert story.refused(grant("1.0", AGAIN, 0)) == "unknown_call"


def test_a_call_id_comes_once() -> None:
    story = running(None, grant("1.1"), done("1.1"))
    for call_id in ("1.1", "1.0", "0.5"):
        assert story.refused(grant(call_id)) == "call_settled"
    story.worker(grant("1.2"), grant("2.0"))
    assert story.refused(grant("1.2")) == "call_settled"
    assert story.state.last_call == (2, 0)


def test_a_second_attempt_of_an_idempotent_call_keeps_its_id_and_counts() -> None:
    story = running(Budget(tool_calls=3), grant("1.0", AGAIN), grant("1.0", AGAIN, 2))
    story.worker(ToolInDoubt("1.0", "its worker is gone"), grant("1.0", AGAIN, 3))
    call = story.state.open_call("1.0")
    assert call is not None
    assert (call.attempt, call.status, call.granted_at) == (3, "granted", story.state.version - 1)
    assert story.state.budget.used.tool_calls == 3
    story.worker(done("1.0"))
    assert story.state.effects == (Effect("1.0", "write_file", "done", 3),)
    story.check_fold()


def test_attempts_are_counted_without_gaps() -> None:
    story = running(None, grant("1.0", AGAIN))
    assert story.refused(grant("1.0", AGAIN, 3)) == "call_settled"
    assert story.refused(grant("1.0", AGAIN, 1)) == "call_settled"
    assert story.refused(grant("1.1", AGAIN, 2)) == "unknown_call"
    story.worker(done("1.0"))
    assert story.refused(grant("1.0", AGAIN, 2)) == "call_settled"


@pytest.mark.parametrize("tool", [PLAIN, PROBED])
def test_a_call_that_is_not_idempotent_is_never_executed_twice(tool: ToolSpec) -> None:
    story = running(None, grant("1.0", tool))
    assert story.refused(grant("1.0", tool, 2)) == "rights_revoked"
    story.worker(ToolInDoubt("1.0", "its worker is gone"))
    assert story.refused(grant("1.0", tool, 2)) == "rights_revoked"


def test_the_first_grants_declaration_decides_and_not_what_a_later_grant_claims() -> None:
    story = running(None, grant("1.0", PLAIN))
    assert story.refused(grant("1.0", AGAIN, 2)) == "rights_revoked"
    again = running(None, grant("1.0", AGAIN), grant("1.0", PLAIN, 2))
    call = again.state.open_call("1.0")
    assert call is not None
    assert call.tool == AGAIN


def test_doubt_is_said_once_and_a_probe_that_cannot_tell_once_more() -> None:
    story = running(None, grant("1.0", PROBED), ToolInDoubt("1.0", "its worker is gone"))
    assert story.refused(ToolInDoubt("1.0", "again")) == "call_settled"
    story.worker(ToolInDoubt("1.0", "it cannot tell", probed=True))
    assert story.refused(ToolInDoubt("1.0", "again", probed=True)) == "call_settled"
    call = story.state.open_call("1.0")
    assert call is not None
    assert call.probed


def test_a_new_attempt_has_a_probe_of_its_own() -> None:
    tool = ToolSpec("upload", idempotent=True, has_probe=True)
    story = running(
        None, grant("1.0", tool), ToolInDoubt("1.0", "lost"), ToolInDoubt("1.0", "cannot tell", probed=True)
    )
    story.worker(grant("1.0", tool, 2))
    call = story.state.open_call("1.0")
    assert call is not None
    assert not call.probed


def test_an_accepted_outcome_may_still_come_for_a_call_in_doubt() -> None:
    story = running(None, grant("1.0"), ToolInDoubt("1.0", "timed out"), ToolAccepted("1.0", "job 7"))
    assert [call.status for call in story.state.open_calls] == ["accepted"]


def test_the_last_completing_outcome_leads_to_verification_and_never_to_success() -> None:
    story = running(None, grant("1.0"), grant("1.1"))
    assert story.worker(done("1.0", completes=True)).phase is Phase.RUNNING
    assert story.worker(done("1.1", completes=True)).phase is Phase.VERIFYING
    assert running(None, grant("1.0"), done("1.0")).state.phase is Phase.RUNNING
    story.check_fold()


def test_an_outcome_records_the_newest_digest_of_every_path() -> None:
    story = running(None, grant("1.0"), grant("1.1"), grant("1.2"))
    story.worker(
        done("1.0", A),
        ToolDone("1.1", artifacts=(Artifact(PATH, B), Artifact("chart.png", A))),
        ToolDone("1.2", JsonData(7)),
    )
    assert story.state.artifact(PATH) == Artifact(PATH, B)
    assert story.state.artifact("chart.png") == Artifact("chart.png", A)
    assert story.state.artifact("other") is None


@pytest.mark.parametrize("outcome", ["done", "failed", "unknown"])
def test_what_a_person_reconciles_as_done_is_adopted_and_else_not(
    outcome: Literal["done", "failed", "unknown"],
) -> None:
    story = running(None, grant("1.0"))
    story.user(ToolReconciled("1.0", outcome, artifacts=(Artifact(PATH, A),)))
    assert story.state.artifacts == ((Artifact(PATH, A),) if outcome == "done" else ())


def test_a_person_may_reconcile_without_a_lease_and_a_probe_may_not() -> None:
    story = running(None, grant("1.0", PROBED))
    assert story.refused(ToolReconciled("1.0", "done", "probe"), user=True) == "lease_lost"
    assert story.refused(ToolInDoubt("1.0", "I think"), user=True) == "lease_lost"
    assert story.user(ToolReconciled("1.0", "unknown")).open_calls == ()


def test_a_caller_answers_its_pull_without_a_lease_once() -> None:
    story = running(None, grant("1.0"), ToolAccepted("1.0", PULL), grant("1.1"))
    call = story.state.open_call("1.0")
    assert call is not None
    assert call.is_pull
    assert story.refused(ToolDone("1.1"), user=True) == "lease_lost"
    assert story.refused(ToolDone("9.0"), user=True) == "lease_lost"
    story.user(ToolDone("1.0", JsonData({"answer": 42})))
    assert story.refused(ToolDone("1.0"), user=True) == "call_settled"
    assert story.refused(ToolFailed("1.0", "internal", "no"), user=True) == "call_settled"
    story.check_fold()


def test_a_pull_is_answered_in_blocked_too() -> None:
    story = running(None, grant("1.0"), ToolAccepted("1.0", PULL), Blocked(cause()))
    story.user(ToolFailed("1.0", "denied", "I will not"))
    assert (story.state.phase, story.state.open_calls) == (Phase.BLOCKED, ())


def test_arguments_are_kept_as_they_were_granted() -> None:
    story = running(None, ToolGranted("1.0", PLAIN, JsonObject({"to": "ann"})))
    call = story.state.open_call("1.0")
    assert call is not None
    assert call.arguments == JsonObject({"to": "ann"})
