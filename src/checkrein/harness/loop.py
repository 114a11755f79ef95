"""The harness loop: a goal worked through a plan, in memory, under a budget, with ten places to step in and two to give control back.

`HarnessLoop` is the session without a run: nothing is durable, no check proves the end. The same machine, driver and hooks drive durable runs. The loop has one owner at
a time: while it is driven, `resume` is refused.
"""

from collections.abc import Iterable, Mapping
from typing import Self

from checkrein.clock import SystemClock, SystemIds
from checkrein.errors import AgentStateError, ResumeError
from checkrein.harness.asking import SessionPlanner
from checkrein.harness.drafts import step_of
from checkrein.harness.driver import SessionDriver
from checkrein.harness.hooks import HookError, Hooks
from checkrein.harness.memory import MemoryHost
from checkrein.harness.permission import Policy, allow_listed
from checkrein.harness.planners import Plan, PlannerAnswer
from checkrein.harness.pulls import PullRequest, SessionResult, answer_facts, pull_of
from checkrein.kernel.budget import Budget, BudgetState
from checkrein.kernel.events import Event, FollowUpQueued, SessionComplete, SessionStart, SteerQueued
from checkrein.kernel.session_next import AwaitCalls, GiveBack, OnFailure
from checkrein.kernel.session_state import SessionPhase, SessionState
from checkrein.ports.clock import Clock
from checkrein.ports.tool import Tool
from checkrein.streams import EventStream
from checkrein.tools.registry import ToolRegistry
from checkrein.values import clean_text

__all__ = ["HarnessLoop"]


def _no_planner(_goal: str, _history: object, _last_error: object) -> PlannerAnswer:
    msg = "a replayed session has no planner; set loop.planner"
    raise RuntimeError(msg)


