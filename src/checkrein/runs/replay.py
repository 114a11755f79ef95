"""Replay: a stored log gives its state again without planner, model or tool, or it says where it cannot.

Three things are compared at every offset: the stored bytes with the canonical bytes of the event they mean, the event with the lifecycle's guards, and at the end
the fold with the state that the guards let through, and with what the store keeps beside the log.
"""

import msgspec

from checkrein.codec.wire import decode_event, encode_event, encode_value
from checkrein.errors import DamagedLog, Rejected
from checkrein.kernel.events import Event
from checkrein.kernel.run import fold_run, transition
from checkrein.kernel.state import RunState
from checkrein.ports.store import RunStore
from checkrein.projections.plan import PlanView, fold_plan
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
        plan: the plan's view at the same place.
        divergence: the first thing that is wrong, None when the state is equal.
    """

    run_id: str
    events: tuple[Event, ...]
    state: RunState | None
    plan: PlanView
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
    if divergence is None:
        divergence = await _end_divergence(store, run_id, state, events)
    return Replay(run_id, tuple(events), state, fold_plan(events), divergence)


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
