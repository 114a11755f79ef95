"""Whatever is sent to a run: the transition answers or refuses, nothing is half-applied, and the log alone gives the state."""

from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from checkrein.errors import IllegalTransition, Rejected
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import (
    CancelRequested,
    Event,
    EventData,
    ToolGranted,
    ToolReconciled,
    TurnGranted,
)
from checkrein.kernel.guards import GUARDS
from checkrein.kernel.run import TABLE, evolve, fold_run, transition, transition_batch, transition_under
from checkrein.kernel.state import Phase, RunState
from tests.counts import amount
from tests.property.kernel.histories import anything, budgets, envelopes, events, openings, received
from tests.unit.kernel.test_state import assert_immutable


class Lifecycle(RuleBasedStateMachine):
    """One run, sent sensible and absurd events, beside counters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Event] = []
        self.state: RunState
        self.grants: list[tuple[str, int]] = []
        self.turns = 0

    @initialize(budget=budgets, data=st.data())
    def begin(self, budget: Budget, data: st.DataObject) -> None:
        opening = data.draw(st.sampled_from([*openings(budget)]))
        self.log = opening[:1]
        self.state = transition(None, opening[0])
        for event in opening[1:]:
            self._send(event)

    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        self._send(data.draw(events(self.state)))

    @invariant()
    def a_person_alone_can_end_it(self) -> None:
        if not self.log or self.state.phase.is_terminal:
            return
        state = self.state
        answers = [ToolReconciled(call.call_id, "unknown") for call in state.open_calls]
        wishes: list[EventData] = [CancelRequested("enough"), *answers]
        ended = transition_batch(
            state,
            [Event("run", f"p{number}", state.version + number, 0.0, "u", wish) for number, wish in enumerate(wishes)],
        )
        assert ended.phase is Phase.FAILED
        assert ended.outcome is not None
        assert ended.outcome.code == "cancelled"

    def _send(self, event: Event) -> None:
        before, shown = self.state, repr(self.state)
        try:
            after = transition(before, event)
        except Rejected as refusal:
            self._refused(refusal, event)
        else:
            self._accepted(event, after)
        assert repr(before) == shown

    def _refused(self, refusal: Rejected, event: Event) -> None:
        objecting = [code for code, guard in GUARDS.items() if guard(self.state, event) is not None]
        assert objecting[:1] == [refusal.code]

    def _accepted(self, event: Event, after: RunState) -> None:
        before, data = self.state, event.data
        assert not before.phase.is_terminal
        assert after.phase in TABLE[data.type][before.phase]
        assert event.expected_version == before.version
        if isinstance(data, ToolGranted):
            assert (data.call_id, data.attempt) not in self.grants
            assert data.attempt == 1 or data.tool.idempotent
            self.grants.append((data.call_id, data.attempt))
        self.turns += isinstance(data, TurnGranted)
        if isinstance(data, (ToolGranted, TurnGranted)):
            assert before.cancel is None
            assert before.phase is not Phase.BLOCKED
            assert event.epoch == before.epoch > 0
        self.log.append(event)
        self.state = after

    @invariant()
    def the_log_alone_gives_the_state(self) -> None:
        if not self.log:
            return
        state = self.state
        assert fold_run(self.log) == state
        assert hash(fold_run(self.log)) == hash(state)
        assert state.version == len(self.log)
        assert_immutable(state, "state")

    @invariant()
    def the_counters_are_right_and_within_the_budget(self) -> None:
        if not self.log:
            return
        budget = self.state.budget
        assert len(self.grants) <= budget.used.tool_calls
        assert self.turns <= budget.used.turns
        for made, limit in ((len(self.grants), budget.limits.tool_calls), (self.turns, budget.limits.turns)):
            assert limit is None or made <= limit

    @invariant()
    def every_phase_means_what_it_says(self) -> None:
        if not self.log:
            return
        state = self.state
        assert state.phase is not Phase.VERIFYING or not state.open_calls
        assert not state.phase.is_terminal or not state.open_calls
        assert (state.phase is Phase.BLOCKED) is bool(state.causes)
        assert state.phase.is_terminal is (state.outcome is not None)
        if state.phase is Phase.SUCCEEDED:
            proved = {(item.check, item.subject) for item in state.evidence if item.passed}
            assert {(check.id, check.subject) for check in state.task.checks} <= proved
        assert state.cancel is None or state.open_calls or state.phase is Phase.FAILED


TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(max_examples=amount(150), stateful_step_count=40)


def _grown(data: st.DataObject, budget: Budget, length: int) -> tuple[list[Event], RunState]:
    """Draw a log of accepted events, at most `length` drawn ones."""
    log = data.draw(st.sampled_from([*openings(budget)]))
    state = fold_run(log)
    for _ in range(length):
        event = data.draw(events(state))
        try:
            state = transition(state, event)
        except Rejected:
            continue
        log.append(event)
    return log, state


@settings(max_examples=amount(100))
@given(st.data(), budgets, st.integers(0, 30))
def test_a_log_folds_to_the_same_state_from_every_offset(data: st.DataObject, budget: Budget, length: int) -> None:
    log, state = _grown(data, budget, length)
    for cut in range(1, len(log) + 1):
        assert fold_run(log[cut:], fold_run(log[:cut])) == state
    stepwise = transition(None, log[0])
    for event in log[1:]:
        stepwise = evolve(stepwise, event)
    assert stepwise == state == transition_batch(None, log)


@settings(max_examples=amount(100))
@given(st.data(), budgets, st.integers(0, 20))
def test_without_guards_an_event_is_still_an_edge_of_the_table_or_refused(
    data: st.DataObject, budget: Budget, length: int
) -> None:
    _, state = _grown(data, budget, length)
    event = data.draw(anything.flatmap(lambda payload: envelopes(state, payload)))
    phase = _phase_after(state, event)
    assert phase is None or phase in TABLE[event.data.type][state.phase]


def _phase_after(state: RunState, event: Event) -> Phase | None:
    """Return where the bare table leads, None when it refuses; anything but a refusal is a failure."""
    try:
        return transition_under({}, state, event).phase
    except Rejected:
        return None


@settings(max_examples=amount(100))
@given(st.data(), budgets)
def test_a_batch_is_its_events_one_by_one_or_nothing(data: st.DataObject, budget: Budget) -> None:
    _, state = _grown(data, budget, 10)
    shown = repr(state)
    batch: list[Event] = []
    single: RunState | None = state
    for _ in range(data.draw(st.integers(1, 4))):
        event = data.draw(events(state if single is None else single))
        batch.append(event)
        try:
            single = None if single is None else transition(single, event)
        except Rejected:
            single = None
    try:
        assert transition_batch(state, batch) == single
    except Rejected:
        assert single is None
    assert repr(state) == shown


@settings(max_examples=amount(100))
@given(st.lists(anything, min_size=1, max_size=6))
def test_a_log_that_was_never_accepted_is_refused_and_never_a_crash(payloads: list[EventData]) -> None:
    first = received(Budget())
    log = [first, *(Event("run", f"e{i}", i, 0.0, "x", item, 1) for i, item in enumerate(payloads, start=1))]
    try:
        state = fold_run(log)
    except (IllegalTransition, Rejected):
        return
    assert state.version == len(log)
