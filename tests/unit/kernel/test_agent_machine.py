from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from checkrein.errors import IllegalTransition
from checkrein.kernel.agent import (
    AGENT_MACHINE,
    MAX_CONTENT_BLOCKS,
    MAX_MESSAGES,
    MAX_QUEUED,
    AgentEvent,
    AgentLimits,
    AgentPhase,
    AgentState,
    CallRefused,
    CancelAccepted,
    Continued,
    Ended,
    LoopEnded,
    MessageAccepted,
    Prompted,
    QueueName,
    Settled,
    SubscriberFailed,
    TurnFinished,
    boundary_after,
    fits_continue,
    fits_prompt,
    fits_queue,
    goes_on_after,
    with_cleared,
    with_queued,
)

evolve = AGENT_MACHINE.evolve
QUEUES: tuple[QueueName, ...] = ("steering", "follow_up")

# The diagram, written down independently of the table.
OPEN = ("Running", "SteeringBoundary", "FollowUpBoundary")
EDGES = {
    ("Idle", "Running"): {"prompt", "continue"},
    ("Running", "Running"): {"turn_finished", "subscriber_failed", "refused"},
    ("Running", "SteeringBoundary"): {"turn_finished"},
    ("SteeringBoundary", "Running"): {"message_accepted"},
    ("Running", "FollowUpBoundary"): {"turn_finished"},
    ("FollowUpBoundary", "Running"): {"message_accepted"},
    **{(phase, "Cancelling"): {"cancel"} for phase in OPEN},
    **{(phase, "Settling"): {"completed", "max_steps", "failed"} for phase in OPEN},
    ("Cancelling", "Settling"): {"loop_ended", "grace_over"},
    ("Settling", "Idle"): {"settled"},
    **{(phase, phase): {"refused"} for phase in ("SteeringBoundary", "FollowUpBoundary", "Cancelling", "Settling")},
}


def test_the_table_has_exactly_the_edges_of_the_diagram() -> None:
    drawn: dict[tuple[str, str], set[str]] = {}
    for phase, row in AGENT_MACHINE.edges.items():
        for kind, targets in row.items():
            for target in targets:
                drawn.setdefault((str(phase), str(target)), set()).add(kind)
    assert drawn == EDGES


def test_the_table_keeps_the_laws_of_tables() -> None:
    assert AGENT_MACHINE.broken_laws() == ()
    assert set(AGENT_MACHINE.edges) == set(AgentPhase)


EVENTS: tuple[AgentEvent, ...] = (
    Prompted(1),
    Continued(1),
    MessageAccepted("steering"),
    TurnFinished(1, had_calls=False),
    SubscriberFailed(),
    CancelAccepted(),
    Ended("completed"),
    Ended("max_steps"),
    Ended("failed"),
    LoopEnded("loop_ended"),
    LoopEnded("grace_over"),
    Settled(),
    CallRefused(),
)


@pytest.mark.parametrize("phase", AgentPhase)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_an_event_without_an_edge_is_refused_with_its_coordinates(phase: AgentPhase, event: AgentEvent) -> None:
    state = AgentState(phase=phase, steering=2, steps_left=2)
    legal = {kind for (source, _), kinds in EDGES.items() if source == phase for kind in kinds}
    if event.type in legal:
        assert evolve(state, event).phase in AgentPhase
        return
    with pytest.raises(IllegalTransition) as caught:
        evolve(state, event)
    assert (caught.value.phase, caught.value.event, set(caught.value.allowed)) == (phase, event.type, legal)


# Boundaries.


def running(*, steering: int = 0, follow_ups: int = 0, steps_left: int = 5, length: int = 1) -> AgentState:
    return AgentState(AgentPhase.RUNNING, length, steering=steering, follow_ups=follow_ups, steps_left=steps_left)


@pytest.mark.parametrize("had_calls", [True, False])
def test_steering_enters_after_every_turn_and_before_a_follow_up(*, had_calls: bool) -> None:
    after = evolve(running(steering=1, follow_ups=1), TurnFinished(2, had_calls))
    assert after.phase is AgentPhase.STEERING_BOUNDARY
    assert evolve(after, MessageAccepted("steering")) == running(follow_ups=1, steps_left=4, length=4)


