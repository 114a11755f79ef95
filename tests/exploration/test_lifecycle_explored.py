"""Every interleaving of two workers, a user, the clock and crashes, over the lifecycle's closed state space."""

import sys
import time

import pytest

from checkrein.testing.explorer import INVARIANTS, SCENARIOS, SOAK_SCENARIOS, Exploration, Scenario, explore
from tests.counts import amount, report
from tests.processes import spread

ENOUGH = 2_000_000
PROCESSES_AT_MOST = 2
"""A process holds every state of its scenario: up to 800 MB in a long test."""


def _scenarios() -> tuple[Scenario, ...]:
    return (*SCENARIOS, *SOAK_SCENARIOS) if amount(10) >= 100 else SCENARIOS


def _explored(scenario: Scenario) -> tuple[Exploration, float]:
    """Explore a scenario, and tell in how many seconds."""
    begun = time.perf_counter()
    return explore(scenario), time.perf_counter() - begun


@pytest.mark.timeout(3600)
def test_every_interleaving_keeps_every_invariant(capsys: pytest.CaptureFixture[str]) -> None:
    transitions = states = 0
    begun = time.perf_counter()
    for found, took in spread(_explored, _scenarios(), at_most=PROCESSES_AT_MOST):
        with capsys.disabled():
            sys.stdout.write(f"\n  explored {found} in {took:.1f} s")
            sys.stdout.flush()
        assert found.violation is None, f"{found.scenario}: {found.violation}"
        assert found.closed
        transitions += found.transitions
        states += found.states
    seconds = time.perf_counter() - begun
    with capsys.disabled():
        sys.stdout.write(
            f"\n  explored in all: {states:,} states, {transitions:,} transitions, closed=yes, {seconds:.1f} s\n"
        )
        report(
            "lifecycle explored: transitions",
            transitions,
            passed=transitions,
            detail={"states": states, "closed": True, "invariants": len(INVARIANTS), "seconds": round(seconds, 1)},
        )
    assert transitions >= ENOUGH
