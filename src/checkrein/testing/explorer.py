"""Walks every interleaving of two workers, a user, the clock and crashes over the lifecycle's closed state space.

`explore(scenario)` starts from a received run and follows every move of every actor from every state until no new state is found; no history is bounded in
length. After every move the invariants of `INVARIANTS` are checked, and at the end that an end is reachable from every state. A broken invariant
comes back as a `Violation` with the shortest history that breaks it. The lifecycle explored is the real one: pass `transition=` to explore a
changed one, for instance `partial(transition_under, guards)` without one of the guards, and see what that guard is for.

    from checkrein.testing.explorer import SCENARIOS, explore

    found = explore(SCENARIOS[0])
    assert found.closed and found.violation is None, found.violation

The world: two workers, of which one holds the newest lease; each knows the version it read last and the epoch it was given, which may both be old. The
user steers, cancels, answers causes, reconciles calls, extends the budget (and sends that twice), closes. Leases expire; a lease of a crashed worker is taken at once.
The bytes on disk may be written by a worker that has lost its lease. What each worker may do is in `explorer_moves.py`, how the lifecycle is
asked in `explorer_model.py`, what the invariants are measured with in `explorer_ghosts.py`, and the walk in `explorer_world.py`. No clock, no I/O.
"""

from typing import Final, NamedTuple

from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import ToolSpec
from checkrein.kernel.run import transition as lifecycle_transition
from checkrein.testing.explorer_ghosts import INVARIANTS
from checkrein.testing.explorer_model import Lifecycle, Scenario, Transition
from checkrein.testing.explorer_world import BrokenInvariant, World

__all__ = ["INVARIANTS", "SCENARIOS", "SOAK_SCENARIOS", "Exploration", "Scenario", "Transition", "Violation", "explore"]


def _budget(turns: int, tool_calls: int, repairs: int) -> Budget:
    return Budget(turns=turns, tool_calls=tool_calls, repairs=repairs)


_PLAIN: Final = ToolSpec("send_mail")
_PROBED: Final = ToolSpec("book_room", has_probe=True)
_IDEMPOTENT: Final = ToolSpec("write_file", idempotent=True)

SCENARIOS: Final = (
    Scenario("two calls of a plain tool, a repair, questions", _PLAIN, _budget(0, 2, 1), asks=True),
    Scenario("an idempotent tool run again, a repair", _IDEMPOTENT, _budget(0, 2, 1), accepts=True),
    Scenario("two calls with probes and jobs", _PROBED, _budget(0, 2, 0), accepts=True),
    Scenario("probes, a repair, lost answers", _PROBED, _budget(0, 1, 1), accepts=True, loses_answers=True),
    Scenario("turns, jobs, questions", _PLAIN, _budget(1, 1, 1), asks=True, accepts=True),
    Scenario("turns asked again, lost answers", _PLAIN, _budget(2, 1, 0), loses_answers=True),
    Scenario("more tool calls", _IDEMPOTENT, _budget(0, 1, 0), Amounts(tool_calls=1), loses_answers=True),
    Scenario("calls that wait for a caller", _PLAIN, _budget(0, 2, 0), pulls=True),
    Scenario("shares of child runs, a repair", _PLAIN, _budget(0, 2, 1), lends=True),
    Scenario("steps", _IDEMPOTENT, Budget(turns=0, tool_calls=1, steps=2, repairs=0), counts_steps=True),
    Scenario("more turns", _PLAIN, _budget(1, 0, 0), Amounts(turns=1), asks=True, loses_answers=True),
)
"""What every push explores; each closes by itself."""
SOAK_SCENARIOS: Final = (
    Scenario(
        "two calls with probes and jobs, lost answers", _PROBED, _budget(0, 2, 0), accepts=True, loses_answers=True
    ),
    Scenario("a turn and two calls of a plain tool", _PLAIN, _budget(1, 2, 0), asks=True),
    Scenario("a turn and two runs of an idempotent tool", _IDEMPOTENT, _budget(1, 2, 0)),
    Scenario(
        "turns, probes, jobs, questions, lost answers",
        _PROBED,
        _budget(1, 1, 1),
        asks=True,
        accepts=True,
        loses_answers=True,
    ),
    Scenario("a turn, a repair, more tool calls", _PLAIN, _budget(1, 1, 1), Amounts(tool_calls=1)),
)
"""What a long test explores besides: almost four times as much again, in up to 800 MB of memory."""


class Violation(NamedTuple):
    """A broken invariant.

    Attributes:
        invariant: its number in `INVARIANTS`.
        message: what exactly was wrong.
        history: the shortest one that breaks it, a line for each move.
    """

    invariant: int
    message: str
    history: tuple[str, ...]

    def __str__(self) -> str:
        """Show the invariant, what was wrong and the numbered history."""
        lines = (f"{number:4}. {line}" for number, line in enumerate(self.history, start=1))
        return "\n".join((f"invariant {self.invariant} ({INVARIANTS[self.invariant]}): {self.message}", *lines))


class Exploration(NamedTuple):
    """What an exploration found.

    Attributes:
        scenario: name of what was explored.
        states: distinct states of the world.
        lifecycle_states: distinct states of the run in them, versions and epochs as differences.
        transitions: moves followed.
        refused: moves among them in which the lifecycle refused an event.
        closed: every move from every state was followed.
        violation: the first broken invariant, None when all hold.
    """

    scenario: str
    states: int
    lifecycle_states: int
    transitions: int
    refused: int
    closed: bool
    violation: Violation | None

    def __str__(self) -> str:
        """Show the numbers on one line."""
        return (
            f"{self.scenario}: {self.states:,} states ({self.lifecycle_states:,} of the run), {self.transitions:,} transitions"
            f" ({self.refused:,} refused), closed={'yes' if self.closed else 'no'}"
        )


def explore(
    scenario: Scenario,
    *,
    transition: Transition = lifecycle_transition,
    known_ids: bool = True,
    most_states: int = 5_000_000,
) -> Exploration:
    """Follow every move from every reachable state.

    Args:
        scenario: the tool, the budgets and what may happen.
        transition: the lifecycle to explore.
        known_ids: False explores a store that forgets the event ids it has accepted.
        most_states: give up, with `closed` False, when there are more.
    """
    world = World(scenario, Lifecycle(scenario, transition), known_ids=known_ids)
    violation = None
    try:
        world.walk(most_states)
    except BrokenInvariant as broken:
        number, _, message = broken.message.partition(": ")
        violation = Violation(int(number), message, broken.history)
    return Exploration(
        scenario=scenario.name,
        states=world.states,
        lifecycle_states=len(world.lifecycle.states),
        transitions=world.transitions,
        refused=world.refused,
        closed=world.is_closed and violation is None,
        violation=violation,
    )
