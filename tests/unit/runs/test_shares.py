"""What a child gets of its parent's budget, and what it costs in the end."""

import pytest
from hypothesis import given, strategies as st

from checkrein.errors import ChildRefused
from checkrein.kernel.budget import COUNTED, LIMITS, Amounts, Budget, BudgetState
from checkrein.runs.shares import charge_of, checked_share, limits_of, share_of

FREE = Budget(turns=None, tool_calls=None, wall_seconds=None, steps=None, replans=None, repairs=None)


def test_what_is_not_named_is_the_tasks_own_limit_but_at_most_half_of_what_is_left() -> None:
    parent = BudgetState(
        Budget(turns=11, tool_calls=100, wall_seconds=60, repairs=1), Amounts(turns=2, wall_seconds=20.0)
    )
    share = share_of(parent, Budget(tool_calls=7), {"steps": 200})
    assert share == Amounts(turns=5, tool_calls=7, wall_seconds=20.0, steps=200, replans=8, repairs=1)


def test_what_a_child_does_not_limit_is_limited_where_its_parent_is() -> None:
    share = share_of(BudgetState(Budget(tokens=1_000, cost=None)), Budget(), {})
    assert (share.tokens, share.cost) == (500, 0.0)
    limits = limits_of(share, Budget(tokens=1_000), Budget(), {})
    assert (limits.tokens, limits.cost) == (500, None)
    assert limits_of(Amounts(), FREE, FREE, {}) == FREE
    assert limits_of(Amounts(cost=2.0), FREE, FREE, {"cost": 2.0}).cost == 2.0


@pytest.mark.parametrize("limit", ["turns", "wall_seconds", "tokens", "cost"])
def test_without_anything_left_of_what_planning_takes_there_is_no_child(limit: str) -> None:
    parent = BudgetState(Budget(**{limit: 5}), Amounts(**{limit: 6}))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ChildRefused, match=f"nothing is left of {limit}") as refused:
        share_of(parent, Budget(), {})
    assert refused.value.code == "budget_exhausted"


def test_a_child_may_be_without_repairs_or_calls() -> None:
    parent = BudgetState(Budget(tool_calls=0, repairs=0, replans=0, steps=0))
    share = share_of(parent, Budget(), {})
    assert (share.tool_calls, share.repairs, share.replans, share.steps) == (0, 0, 0, 0)


@pytest.mark.parametrize("share", [{"turn": 1}, {"turns": 1.0}, {"turns": -1}, {"cost": float("nan")}, {"cost": 2**60}])
def test_a_share_that_says_no_amount_of_a_limit_is_refused(share: dict[str, float]) -> None:
    with pytest.raises(ChildRefused) as refused:
        checked_share(share)
    assert refused.value.code == "bad_share"


def test_no_share_names_nothing() -> None:
    assert checked_share(None) == {}


def test_what_others_added_to_a_child_is_not_charged() -> None:
    share = Amounts(tool_calls=2, tokens=100)
    extended = BudgetState(Budget(tool_calls=12, tokens=150), Amounts(tool_calls=9, tokens=170))
    charge = charge_of(extended, share)
    # The last turn went 20 tokens over what it was allowed, and that is the parent's loss.
    assert (charge.tool_calls, charge.tokens) == (2, 120)
    idle = BudgetState(Budget(tool_calls=12, tokens=150), Amounts(tool_calls=1, tokens=30))
    assert charge_of(idle, share) == Amounts(tool_calls=1, tokens=30)


amounts = st.builds(
    Amounts,
    turns=st.integers(0, 9),
    tool_calls=st.integers(0, 9),
    wall_seconds=st.floats(0, 9),
    tokens=st.integers(0, 9),
    cost=st.floats(0, 9),
    steps=st.integers(0, 9),
    replans=st.integers(0, 9),
    repairs=st.integers(0, 9),
)
some = st.none() | st.integers(0, 9)
budgets = st.builds(
    Budget,
    turns=some,
    tool_calls=some,
    wall_seconds=some,
    tokens=some,
    cost=some,
    steps=some,
    replans=some,
    repairs=some,
)


@given(budgets, amounts, budgets, amounts, amounts)
def test_a_share_fits_and_so_does_what_is_charged_for_it(
    limits: Budget, used: Amounts, wanted: Budget, extra: Amounts, spent: Amounts
) -> None:
    parent = BudgetState(limits, used)
    try:
        share = share_of(parent, wanted, {})
    except ChildRefused:
        return
    reserved = parent.reserving(share)
    child = BudgetState(limits_of(share, limits, wanted, {}).raised(extra))
    for name in LIMITS:
        limit, left = limits.limit(name), parent.taken(name)
        assert limit is None or reserved.taken(name) <= max(limit, left)
        if name in COUNTED:
            allowed = child.limits.limit(name)
            child = child.charged(name, getattr(spent, name) if allowed is None else min(allowed, getattr(spent, name)))
    charge = charge_of(child, share)
    for name in COUNTED:
        assert limits.limit(name) is None or getattr(charge, name) <= getattr(share, name)
