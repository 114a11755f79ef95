"""The explorer bites: without any one of the guards it finds a broken invariant, and the shortest history that breaks it."""

from collections.abc import Callable, Mapping
from functools import partial

import pytest
from msgspec.structs import replace

from checkrein.errors import IllegalTransition, Rejected
from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import Artifact, CheckPassed, Event, ToolSpec
from checkrein.kernel.guards import GUARDS, Guard
from checkrein.kernel.run import RUN_MACHINE, evolve, transition, transition_under
from checkrein.kernel.state import Phase, RunState
from checkrein.testing.explorer import Exploration, Scenario, Violation, explore

PLAIN = Scenario("plain", ToolSpec("send_mail"), Budget(turns=1, tool_calls=1, repairs=1), asks=True)
IDEMPOTENT = Scenario("idempotent", ToolSpec("write_file", idempotent=True), Budget(turns=0, tool_calls=2, repairs=0))
TWO_CALLS = Scenario("two calls", ToolSpec("send_mail"), Budget(turns=0, tool_calls=2, repairs=0))
EXTENDED = Scenario("extended", ToolSpec("send_mail"), Budget(turns=0, tool_calls=0, repairs=0), Amounts(tool_calls=1))

# Guard, scenario in which it is needed, invariant that falls without it.
NEEDED = (
    ("lease_lost", PLAIN, 3),
    ("rights_revoked", PLAIN, 3),
    ("illegal_in_phase", PLAIN, 0),
    ("budget_exhausted", PLAIN, 4),
    ("call_settled", IDEMPOTENT, 6),
    ("calls_in_flight", PLAIN, 0),
    ("missing_evidence", PLAIN, 2),
    ("stale_evidence", PLAIN, 2),
)


def without(guard: str) -> Mapping[str, Guard]:
    return {code: asks for code, asks in GUARDS.items() if code != guard}


def objection(found: Exploration) -> Violation:
    assert found.violation is not None
    assert not found.closed
    assert found.states < 300_000
    return found.violation


@pytest.mark.parametrize(("guard", "scenario", "invariant"), NEEDED)
def test_without_a_guard_an_invariant_falls(guard: str, scenario: Scenario, invariant: int) -> None:
    found = explore(scenario, transition=partial(transition_under, without(guard)), most_states=300_000)
    assert objection(found).invariant == invariant


def test_the_history_is_the_shortest_and_readable() -> None:
    found = explore(PLAIN, transition=partial(transition_under, without("lease_lost")))
    violation = objection(found)
    first, *history = str(violation).splitlines()
    assert first.startswith("invariant 3 (no effect starts, no event of the holder is appended")
    assert first.endswith("turn_granted of a worker whose lease was taken over was accepted")
    assert history == [
        "   1. worker A: claims the lease",
        "   2. clock: the lease expires",
        "   3. worker B: claims the lease",
        "   4. worker A: decides on turn_granted(turn=1, attempt=1)",
        "   5. worker A: appends turn_granted(turn=1, attempt=1)",
    ]


def test_a_store_that_forgets_event_ids_extends_a_budget_twice() -> None:
    violation = objection(explore(EXTENDED, known_ids=False))
    assert violation.invariant == 4
    assert violation.history == ("user: extends the budget", "user: sends the same extension again")


def _appended_blindly(state: RunState | None, event: Event) -> RunState:
    """A store without compare-and-set: what was decided on an older version is appended to the newest."""
    if state is None or event.expected_version == state.version:
        return transition(state, event)
    try:
        return evolve(state, event)
    except IllegalTransition as error:
        raise Rejected("illegal_in_phase", str(error), {}) from error


def test_without_compare_and_set_a_stale_worker_writes() -> None:
    assert objection(explore(PLAIN, transition=_appended_blindly)).invariant == 3


# A table in which a failed run may still be worked on; removing the guard alone changes nothing, because the table holds too.
_UNDEAD = replace(RUN_MACHINE, edges={**RUN_MACHINE.edges, Phase.FAILED: RUN_MACHINE.edges[Phase.RUNNING]})


def _undead(state: RunState | None, event: Event) -> RunState:
    if state is None or not state.phase.is_terminal:
        return transition(state, event)
    try:
        return replace(_UNDEAD.evolve(state, event), version=state.version + 1)
    except IllegalTransition as error:
        raise Rejected("terminal", str(error), {}) from error


def test_the_end_is_held_twice_by_guard_and_table() -> None:
    assert explore(EXTENDED, transition=partial(transition_under, without("terminal"))).violation is None
    violation = objection(explore(EXTENDED, transition=_undead))
    assert (violation.invariant, len(violation.history)) == (1, 2)


def _with_evidence(event: Event, change: Callable[[CheckPassed], CheckPassed]) -> Event:
    return replace(event, data=change(event.data)) if isinstance(event.data, CheckPassed) else event


def _any_digest(state: RunState, event: Event) -> str | None:
    """Ask about the age of evidence only: its digests are made to fit."""

    def fitting(data: CheckPassed) -> CheckPassed:
        recorded = {artifact.path: artifact.sha256 for artifact in state.artifacts}
        evidence = tuple(replace(item, sha256=recorded.get(item.subject, "")) for item in data.evidence)
        return CheckPassed(evidence, tuple(Artifact(path, digest) for path, digest in recorded.items()))

    return GUARDS["stale_evidence"](state, _with_evidence(event, fitting))


def _any_age(state: RunState, event: Event) -> str | None:
    """Ask about the digests of evidence only: it is always of this verification."""

    def new(data: CheckPassed) -> CheckPassed:
        return CheckPassed(tuple(replace(item, position=state.version) for item in data.evidence), data.reread)

    return GUARDS["stale_evidence"](state, _with_evidence(event, new))


@pytest.mark.parametrize(
    ("guard", "message"), [(_any_digest, "about other bytes"), (_any_age, "of an older verification")]
)
def test_evidence_must_be_about_these_bytes_and_of_this_verification(guard: Guard, message: str) -> None:
    guards = {**GUARDS, "stale_evidence": guard}
    violation = objection(explore(TWO_CALLS, transition=partial(transition_under, guards)))
    assert violation.invariant == 2
    assert message in violation.message


def _forgetful(state: RunState | None, event: Event) -> RunState:
    """A live state that differs from what its log says."""
    after = transition(state, event)
    return replace(after, turns_started=0) if event.data.type == "turn_finished" else after


def test_a_state_that_no_log_gives_is_found() -> None:
    assert objection(explore(PLAIN, transition=_forgetful)).invariant == 5


def _uncharged(state: RunState | None, event: Event) -> RunState:
    """A live state that forgets what was used."""
    after = transition(state, event)
    return replace(after, budget=replace(after.budget, used=Amounts()))


def test_a_counter_that_forgets_is_found() -> None:
    assert objection(explore(PLAIN, transition=_uncharged)).invariant == 4


def _nobody_reconciles(state: RunState | None, event: Event) -> RunState:
    if event.data.type == "tool_reconciled":
        raise Rejected("illegal_in_phase", "nobody may", {})
    return transition(state, event)


def test_a_run_that_cannot_end_any_more_is_found() -> None:
    violation = explore(TWO_CALLS, transition=_nobody_reconciles).violation
    assert violation is not None
    assert violation.invariant == 7
    assert violation.history[-1] == "worker A: crashes"


def test_an_exploration_that_gives_up_says_so() -> None:
    found = explore(PLAIN, most_states=100)
    assert (found.closed, found.violation) == (False, None)
    assert "closed=no" in str(found)
