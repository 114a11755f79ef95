"""The place of a session that a durable run drives: every fact of the session is appended in one batch with the run's own events that belong to it.

Which belong together: a turn and its grant, a planner's answer and the turn's end, the first plan and the start of work, a call and its grant, a result and the call's
outcome, a pause and what blocks the run, the end and the run's end. The invariant: the two levels never disagree, because no reader can see one without the other.
"""

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace

from checkrein.harness.host import Announce, PlannerReply, ReadyCall
from checkrein.harness.permission import Decision, ask_policy
from checkrein.harness.planners import ask_planner
from checkrein.harness.pulls import answer_facts
from checkrein.kernel.budget import BudgetState
from checkrein.kernel.events import (
    Blocked,
    Cause,
    EventData,
    Failed,
    PlanAccepted,
    PlanCommit,
    PlanDraft,
    SessionData,
    SessionPause,
    TurnFinished,
    TurnGranted,
    TurnStart,
    WorkDone,
    WorkStarted,
)
from checkrein.kernel.session_events import BudgetWarn, HeldCall
from checkrein.kernel.session_next import CompleteSession, failure_to_answer
from checkrein.kernel.session_state import SessionState
from checkrein.kernel.state import Phase
from checkrein.messages import Usage
from checkrein.runs.answers import answer_events
from checkrein.runs.calls import CallRunner
from checkrein.runs.held import HeldRun, Moved
from checkrein.tools.outcomes import FailedCall
from checkrein.values import JsonObject, as_object

__all__ = ["RunHost"]


class RunHost:
    """The session of one held run.

    Args:
        held: the run.
        calls: who makes its calls.
    """

    counts_held_requests: ClassVar[bool] = True
    """After a crash nobody could say whether a request that was held for a review was made since, so it is granted anew."""

    def __init__(self, held: HeldRun, calls: CallRunner) -> None:
        self._held = held
        self._calls = calls

    @property
    def session(self) -> SessionState:
        """Return the session as the log has it."""
        return self._held.session

    def budget(self) -> BudgetState:
        """Return limits and use at this moment."""
        return self._held.budget()

    async def begin_turn(self, start: TurnStart, *, previous: str, is_held: bool) -> None:
        """Count and record a planning."""
        del is_held  # it is counted again, see `counts_held_requests`
        granted = TurnGranted(turn=start.turn, attempt=start.attempt, previous=previous)
        await self._held.append(start, granted)

    async def ask(self, turn: int) -> PlannerReply:
        """Ask the planner.

        Raises:
            PlannerFailed: it raised, or its answer is no plan.
            Interrupted: the run was cancelled or its lease lost meanwhile.
        """
        held = self._held
        told = replace(held.session, failure=failure_to_answer(held.session, held.task.on_failure))
        steps, is_final = await held.uninterrupted(ask_planner(held.task.planner, told), name=f"plan-{held.run_id}")
        return PlannerReply(PlanDraft(turn=turn, steps=steps, final=is_final or not steps))

    async def answer_turn(self, reply: PlannerReply, *, attempt: int) -> None:
        """Record a planner's answer."""
        turn = reply.draft.turn
        finished = TurnFinished(turn=turn, attempt=attempt, messages=reply.messages, usage=reply.usage)
        await self._held.append_outcome(reply.draft, finished)

    async def sleep(self, seconds: float) -> None:
        """Wait before the planner is asked again.

        Raises:
            Interrupted: the run was cancelled or its lease lost meanwhile.
        """
        await self._held.uninterrupted(self._held.clock.sleep(seconds), name=f"backoff-{self._held.run_id}")

    async def fail_turn(self, turn: int, *, attempt: int, pause: SessionPause, usage: Usage) -> None:
        """Record that a planner failed, and block."""
        text = (
            f"the planner failed: {pause.message}; correct it and let it be asked again with "
            f"`checkrein unblock RUN planner:{turn}`"
        )
        cause = Cause(id=f"planner:{turn}", kind="answer", detail="planner_failed", message=text)
        finished = TurnFinished(turn=turn, attempt=attempt, usage=usage, error=pause.message)
        await self._held.append_outcome(finished, pause, Blocked(cause=cause))

    async def commit(self, commit: PlanCommit) -> None:
        """Record that a draft is the plan."""
        accepted = PlanAccepted(steps=len(commit.steps), reason=commit.reason)
        is_first = self._held.state.phase is Phase.RECEIVED
        await self._held.append(commit, accepted, *((WorkStarted(),) if is_first else ()))

    async def record(self, *facts: SessionData) -> None:
        """Append facts of the session alone."""
        await self._held.append(*facts)

    def prepare(self, name: str, arguments: JsonObject, *, malformed: str = "") -> FailedCall | None:
        """Return why a call cannot be made."""
        return self._calls.prepare(name, arguments, malformed=malformed)

    def permit(self, name: str, arguments: JsonObject) -> tuple[Decision, str]:
        """Ask the task's policy."""
        return ask_policy(self._held.task.policy, name, arguments)

    async def make(self, calls: Sequence[ReadyCall]) -> None:
        """Grant and make calls."""
        await self._calls.make(calls)

    async def pause(self, pause: SessionPause, warn: BudgetWarn | None = None) -> None:
        """Record a pause and what blocks the run because of it; again when the log only moved on meanwhile."""
        causes = _causes(pause, warn)
        facts: list[EventData] = [*((warn,) if warn is not None else ()), pause, *map(_blocked, causes)]
        while True:
            try:
                await self._held.append(*facts)
            except Moved:
                if self.session.phase != pause.state or self._held.state.cancel is not None:
                    raise
            else:
                return

    async def resume(self, answer: object) -> None:
        """Apply an answer to the open pause, as if a person had given it.

        Raises:
            ResumeError: it is refused.
        """
        held = self._held
        facts = answer_facts(held.session, held.budget(), answer)
        await held.append(*answer_events(held.state, held.session, facts))

    async def meet_goal(self, announce: Announce) -> None:
        """Hand the artifacts over to the checks; the session ends when they have passed."""
        del announce
        await self._held.append(WorkDone())

    async def complete(self, end: CompleteSession, announce: Announce) -> None:
        """End the run without success."""
        await announce(end.code)
        await self._held.append(Failed(code=end.code, message=end.message))


