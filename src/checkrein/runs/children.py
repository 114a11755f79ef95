"""Child runs of a held run: started by its tools within a share of its budget, waited for, settled, and cancelled with it.

Theory of operation. A child's id is made of its parent, the call that starts it and a key, so that a body that is begun anew finds the child it started before. First the
parent's log says what is set aside; only then is the child created, with that as its limits. A crash in between leaves a share without a child: the same call
creates it, or, when that call has its outcome, the child is created as one that was cancelled before it began. So every share belongs to a run that exists or will, a worker
that wakes up late cannot start a child nobody pays for, and a share is given back in one way only: its child has ended, and what that used is charged.
"""

import asyncio
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from checkrein.codec.wire import decode_event, row_of, skim_events
from checkrein.errors import ChildRefused, DataError, PathEscape, Rejected, RunNotFound
from checkrein.kernel.budget import Budget, Limit
from checkrein.kernel.events import (
    BudgetReserved,
    BudgetSettled,
    CancelRequested,
    Event,
    EventData,
    Received,
    SessionComplete,
    SessionStart,
    TaskRecord,
)
from checkrein.kernel.run import fold_run, transition_batch
from checkrein.kernel.state import CHILD, Phase, Reservation, RunState
from checkrein.ports.store import RunRow
from checkrein.ports.tool import CancelSignal, ChildOutcome, ChildRun, ChildRuns, ToolOutput
from checkrein.runs.commands import MAX_DEPTH, Commands
from checkrein.runs.held import HeldRun, Moved
from checkrein.runs.journal import head_of
from checkrein.runs.shares import charge_of, checked_share, limits_of, share_of
from checkrein.runs.task import Task
from checkrein.runs.workspace import ANSWER, digest_of, folder_of
from checkrein.tools.outcomes import Done, FailedCall
from checkrein.tools.results import MAX_MESSAGE_CHARACTERS, cut_text, finalise
from checkrein.values import clean_text

__all__ = ["Children", "child_id"]

LOOK_SECONDS: Final = 1.0
"""How often a child that is waited for is looked at: it may have been unblocked, or lost its worker."""
LONGEST_ANSWER: Final = 64 * 1024
LONGEST_RESULT: Final = 1024 * 1024


