"""Golden streams of the Responses wire: what each means, and that it means nothing before its end."""

import json
from collections.abc import Mapping

import pytest

from checkrein.errors import ModelError
from checkrein.messages import ContentBlock, Text, Thinking, ToolCall, Usage
from checkrein.ports.model import StopReason, ToolCallDelta
from checkrein.providers.responses.client import COMPATIBLE_RESPONSES
from checkrein.providers.responses.decode import ResponsesDecoder
from checkrein.providers.stream import WireEvent, read_response
from tests.unit.providers.wire_bytes import STREAMS, events_of, golden, outcome
from tests.unit.providers.wire_server import sse


def sealed(item: Mapping[str, object]) -> str:
    return f"responses:{json.dumps(item)}"


SUMMARY = [{"type": "summary_text", "text": "First think."}, {"type": "summary_text", "text": "Then weigh."}]
ENCRYPTED = sealed({"type": "reasoning", "summary": SUMMARY, "id": "rs_0", "encrypted_content": "gAAAA=="})
HIDDEN = sealed({"type": "reasoning", "summary": [], "id": "rs_0", "encrypted_content": "gBBBB=="})
PLAIN = sealed(
    {
        "type": "reasoning",
        "summary": [],
        "id": "rs_0",
        "content": [{"type": "reasoning_text", "text": "First think."}],
    }
)
LOCAL = sealed(
    {"type": "reasoning", "summary": [], "id": "rs_x", "content": [{"text": "Hm.", "type": "reasoning_text"}]}
)
SMILE = "\U0001f600"

MEANT: dict[str, tuple[tuple[ContentBlock, ...], StopReason, Usage]] = {
    "text": ((Text(f"Hello, wörld {SMILE}!"),), "stop", Usage(12, 5, 4)),
    "text_unnamed": ((Text("Hi."),), "stop", Usage()),
    "text_whole": ((Text("Said at once."),), "stop", Usage()),
    "surrogates": ((Text(f"smile {SMILE} end"),), "stop", Usage()),
    "not_listed": ((Text("Not listed."), ToolCall("call_a", "add", {"a": 1})), "tool_call", Usage()),
    "reasoning_encrypted": (
        (Thinking("First think.\n\nThen weigh.", ENCRYPTED), Text("Then say.")),
        "stop",
        Usage(9, 40, reasoning_tokens=32),
    ),
    "reasoning_hidden": (
        (Thinking("", HIDDEN), ToolCall("call_a", "add", {"a": 1})),
        "tool_call",
        Usage(9, 40, reasoning_tokens=32),
    ),
    "reasoning_plain": ((Thinking("First think.", PLAIN), Text("Then say.")), "stop", Usage()),
    "reasoning_empty": ((Text("Nothing to hide."),), "stop", Usage()),
    "one_call": ((ToolCall("call_a", "add", {"a": 1, "b": 2}),), "tool_call", Usage(30, 10)),
    "parallel_calls": (
        (
            Text("Three at once."),
            Thinking("", sealed({"phase": "commentary"})),
            ToolCall("call_a", "add", {"a": 1, "b": 2}),
            ToolCall("call_b", "add", {"a": 3, "b": 4}),
            ToolCall("call_c", "find", {"q": "é"}),
        ),
        "tool_call",
        Usage(30, 10),
    ),
    "whole_calls": ((ToolCall("call_a", "add", {"a": 1}), ToolCall("call_b", "add", {"a": 2})), "tool_call", Usage()),
    "malformed_call": (
        (ToolCall("call_a", "add", {}, malformed='{"a":'), ToolCall("call_b", "add", {"a": 1})),
        "tool_call",
        Usage(),
    ),
    "no_arguments": ((ToolCall("call_a", "now", {}),), "tool_call", Usage()),
    "local_server": (
        (Thinking("Hm.", LOCAL), Text("Let me add."), ToolCall("fc_1", "add", {"a": 1})),
        "tool_call",
        Usage(20, 8),
    ),
    "max_output_tokens": ((Text("cut o"),), "length", Usage(5, 4096)),
    "max_output_tokens_in_a_call": (
        (ToolCall("call_a", "add", {"a": 1}), ToolCall("call_b", "add", {}, malformed='{"a"')),
        "length",
        Usage(),
    ),
    "completed_as_incomplete": ((Text("cut o"),), "length", Usage()),
    "content_filter": ((Text("I may not"),), "refusal", Usage()),
    "refusal": ((Text("I cannot."),), "refusal", Usage(7, 3)),
    "empty": ((), "stop", Usage()),
    "unknown_outputs": ((Text("Found."), Thinking("", sealed({"phase": "final_answer"}))), "stop", Usage()),
}
CODES = {
    "max_output_tokens": "MODEL_OUTPUT_LIMIT",
    "max_output_tokens_in_a_call": "MODEL_OUTPUT_LIMIT",
    "completed_as_incomplete": "MODEL_OUTPUT_LIMIT",
    "empty": "MODEL_EMPTY",
}


