"""The transport of the Responses wire: the `openai` SDK with its retries off, which posts a body and hands over the stream of bytes.

The invariant: what the stream says is decided by our decoder alone; an error inside a stream, which the SDK takes for an event like any other, is none for it.
"""

from typing import Final

from checkrein.providers.chat.client import OpenAIConnection
from checkrein.providers.model import Access, Connection, WireParts
from checkrein.providers.responses.decode import ResponsesDecoder
from checkrein.providers.responses.encode import encode, encode_openai
from checkrein.providers.settings import ProviderSettings

__all__ = ["COMPATIBLE_RESPONSES", "OPENAI_RESPONSES"]


def _connect(access: Access, settings: ProviderSettings) -> Connection:
    del settings
    return OpenAIConnection(access, "/responses")


COMPATIBLE_RESPONSES: Final = WireParts("responses", encode, ResponsesDecoder, _connect)
"""The Responses wire of everybody."""
OPENAI_RESPONSES: Final = WireParts("responses", encode_openai, ResponsesDecoder, _connect)
"""The Responses wire of OpenAI."""
