import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from checkrein.errors import InvalidJson
from checkrein.messages import (
    AssistantMessage,
    ContentBlock,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Transcript,
    Usage,
    UserMessage,
    clean_message,
    validate_transcript,
)
from checkrein.values import JsonObject

HIGH, LOW, REPLACED = "\ud83d", "\ude00", "\ufffd"


def user(number: int = 1) -> UserMessage:
    return UserMessage(f"u{number}", "hello")


def calls(*ids: str, name: str = "add") -> AssistantMessage:
    return AssistantMessage("a1", tuple(ToolCall(call_id, name, {}) for call_id in ids))


def said(text: str = "done") -> AssistantMessage:
    return AssistantMessage("a2", (Text(text),))


def result(call_id: str, name: str = "add") -> ToolResult:
    return ToolResult(f"r-{call_id}", call_id, name, "3")


def issues(*messages: object) -> list[tuple[str, int]]:
    return [(issue.code, issue.index) for issue in validate_transcript(messages)]


# Values.


@pytest.mark.parametrize(
    ("value", "name", "constant"),
    [
        (user(), "role", "user"),
        (said(), "role", "assistant"),
        (result("c1"), "role", "tool_result"),
        (Text("x"), "type", "text"),
        (Thinking("x"), "type", "thinking"),
        (ToolCall("c1", "add", {}), "type", "tool_call"),
    ],
)
def test_role_and_type_are_class_constants_equal_to_the_tag_on_the_wire(
    value: msgspec.Struct, name: str, constant: str
) -> None:
    assert getattr(type(value), name) == constant
    assert msgspec.json.decode(msgspec.json.encode(value, enc_hook=lambda item: item.decoded()))[name] == constant


@pytest.mark.parametrize("message", [user(), calls("c1"), result("c1")])
def test_messages_compare_by_value_and_cannot_be_changed(message: Message) -> None:
    assert message == copy.deepcopy(message)
    assert hash(message) == hash(copy.deepcopy(message))
    with pytest.raises(AttributeError):
        message.id = "other"  # type: ignore[misc]  # refused at run time as well


def test_nothing_that_a_caller_keeps_changes_a_call() -> None:
    given: dict[str, object] = {"list": [1, 2], "inner": {"a": 1}}
    call = ToolCall("c1", "add", given)
    given["list"] = []
    cast("list[int]", call.arguments["list"]).append(3)
    cast("dict[str, int]", call.arguments["inner"])["a"] = 2
    assert call.arguments == {"list": [1, 2], "inner": {"a": 1}}


def test_arguments_are_equal_and_hash_by_their_canonical_bytes() -> None:
    one, other = ToolCall("c1", "add", {"b": 1, "a": 2}), ToolCall("c1", "add", {"a": 2, "b": 1})
    assert one == other
    assert hash(one.arguments) == hash(other.arguments)
    assert one.arguments.encoded == b'{"a":2,"b":1}'


def test_a_plain_mapping_is_converted_when_the_call_is_made() -> None:
    assert type(ToolCall("c1", "add", {"a": 1}).arguments) is JsonObject


@pytest.mark.parametrize("arguments", [{"a": float("nan")}, {"a": 2**60}, {"a": object()}, {1: "a"}, [1], "text"])
def test_arguments_without_a_json_form_make_no_call(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidJson):
        ToolCall("c1", "add", arguments)


@pytest.mark.parametrize("text", ['{"a":', "[1]", '"x"', "1", "null", "NaN", '{"a":NaN}', '{"a":1,"a":2}', "{} {}"])
def test_arguments_that_are_no_object_are_kept_as_text_beside_empty_arguments(text: str) -> None:
    call = ToolCall.parsed("c1", "add", text)
    assert (call.arguments, call.malformed) == ({}, text)


def test_arguments_that_are_an_object_are_parsed_and_no_text_is_no_arguments() -> None:
    assert ToolCall.parsed("c1", "add", '{"b": [1], "a": 2}') == ToolCall("c1", "add", {"a": 2, "b": [1]})
    assert ToolCall.parsed("c1", "add", "  ") == ToolCall("c1", "add", {})


# Cleaning.


class Loud(str):
    __slots__ = ("extra",)

    def __str__(self) -> str:
        return "loud"


class Blocks(tuple[ContentBlock, ...]):
    __slots__ = ()


