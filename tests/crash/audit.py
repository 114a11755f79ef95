"""What must be true of every run that was killed on its way: its log, what was acknowledged, and the world outside are compared.

Nothing is taken from memory of the suite: the log comes from the store, the acknowledgements and the ledger from files that the killed processes wrote.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from checkrein.kernel.budget import Limit
from checkrein.kernel.events import Event, ToolGranted, ToolInDoubt, ToolReconciled
from checkrein.kernel.run import fold_run
from checkrein.kernel.state import RunState
from checkrein.runs.replay import replay_run
from tests.crash.arena import Arena
from tests.crash.child import ACKNOWLEDGED

COUNTERS: tuple[tuple[Limit, str], ...] = (
    ("tool_calls", "tool_granted"),
    ("turns", "turn_granted"),
    ("steps", "step.start"),
)
IDEMPOTENT = {"stamp", "sql_query", "write_file"}


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
        for name, kind in COUNTERS:
            limit = limits.limit(name)
            if getattr(used, name) != types[kind] or (limit is not None and types[kind] > limit):
                yield f"{types[kind]} × {kind}, counted {getattr(used, name)} of {limit}"
        if types["tool_granted"] < len(self.ledger):
            yield f"{len(self.ledger)} bodies for {types['tool_granted']} grants"


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
    replay = await replay_run(arena.store, audit.run_id)
    if replay.divergence is not None:
        faults.append(f"replay differs at {replay.divergence.offset}: {replay.divergence.reason}")
    ids = [event.event_id for event in audit.events]
    faults += [f"acknowledged event {item} is lost" for item in notes if item not in ids]
    for promise in _promises(arena.folder / ACKNOWLEDGED):
        begin = promise.version - len(promise.ids)
        if promise.run == audit.run_id and tuple(ids[begin : promise.version]) != promise.ids:
            faults.append(f"acknowledged events at {begin} are lost or others: {promise.ids}")
    return faults


class _Promise(msgspec.Struct):
    """A batch whose append returned."""

    run: str
    version: int
    ids: tuple[str, ...]


def _promises(file: Path) -> list[_Promise]:
    lines = file.read_bytes().splitlines() if file.exists() else []
    return [msgspec.json.decode(line, type=_Promise) for line in lines]
