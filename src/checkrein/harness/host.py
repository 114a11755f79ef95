"""What the driver of a session needs of the place that the session lives in: a log to append to, a budget, and somebody who makes the calls.

Two hosts exist: `loop.HarnessLoop`, whose log is in memory, and a durable run, which appends its own events in the same batches. The driver decides what happens next
and fires the hooks; a host only records and executes. Every method that appends may raise what says "decide again": the driver holds no state that the log does not.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from checkrein.harness.asking import PlannerReply
from checkrein.harness.cuts import SessionCut
from checkrein.harness.permission import Decision
from checkrein.kernel.budget import BudgetState
from checkrein.kernel.events import (
    PlanCommit,
    SessionData,
    SessionPause,
    StepEnd,
    StepSpec,
    TranscriptCompacted,
    TurnStart,
)
from checkrein.kernel.session_events import BudgetWarn
from checkrein.kernel.session_next import CompleteSession
from checkrein.kernel.session_state import CallAnswer, SessionState
from checkrein.loop.summary import Summary
from checkrein.messages import Usage
from checkrein.tools.outcomes import FailedCall
from checkrein.values import NULL, JsonData, JsonObject

__all__ = [
    "Announce",
    "PlannerReply",
    "Purpose",
    "ReadyCall",
    "SessionHost",
    "SessionTranscript",
    "ended_step",
    "plain_end",
]

Announce: TypeAlias = Callable[[str], Awaitable[None]]
"""Tells the hooks that a session is about to end, and why."""


Purpose: TypeAlias = Literal["planning", "compaction"]
"""What an attempt of a planning asks for."""


class ReadyCall(msgspec.Struct, frozen=True):
    """A call that hooks, schema and policy let pass; only the grant is missing.

    Attributes:
        step_id: its step.
        call_id: its id.
        name: the tool.
        arguments: valid arguments.
        begun: facts that belong into the batch of the grant, before it.
        ends_step: whether the step's end may stand in the batch of the outcome, because nobody wants to look at it before.
    """

    step_id: str | int
    call_id: str
    name: str
    arguments: JsonObject
    begun: tuple[SessionData, ...] = ()
    ends_step: bool = False


def ended_step(step_id: str | int, answer: CallAnswer) -> StepEnd:
    """Return how a step ends whose call brought this answer, when no hook changes it."""
    if answer.error:
        return StepEnd(step_id=step_id, status="failed", error=answer.error)
    return StepEnd(step_id=step_id, status="done", result=answer.result)


def plain_end(step: StepSpec) -> StepEnd:
    """Return how a step without tool ends: with its answer, if it has one."""
    return StepEnd(step_id=step.id, status="done", result=JsonData(step.answer) if step.answer else NULL)


class SessionTranscript(Protocol):
    """What is done to the transcript of one session when it is too long; asked before a planning and never elsewhere."""

    async def overlong(self, start: TurnStart, *, is_forced: bool) -> SessionCut | None:
        """Return what must be summarised before a planning; None when nothing must, or can.

        Args:
            start: the planning.
            is_forced: the model refused the transcript as too long, whatever we think of it.
        """
        ...

    async def summarise(self, cut: SessionCut, start: TurnStart, *, tried: int) -> Summary:
        """Ask the planner for a summary.

        Args:
            cut: what of.
            start: the attempt that was counted for it.
            tried: how many summaries were of no use.
        """
        ...

    async def compact(self, fact: TranscriptCompacted) -> None:
        """Record that a summary stands for old turns."""
        ...


class SessionHost(Protocol):
    """The place of one session."""

    @property
    def transcript(self) -> SessionTranscript:
        """Return what makes its transcript shorter."""
        ...

    @property
    def counts_held_requests(self) -> bool:
        """Whether a planning that paused before the planner was asked is counted again when it goes on."""
        ...

    @property
    def session(self) -> SessionState:
        """Return the session as its log has it."""
        ...

    def budget(self) -> BudgetState:
        """Return limits and use at this moment."""
        ...

    async def begin_turn(
        self, start: TurnStart, *, previous: str, is_held: bool, purpose: Purpose = "planning"
    ) -> None:
        """Count and record an attempt of a planning, before anything is asked.

        Args:
            start: the turn.
            previous: what became of the attempt before; `""` on the first.
            is_held: the turn was begun before and paused before the planner was asked; a host that can prove that need not count it again.
            purpose: whether the planner is asked for steps, or to make its transcript shorter first.
        """
        ...

    async def ask(self, turn: int) -> PlannerReply:
        """Ask the planner, by `planned`.

        Raises:
            PlannerFailed: it raised, or its answer is no plan.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait before the planner is asked again; where the work can be stopped meanwhile, as `ask` can."""
        ...

    async def answer_turn(self, reply: PlannerReply, *, attempt: int) -> None:
        """Record a planner's answer."""
        ...

    async def fail_turn(self, turn: int, *, attempt: int, pause: SessionPause, usage: Usage) -> None:
        """Record that a planner failed, and what was consumed for nothing, and pause."""
        ...

    async def commit(self, commit: PlanCommit) -> None:
        """Record that a draft is the plan."""
        ...

    async def record(self, *facts: SessionData) -> None:
        """Append facts that were decided on the present state, all or none."""
        ...

    def prepare(self, name: str, arguments: JsonObject, *, malformed: str = "") -> FailedCall | None:
        """Return why a call cannot be made: unknown tool, or arguments that its schema refuses; None when it can.

        Args:
            name: the tool.
            arguments: what it is to be given.
            malformed: the text of arguments that are no JSON object; where tools are checked, that is an error which shows the schema.
        """
        ...

    def permit(self, name: str, arguments: JsonObject) -> tuple[Decision, str]:
        """Ask the policy about a call."""
        ...

    async def make(self, calls: Sequence[ReadyCall]) -> None:
        """Grant calls in their order, as far as the budget allows, make those granted, and record what came of each.

        Returns when no body of theirs runs any more; where a caller brings the results, at once.
        """
        ...

    async def pause(self, pause: SessionPause, warn: BudgetWarn | None = None) -> None:
        """Record a pause."""
        ...

    async def resume(self, answer: object) -> None:
        """Apply an answer to the open pause, as if a caller had given it.

        Raises:
            ResumeError: it is refused.
        """
        ...

    async def meet_goal(self, announce: Announce) -> None:
        """Record that nothing remains to be done; where that is the end, announce it first."""
        ...

    async def complete(self, end: CompleteSession, announce: Announce) -> None:
        """Announce an end without success, and record it."""
        ...
