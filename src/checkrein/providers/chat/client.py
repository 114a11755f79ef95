"""The transport of the Chat wire: the `openai` SDK with its retries off, which posts a body and hands over the stream of bytes.

The invariant: nothing of the account goes to an address it does not belong to, and what the stream says is decided by our decoder alone.
"""

from typing import TYPE_CHECKING, Final

from checkrein.errors import MissingExtra
from checkrein.providers.chat.decode import ChatDecoder
from checkrein.providers.chat.encode import encode, encode_openai
from checkrein.providers.model import CONNECT_SECONDS, Access, Body, Connection, Opened, WireParts
from checkrein.providers.settings import ProviderSettings

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["COMPATIBLE_CHAT", "OPENAI_CHAT", "OpenAIConnection"]

_NO_KEY: Final = "none"


class OpenAIConnection:
    """The SDK's client for one API path.

    Args:
        access: where the API is.
        path: what is posted to, below the address.

    Raises:
        MissingExtra: on creation, when the SDK is not installed.
    """

    def __init__(self, access: Access, path: str) -> None:
        self._path = path
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
        from openai import AsyncStream

        return await self._client.post(
            self._path, body=dict(body), cast_to=object, stream=True, stream_cls=AsyncStream[object]
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.close()


def _client(access: Access) -> "AsyncOpenAI":
    try:
        from openai import AsyncOpenAI, Timeout
    except ImportError as error:
        raise MissingExtra("--model", access.model, "models") from error
    client = AsyncOpenAI(
        api_key=access.key.reveal() or _NO_KEY,
        base_url=access.base_url,
        max_retries=0,
        timeout=Timeout(None, connect=CONNECT_SECONDS),
    )
    if access.provider != "openai":
        # The SDK takes these from the environment; they name an account at OpenAI, which is nobody else's business.
        client.organization = client.project = None
    return client


def _errors() -> tuple[type[Exception], ...]:
    import httpx2
    from openai import OpenAIError

    return (OpenAIError, httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError)


def _connect(access: Access, settings: ProviderSettings) -> Connection:
    del settings
    return OpenAIConnection(access, "/chat/completions")


COMPATIBLE_CHAT: Final = WireParts("chat", encode, ChatDecoder, _connect)
"""The Chat wire of everybody."""
OPENAI_CHAT: Final = WireParts("chat", encode_openai, ChatDecoder, _connect)
"""The Chat wire of OpenAI."""
