"""A provider's model as the port has it: encodes a request, reads the stream that an SDK opens, and lets the wire's decoder say what came.

One attempt per `stream`; retries are the runtime's. The invariant: the response is given only after the wire's end marker, the end of the stream and nothing after it; on every
other way out a `ModelError` of the one table is raised, the connection is given back or closed, and no text of it holds the key.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, cast

import msgspec
from msgspec.structs import replace

from checkrein.clock import SystemClock
from checkrein.errors import InvalidJson, ModelError
from checkrein.ports.clock import Clock
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse, ModelStream
from checkrein.ports.tool import CancelSignal
from checkrein.providers.catalogue import window_of
from checkrein.providers.failures import broken, failure, read_error
from checkrein.providers.pricing import cost_of
from checkrein.providers.settings import ProviderSettings, settings_of_request
from checkrein.providers.stops import Wire
from checkrein.providers.stream import Decoder, InBandError, WireEvent
from checkrein.providers.watch import ProgressWatch, Stalled
from checkrein.values import JsonValue, parse_json

if TYPE_CHECKING:
    import httpx2
    from httpx2 import ServerSentEvent

__all__ = [
    "CONNECT_SECONDS",
    "Access",
    "Body",
    "Connection",
    "Key",
    "Opened",
    "Recorder",
    "WireModel",
    "WireParts",
    "wire_events",
]

Body = Mapping[str, JsonValue]
"""The body of a request, as it is posted."""

_MAX_EVENT_BYTES: Final = 32 * 1024 * 1024
_MAX_ERROR_BYTES: Final = 64 * 1024
_DRAIN_SECONDS: Final = 0.5
"""How long a server may keep the connection open after the wire's last event."""
_CLOSE_SECONDS: Final = 2.0
CONNECT_SECONDS: Final = 15.0
"""How long an SDK may take to connect; reading has no limit of its own, for the watch on progress bounds it."""
_SYSTEM_CLOCK: Final = SystemClock()


