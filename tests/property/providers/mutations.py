"""Broken streams of every wire: cut after each byte, or changed by seed; and what must hold of whatever comes of them.

What a stream may mean is judged by an eye of its own, which knows server-sent events and JSON and nothing of our decoders.
"""

import asyncio
import json
import random  # noqa: TID251  the same broken streams for one seed
from collections.abc import Awaitable, Callable, Iterator, Sequence

import httpx2

from checkrein.providers.model import WireParts
from checkrein.providers.stream import WireEvent
from tests.unit.providers.wire_bytes import Outcome, outcome
from tests.unit.providers.wire_server import sse

EndSeen = Callable[[list[tuple[str, object]]], bool]
"""Tells from (event name, decoded data) pairs whether the wire's end marker is among them."""
_SECONDS = 5.0
RESET = httpx2.ReadError("connection reset")


def plain_events(raw: bytes) -> list[tuple[str, object]]:
    """Return the whole events of a stream: what stands before its last blank line. Data that is no JSON stays text."""
    text = raw.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    found: list[tuple[str, object]] = []
    for block in text.split("\n\n")[:-1]:
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        values = [(name, value.removeprefix(" ")) for name, _, value in (line.partition(":") for line in lines)]
        data = "\n".join(value for name, value in values if name == "data")
        event = next((value for name, value in reversed(values) if name == "event"), "")
        if data:
            found.append((event, _decoded(data)))
    return found


def _decoded(data: str) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data


async def bounded(work: Awaitable[Outcome]) -> Outcome:
    """Return what an attempt comes to; one that hangs fails the test."""
    return await asyncio.wait_for(work, _SECONDS)


def check(found: Outcome, raw: bytes, end_seen: EndSeen) -> str:
    """Return how an attempt ended: `completed`, `retried` or `failed`.

    It ended once, and without the end marker in what came nothing was adopted and no call exists, not even as a chunk.
    """
    assert (found.answer is None) != (found.error is None)
    if not end_seen(plain_events(raw)):
        assert found.answer is None
        assert found.response is None
        assert not [chunk for chunk in found.chunks if chunk.type == "tool_call_delta"]
    if found.answer is not None:
        assert found.response is not None
        for call in found.answer.calls:
            assert call.name
            assert call.id
        return "completed"
    assert found.error is not None
    return "retried" if found.error.is_transient else "failed"


async def cut_everywhere(parts: WireParts, events: Sequence[WireEvent], end_seen: EndSeen) -> dict[str, int]:
    """Cut a stream after every byte, cleanly and by a reset; return how often it ended how."""
    raw = sse(*events)
    whole = await outcome(parts, [raw])
    ends: dict[str, int] = {}
    for size in range(len(raw)):
        for failure in (None, RESET):
            found = await bounded(outcome(parts, [raw[:size]], failure))
            end = check(found, raw[:size], end_seen)
            ends[end] = ends.get(end, 0) + 1
            if found.answer is not None:
                assert whole.answer is not None
                assert found.answer.message == whole.answer.message
    return ends


def mutated(raw: bytes, events: Sequence[WireEvent], draw: random.Random) -> bytes:
    """Return the stream with one to three changes: of bytes, or of whole events."""
    for _ in range(draw.randint(1, 3)):
        raw = draw.choice(_CHANGES)(raw, events, draw)
    return raw


def _flip(raw: bytes, _events: Sequence[WireEvent], draw: random.Random) -> bytes:
    at = draw.randrange(len(raw) + 1)
    return raw[:at] + bytes([draw.randrange(256)]) + raw[at + 1 :]


def _insert(raw: bytes, _events: Sequence[WireEvent], draw: random.Random) -> bytes:
    at = draw.randrange(len(raw) + 1)
    return raw[:at] + draw.choice(_PIECES) + raw[at:]


def _delete(raw: bytes, _events: Sequence[WireEvent], draw: random.Random) -> bytes:
    at = draw.randrange(len(raw) + 1)
    return raw[:at] + raw[at + draw.randint(1, 40) :]


def _repeat(raw: bytes, _events: Sequence[WireEvent], draw: random.Random) -> bytes:
    at = draw.randrange(len(raw) + 1)
    return raw[:at] + raw[max(0, at - draw.randint(1, 200)) :]


def _drop_event(raw: bytes, _events: Sequence[WireEvent], draw: random.Random) -> bytes:
    blocks = raw.split(b"\n\n")
    del blocks[draw.randrange(len(blocks))]
    return b"\n\n".join(blocks)


def _swap_events(raw: bytes, _events: Sequence[WireEvent], draw: random.Random) -> bytes:
    blocks = raw.split(b"\n\n")
    one, other = draw.randrange(len(blocks)), draw.randrange(len(blocks))
    blocks[one], blocks[other] = blocks[other], blocks[one]
    return b"\n\n".join(blocks)


def _foreign_event(raw: bytes, events: Sequence[WireEvent], draw: random.Random) -> bytes:
    blocks = raw.split(b"\n\n")
    blocks.insert(draw.randrange(len(blocks)), sse(draw.choice(events)).removesuffix(b"\n\n"))
    return b"\n\n".join(blocks)


def _change_value(raw: bytes, _events: Sequence[WireEvent], draw: random.Random) -> bytes:
    """Replace what stands between two punctuation marks of JSON."""
    marks = [at for at, byte in enumerate(raw) if byte in b':,[]{}"']
    if not marks:
        return raw
    at = draw.choice(marks)
    end = next((mark for mark in marks if mark > at), len(raw))
    return raw[: at + 1] + draw.choice(_VALUES) + raw[end:]


_PIECES = (
    b"\n",
    b"\n\n",
    b"\r",
    b"\x00",
    b"data:",
    b": ping\n\n",
    b"event: error\n",
    b"\xff\xfe",
    b'{"error":{"message":"x"}}',
    b"data: [DONE]\n\n",
)
_VALUES = (
    b"null",
    b"0",
    b"-1",
    b"1e400",
    b"99999999999999999999",
    b'""',
    b'"\\ud800"',
    b"[]",
    b"{}",
    b"true",
    b'"stop"',
)
_CHANGES = (_flip, _insert, _delete, _repeat, _drop_event, _swap_events, _foreign_event, _change_value)


def mutations(streams: Sequence[Sequence[WireEvent]], count: int, seed: int) -> Iterator[bytes]:
    """Yield so many broken streams, the same ones for one seed."""
    draw = random.Random(seed)  # noqa: S311  a test's choices are no secret
    everything = [event for events in streams for event in events]
    for number in range(count):
        raw = sse(*streams[number % len(streams)])
        yield mutated(raw, everything, draw)
