"""The explored world: every state of run, workers, lease, disk and ghosts as one integer, walked breadth first.

Breadth first gives the shortest history to every state, so a broken invariant is reported with the shortest one. Moves are worked out once for every
combination that they depend on; the walk itself only adds integers.
"""

from array import array
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

from checkrein.kernel.state import is_claimable
from checkrein.testing.explorer_ghosts import Deed, Ghost, Limits
from checkrein.testing.explorer_model import HOLDER, LOSER, Lifecycle, Scenario
from checkrein.testing.explorer_moves import IDLE, Mode, Move, Moves

__all__ = ["BrokenInvariant", "World"]

T = TypeVar("T", bound=Hashable)

# Where the parts of a state stand in its integer, from the low end: the run's canonical state, the mode of the worker that took the newest lease, the other
# one's, the lease, the bytes on disk, the ghosts.
_NODE, _MODE = 0xFFFF, 0x3FF
_HOLDER_AT, _OTHER_AT, _LEASE_AT, _DISK_AT, _GHOST_AT = 16, 26, 36, 38, 40
_FREE, _LIVE, _EXPIRED = 0, 1, 2
# Who moves, as it stands in a label; the lowest bit of a label says that the two workers change places.
_HOLDS, _OTHER, _PERSON, _CLOCK = 0, 1, 2, 3


class BrokenInvariant(Exception):
    """An invariant does not hold; `history` has a line for each move that leads there."""

    def __init__(self, message: str, history: tuple[str, ...]) -> None:
        super().__init__(message)
        self.message = message
        self.history = history


class _Step(NamedTuple):
    """A move with everything it fixes: `fixed` holds its parts of the next state, the others are carried over."""

    fixed: int
    deed: int
    spread: int
    frees: bool
    refused: bool
    broken: str | None
    label: int


class _Pool(Generic[T]):
    """Numbers for values."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        """Return the value's number, a new one the first time."""
        known = self._numbers.get(value)
        if known is None:
            known = self._numbers[value] = len(self.values)
            self.values.append(value)
        return known


class _Memo(dict[int, int]):
    """A function of integers, worked out once for each."""

    def __init__(self, work: Callable[[int], int]) -> None:
        super().__init__()
        self._work = work

    def __missing__(self, key: int) -> int:
        value = self[key] = self._work(key)
        return value


