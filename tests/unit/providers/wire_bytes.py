"""A transport that plays bytes: the whole way from a server's bytes to the loop's verdict, without a socket."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import msgspec

from checkrein.errors import ModelError
from checkrein.loop.options import ModelLimits
from checkrein.loop.request import Answer, ResponseCollector
from checkrein.messages import UserMessage
from checkrein.ports.clock import Clock
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse
from checkrein.ports.tool import CancelSignal
from checkrein.providers.model import Access, Body, Connection, Key, Opened, WireModel, WireParts
from checkrein.providers.settings import ProviderSettings
from checkrein.providers.stream import WireEvent
from checkrein.testing import ManualClock

STREAMS = Path(__file__).parents[2] / "golden" / "streams"
REQUEST = ModelRequest("request-001", (UserMessage("u1", "hello"),))
SETTINGS = ProviderSettings()
_ASKED = httpx2.Request("POST", "http://127.0.0.1/v1")
_HEADERS = {"content-type": "text/event-stream"}


class _Body(httpx2.AsyncByteStream):
    """A body in pieces, which may end with an error of the transport."""

    def __init__(self, pieces: Sequence[bytes], failure: Exception | None) -> None:
        self._pieces = pieces
        self._failure = failure

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        if self._failure is not None:
            raise self._failure


@dataclass
class _Opened:
    """A response as an SDK gives it."""

    response: httpx2.Response

    async def close(self) -> None:
        await self.response.aclose()


@dataclass
class BytesConnection:
    """Answers every request with the same bytes."""

    pieces: Sequence[bytes]
    failure: Exception | None = None
    errors: tuple[type[Exception], ...] = (httpx2.HTTPError, OSError)

    async def open(self, body: Body) -> Opened:
        del body
        stream = _Body(self.pieces, self.failure)
        return _Opened(httpx2.Response(200, headers=_HEADERS, stream=stream, request=_ASKED))

    async def aclose(self) -> None:
        pass


@dataclass
class Outcome:
    """How an attempt ended: with an answer that the loop takes, or with an error."""

    chunks: list[Chunk] = field(default_factory=list[Chunk])
    response: ModelResponse | None = None
    answer: Answer | None = None
    error: ModelError | None = None


def model_of(
    parts: WireParts, pieces: Sequence[bytes], failure: Exception | None = None, clock: Clock | None = None
) -> WireModel:
    """Return a model whose server says these bytes."""

    def connect(access: Access, settings: ProviderSettings) -> Connection:
        del access, settings
        return BytesConnection(pieces, failure)

    played = WireParts(parts.wire, parts.encode, parts.decoder, connect)
    access = Access("a-model", "http://127.0.0.1/v1", Key(""))
    return WireModel(played, access, SETTINGS, clock=clock or ManualClock())


async def outcome(parts: WireParts, pieces: Sequence[bytes], failure: Exception | None = None) -> Outcome:
    """Return what comes of one attempt, once the loop has judged it. An error that is none of the table is raised."""
    found = Outcome()
    collector = ResponseCollector(REQUEST, ModelLimits(), lambda _request, chunk: found.chunks.append(chunk))
    try:
        async for item in model_of(parts, pieces, failure).stream(REQUEST, CancelSignal()):
            assert found.response is None, "the stream went on after its response"
            if isinstance(item, ModelResponse):
                found.response = item
            collector.take(item)
        found.answer = collector.finished()
    except ModelError as error:
        found.error = error
    assert (found.answer is None) == (found.error is not None)
    return found


def golden(wire: str) -> list[tuple[str, list[WireEvent]]]:
    """Return the golden streams of a wire by name."""
    files = sorted((STREAMS / wire).glob("*.jsonl"))
    return [(file.stem, events_of(file)) for file in files]


def events_of(file: Path) -> list[WireEvent]:
    """Return the events of a golden stream."""
    return [msgspec.json.decode(line, type=WireEvent) for line in file.read_bytes().split(b"\n") if line]
