"""Kills: a run is killed at every recorded point and at random times, again and again, and then finished, a share of the runs by `checkrein resume`.

Several runs at a time share one store. The first run is left in peace: its points are the list of what must be covered. Somebody is asked on the way, so its work is done
in several stretches, each by a process of its own; a point is told by its stretch and its number in it.
"""

import asyncio
import json
import random  # noqa: TID251  seeded, so that a campaign can be made again
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from checkrein.kernel.budget import Budget
from checkrein.kernel.state import RunState, is_claimable
from tests.crash.arena import Arena, Child
from tests.crash.audit import audit_of, faults_of
from tests.crash.child import DEATHS, LEASE_SECONDS, Job

LANES = 4
ROUNDS = 60
"""Processes that may work on one run before it counts as one that never ends."""
MORE_KILLS, MOST_KILLS_OF_A_RUN = 0.12, 4
"""Share of the runs that are killed more than once, and how often at most."""
BY_COMMAND = 0.15
"""Share of the runs that are finished from the command line; a process that is forked is cheaper."""
TIMED = 0.6
"""Share of the kills, after the first one of a run, that fall at a time and not at a point: they find what no point names."""
TIGHT, STEERED, CANCELLED = 0.3, 0.1, 0.05
"""Shares of the runs that begin with too small a budget, and of the kills after which somebody steers or cancels."""
TIGHT_BUDGET = Budget(tool_calls=6, turns=6, replans=50, repairs=8)


@dataclass
class Tally:
    """What a campaign came to."""

    seed: int
    kills: int = 0
    at_points: int = 0
    at_random: int = 0
    processes: int = 0
    runs: int = 0
    doubts: int = 0
    doubled: int = 0
    answers: int = 0
    points: int = 0
    covered: set[int] = field(default_factory=set[int])
    names: Counter[str] = field(default_factory=Counter[str])
    ends: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    def __str__(self) -> str:
        """Say it in lines."""
        ends = ", ".join(f"{code} {count}" for code, count in sorted(self.ends.items()))
        lines = [
            f"kill -9: {self.kills} kills ({self.at_points} at points, {self.at_random} at random times) in {self.seconds:.0f} s, seed {self.seed}",
            f"  points covered: {len(self.covered)} of {self.points} of a clean run; {len(self.names)} different ones in all",
            f"  runs: {self.runs} in {self.processes} processes; ends: {ends}",
            f"  in-doubt records: {self.doubts}; answers by a person: {self.answers}; doubled bodies: {self.doubled}; faults: {len(self.faults)}",
        ]
        return "\n".join([*lines, *(f"  FAULT {fault}" for fault in self.faults[:20])])


class Campaign:
    """Kills workers until enough are dead and every run has ended.

    Args:
        folder: an empty folder.
        kills: how many.
        seed: decides where and when.
    """

    def __init__(self, folder: Path, *, kills: int, seed: int) -> None:
        self._arena = Arena(folder)
        self._kills = kills
        self._tally = Tally(seed)
        self._begun = 0
        self._clean_seconds = 1.0
        self._stretches: Sequence[int] = ()

    async def run(self) -> Tally:
        """Do it."""
        begun = self._arena.clock.monotonic()
        code, out = await self._arena.command("trust", str(self._arena.folder / "task"))
        assert code == 0, out
        person = self._arena.clock.spawn(self._arena.tend_children(), name="person")
        try:
            await self._clean_run()
            await asyncio.gather(*(self._lane() for _ in range(LANES)))
            code, out = await self._arena.command("verify")
            if code != 0:
                self._tally.faults.append(f"checkrein verify says: {out[-400:]}")
        finally:
            person.cancel()
            await self._arena.aclose()
        self._tally.names.update(_deaths(self._arena.folder / DEATHS))
        self._tally.seconds = self._arena.clock.monotonic() - begun
        return self._tally

    async def _clean_run(self) -> None:
        # Twice, because the first process of all pays for what later ones find in memory.
        for _ in range(2):
            run_id = await self._arena.submit()
            begun = self._arena.clock.monotonic()
            said = await self._arena.finish(run_id, "worker")
            assert said[-1].phase == "SUCCEEDED", said
            self._clean_seconds = (self._arena.clock.monotonic() - begun) / len(said)
            self._stretches = [len(item.points) for item in said]
        self._tally.points = sum(self._stretches)

    async def _lane(self) -> None:
        while self._tally.kills < self._kills or self._begun < self._spread:
            self._begun += 1
            await _Victim(self, self._begun - 1).live()

    @property
    def arena(self) -> Arena:
        """Where it happens."""
        return self._arena

    @property
    def tally(self) -> Tally:
        """What it came to so far."""
        return self._tally

    @property
    def clean_seconds(self) -> float:
        """How long a stretch takes of a run that nobody kills."""
        return self._clean_seconds

    def first_point(self, number: int) -> int:
        """Return the point at which a run is killed first, 0 when every point had its turn; few kills are spread over all points."""
        return 1 + number * self._tally.points // self._spread if number < self._spread else 0

    def place_of(self, point: int) -> tuple[int, int]:
        """Return the stretch of a point of a clean run, and its number there; a point that is 0 is in the stretch before the first."""
        stretch = 0
        while stretch < len(self._stretches) - 1 and point > self._stretches[stretch]:
            point -= self._stretches[stretch]
            stretch += 1
        return stretch, point

    def length_of(self, stretch: int) -> int:
        """Return how many points a stretch has."""
        return self._stretches[min(stretch, len(self._stretches) - 1)]

    @property
    def _spread(self) -> int:
        return min(self._kills, self._tally.points)


