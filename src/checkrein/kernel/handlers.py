"""What each accepted event makes of a run's state; the handlers of the lifecycle's table.

A handler chooses among the successors that the table allows and returns a new state; `run.py` advances version and clock and charges what the table of charges
says. A fold does that once for many events, so no handler reads the version (an event knows its offset) or those counters. No handler refuses anything that
the guards let through; it only objects to a log that they never saw.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from checkrein.errors import IllegalTransition
from checkrein.kernel.events import (
    SESSION_EVENT_TYPES,
    Artifact,
    Blocked,
    BudgetExtended,
    BudgetReserved,
    BudgetSettled,
    CancelRequested,
    CheckFailed,
    CheckPassed,
    CodeAccepted,
    Event,
    Failed,
    LeaseTaken,
    PlanAccepted,
    ToolAccepted,
    ToolDone,
    ToolFailed,
    ToolGranted,
    ToolInDoubt,
    ToolReconciled,
    TranscriptCompacted,
    TurnFinished,
    TurnGranted,
    Unblocked,
    WorkDone,
    narrowed,
    placed,
)
from checkrein.kernel.state import Call, OpenTurn, Outcome, Phase, Reservation, RunState
from checkrein.values import as_object

__all__ = ["HANDLERS", "stays"]

_Handler = Callable[[RunState, Event], RunState]


def stays(state: RunState, _event: Event) -> RunState:
    """Change nothing: what an event says that only advances version and clock."""
    return state


def _ended(state: RunState, outcome: Outcome, phase: Phase = Phase.FAILED) -> RunState:
    after = replace(state, phase=phase, outcome=outcome, causes=(), blocked_from=None, open_turn=None)
    if not after.reservations:
        return after
    # Nobody settles after the end, so a child that may still run costs its whole share.
    return replace(after, budget=after.budget.settling_all(), reservations=())


def _lease_taken(state: RunState, data: LeaseTaken) -> RunState:
    if not data.folder or data.folder == state.folder:
        return replace(state, epoch=data.lease)
    return replace(state, epoch=data.lease, folder=data.folder, folders=(*state.folders, data.folder))


def _budget_extended(state: RunState, data: BudgetExtended) -> RunState:
    return replace(state, budget=state.budget.extended(data.extra))


def _code_accepted(state: RunState, data: CodeAccepted) -> RunState:
    return replace(
        state, code_hash=data.code_hash, task=replace(state.task, version=data.version or state.task.version)
    )


def _budget_reserved(state: RunState, data: BudgetReserved) -> RunState:
    share = Reservation(data.child, data.amounts, data.call_id, data.task)
    reservations = (*state.reservations, share)
    return replace(state, budget=state.budget.reserving(data.amounts), reservations=reservations)


def _share_given_back(state: RunState, data: BudgetSettled) -> RunState:
    share = state.reservation(data.child)
    if share is None:
        raise IllegalTransition(
            "run", state.phase, f"{data.type} of {data.child!r}, which has no share,", state.run_id, ()
        )
    left = tuple(item for item in state.reservations if item.child != data.child)
    return replace(state, budget=state.budget.settling(share.amounts, data.used), reservations=left)


_settled: Final = narrowed(BudgetSettled, _share_given_back)


def _budget_settled(state: RunState, event: Event) -> RunState:
    """Give a share back, with the run's own time as it is at the event: what is added to an older time would hide the run's own from then on."""
    return _settled(replace(state, budget=state.budget.with_elapsed(event.elapsed)), event)


def _plan_accepted(state: RunState, data: PlanAccepted) -> RunState:
    if state.phase is Phase.RECEIVED:
        return replace(state, phase=Phase.PLANNED)
    return replace(state, budget=state.budget.charged("replans")) if data.reason == "replan" else state


def _work_started(state: RunState, _event: Event) -> RunState:
    return replace(state, phase=Phase.RUNNING)


def _turn_granted(state: RunState, data: TurnGranted) -> RunState:
    return replace(state, open_turn=OpenTurn(data.turn, data.attempt), turns_started=data.turn)


def _turn_finished(state: RunState, data: TurnFinished) -> RunState:
    return replace(state, budget=state.budget.with_usage(data.usage), open_turn=None)


def _transcript_compacted(state: RunState, data: TranscriptCompacted) -> RunState:
    return replace(state, budget=state.budget.with_usage(data.usage))


def _with_call(state: RunState, call: Call) -> RunState:
    return replace(state, open_calls=tuple(call if item.call_id == call.call_id else item for item in state.open_calls))


def _tool_granted(state: RunState, data: ToolGranted, offset: int) -> RunState:
    known = state.open_call(data.call_id)
    if known is not None:
        return _with_call(
            state, replace(known, attempt=data.attempt, status="granted", granted_at=offset, probed=False)
        )
    call = Call(data.call_id, data.tool, as_object(data.arguments), data.attempt, "granted", offset)
    return replace(state, open_calls=(*state.open_calls, call), last_call_id=data.call_id)


def _open(state: RunState, call_id: str, kind: str) -> Call:
    """Return the open call that an outcome is about; a log in which it is not open was never accepted."""
    call = state.open_call(call_id)
    if call is None:
        raise IllegalTransition("run", state.phase, f"{kind} of {call_id!r}, which is not open,", state.run_id, ())
    return call


def _tool_accepted(state: RunState, data: ToolAccepted) -> RunState:
    return _with_call(
        state,
        replace(
            _open(state, data.call_id, data.type),
            status="accepted",
            handle=data.handle,
            interval_seconds=data.interval_seconds,
        ),
    )


def _tool_in_doubt(state: RunState, data: ToolInDoubt) -> RunState:
    return _with_call(state, replace(_open(state, data.call_id, data.type), status="in_doubt", probed=data.probed))


def _closed(state: RunState, call: Call) -> RunState:
    """Close a call with the status given in it; the last one to close ends a run whose cancellation waited for it."""
    left = (
        () if len(state.open_calls) == 1 else tuple(item for item in state.open_calls if item.call_id != call.call_id)
    )
    after = replace(state, open_calls=left, settled_calls=state.settled_calls.appended(call))
    return after if left or state.cancel is None else _ended(after, Outcome("cancelled", state.cancel))


def _completed(state: RunState, offset: int) -> RunState:
    """Begin to verify after an outcome that says that nothing remains to do, unless a call is open, a child runs or a decision is missing."""
    is_all = state.phase is Phase.RUNNING and not state.open_calls and not state.reservations
    return _verifying(state, offset) if is_all else state


def _adopting(state: RunState, artifacts: tuple[Artifact, ...]) -> RunState:
    """Record the digests that an outcome named, unless the right to add any was withdrawn by a cancel."""
    if not artifacts or state.cancel is not None:
        return state
    newest = {artifact.path: artifact for artifact in (*state.artifacts, *artifacts)}
    return replace(state, artifacts=tuple(newest.values()))


def _tool_done(state: RunState, data: ToolDone, offset: int) -> RunState:
    call = replace(_open(state, data.call_id, data.type), status="done")
    after = _closed(_adopting(state, data.artifacts), call)
    return _completed(after, offset) if data.completes else after


def _tool_failed(state: RunState, data: ToolFailed) -> RunState:
    return _closed(state, replace(_open(state, data.call_id, data.type), status="failed"))


def _tool_reconciled(state: RunState, data: ToolReconciled, offset: int) -> RunState:
    call = replace(_open(state, data.call_id, data.type), status=data.outcome)
    after = _closed(_adopting(state, data.artifacts) if data.outcome == "done" else state, call)
    return _completed(after, offset) if data.completes else after


def _verifying(state: RunState, offset: int) -> RunState:
    return replace(state, phase=Phase.VERIFYING, verifying_since=offset + 1, evidence=(), findings=())


def _work_done(state: RunState, data: WorkDone, offset: int) -> RunState:
    return _verifying(_adopting(state, data.artifacts), offset)


def _check_passed(state: RunState, data: CheckPassed) -> RunState:
    proved = replace(state, evidence=data.evidence)
    return _ended(proved, Outcome("goal_met", f"all {len(state.task.checks)} checks passed"), Phase.SUCCEEDED)


def _check_failed(state: RunState, data: CheckFailed) -> RunState:
    found = replace(state, evidence=data.evidence, findings=data.findings)
    if state.budget.is_reached("repairs"):
        return _ended(
            found, Outcome("check_failed", "; ".join(f"{item.check}: {item.message}" for item in data.findings))
        )
    return replace(found, phase=Phase.RUNNING, budget=state.budget.charged("repairs"))


def _blocked(state: RunState, data: Blocked) -> RunState:
    origin = state.blocked_from if state.phase is Phase.BLOCKED else state.phase
    return replace(state, phase=Phase.BLOCKED, blocked_from=origin, causes=(*state.causes, data.cause))


def _unblocked(state: RunState, data: Unblocked, offset: int) -> RunState:
    left = tuple(cause for cause in state.causes if cause.id != data.cause_id)
    if left or state.blocked_from is None:
        return replace(state, causes=left)
    back = replace(state, phase=state.blocked_from, causes=(), blocked_from=None)
    return _verifying(back, offset) if back.phase is Phase.VERIFYING else back


def _cancel_requested(state: RunState, data: CancelRequested) -> RunState:
    asked = state if state.cancel is not None else replace(state, cancel=data.reason)
    return asked if state.open_calls else _ended(asked, Outcome("cancelled", data.reason))


def _failed(state: RunState, data: Failed) -> RunState:
    return _ended(state, Outcome(data.code, data.message, state.causes))


HANDLERS: Final[Mapping[str, _Handler]] = {
    "lease_taken": narrowed(LeaseTaken, _lease_taken),
    "budget_extended": narrowed(BudgetExtended, _budget_extended),
    "steer_queued": stays,
    "follow_up_queued": stays,
    "code_accepted": narrowed(CodeAccepted, _code_accepted),
    "budget_reserved": narrowed(BudgetReserved, _budget_reserved),
    "budget_settled": _budget_settled,
    "plan_accepted": narrowed(PlanAccepted, _plan_accepted),
    "work_started": _work_started,
    "turn_granted": narrowed(TurnGranted, _turn_granted),
    "turn_finished": narrowed(TurnFinished, _turn_finished),
    "transcript_compacted": narrowed(TranscriptCompacted, _transcript_compacted),
    "tool_granted": placed(ToolGranted, _tool_granted),
    "tool_accepted": narrowed(ToolAccepted, _tool_accepted),
    "tool_done": placed(ToolDone, _tool_done),
    "tool_failed": narrowed(ToolFailed, _tool_failed),
    "tool_in_doubt": narrowed(ToolInDoubt, _tool_in_doubt),
    "tool_reconciled": placed(ToolReconciled, _tool_reconciled),
    "work_done": placed(WorkDone, _work_done),
    "check_passed": narrowed(CheckPassed, _check_passed),
    "check_failed": narrowed(CheckFailed, _check_failed),
    "blocked": narrowed(Blocked, _blocked),
    "unblocked": placed(Unblocked, _unblocked),
    "cancel_requested": narrowed(CancelRequested, _cancel_requested),
    "failed": narrowed(Failed, _failed),
    **dict.fromkeys(SESSION_EVENT_TYPES, stays),
}
"""Every event type of the table with its handler."""
