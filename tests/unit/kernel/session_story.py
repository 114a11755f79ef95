"""Logs of one session, written event by event through the real machine.

A `SessionStory` keeps the log beside the state and checks at every event that the whole log folds to it. Nothing here decides what is legal.
"""

from collections.abc import Sequence
from typing import Self

from checkrein.kernel.budget import Budget, BudgetState
from checkrein.kernel.events import (
    Event,
    EventData,
    HeldCall,
    PlanCommit,
    PlanDraft,
    PlanReason,
    SessionComplete,
    SessionPause,
    SessionResume,
    SessionStart,
    SteerQueued,
    StepEnd,
    StepSpec,
    StepStart,
    ToolCallGiven,
    ToolErrorGiven,
    ToolResultGiven,
    TurnStart,
)
from checkrein.kernel.session import evolve_session, fold_session
from checkrein.kernel.session_budget import spent
from checkrein.kernel.session_state import SessionState
from checkrein.values import JsonData, JsonObject

RUN = "run-7"


def plain(step_id: str | int, batch: str | None = None) -> StepSpec:
    """A step without tool."""
    return StepSpec(step_id, "note it", batch=batch)


def tooled(step_id: str | int, batch: str | None = None) -> StepSpec:
    """A step with a tool."""
    return StepSpec(step_id, "look it up", "look_up", JsonObject({"key": step_id}), batch=batch)


def held(step_id: str | int, call_id: str, asks: str = "hook") -> HeldCall:
    """A prepared call."""
    kind = "hook" if asks == "hook" else "policy" if asks == "policy" else ""
    return HeldCall(step_id, call_id, "look_up", JsonObject({"key": step_id}), asks=kind, reason=asks)


def call(step_id: str | int, call_id: str, attempt: int = 1) -> ToolCallGiven:
    """The grant of a step's call."""
    return ToolCallGiven(step_id, call_id, "look_up", JsonObject({"key": step_id}), attempt)


def result(step_id: str | int, call_id: str, value: object = 5) -> ToolResultGiven:
    """A call's result."""
    return ToolResultGiven(step_id, call_id, JsonData(value))


def error(step_id: str | int, call_id: str) -> ToolErrorGiven:
    """A call's error; without a call id the call was never made."""
    return ToolErrorGiven(step_id, call_id, "internal", "it broke")


class SessionStory:
    """One session's log and its state, growing event by event."""

    def __init__(self, budget: Budget | None = None) -> None:
        self.log: list[Event] = []
        self.state = SessionState()
        self._limits = budget or Budget()

    def event(self, fact: EventData, elapsed: float = 0.0) -> Event:
        """Build the next event without sending it."""
        offset = len(self.log)
        return Event(RUN, f"e{offset}", offset, float(offset), "session", fact, elapsed=elapsed)

    def send(self, *facts: EventData, elapsed: float = 0.0) -> Self:
        """Append facts."""
        for fact in facts:
            event = self.event(fact, elapsed)
            self.state = evolve_session(self.state, event)
            self.log.append(event)
            assert fold_session(self.log) == self.state
        return self

    @property
    def budget(self) -> BudgetState:
        """The budget that the log gives."""
        budget = BudgetState()
        for event in self.log:
            budget = spent(budget, event)
        return budget

    def started(self) -> Self:
        """PLANNING, nothing asked yet."""
        return self.send(SessionStart("find the sum", self._limits))

    def asked(self, reason: PlanReason = "first", notes: tuple[str, ...] = ()) -> Self:
        """PLANNING, the planner is asked."""
        return self.send(TurnStart(self.state.turns + 1, 1, notes, reason))

    def drafted(self, *steps: StepSpec, final: bool = True, reason: PlanReason = "first") -> Self:
        """PLANNING, a draft is there."""
        return self.asked(reason).send(PlanDraft(self.state.turns, steps, final))

    def committed(self, *steps: StepSpec, final: bool = True, reason: PlanReason = "first") -> Self:
        """EXECUTING, the draft is the plan; REFLECTING when nothing of it is left to do."""
        self.drafted(*steps, final=final, reason=reason)
        return self.send(PlanCommit(self.state.turns, steps, final, reason))

    def awaiting(self, *steps: StepSpec) -> Self:
        """AWAITING_TOOL, the first step's call is given away, of a batch those of all steps."""
        steps = steps or (tooled(1),)
        self.committed(*steps)
        batch = self.state.batch_of(steps[0])
        self.send(*(StepStart(step.id) for step in batch))
        return self.send(*(call(step.id, self.state.call_id_of(step)) for step in batch))

    def reflecting(self, *more: StepSpec) -> Self:
        """REFLECTING, the first step is done; `more` steps are left."""
        return self.committed(plain("first"), *more).send(StepStart("first"), StepEnd("first", "done"))

    def paused(self, reason: str = "review:look", topic: str = "", subject: str = "") -> Self:
        """IDLE, paused where the story stands."""
        return self.send(SessionPause(reason, self.state.phase, topic, subject))

    def done(self) -> Self:
        """DONE."""
        return self.reflecting().send(SessionComplete("goal_met"))


def approvals(*asks: str) -> SessionStory:
    """IDLE: a batch of prepared calls, one for each of `asks`; those with a text wait for a decision."""
    steps: Sequence[StepSpec] = tuple(tooled(number, "b") for number, _ in enumerate(asks))
    story = SessionStory().started().committed(*steps)
    story.send(*(StepStart(step.id) for step in steps))
    calls = tuple(held(number, f"1.{number}", ask) for number, ask in enumerate(asks))
    return story.send(SessionPause("review:permission", "EXECUTING", "before_tool_call", calls=calls))


def decide(call_id: str, decision: object = "allow") -> SessionResume:
    """The answer to one approval."""
    return SessionResume("before_tool_call", call_id, JsonData(decision))


def steer(note: str = "n1") -> SteerQueued:
    """A queued message."""
    return SteerQueued(note, f"text of {note}")
