"""The work that every peer does, and how it is measured; the standard library only, because each peer runs in an environment of its own.

One run of N turns: in each turn the scripted model says the same four pieces of text, and in each but the last asks for the tool `add` with new numbers; the tool, one line
of async code, returns a new result. Responses are streamed piece by piece, and the events of the run are read to the end. Making the agent, the tool and the script is not
measured. A run that did less than that fails. This is the work of `benchmarks/agent.py` too.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import TypeAlias

__all__ = ["PIECES", "TEXT", "Count", "Prepare", "measure"]

TURNS = (10, 200)
SECONDS = 3.0
"""Time spent on each number of turns."""
FEWEST = 5
PIECES = ("I add ", "the next ", "two ", "numbers.")
TEXT = "".join(PIECES)


class Count:
    """Counts the tool's calls of one run, so that nobody wins by doing less."""

    def __init__(self) -> None:
        self.calls = 0

    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        self.calls += 1
        return a + b


Prepare: TypeAlias = Callable[[int, Count], Callable[[], Awaitable[str]]]
"""Makes one run of so many turns with the tool `Count.add`; calling what it returns runs it and gives the last text."""


def measure(distribution: str, prepare: Prepare) -> None:
    """Measure runs of each length and print one line of JSON.

    Args:
        distribution: the peer's name as it is installed; `""` for none.
        prepare: makes the runs.
    """
    rows = {turns: asyncio.run(_best(prepare, turns)) for turns in TURNS}
    print(json.dumps({"version": version(distribution) if distribution else "", "us_per_turn": rows}))


async def _best(prepare: Prepare, turns: int) -> float:
    """Return the smallest time of a run, in microseconds per turn: the least disturbed one."""
    await _seconds(prepare, turns)
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < FEWEST or time.perf_counter() - begun < SECONDS:
        times.append(await _seconds(prepare, turns))
    return min(times) / turns * 1e6


async def _seconds(prepare: Prepare, turns: int) -> float:
    count = Count()
    run = prepare(turns, count)
    begun = time.perf_counter()
    text = await run()
    seconds = time.perf_counter() - begun
    if (count.calls, text) != (turns - 1, TEXT):
        sys.exit(f"{count.calls} calls and {text!r} instead of {turns - 1} calls and {TEXT!r}")
    return seconds
