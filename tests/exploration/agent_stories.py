"""Many stories of an agent, one after another and in several processes: which seeds they have, and what came of all of them.

A story depends on its seed alone, so it is the same one wherever it is told. The process is part of no number but the seconds.
"""

import gc
import random  # noqa: TID251  seeded, so that a story can be told again
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from checkrein.kernel.agent import AgentLimits
from tests.exploration.agent_world import World
from tests.processes import spread

MOVES_AT_MOST = 26
COLLECT_EVERY = 200
STORIES_IN_A_PART = 500


@dataclass
class Told:
    """What came of some stories.

    Attributes:
        counts: how often each kind of thing happened.
        stories: a number for each story; two stories in which the same happened have the same.
        steps: how often something happened in all.
    """

    counts: Counter[str] = field(default_factory=Counter[str])
    stories: set[int] = field(default_factory=set[int])
    steps: int = 0

    def add(self, more: "Told") -> None:
        """Add what came of other stories."""
        self.counts.update(more.counts)
        self.stories |= more.stories
        self.steps += more.steps


def seeds(first: int, count: int) -> list[int]:
    """Return the seeds of all stories; the first is the given one, so that it can be told alone."""
    rng = random.Random(first)  # noqa: S311  stories, no secrets
    return [first, *(rng.getrandbits(48) for _ in range(count - 1))]


def tell(story_seed: int, *, moves: int | None = None) -> World:
    """Tell one story; stories in a small house have small limits."""
    with pytest.MonkeyPatch.context() as patch:
        world = World(story_seed, moves=moves)
        conversation = world.agent._conversation  # pyright: ignore[reportPrivateUsage]  the same machine, with less room
        if world.is_small:
            caps = world.ledger.caps
            limits = AgentLimits(messages=caps.messages, queued=caps.queued, blocks=caps.blocks)
            patch.setattr(conversation, "state", replace(conversation.state, limits=limits))
        try:
            world.play()
        except Exception as error:
            shown = "\n  ".join(world.log)
            msg = f"seed {story_seed}: {error}\nCHECKREIN_SEED={story_seed} CHECKREIN_AMOUNT=0.00001\n  {shown}"
            raise AssertionError(msg) from error
        return world


def tell_or_shorten(story_seed: int) -> World:
    """Tell a story; of one that fails, raise the failure with the fewest moves that still fails."""
    try:
        return tell(story_seed)
    except AssertionError:
        for moves in range(MOVES_AT_MOST):
            tell(story_seed, moves=moves)
        raise


def tell_part(story_seeds: Sequence[int]) -> Told:
    """Tell some stories in this process, up to the first that fails."""
    told = Told()
    # Collecting in the middle of a story would end its generators at another step in another process.
    gc.disable()
    try:
        for number, story_seed in enumerate(story_seeds):
            world = tell_or_shorten(story_seed)
            told.add(Told(Counter(world.counts), {world.story}, world.steps))
            if number % COLLECT_EVERY == 0:
                gc.collect()
    finally:
        gc.enable()
    return told


def tell_all(story_seeds: Sequence[int]) -> Told:
    """Tell stories in as many processes as there are processors; of those that fail, the first in order is raised.

    Raises:
        AssertionError: a story fails.
    """
    parts = [story_seeds[begin : begin + STORIES_IN_A_PART] for begin in range(0, len(story_seeds), STORIES_IN_A_PART)]
    told = Told()
    for part in spread(tell_part, parts):
        told.add(part)
    return told
