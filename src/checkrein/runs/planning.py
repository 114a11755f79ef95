"""One planning phase of a run: the turn is counted and recorded, the planner is asked, its answer becomes the plan, an end, or a pause."""

from checkrein.harness.planners import PlannerFailed, ask_planner
from checkrein.kernel.events import (
    Blocked,
    Cause,
    EventData,
    Failed,
    FailureCode,
    PlanAccepted,
    PlanCommit,
    PlanDraft,
    SessionPause,
    StepSpec,
    TurnFinished,
    TurnGranted,
    TurnStart,
    WorkStarted,
)
from checkrein.kernel.state import Phase
from checkrein.projections.plan import PlanView
from checkrein.runs.decide import AskPlanner, told_plan
from checkrein.runs.held import HeldRun

__all__ = ["plan_turn"]


async def plan_turn(held: HeldRun, action: AskPlanner) -> None:
    """Grant the turn, ask the planner, record what it said.

    Raises:
        Moved: the log moved on before the turn was granted.
        Interrupted: the run was cancelled meanwhile.
        LeaseLost: the lease is not ours any more.
    """
    await held.append(
        TurnStart(turn=action.turn, attempt=action.attempt, notes=action.notes),
        TurnGranted(turn=action.turn, attempt=action.attempt, previous=action.previous),
    )
    plan = told_plan(held.plan, held.task.on_failure)
    try:
        steps, is_final = await held.uninterrupted(ask_planner(held.task.planner, plan), name=f"plan-{held.run_id}")
    except PlannerFailed as error:
        await held.append_outcome(*_failure(action, error.reason))
        return
    # An empty plan is the last one, whatever it says of itself.
    is_final = is_final or not steps
    finished = TurnFinished(turn=action.turn, attempt=action.attempt)
    draft = PlanDraft(turn=action.turn, steps=steps, final=is_final)
    end = _end_of_empty(plan) if not steps else None
    if end is not None:
        code, message = end
        await held.append_outcome(draft, finished, Failed(code=code, message=message))
        return
    await held.append_outcome(draft, finished, *_committed(held, action, steps, is_final=is_final))


def _committed(
    held: HeldRun, action: AskPlanner, steps: tuple[StepSpec, ...], *, is_final: bool
) -> tuple[EventData, ...]:
    is_first = held.state.phase is Phase.RECEIVED
    remaining = {step.id: step for step in held.plan.steps if held.plan.status.get(step.id, "open") == "open"}
    offered = {step.id: step for step in steps}
    commit = PlanCommit(
        turn=action.turn,
        steps=steps,
        final=is_final,
        removed=() if is_first else tuple(name for name in remaining if name not in offered),
        added=() if is_first else tuple(name for name in offered if name not in remaining),
        revised=tuple(name for name, step in offered.items() if name in remaining and remaining[name] != step),
    )
    accepted = PlanAccepted(steps=len(steps), reason=action.reason)
    return (commit, accepted, WorkStarted()) if is_first else (commit, accepted)


def _end_of_empty(plan: PlanView) -> tuple[FailureCode, str] | None:
    """Return how an empty plan ends the run, or None when the goal counts as met by it."""
    failure = plan.failure
    if failure is not None:
        code: FailureCode = "check_failed" if failure.kind == "check" else "gave_up"
        return code, f"the planner had no further step after: {failure.message}"
    if not plan.has_done_step:
        return "no_plan", "the planner returned no step"
    return None


def _failure(action: AskPlanner, reason: str) -> tuple[EventData, ...]:
    cause = Cause(
        id=f"planner:{action.turn}",
        kind="answer",
        detail="planner_failed",
        message=f"the planner failed: {reason}; correct it and let it be asked again with `checkrein unblock RUN planner:{action.turn}`",
    )
    return (
        TurnFinished(turn=action.turn, attempt=action.attempt, error=reason),
        SessionPause(reason="planner_failed", state="PLANNING"),
        Blocked(cause=cause),
    )
