"""What is posted to the Messages API, case by case."""

from collections.abc import Mapping, Sequence
from typing import cast

import pytest

from checkrein.errors import ModelError
from checkrein.messages import AssistantMessage, Image, Message, Text, Thinking, ToolCall, ToolResult, UserMessage
from checkrein.ports.model import ModelRequest, ToolSchema
from checkrein.providers.anthropic.encode import DEFAULT_MAX_TOKENS, encode
from checkrein.providers.anthropic.schema import answer_schema
from checkrein.providers.settings import read_settings
from checkrein.values import JsonObject

Fields = Mapping[str, object]
HELLO = UserMessage("u1", "hello")
ADD = ToolSchema("add", "Add numbers.", JsonObject({"type": "object", "properties": {"a": {"type": "integer"}}}))
NOW = ToolSchema("now", "", JsonObject())
PNG = Image.of(b"\x89PNG", "image/png")
PNG_BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}}
MARK = {"type": "ephemeral"}


def body_of(
    messages: Sequence[Message] = (HELLO,), tools: tuple[ToolSchema, ...] = (), settings: Fields | None = None
) -> Fields:
    given = {"cache": False, **(settings or {})}
    return encode(ModelRequest("request-001", messages, tools), read_settings(given), "a-model")


def messages_of(*messages: Message) -> list[Fields]:
    return blocks_in(body_of(messages), "messages")


def blocks_in(fields: Fields, name: str) -> list[Fields]:
    return cast("list[Fields]", fields[name])


def text(said: str) -> Fields:
    return {"type": "text", "text": said}


def test_the_least_that_is_posted() -> None:
    assert body_of() == {
        "model": "a-model",
        "max_tokens": DEFAULT_MAX_TOKENS,
        "messages": [{"role": "user", "content": [text("hello")]}],
        "stream": True,
    }


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({"system": "Be brief."}, {"system": [text("Be brief.")]}),
        ({"system": " \n"}, {}),
        ({"max_output_tokens": "100"}, {"max_tokens": 100}),
        ({"temperature": "0.5", "top_p": "0.9", "seed": "3"}, {"temperature": 0.5, "top_p": 0.9}),
        ({"reasoning_tokens": "2000"}, {"thinking": {"type": "enabled", "budget_tokens": 2000}}),
        (
            {"reasoning_tokens": "50000"},
            {"thinking": {"type": "enabled", "budget_tokens": 50000}, "max_tokens": 58000},
        ),
        ({"reasoning_effort": "high"}, {"output_config": {"effort": "high"}}),
        ({"extra": '{"thinking": {"type": "adaptive"}}'}, {"thinking": {"type": "adaptive"}}),
        ({"tool_choice": "required"}, {}),
    ],
)
def test_a_setting_is_posted_in_the_words_of_the_wire(settings: Fields, fields: Fields) -> None:
    assert body_of(settings=settings) == {**body_of(), **fields}


@pytest.mark.parametrize(
    ("settings", "choice"),
    [
        ({}, None),
        ({"tool_choice": "required"}, {"type": "any"}),
        ({"tool_choice": "none"}, {"type": "none"}),
        ({"parallel_tool_calls": "false"}, {"type": "auto", "disable_parallel_tool_use": True}),
        ({"parallel_tool_calls": "true"}, {"type": "auto", "disable_parallel_tool_use": False}),
        ({"parallel_tool_calls": "false", "tool_choice": "none"}, {"type": "none"}),
    ],
)
def test_tools_are_offered_with_the_choice_that_is_asked_for(settings: Fields, choice: Fields | None) -> None:
    body = body_of(tools=(ADD, NOW), settings=settings)
    assert body["tools"] == [
        {"name": "add", "description": "Add numbers.", "input_schema": ADD.parameters.decoded()},
        {"name": "now", "input_schema": {"type": "object"}},
    ]
    assert body.get("tool_choice") == choice


def test_a_tool_that_no_provider_takes_is_refused() -> None:
    with pytest.raises(ModelError, match=r"'a\.b'") as caught:
        body_of(tools=(ToolSchema("a.b", "", JsonObject()),))
    assert (caught.value.code, caught.value.is_transient) == ("MODEL_REQUEST", False)


CALLS = AssistantMessage("a1", (Text("Both."), ToolCall("t1", "add", {"a": 1}), ToolCall("t2", "find", {})))
RESULTS = (ToolResult("r1", "t1", "add", "1"), ToolResult("r2", "t2", "find", (Text("no"), PNG), is_error=True))


def test_all_results_of_a_response_stand_first_in_the_next_user_message() -> None:
    assert messages_of(HELLO, CALLS, *RESULTS, UserMessage("u2", (Text("and"), PNG)))[1:] == [
        {
            "role": "assistant",
            "content": [
                text("Both."),
                {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}},
                {"type": "tool_use", "id": "t2", "name": "find", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [text("1")]},
                {"type": "tool_result", "tool_use_id": "t2", "content": [text("no")], "is_error": True},
                text("From the result of find:"),
                PNG_BLOCK,
                text("and"),
                PNG_BLOCK,
            ],
        },
    ]


def test_a_picture_of_a_result_stands_in_the_result() -> None:
    call = AssistantMessage("a1", (ToolCall("t1", "see", {}),))
    last = messages_of(HELLO, call, ToolResult("r1", "t1", "see", (PNG, Text("seen"))))[-1]
    assert last["content"] == [{"type": "tool_result", "tool_use_id": "t1", "content": [PNG_BLOCK, text("seen")]}]


