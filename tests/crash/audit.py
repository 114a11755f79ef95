"""What must be true of every run that was killed on its way: its log, what was acknowledged, and the world outside are compared.

Nothing is taken from memory of the suite: the log comes from the store, the acknowledgements and the ledger from files that the killed processes wrote.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from checkrein.kernel.budget import Limit
from checkrein.kernel.events import (
    Blocked,
    BudgetReserved,
    BudgetSettled,
    Event,
    PlanCommit,
    ToolGranted,
    ToolInDoubt,
    ToolReconciled,
    Unblocked,
)
from checkrein.kernel.run import fold_run
from checkrein.kernel.session import fold_session
from checkrein.kernel.session_state import SessionPhase
from checkrein.kernel.state import RunState
from checkrein.runs.replay import replay_run
from tests.crash.arena import Arena
from tests.crash.child import ACKNOWLEDGED

COUNTERS: tuple[tuple[Limit, str], ...] = (
    ("tool_calls", "tool_granted"),
    ("turns", "turn_granted"),
    ("steps", "step.start"),
)
IDEMPOTENT = {"stamp", "sql_query", "write_file", "delegate", "mark"}
ASKED = ("permission:", "review:")
"""How the ids of causes begin that somebody decides about."""


class Audit:
    """One run's log beside its ledger.

    Attributes:
        run_id: the run.
        events: its log.
        ledger: what bodies wrote outside.
        state: what the log gives.
    """

    def __init__(self, run_id: str, events: Sequence[Event], ledger: Sequence[Mapping[str, str]]) -> None:
        self.run_id = run_id
        self.events = events
        self.ledger = ledger
        self.state: RunState = fold_run(events)

    @property
    def doubts(self) -> int:
        """How many records say that an outcome was in doubt: of a call, or of an attempt that was made again."""
        return sum(
            isinstance(event.data, ToolInDoubt | ToolReconciled)
            or (isinstance(event.data, ToolGranted) and event.data.previous == "in_doubt")
            for event in self.events
        )

    @property
    def doubled(self) -> int:
        """How many bodies that must not run twice did, for one entry."""
        posted = Counter(line["what"] for line in self.ledger if line["tool"] not in IDEMPOTENT)
        return sum(count - 1 for count in posted.values())

    def faults(self) -> Iterator[str]:
        """Say everything that is wrong."""
        yield from self._approval_faults()
        yield from self._end_faults()
        yield from self._body_faults()
        yield from self._budget_faults()

    def _end_faults(self) -> Iterator[str]:
        if not self.state.phase.is_terminal:
            yield f"it did not end: {self.state.phase}, {[cause.id for cause in self.state.causes]}"
            return
        ends = [event.type for event in self.events if event.type == "session.complete"]
        if len(ends) != 1 or self.events[-2].type != "session.complete":
            yield f"{len(ends)} ends of its session"
        if fold_run(self.events[:-1]).phase.is_terminal:
            yield "an event follows its end"
        if self.state.outcome is None or self.state.outcome.code not in {"goal_met", "cancelled"}:
            yield f"it ended {self.state.phase}: {self.state.outcome}"
        session = fold_session(self.events)
        if session.phase is not SessionPhase.DONE or session.outcome != getattr(self.state.outcome, "code", None):
            yield f"its session ended {session.phase}, {session.outcome!r}"

    def _body_faults(self) -> Iterator[str]:
        granted = {
            (item.data.call_id, str(item.data.attempt)) for item in self.events if isinstance(item.data, ToolGranted)
        }
        bodies = Counter((line["call"], line["attempt"]) for line in self.ledger)
        for (call, attempt), count in bodies.items():
            if count > 1:
                yield f"the body of call {call} ran {count} times in attempt {attempt}"
            if (call, attempt) not in granted:
                yield f"the body of call {call} ran in attempt {attempt} without a grant"
        for line in self.ledger:
            if line["tool"] not in IDEMPOTENT and line["attempt"] != "1":
                yield f"call {line['call']} of {line['tool']} was made again"
        if self.doubled:
            yield f"{self.doubled} bodies ran twice, {self.doubts} records of doubt"

    def _budget_faults(self) -> Iterator[str]:
        types = Counter(event.type for event in self.events)
        used, limits = self.state.budget.used, self.state.budget.limits
        settled = [event.data.used for event in self.events if isinstance(event.data, BudgetSettled)]
        for name, kind in COUNTERS:
            limit = limits.limit(name)
            made = types[kind] + sum(getattr(amounts, name) for amounts in settled)
            if getattr(used, name) != made or (limit is not None and made > limit):
                yield f"{types[kind]} × {kind}, with its children {made}, counted {getattr(used, name)} of {limit}"
        if self.state.reservations:
            yield f"shares were never settled: {self.state.reservations}"
        if types["tool_granted"] < len(self.ledger):
            yield f"{len(self.ledger)} bodies for {types['tool_granted']} grants"

    def _approval_faults(self) -> Iterator[str]:
        """Say what is wrong with what was decided about: asked once, answered once, made once if it was allowed, and never if it was denied."""
        asked = {item.data.cause.id: item.data.cause for item in self.events if isinstance(item.data, Blocked)}
        times, answers = self._times(Blocked), self._times(Unblocked)
        granted = Counter(item.data.call_id for item in self.events if isinstance(item.data, ToolGranted))
        made = Counter(line["call"] for line in self.ledger)
        for cause_id, cause in asked.items():
            most = max(times[cause_id], answers[cause_id])
            if cause_id.startswith(ASKED) and most > 1:
                yield f"{cause_id} was asked {times[cause_id]} times and answered {answers[cause_id]} times"
            if (
                cause.kind == "permission"
                and self._is_denied(cause_id)
                and (granted[cause.call_id] or made[cause.call_id])
            ):
                yield f"call {cause.call_id} was denied and made"
            is_allowed = cause.kind == "permission" and answers[cause_id] and not self._is_denied(cause_id)
            if is_allowed and (granted[cause.call_id] > 1 or made[cause.call_id] > 1):
                yield f"call {cause.call_id} was allowed once and made {made[cause.call_id]} times"
            if cause_id.startswith(ASKED) and not answers[cause_id] and granted[cause.call_id]:
                yield f"call {cause.call_id} was made before anybody decided about it"

    def _times(self, kind: type[Blocked | Unblocked]) -> Counter[str]:
        """Return how often at most each cause came, or went, under one plan; a step that is planned anew may be asked about anew."""
        most, times = Counter[str](), Counter[str]()
        for event in self.events:
            if isinstance(event.data, PlanCommit):
                times.clear()
            elif isinstance(event.data, kind):
                name = event.data.cause.id if isinstance(event.data, Blocked) else event.data.cause_id
                times[name] += 1
                most[name] = max(most[name], times[name])
        return most

    def _is_denied(self, cause_id: str) -> bool:
        answers = (
            item.data.answer.value
            for item in self.events
            if isinstance(item.data, Unblocked) and item.data.cause_id == cause_id
        )
        return any(answer == "deny" or (isinstance(answer, dict) and "deny" in answer) for answer in answers)

    @property
    def children(self) -> Sequence[str]:
        """The ids of the runs that it started."""
        return tuple(event.data.child for event in self.events if isinstance(event.data, BudgetReserved))


async def audit_of(arena: Arena, run_id: str) -> Audit:
    """Return a run's log beside its ledger."""
    return Audit(run_id, await arena.events(run_id), arena.ledger(run_id))


