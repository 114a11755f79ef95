"""Providers by name, and the models they make: `openai/NAME`, `anthropic/NAME`, `compatible/NAME`.

What the entry points of the group `checkrein.models` name stands here. Keys come from the environment alone; the invariant: a key is in no setting, record, log or text.
"""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

import msgspec

from checkrein.errors import MissingExtra, TaskError
from checkrein.providers.anthropic.client import ANTHROPIC_MESSAGES
from checkrein.providers.chat.client import COMPATIBLE_CHAT, OPENAI_CHAT
from checkrein.providers.model import Access, Key, WireModel, WireParts
from checkrein.providers.responses.client import COMPATIBLE_RESPONSES, OPENAI_RESPONSES
from checkrein.providers.settings import ProviderSettings, check_address, read_settings
from checkrein.providers.stops import Wire

__all__ = ["PROVIDERS", "Provider", "access_of", "anthropic", "compatible", "keys_of_environment", "openai"]


class Provider(msgspec.Struct, frozen=True):
    """Somebody who serves models.

    Attributes:
        name: what stands before the `/`.
        key_variable: the environment variable of the key.
        url_variable: the environment variable of another address.
        base_url: the usual address, `""` when there is none; a provider without one may need no key.
        priced_as: the name that prices go by, at the usual address; `""` when the address tells.
    """

    name: str
    key_variable: str
    url_variable: str
    base_url: str = ""
    priced_as: str = ""

    @property
    def needs_key(self) -> bool:
        """Whether nothing goes without a key."""
        return bool(self.base_url)


PROVIDERS: Final[Mapping[str, Provider]] = {
    item.name: item
    for item in (
        Provider("openai", "OPENAI_API_KEY", "OPENAI_BASE_URL", "https://api.openai.com/v1", "openai"),
        Provider("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "https://api.anthropic.com", "anthropic"),
        Provider("compatible", "COMPATIBLE_API_KEY", "COMPATIBLE_BASE_URL"),
    )
}
"""The providers by name."""

_SDKS: Final[Mapping[Wire, str]] = {"chat": "openai", "responses": "openai", "messages": "anthropic"}
_NOTHING: Final[Mapping[str, object]] = {}


def openai(name: str, settings: Mapping[str, object] = _NOTHING) -> WireModel:
    """Return a model of OpenAI, over its Responses API; with the setting `api=chat` over Chat Completions.

    Raises:
        TaskError: a setting is wrong, or name or key is missing.
    """
    read = read_settings(settings)
    return _made(PROVIDERS["openai"], name, read, OPENAI_CHAT if read.api == "chat" else OPENAI_RESPONSES)


def anthropic(name: str, settings: Mapping[str, object] = _NOTHING) -> WireModel:
    """Return a model of Anthropic, or one behind a Messages API at the address `base_url`.

    Raises:
        TaskError: a setting is wrong, or name or key is missing.
    """
    return _made(PROVIDERS["anthropic"], name, read_settings(settings), ANTHROPIC_MESSAGES)


def compatible(name: str, settings: Mapping[str, object] = _NOTHING) -> WireModel:
    """Return a model behind an OpenAI-compatible API at the address `base_url`: over Chat Completions, or with the setting `api=responses` over Responses.

    Raises:
        TaskError: a setting is wrong, or name or address is missing.
    """
    read = read_settings(settings)
    return _made(
        PROVIDERS["compatible"], name, read, COMPATIBLE_RESPONSES if read.api == "responses" else COMPATIBLE_CHAT
    )


def _made(provider: Provider, name: str, settings: ProviderSettings, parts: WireParts) -> WireModel:
    """Return a model, once everything that it needs is known to be there; the SDK itself is loaded by the first request."""
    access = access_of(provider, name, settings)
    if find_spec(_SDKS[parts.wire]) is None:
        raise MissingExtra(f"--model {provider.name}/{name}", "", "models")
    return WireModel(parts, access, settings)


def access_of(provider: Provider, name: str, settings: ProviderSettings) -> Access:
    """Return where a provider's model is, with the key of the environment.

    Raises:
        TaskError: name, address or key is missing.
    """
    source = f"--model {provider.name}/{name}"
    if not name:
        raise TaskError(source, "", "it names no model", f"write it as {provider.name}/NAME")
    url = settings.base_url or os.environ.get(provider.url_variable, "") or provider.base_url
    if not url:
        fix = f"say -c base_url=http://…, or set {provider.url_variable}"
        raise TaskError(source, "base_url", "nothing says where the server is", fix)
    check_address(url, source)
    key = os.environ.get(provider.key_variable, "").strip()
    if not key and provider.needs_key:
        fix = f"set it in the environment, which is the only place a key is read from: export {provider.key_variable}=…"
        raise TaskError(source, provider.key_variable, "the key is missing", fix)
    priced_as = provider.priced_as if url == provider.base_url else ""
    return Access(name, url, Key(key), priced_as)


def keys_of_environment() -> tuple[str, ...]:
    """Return the keys that stand in the environment now, for whoever must see that they show nowhere."""
    found = (os.environ.get(provider.key_variable, "").strip() for provider in PROVIDERS.values())
    return tuple(key for key in found if key)
