"""Limits and counters: what is used up, and when, and that n allowed means n made."""

import math

import pytest
from msgspec.structs import replace

from checkrein.errors import DataError
from checkrein.kernel.budget import COUNTED, LIMITS, Amounts, Budget, BudgetState, Limit
from checkrein.messages import Usage
from checkrein.values import MAX_INTEGER


def test_the_defaults_are_the_documented_ones() -> None:
    limits = Budget()
    assert [limits.limit(name) for name in LIMITS] == [64, 256, 3600, None, None, 256, 16, 1]


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, -math.inf, True, MAX_INTEGER + 1])
def test_a_limit_or_amount_that_is_no_number_from_0_is_refused(name: Limit, value: float) -> None:
    with pytest.raises(DataError, match=name):
        replace(Budget(), **{name: value})
    with pytest.raises(DataError, match=name):
        replace(Amounts(), **{name: value}).checked()


@pytest.mark.parametrize("name", LIMITS)
def test_0_is_allowed_and_none_is_unlimited(name: Limit) -> None:
    assert BudgetState(Budget(**{name: 0})).is_reached(name)
    assert not BudgetState(Budget(**{name: None}), Amounts(**{name: 10**9})).is_reached(name)


@pytest.mark.parametrize("name", sorted(COUNTED))
@pytest.mark.parametrize("limit", [1, 2, 64])
def test_a_counted_limit_of_n_allows_exactly_n(name: Limit, limit: int) -> None:
    state = BudgetState(Budget(**{name: limit}))
    for _ in range(limit):
        assert not state.is_reached(name)
        state = state.charged(name)
    assert state.is_reached(name)
    assert state.taken(name) == limit


def test_a_measured_limit_is_reached_when_use_meets_it() -> None:
    state = BudgetState(Budget(wall_seconds=10, tokens=100, cost=1.0))
    assert state.first_reached("wall_seconds", "tokens", "cost") is None
    assert not state.with_elapsed(9.99).is_reached("wall_seconds")
    assert state.with_elapsed(10.0).is_reached("wall_seconds")
    assert not state.with_usage(Usage(60, 39)).is_reached("tokens")
    assert state.with_usage(Usage(60, 40)).is_reached("tokens")
    assert state.with_usage(Usage(cost=1.0)).first_reached("tokens", "cost") == "cost"


def test_the_clock_never_goes_back_and_nan_is_no_time() -> None:
    state = BudgetState().with_elapsed(5.0)
    assert state.with_elapsed(4.0) is state
    assert state.with_elapsed(math.nan) is state


def test_an_unknown_or_impossible_cost_counts_as_nothing() -> None:
    state = BudgetState(Budget(cost=1.0)).with_usage(Usage(1, 1, cost=0.5))
    for cost in (None, math.nan, math.inf, -3.0):
        assert state.with_usage(Usage(1, 1, cost=cost)).used.cost == 0.5
    assert state.with_usage(Usage(-5, 1)).used.tokens == 2


def test_extending_adds_to_limits_and_leaves_use_and_the_unlimited_alone() -> None:
    state = BudgetState(Budget(turns=1, tokens=None), Amounts(turns=1)).extended(Amounts(turns=2, tokens=5))
    assert (state.limits.turns, state.limits.tokens, state.used.turns) == (3, None, 1)
    assert not state.is_reached("turns")


def test_extending_ever_more_stays_a_number() -> None:
    most = Amounts(turns=MAX_INTEGER, wall_seconds=float(MAX_INTEGER))
    state = BudgetState().extended(most).extended(most)
    assert (state.limits.turns, state.limits.wall_seconds) == (MAX_INTEGER, MAX_INTEGER)


def test_a_reservation_counts_as_used_until_it_is_settled() -> None:
    state = BudgetState(Budget(tool_calls=5), Amounts(tool_calls=2))
    share = Amounts(tool_calls=3)
    assert state.can_reserve(share)
    assert not state.can_reserve(Amounts(tool_calls=4))
    reserved = state.reserving(share)
    assert reserved.is_reached("tool_calls")
    assert not reserved.can_reserve(Amounts(tool_calls=1))
    settled = reserved.settling(share, Amounts(tool_calls=1))
    assert (settled.used.tool_calls, settled.reserved.tool_calls) == (3, 0)
    assert settled.can_reserve(Amounts(tool_calls=2))


def test_an_unlimited_amount_can_always_be_reserved() -> None:
    assert BudgetState(Budget(tokens=None)).can_reserve(Amounts(tokens=10**12))


def test_amounts_add_and_subtract_limit_by_limit() -> None:
    assert Amounts(turns=2, cost=0.5).plus(Amounts(turns=1, steps=4)) == Amounts(turns=3, cost=0.5, steps=4)
    assert Amounts(turns=2).minus(Amounts(turns=5, steps=1)) == Amounts()
