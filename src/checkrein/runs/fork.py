"""Forks: a new run whose log begins as that of another one, up to a chosen event, and then goes its own way.

What the old run did is history in the new one: its events are copied, its calls have their outcomes, and nothing of it is done again. The old run is only read. The
invariant: the copied events pass every guard of the lifecycle, so a fork replays like any other run; it is stored whole or not at all, with its folder in place before.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from checkrein.codec.wire import decode_event, decode_events, row_of
from checkrein.errors import CheckreinError, StoreError
from checkrein.kernel.events import (
    Artifact,
    CodeAccepted,
    Event,
    EventData,
    LeaseTaken,
    Received,
    SteerQueued,
    Unblocked,
)
from checkrein.kernel.run import fold_run, transition_batch
from checkrein.kernel.session import fold_session
from checkrein.kernel.state import Effect, RunState
from checkrein.ports.clock import Clock, IdSource
from checkrein.ports.store import RunStore
from checkrein.runs.cuts import Cut, end_of, legal_cuts, objection_to
from checkrein.runs.journal import head_of
from checkrein.runs.task import Task
from checkrein.runs.workspace import discard_folder, folders_of, seed_folder
from checkrein.values import clean_text

__all__ = ["ForkRefused", "ForkResult", "Forks"]


class ForkRefused(CheckreinError):
    """A run cannot be forked as it was asked for; nothing was stored.

    Attributes:
        run_id: the run that was to be forked.
        reason: why not, in words.
        before: the nearest legal offset before the one that was asked for; None when there is none, or the offset is not what is wrong.
        after: the nearest one after it, likewise.
    """

    def __init__(self, run_id: str, reason: str, *, before: int | None = None, after: int | None = None) -> None:
        near = " or ".join(str(offset) for offset in (before, after) if offset is not None)
        hint = f"; the nearest place where it can be forked is at {near}" if near else ""
        super().__init__(f"run {run_id} cannot be forked: {reason}{hint}")
        self.run_id = run_id
        self.reason = reason
        self.before = before
        self.after = after


class ForkResult(msgspec.Struct, frozen=True):
    """A fork that was made.

    Attributes:
        state: the new run, as it was stored.
        fork_of: the run that it was made of.
        fork_at: how many events it has from there.
        made_after: what tools were made to do by the old run after the cut; the fork may do it again, under idempotency keys of its own.
        copied: the artifacts that the new run's folder has copies of.
        missing: artifacts of the history whose recorded bytes are not there any more; their checks will say so.
        is_known: the run was there already, under the same request id.
    """

    state: RunState
    fork_of: str
    fork_at: int
    made_after: tuple[Effect, ...] = ()
    copied: tuple[Artifact, ...] = ()
    missing: tuple[Artifact, ...] = ()
    is_known: bool = False

    @property
    def run_id(self) -> str:
        """The new run's id."""
        return self.state.run_id

    @property
    def calls_kept(self) -> int:
        """How many calls of the history are not made again."""
        return len(self.state.settled_calls)


