"""Asking whoever plans: what a planner of either kind is given, and what comes of its answer.

A plain planner is a function of goal, history and last error (`planners.py`). A drafting planner sees the turn as a model does: the transcript, the tools, a signal to
stop. One function asks both, so that they can replace each other while a session runs; whatever does not come to a plan leaves it as `PlannerFailed`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from checkrein.harness.planners import Plan, Planner, PlannerFailed, ask_planner, checked_steps
from checkrein.kernel.events import PlanDraft
from checkrein.kernel.session_state import SessionState
from checkrein.messages import AssistantMessage, Message, Usage, clean_message, validate_transcript
from checkrein.ports.model import ToolSchema
from checkrein.ports.tool import CancelSignal
from checkrein.tools.results import describe_error

__all__ = ["Drafted", "DraftingPlanner", "PlannerReply", "PlanningRequest", "SessionPlanner", "planned"]


class PlanningRequest(msgspec.Struct, frozen=True):
    """What is asked of a planner.

    Attributes:
        turn: the number of the turn.
        state: the session; `failure` is what the planning must answer.
        read_transcript: reads the transcript that the turn answers; costs what its new messages cost.
        read_tools: returns the tools of the session as a model sees them.
        signal: set when the answer is not wanted any more.
    """

    turn: int
    state: SessionState
    read_transcript: Callable[[], Awaitable[Sequence[Message]]]
    read_tools: Callable[[], tuple[ToolSchema, ...]]
    signal: CancelSignal

    @property
    def goal(self) -> str:
        """What is to be reached."""
        return self.state.goal

    @property
    def attempt(self) -> int:
        """How often this turn was begun, this time included."""
        return 1 if self.state.request is None else self.state.request.attempt


class Drafted(msgspec.Struct, frozen=True):
    """What a drafting planner answers.

    Attributes:
        plan: the steps; the step of a call has the model's own id of it.
        message: what a model said, for the transcript; None when none did.
        usage: what the model consumed.
    """

    plan: Plan
    message: AssistantMessage | None = None
    usage: Usage = Usage()


@runtime_checkable
class DraftingPlanner(Protocol):
    """A planner that sees the turn as a model does."""

    async def draft(self, request: PlanningRequest) -> Drafted:
        """Return the next steps.

        Raises:
            PlannerFailed: there are none; says whether asking again may succeed, and what was consumed.
            Exception: any other failure; asking again does not mend it.
        """
        ...


SessionPlanner: TypeAlias = Planner | DraftingPlanner
"""Whoever can plan a session."""


class PlannerReply(msgspec.Struct, frozen=True):
    """What a planner answered, checked.

    Attributes:
        draft: the draft as it is stored.
        messages: what a model said, for the transcript; empty for other planners.
        usage: what the model consumed.
    """

    draft: PlanDraft
    messages: tuple[Message, ...] = ()
    usage: Usage = Usage()


async def planned(planner: SessionPlanner, request: PlanningRequest) -> PlannerReply:
    """Ask a planner of either kind for the next steps.

    Raises:
        PlannerFailed: it raised, or its answer is no plan.
        asyncio.CancelledError: the caller's task was cancelled.
    """
    if not isinstance(planner, DraftingPlanner):
        steps, is_final = await ask_planner(planner, request.state)
        return PlannerReply(PlanDraft(turn=request.turn, steps=steps, final=is_final or not steps))
    try:
        return _checked(await planner.draft(request), request)
    except PlannerFailed:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if request.signal.is_cancelled or (task is not None and task.cancelling()):
            raise
        raise PlannerFailed(f"it was cancelled from within: {error}") from error
    except (Exception, SystemExit) as error:
        raise PlannerFailed(describe_error(error)) from error


def _checked(drafted: object, request: PlanningRequest) -> PlannerReply:
    """Return a drafting planner's answer as it is stored.

    Raises:
        PlannerFailed: it is no plan, or its message could not stand in a transcript.
    """
    if not isinstance(drafted, Drafted):
        msg = f"it returned {type(drafted).__name__} instead of what it drafted"
        raise PlannerFailed(msg)
    messages = () if drafted.message is None else (drafted.message,)
    fault = next((issue for issue in validate_transcript(messages) if issue.code != "missing_result"), None)
    if fault is not None:
        msg = f"what the model said cannot stand in a transcript: {fault.code} {fault.detail}".rstrip()
        raise PlannerFailed(msg, usage=drafted.usage)
    try:
        steps = checked_steps(drafted.plan.steps)
    except PlannerFailed as error:
        raise PlannerFailed(error.reason, usage=drafted.usage) from error
    draft = PlanDraft(turn=request.turn, steps=steps, final=bool(drafted.plan.final) or not steps)
    return PlannerReply(draft, tuple(map(clean_message, messages)), drafted.usage)
