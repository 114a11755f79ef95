"""What a request looks like on the Responses wire."""

import json
from typing import cast

import pytest

from checkrein.errors import ModelError
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
from checkrein.ports.model import ModelRequest, ToolSchema
from checkrein.providers.responses.decode import ResponsesDecoder
from checkrein.providers.responses.encode import encode, encode_openai
from checkrein.providers.responses.strict import is_strict
from checkrein.providers.settings import ProviderSettings
from checkrein.providers.stream import read_response
from checkrein.values import JsonObject
from tests.unit.providers.wire_bytes import STREAMS, events_of

Wire = dict[str, object]
PNG = Image.of(b"\x89PNG", "image/png")
PART = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,iVBORw=="}
HELLO = UserMessage("u", "hello")
SAID_HELLO = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
CLOSED = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
ADD = ToolSchema("add", "Add two numbers.", JsonObject(CLOSED))
LOOSE = ToolSchema("find", "", JsonObject({"type": "object"}))
PLAIN = ProviderSettings()


def body_of(
    *messages: Message, settings: ProviderSettings = PLAIN, tools: tuple[ToolSchema, ...] = (), model: str = "a-model"
) -> Wire:
    return dict(encode_openai(ModelRequest("request-001", messages, tools), settings, model))


def input_of(*messages: Message, settings: ProviderSettings = PLAIN) -> list[Wire]:
    return cast("list[Wire]", body_of(*messages, settings=settings)["input"])


def said(*content: ContentBlock) -> AssistantMessage:
    return AssistantMessage("a", content)


def reasoning(item: Wire) -> Thinking:
    return Thinking("hm", f"responses:{json.dumps({'type': 'reasoning', 'summary': [], **item})}")


ENCRYPTED = reasoning({"id": "rs_1", "encrypted_content": "gAAA"})
OPEN = reasoning({"id": "rs_2", "content": [{"type": "reasoning_text", "text": "hm"}]})


def test_the_plainest_request() -> None:
    body = body_of(HELLO)
    assert len(cast("str", body.pop("prompt_cache_key"))) == 32
    assert body == {
        "model": "a-model",
        "input": [SAID_HELLO],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


def test_a_request_with_everything() -> None:
    settings = ProviderSettings(
        system="Be brief.",
        max_output_tokens=99,
        temperature=0.0,
        top_p=0.5,
        seed=1,
        reasoning_effort="low",
        parallel_tool_calls=False,
        tool_choice="required",
        response_schema=JsonObject(CLOSED),
        cache=False,
        extra=JsonObject({"service_tier": "flex"}),
    )
    body = body_of(HELLO, settings=settings, tools=(ADD, LOOSE))
    assert {name: body[name] for name in body if name not in {"input", "model", "stream", "store", "include"}} == {
        "instructions": "Be brief.",
        "max_output_tokens": 99,
        "temperature": 0.0,
        "top_p": 0.5,
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": CLOSED, "strict": True}},
        "tools": [
            {
                "type": "function",
                "name": "add",
                "description": "Add two numbers.",
                "parameters": CLOSED,
                "strict": True,
            },
            {"type": "function", "name": "find", "parameters": {"type": "object"}, "strict": False},
        ],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "service_tier": "flex",
    }


def test_what_concerns_tools_is_said_only_with_tools() -> None:
    body = body_of(HELLO, settings=ProviderSettings(tool_choice="required", parallel_tool_calls=True))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)


def test_a_conversation_keeps_its_cache_key_and_only_openai_is_told_it() -> None:
    other = body_of(UserMessage("u", "bye"))["prompt_cache_key"]
    assert body_of(HELLO)["prompt_cache_key"] == body_of(HELLO, said(Text("hi")), HELLO)["prompt_cache_key"] != other
    assert "prompt_cache_key" not in encode(ModelRequest("request-001", (HELLO,)), PLAIN, "m")


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4.1-mini", "ft:gpt-4o-mini:me::1", "gpt-5-chat-latest"])
def test_a_model_that_does_not_reason_is_not_asked_for_its_reasoning(model: str) -> None:
    assert "include" not in body_of(HELLO, model=model)


def test_pictures_are_parts_of_messages_and_of_results() -> None:
    turn = (
        UserMessage("u", (Text("see"), PNG)),
        said(ToolCall("c1", "shot", {}), ToolCall("c2", "shot", {}), ToolCall("c3", "add", {})),
        ToolResult("r1", "c1", "shot", (Text("here"), PNG)),
        ToolResult("r2", "c2", "shot", (PNG,), is_error=True),
        ToolResult("r3", "c3", "add", (Text("3"), Text("4"))),
    )
    sent = input_of(*turn)
    assert sent[0]["content"] == [{"type": "input_text", "text": "see"}, PART]
    assert [item["output"] for item in sent[4:]] == [
        [{"type": "input_text", "text": "here"}, PART],
        [{"type": "input_text", "text": "error: (empty)"}, PART],
        "3\n\n4",
    ]