class Forks:
    """Makes forks of the runs in one store.

    Args:
        store: where the runs are.
        clock: the time.
        ids: makes ids.
        actor: who asks for it, such as `user:alice`; it stands in the log.
    """

    def __init__(self, store: RunStore, *, clock: Clock, ids: IdSource, actor: str) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._actor = actor

    async def cuts(self, run_id: str) -> tuple[Cut, ...]:
        """Return where a run can be forked.

        Raises:
            RunNotFound: no such run.
            DamagedLog: its log is not what it must be.
            StoreError: the store cannot be read.
        """
        return legal_cuts(await self._events(run_id))

    async def fork(self, run_id: str, task: Task, *, at: int, message: str = "", request_id: str = "") -> ForkResult:
        """Store a new run that has the first events of another one.

        The new run has the goal and the limits of the old one, and what these events used of them; checks, tools, inputs and workspace are those of `task`. Other code than
        that at the cut is accepted by this.

        Args:
            run_id: the run to fork; it is not changed.
            task: the task that the new run goes on with, of the same name.
            at: how many events to keep; the log's length, whatever its end, means all that came before the end.
            message: what the next planning is told; `""` for nothing.
            request_id: the same id gives the same fork.

        Raises:
            ForkRefused: the log cannot be cut there, the task has another name, or `request_id` names something else.
            RunNotFound: no such run.
            DamagedLog: its log is not what it must be.
            PathEscape: the log names a folder that is none of the run's.
            StoreError: the store could not be read or written.
            OSError: the new run's folder could not be made.
        """
        events = await self._events(run_id)
        whole = fold_run(events)
        cut = _cut_of(events, at)
        if task.name != whole.task.name:
            raise ForkRefused(run_id, f"it is of task {whole.task.name!r}, and {task.source} is task {task.name!r}")
        known = await self._store.find_request(request_id) if request_id else None
        if known is not None:
            return await self._known(known, whole, cut, request_id)
        log = self._log(events[:cut], task, message=message, request_id=request_id)
        state = transition_batch(None, log)
        fold_session(log)
        copied = await _seeded(whole, state, task)
        created = await self._create(log, state, task, request_id)
        if created != state.run_id:
            return await self._known(created, whole, cut, request_id)
        missing = tuple(item for item in state.artifacts if item not in copied)
        return ForkResult(state, run_id, cut, _made_after(whole, state), copied, missing)

    async def _events(self, run_id: str) -> list[Event]:
        return decode_events(await self._store.read(run_id), run_id=run_id)

    def _log(self, kept: Sequence[Event], task: Task, *, message: str, request_id: str) -> tuple[Event, ...]:
        """Return the new run's first events: the history, and what is different from there on."""
        old = fold_run(kept)
        at, run_id = float(self._clock.now()), self._ids.new_id()
        history = [_copied(event, run_id) for event in kept]
        first = history[0]
        if isinstance(first.data, Received):
            received = _received(first.data, task, request_id=request_id, fork_of=old.run_id, fork_at=len(kept))
            history[0] = replace(first, at=at, actor=self._actor, data=received)
        added = [*_accepting(old, task)]
        if message:
            added.append(SteerQueued(note=self._ids.new_id(), text=clean_text(message)))
        follows = [
            Event(
                run_id=run_id, event_id=self._ids.new_id(), expected_version=version, at=at, actor=self._actor, data=data
            )
            for version, data in enumerate(added, start=len(history))
        ]  # fmt: skip
        return (*history, *follows)

    async def _create(self, log: Sequence[Event], state: RunState, task: Task, request_id: str) -> str:
        """Store the run, and return its id, or that of the one that was quicker under the same request id."""
        rows = [row_of(event) for event in log]
        try:
            created = await self._store.create(
                state.run_id, request_id, rows, head_of(state, log[-1].at), epoch=state.epoch
            )
        except StoreError:
            await asyncio.to_thread(discard_folder, task.workspace, state.run_id)
            raise
        if created != state.run_id:
            await asyncio.to_thread(discard_folder, task.workspace, state.run_id)
        return created

    async def _known(self, found: str, whole: RunState, cut: int, request_id: str) -> ForkResult:
        """Return the fork that was made under a request id before.

        Raises:
            ForkRefused: it is a run of another kind, or a fork of another place.
        """
        bodies = await self._store.read(found)
        first = decode_event(bodies[0], run_id=found, offset=0).data
        if not isinstance(first, Received) or (first.fork_of, first.fork_at) != (whole.run_id, cut):
            raise ForkRefused(whole.run_id, f"request id {request_id!r} belongs to run {found}, which is no such fork")
        state = fold_run(decode_events(bodies, run_id=found))
        kept = fold_run(decode_events(bodies[:cut], run_id=found))
        return ForkResult(state, whole.run_id, cut, _made_after(whole, kept), is_known=True)


def _cut_of(events: Sequence[Event], at: int) -> int:
    """Return how many events are kept when `at` are asked for.

    Raises:
        ForkRefused: the log cannot be cut there.
    """
    cut = min(at, end_of(events)) if at <= len(events) else at
    objection = objection_to(events, cut)
    if not objection:
        return cut
    legal = [item.at for item in legal_cuts(events)]
    before = max((offset for offset in legal if offset < at), default=None)
    after = min((offset for offset in legal if offset > at), default=None)
    raise ForkRefused(events[0].run_id, f"at {at}, {objection}", before=before, after=after)


def _copied(event: Event, run_id: str) -> Event:
    """Return an event as the new run has it; all its owners worked in the one folder that the new run has."""
    data = event.data
    if isinstance(data, LeaseTaken) and data.folder:
        data = replace(data, folder=run_id)
    return replace(event, run_id=run_id, data=data)


def _received(old: Received, task: Task, *, request_id: str, fork_of: str, fork_at: int) -> Received:
    """Return what creates the fork: version and code are those of the history until other ones are accepted."""
    now = task.record()
    record = replace(now, version=old.task.version, goal=old.task.goal, code_hash=old.task.code_hash)
    return Received(task=record, budget=old.budget, request_id=request_id, fork_of=fork_of, fork_at=fork_at)


def _accepting(state: RunState, task: Task) -> Sequence[EventData]:
    """Return what lets the run go on with the task's code; nothing when it is the code that it has."""
    waiting = [Unblocked(cause_id=cause.id) for cause in state.causes if cause.kind == "code_changed"]
    is_same = (state.code_hash, state.task.version) == (task.code_hash, task.version)
    return [] if is_same and not waiting else [CodeAccepted(code_hash=task.code_hash, version=task.version), *waiting]


async def _seeded(whole: RunState, state: RunState, task: Task) -> tuple[Artifact, ...]:
    """Make the new run's folder, if it has artifacts, and return those that it has copies of."""
    if not state.artifacts:
        return ()
    recorded = whole.task.data.get("workspace")
    workspace = Path(recorded) if isinstance(recorded, str) and recorded else task.workspace
    sources = folders_of(workspace, whole)
    return await asyncio.to_thread(seed_folder, task.workspace, state.run_id, state.artifacts, sources)


def _made_after(whole: RunState, kept: RunState) -> tuple[Effect, ...]:
    """Return the effects of a run that are none of those which a fork of it has."""
    known = {effect.call_id for effect in kept.effects}
    return tuple(effect for effect in whole.effects if effect.call_id not in known)
