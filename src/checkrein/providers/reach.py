"""Whether a provider can be reached: one request for the list of its models, which costs nothing.

The invariant: it ends within its bound, whatever the server does, and what it says holds no key.
"""

import contextlib
from typing import Final

import msgspec

from checkrein.clock import SystemClock
from checkrein.ports.clock import Clock
from checkrein.providers.failures import redacted
from checkrein.providers.registry import Provider
from checkrein.providers.watch import ProgressWatch, Stalled

__all__ = ["Reached", "headers_of", "list_url", "reach"]

_MOST_BYTES: Final = 4 * 1024 * 1024
_OK: Final = 200
_SYSTEM_CLOCK: Final = SystemClock()


class Reached(msgspec.Struct, frozen=True):
    """What came of asking.

    Attributes:
        is_there: the server listed its models.
        text: what it said, or what went wrong.
        models: their names.
    """

    is_there: bool
    text: str
    models: tuple[str, ...] = ()


class _Item(msgspec.Struct):
    id: str = ""


class _Listed(msgspec.Struct):
    data: list[_Item] = []


def headers_of(provider: Provider, key: str) -> dict[str, str]:
    """Return what authorises a request to a provider."""
    if not key:
        return {}
    if provider.name == "anthropic":
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}
    return {"authorization": f"Bearer {key}"}


def list_url(provider: Provider, base_url: str) -> str:
    """Return where a provider lists its models."""
    base = base_url.rstrip("/")
    is_bare = provider.name == "anthropic" and not base.endswith("/v1")
    return f"{base}{'/v1' if is_bare else ''}/models"


async def reach(
    url: str, headers: dict[str, str], *, seconds: float, clock: Clock = _SYSTEM_CLOCK, secret: str = ""
) -> Reached:
    """Ask for the list of models.

    Args:
        url: where it is.
        headers: what authorises the request.
        seconds: how long it may take in all.
        clock: time.
        secret: what must not show in the text.
    """
    watch = ProgressWatch(clock, seconds)
    try:
        status, body = await watch.wait(_listed(url, headers, seconds))
    except ImportError:
        return Reached(is_there=False, text="not asked: the extra `models` is not installed")
    except Stalled:
        return Reached(is_there=False, text=f"no answer within {seconds:g} s")
    except Exception as error:  # noqa: BLE001  whatever a server and its transport can do, it is not reached
        return Reached(is_there=False, text=redacted(f"cannot be reached: {error}", (secret,)))
    finally:
        watch.stop()
    if status != _OK:
        return Reached(is_there=False, text=f"answers with status {status}")
    listed = _Listed()
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        listed = msgspec.json.decode(body, type=_Listed)
    names = tuple(redacted(item.id, (secret,)) for item in listed.data if item.id)
    text = f"answers, and lists {len(names)} model{'' if len(names) == 1 else 's'}"
    return Reached(is_there=True, text=text, models=names)


async def _listed(url: str, headers: dict[str, str], seconds: float) -> tuple[int, bytes]:
    """Return status and body, cut off where it is longer than any list.

    Raises:
        ImportError: the transport is not installed.
        Exception: what the transport raises.
    """
    import httpx2

    async with (
        httpx2.AsyncClient(timeout=seconds) as client,
        client.stream("GET", url, headers=headers) as response,
    ):
        body = b""
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > _MOST_BYTES:
                break
        return response.status_code, body