async def faults_of(arena: Arena, audit: Audit, notes: Sequence[str] = ()) -> list[str]:
    """Return everything that is wrong with a run.

    Args:
        arena: where it is.
        audit: its log and ledger.
        notes: ids of the events that commands of the suite were told are stored.
    """
    faults = list(audit.faults())
    for child in audit.children:
        faults += [f"child {child}: {fault}" for fault in await faults_of(arena, await audit_of(arena, child))]
    replay = await replay_run(arena.store, audit.run_id)
    if replay.divergence is not None:
        faults.append(f"replay differs at {replay.divergence.offset}: {replay.divergence.reason}")
    ids = [event.event_id for event in audit.events]
    faults += [f"acknowledged event {item} is lost" for item in notes if item not in ids]
    for promise in _promises(arena.folder / ACKNOWLEDGED, audit.run_id):
        begin = promise.version - len(promise.ids)
        if tuple(ids[begin : promise.version]) != promise.ids:
            faults.append(f"acknowledged events at {begin} are lost or others: {promise.ids}")
    return faults


class _Promise(msgspec.Struct):
    """A batch whose append returned."""

    run: str
    version: int
    ids: tuple[str, ...]


def _promises(file: Path, run_id: str) -> list[_Promise]:
    # Only lines that name the run are decoded: the file holds those of hundreds.
    lines = [line for line in file.read_bytes().splitlines() if run_id.encode() in line] if file.exists() else []
    promises = [msgspec.json.decode(line, type=_Promise) for line in lines]
    return [promise for promise in promises if promise.run == run_id]
