"""What the driver of a session must do next, decided from its state and its budget alone.

`next_effect` is pure and total: it returns one effect of a closed union. Limits are looked at where something more is wanted: turns, tokens, cost and replans before a
planning, steps before a step, tool calls before a grant; the wall clock at every one of them, and before the goal counts as met. A limit that is reached yields:
the effect is then a pause, whose state is the one the session is in.
"""

from collections.abc import Collection
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from checkrein.kernel.budget import BudgetState, Limit
from checkrein.kernel.facts import PlanReason, StepSpec
from checkrein.kernel.session_events import PlanDraft
from checkrein.kernel.session_state import LastFailure, SessionPhase, SessionState, StepWork

__all__ = [
    "AskPlanner",
    "AwaitCalls",
    "CompleteSession",
    "Effect",
    "EndStep",
    "GiveBack",
    "MeetGoal",
    "OnFailure",
    "PauseForBudget",
    "PrepareCalls",
    "ReviewDraft",
    "ReviewStep",
    "StartStep",
    "budget_reason",
    "end_of_empty_plan",
    "failure_to_answer",
    "next_effect",
    "regranted",
]

OnFailure: TypeAlias = Literal["replan", "skip", "abort"]
"""What follows a failed step."""
EndCode: TypeAlias = Literal["no_plan", "gave_up", "step_failed", "check_failed"]


class GiveBack(msgspec.Struct, frozen=True):
    """Nothing can be done: the session has not begun, is paused, or is over."""


class AskPlanner(msgspec.Struct, frozen=True):
    """Plan.

    Attributes:
        turn: number of the turn.
        attempt: 1, or more when the turn was begun before.
        reason: why.
        notes: ids of the messages this planning accepts.
        previous: what became of the previous attempt; `""` on the first.
        is_held: the turn was begun and a pause came before the planner was asked.
    """

    turn: int
    attempt: int
    reason: PlanReason
    notes: tuple[str, ...] = ()
    previous: str = ""
    is_held: bool = False


class ReviewDraft(msgspec.Struct, frozen=True):
    """Let hooks look at a draft; then it becomes the plan, is dropped, or ends the session."""

    draft: PlanDraft
    reason: PlanReason


class StartStep(msgspec.Struct, frozen=True):
    """Begin a step."""

    step: StepSpec


class PrepareCalls(msgspec.Struct, frozen=True):
    """Bring the calls of started steps to their grant: hooks, schema, policy; then grant and make them."""

    works: tuple[StepWork, ...]


class AwaitCalls(msgspec.Struct, frozen=True):
    """Wait for the results of open calls."""

    works: tuple[StepWork, ...]


class EndStep(msgspec.Struct, frozen=True):
    """Record how a step ended."""

    work: StepWork


class ReviewStep(msgspec.Struct, frozen=True):
    """Let hooks look at a step that ended."""

    step_id: str | int


class PauseForBudget(msgspec.Struct, frozen=True):
    """Give control back, because a limit is reached."""

    limit: Limit


class MeetGoal(msgspec.Struct, frozen=True):
    """The plan is done: the goal counts as met, in a run once its checks passed."""


class CompleteSession(msgspec.Struct, frozen=True):
    """End without having met the goal."""

    code: EndCode
    message: str


Effect: TypeAlias = (
    GiveBack
    | AskPlanner
    | ReviewDraft
    | StartStep
    | PrepareCalls
    | AwaitCalls
    | EndStep
    | ReviewStep
    | PauseForBudget
    | MeetGoal
    | CompleteSession
)

_NOTHING: Final = GiveBack()
_PAUSES: Final[dict[Limit, str]] = {"steps": "step_budget", "replans": "replan_budget"}


def budget_reason(limit: Limit) -> str:
    """Return the reason of the pause that a used-up limit makes."""
    return _PAUSES.get(limit, f"budget_exceeded:{limit}")


def failure_to_answer(state: SessionState, on_failure: OnFailure) -> LastFailure | None:
    """Return what the next planning must answer; a failed step needs no answer where the policy is to skip it."""
    failure = state.failure
    return None if failure is not None and failure.kind == "step" and on_failure == "skip" else failure


def end_of_empty_plan(state: SessionState, on_failure: OnFailure) -> CompleteSession | None:
    """Return how an empty plan ends the session, or None when the goal counts as met by it."""
    failure = failure_to_answer(state, on_failure)
    if failure is not None:
        code: EndCode = "check_failed" if failure.kind == "check" else "gave_up"
        return CompleteSession(code, f"the planner had no further step after: {failure.message}")
    if not state.has_done_step:
        return CompleteSession("no_plan", "the planner returned no step, and none was ever done")
    return None


