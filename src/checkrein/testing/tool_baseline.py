"""What one clean execution of a case looks like: the measure of everything that is seen later.

Only values live here. The invariant: a baseline was seen twice, in two worlds, so an effect that equals it is known to be the effect of one call.
"""

import msgspec

from checkrein.ports.tool import ToolTraits
from checkrein.testing.tool_lines import Line
from checkrein.testing.tool_report import Unusable, broken, shown
from checkrein.tools.outcomes import AcceptedJob, Done

__all__ = ["MAX_POINTS", "Baseline", "refuse_incomparable"]

MAX_POINTS = 24
"""At how many of a body's awaits it is cancelled, timed out and left for dead, and at how many of its lines; of a body with more, some from its first to its last."""


class Baseline(msgspec.Struct, frozen=True):
    """What one clean execution in a fresh world looks like.

    Attributes:
        none: the effect before it.
        once: the effect after it.
        outcome: what it came to.
        awaits: how often its body gave way; 0 of a plain function, which nobody can interrupt.
        lines: how many lines of its own file it ran.
        longest_seconds: how long it kept the event loop to itself at most.
        traits: what the tool declares.
        is_plain: its body is a plain function.
        is_job: it answered with a job.
    """

    none: object
    once: object
    outcome: Done | AcceptedJob
    awaits: int
    lines: int
    longest_seconds: float
    traits: ToolTraits
    is_plain: bool
    is_job: bool

    @property
    def has_effect(self) -> bool:
        """Whether an effect can be seen at all."""
        return self.none != self.once

    def points(self) -> list[int]:
        """Return the awaits at which a body is stopped."""
        return _spread(self.awaits)

    def line_points(self) -> list[Line]:
        """Return the lines at which a body is left for dead."""
        return [Line(number) for number in _spread(self.lines)]

    def is_whole(self, effect: object) -> bool:
        """Tell whether an effect is all of it or nothing."""
        return effect in (self.none, self.once)

    def amount(self, effect: object) -> str:
        """Return an effect in words."""
        if not self.has_effect:
            return f"no change ({shown(effect)})" if effect == self.once else shown(effect)
        if effect == self.none:
            return f"nothing ({shown(effect)})"
        return f"all of it ({shown(effect)})" if effect == self.once else f"something else ({shown(effect)})"


def _spread(number: int) -> list[int]:
    """Return the numbers from 1, or some of them from the first to the last when there are many."""
    if number <= MAX_POINTS:
        return list(range(1, number + 1))
    return sorted({1 + index * (number - 1) // (MAX_POINTS - 1) for index in range(MAX_POINTS)})


def refuse_incomparable(first: Baseline, second: Baseline) -> None:
    """Go on only if the same history looks the same in two worlds.

    Raises:
        Unusable: it does not.
    """
    if first.none != second.none:
        seen = f"before anything was called, the effect is {shown(first.none)} in one world and {shown(second.none)} in another"
        change = "let make() build everything that the tool changes below the folder it is given, so that worlds share nothing"
        raise Unusable(broken("effect", seen, change))
    if first.once != second.once:
        seen = f"after one call, the effect is {shown(first.once)} in one world and {shown(second.once)} in another"
        change = "leave ids, keys and times out of what effect() returns: a count, or the plain facts, can be compared"
        raise Unusable(broken("effect", seen, change))
