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

__all__ = ["KnownModel", "known_models", "window_of"]


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


def window_of(model: str, *, provider: str = "", url: str = "") -> int | None:
    """Return how many tokens fit into one request of a model and its response; None when that is not known, or `genai-prices` is not installed.

    Args:
        model: the model's name.
        provider: who serves it, by the name `genai-prices` has for it; `""` when only the address is known.
        url: the address that is asked; without `provider` it decides who serves the model. With neither nothing is known.
    """
    if not (provider or url):
        return None
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return None
    try:
        _, found = get_snapshot().find_provider_model(model, None, provider or None, None if provider else url)
    except (LookupError, ValueError):
        return None
    return found.context_window


def _usd(price: "Decimal | TieredPrices | None") -> float | None:
    """Return a price, that of the first tier where it depends on the size of the request."""
    if price is None:
        return None
    return float(price if isinstance(price, Decimal) else price.base)
