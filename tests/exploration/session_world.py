"""Walks a session through every move of everybody around it, until no new state is found.

Machine, budget, driver, hooks and pull table are the real ones; only the place the session lives in is ours, so that it can be put back into any state. One move is one
effect of the driver with one answer of everybody it asks, or one answer of the caller, a message, a restart that loses what the driver remembers, or time that runs out.
Histories are abstracted away: a state is what the session may still do, not how it came there, so the space closes although a session may plan for ever.
"""
# The driver is put into any state, so what it remembers is looked at.
# pyright: reportPrivateUsage=false

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Final, TypeAlias

from checkrein.errors import IllegalTransition, ResumeError
from checkrein.harness.driver import SessionDriver
from checkrein.harness.hooks import SKIP, HookAbort, HookAnswer, Hooks, Pause
from checkrein.harness.memory import MemoryHost
from checkrein.harness.permission import Decision
from checkrein.harness.planners import PlannerAnswer
from checkrein.harness.pulls import answer_facts
from checkrein.kernel.budget import COUNTED, LIMITS, BudgetState, Limit
from checkrein.kernel.events import Event, EventData, FollowUpQueued, SessionComplete, SessionStart, SteerQueued
from checkrein.kernel.session import evolve_session, fold_session
from checkrein.kernel.session_next import AwaitCalls, Effect, GiveBack
from checkrein.kernel.session_state import SessionPhase, SessionState
from checkrein.streams import StreamLog
from checkrein.testing.manual_clock import ManualClock
from checkrein.values import JsonObject
from tests.exploration.session_key import Snapshot, key_of
from tests.exploration.session_scenarios import (
    ABORT,
    BREAKS,
    CRASHES,
    DECIDES,
    DENIES,
    EMPTY,
    EXTENDS,
    FAILS,
    PAUSES,
    SKIPS,
    Scenario,
)

INVARIANTS: Final[Mapping[int, str]] = {
    1: "in every state the driver knows what is next, and nothing is next exactly where the caller is asked or all is over",
    2: "what the driver records is legal where it records it",
    3: "nothing moves a session that is over",
    4: "a session completes once, as the last thing that happens",
    5: "no counter exceeds its limit, and each grant is counted once, before what it allows",
    6: "a planning that is counted is either made or still to be had",
    7: "everything that was begun has its answer when the session plans or reflects",
    8: "the log alone gives the state",
    9: "wherever the caller is asked there is an answer that goes on, and a refused one appends nothing",
    10: "from every state the end can be reached without closing",
}
Evolve = Callable[[SessionState, Event], SessionState]
Moves: TypeAlias = AsyncIterator[tuple[str, Snapshot]]
AT_ONCE: Final[Mapping[str, Mapping[str, object]]] = {
    DECIDES: {"decision": "go"},
    DENIES: {"decision": "deny"},
    EXTENDS: {"extend": {"turns": 1}},
}
QUIET: Final = frozenset({SessionPhase.IDLE, SessionPhase.DONE})
CLOSED: Final = "the caller closes"


class Crash(BaseException):
    """The process ends here."""


class Broken(Exception):
    """An invariant does not hold."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"invariant {number} ({INVARIANTS[number]}): {what}")
        self.number = number


class Choices:
    """The answers that everybody gives within one move; goes through all combinations, the first answers first."""

    def __init__(self) -> None:
        self._path: list[int] = []
        self._sizes: list[int] = []
        self._at = 0

    def pick(self, options: tuple[str, ...]) -> str:
        """Return one of the options."""
        if self._at == len(self._path):
            self._path.append(0)
            self._sizes.append(len(options))
        self._at += 1
        return options[self._path[self._at - 1]]

    def again(self) -> bool:
        """Turn to the next combination; False when there is none."""
        self._at = 0
        while self._path and self._path[-1] + 1 == self._sizes[-1]:
            self._path.pop()
            self._sizes.pop()
        if not self._path:
            return False
        self._path[-1] += 1
        return True


class Place(MemoryHost):
    """A session's place that can be put into any state; `evolve` may be a machine that lacks a rule."""

    def __init__(self, world: "World", evolve: Evolve) -> None:
        super().__init__(
            world.plan, None, ManualClock(), policy=world.permit, on_failure=world.scenario.on_failure, session_id="s"
        )
        self._evolve = evolve

    def stand_at(self, here: Snapshot) -> None:
        """Go there, with an empty log."""
        request = here.session.request
        self.session, self._budget, self._since = here.session, here.budget, None
        self._asked = request.turn if request is not None and not here.owed else 0
        self.log = StreamLog()

    def _fold(self, event: Event) -> None:
        before = self.session
        super()._fold(event)
        self.session = self._evolve(before, event)