def test_a_follow_up_enters_only_where_a_response_without_calls_would_end_the_run() -> None:
    assert evolve(running(follow_ups=1), TurnFinished(2, had_calls=True)).phase is AgentPhase.RUNNING
    after = evolve(running(follow_ups=1), TurnFinished(1, had_calls=False))
    assert after.phase is AgentPhase.FOLLOW_UP_BOUNDARY
    assert evolve(after, MessageAccepted("follow_up")) == running(steps_left=4, length=3)


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("had_calls", [True, False])
def test_a_message_is_accepted_only_if_a_step_is_left_for_it(queue: QueueName, *, had_calls: bool) -> None:
    state = with_queued(running(steps_left=1), queue)
    assert not goes_on_after(state, had_calls=had_calls)
    assert boundary_after(replace(state, steps_left=0), had_calls=had_calls) is None


@pytest.mark.parametrize(("had_calls", "queued", "goes_on"), [(True, 0, True), (False, 0, False), (False, 1, True)])
def test_a_run_goes_on_after_calls_and_after_a_response_when_something_is_queued(
    *, had_calls: bool, queued: int, goes_on: bool
) -> None:
    assert goes_on_after(running(follow_ups=queued), had_calls=had_calls) is goes_on


def test_the_last_turn_is_adopted_with_the_end() -> None:
    ended = evolve(running(length=3), Ended("completed", 1, had_calls=False))
    assert (ended.phase, ended.length, ended.tail_is_assistant) == (AgentPhase.SETTLING, 4, True)
    limited = evolve(running(length=3), Ended("max_steps", 2, had_calls=True))
    assert (limited.length, limited.tail_is_assistant) == (5, False)
    failed = evolve(running(length=3), Ended("failed"))
    assert (failed.length, failed.tail_is_assistant) == (3, False)


def test_queues_survive_every_way_to_idle() -> None:
    state = running(steering=2, follow_ups=3)
    cancelled = evolve(evolve(evolve(state, CancelAccepted()), LoopEnded("grace_over")), Settled())
    failed = evolve(evolve(state, Ended("failed")), Settled())
    expected = AgentState(AgentPhase.IDLE, 1, steering=2, follow_ups=3)
    assert cancelled == failed == expected


# Capacity, at its borders.

N, Q = MAX_MESSAGES, MAX_QUEUED


def idle(length: int, *, steering: int = 0, follow_ups: int = 0, is_answered: bool = True) -> AgentState:
    return AgentState(length=length, tail_is_assistant=is_answered, steering=steering, follow_ups=follow_ups)


@pytest.mark.parametrize(
    ("steering", "follow_ups", "most"),
    [(0, 0, N - 2), (0, 3, N - 2 - 6), (2, 0, N - 1 - 4), (2, 3, N - 1 - 10)],
)
def test_a_prompt_fits_up_to_its_sum(steering: int, follow_ups: int, most: int) -> None:
    assert fits_prompt(idle(most, steering=steering, follow_ups=follow_ups))
    assert not fits_prompt(idle(most + 1, steering=steering, follow_ups=follow_ups))


@pytest.mark.parametrize(
    ("steering", "follow_ups", "is_answered", "most"),
    [(0, 2, True, N - 4), (2, 0, True, N - 4), (0, 0, False, N - 1), (0, 2, False, N - 5), (2, 1, False, N - 6)],
)
def test_going_on_fits_up_to_its_sum(steering: int, follow_ups: int, most: int, *, is_answered: bool) -> None:
    assert fits_continue(idle(most, steering=steering, follow_ups=follow_ups, is_answered=is_answered))
    assert not fits_continue(idle(most + 1, steering=steering, follow_ups=follow_ups, is_answered=is_answered))


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize(("waiting", "most"), [(0, N - 2 - MAX_CONTENT_BLOCKS), (9, N - 11 - MAX_CONTENT_BLOCKS)])
@pytest.mark.parametrize("phase", [AgentPhase.RUNNING, AgentPhase.STEERING_BOUNDARY, AgentPhase.FOLLOW_UP_BOUNDARY])
def test_queueing_during_a_run_leaves_room_for_the_largest_turn(
    queue: QueueName, waiting: int, most: int, phase: AgentPhase
) -> None:
    state = AgentState(phase, most, follow_ups=waiting)
    assert fits_queue(state, queue)
    assert not fits_queue(replace(state, length=most + 1), queue)


