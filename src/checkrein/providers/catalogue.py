"""What is known of models without asking anybody: those that `genai-prices` has prices for.

The invariant: nothing is fetched from the network, and what is not known is None, never guessed.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from genai_prices.types import TieredPrices

__all__ = ["KnownModel", "known_models"]


class KnownModel(msgspec.Struct, frozen=True):
    """A model whose price is known.

    Attributes:
        name: its name, as it is asked for.
        input_usd: USD for a million tokens that are read, of short requests.
        output_usd: USD for a million tokens that are written.
        window: tokens that fit into one request and its response.
    """

    name: str
    input_usd: float | None
    output_usd: float | None
    window: int | None


def known_models(priced_as: str, *, now: float) -> Sequence[KnownModel]:
    """Return the models of a provider that are not given up, by name; none when `genai-prices` is not installed.

    Args:
        priced_as: the name that `genai-prices` has for the provider.
        now: seconds since 1970 (UTC): prices change.
    """
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return ()
    when = datetime.fromtimestamp(now, UTC)
    found = [
        KnownModel(model.id, _usd(price.input_mtok), _usd(price.output_mtok), model.context_window)
        for provider in get_snapshot().providers
        if provider.id == priced_as
        for model in provider.models
        if not model.deprecated
        for price in [model.get_prices(when)]
    ]
    return sorted(found, key=lambda model: model.name)


def _usd(price: "Decimal | TieredPrices | None") -> float | None:
    """Return a price, that of the first tier where it depends on the size of the request."""
    if price is None:
        return None
    return float(price if isinstance(price, Decimal) else price.base)
