"""What a child run may use of its parent's budget, and what of it is charged in the end; pure.

The invariant: a child's limits are never more than what was set aside for it, and what is charged for it is never more than that, but for the last turn of what is
only known afterwards. What a person adds to a child comes from outside of the parent's budget, and is not charged to it.
"""

from collections.abc import Mapping
from typing import Final

from checkrein.errors import ChildRefused, DataError
from checkrein.kernel.budget import LIMITS, Amounts, Budget, BudgetState, Limit

__all__ = ["charge_of", "checked_share", "limits_of", "share_of"]

_BY_NAME: Final[Mapping[str, Limit]] = {name: name for name in LIMITS}
_MEASURED_IN_PARTS: Final = frozenset({"wall_seconds", "cost"})
_NEEDED: Final = frozenset({"turns", "wall_seconds", "tokens", "cost"})
"""Without anything of these a child could not even plan."""


def checked_share(share: Mapping[str, float] | None) -> Mapping[Limit, float]:
    """Return a share as a tool gave it.

    Raises:
        ChildRefused: it names something that is no limit, or no amount of it.
    """
    known: dict[Limit, float] = {}
    for name, amount in (share or {}).items():
        limit = _BY_NAME.get(name)
        if limit is None:
            raise ChildRefused("bad_share", f"{name!r:.80} is no limit; the limits are {', '.join(LIMITS)}")
        if limit not in _MEASURED_IN_PARTS and not isinstance(amount, int):
            raise ChildRefused("bad_share", f"{name} is a whole number, not {amount!r:.80}")
        known[limit] = amount
    try:
        Amounts(**known).checked()  # pyright: ignore[reportArgumentType]  # whole numbers were checked above
    except DataError as error:
        raise ChildRefused("bad_share", str(error)) from error
    return known


def share_of(budget: BudgetState, wanted: Budget, named: Mapping[Limit, float]) -> Amounts:
    """Return what is to be set aside for a child.

    A named amount is taken as it is. Of every other limit the child gets what its task has, but at most half of what is left: the parent goes on, and other children
    may follow.

    Args:
        budget: the parent's budget at this moment.
        wanted: the limits of the child's task.
        named: the amounts that the tool named.

    Raises:
        ChildRefused: `budget_exhausted`: a named amount does not fit, or nothing is left of what no run can do without.
    """
    amounts: dict[Limit, float] = {}
    for name in LIMITS:
        asked = named.get(name, wanted.limit(name))
        left = _left(budget, name)
        if left is None:
            amounts[name] = asked or 0
        elif name in named:
            if named[name] > left:
                raise ChildRefused("budget_exhausted", f"{name}: {named[name]:g} do not fit into the {left:g} left")
            amounts[name] = named[name]
        else:
            most = left / 2 if name in _MEASURED_IN_PARTS else (left + 1) // 2
            amounts[name] = most if asked is None else min(asked, most)
            if name in _NEEDED and not amounts[name] and asked != 0:
                raise ChildRefused("budget_exhausted", f"nothing is left of {name}")
    return Amounts(**amounts)  # pyright: ignore[reportArgumentType]  # limits of whole numbers are whole


def _left(budget: BudgetState, name: Limit) -> float | None:
    limit = budget.limits.limit(name)
    return None if limit is None else max(0, limit - budget.taken(name))


def limits_of(amounts: Amounts, parent: Budget, wanted: Budget, named: Mapping[Limit, float]) -> Budget:
    """Return the limits of a child for which `amounts` are set aside; unlimited is what neither the parent, the child's task nor the tool limits."""
    limits = {
        name: None
        if parent.limit(name) is None and named.get(name, wanted.limit(name)) is None
        else getattr(amounts, name)
        for name in LIMITS
    }
    return Budget(**limits)


def charge_of(child: BudgetState, share: Amounts) -> Amounts:
    """Return what a child that ended costs its parent: what it used, without what others added to its limits."""
    return Amounts(**{name: _charged(child, share, name) for name in LIMITS})  # pyright: ignore[reportArgumentType]  # as above


def _charged(child: BudgetState, share: Amounts, name: Limit) -> float:
    used, reserved, limit = getattr(child.used, name), getattr(share, name), child.limits.limit(name)
    added = 0 if limit is None else limit - reserved
    return used if added <= 0 else min(used, max(reserved, used - added))