def _blocked(cause: Cause) -> Blocked:
    return Blocked(cause=cause)


def _causes(pause: SessionPause, warn: BudgetWarn | None) -> list[Cause]:
    asking = [call for call in pause.calls if call.asks]
    if warn is not None:
        return [_budget_cause(warn)]
    if asking:
        return [_call_cause(call) for call in asking]
    subject = pause.subject or pause.topic or "hook"
    text = (
        f"{pause.reason}{f' ({pause.message})' if pause.message else ''}: look at it, then `checkrein unblock RUN review:{subject} "
        "--answer allow`, or `--answer deny`"
    )
    return [Cause(id=f"review:{subject}", kind="answer", detail=pause.reason, message=text)]


def _budget_cause(warn: BudgetWarn) -> Cause:
    flag = warn.limit.replace("_", "-")
    text = (
        f"{warn.limit.replace('_', ' ')}: {round(warn.used, 2):g} of {warn.allowed:g} used; go on with "
        f"`checkrein extend RUN --{flag} N`, or end the run"
    )
    return Cause(id=f"budget:{warn.limit}", kind="budget", detail=warn.limit, message=text)


def _call_cause(call: HeldCall) -> Cause:
    arguments = as_object(call.arguments).encoded.decode()
    asked = "" if call.asks == "policy" else f" ({call.reason})"
    text = (
        f"may {call.name} be called with {arguments}{asked}? `checkrein approve RUN {call.call_id}`, "
        f"or `checkrein deny RUN {call.call_id}`"
    )
    kind = "permission" if call.asks == "policy" else "review"
    return Cause(
        id=f"{kind}:{call.call_id}",
        kind="permission" if call.asks == "policy" else "answer",
        detail=call.reason,
        message=text,
        call_id=call.call_id,
    )
