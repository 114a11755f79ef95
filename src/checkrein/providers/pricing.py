"""What a response cost, from the prices that the installed `genai-prices` knows.

The invariant: a price is known or it is None; nothing is guessed, and nothing is fetched from the network.
"""

from typing import Final

import msgspec
from msgspec.structs import force_setattr

from checkrein.messages import Usage
from checkrein.values import MAX_INTEGER

__all__ = ["NO_TOKENS", "Tokens", "cost_of", "is_priced"]


class Tokens(msgspec.Struct, frozen=True):
    """The tokens of one response as a wire counts them; a count that cannot be is taken for the nearest that can.

    Attributes:
        input: read, those of the cache included.
        output: written, reasoning included.
        cached: the part of `input` that came from the provider's cache.
        cache_written: the part of `input` that was written into it.
        reasoning: the part of `output` that was reasoning.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_written: int = 0
    reasoning: int = 0

    def __post_init__(self) -> None:
        """Keep every count a whole number from 0 that any JSON can hold, and no part larger than its whole."""
        for name in self.__struct_fields__:
            force_setattr(self, name, min(max(0, getattr(self, name)), MAX_INTEGER))
        force_setattr(self, "cached", min(self.cached, self.input))
        force_setattr(self, "cache_written", min(self.cache_written, self.input - self.cached))
        force_setattr(self, "reasoning", min(self.reasoning, self.output))

    def usage(self, cost: float | None) -> Usage:
        """Return them as messages count them."""
        return Usage(self.input, self.output, self.cached, cost, self.cache_written, self.reasoning)


NO_TOKENS: Final = Tokens()


def cost_of(tokens: Tokens, model: str, *, provider: str = "", url: str = "") -> float | None:
    """Return the cost in USD; None when the price of that model is not known, nothing was counted, or `genai-prices` is not installed.

    Args:
        tokens: what was consumed.
        model: the model's name.
        provider: who serves it, by the name `genai-prices` has for it; `""` when only the address is known.
        url: the address that was asked; without `provider` it decides who serves the model. With neither nothing is known.
    """
    if tokens == NO_TOKENS or not (provider or url):
        return None
    try:
        from genai_prices import Usage as Priced, calc_price
    except ImportError:
        return None
    used = Priced(
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cached,
        cache_write_tokens=tokens.cache_written,
    )
    try:
        if provider:
            return float(calc_price(used, model, provider_id=provider).total_price)
        return float(calc_price(used, model, provider_api_url=url).total_price)
    except (LookupError, ValueError):
        return None


def is_priced(model: str, *, provider: str = "", url: str = "") -> bool:
    """Tell whether the price of a model is known."""
    return cost_of(Tokens(input=1, output=1), model, provider=provider, url=url) is not None