class HarnessLoop:
    """One session.

    Args:
        planner: decides the steps: `(goal, history, last_error) -> steps | Plan(steps, final=…)`, plain or async, or a `ModelPlanner`.
        budget: the limits; the defaults of `Budget` when None.
        tools: who answers calls. Without tools every call is a pull, and neither its name nor its arguments are checked.
        clock: the time; the system's by default.
        policy: asked about every call: `allow`, `deny` or `ask`.
        on_failure: what follows a failed step.

    Attributes:
        hooks: register with `hooks.on(topic, subscriber)`.
    """

    def __init__(
        self,
        *,
        planner: SessionPlanner,
        budget: Budget | None = None,
        tools: ToolRegistry | Iterable[Tool] | None = None,
        clock: Clock | None = None,
        policy: Policy = allow_listed,
        on_failure: OnFailure = "replan",
    ) -> None:
        self.hooks = Hooks()
        self._limits = budget or Budget()
        self._host = MemoryHost(
            planner,
            _by_name(tools),
            clock or SystemClock(),
            policy=policy,
            on_failure=on_failure,
            session_id=SystemIds().new_id(),
        )
        self._driver = SessionDriver(self._host, self.hooks, on_failure=on_failure)
        self._is_running = False

    @classmethod
    def replay(
        cls,
        events: Iterable[Event],
        planner: SessionPlanner | None = None,
        *,
        tools: ToolRegistry | Iterable[Tool] | None = None,
        clock: Clock | None = None,
        policy: Policy = allow_listed,
        on_failure: OnFailure = "replan",
    ) -> Self:
        """Return a loop in the state that a log gives, from any prefix of it; calls neither planner, model, tool nor hook.

        Args:
            events: the events of a loop, or of a run's log.
            planner: who plans from there on; without one the next planning fails.
            tools: who answers calls from there on.
            clock: the time.
            policy: what is permitted from there on.
            on_failure: what follows a failed step from there on.

        Raises:
            IllegalTransition: they are no log of a session.
        """
        loop = cls(planner=planner or _no_planner, tools=tools, clock=clock, policy=policy, on_failure=on_failure)
        loop._host.adopt(events)
        return loop

    @property
    def state(self) -> SessionPhase:
        """One of the six states."""
        return self._host.session.phase

    @property
    def session(self) -> SessionState:
        """Everything that is known of the session at this offset."""
        return self._host.session

    @property
    def plan(self) -> Plan | None:
        """The committed plan; None before the first commit."""
        session = self._host.session
        return Plan(tuple(map(step_of, session.steps)), session.is_final) if session.is_planned else None

    @property
    def budget(self) -> BudgetState:
        """Limits and use at this moment."""
        if not self._host.session.is_started:
            return BudgetState(limits=self._limits)
        return self._host.budget()

    @property
    def events(self) -> EventStream[Event, SessionResult]:
        """The log: readable from any offset, followed to the end."""
        return self._host.log.stream

    @property
    def planner(self) -> SessionPlanner:
        """Who plans; assign another to have the next planning done by it."""
        return self._host.planner

    @planner.setter
    def planner(self, planner: SessionPlanner) -> None:
        self._host.planner = planner

    @property
    def hook_errors(self) -> tuple[HookError, ...]:
        """The last 100 hooks that failed without ending anything."""
        return self.hooks.errors

    async def run(self, goal: str) -> PullRequest | SessionResult:
        """Begin to work on a goal, and go on until control is given back or the session is over.

        Raises:
            IllegalTransition: the session began before.
        """
        self._host.append(SessionStart(goal=clean_text(goal), budget=self._limits))
        return await self._drive()

    async def resume(self, answer: Mapping[str, object] | None) -> PullRequest | SessionResult:
        """Answer the pull that the session stands at, and go on.

        Args:
            answer: `{"result": value}` or `{"error": text}` for a tool, with `call_id` if several calls are open; `{"extend": {limit: more}}` for a budget;
                `{"decision": value}` for a review, with `call_id` if several calls wait; `{"close": text}` ends the session.

        Returns:
            The next pull, the same one when the answer did not change anything, or the result.

        Raises:
            ResumeError: the answer is refused; nothing was appended.
        """
        facts = answer_facts(self._host.session, self._host.budget(), answer, is_running=self._is_running)
        end = facts[-1] if facts else None
        if isinstance(end, SessionComplete):
            return await self._close(answer, end)
        self._host.append(*facts)
        return await self._drive()

    async def _close(self, answer: Mapping[str, object] | None, end: SessionComplete) -> SessionResult:
        self._is_running = True
        try:
            await self._driver.announce_end(end.reason)
            # A message may have come meanwhile, and belongs to the unread ones.
            self._host.append(*answer_facts(self._host.session, self._host.budget(), answer))
        finally:
            self._is_running = False
        return self._host.result()

    async def continue_(self) -> PullRequest | SessionResult:
        """Go on from wherever the session stands: after a replay, or after the task that drove it was cancelled.

        Raises:
            ResumeError: it is driven at this moment, or never began.
        """
        if self._is_running:
            raise ResumeError("running", "the session is being driven; wait until control is back")
        if not self._host.session.is_started:
            raise ResumeError("not_started", "call run(goal) first")
        return await self._drive()

    def steer(self, text: str) -> None:
        """Queue a message for the next planning, which follows the step that is being done.

        Raises:
            AgentStateError: the session is over.
        """
        self._queue(SteerQueued(note=self._note_id(), text=clean_text(text)))

    def follow_up(self, text: str) -> None:
        """Queue a message for when the goal would count as met.

        Raises:
            AgentStateError: the session is over.
        """
        self._queue(FollowUpQueued(note=self._note_id(), text=clean_text(text)))

    def _queue(self, fact: SteerQueued | FollowUpQueued) -> None:
        if self._host.session.phase is SessionPhase.DONE:
            raise AgentStateError("SESSION_DONE", "the session is over; nothing reads the message any more")
        self._host.append(fact)

    def _note_id(self) -> str:
        return f"note-{len(self._host.log.events)}"

    async def _drive(self) -> PullRequest | SessionResult:
        self._is_running = True
        try:
            while True:
                effect = self._driver.next_effect()
                if isinstance(effect, (GiveBack, AwaitCalls)):
                    break
                await self._driver.perform(effect)
        finally:
            self._is_running = False
        pull = pull_of(self._host.session, self._host.budget())
        return self._host.result() if pull is None else pull


def _by_name(tools: ToolRegistry | Iterable[Tool] | None) -> Mapping[str, Tool] | None:
    if tools is None:
        return None
    return (tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)).snapshot()
