"""Golden streams of the Messages wire: what each means, and that it means nothing before its end."""

import json

import pytest

from checkrein.errors import ModelError
from checkrein.messages import ContentBlock, Text, Thinking, ToolCall, Usage
from checkrein.ports.model import StopReason, ToolCallDelta
from checkrein.providers.anthropic.client import ANTHROPIC_MESSAGES
from checkrein.providers.anthropic.decode import MessagesDecoder
from checkrein.providers.pricing import Tokens
from checkrein.providers.stops import STOPS
from checkrein.providers.stream import WireEvent, read_response
from tests.unit.providers.wire_bytes import STREAMS, events_of, golden, outcome
from tests.unit.providers.wire_server import sse

FOLDER = STREAMS / "anthropic"
ADD_ONE, ADD_TWO = ToolCall("toolu_a", "add", {"a": 1}), ToolCall("toolu_b", "add", {"a": 2})
USUAL = Usage(12, 5)


def thought(text: str, signature: str) -> Thinking:
    return Thinking(text, f"messages:thinking:{signature}")


MEANT: dict[str, tuple[tuple[ContentBlock, ...], StopReason, Usage]] = {
    "text": ((Text("Hello, wörld \U0001f600!"),), "stop", Usage(142, 15, 100, cache_written_tokens=30)),
    "text_with_done": ((Text("as some servers end"),), "stop", USUAL),
    "unknown_events": ((Text("known"),), "stop", Usage(14, 5)),
    "citations": ((Text("cited"),), "stop", USUAL),
    "surrogates": ((Text("smile \U0001f600 end"),), "stop", USUAL),
    "thinking": ((thought("First think.", "c2lnbmVk"), Text("Then say.")), "stop", Usage(12, 20, reasoning_tokens=8)),
    "thinking_between_calls": (
        (thought("One.", "c2ln:bmVk"), ADD_ONE, thought("Two.", "c2lnMg=="), Text("And"), ADD_TWO),
        "tool_call",
        USUAL,
    ),
    "thinking_hidden": (
        (thought("", "b25seQ=="), Thinking("", "messages:redacted:RW5jcnlwdGVk"), Text("Said.")),
        "stop",
        USUAL,
    ),
    "one_call": ((ToolCall("toolu_a", "add", {"a": 1, "b": 2}),), "tool_call", USUAL),
    "whole_call": ((ToolCall("toolu_a", "add", {"a": 1, "b": 2}),), "tool_call", USUAL),
    "parallel_calls": (
        (
            Text("Three at once."),
            ToolCall("toolu_a", "add", {"a": 1, "b": 2}),
            ToolCall("toolu_b", "add", {"a": 3, "b": 4}),
            ToolCall("toolu_c", "find", {"q": "é"}),
        ),
        "tool_call",
        USUAL,
    ),
    "malformed_call": (
        (ToolCall("toolu_a", "add", {}, malformed='{"a":'), ToolCall("toolu_b", "add", {"a": 1})),
        "tool_call",
        USUAL,
    ),
    "no_arguments": ((ToolCall("toolu_a", "now", {}),), "tool_call", USUAL),
    "end_turn_with_call": ((ADD_ONE,), "tool_call", USUAL),
    "stop_sequence": ((Text("up to"),), "stop", USUAL),
    "max_tokens": ((Text("cut o"),), "length", Usage(12, 4096)),
    "max_tokens_in_a_call": ((ADD_ONE, ToolCall("toolu_b", "add", {}, malformed='{"a"')), "length", USUAL),
    "context_window": ((Text("cut o"),), "length", USUAL),
    "pause_turn": ((Text("Wait."),), "length", USUAL),
    "refusal": ((Text("I began"),), "refusal", USUAL),
    "refusal_at_once": ((Text("Not this."),), "refusal", USUAL),
    "refusal_unexplained": ((Text("The provider refused to answer."),), "refusal", USUAL),
    "empty": ((), "stop", Usage(12, 2)),
}
CODES = {
    "max_tokens": "MODEL_OUTPUT_LIMIT",
    "max_tokens_in_a_call": "MODEL_OUTPUT_LIMIT",
    "context_window": "MODEL_OUTPUT_LIMIT",
    "pause_turn": "MODEL_OUTPUT_LIMIT",
    "empty": "MODEL_EMPTY",
}


def test_every_golden_stream_has_its_meaning() -> None:
    assert sorted(name for name, _ in golden("anthropic")) == sorted(MEANT)


def test_every_stop_reason_of_the_table_has_a_golden_stream() -> None:
    streams = "".join(event.data for _, events in golden("anthropic") for event in events)
    assert [word for word in STOPS["messages"] if f'"stop_reason":"{word}"' not in streams] == []