def next_effect(
    state: SessionState,
    budget: BudgetState,
    on_failure: OnFailure = "replan",
    *,
    reviewed: Collection[str | int] = (),
) -> Effect:
    """Return what is to be done at this offset.

    Args:
        state: the session.
        budget: limits and use at this moment.
        on_failure: what follows a failed step.
        reviewed: ids of ended steps that hooks have looked at already.
    """
    match state.phase:
        case SessionPhase.PLANNING:
            return _of_planning(state, budget)
        case SessionPhase.EXECUTING | SessionPhase.AWAITING_TOOL:
            return _of_working(state, budget)
        case SessionPhase.REFLECTING:
            return _of_reflecting(state, budget, on_failure, reviewed)
        case _:
            return _NOTHING


def regranted(state: SessionState) -> SessionState:
    """Return the state in which a planning that was held before the planner was asked counts as one whose outcome is unknown."""
    return state if state.request is None else replace(state, request=replace(state.request, is_held=False))


def _of_planning(state: SessionState, budget: BudgetState) -> Effect:
    if state.draft is not None:
        if budget.is_reached("wall_seconds"):
            return PauseForBudget("wall_seconds")
        return ReviewDraft(state.draft, state.draft_reason)
    request = state.request
    if request is None:
        reason: PlanReason = "first"
        if state.is_planned:
            reason = "repair" if state.failure is not None and state.failure.kind == "check" else "replan"
        return _planning(state, budget, reason)
    if request.is_held:
        if budget.is_reached("wall_seconds"):
            return PauseForBudget("wall_seconds")
        return AskPlanner(request.turn, request.attempt, request.reason, is_held=True)
    asked = _planning(state, budget, request.reason)
    if isinstance(asked, AskPlanner):
        return replace(asked, turn=request.turn, attempt=request.attempt + 1, previous="in_doubt")
    return asked


def _planning(
    state: SessionState, budget: BudgetState, reason: PlanReason, *, accepts_follow_up: bool = False
) -> AskPlanner | PauseForBudget:
    limits: tuple[Limit, ...] = ("turns", "wall_seconds", "tokens", "cost")
    reached = budget.first_reached(*limits, *(("replans",) if reason == "replan" else ()))
    if reached is not None:
        return PauseForBudget(reached)
    accepts = accepts_follow_up or reason == "repair"
    notes = tuple(note.id for note in state.queued if accepts or note.kind == "steer")
    return AskPlanner(state.turns + 1, 1, reason, notes)


def _of_working(state: SessionState, budget: BudgetState) -> Effect:
    if budget.is_reached("wall_seconds"):
        return PauseForBudget("wall_seconds")
    if state.ahead or not state.work:
        return _starting(state, budget)
    plain = next((item for item in state.work if item.step.tool_name is None and item.answer is None), None)
    if plain is not None:
        return EndStep(plain)
    open_works = tuple(item for item in state.work if item.is_open)
    if open_works:
        return AwaitCalls(open_works)
    if budget.is_reached("tool_calls"):
        return PauseForBudget("tool_calls")
    return PrepareCalls(tuple(item for item in state.work if item.answer is None))


def _starting(state: SessionState, budget: BudgetState) -> Effect:
    step = state.next_step
    if step is None:
        return _NOTHING
    reached = budget.first_reached("steps", "wall_seconds")
    return StartStep(step) if reached is None else PauseForBudget(reached)


def _of_reflecting(
    state: SessionState, budget: BudgetState, on_failure: OnFailure, reviewed: Collection[str | int]
) -> Effect:
    if state.work:
        return EndStep(state.work[0])
    ended = next((step_id for step_id in state.reviewing if step_id not in reviewed), None)
    if ended is not None:
        return ReviewStep(ended)
    if budget.is_reached("wall_seconds"):
        return PauseForBudget("wall_seconds")
    failure = failure_to_answer(state, on_failure)
    if failure is not None and failure.kind == "step" and on_failure == "abort":
        return CompleteSession("step_failed", failure.message)
    if failure is not None:
        return _planning(state, budget, "repair" if failure.kind == "check" else "replan")
    return _going_on(state, budget)


def _going_on(state: SessionState, budget: BudgetState) -> Effect:
    """Return what follows when nothing went wrong."""
    if state.queued_of("steer"):
        return _planning(state, budget, "replan")
    if state.next_step is not None:
        return _starting(state, budget)
    if not state.is_final:
        return _planning(state, budget, "continuation")
    if state.queued_of("follow_up"):
        return _planning(state, budget, "replan", accepts_follow_up=True)
    if not state.has_done_step:
        return CompleteSession("no_plan", "the plan ended and no step of it was done")
    return MeetGoal()