class Key:
    """A secret that shows in no text; `reveal` is for the transport alone."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        """Hide it."""
        return "Key(***)" if self._text else "Key()"

    def __reduce__(self) -> NoReturn:
        """Refuse to be stored.

        Raises:
            TypeError: always.
        """
        msg = "a key is not stored"
        raise TypeError(msg)

    def shows_in(self, text: str) -> bool:
        """Tell whether a text holds the secret, as the answer of a server may that repeats it."""
        return bool(self._text) and self._text in text

    def reveal(self) -> str:
        """Return the secret."""
        return self._text


class Access(msgspec.Struct, frozen=True):
    """Where a model is, and how one gets at it.

    Attributes:
        model: its name there.
        base_url: the API's address.
        key: the account's key; empty where none is needed.
        provider: who serves it, by the name that prices go by; `""` when only the address tells.
    """

    model: str
    base_url: str
    key: Key
    provider: str = ""


class Opened(Protocol):
    """A response whose head came, as the SDKs give it."""

    response: "httpx2.Response"

    async def close(self) -> None:
        """Give the connection back, or close it."""
        ...


class Connection(Protocol):
    """An SDK's client as transport; it retries nothing."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What it raises when the transport fails or the provider answers with an error status."""
        ...

    async def open(self, body: Body) -> Opened:
        """Post a request and return once the head of the response came.

        Raises:
            Exception: one of `errors`.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class WireParts(msgspec.Struct, frozen=True):
    """What a wire brings.

    Attributes:
        wire: its name.
        encode: makes the body of a request; pure.
        decoder: makes the decoder of one attempt.
        connect: makes the transport; loads the SDK.
    """

    wire: Wire
    encode: Callable[[ModelRequest, ProviderSettings, str], Body]
    decoder: Callable[[str], Decoder]
    connect: Callable[[Access, ProviderSettings], Connection]


class Recorder(Protocol):
    """Told what goes over a wire, without secrets: a record of it is a golden stream."""

    def begin(self, request: ModelRequest, body: Body) -> None:
        """Take note that a request is made."""
        ...

    def event(self, request_id: str, event: WireEvent) -> None:
        """Take the next event of the answer."""
        ...

    def end(self, request_id: str, error: BaseException | None) -> None:
        """Take note of how the attempt ended; None for a whole response."""
        ...


class WireModel:
    """A model behind one wire.

    Args:
        parts: the wire.
        access: where the model is.
        settings: of every request.
        clock: time.
        recorder: told what goes over the wire.
    """

    def __init__(
        self,
        parts: WireParts,
        access: Access,
        settings: ProviderSettings,
        *,
        clock: Clock = _SYSTEM_CLOCK,
        recorder: Recorder | None = None,
    ) -> None:
        self.wire: Wire = parts.wire
        self.name = access.model
        self.settings = settings
        self._parts = parts
        self._access = access
        self._clock = clock
        self._recorder = recorder
        self._connection: Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        """Show what is asked, never the key."""
        return f"WireModel({self.wire}, {self.name!r} at {self._access.base_url})"

    @property
    def access(self) -> Access:
        """Where the model is."""
        return self._access

    @property
    def context_window(self) -> int | None:
        """The tokens that fit into one request and its response: as it is set, else as it is known; None when it is neither."""
        access = self._access
        return self.settings.context_window or window_of(access.model, provider=access.provider, url=access.base_url)

    def recording(self, recorder: Recorder) -> "WireModel":
        """Return the same model, which tells `recorder` what goes over the wire."""
        return WireModel(self._parts, self._access, self.settings, clock=self._clock, recorder=recorder)

    def stream(self, request: ModelRequest, signal: CancelSignal) -> ModelStream:
        """Return chunks, and last exactly one `ModelResponse`.

        Raises:
            TransientModelError: from the iterator: it may pass; `retry_after` says when the provider wants to be asked again.
            ModelError: from the iterator: asking again does not mend it.
        """
        return self._streamed(request, signal)

    async def aclose(self) -> None:
        """Close the model's connections."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def _streamed(self, request: ModelRequest, signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        signal.raise_if_cancelled()
        settings = settings_of_request(self.settings, request.settings)
        body = self._parts.encode(request, settings, self.name)
        decoder = self._parts.decoder(request.id)
        connection = self._connected()
        if self._recorder is not None:
            self._recorder.begin(request, body)
        watch = ProgressWatch(self._clock, settings.timeout)
        forget = signal.subscribe(watch.cancel)
        attempt = _Attempt(connection, decoder, watch)
        failed: BaseException | None = None
        try:
            await attempt.open(body)
            while (event := await attempt.next()) is not None:
                if self._recorder is not None:
                    self._recorder.event(request.id, event)
                for chunk in decoder.take(event):
                    yield chunk
                attempt.mark()
            calls, response = decoder.finished()
        except BaseException as error:
            failed = self._converted(error, attempt)
            if failed is error:
                raise
            raise failed from (None if self._access.key.shows_in(str(error)) else error)
        finally:
            forget()
            watch.stop()
            await attempt.close(self._clock)
            if self._recorder is not None:
                self._recorder.end(request.id, failed)
        for chunk in calls:
            yield chunk
        yield self._priced(response, decoder)

    def _connected(self) -> Connection:
        """Return the transport of the running loop; connections of another loop cannot be used in it."""
        loop = asyncio.get_running_loop()
        if self._connection is None or self._loop is not loop:
            self._connection = self._parts.connect(self._access, self.settings)
            self._loop = loop
        return self._connection

    def _priced(self, response: ModelResponse, decoder: Decoder) -> ModelResponse:
        access = self._access
        cost = cost_of(decoder.tokens, decoder.model or self.name, provider=access.provider, url=access.base_url)
        if cost is None and decoder.model:
            cost = cost_of(decoder.tokens, self.name, provider=access.provider, url=access.base_url)
        return response if cost is None else replace(response, usage=replace(response.usage, cost=cost))

    def _converted(self, error: BaseException, attempt: "_Attempt") -> BaseException:
        """Return the error of the table for what an attempt raised; the same one for what is no failure of the provider."""
        secrets = (self._access.key.reveal(),)
        if isinstance(error, InBandError):
            return failure(error.error, now=self._clock.now(), secrets=secrets)
        if isinstance(error, Stalled):
            return broken(f"no progress for {attempt.watch.seconds:g} s", has_begun=attempt.has_begun)
        if isinstance(error, ModelError) or not isinstance(error, attempt.connection.errors):
            return error
        status = getattr(error, "status_code", None)
        if isinstance(status, int):
            headers: Mapping[str, str] = getattr(getattr(error, "response", None), "headers", {})
            said = read_error(getattr(error, "body", None), status=status, headers=dict(headers))
            said = said if said.message else replace(said, message=str(error))
            return failure(said, now=self._clock.now(), secrets=secrets)
        return broken(_described(error), has_begun=attempt.has_begun, secrets=secrets)