@pytest.mark.parametrize("name", MEANT)
def test_a_golden_stream_is_decoded(name: str) -> None:
    chunks, response = read_response(MessagesDecoder("request-001"), events_of(FOLDER / f"{name}.jsonl"))
    content, reason, usage = MEANT[name]
    assert response.message.content == content
    assert (response.stop_reason, response.usage, response.request_id) == (reason, usage, "request-001")
    assert response.id == "msg_1"
    calls = [chunk.call for chunk in chunks if isinstance(chunk, ToolCallDelta)]
    assert calls == [block for block in content if isinstance(block, ToolCall)]


@pytest.mark.parametrize("name", MEANT)
async def test_the_loop_takes_a_golden_stream_or_names_the_reason(name: str) -> None:
    found = await outcome(ANTHROPIC_MESSAGES, [sse(*events_of(FOLDER / f"{name}.jsonl"))])
    assert (None if found.error is None else found.error.code) == CODES.get(name)
    if found.answer is not None:
        assert found.answer.message.content == MEANT[name][0]


@pytest.mark.parametrize("name", MEANT)
def test_every_event_of_the_answer_is_needed_until_its_end(name: str) -> None:
    events = events_of(FOLDER / f"{name}.jsonl")
    end = next(index for index, event in enumerate(events) if "message_stop" in event.data)
    for kept in range(end + 1):
        with pytest.raises(ModelError, match="without its end marker") as caught:
            read_response(MessagesDecoder("request-001"), events[:kept])
        assert (caught.value.code, caught.value.is_transient) == ("MODEL_STREAM_FAILED", True)


def test_usage_is_taken_in_full() -> None:
    usage = {"cache_creation_input_tokens": 30, "cache_read_input_tokens": 100, "input_tokens": 7, "output_tokens": 1}
    decoder = decoder_after(
        {"type": "message_start", "message": {"id": "m", "model": "a-model-2", "usage": usage}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 40, "output_tokens_details": {"thinking_tokens": 25}},
        },
    )
    assert decoder.tokens == Tokens(input=137, output=40, cached=100, cache_written=30, reasoning=25)
    assert decoder.model == "a-model-2"


def test_usage_that_does_not_know_the_cache_is_taken_as_it_is() -> None:
    usage = {"input_tokens": 9, "cache_read_input_tokens": None, "cache_creation_input_tokens": None}
    decoder = decoder_after({"type": "message_start", "message": {"usage": usage}})
    assert decoder.tokens == Tokens(input=9)


Event = dict[str, object]
START: Event = {"type": "message_start", "message": {"id": "m", "model": "a"}}
BEGIN_TEXT: Event = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
BEGIN_CALL: Event = {
    "type": "content_block_start",
    "index": 0,
    "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}},
}
TEXT: Event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}
INPUT: Event = {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{}"}}
END_BLOCK: Event = {"type": "content_block_stop", "index": 0}
SAID: Event = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}
STOP: Event = {"type": "message_stop"}
PING: Event = {"type": "ping"}


def decoder_after(*events: Event) -> MessagesDecoder:
    decoder = MessagesDecoder("request-001")
    for event in events:
        decoder.take(WireEvent(data=json.dumps(event)))
    return decoder


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([BEGIN_TEXT], "before the message began"),
        ([STOP], "before the message began"),
        ([START, START], "a second message"),
        ([{"type": "message_start"}], "without itself"),
        ([START, STOP], "without a stop reason"),
        ([START, BEGIN_CALL, INPUT, STOP], "without a stop reason"),
        ([START, BEGIN_CALL, INPUT, SAID], "block 0 never ended"),
        ([START, BEGIN_TEXT | {"index": 1}], "block 0 was to come"),
        ([START, BEGIN_TEXT, END_BLOCK, BEGIN_CALL], "block 1 was to come"),
        ([START, {"type": "content_block_start", "index": 0}], "block 0 was to come"),
        ([START, BEGIN_TEXT | {"index": None}], "block 0 was to come"),
        ([START, TEXT], "not open"),
        ([START, BEGIN_TEXT, END_BLOCK, TEXT], "not open"),
        ([START, BEGIN_TEXT, TEXT | {"index": 1}], "not open"),
        ([START, BEGIN_TEXT, {"type": "content_block_delta", "index": 0}], "not open"),
        ([START, END_BLOCK], "not open"),
        ([START, BEGIN_TEXT, INPUT], "a piece of tool_use"),
        ([START, BEGIN_CALL, TEXT], "a piece of text"),
        ([START, BEGIN_TEXT, TEXT | {"delta": {"type": "other_delta"}}], "unknown kind 'other_delta'"),
        (
            [START, BEGIN_CALL | {"content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}}, INPUT],
            "began with all of them",
        ),
        ([START, BEGIN_CALL | {"content_block": {"type": "tool_use", "name": "f"}}], "without a name or an id"),
        ([START, BEGIN_CALL | {"content_block": {"type": "tool_use", "id": "t"}}], "without a name or an id"),
        ([START, SAID, BEGIN_TEXT], "after its stop reason"),
        ([START, SAID, SAID | {"delta": {"stop_reason": "max_tokens"}}], "two stop reasons"),
        ([START, SAID, STOP, PING], "after its end"),
        ([START, SAID, STOP, STOP], "after its end"),
        ([START, {"type": 3}], "malformed"),
        ([START, TEXT | {"index": "0"}], "malformed"),
    ],
)  # fmt: skip
def test_a_broken_stream_fails_and_may_pass(events: list[Event], said: str) -> None:
    with pytest.raises(ModelError, match=said) as caught:
        decoder_after(*events)
    assert (caught.value.code, caught.value.is_transient) == ("MODEL_STREAM_FAILED", True)


