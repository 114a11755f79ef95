"""`models`: who serves models, what each needs, and whether it is there; never what a key is."""

import os
from collections.abc import Iterable
from importlib.metadata import entry_points

from checkrein.cli.exits import Exit, Usage
from checkrein.cli.invocation import Invocation
from checkrein.cli.models import GROUP
from checkrein.cli.screen import Screen, shown
from checkrein.providers.catalogue import KnownModel, known_models
from checkrein.providers.registry import PROVIDERS, Provider

__all__ = ["models"]

_WIRES = {
    "anthropic": "Messages",
    "compatible": "Chat Completions; Responses with -c api=responses",
    "openai": "Responses; Chat Completions with -c api=chat",
}


async def models(invocation: Invocation, provider: str) -> Exit:
    """List the providers, or the models of one whose price is known.

    Raises:
        Usage: there is no such provider.
    """
    screen = invocation.screen
    others = sorted({point.name for point in entry_points(group=GROUP)} - {*PROVIDERS, "replay"})
    if provider:
        if provider not in PROVIDERS:
            msg = f"there is no list for {provider!r}; there are {', '.join(PROVIDERS)}"
            raise Usage(msg)
        return _print_models(screen, PROVIDERS[provider], invocation.clock.now())
    for item in PROVIDERS.values():
        _print_provider(screen, item)
    screen.record({"provider": "replay", "wires": "that of the record", "needs": "a record"})
    screen.line((f"{'replay':<11}", "bold"), "replay/FILE plays what --record kept, and asks nobody")
    for name in others:
        screen.record({"provider": name, "wires": "", "needs": ""})
        screen.line((f"{shown(name):<11}", "bold"), "installed by a package of its own")
    screen.next_command("run", "PATH", "--model", "PROVIDER/MODEL")
    return Exit.SUCCEEDED


def _print_provider(screen: Screen, provider: Provider) -> None:
    has_key, has_url = (bool(os.environ.get(name)) for name in (provider.key_variable, provider.url_variable))
    screen.record({
        "provider": provider.name,
        "wires": _WIRES.get(provider.name, ""),
        "key_variable": provider.key_variable,
        "key_is_needed": provider.needs_key,
        "key_is_set": has_key,
        "url_variable": provider.url_variable,
        "url_is_set": has_url,
        "base_url": provider.base_url,
    })  # fmt: skip
    screen.line((f"{provider.name:<11}", "bold"), _WIRES.get(provider.name, ""))
    need = "needed" if provider.needs_key else "where the server wants one"
    screen.line(f"key      {provider.key_variable}: {'set' if has_key else 'not set'} ({need})", indent=11)
    usual = provider.base_url or "none: say it with -c base_url=http://…"
    text = f"{provider.url_variable}: set" if has_url else f"{usual}; {provider.url_variable}: not set"
    screen.line(f"address  {text}", indent=11)


def _print_models(screen: Screen, provider: Provider, now: float) -> Exit:
    found = known_models(provider.priced_as, now=now) if provider.priced_as else ()
    if not found:
        screen.line(f"no prices are known for {provider.name}; any model that its server has can be asked")
        return Exit.SUCCEEDED
    for model in found:
        screen.record({
            "provider": provider.name,
            "model": f"{provider.name}/{model.name}",
            "input_usd_per_million": model.input_usd,
            "output_usd_per_million": model.output_usd,
            "window": model.window,
        })  # fmt: skip
    screen.table([("model", "reads", "writes", "window"), *_rows(provider, found)], indent=0)
    screen.line("USD for a million tokens; others can be asked too, and their cost is then unknown")
    return Exit.SUCCEEDED


def _rows(provider: Provider, found: Iterable[KnownModel]) -> Iterable[tuple[str, ...]]:
    for model in found:
        prices = ("?" if price is None else f"${price:g}" for price in (model.input_usd, model.output_usd))
        yield (f"{provider.name}/{model.name}", *prices, "?" if model.window is None else f"{model.window:,}")