class World:
    """One scenario, explored.

    Args:
        scenario: what there is.
        evolve: the machine.
        driver: the driver.

    Attributes:
        scenario: as given.
        states: distinct states found.
        transitions: moves followed.
        refused: answers among them that were refused.
    """

    def __init__(
        self, scenario: Scenario, *, evolve: Evolve = evolve_session, driver: type[SessionDriver] = SessionDriver
    ) -> None:
        self.scenario = scenario
        self.states = 0
        self.transitions = 0
        self.refused = 0
        self._choices = Choices()
        self._asked = 0
        self._is_changed = evolve is not evolve_session
        self._place = Place(self, evolve)
        hooks = Hooks()
        for topic, options in scenario.hooks.items():
            hooks.on(topic, self._hook(options))
        self._driver = driver(self._place, hooks, on_failure=scenario.on_failure)

    # Everybody the driver asks.

    def _hook(self, options: tuple[str, ...]) -> Callable[[dict[str, object]], HookAnswer]:
        def hook(payload: dict[str, object]) -> HookAnswer:
            match self._choices.pick(options):
                case said if said in AT_ONCE:
                    payload["resume"] = AT_ONCE[said]
                    return None
                case said if said == ABORT:
                    raise HookAbort(ABORT)
                case said if said == SKIPS:
                    return SKIP
                case said if said == PAUSES:
                    return Pause(PAUSES)
                case said if said == FAILS:
                    raise ValueError(FAILS)
                case _:
                    return None

        return hook

    async def plan(self, *_told: object) -> PlannerAnswer:
        """Answer as chosen."""
        self._asked += 1
        names = (*map(str, range(len(self.scenario.plans))), *self.scenario.answers)
        said = self._choices.pick(names)
        if said == CRASHES:
            raise Crash
        if said == BREAKS:
            raise ValueError(BREAKS)
        return [] if said == EMPTY else self.scenario.plans[int(said)]

    def permit(self, _name: str, _arguments: JsonObject) -> Decision:
        """Permit as chosen."""
        said = self._choices.pick(self.scenario.policy)
        return "allow" if said == "allow" else "ask" if said == "ask" else "deny"

    # The walk.

    def walk(self) -> None:
        """Follow every move from every reachable state.

        Raises:
            Broken: an invariant does not hold.
        """
        asyncio.run(self._walk())

    async def _walk(self) -> None:
        first = Snapshot(SessionState(), BudgetState(limits=self.scenario.budget), {}, {}, {})
        numbers = {key_of(first): 0}
        before: list[list[int]] = [[]]
        ends: list[int] = []
        parents: list[tuple[int, str]] = [(0, "")]
        queue = deque([(0, first)])
        while queue:
            number, here = queue.popleft()
            try:
                async for label, there in self._moves(here):
                    self.transitions += 1
                    key = key_of(there)
                    known = numbers.get(key)
                    if known is None:
                        known = numbers[key] = len(before)
                        before.append([])
                        parents.append((number, label))
                        queue.append((known, there))
                        if there.session.phase is SessionPhase.DONE:
                            ends.append(known)
                    if label != CLOSED:
                        before[known].append(number)
            except Broken as broken:
                broken.add_note("\n".join(_history(parents, number)))
                raise
        self.states = len(numbers)
        stuck = set(range(len(before))) - _reaching(before, ends)
        if stuck:
            broken = Broken(10, f"{len(stuck)} states are stuck")
            broken.add_note("\n".join(_history(parents, min(stuck))))
            raise broken

    async def _moves(self, here: Snapshot) -> Moves:
        phase = here.session.phase
        if phase is SessionPhase.DONE:
            self._check_over(here)
            return
        if not here.session.is_started:
            yield self._appended(here, "starts", SessionStart(goal="goal"))
            return
        self._stand_at(here)
        effect = self._driver.next_effect()
        self._check_effect(here, effect)
        if isinstance(effect, (AwaitCalls, GiveBack)):
            for move in self._answers(here):
                yield move
        else:
            async for move in self._performed(here, effect):
                yield move
        for move in self._others(here):
            yield move

    async def _performed(self, here: Snapshot, effect: Effect) -> Moves:
        """One effect, with every combination of answers."""
        self._choices = Choices()
        while True:
            self._stand_at(here)
            self._asked = 0
            has_crashed = False
            try:
                await self._driver.perform(effect)
            except Crash:
                has_crashed = True
            except IllegalTransition as error:
                raise Broken(2, str(error)) from error
            there = self._snapshot(here, has_crashed=has_crashed)
            self._check(here, there)
            yield f"{type(effect).__name__}", there
            if not self._choices.again():
                return

    def _answers(self, here: Snapshot) -> Iterator[tuple[str, Snapshot]]:
        """Whatever a caller may say where the session gave control back."""
        goes_on = False
        for label, answer in self._payloads(here):
            try:
                facts = answer_facts(here.session, here.budget, answer)
            except ResumeError:
                self.refused += 1
                yield f"refused: {label}", here
                continue
            there = self._appended(here, label, *facts)[1]
            goes_on = goes_on or (label != CLOSED and key_of(there) != key_of(here))
            yield label, there
        if not goes_on:
            raise Broken(9, f"no answer goes on: {here.session.paused}")

    def _payloads(self, here: Snapshot) -> Iterator[tuple[str, Mapping[str, object] | None]]:
        session = here.session
        names = [work.call_id for work in session.work if work.is_open]
        if session.paused is not None:
            names = list(session.paused.open_calls)
        for call in ({}, *({"call_id": name} for name in names), {"call_id": "9.9"}):
            for given in ({"result": 5}, {"error": "no"}, {"decision": "go"}, {"decision": "deny"}):
                yield f"{given | call}", given | call
        for limit in LIMITS:
            if here.budget.is_reached(limit):
                yield f"extend {limit}", {"extend": {limit: 1}}
                yield f"extend {limit} by nothing", {"extend": {limit: 0}}
        yield "nothing", None
        yield "an empty answer", {}
        yield "two answers", {"result": 1, "error": "no"}
        yield "an unknown answer", {"cancel": 1}
        yield CLOSED, {"close": "enough"}

    def _others(self, here: Snapshot) -> Iterator[tuple[str, Snapshot]]:
        """What happens at any moment: messages, a restart, time that runs out, and a run that is cancelled."""
        session, budget = here.session, here.budget
        if self.scenario.messages:
            if not session.queued_of("steer"):
                yield self._appended(here, "steer", SteerQueued(note=f"s{session.turns}", text="text"))
            if not session.queued_of("follow_up"):
                yield self._appended(here, "follow up", FollowUpQueued(note=f"f{session.turns}", text="text"))
        if here.verdicts or here.fates or here.reviews or here.abort_answered:
            yield "restart", here._replace(verdicts={}, fates={}, reviews={}, abort_answered="")
        if self.scenario.has_clock and session.phase not in QUIET and not budget.is_reached("wall_seconds"):
            yield "time runs out", here._replace(budget=budget.with_elapsed(budget.limits.wall_seconds or 0))
        yield self._appended(here, CLOSED, SessionComplete(reason="cancelled"))

    def _appended(self, here: Snapshot, label: str, *facts: EventData) -> tuple[str, Snapshot]:
        self._stand_at(here)
        self._asked = 0
        try:
            self._place.append(*facts)
        except IllegalTransition as error:
            raise Broken(2, f"{label}: {error}") from error
        there = self._snapshot(here)
        self._check(here, there)
        return label, there

    def _stand_at(self, here: Snapshot) -> None:
        self._place.stand_at(here)
        self._driver._firer._verdicts = dict(here.verdicts)
        self._driver._calls._fates = dict(here.fates)
        self._driver._reviews = dict(here.reviews)
        self._driver._firer._abort_answered = here.abort_answered

    def _snapshot(self, here: Snapshot, *, has_crashed: bool = False) -> Snapshot:
        counted = sum(event.type == "turn.start" for event in self._place.log.events)
        session, budget = self._place.session, self._place._budget
        owed = here.owed + counted - self._asked
        if has_crashed:
            return Snapshot(session, budget, {}, {}, {}, owed=owed)
        driver = self._driver
        firer = driver._firer
        return Snapshot(
            session, budget, firer._verdicts, driver._calls._fates, driver._reviews, firer._abort_answered, owed
        )

    # The invariants.

    def _check_effect(self, here: Snapshot, effect: Effect) -> None:
        phase = here.session.phase
        is_asked = isinstance(effect, GiveBack)
        if is_asked != (phase in QUIET):
            raise Broken(1, f"{effect} in {phase}")
        if isinstance(effect, AwaitCalls) and (phase is not SessionPhase.AWAITING_TOOL or not effect.works):
            raise Broken(1, f"{effect} in {phase}")
        if phase is SessionPhase.IDLE and here.session.paused is None:
            raise Broken(1, "idle without a pause")

    def _check_over(self, here: Snapshot) -> None:
        for fact in (SteerQueued(note="s", text="t"), FollowUpQueued(note="f", text="t")):
            if self._appended(here, "after the end", fact)[1].session != here.session:
                raise Broken(3, fact.type)
        for fact in (SessionStart(goal="again"), SessionComplete(reason="again")):
            self._stand_at(here)
            try:
                self._place.append(fact)
            except IllegalTransition:
                continue
            raise Broken(3, fact.type)

    def _check(self, here: Snapshot, there: Snapshot) -> None:
        events = self._place.log.events
        types = [event.type for event in events]
        is_over = there.session.phase is SessionPhase.DONE
        if types.count("session.complete") != (1 if is_over and here.session.phase is not SessionPhase.DONE else 0):
            raise Broken(4, f"{types}")
        if "session.complete" in types[:-1]:
            raise Broken(4, f"{types}")
        self._check_counters(here, there, types)
        request = there.session.request
        if not is_over and there.owed != (0 if request is None else 1) and not (request and there.owed == 0):
            raise Broken(6, f"{there.owed} owed, {request}")
        if there.session.phase in {SessionPhase.PLANNING, SessionPhase.REFLECTING} and any(
            work.answer is None for work in there.session.work
        ):
            raise Broken(7, f"{there.session.work}")
        if not self._is_changed and fold_session(events, here.session) != there.session:
            raise Broken(8, f"{types}")

    def _check_counters(self, here: Snapshot, there: Snapshot, types: list[str]) -> None:
        for limit in COUNTED:
            allowed = there.budget.limits.limit(limit)
            if allowed is not None and there.budget.taken(limit) > allowed:
                raise Broken(5, f"{limit}: {there.budget.taken(limit)} of {allowed}")
        granted: tuple[tuple[Limit, str], ...] = (
            ("turns", "turn.start"),
            ("tool_calls", "tool.call"),
            ("steps", "step.start"),
        )
        for limit, kind in granted:
            if there.budget.taken(limit) - here.budget.taken(limit) != types.count(kind):
                raise Broken(5, f"{limit}: {types}")


def _reaching(before: list[list[int]], ends: list[int]) -> set[int]:
    reached, frontier = set(ends), list(ends)
    while frontier:
        for number in before[frontier.pop()]:
            if number not in reached:
                reached.add(number)
                frontier.append(number)
    return reached


def _history(parents: list[tuple[int, str]], number: int) -> list[str]:
    lines: list[str] = []
    while number:
        number, label = parents[number]
        lines.append(label)
    return [f"{position:4}. {line}" for position, line in enumerate(reversed(lines), start=1)]
