"""A model that plays a record: `replay/FILE` answers each request with what the provider answered when it was recorded, through the same decoder.

Nothing is asked of anybody. The invariant: a request gets the answer that was recorded for this very request, in order; a request that differs from the recorded one is
refused, and the difference is named.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Final, cast

import msgspec
from msgspec.structs import replace

from checkrein.errors import ModelError, TaskError, TransientModelError
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse, ModelStream
from checkrein.ports.tool import CancelSignal
from checkrein.providers.anthropic.client import ANTHROPIC_MESSAGES
from checkrein.providers.catalogue import window_of
from checkrein.providers.chat.client import COMPATIBLE_CHAT, OPENAI_CHAT
from checkrein.providers.failures import broken
from checkrein.providers.model import WireParts
from checkrein.providers.pricing import cost_of
from checkrein.providers.record import Answer, Record, RecordHead, read_record, without_secrets
from checkrein.providers.registry import keys_of_environment
from checkrein.providers.responses.client import COMPATIBLE_RESPONSES, OPENAI_RESPONSES
from checkrein.providers.settings import read_settings, settings_of_request
from checkrein.providers.stream import Decoder, InBandError, read_response
from checkrein.values import shorten

__all__ = ["ReplayModel", "replay"]

_PARTS: Final[Mapping[tuple[str, str], WireParts]] = {
    ("compatible", "chat"): COMPATIBLE_CHAT,
    ("openai", "chat"): OPENAI_CHAT,
    ("compatible", "responses"): COMPATIBLE_RESPONSES,
    ("openai", "responses"): OPENAI_RESPONSES,
    ("anthropic", "messages"): ANTHROPIC_MESSAGES,
}
"""The wires, by provider and name."""
_NOTHING: Final[Mapping[str, object]] = {}
_SHOWN: Final = 120
_SEPARATORS: Final = str.maketrans({"~": "~0", "/": "~1"})


def replay(name: str, settings: Mapping[str, object] = _NOTHING) -> "ReplayModel":
    """Return a model that plays the record in the file `name`.

    Raises:
        TaskError: there is no such record, or a setting is wrong.
    """
    if not name:
        raise TaskError("--model replay/", "", "it names no record", "write it as replay/FILE")
    return ReplayModel(Path(name), settings)


class ReplayModel:
    """Plays a record.

    Args:
        file: the record, or a golden stream.
        settings: in place of those that were recorded; where they change a request, it is refused.

    Raises:
        TaskError: on creation, as `replay`.
    """

    def __init__(self, file: Path, settings: Mapping[str, object] = _NOTHING) -> None:
        record = read_record(file)
        self._file = file
        self._head = record.head or _head_of(file, record)
        self._answers = record.answers
        self._parts = _parts_of(self._head)
        self._settings = read_settings({**self._head.settings, **settings}, source=str(file))
        self._place = 0

    @property
    def context_window(self) -> int | None:
        """The tokens that fit into one request, as the recorded model had it: what was summarised then is summarised now."""
        head = self._head
        return self._settings.context_window or window_of(head.model, provider=head.priced_as, url=head.base_url)

    def stream(self, request: ModelRequest, signal: CancelSignal) -> ModelStream:
        """Play the answer to this request.

        Raises:
            ModelError: from the iterator: `MODEL_REPLAY`, no answer to it was recorded; or what was recorded.
        """
        signal.raise_if_cancelled()
        return self._played(request)

    async def _played(self, request: ModelRequest) -> AsyncIterator[Chunk | ModelResponse]:
        answer = self._next(request)
        self._compare(request, answer)
        decoder = self._parts.decoder(request.id)
        try:
            for event in answer.events:
                for chunk in decoder.take(event):
                    yield chunk
            if _error_of(answer) is not None:
                raise broken("the recorded attempt failed after its last event")
            calls, response = decoder.finished()
        except (ModelError, InBandError) as error:
            recorded = _error_of(answer)
            if recorded is not None:
                raise recorded from error
            raise broken(f"the recorded answer is not whole: {error}") from error
        for chunk in calls:
            yield chunk
        yield self._priced(response, decoder)

    def _next(self, request: ModelRequest) -> Answer:
        """Return the next answer that was recorded for a request of that id."""
        for place in range(self._place, len(self._answers)):
            answer = self._answers[place]
            if answer.request is None or answer.request.request == request.id:
                self._place = place + 1
                return answer
        said = f"{len(self._answers) - self._place} of {len(self._answers)} answers of {self._file} are left"
        raise ModelError(f"no answer to {request.id} was recorded: {said}, and none is to it", code="MODEL_REPLAY")

    def _compare(self, request: ModelRequest, answer: Answer) -> None:
        """Refuse a request that is not the recorded one.

        Raises:
            ModelError: it differs, and where.
        """
        if answer.request is None:
            return
        body = self._parts.encode(request, settings_of_request(self._settings, request.settings), self._head.model)
        text = without_secrets(msgspec.json.encode(body).decode(), keys_of_environment())
        now: object = msgspec.json.decode(text)
        found = _difference(answer.request.body, now)
        if found is not None:
            msg = f"{request.id} is not the request that was recorded: {found}; record it again, or play the record against the code it was made with"
            raise ModelError(msg, code="MODEL_REPLAY")

    def _priced(self, response: ModelResponse, decoder: Decoder) -> ModelResponse:
        head = self._head
        for name in dict.fromkeys((decoder.model or head.model, head.model)):
            cost = cost_of(decoder.tokens, name, provider=head.priced_as, url=head.base_url)
            if cost is not None:
                return replace(response, usage=replace(response.usage, cost=cost))
        return response


def _parts_of(head: RecordHead) -> WireParts:
    return _PARTS.get((head.provider, head.wire)) or next(parts for parts in _PARTS.values() if parts.wire == head.wire)


def _head_of(file: Path, record: Record) -> RecordHead:
    """Return the head for a golden stream, whose wire is the one whose decoder can read it.

    Raises:
        TaskError: none can.
    """
    for (provider, wire), parts in _PARTS.items():
        try:
            read_response(parts.decoder("request"), record.answers[0].events)
        except (ModelError, InBandError):
            continue
        return RecordHead(1, provider, parts.wire, wire)
    raise TaskError(str(file), "", "is no whole answer of any wire", "name a file that --record wrote")


def _error_of(answer: Answer) -> ModelError | None:
    """Return the recorded error; None for a whole answer, as a golden stream is taken for."""
    end = answer.end
    if end is None:
        return (
            None if answer.request is None else broken("the process that recorded the answer did not live to its end")
        )
    if end.end == "complete":
        return None
    if end.end == "not_read":
        return broken("the recorded answer was not read to its end")
    if end.is_transient:
        return TransientModelError(end.message, code=end.end, retry_after=end.retry_after)
    return ModelError(end.message, code=end.end)


def _difference(recorded: object, now: object, place: str = "") -> str | None:
    """Return the first place where two JSON values differ, in words; None when they are equal."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        one, two = cast("dict[str, object]", recorded), cast("dict[str, object]", now)
        keys = sorted({*one, *two})
        return _first(_difference(one.get(key), two.get(key), f"{place}/{key.translate(_SEPARATORS)}") for key in keys)
    if isinstance(recorded, list) and isinstance(now, list):
        ones, twos = cast("list[object]", recorded), cast("list[object]", now)
        found = _first(
            _difference(one, two, f"{place}/{at}") for at, (one, two) in enumerate(zip(ones, twos, strict=False))
        )
        return found or (None if len(ones) == len(twos) else f"{place} had {len(ones)} items, and has {len(twos)}")
    return None if recorded == now else _differ(cast("object", recorded), now, place)


def _differ(recorded: object, now: object, place: str) -> str:
    return f"{place} was {_shown(recorded)}, and is {_shown(now)}"


def _first(found: Iterable[str | None]) -> str | None:
    return next((text for text in found if text is not None), None)


def _shown(value: object) -> str:
    return shorten(msgspec.json.encode(value).decode(), _SHOWN)