class _Attempt:
    """One request on the wire: its stream, watched for progress."""

    def __init__(self, connection: Connection, decoder: Decoder, watch: ProgressWatch) -> None:
        self.connection = connection
        self.watch = watch
        self.has_begun = False
        self._decoder = decoder
        self._progress = 0
        self._opened: Opened | None = None
        self._events: AsyncGenerator[WireEvent, None] | None = None

    async def open(self, body: Body) -> None:
        """Post the request.

        Raises:
            Stalled: no head of a response came in time.
            Exception: what the connection raises.
        """
        self._opened = await self.watch.wait(self.connection.open(body))
        self.has_begun = True
        self._events = wire_events(self._opened.response)

    async def next(self) -> WireEvent | None:
        """Return the next event; None at the end of the stream, or shortly after the wire's last event.

        Raises:
            Stalled: no progress was made.
            Exception: what the connection raises before the wire's last event.
        """
        if self._events is None:
            return None
        try:
            return await self.watch.wait(anext(self._events, None))
        except (Stalled, *self.connection.errors):
            # Once the wire has said all, how the connection ends is of no interest.
            if self._decoder.is_closed:
                return None
            raise

    def mark(self) -> None:
        """Take note of whether the last event was progress."""
        if self._decoder.is_closed:
            self.watch.hear(seconds=_DRAIN_SECONDS)
        elif self._decoder.progress != self._progress:
            self._progress = self._decoder.progress
            self.watch.hear()

    async def close(self, clock: Clock) -> None:
        """Give the connection back, or close it; never waits for long, and never raises for a transport that is broken anyway."""
        opened, self._opened = self._opened, None
        if opened is None:
            return
        watch = ProgressWatch(clock, _CLOSE_SECONDS)
        try:
            with contextlib.suppress(Stalled, *self.connection.errors):
                await watch.wait(opened.close())
            if self._events is not None:
                with contextlib.suppress(Stalled, *self.connection.errors):
                    await watch.wait(self._events.aclose())
        finally:
            watch.stop()


async def wire_events(response: "httpx2.Response") -> AsyncGenerator[WireEvent, None]:
    """Yield the server-sent events of a response; an event that the end of the stream cuts off is none.

    Raises:
        InBandError: the response is an error in JSON instead.
        ModelError: it is no event stream.
        Exception: what the transport raises.
    """
    from httpx2 import EventSource

    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "text/event-stream":
        raise await _no_stream(response, kind)
    async with contextlib.aclosing(
        cast("AsyncGenerator[ServerSentEvent, None]", aiter(EventSource(response, _MAX_EVENT_BYTES)))
    ) as events:
        async for event in events:
            if event.data:
                yield WireEvent("" if event.event == "message" else event.event, event.data)


async def _no_stream(response: "httpx2.Response", kind: str) -> Exception:
    """Return the error for a response that is no event stream; a provider's error in JSON speaks for itself."""
    body = b""
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > _MAX_ERROR_BYTES:
            break
    with contextlib.suppress(InvalidJson):
        data = parse_json(body.decode("utf-8", "replace"))
        if isinstance(data, dict) and data.get("error"):
            return InBandError(read_error(data))
    return broken(f"the answer is {kind or 'of no type'}, no event stream")


def _described(error: BaseException) -> str:
    """Return an error of the transport with its cause, which is what says something."""
    cause = error.__cause__ or error.__context__
    text = f"{type(error).__name__}: {error}"
    return f"{text} ({type(cause).__name__}: {cause})" if cause is not None else text
