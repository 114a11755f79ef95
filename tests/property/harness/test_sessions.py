"""For any planner, tool outcomes, hook answers and callers: the log alone is the session, and nobody gets more than the budget allows."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings, strategies as st

from checkrein.harness.loop import HarnessLoop
from checkrein.kernel.budget import COUNTED, BudgetState
from checkrein.kernel.events import Event, StepEnd, StepStart, ToolCallGiven, ToolErrorGiven, ToolResultGiven
from checkrein.kernel.session import evolve_session, fold_session
from checkrein.kernel.session_budget import spent
from checkrein.kernel.session_next import next_effect
from checkrein.kernel.session_state import SessionPhase, SessionState
from tests.counts import amount
from tests.property.harness.session_world import World

TAPES = st.lists(st.integers(0, 255), min_size=20, max_size=220)


def _lived(numbers: Sequence[int]) -> World:
    world = World(numbers)
    asyncio.run(world.live())
    return world


def _states(log: Sequence[Event]) -> list[tuple[SessionState, BudgetState]]:
    """Return the session and its budget at every offset."""
    state, budget = SessionState(), BudgetState()
    states = [(state, budget)]
    for event in log:
        state, budget = evolve_session(state, event), spent(budget, event)
        states.append((state, budget))
    return states


@given(TAPES)
@settings(max_examples=amount(250))
def test_the_live_session_is_the_fold_of_its_log_at_every_moment(numbers: list[int]) -> None:
    world = _lived(numbers)
    states = _states(world.loop.events)
    for offset, session, budget in world.seen:
        state, counted = states[offset]
        assert session == state
        if session.is_started:
            assert counted.with_elapsed(budget.used.wall_seconds) == budget
    assert fold_session(world.loop.events) == world.loop.session == states[-1][0]


@given(TAPES)
@settings(max_examples=amount(250))
def test_nothing_is_granted_beyond_the_budget(numbers: list[int]) -> None:
    world = _lived(numbers)
    for _, budget in _states(world.loop.events):
        for limit in COUNTED:
            allowed = budget.limits.limit(limit)
            assert allowed is None or budget.taken(limit) <= allowed
    types = Counter(event.type for event in world.loop.events)
    used = world.loop.budget.used
    assert (used.turns, used.tool_calls, used.steps) == (types["turn.start"], types["tool.call"], types["step.start"])
    assert world.asked <= used.turns
    if world.has_tools:
        assert sum(world.bodies.values()) == used.tool_calls


@given(TAPES)
@settings(max_examples=amount(250))
def test_a_session_starts_once_ends_once_and_says_nothing_after_its_end(numbers: list[int]) -> None:
    world = _lived(numbers)
    log = list(world.loop.events)
    types = [event.type for event in log if event.type not in {"steer_queued", "follow_up_queued"}]
    assert types[0] == "session.start"
    assert types.count("session.start") == types.count("session.complete") == 1
    assert log[-1].type == "session.complete"
    assert [event.offset for event in log] == list(range(len(log)))
    assert world.loop.state == "DONE"


@given(TAPES)
@settings(max_examples=amount(250))
def test_every_call_has_exactly_one_answer_before_the_session_reflects(numbers: list[int]) -> None:
    world = _lived(numbers)
    state = SessionState()
    called: set[str] = set()
    answered: list[str] = []
    for event in world.loop.events:
        state = evolve_session(state, event)
        match event.data:
            case ToolCallGiven(call_id=call_id):
                assert call_id not in answered
                called.add(call_id)
            case ToolResultGiven(call_id=call_id) | ToolErrorGiven(call_id=call_id) if call_id:
                answered.append(call_id)
            case _:
                pass
        if state.phase in {SessionPhase.REFLECTING, SessionPhase.PLANNING, SessionPhase.DONE}:
            assert called == set(answered)
    assert len(answered) == len(set(answered))


@given(TAPES)
@settings(max_examples=amount(250))
def test_every_step_that_began_ends_once_unless_the_caller_closes_before(numbers: list[int]) -> None:
    world = _lived(numbers)
    begun: Counter[str | int] = Counter()
    ended: Counter[str | int] = Counter()
    for event in world.loop.events:
        match event.data:
            case StepStart(step_id=step_id):
                begun[step_id] += 1
            case StepEnd(step_id=step_id):
                ended[step_id] += 1
            case _:
                pass
        assert all(ended[name] <= begun[name] for name in ended)
        if event.type == "turn.start":
            assert begun == ended
    assert begun == ended or world.loop.session.outcome.startswith("closed:")


@given(TAPES)
@settings(max_examples=amount(80))
def test_a_replay_of_any_prefix_stands_where_the_session_stood_and_calls_nobody(numbers: list[int]) -> None:
    world = _lived(numbers)
    log = list(world.loop.events)
    asked, bodies = world.asked, sum(world.bodies.values())
    for offset, (state, budget) in enumerate(_states(log)):
        copy = HarnessLoop.replay(
            log[:offset],
            world.plan,
            tools=world.tools() if world.has_tools else None,
            clock=world.clock,
            policy=world.permit,
            on_failure=world.on_failure,
        )
        assert copy.session == state
        assert list(copy.events) == log[:offset]
        if state.is_started:
            assert copy.budget == budget
        next_effect(state, budget, world.on_failure)
    assert (world.asked, sum(world.bodies.values())) == (asked, bodies)


@given(TAPES, st.integers(0, 10_000))
@settings(max_examples=amount(250))
def test_a_session_that_goes_on_from_any_offset_keeps_every_promise(numbers: list[int], place: int) -> None:
    first = _lived(numbers)
    log = list(first.loop.events)
    second = World(numbers[::-1])
    offset = 1 + place % len(log)
    if fold_session(log[:offset]).phase is SessionPhase.DONE or not fold_session(log[:offset]).is_started:
        return
    second.take_over(log[:offset], first.on_failure)
    asyncio.run(second.go_on())
    after = list(second.loop.events)
    assert after[:offset] == log[:offset]
    assert [event.offset for event in after] == list(range(len(after)))
    assert [event.type for event in after].count("session.complete") == 1
    for _, budget in _states(after):
        for limit in COUNTED:
            allowed = budget.limits.limit(limit)
            assert allowed is None or budget.taken(limit) <= allowed
    assert fold_session(after) == second.loop.session
