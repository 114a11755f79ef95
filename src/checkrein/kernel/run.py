"""The lifecycle of a run: which event is accepted when, and what it makes of the state.

Theory of operation. `transition(state, event)` is the contract: it is total and pure, and either returns the next state or raises `Rejected(code)`. It asks
the guards in one fixed order and reports the first that objects; then `evolve` takes the edge and the charge from the tables in `table.py`. Every edge is there: where a
cell names several successors the handler chooses by facts in the state (is a call open, is a repair left, is a cancel pending), and the machine
ties that choice to the table. `evolve` alone, without guards, is the fold over a log whose events were all accepted once.

Order of the guards: `wrong_run`, `terminal`, `lease_lost`, `stale_version`, `rights_revoked`, `illegal_in_phase`, `budget_exhausted`, `unknown_call`,
`call_settled`, `calls_in_flight`, `missing_evidence`, `stale_evidence`. A known event id is the store's to recognise; it keeps the index of accepted ids.

Events of the session are part of the same log: here they advance the version, and `step.start` is charged to the budget; they change nothing else.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from checkrein.errors import IllegalTransition, Rejected
from checkrein.kernel import handlers
from checkrein.kernel.budget import BudgetState, Limit
from checkrein.kernel.events import Event, Received
from checkrein.kernel.guards import GUARDS, Guard
from checkrein.kernel.machine import Machine
from checkrein.kernel.state import Phase, RunState
from checkrein.kernel.table import CHARGES, TABLE

__all__ = ["RUN_MACHINE", "TABLE", "create", "evolve", "fold_run", "transition", "transition_batch", "transition_under"]


def _type_of(event: Event) -> str:
    return event.data.type


def _subject_of(state: RunState) -> str:
    return state.run_id


RUN_MACHINE: Final[Machine[RunState, Event]] = Machine(
    name="run",
    initial=(Phase.RECEIVED,),
    ends=frozenset({Phase.SUCCEEDED, Phase.FAILED}),
    edges={phase: {kind: row[phase] for kind, row in TABLE.items() if phase in row} for phase in Phase},
    handlers=handlers.HANDLERS,
    type_of=_type_of,
    subject_of=_subject_of,
)

_QUIET: Final[Mapping[StrEnum, frozenset[str]]] = {
    phase: frozenset(kind for kind, targets in row.items() if targets and handlers.HANDLERS[kind] is handlers.stays)
    for phase, row in RUN_MACHINE.edges.items()
}
"""By phase the events that are legal there and that no handler makes anything of."""


def create(event: Event) -> RunState:
    """Return the state that a `received` event creates.

    Raises:
        Rejected: `illegal_in_phase` for any other event, `stale_version` when it is not the log's first, `missing_evidence` for a task without a
            check, because it could succeed unverified.
    """
    data = event.data
    if not isinstance(data, Received):
        raise _rejected("illegal_in_phase", "a run begins with `received`", None, event)
    if event.expected_version != 0:
        raise _rejected("stale_version", f"a log begins at version 0, not {event.expected_version}", None, event)
    if not data.task.checks:
        raise _rejected("missing_evidence", "a task must declare at least one check", None, event)
    return RunState(
        run_id=event.run_id,
        phase=Phase.RECEIVED,
        version=1,
        task=data.task,
        budget=BudgetState(limits=data.budget),
        code_hash=data.task.code_hash,
        parent=data.parent,
    )


def evolve(state: RunState, event: Event) -> RunState:
    """Return the state after an event that was accepted before; the fold's step, without guards.

    Raises:
        IllegalTransition: the table has no such edge.
    """
    kind = event.data.type
    after = RUN_MACHINE.take(state, kind, event)
    return _advanced(after, 1, event.elapsed, {CHARGES[kind]: 1} if kind in CHARGES else {})


def transition(state: RunState | None, event: Event) -> RunState:
    """Return the state after `event`, or refuse it.

    Args:
        state: the run's state, None before `received`.
        event: what is claimed to have happened.

    Raises:
        Rejected: with the first code, in the fixed order, whose guard objects; the given state is unchanged.
    """
    return transition_under(GUARDS, state, event)


def transition_under(guards: Mapping[str, Guard], state: RunState | None, event: Event) -> RunState:
    """Do what `transition` does, with other guards: how tests show that each guard is needed.

    Raises:
        Rejected: as `transition`.
    """
    if state is None:
        return create(event)
    for code, guard in guards.items():
        objection = guard(state, event)
        if objection is not None:
            raise _rejected(code, objection, state, event)
    try:
        return evolve(state, event)
    except IllegalTransition as error:
        raise _rejected("illegal_in_phase", f"legal here: {', '.join(error.allowed)}", state, event) from error


def transition_batch(state: RunState | None, events: Iterable[Event]) -> RunState:
    """Return the state after all of `events`.

    Raises:
        Rejected: for the first event that is refused; nothing of the batch counts then.
        ValueError: the batch is empty and there is no state.
    """
    for event in events:
        state = transition(state, event)
    if state is None:
        msg = "an empty batch creates no run"
        raise ValueError(msg)
    return state


def fold_run(events: Iterable[Event], state: RunState | None = None) -> RunState:
    """Return the state that a log of accepted events gives, without asking the guards again.

    Args:
        events: the log from its start, or from `state.version` on.
        state: where to go on from.

    Raises:
        IllegalTransition: an event that could not have been accepted there.
        Rejected: the first event is not `received`.
        ValueError: no events and no state.
    """
    iterator = iter(events)
    if state is None:
        first = next(iterator, None)
        if first is None:
            msg = "an empty log is no run"
            raise ValueError(msg)
        state = create(first)
    count, elapsed = 0, 0.0
    used: dict[Limit, int] = {}
    quiet = _QUIET[state.phase]
    for event in iterator:
        kind = event.data.type
        if kind not in quiet:
            if state.reservations:
                # What settles a child's share, an end included, adds the child's time to the run's own, so the clock must be right before.
                state, count = _advanced(state, count, elapsed, {}), 0
            state = RUN_MACHINE.take(state, kind, event)
            quiet = _QUIET[state.phase]
        count += 1
        if kind in CHARGES:
            limit = CHARGES[kind]
            used[limit] = used.get(limit, 0) + 1
        if event.elapsed > elapsed:  # noqa: PLR1730  `max` takes as long as the rest of the loop
            elapsed = event.elapsed
    return _advanced(state, count, elapsed, used)


def _advanced(state: RunState, events: int, elapsed: float, used: Mapping[Limit, int]) -> RunState:
    """Return the state with version, clock and counters after so many events; handlers leave these alone, so a fold does it once for all."""
    if not events:
        return state
    budget = state.budget.with_elapsed(elapsed)
    for name, times in used.items():
        budget = budget.charged(name, times)
    return replace(state, version=state.version + events, budget=budget)


def _rejected(code: str, detail: str, state: RunState | None, event: Event) -> Rejected:
    coordinates: dict[str, str | int] = {
        "run_id": event.run_id if state is None else state.run_id,
        "event": event.data.type,
    }
    if state is not None:
        coordinates |= {"phase": str(state.phase), "version": state.version}
    return Rejected(code, detail, coordinates)