@pytest.mark.parametrize("data", ["{", "null", "[" * 100_000, "[DONE]"])
def test_data_that_is_no_event_fails(data: str) -> None:
    with pytest.raises(ModelError, match="malformed") as caught:
        MessagesDecoder("request-001").take(WireEvent("message_start", data))
    assert (caught.value.code, caught.value.is_transient) == ("MODEL_STREAM_FAILED", True)


def test_a_second_word_after_the_end_is_too_many() -> None:
    decoder = decoder_after(START, SAID, STOP)
    assert list(decoder.take(WireEvent(data="[DONE]"))) == []
    with pytest.raises(ModelError, match="after its end"):
        decoder.take(WireEvent(data="[DONE]"))


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([START, SAID | {"delta": {"stop_reason": "tired"}}], "no stop reason"),
        ([START, BEGIN_TEXT | {"content_block": {"type": "server_tool_use", "id": "s", "name": "search"}}], "'server_tool_use'"),
    ],
)  # fmt: skip
def test_what_nobody_knows_is_not_guessed(events: list[Event], said: str) -> None:
    with pytest.raises(ModelError, match=said) as caught:
        decoder_after(*events)
    assert (caught.value.code, caught.value.is_transient) == ("MODEL_PROTOCOL_ERROR", False)


def wrong(kind: str, message: str = "no") -> WireEvent:
    return WireEvent("error", json.dumps({"type": "error", "error": {"type": kind, "message": message}}))


@pytest.mark.parametrize(
    ("event", "code", "is_transient"),
    [
        (wrong("overloaded_error"), "MODEL_OVERLOADED", True),
        (wrong("api_error"), "MODEL_UNAVAILABLE", True),
        (wrong("timeout_error"), "MODEL_UNAVAILABLE", True),
        (wrong("rate_limit_error"), "MODEL_RATE_LIMIT", True),
        (wrong("authentication_error"), "MODEL_AUTH", False),
        (wrong("permission_error"), "MODEL_AUTH", False),
        (wrong("billing_error"), "MODEL_QUOTA", False),
        (wrong("not_found_error"), "MODEL_NOT_FOUND", False),
        (wrong("request_too_large"), "MODEL_CONTEXT", False),
        (wrong("invalid_request_error"), "MODEL_REQUEST", False),
        (wrong("invalid_request_error", "prompt is too long: 213462 tokens > 200000 maximum"), "MODEL_CONTEXT", False),
        (wrong("invalid_request_error", "Your credit balance is too low to access the API."), "MODEL_QUOTA", False),
        (wrong("never_heard_of"), "MODEL_STREAM_FAILED", True),
        (WireEvent("error", "no json"), "MODEL_STREAM_FAILED", True),
        (WireEvent(data='{"type":"error"}'), "MODEL_STREAM_FAILED", True),
        (WireEvent("ping", '{"error":{"type":"overloaded_error","message":"busy"}}'), "MODEL_OVERLOADED", True),
    ],
)
async def test_an_error_inside_a_stream_is_an_error(event: WireEvent, code: str, is_transient: bool) -> None:  # noqa: FBT001  a table's column
    found = await outcome(ANTHROPIC_MESSAGES, [sse(START, BEGIN_CALL, INPUT, END_BLOCK, event, SAID, STOP)])
    assert found.error is not None
    assert (found.error.code, found.error.is_transient) == (code, is_transient)
    assert found.answer is None
    assert found.chunks == []


def test_keep_alives_and_empty_pieces_are_no_progress() -> None:
    decoder = decoder_after(START, BEGIN_TEXT)
    before = decoder.progress
    for event in (PING, TEXT | {"delta": {"type": "text_delta", "text": ""}}, {"type": "unknown"}):
        decoder.take(WireEvent(data=json.dumps(event)))
        assert decoder.progress == before
    for event in (
        TEXT,
        END_BLOCK,
        BEGIN_CALL | {"index": 1},
        INPUT | {"index": 1},
        END_BLOCK | {"index": 1},
        SAID,
        STOP,
    ):
        before = decoder.progress
        decoder.take(WireEvent(data=json.dumps(event)))
        assert decoder.progress > before
