"""One run's log as one process holds it: read, fold, and append by compare-and-set.

The invariant: `state` and `session` are folds of what the store accepted, never of what was merely sent. Every batch passes the lifecycle's guards before it is
sent; a refusal goes to the audit and is raised. The batch that ends a run gets its `session.complete` here, so that no writer can forget it.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import replace

from checkrein.codec.wire import fingerprint, row_of, skim_events
from checkrein.errors import Conflict, DuplicateEvent, Rejected, StoreBusy
from checkrein.kernel.events import RUN_EVENT_TYPES, Event, EventData, SessionComplete
from checkrein.kernel.run import fold_run, transition, transition_batch
from checkrein.kernel.session import fold_session
from checkrein.kernel.session_state import SessionState
from checkrein.kernel.state import RunState, is_claimable
from checkrein.ports.clock import Clock, IdSource
from checkrein.ports.store import NewLease, Refusal, RunHead, RunStore

__all__ = ["Journal", "head_of"]

FOLDED_AT_ONCE: Final = 512
"""Events decoded before they are folded: a whole log of them would not fit into a processor's caches."""
BUSY_TRIES: Final = 3
"""How often an outcome is sent to a store that is locked; the store itself waits each time."""


def head_of(state: RunState, at: float) -> RunHead:
    """Return what a store keeps beside the log for that state."""
    return RunHead(
        phase=str(state.phase),
        is_terminal=state.phase.is_terminal,
        is_claimable=is_claimable(state),
        task=state.task.name,
        task_version=state.task.version,
        goal=state.task.goal,
        updated_at=at,
    )


def _folded(
    bodies: Sequence[bytes], run_id: str, state: RunState | None = None, session: SessionState | None = None
) -> tuple[RunState, SessionState]:
    """Return both folds after the events of a log, or after those that follow `state`; only a few events exist at a time."""
    events = skim_events(bodies, run_id=run_id, offset=0 if state is None else state.version)
    while (some := list(islice(events, FOLDED_AT_ONCE))) or state is None:
        state, session = fold_run(some, state), fold_session(some, session)
    return state, session or SessionState()


class Batch(msgspec.Struct, frozen=True):
    """Events that follow a version, with what they make of it.

    Attributes:
        events: the events, in order.
        state: the lifecycle after them.
        session: the session after them.
    """

    events: tuple[Event, ...]
    state: RunState
    session: SessionState


