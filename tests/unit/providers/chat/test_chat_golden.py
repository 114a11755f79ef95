"""Golden streams of the Chat wire: what each means, and that it means nothing before its end."""

import json

import pytest

from checkrein.errors import ModelError
from checkrein.messages import ContentBlock, Text, Thinking, ToolCall, Usage
from checkrein.ports.model import StopReason, ToolCallDelta
from checkrein.providers.chat.client import COMPATIBLE_CHAT
from checkrein.providers.chat.decode import ChatDecoder
from checkrein.providers.stream import WireEvent, read_response
from tests.unit.providers.wire_bytes import STREAMS, events_of, golden, outcome
from tests.unit.providers.wire_server import sse

DETAILS = [
    {"type": "reasoning.text", "text": "First think.", "index": 0, "format": "x-v1", "signature": "c2lnbmVk"},
    {"type": "reasoning.encrypted", "data": "AAAA", "index": 1},
]


MEANT: dict[str, tuple[tuple[ContentBlock, ...], StopReason, Usage]] = {
    "text": ((Text("Hello, wörld \U0001f600!"),), "stop", Usage(12, 5, 4)),
    "text_without_done": ((Text("as some servers end"),), "stop", Usage()),
    "surrogates": ((Text("smile \U0001f600 end"),), "stop", Usage()),
    "thinking_content": (
        (Thinking("First think.", "chat:reasoning_content"), Text("Then say.")),
        "stop",
        Usage(9, 20, reasoning_tokens=14),
    ),
    "thinking_plain": (
        (Thinking("First think.", "chat:reasoning"), Text("Then say.")),
        "stop",
        Usage(9, 20, reasoning_tokens=14),
    ),
    "thinking_details": (
        (Thinking("First think.", f"chat:reasoning_details:{json.dumps(DETAILS)}"), ToolCall("c1", "add", {"a": 1})),
        "tool_call",
        Usage(),
    ),
    "one_call": ((ToolCall("call_a", "add", {"a": 1, "b": 2}),), "tool_call", Usage(30, 10)),
    "parallel_calls": (
        (
            Text("Two at once."),
            ToolCall("call_a", "add", {"a": 1, "b": 2}),
            ToolCall("call_b", "add", {"a": 3, "b": 4}),
            ToolCall("call_c", "find", {"q": "é"}),
        ),
        "tool_call",
        Usage(30, 10),
    ),
    "whole_calls": ((ToolCall("x1", "add", {"a": 1}), ToolCall("x2", "add", {"a": 2})), "tool_call", Usage()),
    "same_index_calls": ((ToolCall("x1", "add", {"a": 1}), ToolCall("x2", "add", {"a": 2})), "tool_call", Usage()),
    "call_without_id": ((ToolCall("call_chatcmpl-1_0", "add", {"a": 1}),), "tool_call", Usage()),
    "malformed_call": (
        (ToolCall("call_a", "add", {}, malformed='{"a":'), ToolCall("call_b", "add", {"a": 1})),
        "tool_call",
        Usage(),
    ),
    "no_arguments": ((ToolCall("call_a", "now", {}),), "tool_call", Usage()),
    "stop_with_call": ((ToolCall("call_a", "add", {"a": 1}),), "tool_call", Usage()),
    "length": ((Text("cut o"),), "length", Usage(5, 4096)),
    "length_in_a_call": (
        (ToolCall("call_a", "add", {"a": 1}), ToolCall("call_b", "add", {}, malformed='{"a"')),
        "length",
        Usage(),
    ),
    "content_filter": ((Text("I may not"),), "refusal", Usage()),
    "refusal": ((Text("I cannot."),), "refusal", Usage(7, 3)),
    "content_parts": ((Thinking("First think."), Text("Then say.")), "stop", Usage()),
    "call_with_extra": (
        (
            ToolCall("g1", "add", {"a": 1}),
            ToolCall("g2", "add", {"a": 2}),
            Thinking("", 'chat:extra_content:{"0": {"google": {"thought_signature": "c2ln"}}}'),
        ),
        "tool_call",
        Usage(),
    ),
    "empty": ((), "stop", Usage()),
    "finish_twice": ((Text("hi"),), "stop", Usage(3, 1)),
}
CODES = {"length": "MODEL_OUTPUT_LIMIT", "length_in_a_call": "MODEL_OUTPUT_LIMIT", "empty": "MODEL_EMPTY"}


def test_every_golden_stream_has_its_meaning() -> None:
    assert sorted(name for name, _ in golden("chat")) == sorted(MEANT)


@pytest.mark.parametrize("name", MEANT)
def test_a_golden_stream_is_decoded(name: str) -> None:
    chunks, response = read_response(ChatDecoder("request-001"), events_of(STREAMS / "chat" / f"{name}.jsonl"))
    content, reason, usage = MEANT[name]
    assert response.message.content == content
    assert (response.stop_reason, response.usage, response.request_id) == (reason, usage, "request-001")
    calls = [chunk.call for chunk in chunks if isinstance(chunk, ToolCallDelta)]
    assert calls == [block for block in content if isinstance(block, ToolCall)]


