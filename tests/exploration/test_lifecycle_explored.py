"""Every interleaving of two workers, a user, the clock and crashes, over the lifecycle's closed state space."""

import sys
import time

import pytest

from checkrein.testing.explorer import INVARIANTS, SCENARIOS, SOAK_SCENARIOS, Scenario, explore
from tests.counts import amount, report

ENOUGH = 2_000_000


def _scenarios() -> tuple[Scenario, ...]:
    return (*SCENARIOS, *SOAK_SCENARIOS) if amount(10) >= 100 else SCENARIOS


@pytest.mark.timeout(3600)
def test_every_interleaving_keeps_every_invariant(capsys: pytest.CaptureFixture[str]) -> None:
    transitions = states = 0
    begun = time.perf_counter()
    for scenario in _scenarios():
        started = time.perf_counter()
        found = explore(scenario)
        with capsys.disabled():
            sys.stdout.write(f"\n  explored {found} in {time.perf_counter() - started:.1f} s")
            sys.stdout.flush()
        assert found.violation is None, f"{scenario.name}: {found.violation}"
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
