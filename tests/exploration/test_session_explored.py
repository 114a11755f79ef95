"""Every move of everybody around a session, over its closed state space: the real machine, driver, hooks, budget and pull table."""

import sys
import time
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from checkrein.harness.driver import SessionDriver
from checkrein.harness.hooks import Fired
from checkrein.kernel.events import Event, StepEnd, StepStart
from checkrein.kernel.session import evolve_session
from checkrein.kernel.session_next import Effect, GiveBack, PauseForBudget, StartStep
from checkrein.kernel.session_state import SessionPhase, SessionState
from tests.counts import amount, report
from tests.exploration.session_scenarios import SCENARIOS, SOAK_SCENARIOS, Scenario
from tests.exploration.session_world import INVARIANTS, Broken, Evolve, World

ENOUGH = 500_000


def _scenarios() -> tuple[Scenario, ...]:
    return (*SCENARIOS, *SOAK_SCENARIOS) if amount(10) >= 100 else SCENARIOS


@pytest.mark.timeout(900)
def test_every_move_from_every_state_keeps_every_invariant(capsys: pytest.CaptureFixture[str]) -> None:
    states = transitions = refused = 0
    begun = time.perf_counter()
    for scenario in _scenarios():
        world = World(scenario)
        world.walk()
        states += world.states
        transitions += world.transitions
        refused += world.refused
        with capsys.disabled():
            sys.stdout.write(
                f"\n  explored {scenario.name}: {world.states:,} states, {world.transitions:,} transitions"
            )
            sys.stdout.flush()
    with capsys.disabled():
        report(
            "session explored: transitions",
            transitions,
            passed=transitions,
            detail={
                "states": states,
                "refused": refused,
                "closed": True,
                "invariants": len(INVARIANTS),
                "seconds": round(time.perf_counter() - begun, 1),
            },
        )
    assert transitions >= ENOUGH


# The explorer objects: each change below takes one rule away.


def _forgets_that_a_planning_is_counted(state: SessionState, event: Event) -> SessionState:
    after = evolve_session(state, event)
    return after if after.request is None else replace(after, request=replace(after.request, is_held=False))


def _never_reflects(state: SessionState, event: Event) -> SessionState:
    after = evolve_session(state, event)
    is_over = event.type == "tool.result" and after.phase is SessionPhase.REFLECTING
    return replace(after, phase=SessionPhase.AWAITING_TOOL) if is_over else after


def _reflects_too_soon(state: SessionState, event: Event) -> SessionState:
    after = evolve_session(state, event)
    return (
        replace(after, phase=SessionPhase.REFLECTING) if event.type == "tool.result" and after.paused is None else after
    )


def _reads_messages_after_the_end(state: SessionState, event: Event) -> SessionState:
    if state.phase is SessionPhase.DONE and event.type == "steer_queued":
        return replace(state, phase=SessionPhase.REFLECTING)
    return evolve_session(state, event)


def _resumes_nowhere(state: SessionState, event: Event) -> SessionState:
    after = evolve_session(state, event)
    return state if event.type == "session.resume" else after


def _loses_where_a_pause_returns_to(state: SessionState, event: Event) -> SessionState:
    after = evolve_session(state, event)
    return (
        replace(after, phase=SessionPhase.REFLECTING)
        if event.type == "session.resume" and after.paused is None
        else after
    )


class _SpendsOneStepMore(SessionDriver):
    def next_effect(self) -> Effect:
        effect = super().next_effect()
        step = self._host.session.next_step
        return StartStep(step) if effect == PauseForBudget("steps") and step is not None else effect


class _SkipsForNothing(SessionDriver):
    async def _conclude_reviews(self, reviews: Sequence[Fired]) -> None:
        step = self._host.session.next_step
        if step is not None and any(fired.kind == "skipped" for fired in reviews):
            await self._host.record(StepStart(step_id=step.id), StepEnd(step_id=step.id, status="skipped"))


class _ForgetsWhatItShowed(SessionDriver):
    def next_effect(self) -> Effect:
        self._reviews.clear()
        return super().next_effect()


class _GivesUpItsTurn(SessionDriver):
    def next_effect(self) -> Effect:
        effect = super().next_effect()
        return GiveBack() if isinstance(effect, StartStep) else effect


class _StartsTwice(SessionDriver):
    async def _start_step(self, step: object) -> None:
        del step
        following = self._host.session.next_step
        if following is not None:
            await self._host.record(StepStart(step_id=following.id), StepStart(step_id=following.id))


CHANGED_MACHINES: dict[str, tuple[int, Evolve, int]] = {
    "a paused planning is counted again": (0, _forgets_that_a_planning_is_counted, 6),
    "the last answer of a batch leads nowhere": (2, _never_reflects, 10),
    "the first answer of a batch ends it": (3, _reflects_too_soon, 7),
    "a message wakes a session that is over": (2, _reads_messages_after_the_end, 3),
    "no decision counts": (2, _resumes_nowhere, 9),
    "a pause returns to another state": (0, _loses_where_a_pause_returns_to, 2),
}
CHANGED_DRIVERS: dict[str, tuple[int, type[SessionDriver], int]] = {
    "a step more than the budget allows": (1, _SpendsOneStepMore, 5),
    "skipped steps cost nothing": (1, _SkipsForNothing, 5),
    "what was shown is shown for ever": (1, _ForgetsWhatItShowed, 10),
    "control is given back for no reason": (1, _GivesUpItsTurn, 1),
    "a step is started twice": (1, _StartsTwice, 2),
}


@pytest.mark.parametrize("name", CHANGED_MACHINES)
def test_a_machine_without_one_rule_is_objected_to(name: str) -> None:
    scenario, evolve, invariant = CHANGED_MACHINES[name]
    with pytest.raises(Broken) as caught:
        World(SCENARIOS[scenario], evolve=evolve).walk()
    assert caught.value.number == invariant
    assert caught.value.__notes__


@pytest.mark.parametrize("name", CHANGED_DRIVERS)
def test_a_driver_without_one_rule_is_objected_to(name: str) -> None:
    scenario, driver, invariant = CHANGED_DRIVERS[name]
    with pytest.raises(Broken) as caught:
        World(SCENARIOS[scenario], driver=driver).walk()
    assert caught.value.number == invariant