class World:
    """One scenario's world.

    Attributes:
        lifecycle: the run's canonical states.
        transitions: moves followed so far.
        refused: moves among them in which the lifecycle refused an event.
    """

    def __init__(self, scenario: Scenario, lifecycle: Lifecycle, *, known_ids: bool) -> None:
        self.lifecycle = lifecycle
        self.transitions = 0
        self.refused = 0
        self._moves = Moves(scenario, lifecycle, known_ids=known_ids)
        self._extension = Limits(scenario.extension.tool_calls, scenario.extension.turns)
        self._modes = _Pool[Mode]()
        self._disks = _Pool[str]()
        self._ghosts = _Pool[Ghost]()
        self._deeds = _Pool[Deed]()
        self._texts = _Pool[str]()
        self._objections: list[str] = []
        self._steps: dict[int, tuple[_Step, ...]] = {}
        self._spread = _Memo(self._spread_mode)
        self._ghost_after = _Memo(self._judged)
        self._states: list[int] = []
        self._numbers: dict[int, int] = {}
        self._parents = array("I")
        self._labels = array("I")
        self._targets = array("I")
        self._starts = array("I")
        self._modes.number(IDLE)
        self._disks.number("")
        self._deeds.number(Deed(""))
        allowed = Limits(scenario.budget.tool_calls or 0, scenario.budget.turns or 0)
        self._found(self._ghosts.number(Ghost(allowed)) << _GHOST_AT, 0, 0)

    @property
    def states(self) -> int:
        """Number of states found so far."""
        return len(self._states)

    @property
    def is_closed(self) -> bool:
        """Whether every move from every state found was followed."""
        return len(self._starts) == len(self._states)

    def walk(self, most_states: int) -> None:
        """Follow every move from every state, then look for states without a way to an end; give up once there are more than `most_states`.

        Raises:
            BrokenInvariant: at the first one that does not hold.
        """
        number = 0
        while number < len(self._states):
            if len(self._states) > most_states:
                return
            self._starts.append(len(self._targets))
            self._follow(number)
            number += 1
        lost = self._first_without_end()
        if lost is not None:
            raise BrokenInvariant("7: no end is reachable from here", self._history(lost))

    def _follow(self, number: int) -> None:
        state = self._states[number]
        numbers, targets = self._numbers, self._targets
        moves = refused = 0
        for target, step in self._successors(number, state):
            moves += 1
            refused += step.refused
            if target != state:
                found = numbers.get(target)
                targets.append(self._found(target, number, step.label) if found is None else found)
        self.transitions += moves
        self.refused += refused

    def _found(self, state: int, parent: int, label: int) -> int:
        number = self._numbers[state] = len(self._states)
        self._states.append(state)
        self._parents.append(parent)
        self._labels.append(label)
        return number

    def _successors(self, number: int, state: int) -> Iterator[tuple[int, _Step]]:
        """Yield the next state and the step for every move of every actor."""
        holder, other = state >> _HOLDER_AT & _MODE, state >> _OTHER_AT & _MODE
        lease, ghost = state & 3 << _LEASE_AT, state >> _GHOST_AT << 12
        spread, ghost_after = self._spread, self._ghost_after
        for slot, mine, theirs, at in ((_HOLDS, holder, other, _OTHER_AT), (_OTHER, other, holder, _HOLDER_AT)):
            for step in self._worker_steps(state, mine, slot) if mine else ():
                after = ghost_after[ghost | step.deed]
                if after < 0 or step.broken:
                    self._object(number, step, after)
                kept = 0 if step.frees else lease
                yield step.fixed | spread[theirs << 2 | step.spread] << at | kept | after << _GHOST_AT, step
        for step in self._user_steps(state):
            after = ghost_after[ghost | step.deed]
            if after < 0 or step.broken:
                self._object(number, step, after)
            modes = spread[holder << 2 | step.spread] << _HOLDER_AT | spread[other << 2 | step.spread] << _OTHER_AT
            yield step.fixed | modes | (0 if step.frees else lease) | after << _GHOST_AT, step
        yield from self._lease_steps(number, state)

    def _lease_steps(self, number: int, state: int) -> Iterator[tuple[int, _Step]]:
        """Yield expiry, renewal and takeover; a lease whose owner crashed is taken at once."""
        node, lease = state & _NODE, state >> _LEASE_AT & 3
        holder, other = state >> _HOLDER_AT & _MODE, state >> _OTHER_AT & _MODE
        run = self.lifecycle.states[node]
        if run.phase.is_terminal:
            return
        rest = state & ~(3 << _LEASE_AT)
        if lease == _LIVE:
            yield rest | _EXPIRED << _LEASE_AT, self._bare("the lease expires", _CLOCK)
        if lease == _EXPIRED and holder:
            yield rest | _LIVE << _LEASE_AT, self._bare("renews the lease", _HOLDS)
        if is_claimable(run) and (lease != _LIVE or not holder):
            if not holder:
                yield from self._claims(number, state, _HOLDS, left=other)
            if not other:
                yield from self._claims(number, state, _OTHER, left=holder)

    def _claims(self, number: int, state: int, slot: int, *, left: int) -> Iterator[tuple[int, _Step]]:
        key = state & _NODE | state & 3 << _DISK_AT | (4 + slot) << _GHOST_AT
        for step in self._known(key, lambda: self._claim_of(state, slot)):
            after = self._ghost_after[state >> _GHOST_AT << 12 | step.deed]
            if after < 0 or step.broken:
                self._object(number, step, after)
            moved = self._spread[left << 2 | step.spread] << _OTHER_AT
            yield step.fixed | moved | _LIVE << _LEASE_AT | after << _GHOST_AT, step

    def _claim_of(self, state: int, slot: int) -> Iterator[_Step]:
        move = self._moves.of_claimant(state & _NODE, self._disk(state))
        if move is not None:
            yield self._step(move, _HOLDER_AT, slot, swaps=slot == _OTHER)

    def _worker_steps(self, state: int, mode: int, slot: int) -> tuple[_Step, ...]:
        key = state & _NODE | mode << _HOLDER_AT | state & 3 << _DISK_AT | slot << _GHOST_AT
        return self._steps.get(key) or self._known(key, lambda: self._moves_of_worker(state, mode, slot))

    def _moves_of_worker(self, state: int, mode: int, slot: int) -> Iterator[_Step]:
        sender = HOLDER if slot == _HOLDS else LOSER
        for move in self._moves.of_worker(state & _NODE, self._modes.values[mode], self._disk(state), sender):
            yield self._step(move, _HOLDER_AT if slot == _HOLDS else _OTHER_AT, slot)

    def _user_steps(self, state: int) -> tuple[_Step, ...]:
        extended = self._ghosts.values[state >> _GHOST_AT].extended
        key = state & _NODE | state & 3 << _DISK_AT | (2 + extended) << _GHOST_AT
        return self._steps.get(key) or self._known(key, lambda: self._moves_of_user(state, extended=extended))

    def _moves_of_user(self, state: int, *, extended: bool) -> Iterator[_Step]:
        for move in self._moves.of_user(state & _NODE, self._disk(state), extended=extended):
            yield self._step(move, None, _PERSON)

    def _known(self, key: int, work: Callable[[], Iterator[_Step]]) -> tuple[_Step, ...]:
        steps = self._steps.get(key)
        if steps is None:
            steps = self._steps[key] = tuple(work())
        return steps

    def _step(self, move: Move, mode_at: int | None, actor: int, *, swaps: bool = False) -> _Step:
        mode = 0 if mode_at is None else self._modes.number(move.mode) << mode_at
        return _Step(
            fixed=move.node | mode | self._disks.number(move.disk) << _DISK_AT,
            deed=0 if move.deed is None else self._deeds.number(move.deed),
            spread=move.appends + move.restarts,
            frees=(move.releases and actor == _HOLDS) or self.lifecycle.states[move.node].phase.is_terminal,
            refused=move.refused,
            broken=move.broken,
            label=self._texts.number(move.text) << 3 | actor << 1 | swaps,
        )

    def _bare(self, text: str, actor: int) -> _Step:
        return _Step(0, 0, 0, frees=False, refused=False, broken=None, label=self._texts.number(text) << 3 | actor << 1)

    def _disk(self, state: int) -> str:
        return self._disks.values[state >> _DISK_AT & 3]

    def _spread_mode(self, key: int) -> int:
        mode, spread = self._modes.values[key >> 2], key & 3
        return self._modes.number(mode.after_append(restarts=spread > 1)) if spread else key >> 2

    def _judged(self, key: int) -> int:
        """Return the ghosts after a deed, or a negative number for the invariant it breaks."""
        if not key & 0xFFF:
            return key >> 12
        ghost, broken = self._ghosts.values[key >> 12].after(self._deeds.values[key & 0xFFF], self._extension)
        if broken is None:
            return self._ghosts.number(ghost)
        self._objections.append(broken)
        return -len(self._objections)

    def _object(self, number: int, step: _Step, after: int) -> None:
        message = self._objections[-after - 1] if after < 0 else step.broken
        raise BrokenInvariant(message or "", self._history(number, step.label, step.fixed & _NODE))

    def _history(self, number: int, *last: int) -> tuple[str, ...]:
        """Write the shortest history to a state, and the move that would have led on."""
        path: list[tuple[int, int]] = [] if not last else [(last[0], last[1])]
        while number:
            path.append((self._labels[number], self._states[number] & _NODE))
            number = self._parents[number]
        names = ["worker A", "worker B"]
        lines: list[str] = []
        phase = self.lifecycle.states[0].phase
        for label, node in reversed(path):
            actor = label >> 1 & 3
            who = "user" if actor == _PERSON else "clock" if actor == _CLOCK else names[actor]
            after = self.lifecycle.states[node].phase
            lines.append(f"{who}: {self._texts.values[label >> 3]}{'' if after is phase else f' → {after}'}")
            phase = after
            if label & 1:
                names.reverse()
        return tuple(lines)

    def _first_without_end(self) -> int | None:
        """Search backwards from all ends; return the first state that the search does not reach, or None."""
        count = len(self._states)
        sources = self._sources()
        reached = bytearray(count)
        states = self.lifecycle.states
        frontier = [number for number in range(count) if states[self._states[number] & _NODE].phase.is_terminal]
        for number in frontier:
            reached[number] = 1
        starts, origins = sources
        while frontier:
            number = frontier.pop()
            for origin in origins[starts[number] : starts[number + 1]]:
                if not reached[origin]:
                    reached[origin] = 1
                    frontier.append(origin)
        lost = reached.find(0)
        return None if lost < 0 else lost

    def _sources(self) -> "tuple[array[int], array[int]]":
        """Turn the moves round: return where the origins of each state begin, and all origins."""
        count = len(self._states)
        starts = array("I", bytes(4 * (count + 1)))
        for target in self._targets:
            starts[target + 1] += 1
        for number in range(count):
            starts[number + 1] += starts[number]
        free = array("I", starts)
        origins = array("I", bytes(4 * len(self._targets)))
        ends = [*self._starts[1:], len(self._targets)]
        begin = 0
        for number, end in enumerate(ends):
            for target in self._targets[begin:end]:
                origins[free[target]] = number
                free[target] += 1
            begin = end
        return starts, origins
