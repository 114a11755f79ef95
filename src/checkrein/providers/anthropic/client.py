"""The transport of the Messages wire: the `anthropic` SDK with its retries off, which posts a body and hands over the stream of bytes.

The SDK takes a stream that merely ends for a whole one, and hands out a call of it without arguments. The invariant: it is never asked what a stream means; what the bytes say
is decided by our decoder alone. The one account that is used is that of the key.
"""

from typing import TYPE_CHECKING, Final

from checkrein.errors import MissingExtra
from checkrein.providers.anthropic.decode import MessagesDecoder
from checkrein.providers.anthropic.encode import encode
from checkrein.providers.model import CONNECT_SECONDS, Access, Body, Connection, Opened, WireParts
from checkrein.providers.settings import ProviderSettings

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

__all__ = ["ANTHROPIC_MESSAGES", "AnthropicConnection"]

_NO_KEY: Final = "none"
_VERSION: Final = "/v1"
_PATH: Final = "/v1/messages"


class AnthropicConnection:
    """The SDK's client.

    Args:
        access: where the API is; its address may end in `/v1` or not.

    Raises:
        MissingExtra: on creation, when the SDK is not installed.
    """

    def __init__(self, access: Access) -> None:
        self._client = _client(access)
        self._errors = _errors()

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What the SDK and its transport raise."""
        return self._errors

    async def open(self, body: Body) -> Opened:
        """Post a request and return once the head of the response came.

        Raises:
            Exception: one of `errors`.
        """
        from anthropic import AsyncStream

        return await self._client.post(
            _PATH, body=dict(body), cast_to=object, stream=True, stream_cls=AsyncStream[object]
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.close()


def _client(access: Access) -> "AsyncAnthropic":
    try:
        from anthropic import AsyncAnthropic, Timeout
    except ImportError as error:
        raise MissingExtra("--model", access.model, "models") from error
    # A key that is given keeps the SDK from looking for other accounts: in the environment, or in its own files.
    return AsyncAnthropic(
        api_key=access.key.reveal() or _NO_KEY,
        base_url=access.base_url.rstrip("/").removesuffix(_VERSION),
        max_retries=0,
        timeout=Timeout(None, connect=CONNECT_SECONDS),
    )


def _errors() -> tuple[type[Exception], ...]:
    import httpx2
    from anthropic import AnthropicError

    return (AnthropicError, httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError)


def _connect(access: Access, settings: ProviderSettings) -> Connection:
    del settings
    return AnthropicConnection(access)


ANTHROPIC_MESSAGES: Final = WireParts("messages", encode, MessagesDecoder, _connect)
"""The Messages wire."""