def stream_of(name: str) -> list[WireEvent]:
    return events_of(STREAMS / "responses" / f"{name}.jsonl")


def decoded(*events: Mapping[str, object] | WireEvent | str) -> tuple[ContentBlock, ...]:
    return read_response(ResponsesDecoder("request-001"), [_event(item) for item in events])[1].message.content


def _event(item: Mapping[str, object] | WireEvent | str) -> WireEvent:
    if isinstance(item, WireEvent):
        return item
    return WireEvent(data=item if isinstance(item, str) else json.dumps(item))


def test_every_golden_stream_has_its_meaning() -> None:
    assert sorted(name for name, _ in golden("responses")) == sorted(MEANT)


@pytest.mark.parametrize("name", MEANT)
def test_a_golden_stream_is_decoded(name: str) -> None:
    chunks, response = read_response(ResponsesDecoder("request-001"), stream_of(name))
    content, reason, usage = MEANT[name]
    assert response.message.content == content
    assert (response.stop_reason, response.usage, response.request_id) == (reason, usage, "request-001")
    calls = [chunk.call for chunk in chunks if isinstance(chunk, ToolCallDelta)]
    assert calls == [block for block in content if isinstance(block, ToolCall)]


@pytest.mark.parametrize("name", MEANT)
async def test_the_loop_takes_a_golden_stream_or_names_the_reason(name: str) -> None:
    found = await outcome(COMPATIBLE_RESPONSES, [sse(*stream_of(name))])
    assert (None if found.error is None else found.error.code) == CODES.get(name)
    if found.answer is not None:
        assert found.answer.message.content == MEANT[name][0]


@pytest.mark.parametrize("name", MEANT)
def test_every_event_is_needed_until_the_end(name: str) -> None:
    events = [event for event in stream_of(name) if event.data != "[DONE]"]
    for kept in range(len(events)):
        with pytest.raises(ModelError, match="without its end marker") as caught:
            read_response(ResponsesDecoder("request-001"), events[:kept])
        assert (caught.value.code, caught.value.is_transient) == ("MODEL_STREAM_FAILED", True)


@pytest.mark.parametrize("name", [name for name in MEANT if name != "local_server"])
def test_no_event_of_a_numbered_stream_may_be_missing_or_come_twice(name: str) -> None:
    events = [event for event in stream_of(name) if event.data != "[DONE]"]
    for index in range(1, len(events) - 1):
        for broken in (
            [*events[:index], *events[index + 1 :]],
            [*events[: index + 1], *events[index:]],
            [*events[: index - 1], events[index], events[index - 1], *events[index + 1 :]],
        ):
            with pytest.raises(ModelError, match="has a gap or is out of order"):
                read_response(ResponsesDecoder("request-001"), broken)


Data = dict[str, object]
MESSAGE_ITEM: Data = {"type": "message", "id": "m"}
CALL_ITEM: Data = {"type": "function_call", "id": "f", "call_id": "c", "name": "add"}
THOUGHT_ITEM: Data = {"type": "reasoning", "id": "t", "summary": []}


def added(index: int | None, item: Data) -> Data:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int | None, item: Data) -> Data:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def word(text: str, index: int = 0, part: int = 0) -> Data:
    return {"type": "response.output_text.delta", "output_index": index, "content_index": part, "delta": text}


def said(text: str) -> Data:
    return {**MESSAGE_ITEM, "content": [{"type": "output_text", "text": text}]}


def piece(text: str, index: int = 0) -> Data:
    return {"type": "response.function_call_arguments.delta", "output_index": index, "delta": text}


def called(arguments: str, changed: Data | None = None) -> Data:
    return {**CALL_ITEM, "arguments": arguments, **(changed or {})}


def end(*output: Data) -> Data:
    return {"type": "response.completed", "response": {"id": "r", "output": list(output)}}


def end_as(response: Data) -> WireEvent:
    return WireEvent(data=json.dumps({"type": "response.completed", "response": response}))


