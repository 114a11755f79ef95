"""The guards of the lifecycle: what is asked before any edge is taken, one function per refusal code, in the order of `GUARDS`.

A guard is pure and returns None, or in words what it objects to. It never changes anything, and none relies on a later one.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from checkrein.kernel.budget import COUNTED, LIMITS, Limit
from checkrein.kernel.events import (
    Blocked,
    BudgetReserved,
    BudgetSettled,
    CheckFailed,
    CheckPassed,
    Event,
    EventData,
    Evidence,
    Failed,
    LeaseTaken,
    PlanAccepted,
    StepStart,
    ToolAccepted,
    ToolDone,
    ToolFailed,
    ToolGranted,
    ToolInDoubt,
    ToolReconciled,
    TurnFinished,
    TurnGranted,
    Unblocked,
    WorkDone,
)
from checkrein.kernel.state import PULL, Phase, RunState, call_order
from checkrein.kernel.table import TABLE, legal_in

__all__ = ["GUARDS", "Guard", "is_users_event"]

Guard: TypeAlias = Callable[[RunState, Event], str | None]

_USERS: Final = frozenset({
    "budget_extended", "steer_queued", "follow_up_queued", "code_accepted", "unblocked", "cancel_requested",
    "session.start", "session.resume", "session.complete", "tool.result", "tool.error",
})  # fmt: skip


def is_users_event(state: RunState, event: Event) -> bool:
    """Tell whether the event may be appended without a lease, from any process.

    Besides the users' own events these are what a person says became of a call, the answer to a call that a caller brings (a pull), and
    closing a BLOCKED run.
    """
    data = event.data
    if isinstance(data, Failed):
        return data.code == "closed" and state.phase is Phase.BLOCKED
    if isinstance(data, (ToolDone, ToolFailed)):
        return any(
            call.call_id == data.call_id and call.handle == PULL for call in (*state.open_calls, *state.settled_calls)
        )
    if isinstance(data, ToolReconciled):
        return data.by == "person"
    return data.type in _USERS


def _wrong_run(state: RunState, event: Event) -> str | None:
    return None if event.run_id == state.run_id else f"the event is for run {event.run_id}"


def _terminal(state: RunState, _event: Event) -> str | None:
    return f"the run ended {state.phase}; nothing may follow" if state.phase.is_terminal else None


def _lease_lost(state: RunState, event: Event) -> str | None:
    if isinstance(event.data, LeaseTaken):
        ours = event.epoch == event.data.lease == state.epoch + 1
        return None if ours else f"a lease must be epoch {state.epoch + 1}, not {event.data.lease}"
    if event.epoch is None:
        return None if is_users_event(state, event) else "only the holder of the lease may say so"
    if state.epoch == 0:
        return "nobody has taken a lease on the run yet"
    return None if event.epoch == state.epoch else f"epoch {event.epoch} was fenced off by epoch {state.epoch}"


def _stale_version(state: RunState, event: Event) -> str | None:
    return (
        None
        if event.expected_version == state.version
        else f"expected version {event.expected_version}; read the run again"
    )


def _rights_revoked(state: RunState, event: Event) -> str | None:
    data = event.data
    if not isinstance(data, (ToolGranted, TurnGranted, BudgetReserved)):
        return None
    if state.cancel is not None:
        return "cancellation was requested; nothing new may start"
    if state.phase is Phase.BLOCKED:
        return f"the run is blocked: {', '.join(cause.id for cause in state.causes)}"
    if isinstance(data, ToolGranted) and data.attempt > 1:
        call = state.open_call(data.call_id)
        if call is not None and not call.tool.idempotent:
            return f"{call.tool.name} is not idempotent; its call is never executed twice"
    return None


def _illegal_in_phase(state: RunState, event: Event) -> str | None:
    data = event.data
    if state.phase not in TABLE.get(data.type, ()):
        return f"legal here: {', '.join(legal_in(state.phase))}"
    if isinstance(data, PlanAccepted) and (data.reason == "first") is not (state.phase is Phase.RECEIVED):
        return f"a plan accepted in {state.phase} cannot have the reason {data.reason!r}"
    if isinstance(data, Unblocked) and state.cause(data.cause_id) is None:
        return f"no open cause {data.cause_id!r}; open: {', '.join(cause.id for cause in state.causes)}"
    if isinstance(data, Blocked) and state.cause(data.cause.id) is not None:
        return f"cause {data.cause.id!r} is open already"
    if isinstance(data, Failed) and data.code == "cancelled":
        return "`cancel_requested` ends a run as cancelled, `failed` never does"
    return None


def _budget_exhausted(state: RunState, event: Event) -> str | None:
    data = event.data
    budget = state.budget.with_elapsed(event.elapsed)
    if isinstance(data, BudgetReserved):
        return (
            None
            if budget.can_reserve(data.amounts)
            else f"the child's share does not fit into what is left for {data.child}"
        )
    if isinstance(data, BudgetSettled):
        return _over_share(state, data)
    wanted: tuple[Limit, ...] = ()
    if isinstance(data, ToolGranted):
        wanted = ("tool_calls", "wall_seconds")
    elif isinstance(data, TurnGranted):
        wanted = ("turns", "wall_seconds", "tokens", "cost")
    elif isinstance(data, StepStart):
        wanted = ("steps",)
    elif isinstance(data, PlanAccepted) and data.reason == "replan":
        wanted = ("replans",)
    reached = budget.first_reached(*wanted)
    return (
        None
        if reached is None
        else f"{reached}: {budget.taken(reached):g} of {budget.limits.limit(reached):g} used; extend it or end the run"
    )


def _over_share(state: RunState, data: BudgetSettled) -> str | None:
    """Object to a child that counted more than was set aside for it; what is measured may be over by its last turn, and what is unlimited is not set aside."""
    share = state.reservation(data.child)
    if share is None:
        return None
    counted = [name for name in LIMITS if name in COUNTED and state.budget.limits.limit(name) is not None]
    over = [name for name in counted if getattr(data.used, name) > getattr(share.amounts, name)]
    return f"more {', '.join(over)} than the share of {data.child}" if over else None


def _named_call(event: Event) -> str | None:
    data = event.data
    return data.call_id if isinstance(data, (ToolAccepted, ToolDone, ToolFailed, ToolInDoubt, ToolReconciled)) else None


def _is_settled(state: RunState, call_id: str) -> bool:
    return any(call.call_id == call_id for call in state.settled_calls)


def _unknown_call(state: RunState, event: Event) -> str | None:
    data = event.data
    call_id = _named_call(event)
    if call_id is not None:
        known = state.open_call(call_id) is not None or _is_settled(state, call_id)
        return None if known else f"no call {call_id!r} was granted"
    if isinstance(data, ToolGranted):
        return _unknown_grant(state, data)
    if isinstance(data, TurnGranted):
        return (
            None
            if data.turn <= state.turns_started + 1 and data.attempt >= 1
            else f"turn {data.turn} is not the next one"
        )
    if isinstance(data, TurnFinished):
        return None if data.turn <= state.turns_started else f"turn {data.turn} was not granted"
    if isinstance(data, BudgetSettled):
        return None if state.reservation(data.child) is not None else f"nothing is reserved for {data.child}"
    if isinstance(data, BudgetReserved) and data.call_id and state.open_call(data.call_id) is None:
        return f"call {data.call_id}, which would start {data.child}, is not open"
    return None


def _unknown_grant(state: RunState, data: ToolGranted) -> str | None:
    order = call_order(data.call_id)
    if order is None:
        return f"{data.call_id!r} is no call id of the form <turn>.<index>"
    if data.attempt < 1:
        return "attempts count from 1"
    if data.attempt > 1 and state.open_call(data.call_id) is None and not _is_settled(state, data.call_id):
        return f"attempt {data.attempt} of call {data.call_id}, which was never granted"
    return None


def _call_settled(state: RunState, event: Event) -> str | None:
    data = event.data
    if isinstance(data, ToolGranted):
        return _settled_grant(state, data)
    if isinstance(data, TurnGranted):
        return _settled_turn(state, data)
    if isinstance(data, TurnFinished):
        current = state.open_turn
        ours = current is not None and (current.turn, current.attempt) == (data.turn, data.attempt)
        return None if ours else f"turn {data.turn} attempt {data.attempt} is not the open one"
    if isinstance(data, BudgetReserved):
        return f"a share is reserved for {data.child} already" if state.reservation(data.child) else None
    call_id = _named_call(event)
    return None if call_id is None else _settled_call(state, data, call_id)


def _settled_call(state: RunState, data: EventData, call_id: str) -> str | None:
    call = state.open_call(call_id)
    if call is None:
        return f"call {call_id} has its outcome"
    if isinstance(data, ToolAccepted) and call.status == "accepted":
        return f"call {call_id} was accepted as {call.handle!r}"
    if isinstance(data, ToolInDoubt):
        moves_on = call.status == "granted" or (call.status == "in_doubt" and data.probed and not call.probed)
        return None if moves_on else f"call {call_id} is {call.status} already"
    return None


def _settled_grant(state: RunState, data: ToolGranted) -> str | None:
    call = state.open_call(data.call_id)
    if data.attempt == 1:
        order = call_order(data.call_id)
        return (
            None
            if order is not None and order > state.last_call
            else f"call {data.call_id} or a later one was granted before"
        )
    if call is None or call.status == "accepted":
        return f"call {data.call_id} needs no further attempt"
    return (
        None if data.attempt == call.attempt + 1 else f"the next attempt of call {data.call_id} is {call.attempt + 1}"
    )


def _settled_turn(state: RunState, data: TurnGranted) -> str | None:
    current = state.open_turn
    if current is None:
        return (
            None
            if (data.turn, data.attempt) == (state.turns_started + 1, 1)
            else f"turn {data.turn} attempt {data.attempt} is over"
        )
    ours = (data.turn, data.attempt) == (current.turn, current.attempt + 1)
    return None if ours else f"turn {current.turn} is open in attempt {current.attempt}"


def _calls_in_flight(state: RunState, event: Event) -> str | None:
    if isinstance(event.data, (WorkDone, Failed)) and state.open_calls:
        return f"open calls: {', '.join(call.call_id for call in state.open_calls)}"
    if isinstance(event.data, WorkDone) and state.reservations:
        return f"child runs: {', '.join(item.child for item in state.reservations)}"
    return None


def _missing_evidence(state: RunState, event: Event) -> str | None:
    data = event.data
    if isinstance(data, CheckFailed) and not data.findings:
        return "a failed check needs a finding"
    if not isinstance(data, CheckPassed):
        return None
    foreign = next((item for item in data.evidence if item.run_id != state.run_id), None)
    if foreign is not None:
        return f"the evidence for {foreign.check} is about run {foreign.run_id}"
    unmet = next((item for item in data.evidence if not item.passed), None)
    if unmet is not None:
        return f"the evidence for {unmet.check} says that it is not met"
    proved = {(item.check, item.subject) for item in data.evidence if item.verifier and item.verifier_version}
    missing = [check.id for check in state.task.checks if (check.id, check.subject) not in proved]
    return f"nothing proves {', '.join(missing)}" if missing else None


def _stale_evidence(state: RunState, event: Event) -> str | None:
    data = event.data
    if not isinstance(data, CheckPassed):
        return None
    reread: dict[str, set[str]] = {}
    for artifact in data.reread:
        reread.setdefault(artifact.path, set()).add(artifact.sha256)
    return next(
        (objection for item in data.evidence if (objection := _staleness(state, item, reread)) is not None), None
    )


def _staleness(state: RunState, item: Evidence, reread: Mapping[str, set[str]]) -> str | None:
    if not state.verifying_since <= item.position <= state.version:
        return f"{item.check} was measured at version {item.position}, verification began at {state.verifying_since}"
    if not item.subject:
        return None
    recorded = state.artifact(item.subject)
    if recorded is None:
        return f"{item.check} is about {item.subject}, which no accepted outcome of this run named"
    if recorded.sha256 != item.sha256 or reread.get(item.subject) != {recorded.sha256}:
        return f"{item.subject} was recorded, measured and read again with different bytes"
    return None


GUARDS: Final[Mapping[str, Guard]] = {
    "wrong_run": _wrong_run,
    "terminal": _terminal,
    "lease_lost": _lease_lost,
    "stale_version": _stale_version,
    "rights_revoked": _rights_revoked,
    "illegal_in_phase": _illegal_in_phase,
    "budget_exhausted": _budget_exhausted,
    "unknown_call": _unknown_call,
    "call_settled": _call_settled,
    "calls_in_flight": _calls_in_flight,
    "missing_evidence": _missing_evidence,
    "stale_evidence": _stale_evidence,
}
"""Every refusal code with its guard, in the order in which they are asked."""
