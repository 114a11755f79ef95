"""What a request looks like on the Chat wire."""

import json
from typing import cast

import pytest

from checkrein.errors import ModelError
from checkrein.messages import AssistantMessage, Image, Message, Text, Thinking, ToolCall, ToolResult, UserMessage
from checkrein.ports.model import ModelRequest, ToolSchema
from checkrein.providers.chat.encode import encode, encode_openai, is_strict_schema
from checkrein.providers.settings import ProviderSettings
from checkrein.values import JsonObject

PNG = Image.of(b"\x89PNG", "image/png")
PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
HELLO = UserMessage("u", "hello")
ADD = ToolSchema("add", "Add two numbers.", JsonObject({"type": "object"}))
PLAIN = ProviderSettings()


def body_of(
    *messages: Message, settings: ProviderSettings = PLAIN, tools: tuple[ToolSchema, ...] = ()
) -> dict[str, object]:
    return dict(encode(ModelRequest("request-001", messages, tools), settings, "a-model"))


def test_the_plainest_request() -> None:
    assert body_of(HELLO) == {
        "model": "a-model",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_request_with_everything() -> None:
    settings = ProviderSettings(
        system="Be brief.",
        max_output_tokens=9,
        temperature=0.0,
        top_p=0.5,
        seed=1,
        reasoning_effort="low",
        parallel_tool_calls=False,
        tool_choice="required",
        response_schema=JsonObject({"type": "object", "properties": {}, "additionalProperties": False}),
        extra=JsonObject({"top_k": 20}),
    )
    body = body_of(HELLO, settings=settings, tools=(ADD,))
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    assert {name: body[name] for name in body if name not in {"messages", "model", "stream", "stream_options"}} == {
        "max_tokens": 9,
        "temperature": 0.0,
        "top_p": 0.5,
        "seed": 1,
        "reasoning_effort": "low",
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "answer",
                "schema": {"type": "object", "properties": {}, "additionalProperties": False},
                "strict": True,
            },
        },
        "tools": [
            {
                "type": "function",
                "function": {"name": "add", "description": "Add two numbers.", "parameters": {"type": "object"}},
            }
        ],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "top_k": 20,
    }


def test_what_concerns_tools_is_said_only_with_tools() -> None:
    body = body_of(HELLO, settings=ProviderSettings(tool_choice="required", parallel_tool_calls=True))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)


def test_openai_has_its_own_limit_and_one_cache_key_for_a_conversation() -> None:
    request = ModelRequest("request-001", (HELLO,))
    longer = ModelRequest("request-002", (HELLO, AssistantMessage("a", (Text("hi"),)), UserMessage("u", "more")))
    other = ModelRequest("request-001", (UserMessage("u", "bye"),))
    settings = ProviderSettings(max_output_tokens=9)
    first, second, third = (encode_openai(item, settings, "m") for item in (request, longer, other))
    assert first["max_completion_tokens"] == 9
    assert "max_tokens" not in first
    assert first["prompt_cache_key"] == second["prompt_cache_key"] != third["prompt_cache_key"]
    assert "prompt_cache_key" not in encode_openai(request, ProviderSettings(cache=False), "m")


def test_pictures_are_parts_and_those_of_results_follow_all_results() -> None:
    messages: tuple[Message, ...] = (
        UserMessage("u", (Text("see"), PNG)),
        AssistantMessage("a", (ToolCall("c1", "shot", {}), ToolCall("c2", "add", {}))),
        ToolResult("r1", "c1", "shot", (PNG,)),
        ToolResult("r2", "c2", "add", "3"),
        UserMessage("u", "go on"),
    )
    sent = cast("list[dict[str, object]]", body_of(*messages)["messages"])
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert sent[0]["content"] == [{"type": "text", "text": "see"}, PART]
    assert sent[2]["content"] == "(empty)"
    assert sent[4]["content"] == [{"type": "text", "text": "From the result of shot:"}, PART]


def test_ids_that_no_provider_takes_or_that_come_again_are_replaced_in_call_and_result() -> None:
    turn = (AssistantMessage("a", (ToolCall("c 1", "add", {}),)), ToolResult("r", "c 1", "add", "x"))
    again = (AssistantMessage("a", (ToolCall("c1", "add", {}),)), ToolResult("r", "c1", "add", "x"))
    sent = cast("list[dict[str, object]]", body_of(HELLO, *turn, *turn, *again, *again)["messages"])
    ids = [
        cast("list[dict[str, object]]", message["tool_calls"])[0]["id"] for message in sent if "tool_calls" in message
    ]
    assert len(set(ids)) == 4
    assert [message["tool_call_id"] for message in sent if message["role"] == "tool"] == ids
    assert ids[2] == "c1"


@pytest.mark.parametrize(("back", "kept"), [("round", [False, True]), ("all", [True, True]), ("none", [False, False])])
def test_reasoning_goes_back_in_its_field_for_the_round_that_is_wanted(back: str, kept: list[bool]) -> None:
    said = AssistantMessage("a", (Thinking("hm", "chat:reasoning_content"), ToolCall("c1", "add", {})))
    foreign = AssistantMessage("a", (Thinking("hm", "messages:sig"), Thinking("hm"), Text("x")))
    done = ToolResult("r", "c1", "add", "3")
    settings = ProviderSettings(reasoning_back=back)  # pyright: ignore[reportArgumentType]  one of the literals
    sent = cast(
        "list[dict[str, object]]", body_of(HELLO, said, done, HELLO, said, done, foreign, settings=settings)["messages"]
    )
    spoken = [message for message in sent if message["role"] == "assistant"]
    assert [message.get("reasoning_content") for message in spoken] == [
        *["hm" if keep else None for keep in kept],
        None,
    ]


def test_what_came_with_a_call_goes_back_with_it() -> None:
    extra = {"google": {"thought_signature": "c2ln"}}
    said = AssistantMessage(
        "a",
        (
            ToolCall("g1", "add", {}),
            ToolCall("g2", "add", {}),
            Thinking("", f"chat:extra_content:{json.dumps({'1': extra})}"),
        ),
    )
    results = (ToolResult("r1", "g1", "add", "1"), ToolResult("r2", "g2", "add", "2"))
    sent = cast("list[dict[str, object]]", body_of(HELLO, said, *results)["messages"])
    calls = cast("list[dict[str, object]]", sent[1]["tool_calls"])
    assert [call.get("extra_content") for call in calls] == [None, extra]


def test_malformed_arguments_are_sent_as_none() -> None:
    call = ToolCall("c1", "add", {}, malformed='{"a":')
    sent = cast(
        "list[dict[str, object]]",
        body_of(HELLO, AssistantMessage("a", (call,)), ToolResult("r", "c1", "add", "bad", is_error=True))["messages"],
    )
    assert sent[1]["tool_calls"] == [{"type": "function", "id": "c1", "function": {"name": "add", "arguments": "{}"}}]
    assert sent[2]["content"] == "error: bad"


def test_a_tool_that_no_provider_takes_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ModelError, match=r"files\.read") as caught:
        body_of(HELLO, tools=(ToolSchema("files.read", "", JsonObject()),))
    assert caught.value.code == "MODEL_REQUEST"


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "required": ["a"],
                "additionalProperties": False,
            },
            True,
        ),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, False),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"], "additionalProperties": False}, False),
        ({"type": "array", "items": {"type": "object"}}, False),
        ({"type": "string"}, True),
    ],
)
def test_only_a_closed_schema_is_held_strictly(schema: dict[str, object], strict: bool) -> None:  # noqa: FBT001  a table's column
    assert is_strict_schema(JsonObject(schema)) is strict
