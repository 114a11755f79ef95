"""The idiom of every state machine in checkrein, once.

Theory of operation. A machine is a table `phase × event type → possible next phases`. A cell may name several successors: the event's handler chooses
one, and `evolve` ties that choice to the table, so an edge that is not drawn cannot be taken, whatever a handler computes. A missing cell *is* the
refusal: `IllegalTransition` names machine, phase, event, subject and what would have been legal. Handlers are pure functions of state and event and
return a new state; an illegal event therefore leaves the old state untouched by construction.

The module knows no particular machine. Diagrams and tables in the docs are generated from the tables here.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import force_setattr

from checkrein.errors import IllegalTransition

__all__ = ["Machine", "fold"]


class _HasPhase(Protocol):
    @property
    def phase(self) -> StrEnum: ...


S = TypeVar("S", bound=_HasPhase)
E = TypeVar("E")


class Machine(msgspec.Struct, Generic[S, E], frozen=True):
    """One state machine.

    Attributes:
        name: used in errors and diagrams.
        initial: phases a subject may start in.
        ends: terminal phases; their rows are empty.
        edges: `phase → event type → possible next phases`.
        handlers: `event type → (state, event) → next state`; the next state's `phase` is the handler's choice.
        type_of: the type of an event, as named in `edges`.
        subject_of: the id of a state's subject, for errors.
        steps: made of the others: `phase → event type → handler and possible next phases`, what one event needs in one place.
    """

    name: str
    initial: tuple[StrEnum, ...]
    ends: frozenset[StrEnum]
    edges: Mapping[StrEnum, Mapping[str, tuple[StrEnum, ...]]]
    handlers: Mapping[str, Callable[[S, E], S]]
    type_of: Callable[[E], str]
    subject_of: Callable[[S], str]
    steps: Mapping[StrEnum, Mapping[str, tuple[Callable[[S, E], S], tuple[StrEnum, ...]]]] = {}

    def __post_init__(self) -> None:
        """Join handlers and edges; an event without a handler has no step."""
        steps = {
            phase: {
                kind: (self.handlers[kind], targets)
                for kind, targets in row.items()
                if targets and kind in self.handlers
            }
            for phase, row in self.edges.items()
        }
        force_setattr(self, "steps", steps)

    def successors(self, phase: StrEnum, event_type: str) -> tuple[StrEnum, ...]:
        """Return the phases that event may lead to; empty when it is illegal there."""
        return self.edges.get(phase, {}).get(event_type, ())

    def evolve(self, state: S, event: E) -> S:
        """Return the state after `event`.

        Raises:
            IllegalTransition: the table has no edge for the event, or not the one its handler chose.
        """
        return self.take(state, self.type_of(event), event)

    def take(self, state: S, kind: str, event: E) -> S:
        """Do what `evolve` does for an event whose type is known.

        Raises:
            IllegalTransition: as `evolve`.
        """
        step = self.steps[state.phase].get(kind)
        if step is not None:
            handler, targets = step
            after = handler(state, event)
            if after.phase in targets:
                return after
        legal = tuple(sorted(name for name, cells in self.edges.get(state.phase, {}).items() if cells))
        raise IllegalTransition(self.name, state.phase, kind, self.subject_of(state), legal)

    def broken_laws(self) -> tuple[str, ...]:
        """Return the laws of tables that this one breaks, in words; empty for a sound machine.

        The laws: every phase is reachable from an initial one, every event is legal somewhere and has a handler, terminal rows are
        empty, every other row is not, and every named successor is a phase of the table.
        """
        phases = set(self.edges)
        seen = set(self.initial)
        frontier = list(seen)
        while frontier:
            for targets in self.edges.get(frontier.pop(), {}).values():
                fresh = set(targets) - seen
                seen |= fresh
                frontier.extend(fresh)
        legal = {kind for row in self.edges.values() for kind, targets in row.items() if targets}
        broken = [f"{phase} is not reachable" for phase in sorted(phases - seen)]
        broken += [f"{phase} is named but has no row" for phase in sorted(seen - phases)]
        broken += [f"{kind} is legal nowhere" for kind in sorted(set(self.handlers) - legal)]
        broken += [f"{kind} has no handler" for kind in sorted(legal - set(self.handlers))]
        broken += [f"{phase} is terminal and has edges" for phase in sorted(self.ends) if self.edges.get(phase)]
        broken += [
            f"{phase} is a dead end" for phase in sorted(phases - self.ends) if not any(self.edges[phase].values())
        ]
        return tuple(broken)

    def to_mermaid(self) -> str:
        """Draw the table as a Mermaid state diagram; self-loops are left out, parallel edges share one arrow."""
        lines = ["stateDiagram-v2"]
        lines += [f"    [*] --> {phase}" for phase in self.initial]
        for phase, row in self.edges.items():
            labels: dict[StrEnum, list[str]] = {}
            for kind, targets in row.items():
                for target in targets:
                    if target != phase:
                        labels.setdefault(target, []).append(kind)
            lines += [f"    {phase} --> {target}: {', '.join(kinds)}" for target, kinds in labels.items()]
        lines += [f"    {phase} --> [*]" for phase in self.edges if phase in self.ends]
        return "\n".join(lines) + "\n"

    def to_markdown(self) -> str:
        """Draw the table as Markdown: a row per event, a column per phase that has edges; `=` stays, `–` is illegal."""
        columns = [phase for phase in self.edges if phase not in self.ends]
        lines = ["| event | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
        for kind in self.handlers:
            cells = [_cell(phase, self.successors(phase, kind)) for phase in columns]
            lines.append(f"| `{kind}` | " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"


def _cell(phase: StrEnum, targets: tuple[StrEnum, ...]) -> str:
    return " or ".join("=" if target == phase else str(target) for target in targets) or "–"


def fold(evolve: Callable[[S, E], S], state: S, events: Iterable[E]) -> S:
    """Apply `evolve` to each event in order and return the last state."""
    for event in events:
        state = evolve(state, event)
    return state
