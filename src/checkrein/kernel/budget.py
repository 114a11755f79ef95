"""Limits and counters of one run: the only place that decides whether something is used up.

A counted limit (turns, tool calls, steps, replans, repairs) is reached when one more is wanted at `used == limit`; finishing exactly at the limit is no
pause. Wall clock, tokens and cost are measured: they are reached at `used >= limit`. None is unlimited, 0 is allowed. Counting happens when a
grant is recorded, before the work it allows, so after a crash the counters are never too low. Pure: no clock.
"""

import math
from typing import Final, Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import asdict, fields, force_setattr, replace

from checkrein.errors import DataError
from checkrein.messages import Usage
from checkrein.values import MAX_INTEGER

__all__ = ["COUNTED", "LIMITS", "Amounts", "Budget", "BudgetState", "Limit"]

Limit: TypeAlias = Literal["turns", "tool_calls", "wall_seconds", "tokens", "cost", "steps", "replans", "repairs"]
LIMITS: Final[tuple[Limit, ...]] = get_args(Limit)
"""The names of all limits."""
COUNTED: Final[frozenset[Limit]] = frozenset({"turns", "tool_calls", "steps", "replans", "repairs"})
"""Limits that are charged one before each use; the others are measured after it."""


def _check(name: str, value: float | None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not 0 <= value <= MAX_INTEGER:
        msg = f"budget {name} must be a number from 0 to 2^53-1, or None for unlimited; got {value!r}"
        raise DataError(msg)


class Budget(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """The limits of one run; None is unlimited. Stored whole, so that a log does not depend on today's defaults.

    Attributes:
        turns: planner or model requests, retries and recoveries included.
        tool_calls: executions of a tool's body, retries and recoveries included.
        wall_seconds: seconds of active time; pauses and the time between a crash and the takeover do not count.
        tokens: tokens read and written by models.
        cost: USD spent on models.
        steps: steps started.
        replans: revisions of the plan, repairs excepted.
        repairs: times that findings of a failed check may go back to the planner.

    Raises:
        DataError: on creation, when a limit is negative, NaN, greater than 2^53-1 or no number.
    """

    turns: int | None = 64
    tool_calls: int | None = 256
    wall_seconds: float | None = 3600
    tokens: int | None = None
    cost: float | None = None
    steps: int | None = 256
    replans: int | None = 16
    repairs: int | None = 1

    def __post_init__(self) -> None:
        """Check every limit; a whole number of seconds or of money becomes the float it is stored as."""
        for name in self.__struct_fields__:
            _check(name, getattr(self, name))
        if self.wall_seconds is not None:
            force_setattr(self, "wall_seconds", float(self.wall_seconds))
        if self.cost is not None:
            force_setattr(self, "cost", float(self.cost))

    def limit(self, name: Limit) -> float | None:
        """Return one limit."""
        return getattr(self, name)

    def raised(self, extra: "Amounts") -> "Budget":
        """Return these limits with `extra` added, 2^53-1 at most; what is unlimited stays so."""
        return Budget(
            **{
                name: None if limit is None else min(limit + getattr(extra, name), MAX_INTEGER)
                for name, limit in asdict(self).items()
            }
        )


class Amounts(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """How much of each limit: used, reserved for a child, or to be added. Events check amounts from outside with `checked`."""

    turns: int = 0
    tool_calls: int = 0
    wall_seconds: float = 0.0
    tokens: int = 0
    cost: float = 0.0
    steps: int = 0
    replans: int = 0
    repairs: int = 0

    def __post_init__(self) -> None:
        """Make floats of whole numbers where floats are stored, so that equal amounts have equal bytes."""
        if type(self.wall_seconds) is int:
            force_setattr(self, "wall_seconds", float(self.wall_seconds))
        if type(self.cost) is int:
            force_setattr(self, "cost", float(self.cost))

    def checked(self) -> "Amounts":
        """Return these amounts.

        Raises:
            DataError: an amount is negative, NaN, greater than 2^53-1 or no number.
        """
        for name in self.__struct_fields__:
            _check(name, getattr(self, name))
        return self

    def plus(self, other: "Amounts") -> "Amounts":
        """Return the sum, limit by limit."""
        return Amounts(**{item.name: getattr(self, item.name) + getattr(other, item.name) for item in fields(Amounts)})

    def minus(self, other: "Amounts") -> "Amounts":
        """Return the difference, limit by limit, at least 0."""
        return Amounts(
            **{item.name: max(0, getattr(self, item.name) - getattr(other, item.name)) for item in fields(Amounts)}
        )


class BudgetState(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Limits with what is used and what is reserved for child runs.

    Attributes:
        limits: the limits, extensions included.
        used: what was charged so far.
        reserved: what child runs may still charge; it counts as used until it is settled.
    """

    limits: Budget = Budget()
    used: Amounts = Amounts()
    reserved: Amounts = Amounts()

    def taken(self, name: Limit) -> float:
        """Return what is used plus what is reserved of one limit."""
        return getattr(self.used, name) + getattr(self.reserved, name)

    def is_reached(self, name: Limit, *, wanted: float = 1) -> bool:
        """Tell whether `wanted` more of a counted limit does not fit, or a measured one is used up."""
        limit = self.limits.limit(name)
        if limit is None:
            return False
        taken = self.taken(name)
        return taken + wanted > limit if name in COUNTED else taken >= limit

    def first_reached(self, *names: Limit) -> Limit | None:
        """Return the first of `names` that is reached, or None."""
        return next((name for name in names if self.is_reached(name)), None)

    def charged(self, name: Limit, times: int = 1) -> "BudgetState":
        """Return the state with one more of a counted limit used, or that many more."""
        return replace(self, used=replace(self.used, **{name: getattr(self.used, name) + times}))

    def with_usage(self, usage: Usage) -> "BudgetState":
        """Return the state after a model response's tokens and cost; an unknown cost counts as 0, and so does what is no amount."""
        if usage == Usage():
            return self
        cost = usage.cost or 0.0
        used = replace(
            self.used,
            tokens=self.used.tokens + max(0, usage.total_tokens),
            cost=self.used.cost + (cost if 0 < cost < math.inf else 0.0),
        )
        return replace(self, used=used)

    def with_elapsed(self, seconds: float) -> "BudgetState":
        """Return the state at `seconds` of active time in total; time never goes back, and NaN is no time."""
        if seconds > self.used.wall_seconds:
            return replace(self, used=replace(self.used, wall_seconds=seconds))
        return self

    def extended(self, extra: Amounts) -> "BudgetState":
        """Return the state with raised limits."""
        return replace(self, limits=self.limits.raised(extra))

    def can_reserve(self, amounts: Amounts) -> bool:
        """Tell whether all of `amounts` fits beside what is used and reserved."""
        return all(
            (limit := self.limits.limit(name)) is None or self.taken(name) + getattr(amounts, name) <= limit
            for name in LIMITS
        )

    def reserving(self, amounts: Amounts) -> "BudgetState":
        """Return the state with `amounts` set aside for a child run."""
        return replace(self, reserved=self.reserved.plus(amounts))

    def settling_all(self) -> "BudgetState":
        """Return the state with everything that is still set aside charged as used; what its children really use is not known any more."""
        return replace(self, reserved=Amounts(), used=self.used.plus(self.reserved))

    def settling(self, reserved: Amounts, used: Amounts) -> "BudgetState":
        """Return the state with a child's reservation given back and its real use charged."""
        return replace(self, reserved=self.reserved.minus(reserved), used=self.used.plus(used))
