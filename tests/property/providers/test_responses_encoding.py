"""Any transcript we accept is one that a Responses server accepts, and what a model said comes back as it said it."""

import json
import re
from collections.abc import Sequence
from typing import cast

from hypothesis import given, settings, strategies as st

from checkrein.messages import AssistantMessage, ContentBlock, Message, Text, Thinking, ToolCall, ToolResult
from checkrein.ports.model import ModelRequest
from checkrein.providers.responses.decode import ResponsesDecoder
from checkrein.providers.responses.encode import encode, encode_openai
from checkrein.providers.settings import ProviderSettings
from checkrein.providers.stream import WireEvent, read_response
from checkrein.values import canonical_json
from tests.property.providers.transcripts import transcripts

Wire = dict[str, object]
Case = tuple[tuple[Message, ...], tuple[int, ...]]
ALL = ProviderSettings(reasoning_back="all", system="Be brief.")


def written(messages: Sequence[Message]) -> list[Wire]:
    body = encode(ModelRequest("request-001", messages), ALL, "a-model")
    canonical_json(body)
    return cast("list[Wire]", body["input"])


def parts_of(item: Wire, field: str) -> list[Wire]:
    content = item[field]
    return cast("list[Wire]", content) if isinstance(content, list) else [{"type": "input_text", "text": content}]


@settings(max_examples=400)
@given(transcripts())
def test_what_is_written_keeps_the_rules_of_the_wire(case: Case) -> None:
    items = written(case[0])
    assert items
    seen: set[str] = set()
    open_ids: set[str] = set()
    for item in items:
        if item["type"] == "function_call_output":
            open_ids.remove(cast("str", item["call_id"]))
        elif item["type"] == "function_call":
            call_id = cast("str", item["call_id"])
            assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", call_id)
            assert call_id not in seen
            seen.add(call_id)
            open_ids.add(call_id)
            assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", cast("str", item["name"]))
            assert isinstance(json.loads(cast("str", item["arguments"])), dict)
        elif item.get("role") == "user":
            assert not open_ids, "a call is not answered before the next message of the user"
    assert not open_ids


@settings(max_examples=400)
@given(transcripts())
def test_no_part_is_empty_and_each_is_of_a_kind_that_its_place_takes(case: Case) -> None:
    for item in written(case[0]):
        if item["type"] == "message":
            kinds = {"output_text"} if item["role"] == "assistant" else {"input_text", "input_image"}
            parts = parts_of(item, "content")
        elif item["type"] == "function_call_output":
            kinds, parts = {"input_text", "input_image"}, parts_of(item, "output")
        else:
            continue
        assert parts
        for part in parts:
            assert part["type"] in kinds
            assert cast("str", part["image_url"] if part["type"] == "input_image" else part["text"]).strip()


@settings(max_examples=300)
@given(transcripts())
def test_reasoning_is_whole_and_always_followed_by_what_it_led_to(case: Case) -> None:
    items = written(case[0])
    for index, item in enumerate(items):
        if item["type"] == "reasoning":
            assert set(item) <= {"type", "id", "summary", "content", "encrypted_content"}
            assert "summary" in item
            after = next(later for later in items[index:] if later["type"] != "reasoning")
            assert after["type"] == "function_call" or after["role"] == "assistant"


@settings(max_examples=200)
@given(transcripts())
def test_what_was_written_stays_when_the_transcript_grows(case: Case) -> None:
    messages, borders = case
    whole = written(messages)
    for border in borders[1:]:
        shorter = written(messages[:border])
        assert whole[: len(shorter)] == shorter or "(empty)" in json.dumps(shorter[0])


@given(transcripts())
def test_openai_gets_no_reasoning_that_it_would_look_for_in_its_store(case: Case) -> None:
    body = encode_openai(ModelRequest("request-001", case[0]), ALL, "gpt-x")
    thoughts = [item for item in cast("list[Wire]", body["input"]) if item["type"] == "reasoning"]
    assert all(item["encrypted_content"] for item in thoughts)


@settings(max_examples=300)
@given(transcripts(), st.data())
def test_what_a_model_said_comes_back_as_it_said_it(case: Case, data: st.DataObject) -> None:
    for message in (item for item in case[0] if isinstance(item, AssistantMessage)):
        sent = [item for item in written([message, *_results(message)]) if item["type"] != "function_call_output"]
        if sent[0].get("role") == "user":
            continue
        decoder = ResponsesDecoder("request-001")
        _, response = read_response(decoder, _streamed(sent, data))
        assert response.message.content == tuple(block for item in sent for block in _meant(item))
        again = written([response.message, *_results(response.message)])
        assert [item for item in again if item["type"] != "function_call_output"] == sent


def _results(message: AssistantMessage) -> list[ToolResult]:
    calls = [block for block in message.content if isinstance(block, ToolCall)]
    return [ToolResult("r", call.id, call.name, "done") for call in calls]


def _meant(item: Wire) -> list[ContentBlock]:
    """Return what an item means, read by an eye of its own."""
    if item["type"] == "function_call":
        arguments = json.loads(cast("str", item["arguments"]))
        return [ToolCall(cast("str", item["call_id"]), cast("str", item["name"]), arguments)]
    if item["type"] == "reasoning":
        text = "".join(cast("str", part["text"]) for part in cast("list[Wire]", item.get("content") or []))
        return [Thinking(text, f"responses:{json.dumps(item)}")]
    texts: list[ContentBlock] = [Text(cast("str", part["text"])) for part in parts_of(item, "content")]
    return [*texts, Thinking("", f"responses:{json.dumps({'phase': item['phase']})}")] if "phase" in item else texts


def _streamed(sent: Sequence[Wire], data: st.DataObject) -> list[WireEvent]:
    """Return the stream of a server that says items again, in pieces of any size."""
    events: list[Wire] = [{"type": "response.created", "response": {"id": "r"}}]
    for index, item in enumerate(sent):
        place = {"output_index": index}
        empty = {name: value for name, value in item.items() if name not in {"content", "arguments"}}
        events.append({"type": "response.output_item.added", **place, "item": empty})
        for part, text in enumerate(_texts_of(item)):
            delta: Wire = {"type": _DELTAS[cast("str", item["type"])], **place, "content_index": part}
            events += [{**delta, "delta": piece} for piece in _pieces(text, data)]
        events.append({"type": "response.output_item.done", **place, "item": item})
    events.append({"type": "response.completed", "response": {"id": "r", "output": list(sent)}})
    return [WireEvent(data=json.dumps({"sequence_number": number, **event})) for number, event in enumerate(events)]


_DELTAS = {
    "message": "response.output_text.delta",
    "function_call": "response.function_call_arguments.delta",
    "reasoning": "response.reasoning_text.delta",
}


def _texts_of(item: Wire) -> list[str]:
    if item["type"] == "function_call":
        return [cast("str", item["arguments"])]
    return [cast("str", part["text"]) for part in cast("list[Wire]", item.get("content") or [])]


def _pieces(text: str, data: st.DataObject) -> list[str]:
    cut = data.draw(st.integers(0, len(text)))
    return [piece for piece in (text[:cut], text[cut:]) if piece]
