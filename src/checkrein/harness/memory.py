"""The place of a session that has no run: its log in memory, its budget folded from it, and its calls made by a dispatcher or left to the caller.

The invariant: `session` and `budget` are folds of `log` at every moment; an event that the machine refuses is not appended.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from checkrein.harness.asking import PlannerReply, PlanningRequest, SessionPlanner, planned
from checkrein.harness.host import Announce, Purpose, ReadyCall, ended_step
from checkrein.harness.memory_transcript import MemoryTranscript
from checkrein.harness.permission import Decision, Policy, ask_policy
from checkrein.harness.pulls import SessionResult, answer_facts
from checkrein.kernel.budget import BudgetState
from checkrein.kernel.events import (
    Event,
    EventData,
    PlanCommit,
    SessionComplete,
    SessionData,
    SessionPause,
    ToolCallGiven,
    ToolErrorGiven,
    ToolResultGiven,
    TurnFinished,
    TurnStart,
)
from checkrein.kernel.session import evolve_session
from checkrein.kernel.session_budget import spent
from checkrein.kernel.session_events import BudgetWarn
from checkrein.kernel.session_next import CompleteSession, OnFailure, failure_to_answer
from checkrein.kernel.session_state import CallAnswer, EndedStep, SessionPhase, SessionState
from checkrein.messages import Usage
from checkrein.ports.clock import Clock
from checkrein.ports.model import ToolSchema
from checkrein.ports.tool import CancelSignal, Tool, ToolContext
from checkrein.streams import StreamLog
from checkrein.tools.dispatch import Dispatcher, PreparedCall
from checkrein.tools.outcomes import (
    AcceptedJob,
    Done,
    FailedCall,
    Outcome,
    OutcomeUnknown,
    Pending,
    RetryPolicy,
    next_attempt,
)
from checkrein.values import JsonObject

__all__ = ["MemoryHost"]

_QUIET: Final = frozenset({SessionPhase.IDLE, SessionPhase.DONE})


class MemoryHost:
    """One session in memory.

    Args:
        planner: who plans; may be replaced at any time.
        tools: who answers calls, by name; None leaves every call to the caller and checks none.
        clock: the time.
        policy: what is permitted.
        on_failure: what follows a failed step.
        session_id: stands in every event.

    Attributes:
        planner: as given.
        log: the events.
        session: their fold.
        transcript: what a model is told, and what makes it shorter.
    """

    def __init__(
        self,
        planner: SessionPlanner,
        tools: Mapping[str, Tool] | None,
        clock: Clock,
        *,
        policy: Policy,
        on_failure: OnFailure,
        session_id: str,
    ) -> None:
        self.planner = planner
        self.log: StreamLog[Event, SessionResult] = StreamLog()
        self.session = SessionState()
        self._budget = BudgetState()
        self._dispatcher = Dispatcher(tools, clock=clock) if tools is not None else None
        self._clock = clock
        self._policy = policy
        self._on_failure: OnFailure = on_failure
        self._id = session_id
        self._tools: Mapping[str, Tool] = {} if tools is None else tools
        self.transcript = MemoryTranscript(self, self._schemas)
        self._asked = 0
        self._message = ""
        self._since: float | None = None

    def adopt(self, events: Iterable[Event]) -> None:
        """Take a log as it is.

        Raises:
            IllegalTransition: it is no log of a session.
        """
        for event in events:
            self._fold(event)
            self._id = event.run_id
        self._finish()

    def elapsed(self) -> float:
        """Return the active seconds in total; none pass while the session is paused."""
        before = self._budget.used.wall_seconds
        if self.session.phase in _QUIET:
            return before
        if self._since is None:
            self._since = self._clock.monotonic()
        return before + max(0.0, self._clock.monotonic() - self._since)

    def budget(self) -> BudgetState:
        """Return limits and use at this moment."""
        return self._budget.with_elapsed(self.elapsed())

    def append(self, *facts: EventData) -> None:
        """Append facts.

        Raises:
            IllegalTransition: the machine has no such edge; nothing is appended from there on.
        """
        for fact in facts:
            offset = len(self.log.events)
            self._take(
                Event(
                    run_id=self._id,
                    event_id=f"{self._id}-{offset}",
                    expected_version=offset,
                    at=float(self._clock.now()),
                    actor="session",
                    data=fact,
                    elapsed=float(self.elapsed()),
                )
            )

    def _take(self, event: Event) -> None:
        self._fold(event)
        self._finish()

    def _fold(self, event: Event) -> None:
        self.session = evolve_session(self.session, event)
        self._budget = spent(self._budget, event)
        self._since = None if self.session.phase in _QUIET else self._clock.monotonic()
        self.log.append(event)

    def _finish(self) -> None:
        if self.session.phase is SessionPhase.DONE and self.log.result is None:
            self.log.finish(self.result())

    def result(self) -> SessionResult:
        """Return how the session ended."""
        session = self.session
        last = next(
            (item for item in reversed(session.history) if isinstance(item, EndedStep) and item.status == "done"), None
        )
        texts = tuple(note.text for note in session.queued if note.id in session.unread)
        value = None if last is None else last.result.value
        return SessionResult(session.phase, session.outcome, self._message, value, texts, self.budget())

    async def begin_turn(
        self, start: TurnStart, *, previous: str, is_held: bool, purpose: Purpose = "planning"
    ) -> None:
        """Count and record a planning; one that was paused before the planner was asked is counted already."""
        del previous, purpose  # no run, no grant that carries them
        if not is_held:
            self.append(start)

    @property
    def counts_held_requests(self) -> bool:
        """Whether the planner was asked in the open turn already, and its answer was not waited for."""
        return self.session.request is not None and self.session.request.turn == self._asked

    async def ask(self, turn: int) -> PlannerReply:
        """Ask the planner."""
        self._asked = turn
        told = replace(self.session, failure=failure_to_answer(self.session, self._on_failure))
        return await planned(
            self.planner, PlanningRequest(turn, told, self.transcript.read, self._schemas, CancelSignal())
        )

    def _schemas(self) -> tuple[ToolSchema, ...]:
        return tuple(ToolSchema(tool.name, tool.description, tool.schema) for tool in self._tools.values())

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._clock.sleep(seconds)

    async def answer_turn(self, reply: PlannerReply, *, attempt: int) -> None:
        """Record a planner's answer."""
        self.append(reply.draft)
        if reply.messages or reply.usage != Usage():
            turn = reply.draft.turn
            self.append(TurnFinished(turn=turn, attempt=attempt, messages=reply.messages, usage=reply.usage))

    async def fail_turn(self, turn: int, *, attempt: int, pause: SessionPause, usage: Usage) -> None:
        """Record that a planner failed."""
        if usage != Usage():
            self.append(TurnFinished(turn=turn, attempt=attempt, usage=usage, error=pause.message))
        self.append(pause)

    async def commit(self, commit: PlanCommit) -> None:
        """Record that a draft is the plan."""
        self.append(commit)

    async def record(self, *facts: SessionData) -> None:
        """Append facts."""
        self.append(*facts)

    def prepare(self, name: str, arguments: JsonObject, *, malformed: str = "") -> FailedCall | None:
        """Return why a call cannot be made; where the caller makes it, it always can."""
        if self._dispatcher is None:
            return None
        prepared = self._dispatcher.prepare(name, arguments, malformed=malformed)
        return prepared if isinstance(prepared, FailedCall) else None

    def permit(self, name: str, arguments: JsonObject) -> tuple[Decision, str]:
        """Ask the policy."""
        return ask_policy(self._policy, name, arguments)

    async def make(self, calls: Sequence[ReadyCall]) -> None:
        """Give calls away, as far as the budget allows, and with tools make them."""
        granted: list[ReadyCall] = []
        for call in calls:
            if granted and self.budget().first_reached("tool_calls", "wall_seconds") is not None:
                break
            self.append(*call.begun, _given(call, 1))
            granted.append(call)
        if self._dispatcher is None:
            return
        dispatcher = self._dispatcher
        if any(self._is_sequential(call) for call in granted):
            for call in granted:
                await self._call(dispatcher, call)
            return
        works = [self._clock.spawn(self._call(dispatcher, call), name=f"call-{call.call_id}") for call in granted]
        try:
            await asyncio.gather(*works)
        finally:
            for work in works:
                work.cancel()

    def _is_sequential(self, call: ReadyCall) -> bool:
        tool = self._tools.get(call.name)
        return tool is not None and tool.traits.sequential

    async def _call(self, dispatcher: Dispatcher, call: ReadyCall) -> None:
        prepared = dispatcher.prepare(call.name, call.arguments)
        if isinstance(prepared, FailedCall):
            self._answer(call, prepared)
            return
        attempt = 1
        while True:
            outcome = await dispatcher.execute(prepared, self._context(call, attempt))
            wait = next_attempt(outcome, attempt, traits=prepared.tool.traits, policy=RetryPolicy())
            if wait is None:
                break
            await self._clock.sleep(wait)
            if self.budget().first_reached("tool_calls", "wall_seconds") is not None:
                break
            attempt += 1
            self.append(_given(call, attempt))
        self._answer(call, await self._polled(dispatcher, prepared, call, outcome))

    async def _polled(
        self, dispatcher: Dispatcher, prepared: PreparedCall, call: ReadyCall, outcome: Outcome
    ) -> Done | FailedCall | OutcomeUnknown:
        """Return an outcome, for an accepted job the one it comes to in the end."""
        if not isinstance(outcome, AcceptedJob):
            return outcome
        while True:
            try:
                answer = await dispatcher.poll(prepared, outcome, self._context(call, 1))
            except LookupError as error:
                return FailedCall("internal", str(error))
            if not isinstance(answer, Pending):
                return answer
            await self._clock.sleep(outcome.interval_seconds)

    def _context(self, call: ReadyCall, attempt: int) -> ToolContext:
        return ToolContext(
            call_id=call.call_id,
            attempt=attempt,
            idempotency_key=f"{self._id}/{call.call_id}",
            signal=CancelSignal(),
            workspace=Path.cwd(),
        )

    def _answer(self, call: ReadyCall, outcome: Done | FailedCall | OutcomeUnknown) -> None:
        if isinstance(outcome, Done):
            fact = ToolResultGiven(step_id=call.step_id, call_id=call.call_id, result=outcome.result)
            end = ended_step(call.step_id, CallAnswer(outcome.result))
        else:
            kind = outcome.kind if isinstance(outcome, FailedCall) else "internal"
            message = outcome.message if isinstance(outcome, FailedCall) else outcome.reason
            fact = ToolErrorGiven(step_id=call.step_id, call_id=call.call_id, kind=kind, message=message)
            end = ended_step(call.step_id, CallAnswer(error=f"{kind}: {message}"))
        self.append(*((fact, end) if call.ends_step else (fact,)))

    async def pause(self, pause: SessionPause, warn: BudgetWarn | None = None) -> None:
        """Record a pause."""
        self.append(*((warn, pause) if warn is not None else (pause,)))

    async def resume(self, answer: object) -> None:
        """Apply an answer to the open pause.

        Raises:
            ResumeError: it is refused.
        """
        self.append(*answer_facts(self.session, self.budget(), answer))

    async def meet_goal(self, announce: Announce) -> None:
        """End: nothing else proves a goal without a run."""
        await announce("goal_met")
        self._complete("goal_met")

    async def complete(self, end: CompleteSession, announce: Announce) -> None:
        """End without success."""
        await announce(end.code)
        self._message = end.message
        self._complete(end.code)

    def _complete(self, reason: str) -> None:
        self.append(SessionComplete(reason=reason, unread=tuple(note.id for note in self.session.queued)))


def _given(call: ReadyCall, attempt: int) -> ToolCallGiven:
    return ToolCallGiven(
        step_id=call.step_id, call_id=call.call_id, name=call.name, arguments=call.arguments, attempt=attempt
    )
