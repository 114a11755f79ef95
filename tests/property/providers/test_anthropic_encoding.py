"""Any transcript we accept is one that the Messages API accepts, and what a model said comes back as it said it."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import cast

from hypothesis import given, settings, strategies as st

from checkrein.messages import (
    AssistantMessage,
    ContentBlock,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from checkrein.ports.model import ModelRequest
from checkrein.providers.anthropic.decode import MessagesDecoder
from checkrein.providers.anthropic.encode import encode
from checkrein.providers.settings import ProviderSettings
from checkrein.providers.stream import WireEvent, read_response
from checkrein.values import canonical_json
from tests.property.providers.transcripts import transcripts

Wire = dict[str, object]
Case = tuple[tuple[Message, ...], tuple[int, ...]]
CACHED = ProviderSettings(system="Be brief.")
PLAIN = ProviderSettings(cache=False)
MARKS = 4


def body_of(messages: Sequence[Message], asked: ProviderSettings = CACHED) -> Wire:
    body = encode(ModelRequest("request-001", messages), asked, "a-model")
    canonical_json(body)
    return cast("Wire", body)


def written(messages: Sequence[Message], asked: ProviderSettings = PLAIN) -> list[Wire]:
    return cast("list[Wire]", body_of(messages, asked)["messages"])


def blocks_of(message: Wire) -> list[Wire]:
    return cast("list[Wire]", message["content"])


def of_type(blocks: Sequence[Wire], kind: str) -> list[Wire]:
    return [block for block in blocks if block["type"] == kind]


def parts_of(block: Wire) -> list[Wire]:
    return cast("list[Wire]", block.get("content") or [])


@settings(max_examples=400)
@given(transcripts())
def test_what_is_written_keeps_the_rules_of_the_wire(case: Case) -> None:
    seen: set[object] = set()
    asked: list[object] = []
    messages = written(case[0])
    assert [message["role"] for message in messages] == ["user", "assistant"] * (len(messages) // 2) + ["user"]
    for message in messages:
        blocks = blocks_of(message)
        assert blocks
        results = of_type(blocks, "tool_result")
        assert blocks[: len(results)] == results, "results come first"
        assert sorted(map(str, asked)) == sorted(str(block["tool_use_id"]) for block in results)
        calls = of_type(blocks, "tool_use")
        asked = [block["id"] for block in calls]
        assert not seen & set(asked)
        assert len(set(asked)) == len(asked)
        seen |= set(asked)
        for block in calls:
            assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", cast("str", block["id"]))
            assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", cast("str", block["name"]))
            assert isinstance(block["input"], dict)
        _check_parts(message["role"], blocks)
        for block in results:
            _check_parts("tool_result", parts_of(block))
            assert not block.get("is_error") or not of_type(parts_of(block), "image")
    assert asked == []


ALLOWED = {
    "user": {"text", "image", "tool_result"},
    "assistant": {"text", "thinking", "redacted_thinking", "tool_use"},
    "tool_result": {"text", "image"},
}


def _check_parts(place: object, blocks: Sequence[Wire]) -> None:
    assert blocks
    assert {block["type"] for block in blocks} <= ALLOWED[cast("str", place)]
    for block in blocks:
        if block["type"] == "text":
            assert cast("str", block["text"]).strip()
        elif block["type"] == "thinking":
            assert block["signature"]
        elif block["type"] == "redacted_thinking":
            assert block["data"]


@settings(max_examples=200)
@given(transcripts())
def test_calls_of_the_past_are_never_sent_without_tools(case: Case) -> None:
    body = body_of(case[0])
    named = {block["name"] for message in written(case[0]) for block in of_type(blocks_of(message), "tool_use")}
    assert {tool["name"] for tool in cast("list[Wire]", body.get("tools") or [])} == named
    assert body.get("tool_choice") == ({"type": "none"} if named else None)


@settings(max_examples=200)
@given(transcripts())
def test_the_cache_is_asked_for_at_the_end_of_what_stays_and_changes_nothing_else(case: Case) -> None:
    marked = body_of(case[0])
    marks = list(_taken_marks(marked))
    assert 1 <= len(marks) <= MARKS
    assert all(block.get("type", "a tool") in {"a tool", "text", "image", "tool_result"} for block in marks)
    assert blocks_of(cast("list[Wire]", marked["messages"])[-1])[-1] in marks
    plain = body_of(case[0], ProviderSettings(system="Be brief.", cache=False))
    assert marked == plain


def _taken_marks(value: object) -> Iterator[Wire]:
    """Take every mark out, and yield what was marked; a tool has no type."""
    if isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _taken_marks(item)
    elif isinstance(value, dict):
        block = cast("Wire", value)
        if block.pop("cache_control", None) == {"type": "ephemeral"}:
            yield block
        for item in list(block.values()):
            yield from _taken_marks(item)


@settings(max_examples=200)
@given(transcripts())
def test_what_was_written_stays_when_the_transcript_grows(case: Case) -> None:
    messages, borders = case
    whole = [pair for message in written(messages) for pair in _flat(message)]
    for border in borders[1:]:
        shorter = [pair for message in written(messages[:border]) for pair in _flat(message)]
        assert whole[: len(shorter)] == shorter or whole[: len(shorter) - 1] == shorter[:-1]
        assert whole[: len(shorter)] == shorter or shorter[-1] == ("user", {"type": "text", "text": "(empty)"})


def _flat(message: Wire) -> Iterator[tuple[object, Wire]]:
    yield from ((message["role"], block) for block in blocks_of(message))


@settings(max_examples=200)
@given(transcripts())
def test_no_word_and_no_picture_of_a_result_is_lost(case: Case) -> None:
    blocks = [block for message in written(case[0]) for block in blocks_of(message)]
    sent = of_type(blocks, "tool_result")
    results = [message for message in case[0] if isinstance(message, ToolResult)]
    assert len(sent) == len(results)
    for result, block in zip(results, sent, strict=True):
        content: Sequence[ContentBlock] = (Text(result.content),) if isinstance(result.content, str) else result.content
        texts = [part.text for part in content if isinstance(part, Text) and part.text.strip()]
        given_texts = [part["text"] for part in of_type(parts_of(block), "text")]
        assert given_texts == texts or (not texts and given_texts in ([], ["(empty)"]))
        assert block.get("is_error", False) == result.is_error
    pictures = sum(isinstance(part, Image) for message in case[0] for part in _content(message))
    found = of_type(blocks, "image") + [part for block in sent for part in of_type(parts_of(block), "image")]
    assert len(found) == pictures


def _content(message: Message) -> Sequence[object]:
    return message.content if isinstance(message, UserMessage | ToolResult) else ()


@settings(max_examples=300)
@given(transcripts(), st.data())
def test_what_a_model_said_comes_back_as_it_said_it(case: Case, data: st.DataObject) -> None:
    for message in (item for item in case[0] if isinstance(item, AssistantMessage)):
        asked = written([message, *_results(message)])
        for sent in (item for item in asked if item["role"] == "assistant"):
            _, response = read_response(MessagesDecoder("request-001"), _streamed(blocks_of(sent), data))
            assert response.message.content == tuple(_expected(message, blocks_of(sent)))
            again = written([response.message, *_results(response.message)])
            assert again[1] == sent


def _results(message: AssistantMessage) -> list[ToolResult]:
    calls = [block for block in message.content if isinstance(block, ToolCall)]
    return [ToolResult("r", call.id, call.name, "done") for call in calls]


def _expected(message: AssistantMessage, sent: list[Wire]) -> Iterator[ContentBlock]:
    """Yield what the wire can carry of a message: its own reasoning, texts that say something, and calls with the ids and names they were sent with."""
    calls = iter(of_type(sent, "tool_use"))
    for block in message.content:
        if isinstance(block, ToolCall):
            wire = next(calls)
            yield ToolCall(cast("str", wire["id"]), cast("str", wire["name"]), block.arguments)
        elif isinstance(block, Text):
            if block.text.strip():
                yield block
        elif isinstance(block, Thinking):
            kind, _, payload = block.signature.removeprefix("messages:").partition(":")
            is_own = block.signature.startswith("messages:") and bool(payload)
            if is_own and kind == "thinking":
                yield block
            elif is_own and kind == "redacted":
                yield Thinking("", block.signature)


def _streamed(sent: list[Wire], data: st.DataObject) -> list[WireEvent]:
    """Return the stream of a server that says a message again, in pieces of any size."""
    events: list[Wire] = [{"type": "message_start", "message": {"id": "m", "model": "a"}}]
    for index, block in enumerate(sent):
        begun, deltas = _said(block, data)
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events += [Wire({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    reason = "tool_use" if of_type(sent, "tool_use") else "end_turn"
    events.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 1}})
    events.append({"type": "message_stop"})
    return [WireEvent(cast("str", event["type"]), json.dumps(event)) for event in events]


def _said(block: Wire, data: st.DataObject) -> tuple[Wire, list[Wire]]:
    """Return how a block begins, and its pieces."""
    if block["type"] == "text":
        pieces = _pieces(cast("str", block["text"]), data)
        return block | {"text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]
    if block["type"] == "tool_use":
        pieces = _pieces(json.dumps(block["input"]), data)
        return block | {"input": None}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    if block["type"] == "redacted_thinking":
        return block, []
    pieces = _pieces(cast("str", block["thinking"]), data)
    said: list[Wire] = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    return block | {"thinking": "", "signature": ""}, [
        *said,
        {"type": "signature_delta", "signature": block["signature"]},
    ]


def _pieces(text: str, data: st.DataObject) -> list[str]:
    cut = data.draw(st.integers(0, len(text)))
    return [text[:cut], text[cut:]]
