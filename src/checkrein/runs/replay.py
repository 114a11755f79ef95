"""Replay: a stored log gives its state again without planner, model or tool, or it says where it cannot.

Three things are compared at every offset: the stored bytes with the canonical bytes of the event they mean, the event with the lifecycle's guards, and at the end
the fold with the state that the guards let through, and with what the store keeps beside the log.
"""

import msgspec

from checkrein.codec.wire import decode_event, encode_event, encode_value
from checkrein.errors import DamagedLog, IllegalTransition, Rejected
from checkrein.kernel.events import Event
from checkrein.kernel.run import fold_run, transition
from checkrein.kernel.session import evolve_session, fold_session
from checkrein.kernel.session_state import SessionState
from checkrein.kernel.state import RunState
from checkrein.ports.store import RunStore
from checkrein.runs.journal import head_of

__all__ = ["Divergence", "Replay", "replay_run"]


class Divergence(msgspec.Struct, frozen=True):
    """Where a log is not what it must be.

    Attributes:
        offset: position of the first event that is wrong; the log's length when only its end is.
        reason: what is wrong, in words.
    """

    offset: int
    reason: str


class Replay(msgspec.Struct, frozen=True):
    """What a replay gave.

    Attributes:
        run_id: the run.
        events: the events that were read.
        state: the state at the end, or before the divergence; None when the first event is wrong.
        session: the session at the same place.
        divergence: the first thing that is wrong, None when the state is equal.
    """

    run_id: str
    events: tuple[Event, ...]
    state: RunState | None
    session: SessionState
    divergence: Divergence | None

    @property
    def is_equal(self) -> bool:
        """Whether the log gives the state that was recorded."""
        return self.divergence is None


async def replay_run(store: RunStore, run_id: str) -> Replay:
    """Fold a run's log again and compare.

    Raises:
        RunNotFound: no such run.
        StoreError: the store cannot be read.
    """
    bodies = await store.read(run_id)
    state: RunState | None = None
    events: list[Event] = []
    divergence: Divergence | None = None
    for offset, body in enumerate(bodies):
        try:
            event = decode_event(body, run_id=run_id, offset=offset)
            state = transition(state, event)
        except DamagedLog as error:
            divergence = Divergence(offset, error.reason)
        except Rejected as error:
            divergence = Divergence(offset, f"{error.event} was refused: {error.code}: {error.detail}")
        else:
            events.append(event)
            if encode_event(event) != body:
                divergence = Divergence(offset, "the stored bytes are not the canonical bytes of the event")
        if divergence is not None:
            break
    session, illegal = _session_of(events)
    if divergence is None or (illegal is not None and illegal.offset < divergence.offset):
        divergence = illegal
    if divergence is None:
        divergence = await _end_divergence(store, run_id, state, events)
    return Replay(run_id, tuple(events), state, session, divergence)


def _session_of(events: list[Event]) -> tuple[SessionState, Divergence | None]:
    """Return the session that the events give, up to the first one that its machine refuses."""
    try:
        return fold_session(events), None
    except IllegalTransition:
        session = SessionState()
    for offset, event in enumerate(events):
        try:
            session = evolve_session(session, event)
        except IllegalTransition as error:
            return session, Divergence(offset, str(error))
    return session, None


async def _end_divergence(
    store: RunStore, run_id: str, state: RunState | None, events: list[Event]
) -> Divergence | None:
    if state is None:
        return Divergence(0, "the log is empty")
    if encode_value(fold_run(events)) != encode_value(state):
        return Divergence(len(events), "the fold without guards gives another state")
    row = await store.get(run_id)
    if (row.version, row.lease.epoch) != (state.version, state.epoch):
        return Divergence(
            len(events),
            f"the store says version {row.version}, epoch {row.lease.epoch}; the log gives {state.version}, {state.epoch}",
        )
    if row.head != head_of(state, events[-1].at):
        return Divergence(len(events), f"the store lists the run as {row.head.phase}; the log gives {state.phase}")
    return None