@pytest.mark.parametrize("phase", [AgentPhase.IDLE, AgentPhase.CANCELLING, AgentPhase.SETTLING])
@pytest.mark.parametrize(
    ("queue", "steering", "follow_ups", "is_answered", "most"),
    [
        ("steering", 0, 0, True, N - 2),
        ("follow_up", 0, 0, True, N - 2),
        ("steering", 0, 0, False, N - 2),
        ("follow_up", 0, 0, False, N - 3),
        ("follow_up", 1, 0, False, N - 4),
        ("follow_up", 0, 3, False, N - 9),
    ],
)
def test_queueing_with_no_run_that_could_grow_leaves_room_for_every_answer(
    queue: QueueName, steering: int, follow_ups: int, most: int, phase: AgentPhase, *, is_answered: bool
) -> None:
    state = replace(idle(most, steering=steering, follow_ups=follow_ups, is_answered=is_answered), phase=phase)
    assert fits_queue(state, queue)
    assert not fits_queue(replace(state, length=most + 1), queue)


def test_queueing_on_an_empty_transcript_counts_the_prompt_that_is_to_come() -> None:
    tight = AgentLimits(messages=4)
    assert fits_queue(AgentState(limits=tight), "follow_up")
    assert not fits_queue(AgentState(limits=replace(tight, messages=3)), "follow_up")
    assert fits_queue(AgentState(limits=replace(tight, messages=3)), "steering")
    assert not fits_queue(AgentState(limits=replace(tight, messages=2)), "steering")


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("phase", AgentPhase)
def test_at_most_256_messages_are_queued(queue: QueueName, phase: AgentPhase) -> None:
    assert fits_queue(AgentState(phase, steering=200, follow_ups=Q - 201), queue)
    assert not fits_queue(AgentState(phase, steering=200, follow_ups=Q - 200), queue)


# Every story within small limits.

LIMITS = (AgentLimits(9, 3, 2), AgentLimits(8, 2, 1), AgentLimits(16, 4, 3))
STEPS = (1, 2, 4)


class Place:
    """A state, and whether something was queued during the turn in progress."""

    def __init__(self, state: AgentState, *, has_queued: bool = False) -> None:
        self.key = (state, has_queued)
        self.state = state
        self.has_queued = has_queued


def moves(place: Place, *, takes_all: bool) -> Iterator[Place]:
    """Yield what may come next, as the agent would do it."""
    state = place.state
    for queue in QUEUES:
        if fits_queue(state, queue):
            yield Place(with_queued(state, queue), has_queued=place.has_queued or state.is_open)
    if state.queued:
        yield Place(with_cleared(state), has_queued=place.has_queued)
    match state.phase:
        case AgentPhase.IDLE:
            yield from map(Place, starts(state, takes_all=takes_all))
        case AgentPhase.CANCELLING:
            yield Place(evolve(state, LoopEnded("loop_ended")))
        case AgentPhase.SETTLING:
            yield Place(evolve(state, Settled()))
        case _:
            yield Place(evolve(state, CancelAccepted()))
            yield Place(evolve(state, Ended("failed")))
            yield from (Place(after) for after in turns(state, takes_all=takes_all))


def starts(state: AgentState, *, takes_all: bool) -> Iterator[AgentState]:
    taken = state.steering if takes_all else min(1, state.steering)
    for steps in STEPS:
        if fits_prompt(state):
            yield evolve(state, Prompted(steps, taken))
        needs_message = state.tail_is_assistant or not state.length
        if (state.queued or not needs_message) and fits_continue(state):
            follow_ups = (state.follow_ups if takes_all else min(1, state.follow_ups)) if needs_message else 0
            joined, queue = (taken, QUEUES[0]) if state.steering else (follow_ups, QUEUES[1])
            yield evolve(state, Continued(steps, queue, joined))