MESSAGE, CALL = added(0, MESSAGE_ITEM), added(0, CALL_ITEM)
THOUGHT = {"type": "response.reasoning_text.delta", "delta": "hm"}
BROKEN: dict[str, tuple[list[Data | str], str]] = {
    "a call that was never done": ([CALL, piece("{}"), end()], "output 0 was not"),
    "a call done as cut off": ([CALL, piece("{}"), done(0, called("{}", {"status": "incomplete"})), end()], "was not"),
    "a call with other arguments": ([CALL, piece("{}"), done(0, called("[]")), end()], "are not the arguments"),
    "a call listed with other arguments": (
        [CALL, piece("{}"), done(0, called("{}")), end(called("[]"))],
        "are not the arguments",
    ),
    "a call with another name": ([CALL, done(0, called("{}", {"name": "sub"})), end()], "another name or id"),
    "a call with another id": ([CALL, done(0, called("{}", {"call_id": "d"})), end()], "another name or id"),
    "a call without a name": ([added(0, {"type": "function_call", "call_id": "c"})], "without a name"),
    "a call that is listed as text": ([CALL, done(0, called("{}")), end(said("a"))], "the response has a message"),
    "a call that ends as text": ([CALL, done(0, said("a"))], "ended as message"),
    "a missing output": ([added(1, CALL_ITEM)], "output 1 began where output 0 should"),
    "an output twice": ([CALL, CALL], "output 0 began where output 1 should"),
    "an output that is not listed": (
        [MESSAGE, word("a"), done(0, said("a")), added(1, CALL_ITEM), done(1, called("{}")), end(said("a"))],
        "2 outputs came, and the response has 1",
    ),
    "a piece of nothing": ([piece("{}")], "never began"),
    "a piece of a negative output": ([CALL, piece("{}", -1)], "never began"),
    "a piece of a call that is not named": (
        [added(None, CALL_ITEM), {**piece("{}"), "output_index": None, "item_id": "x"}],
        "never began",
    ),
    "a piece after its output was done": ([CALL, done(0, called("{}")), piece(" ")], "after it was done"),
    "an output done twice": ([CALL, done(0, called("{}")), done(0, called("{}"))], "after it was done"),
    "arguments of a text": ([MESSAGE, piece("{}")], "is a message, and got a piece of a function_call"),
    "text of a call": ([CALL, word("a")], "is a function_call, and got a piece of a message"),
    "a missing part": ([MESSAGE, word("a", part=1)], "part 1 of output 0 began where part 0 should"),
    "another text": ([MESSAGE, word("a"), done(0, said("b")), end()], "are not the text"),
    "another text of a part": (
        [MESSAGE, word("a"), {"type": "response.output_text.done", "output_index": 0, "text": "b"}],
        "are not the text",
    ),
    "text out of order": (
        [MESSAGE, added(1, {**MESSAGE_ITEM, "id": "n"}), word("b", 1), word("a", 0)],
        "after text of a later one",
    ),
    "reasoning out of order": (
        [
            added(0, THOUGHT_ITEM),
            added(1, THOUGHT_ITEM),
            {**THOUGHT, "output_index": 1},
            {**THOUGHT, "output_index": 0},
        ],
        "after that of a later one",
    ),
    "going on after the end": ([MESSAGE, word("a"), end(said("a")), word("b")], "after its end"),
    "two ends": ([MESSAGE, word("a"), end(said("a")), end(said("a"))], "after its end"),
    "closed twice": ([MESSAGE, word("a"), end(said("a")), "[DONE]", "[DONE]"], "after its end"),
    "closed without an end": ([MESSAGE, word("a"), done(0, said("a")), "[DONE]"], "without its last event"),
    "no JSON": (["{"], "malformed"),
    "no object": (["null"], "malformed"),
    "an output that is none": ([added(0, {"type": "function_call", "call_id": 7})], "malformed"),
    "an end without a response": ([{"type": "response.completed"}], "malformed"),
    "too deep": (["[" * 100_000], "malformed"),
    "a late beginning": ([{**MESSAGE, "sequence_number": 5}], "event 5 came after event None"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_stream_fails_and_may_pass(name: str) -> None:
    events, said_of_it = BROKEN[name]
    with pytest.raises(ModelError, match=said_of_it) as caught:
        decoded(*events)
    assert (caught.value.code, caught.value.is_transient) == ("MODEL_STREAM_FAILED", True)


def test_what_only_the_end_lists_is_taken_from_there() -> None:
    whole = {**THOUGHT_ITEM, "summary": [{"type": "summary_text", "text": "hm"}]}
    thinking, text, call = decoded(end(whole, said("a"), called('{"a":1}')))
    assert (text, call) == (Text("a"), ToolCall("c", "add", {"a": 1}))
    assert isinstance(thinking, Thinking)
    assert thinking.text == "hm"


def test_an_output_that_began_is_done_by_the_list_of_the_end() -> None:
    assert decoded(CALL, piece('{"a"'), piece(":1}"), end(called('{"a":1}'))) == (ToolCall("c", "add", {"a": 1}),)


def test_a_pair_of_surrogates_in_arguments_may_be_split_between_events() -> None:
    first, second = piece('{"a":"'), piece('"}')
    high, low = (json.dumps(piece("x")).replace('"x"', f'"{half}"') for half in (r"\ud83d", r"\ude00"))
    assert decoded(CALL, first, high, low, second, done(0, called(f'{{"a":"{SMILE}"}}')), end()) == (
        ToolCall("c", "add", {"a": SMILE}),
    )


def test_a_refusal_counts_as_one_whichever_event_says_so() -> None:
    part = {"type": "refusal", "refusal": "no"}
    for events in (
        [MESSAGE, {"type": "response.refusal.done", "output_index": 0, "refusal": "no"}, end({**MESSAGE_ITEM})],
        [MESSAGE, done(0, {**MESSAGE_ITEM, "content": [part]}), end()],
    ):
        _, response = read_response(ResponsesDecoder("request-001"), [_event(item) for item in events])
        assert (response.stop_reason, response.message.content) == ("refusal", (Text("no"),))


def test_an_unknown_stop_reason_is_not_guessed() -> None:
    for details in ({"reason": "tired"}, {"reason": None}, None):
        with pytest.raises(ModelError, match="no stop reason") as caught:
            decoded({"type": "response.incomplete", "response": {"incomplete_details": details}})
        assert (caught.value.code, caught.value.is_transient) == ("MODEL_PROTOCOL_ERROR", False)


def failed_with(error: object) -> WireEvent:
    return WireEvent(data=json.dumps({"type": "response.failed", "response": {"status": "failed", "error": error}}))


@pytest.mark.parametrize(
    ("event", "code", "is_transient"),
    [
        (failed_with({"code": "server_error", "message": "oops"}), "MODEL_UNAVAILABLE", True),
        (failed_with({"code": "rate_limit_exceeded", "message": "busy"}), "MODEL_RATE_LIMIT", True),
        (failed_with({"code": "invalid_prompt", "message": "no"}), "MODEL_REQUEST", False),
        (failed_with({"code": "image_too_large", "message": "no"}), "MODEL_REQUEST", False),
        (failed_with({"code": "context_length_exceeded", "message": "no"}), "MODEL_CONTEXT", False),
        (failed_with(None), "MODEL_STREAM_FAILED", True),
        (end_as({"status": "cancelled"}), "MODEL_STREAM_FAILED", True),
        (end_as({"status": "failed", "error": {"code": "server_error"}}), "MODEL_UNAVAILABLE", True),
        (_event({"type": "error", "code": "server_error", "message": "x"}), "MODEL_UNAVAILABLE", True),
        (_event({"type": "error", "error": {"type": "overloaded", "message": "x"}}), "MODEL_OVERLOADED", True),
        (_event({"error": {"code": "insufficient_quota", "message": "x"}}), "MODEL_QUOTA", False),
        (WireEvent("error", '{"code":"rate_limit_exceeded","message":"x"}'), "MODEL_RATE_LIMIT", True),
        (WireEvent("error", "no json"), "MODEL_STREAM_FAILED", True),
    ],
)
async def test_an_error_inside_a_stream_is_an_error(event: WireEvent, code: str, is_transient: bool) -> None:  # noqa: FBT001  a table's column
    found = await outcome(COMPATIBLE_RESPONSES, [sse(CALL, piece("{}"), done(0, called("{}")), event)])
    assert found.error is not None
    assert (found.error.code, found.error.is_transient) == (code, is_transient)
    assert found.answer is None


def test_keep_alives_and_empty_pieces_are_no_progress() -> None:
    decoder = ResponsesDecoder("request-001")
    for item in ({"type": "response.created", "response": {"id": "r"}}, MESSAGE, word("a")):
        before = decoder.progress
        decoder.take(_event(item))
        assert decoder.progress > before
    before = decoder.progress
    for item in (
        {"type": "keepalive"},
        {"type": "response.in_progress", "response": {"id": "r"}},
        {"type": "response.created", "response": {"id": "r"}},
        word(""),
    ):
        decoder.take(_event(item))
    assert decoder.progress == before