def test_encrypted_reasoning_goes_back_as_it_came_in_every_round() -> None:
    turn = (said(ENCRYPTED, ToolCall("c1", "add", {})), ToolResult("r", "c1", "add", "3"))
    items = [item for item in input_of(HELLO, *turn, HELLO, *turn) if item["type"] == "reasoning"]
    assert items == [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}] * 2
    assert not [
        item
        for item in input_of(HELLO, *turn, settings=ProviderSettings(reasoning_back="none"))
        if item["type"] == "reasoning"
    ]


@pytest.mark.parametrize(("back", "kept"), [("round", 1), ("all", 2), ("none", 0)])
def test_open_reasoning_goes_back_for_the_round_that_is_wanted_but_not_to_openai(back: str, kept: int) -> None:
    settings = ProviderSettings(reasoning_back=back)  # pyright: ignore[reportArgumentType]  one of the literals
    turn = (said(OPEN, ToolCall("c1", "add", {})), ToolResult("r", "c1", "add", "3"))
    request = ModelRequest("request-001", (HELLO, *turn, HELLO, *turn))
    theirs = cast("list[Wire]", encode(request, settings, "m")["input"])
    assert len([item for item in theirs if item["type"] == "reasoning"]) == kept
    assert not [item for item in input_of(*request.messages, settings=settings) if item["type"] == "reasoning"]


def test_reasoning_that_led_to_nothing_or_belongs_to_another_wire_stays_away() -> None:
    for content in ((Text("x"), ENCRYPTED), (Thinking("hm", "messages:sig"), Thinking("hm"), Text("x"))):
        assert [item["type"] for item in input_of(HELLO, said(*content))] == ["message", "message"]
    assert input_of(HELLO, said(ENCRYPTED)) == [SAID_HELLO]


@pytest.mark.parametrize("name", ["parallel_calls", "unknown_outputs", "reasoning_encrypted", "reasoning_hidden"])
def test_what_a_model_said_goes_back_as_it_said_it(name: str) -> None:
    events = events_of(STREAMS / "responses" / f"{name}.jsonl")
    answer = read_response(ResponsesDecoder("request-001"), events)[1].message
    given = json.loads(events[-1].data)["response"]["output"]
    assert input_of(HELLO, answer)[1:] == [_as_sent(item) for item in given if item["type"] != "web_search_call"]


def _as_sent(item: Wire) -> Wire:
    """Return an output without what only the API says."""
    kept = {name: value for name, value in item.items() if name != "status"}
    if item["type"] == "reasoning":
        return kept
    if item["type"] == "message":
        parts = cast("list[Wire]", item["content"])
        kept["content"] = [{"type": part["type"], "text": part["text"]} for part in parts]
    return {name: value for name, value in kept.items() if name != "id"}


def test_malformed_arguments_are_sent_as_none() -> None:
    call = ToolCall("c1", "add", {}, malformed='{"a":')
    sent = input_of(HELLO, said(call), ToolResult("r", "c1", "add", "bad", is_error=True))
    assert sent[1:] == [
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "error: bad"},
    ]


def test_a_tool_that_no_provider_takes_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ModelError, match=r"files\.read") as caught:
        body_of(HELLO, tools=(ToolSchema("files.read", "", JsonObject()),))
    assert caught.value.code == "MODEL_REQUEST"


INNER = {"type": "object", "properties": {"b": CLOSED}, "required": ["b"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (CLOSED, True),
        (INNER, True),
        ({**CLOSED, "$defs": {"x": CLOSED}, "title": "A"}, True),
        ({"type": "object", "properties": {}, "additionalProperties": False}, True),
        ({**CLOSED, "properties": {"a": {"anyOf": [{"type": "null"}, CLOSED]}}}, True),
        ({**CLOSED, "properties": {"a": {"type": "array", "items": CLOSED}}}, True),
        ({}, False),
        ({"type": "array"}, False),
        ({**CLOSED, "anyOf": [CLOSED]}, False),
        ({**CLOSED, "required": []}, False),
        ({**CLOSED, "additionalProperties": True}, False),
        ({**CLOSED, "properties": {"a": {"type": "integer", "default": 1}}}, False),
        ({**CLOSED, "properties": {"a": {"type": ["object", "null"]}}}, False),
        ({**CLOSED, "properties": {"a": {"oneOf": [CLOSED]}}}, False),
        ({**CLOSED, "properties": {"a": {"type": "array", "items": {"type": "object"}}}}, False),
        ({**CLOSED, "properties": {"a": True}}, False),
        ({**CLOSED, "properties": []}, False),
        ({**CLOSED, "$defs": {"x": {"type": "object"}}}, False),
    ],
)
def test_a_schema_is_strict_only_if_the_api_can_enforce_all_of_it(schema: Wire, expected: bool) -> None:  # noqa: FBT001  a table's column
    assert is_strict(JsonObject(schema)) is expected


def test_a_schema_that_is_nested_too_deep_is_not_strict() -> None:
    schema: Wire = {**CLOSED}
    for _ in range(12):
        schema = {**INNER, "properties": {"b": schema}}
    assert not is_strict(JsonObject(schema))
