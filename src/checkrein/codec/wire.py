"""Events as canonical bytes, strictly both ways.

The bytes of an event are its canonical JSON: sorted keys, no whitespace. Decoding accepts exactly what encoding makes (unknown fields, other types and
newer schema versions are refused), and a whole log only if its offsets have no gap. A refusal is always a `DamagedLog` that names run and offset.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import TypeVar, cast

import msgspec
from msgspec.structs import force_setattr

from checkrein.codec.schema import CURRENT, upcast
from checkrein.errors import DamagedLog, DataError
from checkrein.kernel.events import Event, StepEnd, ToolCallGiven, ToolDone, ToolGranted, ToolResultGiven
from checkrein.ports.store import Row
from checkrein.values import JsonData, JsonObject, JsonValue, Shared, as_data, as_object, canonical_json

__all__ = [
    "decode_event",
    "decode_events",
    "decode_value",
    "encode_event",
    "encode_value",
    "fingerprint",
    "row_of",
    "skim_events",
]

T = TypeVar("T")


def _to_wire(value: object) -> object:
    if isinstance(value, (JsonObject, JsonData)):
        return msgspec.Raw(value.encoded)
    if isinstance(value, Shared):
        return list(cast("Shared[object]", value))
    msg = f"{type(value).__name__} has no JSON form"
    raise TypeError(msg)


_PLAIN = msgspec.json.Encoder(order="sorted")


def _from_wire(kind: type[object], value: object) -> object:
    if kind is JsonObject:
        if not isinstance(value, dict):
            msg = "expected an object"
            raise TypeError(msg)
        return JsonObject.from_canonical(_PLAIN.encode(cast("object", value)))
    if kind is JsonData:
        return JsonData.from_canonical(_PLAIN.encode(value))
    msg = f"{kind.__name__} is no stored type"
    raise TypeError(msg)


_ENCODER = msgspec.json.Encoder(order="sorted", enc_hook=_to_wire)
_ONE = msgspec.json.Decoder(Event, dec_hook=_from_wire, strict=True)


def encode_value(value: object) -> bytes:
    """Return the canonical bytes of any stored value (a state, a payload, an event)."""
    return _ENCODER.encode(value)


def decode_value(encoded: bytes, kind: type[T]) -> T:
    """Return a stored value of a known type.

    Raises:
        DataError: the bytes are no such value.
    """
    try:
        return msgspec.json.decode(encoded, type=kind, dec_hook=_from_wire)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        msg = f"no {kind.__name__}: {error}"
        raise DataError(msg) from error


def encode_event(event: Event) -> bytes:
    """Return the canonical bytes of an event."""
    return _ENCODER.encode(event)


def fingerprint(event: Event) -> bytes:
    """Return SHA-256 (32 bytes) over what the event says: type, run id, actor and data; not over its envelope."""
    return hashlib.sha256(_ENCODER.encode((event.data.type, event.run_id, event.actor, event.data))).digest()


def row_of(event: Event) -> Row:
    """Return the event as a store takes it."""
    return Row(event_id=event.event_id, type=event.data.type, fingerprint=fingerprint(event), body=encode_event(event))


def decode_event(body: bytes, *, run_id: str, offset: int) -> Event:
    """Return one event.

    Raises:
        DamagedLog: the bytes are no event of ours, or not the event of that run at that offset.
    """
    try:
        event = _opened(_ONE.decode(body))
        if event.v != CURRENT[event.data.type]:
            event = _older(body)
        _ENCODER.encode(event)  # looks at every value that the decoder left alone
    except (msgspec.DecodeError, DataError, RecursionError, ValueError) as first:
        event = _older_or_damaged(body, run_id, offset, first)
    if event.run_id != run_id or event.expected_version != offset:
        raise DamagedLog(run_id, offset, f"found event {event.expected_version} of run {event.run_id!r} there")
    return event


def _older(body: bytes) -> Event:
    """Decode an event written in an older schema version.

    Raises:
        DataError: its version cannot be read.
        msgspec.DecodeError: it is no event.
    """
    raw = cast("dict[str, JsonValue]", msgspec.json.decode(body, type=dict[str, object]))
    payload, version = raw.get("data"), raw.get("v")
    if not isinstance(payload, dict) or not isinstance(version, int):
        msg = "an event without payload or schema version"
        raise DataError(msg)
    kind = payload.get("type")
    current = CURRENT.get(kind, 1) if isinstance(kind, str) else 1
    return _opened(_ONE.decode(canonical_json({**raw, "data": upcast(payload, version), "v": current})))


def _older_or_damaged(body: bytes, run_id: str, offset: int, first: Exception) -> Event:
    try:
        return _older(body)
    except (msgspec.DecodeError, DataError, RecursionError, ValueError) as error:
        reason = str(error) if isinstance(error, DataError) else str(first)
        raise DamagedLog(run_id, offset, reason) from error


def decode_events(bodies: Iterable[bytes], *, run_id: str, offset: int = 0) -> list[Event]:
    """Return the events of a log from `offset` on; much faster than one by one.

    Raises:
        DamagedLog: naming the first event that is not what belongs there.
    """
    return [_opened(event) for event in skim_events(bodies, run_id=run_id, offset=offset)]


def skim_events(bodies: Iterable[bytes], *, run_id: str, offset: int = 0) -> Iterator[Event]:
    """Yield the events of a log from `offset` on for a fold: the arguments and results in them are left as they are stored.

    Raises:
        DamagedLog: naming the first event that is not what belongs there.
    """
    decode = _ONE.decode
    for position, body in enumerate(bodies, offset):
        try:
            event = decode(body)
            if not body.isascii():
                body.decode()
        except (msgspec.DecodeError, DataError, RecursionError, ValueError):
            event = decode_event(body, run_id=run_id, offset=position)
        if event.expected_version != position or event.run_id != run_id or event.v != CURRENT[event.data.type]:
            event = decode_event(body, run_id=run_id, offset=position)
        yield event


def _opened(event: Event) -> Event:
    """Make values of the arguments and the result that the decoder left alone, in an event that nobody else has."""
    data = event.data
    if isinstance(data, (ToolCallGiven, ToolGranted)):
        force_setattr(data, "arguments", as_object(data.arguments))
    elif isinstance(data, (ToolDone, ToolResultGiven, StepEnd)):
        force_setattr(data, "result", as_data(data.result))
    return event
