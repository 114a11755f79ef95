"""The rule for complete streams, once for every wire.

A wire's decoder takes events and gives chunks; only when the wire's own end marker came is there a response. The invariant: without that marker the attempt failed
(`MODEL_STREAM_FAILED`, which may pass) and no call of it exists, however complete one looks; what comes after the end makes the attempt fail as well; an error inside a
stream is an error. Pure: no time, no transport.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, TypeVar, cast

import msgspec

from checkrein.messages import AssistantMessage, ToolCall
from checkrein.ports.model import Chunk, ModelResponse, StopReason, ToolCallDelta
from checkrein.providers.blocks import Blocks
from checkrein.providers.failures import WireError, broken, read_error
from checkrein.providers.pricing import NO_TOKENS, Tokens

__all__ = ["Decoder", "InBandError", "WireEvent", "read_error_event", "read_event", "read_response"]

T = TypeVar("T")
_ERROR_START: Final = '"error"'


class WireEvent(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One server-sent event; golden streams and records are files of these, one a line.

    Attributes:
        event: its name, `""` when the server gave none.
        data: its data.
    """

    event: str = ""
    data: str = ""


class InBandError(Exception):
    """A provider reported its failure inside a stream; whoever drives the stream gives it its row of the table.

    Attributes:
        error: what was said.
    """

    def __init__(self, error: WireError) -> None:
        super().__init__(error.message)
        self.error = error


class Decoder(ABC):
    """Decodes the stream of one answer; one object per attempt.

    A wire implements `_take`, sets `is_complete` when the answer is whole, and `is_closed` when the wire has said that nothing more comes.

    Args:
        request_id: of the request that is answered.

    Attributes:
        request_id: the same.
        blocks: what came so far.
        is_complete: the end marker came; the stream may end now.
        is_closed: nothing more may come.
        progress: grows with whatever brings the answer nearer to its end; keep-alives and empty pieces do not count.
        tokens: what the answer consumed, as far as it was said.
        response_id: the provider's id of the answer.
        model: the name of the model that answered, as the provider says it.
        stop: why it ended, once that is known.
    """

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.blocks = Blocks(request_id)
        self.is_complete = False
        self.is_closed = False
        self.progress = 0
        self.tokens: Tokens = NO_TOKENS
        self.response_id = ""
        self.model = ""
        self.stop: StopReason = "stop"

    def take(self, event: WireEvent) -> Sequence[Chunk]:
        """Return the chunks of the next event.

        Raises:
            ModelError: the stream is broken.
            InBandError: the provider reports a failure.
        """
        if self.is_closed:
            raise broken("the stream went on after its end")
        return self._take(event)

    @abstractmethod
    def _take(self, event: WireEvent) -> Sequence[Chunk]:
        """Decode one event of an open stream.

        Raises:
            ModelError: the stream is broken.
            InBandError: the provider reports a failure.
        """

    def finished(self) -> tuple[tuple[Chunk, ...], ModelResponse]:
        """Return the calls as chunks, and the response, once the stream ended.

        Raises:
            ModelError: `MODEL_STREAM_FAILED`, its end marker never came.
        """
        if not self.is_complete:
            raise broken("the stream ended without its end marker; nothing of it is used")
        content = self.blocks.content()
        message = AssistantMessage(self.response_id or f"{self.request_id}-answer", content)
        chunks = tuple(ToolCallDelta(self.request_id, block) for block in content if isinstance(block, ToolCall))
        usage = self.tokens.usage(None)
        return chunks, ModelResponse(message.id, self.request_id, message, self.stop, usage)


def read_event(data: str, kind: type[T]) -> T:
    """Return an event's data as a value of a wire's own struct.

    A lone half of a surrogate pair, which a pair split over two events is, is kept for the loop to join.

    Raises:
        ModelError: it is malformed.
        InBandError: it is an error: an object whose `error` says something.
    """
    try:
        value = msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError, ValueError) as first:
        value = _read_slowly(data, kind, first)
    if _ERROR_START in data:
        _raise_error(data)
    return value


def read_error_event(data: str) -> InBandError:
    """Return the error for an event that a wire names an error, whatever its data is."""
    try:
        plain: object = json.loads(data)
    except (ValueError, RecursionError):
        plain = data
    return InBandError(read_error(plain))


def _read_slowly(data: str, kind: type[T], first: Exception) -> T:
    """Return what the strict decoder refused: halves of pairs are accepted, and an error may have any other shape."""
    try:
        plain: object = json.loads(data)
    except (ValueError, RecursionError):
        raise broken(f"an event is malformed: {first}") from first
    _raise_error_of(plain)
    try:
        return msgspec.convert(plain, type=kind)
    except (msgspec.ValidationError, RecursionError, ValueError) as error:
        raise broken(f"an event is malformed: {error}") from error


def _raise_error(data: str) -> None:
    try:
        _raise_error_of(json.loads(data))
    except (ValueError, RecursionError) as error:
        raise broken(f"an event is malformed: {error}") from error


def _raise_error_of(plain: object) -> None:
    if isinstance(plain, dict) and cast("dict[str, object]", plain).get("error"):
        raise InBandError(read_error(cast("object", plain)))


def read_response(decoder: Decoder, events: Sequence[WireEvent]) -> tuple[tuple[Chunk, ...], ModelResponse]:
    """Decode a whole stream that is at hand, as a golden stream or a record is; the chunks with the calls, and the response.

    Raises:
        ModelError: it is no whole response.
        InBandError: the provider reports a failure.
    """
    chunks = [chunk for event in events for chunk in decoder.take(event)]
    calls, response = decoder.finished()
    return (*chunks, *calls), response
