"""When another attempt may follow, and after how long."""

import itertools

import pytest

from checkrein.ports.tool import ToolTraits
from checkrein.tools.outcomes import AcceptedJob, Done, FailedCall, Outcome, OutcomeUnknown, RetryPolicy, next_attempt

IDEMPOTENT = ToolTraits(idempotent=True)
PASSING = FailedCall("transient", "x", transient=True)
POLICY = RetryPolicy(attempts=100, first_seconds=1.0, factor=2.0, max_seconds=20.0)


def exact(seconds: float) -> float:
    return seconds


def test_waits_grow_to_a_maximum() -> None:
    waits = [next_attempt(PASSING, n, traits=IDEMPOTENT, policy=POLICY, jitter=exact) for n in range(1, 8)]
    assert waits == [1, 2, 4, 8, 16, 20, 20]


def test_jitter_never_exceeds_the_maximum_nor_goes_below_zero() -> None:
    def wild(seconds: float) -> float:
        return seconds * 10

    assert next_attempt(PASSING, 5, traits=IDEMPOTENT, policy=POLICY, jitter=wild) == 20
    assert next_attempt(PASSING, 5, traits=IDEMPOTENT, policy=POLICY, jitter=lambda _seconds: -1.0) == 0


def test_the_default_jitter_spreads_waits() -> None:
    waits = {next_attempt(PASSING, 2, traits=IDEMPOTENT, policy=POLICY) for _ in range(50)}
    assert len(waits) > 10
    assert all(wait is not None and 0 < wait <= 20 for wait in waits)


def test_a_huge_attempt_number_waits_the_maximum() -> None:
    policy = RetryPolicy(attempts=10**9, max_seconds=3.0)
    assert next_attempt(PASSING, 10**6, traits=IDEMPOTENT, policy=policy, jitter=exact) == 3.0


@pytest.mark.parametrize("attempt", [3, 4])
def test_no_attempt_follows_the_last(attempt: int) -> None:
    assert next_attempt(PASSING, attempt, traits=IDEMPOTENT, policy=RetryPolicy(attempts=3)) is None
    assert next_attempt(PASSING, 2, traits=IDEMPOTENT, policy=RetryPolicy(attempts=3)) is not None


OTHERS: list[Outcome] = [
    Done(),
    AcceptedJob("j"),
    OutcomeUnknown("timeout", "x"),
    OutcomeUnknown("cancelled", "x"),
    *(FailedCall(kind, "x") for kind in ("schema", "not_found", "denied", "internal", "budget_exceeded", "cancelled")),
    FailedCall("internal", "x", transient=True, fatal=True),
]


@pytest.mark.parametrize("outcome", OTHERS, ids=repr)
def test_nothing_but_a_failure_that_may_pass_is_tried_again(outcome: Outcome) -> None:
    assert next_attempt(outcome, 1, traits=IDEMPOTENT, policy=POLICY) is None


def test_a_tool_that_is_not_idempotent_is_never_tried_again() -> None:
    failures = (PASSING, FailedCall("timeout", "x", transient=True))
    for outcome, attempt in itertools.product(failures, range(1, 5)):
        assert next_attempt(outcome, attempt, traits=ToolTraits(), policy=POLICY) is None
