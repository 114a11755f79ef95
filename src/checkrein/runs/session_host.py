"""The place of a session that a durable run drives: every fact of the session is appended in one batch with the run's own events that belong to it.

Which belong together: a turn and its grant, a planner's answer and the turn's end, the first plan and the start of work, a call and its grant, a result and the call's
outcome, a pause and what blocks the run, the end and the run's end. The invariant: the two levels never disagree, because no reader can see one without the other.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from checkrein.codec.wire import skim_events
from checkrein.harness.asking import PlanningRequest, planned
from checkrein.harness.cuts import SessionCut, compacting, session_cut, summarised
from checkrein.harness.host import Announce, PlannerReply, Purpose, ReadyCall
from checkrein.harness.permission import Decision, ask_policy
from checkrein.harness.pulls import answer_facts
from checkrein.kernel.budget import BudgetState
from checkrein.kernel.events import (
    Blocked,
    EventData,
    Failed,
    PlanAccepted,
    PlanCommit,
    SessionData,
    SessionPause,
    TranscriptCompacted,
    TurnFinished,
    TurnGranted,
    TurnStart,
    WorkDone,
    WorkStarted,
)
from checkrein.kernel.session_events import BudgetWarn
from checkrein.kernel.session_next import CompleteSession, failure_to_answer
from checkrein.kernel.session_state import EndedStep, SessionState
from checkrein.kernel.state import Phase
from checkrein.loop.summary import Summary
from checkrein.messages import Message, Usage
from checkrein.ports.model import ToolSchema
from checkrein.projections.transcript import TranscriptView, begun, fold_transcript
from checkrein.runs.answers import answer_events
from checkrein.runs.calls import CallRunner
from checkrein.runs.causes import pause_causes, planner_cause
from checkrein.runs.held import HeldRun, Moved
from checkrein.runs.workspace import write_answer
from checkrein.tools.outcomes import FailedCall
from checkrein.values import JsonObject

__all__ = ["RunHost"]


class RunTranscript:
    """The transcript of one held run: read from its log as far as it has grown, and made shorter when its planner says that it is too long."""

    def __init__(self, held: HeldRun) -> None:
        self._held = held
        self._view = TranscriptView()
        self._version = 0

    async def read(self) -> Sequence[Message]:
        """Read the log on from where the transcript stands; only planners that see transcripts pay for it."""
        journal, offset = self._held.journal, self._version
        bodies = await journal.store.read(journal.run_id, offset)
        events = skim_events(bodies, run_id=journal.run_id, offset=offset)
        self._view = fold_transcript(events, self._view)
        self._version = offset + len(bodies)
        return self._view.messages

    def schemas(self) -> tuple[ToolSchema, ...]:
        """Return the tools of the task as a model sees them."""
        return tuple(ToolSchema(item.name, item.description, item.schema) for item in self._held.task.tools)

    async def overlong(self, start: TurnStart, *, is_forced: bool) -> SessionCut | None:
        """Return what must be summarised before a planning; planners that cannot do it cost nothing."""
        planner = self._held.task.planner
        if compacting(planner) is None:
            return None
        await self.read()
        return session_cut(planner, begun(self._view, start), self.schemas, is_forced=is_forced)

    async def summarise(self, cut: SessionCut, start: TurnStart, *, tried: int) -> Summary:
        """Ask the planner for a summary.

        Raises:
            Interrupted: the run was cancelled or its lease lost meanwhile.
        """
        held = self._held
        asking = summarised(held.task.planner, cut, start, held.signal, tried=tried)
        return await held.uninterrupted(asking, name=f"summary-{held.run_id}")

    async def compact(self, fact: TranscriptCompacted) -> None:
        """Record that a summary stands for old turns."""
        await self._held.append_outcome(fact)


class RunHost:
    """The session of one held run.

    Args:
        held: the run.
        calls: who makes its calls.

    Attributes:
        transcript: what a model is told, and what makes it shorter.
    """

    def __init__(self, held: HeldRun, calls: CallRunner) -> None:
        self._held = held
        self.transcript = RunTranscript(held)
        self._calls = calls

    @property
    def counts_held_requests(self) -> bool:
        """After a crash nobody could say whether a request that was held for a review was made since, so it is granted anew."""
        return True

    @property
    def session(self) -> SessionState:
        """Return the session as the log has it."""
        return self._held.session

    def budget(self) -> BudgetState:
        """Return limits and use at this moment."""
        return self._held.budget()

    async def begin_turn(
        self, start: TurnStart, *, previous: str, is_held: bool, purpose: Purpose = "planning"
    ) -> None:
        """Count and record a planning."""
        del is_held  # it is counted again, see `counts_held_requests`
        granted = TurnGranted(turn=start.turn, attempt=start.attempt, purpose=purpose, previous=previous)
        await self._held.append(start, granted)

    async def ask(self, turn: int) -> PlannerReply:
        """Ask the planner.

        Raises:
            PlannerFailed: it raised, or its answer is no plan.
            Interrupted: the run was cancelled or its lease lost meanwhile.
        """
        held = self._held
        told = replace(held.session, failure=failure_to_answer(held.session, held.task.on_failure))
        request = PlanningRequest(turn, told, self.transcript.read, self.transcript.schemas, held.signal)
        return await held.uninterrupted(planned(held.task.planner, request), name=f"plan-{held.run_id}")

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
        finished = TurnFinished(turn=turn, attempt=attempt, usage=usage, error=pause.message)
        await self._held.append_outcome(finished, pause, Blocked(cause=planner_cause(turn, pause.message)))

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
        causes = pause_causes(pause, warn)
        facts: list[EventData] = [
            *((warn,) if warn is not None else ()),
            pause,
            *(Blocked(cause=cause) for cause in causes),
        ]
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
        events = answer_events(held.state, held.session, answer_facts(held.session, held.budget(), answer))
        if events:  # else it leads to the same pull again
            await held.append(*events)

    async def meet_goal(self, announce: Announce) -> None:
        """Hand the artifacts over to the checks; the session ends when they have passed."""
        del announce
        answer = _answer_of(self.session)
        artifacts = () if answer is None else (await write_answer(self._held.folder, answer),)
        await self._held.append(WorkDone(artifacts=artifacts))

    async def complete(self, end: CompleteSession, announce: Announce) -> None:
        """End the run without success, once its child runs have ended.

        Raises:
            Moved: one was waited for; decide again.
        """
        if await self._calls.children.tend("end"):
            msg = "child runs had to end first"
            raise Moved(msg)
        await announce(end.code)
        await self._held.append(Failed(code=end.code, message=end.message))


def _answer_of(session: SessionState) -> str | None:
    """Return the answer with which the work ended: that of the last step that was done, if it had one."""
    ended = (item for item in reversed(session.history) if isinstance(item, EndedStep) and item.status == "done")
    last = next(ended, None)
    return None if last is None or not last.step.answer else last.step.answer
