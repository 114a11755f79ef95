"""What a worker must do next, decided from the log alone.

`next_action` is pure: it looks at the lifecycle's state and the plan's view, and returns one action of a closed union. It assumes that no body of ours is running,
so a granted call without outcome belongs to a worker that is gone: the start after a crash is the same code as the first start.
"""

from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from checkrein.kernel.budget import Limit
from checkrein.kernel.events import FailureCode, StepSpec
from checkrein.kernel.state import Call, Phase, RunState
from checkrein.projections.plan import PlanView
from checkrein.runs.task import OnFailure

__all__ = [
    "Action",
    "AskPlanner",
    "DoStep",
    "EndRun",
    "EndStep",
    "FinishWork",
    "PauseForBudget",
    "Poll",
    "Resolve",
    "Rest",
    "StartWork",
    "Verify",
    "next_action",
    "told_plan",
]

PlanReason: TypeAlias = Literal["first", "replan", "repair", "continuation"]


class Rest(msgspec.Struct, frozen=True):
    """Nothing can be done without a new fact: the run ended, or waits for a person."""


class Resolve(msgspec.Struct, frozen=True):
    """Find out what became of a call, by its tool's declaration.

    Attributes:
        call: the call without outcome.
        how: `rerun` it under the next attempt, ask its `probe`, or `block` until a person says.
    """

    call: Call
    how: Literal["rerun", "probe", "block"]


class Poll(msgspec.Struct, frozen=True):
    """Ask what became of an accepted job."""

    call: Call


class AskPlanner(msgspec.Struct, frozen=True):
    """Plan.

    Attributes:
        turn: number of the turn.
        attempt: 1, or more when the turn was begun before.
        reason: why.
        notes: ids of the messages this planning accepts.
        previous: what became of the previous attempt.
    """

    turn: int
    attempt: int
    reason: PlanReason
    notes: tuple[str, ...] = ()
    previous: str = ""


class StartWork(msgspec.Struct, frozen=True):
    """Say that work may be granted."""


class DoStep(msgspec.Struct, frozen=True):
    """Start a step, or go on with one that was started, up to its call's grant and outcome."""

    step: StepSpec
    is_started: bool


class EndStep(msgspec.Struct, frozen=True):
    """Record how the current step ended."""

    step: StepSpec


class FinishWork(msgspec.Struct, frozen=True):
    """Hand the artifacts over to the checks."""


class Verify(msgspec.Struct, frozen=True):
    """Measure the artifacts."""


class PauseForBudget(msgspec.Struct, frozen=True):
    """Give control back, because a limit is reached."""

    limit: Limit
    state: str


class EndRun(msgspec.Struct, frozen=True):
    """End without success."""

    code: FailureCode
    message: str


Action: TypeAlias = (
    Rest | Resolve | Poll | AskPlanner | StartWork | DoStep | EndStep | FinishWork | Verify | PauseForBudget | EndRun
)


def told_plan(plan: PlanView, on_failure: OnFailure) -> PlanView:
    """Return the plan's view without a failure that needs no answer: a failed step when the task's policy is to skip it."""
    is_skipped = on_failure == "skip" and plan.failure is not None and plan.failure.kind == "step"
    return replace(plan, failure=None) if is_skipped else plan


def next_action(state: RunState, plan: PlanView, on_failure: OnFailure) -> Action:
    """Return what is to be done at this version."""
    plan = told_plan(plan, on_failure)
    if state.phase.is_terminal:
        return Rest()
    for call in state.open_calls:
        action = _of_open_call(state, call)
        if not isinstance(action, Rest):
            return action
    if state.phase is Phase.BLOCKED or state.open_calls:
        return Rest()
    if state.phase is Phase.VERIFYING:
        return Verify()
    if state.phase is Phase.PLANNED:
        return StartWork()
    if state.open_turn is not None or state.phase is Phase.RECEIVED:
        return _planning(state, plan, _reason(state, plan))
    return _of_running(state, plan, on_failure)


def _of_open_call(state: RunState, call: Call) -> Action:
    is_blocked = state.phase is Phase.BLOCKED
    if call.status == "accepted":
        return Rest() if call.is_pull or state.asks_person(call) else Poll(call)
    if (
        call.tool.has_probe
        and not call.probed
        and not (call.tool.idempotent and state.cancel is None and not is_blocked)
    ):
        return Resolve(call, "probe")
    if is_blocked:
        return Rest()
    if call.tool.idempotent and state.cancel is None:
        reached = state.budget.first_reached("tool_calls", "wall_seconds")
        return Resolve(call, "rerun") if reached is None else PauseForBudget(reached, "AWAITING_TOOL")
    return Resolve(call, "block")


def _of_running(state: RunState, plan: PlanView, on_failure: OnFailure) -> Action:
    current = plan.current
    if current is not None:
        waits = current.tool_name is not None and plan.answer is None and not _is_settled(state, plan.call_id)
        return DoStep(current, is_started=True) if waits else EndStep(current)
    failure = plan.failure
    if failure is not None and failure.kind == "step" and on_failure == "abort":
        return EndRun("step_failed", failure.message)
    if failure is not None:
        return _planning(state, plan, "repair" if failure.kind == "check" else "replan")
    if plan.queued_of("steer"):
        return _planning(state, plan, "replan")
    step = plan.next_step
    return _of_finished_plan(state, plan) if step is None else DoStep(step, is_started=False)


def _of_finished_plan(state: RunState, plan: PlanView) -> Action:
    if not plan.is_final:
        return _planning(state, plan, "continuation")
    if plan.queued_of("follow_up"):
        return _planning(state, plan, "replan", accepts_follow_up=True)
    if not plan.has_done_step:
        return EndRun("no_plan", "the plan ended and no step of it was done")
    return FinishWork()


def _is_settled(state: RunState, call_id: str) -> bool:
    return bool(call_id) and state.open_call(call_id) is None


def _reason(state: RunState, plan: PlanView) -> PlanReason:
    if state.phase is Phase.RECEIVED:
        return "first"
    if plan.failure is not None:
        return "repair" if plan.failure.kind == "check" else "replan"
    return "continuation" if not plan.is_final and plan.next_step is None else "replan"


def _planning(
    state: RunState, plan: PlanView, reason: PlanReason, *, accepts_follow_up: bool = False
) -> AskPlanner | PauseForBudget:
    limits: tuple[Limit, ...] = ("turns", "wall_seconds", "tokens", "cost")
    reached = state.budget.first_reached(*limits, *(("replans",) if reason == "replan" else ()))
    if reached is not None:
        return PauseForBudget(reached, "PLANNING")
    accepts_follow_up = accepts_follow_up or reason == "repair"
    notes = tuple(note.id for note in plan.queued if note.kind == "steer" or accepts_follow_up)
    if state.open_turn is not None:
        return AskPlanner(state.open_turn.turn, state.open_turn.attempt + 1, reason, notes, previous="in_doubt")
    return AskPlanner(state.turns_started + 1, 1, reason, notes)