def child_id(parent: str, call_id: str, key: str) -> str:
    """Return the run id of a child; the same three names are the same child."""
    return hashlib.sha256(f"{parent}/{call_id}/{key}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Children:
    """The children of one held run.

    Args:
        held: the parent.
        commands: cancels children; its actor stands in their logs.
        lend: asked to advance a child that is waited for, beside what else is advanced: the one that waits does nothing meanwhile.
    """

    def __init__(self, held: HeldRun, *, commands: Commands, lend: Callable[[RunRow], None]) -> None:
        self._held = held
        self._store = held.journal.store
        self._commands = commands
        self._lend = lend
        self._told: set[str] = set()

    def of_call(self, call_id: str) -> ChildRuns:
        """Return what the body of a call starts its children with."""
        return _OfCall(self, call_id)

    async def start(self, call_id: str, name: str, *, goal: str, named: Mapping[Limit, float], key: str) -> ChildRun:
        """Start a child, or find it.

        Raises:
            ChildRefused: nothing was started.
            LeaseLost: the lease is not ours any more.
            StoreError: the store could not be read or written.
        """
        held, child = self._held, child_id(self._held.run_id, call_id, key)
        task = held.task.child(name)
        if task is None:
            known = ", ".join(item.name for item in held.task.children) or "none"
            raise ChildRefused("unknown_task", f"task {held.task.name} has no child {name!r}; it has {known}")
        row = await self._row(child)
        if row is None:
            await self._refuse_too_deep()
            limits = await self._reserve(child, call_id, task, named)
            await self._create(child, task, limits, goal)
            await held.refresh()
            if held.state.cancel is not None:
                # Whoever cancelled the parent may have looked for the child before it was there.
                await self._cancel(child)
        elif row.head.task != name:
            raise ChildRefused("key_in_use", f"key {key!r:.80} names a run of {row.head.task}; use another one")
        return ChildRun(handle=f"{CHILD}{child}", run_id=child, wait=partial(self._result, child))

    async def _refuse_too_deep(self) -> None:
        depth, parent = 1, self._held.state.parent
        while parent:
            depth += 1
            if depth > MAX_DEPTH:
                raise ChildRefused("too_deep", f"child runs are nested {MAX_DEPTH} deep at most")
            parent = await self._parent_of(parent)

    async def _parent_of(self, run_id: str) -> str:
        first = decode_event((await self._store.read(run_id, 0, 1))[0], run_id=run_id, offset=0).data
        return first.parent if isinstance(first, Received) else ""

    async def _reserve(self, child: str, call_id: str, task: Task, named: Mapping[Limit, float]) -> Budget:
        """Set the child's share aside, unless that was done before, and return the child's limits."""
        held = self._held
        while True:
            state = held.state
            known = state.reservation(child)
            if known is not None:
                return limits_of(known.amounts, state.budget.limits, task.budget, named)
            amounts = share_of(held.budget(), task.budget, named)
            try:
                await held.append(BudgetReserved(child=child, amounts=amounts, call_id=call_id, task=task.name))
            except Moved:
                continue
            except Rejected as error:
                # Another body of ours may have appended meanwhile: the same child, or one that took what was left.
                if held.state.version == state.version:
                    raise ChildRefused(error.code, error.detail) from error

    async def _create(self, child: str, task: Task, limits: Budget, goal: str) -> None:
        record = await asyncio.to_thread(task.record)
        if goal.strip():
            record = replace(record, goal=clean_text(goal))
        await self._born(child, record, limits)

    async def _born(self, child: str, record: TaskRecord, limits: Budget, *more: EventData) -> None:
        """Create a child with its first facts, unless it is there."""
        request, at = f"child:{child}", float(self._held.clock.now())
        received = Received(task=record, budget=limits, request_id=request, parent=self._held.run_id)
        facts: tuple[EventData, ...] = (received, SessionStart(goal=record.goal), *more)
        events = [
            Event(
                run_id=child,
                event_id=f"{child}-{number}",
                expected_version=number,
                at=at,
                actor=f"run:{self._held.run_id}",
                data=data,
            )
            for number, data in enumerate(facts)
        ]
        head = head_of(transition_batch(None, events), at)
        await self._store.create(child, request, [row_of(event) for event in events], head)

    async def _bury(self, share: Reservation) -> RunRow:
        """Create a child that was never started as one that was cancelled, so that nobody can start it any more; return what is there then."""
        checks = self._held.state.task.checks
        record = TaskRecord(name=share.task, version=1, goal="never started", code_hash="", checks=checks)
        reason = "its call ended before it was started"
        limits = Budget(turns=0, tool_calls=0, wall_seconds=0, tokens=0, cost=0, steps=0, replans=0, repairs=0)
        await self._born(share.child, record, limits, SessionComplete(reason="cancelled"), CancelRequested(reason))
        return await self._store.get(share.child)

    async def _row(self, child: str) -> RunRow | None:
        try:
            return await self._store.get(child)
        except (RunNotFound, DataError):
            return None

    async def _state(self, child: str) -> RunState:
        return fold_run(skim_events(await self._store.read(child), run_id=child))

    async def _cancel(self, child: str) -> None:
        """Cancel a child, once; one that ended, or is not there yet, is left alone."""
        if child in self._told:
            return
        with suppress(Rejected):
            try:
                await self._commands.cancel(child, f"its parent {self._held.run_id} ends")
            except RunNotFound:
                return
        self._told.add(child)

    async def _result(self, child: str) -> ChildOutcome:
        """Wait in a tool's body; nothing but the body's own end stops it."""
        never = CancelSignal()
        while (row := await self._row(child)) is not None and not row.head.is_terminal:
            await self._wait(row, until=never)
        state = await self._state(child)
        while (facts := self.settlement(state)) != ():
            with suppress(Moved):
                await self._held.append(*facts)
        return await self._outcome(state)

    async def _wait(self, row: RunRow, *, until: CancelSignal | None = None) -> None:
        """Wait until a child ended, and for a moment only.

        Raises:
            Interrupted: the worker stops, or what else `until` says.
        """
        self._lend(row)
        with suppress(TimeoutError):
            work = self._end_of(row)
            name = f"child-{row.run_id}"
            await self._held.uninterrupted(work, name=name, seconds=LOOK_SECONDS, until=until or self._held.leaving)

    async def _end_of(self, row: RunRow) -> None:
        async for _ in self._store.follow(row.run_id, row.version):
            pass

    def settlement(self, child: RunState) -> tuple[EventData, ...]:
        """Return the fact that gives the share of a child that ended back; nothing when that was done."""
        share = self._held.state.reservation(child.run_id)
        if share is None:
            return ()
        return (BudgetSettled(child=child.run_id, used=charge_of(child.budget, share.amounts)),)

    async def tend(self, wish: Literal["look", "wait", "end"] = "look") -> bool:
        """Look after the children that no open call looks after; in a cancelled run after all of them.

        Args:
            wish: `look` settles what ended; `wait` also waits for a moment, if any is left; `end` cancels them before that.

        Returns:
            Whether something was recorded or waited for, so that what to do must be decided anew.

        Raises:
            Moved: the log moved on.
            Interrupted: the worker stops.
            LeaseLost: the lease is not ours any more.
            StoreError: the store could not be read or written.
        """
        state, alive, has_settled = self._held.state, list[RunRow](), False
        if state.cancel is not None:
            await self._cancel_all(state.reservations)
        for share in state.loose_children:
            row = await self._row(share.child) or await self._bury(share)
            if row.head.is_terminal:
                await self._held.append(*self.settlement(await self._state(share.child)))
                has_settled = True
            else:
                alive.append(row)
        if has_settled or wish == "look" or not alive:
            return has_settled
        if wish == "end":
            await self._cancel_all(state.loose_children)
        await self._wait_for(alive)
        return True

    async def _cancel_all(self, shares: Iterable[Reservation]) -> None:
        for share in shares:
            await self._cancel(share.child)

    async def _wait_for(self, rows: list[RunRow]) -> None:
        for row in rows[1:]:
            self._lend(row)
        await self._wait(rows[0])
        await self._held.refresh()

    async def cancel(self) -> None:
        """Cancel every child that has not ended, without waiting for it."""
        await self._cancel_all(self._held.state.reservations)

    async def ended(self, waiting: Collection[str]) -> RunState | None:
        """Return the first of these children that ended; all that did not are advanced if they can be.

        Raises:
            StoreError: the store could not be read.
        """
        for child in waiting:
            row = await self._row(child)
            if row is not None and row.head.is_terminal:
                return await self._state(child)
        for child in {*waiting, *(item.child for item in self._held.state.reservations)}:
            row = await self._row(child)
            if row is not None:
                self._lend(row)
        return None

    async def is_ours(self, child: str) -> bool:
        """Tell whether there is such a run and it is our child.

        Raises:
            StoreError: the store could not be read.
        """
        if self._held.state.reservation(child) is not None:
            return True
        with suppress(RunNotFound, DataError):
            return await self._parent_of(child) == self._held.run_id
        return False

    async def is_blocked(self, child: str) -> bool:
        """Tell whether a child waits for a person.

        Raises:
            StoreError: the store could not be read.
        """
        row = await self._row(child)
        return row is not None and row.head.phase == Phase.BLOCKED

    async def wait(self, child: str) -> None:
        """Wait for a moment, or until a child ended; tell it first when the run was cancelled.

        Raises:
            Interrupted: the worker stops.
            LeaseLost: the lease is not ours any more.
            StoreError: the store could not be read.
        """
        if self._held.state.cancel is not None:
            await self._cancel(child)
        row = await self._row(child)
        if row is not None and not row.head.is_terminal:
            await self._wait(row)
        await self._held.refresh()

    async def _outcome(self, state: RunState) -> ChildOutcome:
        outcome, folder = state.outcome, _folder(state)
        return ChildOutcome(
            run_id=state.run_id,
            task=state.task.name,
            phase=str(state.phase),
            code=outcome.code if outcome is not None else "",
            message=outcome.message if outcome is not None else "",
            folder=str(folder) if folder is not None else "",
            artifacts={item.path: item.sha256 for item in state.artifacts},
            answer=await asyncio.to_thread(_answer, state, folder) if folder is not None else "",
        )

    async def result(self, state: RunState, *, attempt: int) -> Done | FailedCall:
        """Return what a child that ended is as the outcome of the call that waited for it."""
        made = await self._outcome(state)
        if state.phase is not Phase.SUCCEEDED:
            text = f"child run {made.run_id} of {made.task} failed ({made.code}): {made.message}"
            return FailedCall("internal", cut_text(text, MAX_MESSAGE_CHARACTERS), attempts=attempt)
        given = finalise(ToolOutput(msgspec.to_builtins(made)), attempt=attempt, max_bytes=LONGEST_RESULT)
        return given if isinstance(given, Done) else FailedCall("internal", "its result cannot be recorded")


class _OfCall:
    """Starts the children of one call."""

    def __init__(self, children: Children, call_id: str) -> None:
        self._children = children
        self._call_id = call_id

    async def start(
        self, task: str, *, goal: str = "", share: Mapping[str, float] | None = None, key: str = ""
    ) -> ChildRun:
        """Start a child, or find it; see `checkrein.ports.tool.ChildRuns`."""
        return await self._children.start(self._call_id, task, goal=goal, named=checked_share(share), key=key)


def _folder(state: RunState) -> Path | None:
    """Return the folder of a run's artifacts; None when it never had one."""
    workspace = state.task.data.decoded().get("workspace")
    if not state.folder or not isinstance(workspace, str):
        return None
    try:
        return folder_of(Path(workspace), state)
    except PathEscape:
        return None


def _answer(state: RunState, folder: Path) -> str:
    """Return the text that a run reported, if it is still what was recorded."""
    recorded = state.artifact(ANSWER)
    if recorded is None or digest_of(folder, ANSWER) != recorded.sha256:
        return ""
    with suppress(OSError), (folder / ANSWER).open("rb") as file:
        return clean_text(file.read(LONGEST_ANSWER).decode("utf-8", "replace"))
    return ""