def test_lone_surrogates_are_replaced_in_every_part_of_a_message() -> None:
    call = ToolCall(HIGH, LOW, {}, malformed=f"{HIGH}x")
    cleaned = clean_message(AssistantMessage(HIGH, (Text(f"a{LOW}"), Thinking(HIGH, LOW), call)))
    expected = (Text(f"a{REPLACED}"), Thinking(REPLACED, REPLACED), ToolCall(REPLACED, REPLACED, {}, f"{REPLACED}x"))
    assert cleaned == AssistantMessage(REPLACED, expected)
    assert clean_message(ToolResult(HIGH, HIGH, HIGH, HIGH)) == ToolResult(REPLACED, REPLACED, REPLACED, REPLACED)
    assert clean_message(UserMessage(HIGH, (Text(HIGH),))) == UserMessage(REPLACED, (Text(REPLACED),))


def test_a_surrogate_pair_is_its_one_character() -> None:
    assert clean_message(UserMessage("u", HIGH + LOW)) == UserMessage("u", "😀")


@pytest.mark.parametrize("message", [user(), calls("c1"), result("c1"), UserMessage("u", (Text("é😀"),))])
def test_a_clean_message_stays_the_very_same(message: Message) -> None:
    assert clean_message(message) is message


def test_subclasses_of_text_and_tuples_become_plain_with_their_own_value() -> None:
    cleaned = clean_message(AssistantMessage(Loud("a"), Blocks((Text(Loud("quiet")),))))
    assert cleaned == AssistantMessage("a", (Text("quiet"),))
    assert type(cleaned.id) is str
    assert type(cleaned.content) is tuple
    assert type(cast("Text", cleaned.content[0]).text) is str


# Transcripts.


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (user(),),
        (user(), said()),
        (user(), calls("c1", "c2"), result("c2"), result("c1"), said()),
        (user(), calls("c1"), result("c1"), user(2), said(), user(3)),
        (user(), calls("c1"), result("c1"), calls("c1"), result("c1"), said()),
        (said(), said()),
    ],
)
def test_a_valid_transcript_has_no_issue(messages: tuple[Message, ...]) -> None:
    assert validate_transcript(messages) == ()


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ((calls("c1", "c1"), result("c1"), result("c1")), [("duplicate_call_id", 0)]),
        ((calls("c1", "c1"), result("c1")), [("duplicate_call_id", 0), ("missing_result", 0)]),
        ((calls("c1"), result("c1"), result("c1")), [("duplicate_result", 2)]),
        ((calls("c1"), result("c1"), user(), result("c1")), [("duplicate_result", 3)]),
        ((user(), result("c9")), [("orphan_result", 1)]),
        ((calls("c1"), result("c1"), result("c9")), [("orphan_result", 2)]),
        ((result("c1"), calls("c1")), [("result_before_call", 0)]),
        ((result("c1"), calls("c1"), result("c1")), [("result_before_call", 0)]),
        ((calls("c1", "c2"), result("c2")), [("missing_result", 0)]),
        ((calls("c1"), user()), [("missing_result", 0)]),
        ((calls("c1"), user(), result("c1")), [("missing_result", 0)]),
        ((calls("c1"), said(), calls("c1"), result("c1")), [("missing_result", 0)]),
        ((calls("c1"), result("c1", "sub")), [("tool_name_mismatch", 1)]),
        ((calls("c1"), result("c1", "")), [("empty_tool_name", 1)]),
        ((calls("c1", name=""), result("c1", "")), [("empty_tool_name", 0)]),
        ((calls("c1", name=""), result("c1")), [("empty_tool_name", 0)]),
    ],
)
def test_one_fault_gives_one_issue(messages: tuple[Message, ...], expected: list[tuple[str, int]]) -> None:
    assert issues(*messages) == expected


@pytest.mark.parametrize("broken", [JsonObject.from_canonical(b"[1]"), JsonObject.from_canonical(b"{bad")])
def test_arguments_that_are_no_object_are_an_issue(broken: JsonObject) -> None:
    assert issues(AssistantMessage("a", (ToolCall("c1", "add", broken),)), result("c1")) == [("invalid_arguments", 0)]


def test_arguments_beside_a_malformed_text_are_an_issue() -> None:
    call = ToolCall("c1", "add", {"a": 1}, malformed="{")
    assert issues(AssistantMessage("a", (call,)), result("c1")) == [("invalid_arguments", 0)]


class MutableUser(UserMessage, frozen=False):  # pyright: ignore[reportGeneralTypeIssues]  msgspec allows it
    pass