def turns(state: AgentState, *, takes_all: bool) -> Iterator[AgentState]:
    """Yield what follows a turn of each size that fits; a larger one fails before any body runs."""
    for messages in range(1, min(state.turn_room, 1 + state.limits.blocks) + 1):
        yield turn(state, messages, takes_all=takes_all)


def turn(state: AgentState, messages: int, *, takes_all: bool) -> AgentState:
    had_calls = messages > 1
    if not goes_on_after(state, had_calls=had_calls):
        return evolve(state, Ended("max_steps" if had_calls else "completed", messages, had_calls))
    after = evolve(state, TurnFinished(messages, had_calls))
    if after.phase is AgentPhase.RUNNING:
        return after
    queue = QUEUES[0] if after.phase is AgentPhase.STEERING_BOUNDARY else QUEUES[1]
    waiting = after.steering if queue == "steering" else after.follow_ups
    return evolve(after, MessageAccepted(queue, waiting if takes_all else 1))


def reachable(limits: AgentLimits, *, takes_all: bool) -> list[Place]:
    first = Place(AgentState(limits=limits))
    seen, frontier, found = {first.key}, [first], [first]
    while frontier:
        for place in moves(frontier.pop(), takes_all=takes_all):
            if place.key not in seen:
                seen.add(place.key)
                frontier.append(place)
                found.append(place)
    return found


@pytest.fixture(scope="module", params=[(limits, mode) for limits in LIMITS for mode in (False, True)], ids=str)
def explored(request: pytest.FixtureRequest) -> tuple[list[Place], bool]:
    limits, takes_all = request.param
    return reachable(limits, takes_all=takes_all), takes_all


def test_the_transcript_and_the_queues_never_grow_beyond_their_limits(explored: tuple[list[Place], bool]) -> None:
    places, _ = explored
    assert len(places) > 500
    assert {place.state.phase for place in places} >= {_.value for _ in AgentPhase if "Boundary" not in _}
    for place in places:
        state = place.state
        assert 0 <= state.length <= state.limits.messages
        assert 0 <= state.queued <= state.limits.queued
        assert min(state.steering, state.follow_ups, state.steps_left) >= 0


def test_what_is_queued_always_has_its_place_in_the_transcript(explored: tuple[list[Place], bool]) -> None:
    for place in explored[0]:
        assert place.state.length + place.state.queued <= place.state.limits.messages


def test_what_is_queued_during_a_turn_is_not_stranded_by_that_turn(explored: tuple[list[Place], bool]) -> None:
    places, takes_all = explored
    checked = 0
    for place in places:
        if not (place.has_queued and place.state.phase is AgentPhase.RUNNING and place.state.steps_left > 1):
            continue
        largest = 1 + place.state.limits.blocks
        assert place.state.turn_room >= largest
        after = turn(place.state, largest, takes_all=takes_all)
        if place.state.steering:
            assert after.steering == (0 if takes_all else place.state.steering - 1)
        checked += 1
    assert checked


def drained(state: AgentState, *, takes_all: bool) -> AgentState:
    """Return a run's end when every response is plain; each step has the room it needs."""
    while state.phase is AgentPhase.RUNNING:
        assert state.turn_room >= 1
        state = turn(state, 1, takes_all=takes_all)
    return state


def test_a_run_that_begins_has_room_to_answer_all_that_was_queued(explored: tuple[list[Place], bool]) -> None:
    places, takes_all = explored
    begun = [
        start
        for place in places
        if place.state.phase is AgentPhase.IDLE
        for start in starts(place.state, takes_all=takes_all)
    ]
    assert begun
    for state in begun:
        ended = drained(replace(state, steps_left=100), takes_all=takes_all)
        assert (ended.queued, ended.length <= ended.limits.messages) == (0, True)


def test_what_is_queued_while_idle_can_be_gone_on_with(explored: tuple[list[Place], bool]) -> None:
    for place in explored[0]:
        if place.state.phase is not AgentPhase.IDLE:
            continue
        for queue in QUEUES:
            if fits_queue(place.state, queue):
                assert fits_continue(with_queued(place.state, queue))