@pytest.mark.parametrize("name", MEANT)
async def test_the_loop_takes_a_golden_stream_or_names_the_reason(name: str) -> None:
    found = await outcome(COMPATIBLE_CHAT, [sse(*events_of(STREAMS / "chat" / f"{name}.jsonl"))])
    assert (None if found.error is None else found.error.code) == CODES.get(name)
    if found.answer is not None:
        assert found.answer.message.content == MEANT[name][0]


@pytest.mark.parametrize("name", [name for name in MEANT if name != "text_without_done"])
def test_every_event_of_the_answer_is_needed_until_its_end(name: str) -> None:
    events = events_of(STREAMS / "chat" / f"{name}.jsonl")
    end = next(index for index, event in enumerate(events) if '"finish_reason":"' in event.data)
    for kept in range(end + 1):
        with pytest.raises(ModelError, match="without its end marker") as caught:
            read_response(ChatDecoder("request-001"), events[:kept])
        assert (caught.value.code, caught.value.is_transient) == ("MODEL_STREAM_FAILED", True)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (["[DONE]"], "without a finish reason"),
        (['{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}', "[DONE]", "[DONE]"], "after its end"),
        (
            [
                '{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}',
                '{"choices":[{"delta":{"content":"b"}}]}',
            ],
            "after its finish reason",
        ),
        (
            ['{"choices":[{"finish_reason":"stop"}]}', '{"choices":[{"finish_reason":"length"}]}'],
            "two finish reasons",
        ),
        (['{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"c","function":{"name":"f"}}]}}]}'], "call 0 never did"),
        (['{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]}'], "without a name"),
        (['{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{}"}}]}}]}'], "without index"),
        (['{"choices":[{"index":1,"delta":{"content":"a"}}]}'], "choice 1"),
        (['{"choices":[{"finish_reason":"insufficient_system_resource"}]}'], "could not go on"),
        (["{"], "malformed"),
        (['{"choices":3}'], "malformed"),
        (["null"], "malformed"),
        (["[" * 100_000], "malformed"),
    ],
)
def test_a_broken_stream_fails_and_may_pass(events: list[str], said: str) -> None:
    with pytest.raises(ModelError, match=said) as caught:
        read_response(ChatDecoder("request-001"), [WireEvent(data=event) for event in events])
    assert (caught.value.code, caught.value.is_transient) == ("MODEL_STREAM_FAILED", True)


def test_an_unknown_stop_reason_is_not_guessed() -> None:
    with pytest.raises(ModelError, match="no stop reason") as caught:
        ChatDecoder("request-001").take(WireEvent(data='{"choices":[{"finish_reason":"tired"}]}'))
    assert (caught.value.code, caught.value.is_transient) == ("MODEL_PROTOCOL_ERROR", False)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (WireEvent(data='{"error":{"message":"busy","code":"rate_limit_exceeded"}}'), ("MODEL_RATE_LIMIT", True)),
        (WireEvent(data='{"error":{"message":"busy","code":502},"choices":[]}'), ("MODEL_UNAVAILABLE", True)),
        (WireEvent(data='{"error":"out of memory"}'), ("MODEL_STREAM_FAILED", True)),
        (WireEvent(data='{"error":{"message":"no","type":"insufficient_quota"}}'), ("MODEL_QUOTA", False)),
        (WireEvent("error", '{"type":"overloaded_error","message":"busy"}'), ("MODEL_OVERLOADED", True)),
        (WireEvent("error", "no json"), ("MODEL_STREAM_FAILED", True)),
    ],
)
async def test_an_error_inside_a_stream_is_an_error(event: WireEvent, expected: tuple[str, bool]) -> None:
    begun = '{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}}]}'
    found = await outcome(COMPATIBLE_CHAT, [sse(begun, event)])
    assert found.error is not None
    assert (found.error.code, found.error.is_transient) == expected
    assert found.answer is None


def test_an_error_that_is_null_is_none() -> None:
    decoder = ChatDecoder("request-001")
    decoder.take(WireEvent(data='{"error":null,"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}'))
    assert decoder.finished()[1].message.content == (Text("a"),)


def test_keep_alives_and_empty_pieces_are_no_progress() -> None:
    decoder = ChatDecoder("request-001")
    for data in (
        '{"choices":[]}',
        '{"choices":[{"delta":{"role":"assistant","content":""}}]}',
        '{"choices":[{"delta":{}}]}',
    ):
        decoder.take(WireEvent(data=data))
        assert decoder.progress == 0
    for data in ('{"choices":[{"delta":{"content":"a"}}]}', '{"choices":[{"delta":{},"finish_reason":"stop"}]}'):
        before = decoder.progress
        decoder.take(WireEvent(data=data))
        assert decoder.progress > before
