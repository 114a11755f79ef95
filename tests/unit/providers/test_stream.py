"""What every wire shares: the rule for complete streams, the blocks of a response, and what a model tells its recorder."""

import asyncio
from collections.abc import Sequence

import pytest

from checkrein.clock import run_bounded
from checkrein.errors import MissingExtra, ModelError
from checkrein.messages import Text, Thinking, ToolCall
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse, TextDelta, ToolCallDelta
from checkrein.ports.tool import CancelSignal
from checkrein.providers import registry
from checkrein.providers.blocks import Blocks
from checkrein.providers.chat.client import COMPATIBLE_CHAT
from checkrein.providers.model import Access, Body, Connection, Key, WireModel, WireParts
from checkrein.providers.settings import ProviderSettings
from checkrein.providers.signature import opened, sealed
from checkrein.providers.stops import GIVEN_UP, STOPS, stop_reason
from checkrein.providers.stream import Decoder, WireEvent, read_response
from checkrein.testing import ManualClock
from tests.unit.providers.wire_bytes import REQUEST, SETTINGS, BytesConnection, model_of
from tests.unit.providers.wire_server import sse

WHOLE = sse({"id": "r1", "choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}, "[DONE]")


class Letters(Decoder):
    """A wire whose events are letters, `.` is its end, and `!` says that nothing more comes."""

    def _take(self, event: WireEvent) -> Sequence[Chunk]:
        self.is_complete = self.is_complete or event.data == "."
        self.is_closed = event.data == "!"
        return self.blocks.text("t", event.data) if event.data.isalpha() else ()


def letters(text: str) -> list[WireEvent]:
    return [WireEvent(data=letter) for letter in text]


def test_only_the_end_marker_makes_a_response() -> None:
    assert read_response(Letters("request-001"), letters("ab."))[1].message.content == (Text("ab"),)
    assert read_response(Letters("request-001"), letters("ab.!"))[1].message.id == "request-001-answer"
    for text in ("", "ab", "ab!"):
        with pytest.raises(ModelError, match="without its end marker") as caught:
            read_response(Letters("request-001"), letters(text))
        assert (caught.value.code, caught.value.is_transient) == ("MODEL_STREAM_FAILED", True)


def test_nothing_may_follow_the_last_event() -> None:
    with pytest.raises(ModelError, match="went on after its end"):
        read_response(Letters("request-001"), letters("ab.!c"))


def test_blocks_stand_in_the_order_in_which_they_began() -> None:
    blocks = Blocks("request-001")
    assert blocks.thinking("r", "hm") != []
    blocks.begin_call(1, "c1", "add")
    assert blocks.text("t", "a") == [TextDelta("request-001", "a")]
    blocks.extend_call(1, '{"a":')
    blocks.text("t", "b")
    blocks.extend_call(1, "1}")
    assert blocks.thinking("r", "", signature="s") == []
    assert blocks.text("empty", "") == []
    assert blocks.content() == (Thinking("hm", "s"), ToolCall("c1", "add", {"a": 1}), Text("ab"))
    assert [blocks.has_calls, Blocks("request-001").has_calls] == [True, False]


def test_blocks_refuse_what_does_not_fit_together() -> None:
    blocks = Blocks("request-001")
    blocks.text("t", "a")
    blocks.begin_call(1, "c1", "add")
    blocks.extend_call(1, "{}")
    for wrong in (
        lambda: blocks.begin_call(1, "c2", "add"),
        lambda: blocks.begin_call(2, "c2", ""),
        lambda: blocks.begin_call(2, "", "add"),
        lambda: blocks.extend_call(3, "x"),
        lambda: blocks.extend_call("t", "x"),
        lambda: blocks.replace_call(1, '{"a":1}'),
        lambda: blocks.replace_call(3, "{}"),
        lambda: blocks.text(1, "x"),
        lambda: blocks.thinking("t", "x"),
    ):
        with pytest.raises(ModelError) as caught:
            wrong()
        assert (caught.value.code, caught.value.is_transient) == ("MODEL_STREAM_FAILED", True)
    assert blocks.content() == (Text("a"), ToolCall("c1", "add", {}))


def test_a_response_is_bounded_while_it_comes_in() -> None:
    blocks = Blocks("request-001")
    blocks.begin_call(0, "c", "add")
    for _ in range(8):
        blocks.extend_call(0, "x" * 1_000_000)
    with pytest.raises(ModelError) as caught:
        blocks.extend_call(0, "x" * 1_000_000)
    assert caught.value.code == "MODEL_LIMIT"
    many = Blocks("request-001")
    for number in range(8_192):
        many.begin_call(number, "c", "add")
    with pytest.raises(ModelError) as caught:
        many.begin_call(8_192, "c", "add")
    assert (caught.value.code, caught.value.is_transient) == ("MODEL_LIMIT", False)


def test_a_signature_opens_only_on_its_own_wire() -> None:
    assert opened("chat", sealed("chat", "a:b")) == "a:b"
    assert opened("messages", sealed("chat", "a:b")) is None
    assert opened("chat", "nobody's") is None
    assert opened("chat", "") is None


def test_every_stop_reason_is_mapped_and_a_stop_with_calls_is_a_call() -> None:
    for wire, rows in STOPS.items():
        for word, row in rows.items():
            assert stop_reason(wire, word, has_calls=False) == row.reason
            assert row.meaning
            assert stop_reason(wire, word, has_calls=True) == ("tool_call" if row.reason == "stop" else row.reason)
        for word in GIVEN_UP[wire]:
            assert word not in rows
            with pytest.raises(ModelError, match="could not go on"):
                stop_reason(wire, word, has_calls=False)
        with pytest.raises(ModelError) as caught:
            stop_reason(wire, "no such word", has_calls=False)
        assert caught.value.code == "MODEL_PROTOCOL_ERROR"


class Told:
    """A recorder that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin(self, request: ModelRequest, body: Body) -> None:
        self.lines.append(f"begin {request.id} {body['model']}")

    def event(self, request_id: str, event: WireEvent) -> None:
        self.lines.append(f"event {request_id} {event.data[:6]}")

    def end(self, request_id: str, error: BaseException | None) -> None:
        self.lines.append(f"end {request_id} {type(error).__name__}")


async def items(model: WireModel) -> list[Chunk | ModelResponse]:
    return [item async for item in model.stream(REQUEST, CancelSignal())]


async def test_a_recorder_is_told_every_event_and_one_end() -> None:
    told = Told()
    await items(model_of(COMPATIBLE_CHAT, [WHOLE]).recording(told))
    begun = ["begin request-001 a-model", 'event request-001 {"id":']
    assert told.lines == [*begun, "event request-001 [DONE]", "end request-001 NoneType"]
    told.lines.clear()
    with pytest.raises(ModelError):
        await items(model_of(COMPATIBLE_CHAT, [WHOLE[:-14]], OSError("reset")).recording(told))
    assert told.lines == [*begun, "end request-001 TransientModelError"]


async def test_a_recorder_is_told_of_an_attempt_that_its_reader_left() -> None:
    told = Told()
    stream = model_of(COMPATIBLE_CHAT, [WHOLE]).recording(told).stream(REQUEST, CancelSignal())
    assert isinstance(await anext(stream), TextDelta)
    await stream.aclose()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert told.lines[-1] == "end request-001 GeneratorExit"


async def test_nothing_is_asked_once_it_is_not_wanted() -> None:
    told, signal = Told(), CancelSignal()
    signal.cancel("never mind")
    with pytest.raises(asyncio.CancelledError):
        await anext(model_of(COMPATIBLE_CHAT, [WHOLE]).recording(told).stream(REQUEST, signal))
    assert told.lines == []


async def test_no_timer_is_left_after_an_attempt() -> None:
    for pieces in ([WHOLE], [WHOLE[:-20]], [b"\xff"]):
        clock = ManualClock()
        try:
            await items(model_of(COMPATIBLE_CHAT, pieces, clock=clock))
        except ModelError:
            assert pieces != [WHOLE]
        assert clock.timers == 0


def test_each_event_loop_has_connections_of_its_own() -> None:
    made: list[Connection] = []

    def connect(access: Access, settings: ProviderSettings) -> Connection:
        del access, settings
        made.append(BytesConnection([WHOLE]))
        return made[-1]

    parts = WireParts("chat", COMPATIBLE_CHAT.encode, COMPATIBLE_CHAT.decoder, connect)
    model = WireModel(parts, Access("m", "http://127.0.0.1/v1", Key("")), SETTINGS)
    for _ in range(2):
        assert len(run_bounded(_twice(model), seconds=1)) == 4
    assert len(made) == 2


async def _twice(model: WireModel) -> list[Chunk | ModelResponse]:
    return [*await items(model), *await items(model)]


def test_a_model_whose_sdk_is_missing_is_refused_when_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", dict[str, object]().get)
    with pytest.raises(MissingExtra, match=r"pip install 'checkrein\[models\]'"):
        registry.compatible("local", {"base_url": "http://127.0.0.1:1"})


def test_calls_come_as_chunks_only_at_the_end() -> None:
    events = [
        WireEvent(
            data='{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}}]}'
        ),
        WireEvent(data='{"choices":[{"finish_reason":"tool_calls"}]}'),
    ]
    decoder = COMPATIBLE_CHAT.decoder("request-001")
    assert [list(decoder.take(event)) for event in events] == [[], []]
    assert decoder.finished()[0] == (ToolCallDelta("request-001", ToolCall("c", "f", {})),)
