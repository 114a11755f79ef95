"""Any transcript we accept is one that a Chat server accepts, and what a model said comes back as it said it."""

import json
import re
from collections.abc import Sequence
from typing import cast

from hypothesis import given, settings, strategies as st

from checkrein.messages import AssistantMessage, ContentBlock, Message, Text, Thinking, ToolCall, ToolResult
from checkrein.ports.model import ModelRequest
from checkrein.providers.chat.decode import ChatDecoder
from checkrein.providers.chat.encode import encode, encode_openai
from checkrein.providers.settings import ProviderSettings
from checkrein.providers.stream import WireEvent, read_response
from checkrein.values import canonical_json
from tests.property.providers.transcripts import transcripts

Wire = dict[str, object]
Case = tuple[tuple[Message, ...], tuple[int, ...]]
ALL = ProviderSettings(reasoning_back="all", system="Be brief.")


def written(messages: Sequence[Message], asked: ProviderSettings = ALL) -> list[Wire]:
    body = encode(ModelRequest("request-001", messages), asked, "a-model")
    canonical_json(body)
    return cast("list[Wire]", body["messages"])


def calls_of(message: Wire) -> list[Wire]:
    return cast("list[Wire]", message.get("tool_calls") or [])


def function_of(call: Wire) -> Wire:
    return cast("Wire", call["function"])


@settings(max_examples=400)
@given(transcripts())
def test_what_is_written_keeps_the_rules_of_the_wire(case: Case) -> None:
    seen: set[str] = set()
    open_ids: list[str] = []
    for message in written(case[0]):
        if message["role"] == "tool":
            open_ids.remove(cast("str", message["tool_call_id"]))
            assert cast("str", message["content"]).strip()
            continue
        assert open_ids == [], "a call is not answered before the next message"
        content = message["content"]
        assert content is None or len(cast("str", content)) > 0
        for part in cast("list[Wire]", content) if isinstance(content, list) else []:
            assert part["type"] == "image_url" or cast("str", part["text"]).strip()
        open_ids = [cast("str", call["id"]) for call in calls_of(message)]
        assert content is not None or open_ids
        for call in calls_of(message):
            assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", cast("str", function_of(call)["name"]))
            assert isinstance(json.loads(cast("str", function_of(call)["arguments"])), dict)
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,40}", item) for item in open_ids)
        assert not seen & set(open_ids)
        assert len(set(open_ids)) == len(open_ids)
        seen |= set(open_ids)
    assert open_ids == []


@settings(max_examples=200)
@given(transcripts())
def test_what_was_written_stays_when_the_transcript_grows(case: Case) -> None:
    messages, borders = case
    whole = written(messages)
    for border in borders[1:]:
        shorter = written(messages[:border])
        assert whole[: len(shorter)] == shorter or shorter[1:] == [{"role": "user", "content": "(empty)"}]


@settings(max_examples=200)
@given(transcripts())
def test_no_word_of_a_result_is_lost_and_an_error_says_so(case: Case) -> None:
    results = [message for message in case[0] if isinstance(message, ToolResult)]
    sent = [cast("str", message["content"]) for message in written(case[0]) if message["role"] == "tool"]
    assert len(sent) == len(results)
    for result, text in zip(results, sent, strict=True):
        blocks: Sequence[ContentBlock] = (Text(result.content),) if isinstance(result.content, str) else result.content
        assert all(block.text in text for block in blocks if isinstance(block, Text) and block.text.strip())
        assert not result.is_error or text.lower().startswith("error")


@settings(max_examples=300)
@given(transcripts(), st.data())
def test_what_a_model_said_comes_back_as_it_said_it(case: Case, data: st.DataObject) -> None:
    spoken = [message for message in case[0] if isinstance(message, AssistantMessage)]
    for message in spoken:
        for sent in (item for item in written([message, *_results(message)]) if item["role"] == "assistant"):
            _, response = read_response(ChatDecoder("request-001"), _streamed(sent, data))
            assert response.message.content == _expected(message, sent)


def _results(message: AssistantMessage) -> list[ToolResult]:
    calls = [block for block in message.content if isinstance(block, ToolCall)]
    return [ToolResult("r", call.id, call.name, "done") for call in calls]


def _expected(message: AssistantMessage, sent: Wire) -> tuple[ContentBlock, ...]:
    """Return what the wire can carry of a message: reasoning of its own, the text as one, the calls with the ids they were sent with."""
    text = "".join(block.text for block in message.content if isinstance(block, Text))
    calls = [block for block in message.content if isinstance(block, ToolCall)]
    made = [
        ToolCall(cast("str", wire["id"]), cast("str", function_of(wire)["name"]), call.arguments)
        for wire, call in zip(calls_of(sent), calls, strict=True)
    ]
    thinking = _thinking(sent)
    return (*thinking, *((Text(text),) if text.strip() else ()), *made)


def _thinking(sent: Wire) -> list[ContentBlock]:
    if "reasoning_details" in sent:
        details = json.dumps(sent["reasoning_details"], ensure_ascii=False)
        text = cast("str", sent.get("reasoning_content") or sent.get("reasoning") or "")
        return [Thinking(text, f"chat:reasoning_details:{details}")]
    for field in ("reasoning_content", "reasoning"):
        if sent.get(field):
            return [Thinking(cast("str", sent[field]), f"chat:{field}")]
    return []


def _streamed(sent: Wire, data: st.DataObject) -> list[WireEvent]:
    """Return the stream of a server that says a message again, in pieces of any size."""
    deltas: list[Wire] = []
    if "reasoning_details" in sent:
        deltas.append({"reasoning_details": sent["reasoning_details"]})
    field = next((name for name in ("reasoning_content", "reasoning") if sent.get(name)), None)
    if field is not None:
        deltas += [Wire({field: piece}) for piece in _pieces(cast("str", sent[field]), data)]
    deltas += [Wire({"content": piece}) for piece in _pieces(cast("str", sent["content"] or ""), data)]
    for index, call in enumerate(calls_of(sent)):
        function = function_of(call)
        deltas.append({"tool_calls": [{"index": index, "id": call["id"], "function": {"name": function["name"]}}]})
        for piece in _pieces(cast("str", function["arguments"]), data):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    events: list[Wire] = [{"choices": [{"delta": delta}]} for delta in deltas]
    events.append({"choices": [{"finish_reason": "stop"}]})
    return [*(WireEvent(data=json.dumps(event)) for event in events), WireEvent(data="[DONE]")]


def _pieces(text: str, data: st.DataObject) -> list[str]:
    cut = data.draw(st.integers(0, len(text)))
    return [piece for piece in (text[:cut], text[cut:]) if piece]


@given(transcripts())
def test_openai_gets_no_reasoning_field_that_it_does_not_know(case: Case) -> None:
    body = encode_openai(ModelRequest("request-001", case[0]), ALL, "gpt-x")
    assert not [field for message in cast("list[Wire]", body["messages"]) for field in message if "reasoning" in field]