class _Victim:
    """One run, from its submission to its end.

    Everything random about it comes from the campaign's seed and its number, whatever the other runs do meanwhile.
    """

    def __init__(self, campaign: Campaign, number: int) -> None:
        self._campaign = campaign
        self._arena = campaign.arena
        self._tally = campaign.tally
        self._number = number
        self._chance = random.Random(f"{campaign.tally.seed}/{number}")  # noqa: S311  no secret
        more = self._chance.random() < MORE_KILLS
        self._left = self._chance.randint(2, MOST_KILLS_OF_A_RUN) if more else 1
        self._by_command = self._chance.random() < BY_COMMAND
        self._first = campaign.first_point(number)
        self._stretch = 0
        self._notes: list[str] = []
        self._run_id = ""

    async def live(self) -> None:
        """Submit, kill, answer and finish the run, and hold it to what must be true."""
        # Too small a budget stops a run before its later points.
        is_tight = self._chance.random() < TIGHT and self._first <= self._tally.points // 2
        self._run_id = await self._arena.submit(TIGHT_BUDGET if is_tight else None)
        self._tally.runs += 1
        faults: list[str] = []
        for _ in range(ROUNDS):
            state = await self._arena.state(self._run_id)
            if state.phase.is_terminal:
                break
            try:
                await self._advance(state)
            except AssertionError as error:
                faults.append(str(error))
                break
        audit = await audit_of(self._arena, self._run_id)
        faults += await faults_of(self._arena, audit, self._notes)
        self._tally.doubts += audit.doubts
        self._tally.doubled += audit.doubled
        self._tally.ends[audit.state.outcome.code if audit.state.outcome else str(audit.state.phase)] += 1
        self._tally.faults += [f"run {self._number} ({self._run_id}): {fault}" for fault in faults]

    async def _advance(self, state: RunState) -> None:
        if not is_claimable(state):
            self._tally.answers += len(state.causes)
            await self._arena.answer(state, self._chance)
            self._stretch += 1
        elif self._first and self._campaign.place_of(self._first)[0] > self._stretch:
            await self._go_on()
        elif self._left:
            self._left -= 1
            await self._kill()
            await self._interfere()
        elif self._by_command:
            code, out = await self._arena.command("resume", self._run_id, "--lease", str(LEASE_SECONDS))
            self._tally.processes += 1
            assert code in {0, 1, 4, 5}, f"checkrein resume exits {code}: {out[-400:]}"
        else:
            await self._go_on()

    async def _go_on(self) -> None:
        """Let a process advance the run in peace."""
        self._tally.processes += 1
        await self._arena.advance(Job(str(self._arena.folder), self._run_id))

    async def _kill(self) -> None:
        """Kill one process that advances the run: at a point, or at a time."""
        first, self._first = self._first, 0
        is_timed = not first and self._chance.random() < TIMED
        drawn = self._chance.randint(1, self._campaign.length_of(self._stretch))
        at = 0 if is_timed else self._campaign.place_of(first)[1] if first else drawn
        seconds = self._chance.uniform(0, self._campaign.clean_seconds)
        child = Child(Job(str(self._arena.folder), self._run_id, at=at))
        self._tally.processes += 1
        try:
            await child.begun()
            if is_timed:
                await self._arena.clock.sleep(seconds)
                child.signal(signal.SIGKILL)
            code, said = await child.ended()
        finally:
            child.dispose()
        if code == -signal.SIGKILL:
            self._tally.kills += 1
            self._tally.at_random += is_timed
            self._tally.at_points += not is_timed
            if first:
                self._tally.covered.add(first)
            return
        # Nobody else advances this run, and whoever did is dead: nothing may stand in the way.
        assert code == 0, f"a worker ended with {code}: {said}"
        assert not said.error, f"a worker raised {said}"

    async def _interfere(self) -> None:
        """Now and then somebody says something to a run that nobody advances."""
        draw = self._chance.random()
        if (await self._arena.state(self._run_id)).phase.is_terminal:
            return
        if draw < STEERED:
            note = f"note-{len(self._notes)}"
            await self._arena.commands.steer(self._run_id, "go on", request_id=note)
        elif draw < STEERED + CANCELLED:
            note = "cancel-1"
            await self._arena.commands.cancel(self._run_id, request_id=note)
        else:
            return
        self._notes.append(note)


def _deaths(file: Path) -> list[str]:
    return (
        [json.loads(line)["point"] for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    )