def test_an_id_that_the_wire_does_not_take_or_that_came_before_is_replaced_in_call_and_result() -> None:
    turn = (AssistantMessage("a", (ToolCall("t.1", "add", {}),)), ToolResult("r", "t.1", "add", "1"))
    first, answer, second, last = messages_of(HELLO, *turn, *turn)[1:]
    ids: list[object] = []
    for asked, told in ((first, answer), (second, last)):
        call = blocks_in(asked, "content")[0]
        assert blocks_in(told, "content")[0]["tool_use_id"] == call["id"]
        ids.append(call["id"])
    assert len(set(ids)) == 2
    assert "t.1" not in ids


def test_roles_alternate_and_the_user_has_the_first_and_the_last_word() -> None:
    said = [AssistantMessage(f"a{number}", (Text(f"{number}"),)) for number in (1, 2)]
    assert messages_of(*said, HELLO, HELLO, said[0]) == [
        {"role": "user", "content": [text("(empty)")]},
        {"role": "assistant", "content": [text("1"), text("2")]},
        {"role": "user", "content": [text("hello"), text("hello")]},
        {"role": "assistant", "content": [text("1")]},
        {"role": "user", "content": [text("(empty)")]},
    ]


def test_reasoning_goes_back_unchanged_where_it_stood() -> None:
    own = Thinking("Deep.", "messages:thinking:c2ln:bmVk")
    spoken = AssistantMessage(
        "a1", (own, ToolCall("t1", "add", {}), Thinking("", "messages:redacted:RW5j"), Text("Said."))
    )
    assert messages_of(HELLO, spoken, ToolResult("r1", "t1", "add", "1"))[1]["content"] == [
        {"type": "thinking", "thinking": "Deep.", "signature": "c2ln:bmVk"},
        {"type": "tool_use", "id": "t1", "name": "add", "input": {}},
        {"type": "redacted_thinking", "data": "RW5j"},
        text("Said."),
    ]


@pytest.mark.parametrize(
    "signature", ["", "c2lnbmVk", "chat:reasoning", "responses:{}", "messages:", "messages:other:x"]
)
def test_reasoning_that_is_not_of_this_wire_or_unsigned_is_left_out(signature: str) -> None:
    spoken = AssistantMessage("a1", (Thinking("Deep.", signature), Text("Said.")))
    assert messages_of(HELLO, spoken)[1]["content"] == [text("Said.")]


def test_a_response_of_reasoning_alone_is_left_out() -> None:
    spoken = AssistantMessage("a1", (Thinking("Deep.", "messages:thinking:x"),))
    assert messages_of(HELLO, spoken, HELLO) == [{"role": "user", "content": [text("hello"), text("hello")]}]


def test_the_cache_is_asked_for_after_tools_system_and_the_last_two_user_messages() -> None:
    talk = (HELLO, AssistantMessage("a1", (Text("hi"),)), HELLO, CALLS, *RESULTS)
    body = body_of(talk, (ADD, NOW), {"system": "Be brief.", "cache": True})
    tools, system = blocks_in(body, "tools"), blocks_in(body, "system")
    assert [tool.get("cache_control") for tool in tools] == [None, MARK]
    assert [block.get("cache_control") for block in system] == [MARK]
    marks = [
        [block.get("cache_control") for block in blocks_in(message, "content")]
        for message in blocks_in(body, "messages")
    ]
    assert marks == [[None], [None], [MARK], [None, None, None], [None, None, None, MARK]]


def test_an_answers_schema_is_said_as_the_wire_takes_it() -> None:
    schema: Fields = {
        "type": "object",
        "description": "An order.",
        "properties": {
            "minimum": {"type": "integer", "minimum": 1, "maximum": 9},
            "kind": {"enum": ["a", {"minimum": 3}]},
            "rows": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/row"}},
            "many": {"type": "array", "minItems": 2, "items": {"type": "string", "maxLength": 5}},
            "open": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["minimum"],
        "minProperties": 1,
        "$defs": {"row": {"type": "object", "properties": {}}},
    }
    body = body_of(settings={"response_schema": schema, "reasoning_effort": "low"})
    assert body["output_config"] == {
        "effort": "low",
        "format": {
            "type": "json_schema",
            "schema": {
                "type": "object",
                "description": 'An order.\n\n{"minProperties":1}',
                "properties": {
                    "minimum": {"type": "integer", "description": '{"maximum":9,"minimum":1}'},
                    "kind": {"enum": ["a", {"minimum": 3}]},
                    "rows": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/row"}},
                    "many": {
                        "type": "array",
                        "items": {"type": "string", "description": '{"maxLength":5}'},
                        "description": '{"minItems":2}',
                    },
                    "open": {"type": "object", "additionalProperties": {"type": "string"}},
                },
                "required": ["minimum"],
                "additionalProperties": False,
                "$defs": {"row": {"type": "object", "properties": {}, "additionalProperties": False}},
            },
        },
    }


def test_a_schema_that_is_taken_as_it_is_stays_as_it_is() -> None:
    schema: Fields = {
        "type": "object",
        "properties": {"a": {"anyOf": [{"type": "null"}, {"type": "string"}]}},
        "additionalProperties": False,
    }
    assert answer_schema(JsonObject(schema)) == schema
