"""Costs come from known prices; what is not known is said to be unknown."""

import pytest

from checkrein.messages import Usage
from checkrein.providers.pricing import Tokens, cost_of, is_priced


def test_a_known_price_makes_a_cost_and_cached_tokens_are_cheaper() -> None:
    full = cost_of(Tokens(input=1_000_000, output=1_000), "gpt-4o", provider="openai")
    cached = cost_of(Tokens(input=1_000_000, output=1_000, cached=900_000), "gpt-4o", provider="openai")
    assert full is not None
    assert cached is not None
    assert 0 < cached < full
    assert is_priced("gpt-4o", provider="openai")
    assert is_priced("gpt-4o", url="https://api.openai.com/v1")


@pytest.mark.parametrize(
    ("model", "provider", "url"),
    [
        ("no-such-model", "openai", ""),
        ("gpt-4o", "nobody", ""),
        ("gpt-4o", "", "http://127.0.0.1:8000/v1"),
        ("gpt-4o", "", ""),
    ],
)
def test_an_unknown_price_is_said_and_not_guessed(model: str, provider: str, url: str) -> None:
    assert cost_of(Tokens(input=10, output=10), model, provider=provider, url=url) is None
    assert not is_priced(model, provider=provider, url=url)


def test_nothing_counted_has_no_cost() -> None:
    assert cost_of(Tokens(), "gpt-4o", provider="openai") is None


def test_counts_that_cannot_be_are_taken_for_the_nearest_that_can() -> None:
    assert Tokens(-5, 2**70, 7, 9, -1) == Tokens(0, 2**53 - 1, 0, 0, 0)
    assert Tokens(10, 5, 8, 8, 9) == Tokens(10, 5, 8, 2, 5)
    assert Tokens(10, 5, 8, 1, 3).usage(0.5) == Usage(10, 5, 8, 0.5, cache_written_tokens=1, reasoning_tokens=3)