@pytest.mark.parametrize(
    "message",
    [
        None,
        "text",
        {"role": "user", "content": "x"},
        SimpleNamespace(role="user", id="u", content="x"),
        MutableUser("u", "x"),
        UserMessage(cast("str", 1), "x"),
        UserMessage("u", cast("str", None)),
        UserMessage("u", cast("tuple[ContentBlock, ...]", [Text("x")])),
        UserMessage("u", (ToolCall("c1", "add", {}),)),
        AssistantMessage("a", cast("tuple[ContentBlock, ...]", "text")),
        AssistantMessage("a", cast("tuple[ContentBlock, ...]", [Text("x")])),
        AssistantMessage("a", cast("tuple[ContentBlock, ...]", ("x",))),
        AssistantMessage("a", (Text(cast("str", 1)),)),
        AssistantMessage("a", (Thinking("x", cast("str", 1)),)),
        AssistantMessage("a", (ToolCall(cast("str", ["c1"]), "add", {}),)),
        AssistantMessage("a", (Image.of(b"png", "image/png"),)),
        UserMessage("u", (Image.of(b"svg", "image/svg+xml"),)),
        UserMessage("u", (Image("image/png", ""),)),
        UserMessage("u", (Image("image/png", "a b="),)),
        UserMessage("u", (Image("image/png", cast("str", 5)),)),
    ],
)
def test_what_is_no_well_shaped_message_is_one_issue(message: object) -> None:
    assert issues(user(), message, user(2)) == [("invalid_message", 1)]


@pytest.mark.parametrize(
    "broken",
    [
        ToolResult("r", "c1", "add", cast("str", 5)),
        ToolResult("r", "c1", "add", "x", is_error=cast("bool", "yes")),
        ToolResult(cast("str", None), "c1", "add", "x"),
    ],
)
def test_a_malformed_result_still_answers_its_call(broken: ToolResult) -> None:
    assert issues(calls("c1"), broken) == [("invalid_message", 1)]


def test_results_after_what_cannot_be_read_are_not_judged() -> None:
    broken = AssistantMessage("a", cast("tuple[ContentBlock, ...]", [ToolCall("c1", "add", {})]))
    assert issues(broken, result("c1"), user()) == [("invalid_message", 0)]
    assert issues({"role": "assistant"}, result("c1"), user()) == [("invalid_message", 0)]
    assert issues(calls("c1", "c2"), {"role": "tool_result"}, result("c2")) == [("invalid_message", 1)]


def test_issues_come_in_the_order_of_the_messages_with_what_they_are_about() -> None:
    found = validate_transcript((calls("c1"), user(), result("c9")))
    assert [(issue.code, issue.index, issue.detail) for issue in found] == [
        ("missing_result", 0, "c1"),
        ("orphan_result", 2, "c9"),
    ]


def _breaks_off() -> Iterator[Message]:
    yield user()
    msg = "no more"
    raise OSError(msg)


@pytest.mark.parametrize(("messages", "index"), [(None, 0), (5, 0), (_breaks_off(), 1)])
def test_validating_never_raises(messages: object, index: int) -> None:
    found = validate_transcript(cast("list[object]", messages))
    assert [(issue.code, issue.index) for issue in found] == [("invalid_message", index)]


def test_validating_takes_time_that_grows_with_the_length_alone() -> None:
    orphans = [result(f"c{number}") for number in range(4096)]
    assert len(validate_transcript(orphans)) == 4096
    many = AssistantMessage("a", tuple(ToolCall(f"c{number}", "add", {}) for number in range(4095)))
    assert validate_transcript([many, *reversed(orphans[:4095])]) == ()


def test_a_transcript_is_checked_and_cleaned_at_the_door() -> None:
    assert Transcript.checked([UserMessage("u", HIGH)]) == (UserMessage("u", REPLACED),)
    with pytest.raises(ValueError, match="message 1: orphan_result c9"):
        Transcript.checked([user(), result("c9")])


def test_a_transcript_grows_without_changing_what_was_taken_from_it() -> None:
    first = Transcript.checked([user()])
    second = first.extended((calls("c1"), result("c1")))
    third = first.appended(said())
    assert [len(first), len(second), len(third)] == [1, 3, 2]
    assert isinstance(third, Transcript)
    with pytest.raises(ValueError, match="missing_result c1"):
        first.appended(calls("c1"))


def test_pictures_stand_in_user_messages_and_results_and_survive_the_wire() -> None:
    picture = Image.of(b"\x89PNG", "image/png")
    transcript: tuple[Message, ...] = (
        UserMessage("u", (Text("see"), picture)),
        calls("c1"),
        ToolResult("r", "c1", "add", (picture,)),
    )
    assert validate_transcript(transcript) == ()
    assert clean_message(transcript[0]) is transcript[0]
    assert msgspec.json.decode(msgspec.json.encode(transcript[0]), type=UserMessage) == transcript[0]


def test_every_count_of_usage_is_added() -> None:
    one, other = Usage(1, 2, 3, 0.5, 4, 5), Usage(10, 20, 30, 0.25, 40, 50)
    assert one.plus(other, cost=0.75) == Usage(11, 22, 33, 0.75, 44, 55)
    assert msgspec.json.encode(Usage(1)) == b'{"input_tokens":1}'