class Journal:
    """The log of one run.

    Attributes:
        store: where it is kept.
        state: the lifecycle at the last version that was read or appended.
        session: the session it drives, at the same version.
    """

    def __init__(
        self, store: RunStore, state: RunState, session: SessionState, sources: tuple[Clock, IdSource]
    ) -> None:
        self.store = store
        self.state = state
        self.session = session
        self._clock, self._ids = sources

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.state.run_id

    @classmethod
    async def open(cls, store: RunStore, run_id: str, *, clock: Clock, ids: IdSource) -> "Journal":
        """Read and fold a run's log.

        Raises:
            RunNotFound: the store has no such run.
            DamagedLog: its log is not what it must be.
            StoreError: the store cannot be read.
        """
        state, session = _folded(await store.read(run_id), run_id)
        return cls(store, state, session, (clock, ids))

    async def at(self, version: int) -> "Journal":
        """Return the run as it stood at an earlier version, to be looked at only.

        Raises:
            DamagedLog: the log is not what it must be.
            StoreError: the store cannot be read.
        """
        bodies = await self.store.read(self.run_id)
        state, session = _folded(bodies[: max(1, version)], self.run_id)
        return Journal(self.store, state, session, (self._clock, self._ids))

    async def refresh(self) -> bool:
        """Read what others appended; True when there was anything.

        Raises:
            DamagedLog: the new part of the log is not what it must be.
            StoreError: the store cannot be read.
        """
        version = self.state.version
        bodies = await self.store.read(self.run_id, version)
        if not bodies:
            return False
        self.state, self.session = _folded(bodies, self.run_id, self.state, self.session)
        return True

    def batch_of(
        self, data: Sequence[EventData], *, actor: str, epoch: int | None, elapsed: float = 0.0, ids: Sequence[str] = ()
    ) -> Batch:
        """Return `data` as events that follow the present version; the end of a session is added where the batch ends the run.

        The first of them have the given ids, the others new ones.

        Raises:
            Rejected: the lifecycle refuses one of them.
            IllegalTransition: the session's machine has no such edge.
        """
        at = float(self._clock.now())
        events = tuple(
            Event(
                run_id=self.run_id,
                event_id=ids[index] if index < len(ids) else self._ids.new_id(),
                expected_version=self.state.version + index,
                at=at,
                actor=actor,
                data=item,
                epoch=epoch,
                elapsed=float(elapsed),
            )
            for index, item in enumerate(data)
        )
        after = transition_batch(self.state, events)
        if after.outcome is not None and events:
            events = self._completed(events, after.outcome.code)
            after = transition_batch(self.state, events)
        return Batch(events, after, fold_session(events, self.session))

    def _completed(self, events: tuple[Event, ...], reason: str) -> tuple[Event, ...]:
        last = events[-1]
        session = fold_session(events[:-1], self.session)
        end = replace(
            last,
            event_id=self._ids.new_id(),
            data=SessionComplete(reason=reason, unread=tuple(note.id for note in session.queued)),
        )
        return (*events[:-1], end, replace(last, expected_version=last.expected_version + 1))

    async def append(
        self, data: Sequence[EventData], *, actor: str, epoch: int | None, elapsed: float = 0.0, first_id: str = ""
    ) -> None:
        """Append a batch at the present version.

        Raises:
            Rejected: the lifecycle refuses one of the events; the refusal is in the audit.
            Conflict: the log moved on (`stale_version`; the journal has re-read it, decide again) or the lease is lost (`lease_lost`).
            StoreError: the store could not append.
        """
        try:
            ids = (first_id,) if first_id else ()
            batch = self.batch_of(data, actor=actor, epoch=epoch, elapsed=elapsed, ids=ids)
        except Rejected as error:
            await self._audit(error, actor, first_id)
            raise
        await self.send(batch)

    async def send(self, batch: Batch, lease: NewLease | None = None) -> None:
        """Send a batch made by `batch_of`, and take it into the state once the store accepted it.

        Raises:
            Conflict: as `append`.
            LeaseHeld: with `lease`, another worker holds the run.
            DuplicateEvent: an id is there with other content.
            StoreError: the store could not append.
        """
        events = batch.events
        head = head_of(batch.state, events[-1].at)
        rows = [row_of(event) for event in events]
        version = self.state.version
        try:
            if lease is None:
                done = await self.store.append(
                    self.run_id, version=version, epoch=events[0].epoch, rows=rows, head=head
                )
            else:
                done = await self.store.claim(self.run_id, version=version, lease=lease, rows=rows, head=head)
        except Conflict as error:
            await self._lost_race(error, events)
            raise
        except DuplicateEvent as error:
            await self._refuse_duplicate(error, events[0])
            raise
        if done.is_known:
            await self.refresh()
            return
        self.state = batch.state
        self.session = batch.session

    async def _lost_race(self, error: Conflict, events: Sequence[Event]) -> None:
        await self.refresh()
        if error.code == "lease_lost":
            # What the run itself says of a batch tells more than what its session says.
            said = next((event for event in events if event.data.type in RUN_EVENT_TYPES), events[-1])
            await self._audit(_as_rejection(error, self.state, said.data.type), said.actor)

    async def append_outcome(
        self, build: Callable[[], Sequence[EventData]], *, actor: str, epoch: int | None, elapsed: float = 0.0
    ) -> None:
        """Append what already happened, again and again while the version moves, under the same ids.

        Args:
            build: gives the facts; what happened comes first, what follows from it in the present state comes after it.
            actor: who says so.
            epoch: the lease's epoch.
            elapsed: active seconds in total.

        Raises:
            Rejected: the outcome is not accepted any more (the run ended, the call is settled, the lease is lost); it is in the audit.
            Conflict: `lease_lost`.
            StoreError: the store could not append.
        """
        ids: list[str] = []
        patience = BUSY_TRIES
        while True:
            facts = build()
            ids += [self._ids.new_id() for _ in facts[len(ids) :]]
            try:
                await self.send(self.batch_of(facts, actor=actor, epoch=epoch, elapsed=elapsed, ids=ids))
            except Rejected as error:
                await self._audit(error, actor, ids[0])
                raise
            except Conflict as error:
                if error.code == "lease_lost":
                    raise
            except StoreBusy:
                # Under the same ids, so that a try that did reach the store is known and not repeated.
                patience -= 1
                if not patience:
                    raise
            else:
                return

    async def accepted_before(self, event: Event) -> bool:
        """Tell whether the store has this event; the same id with other content is an error.

        Raises:
            DuplicateEvent: the id is there with other content.
        """
        found = await self.store.find_event(self.run_id, event.event_id)
        if found is None:
            return False
        offset, known = found
        if known != fingerprint(event):
            error = DuplicateEvent(self.run_id, event.event_id, offset)
            await self._refuse_duplicate(error, event)
            raise error
        return True

    async def _refuse_duplicate(self, error: DuplicateEvent, event: Event) -> None:
        refusal = Rejected("duplicate_event", str(error), {"event": event.data.type})
        await self._audit(refusal, event.actor, error.event_id)

    async def submit(self, event: Event) -> None:
        """Append one event that somebody else made, deciding by its id first.

        Raises:
            DuplicateEvent: the id is there with other content.
            Rejected: the lifecycle refuses it; the refusal is in the audit.
            Conflict: it lost a race.
        """
        if event.run_id == self.run_id and await self.accepted_before(event):
            return
        try:
            batch = Batch((event,), transition(self.state, event), fold_session((event,), self.session))
        except Rejected as error:
            await self._audit(error, event.actor, event.event_id)
            raise
        await self.send(batch)

    async def _audit(self, error: Rejected, actor: str, event_id: str = "") -> None:
        refusal = Refusal(
            event_id=event_id, type=error.event, code=error.code, detail=error.detail, actor=actor, at=self._clock.now()
        )
        await self.store.record_refusal(self.run_id, refusal)


def _as_rejection(error: Conflict, state: RunState, event: str) -> Rejected:
    coordinates: dict[str, str | int] = {
        "run_id": state.run_id,
        "phase": str(state.phase),
        "version": state.version,
        "event": event,
    }
    return Rejected(error.code, f"epoch {error.expected[1]} was fenced off by epoch {error.actual[1]}", coordinates)
