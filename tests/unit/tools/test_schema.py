"""Arguments against schemas: strict, explained, and without any retrieval."""

import pytest

from checkrein.errors import DataError
from checkrein.tools.schema import ArgumentSchema, pointer
from checkrein.values import JsonObject, JsonValue

SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 1, "maximum": 9},
        "colour": {"enum": ["red", "blue"]},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "list": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "code": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 3},
        "either": {"anyOf": [{"type": "object", "required": ["a"]}, {"type": "array", "minItems": 2}]},
        "fixed": {"const": 7},
    },
    "required": ["n"],
    "additionalProperties": False,
}


def issues(arguments: dict[str, object], schema: dict[str, JsonValue] = SCHEMA) -> dict[str, str]:
    return dict(ArgumentSchema(JsonObject(schema)).issues(JsonObject(arguments)))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, {"/n": "is required and missing"}),
        ({"n": "1"}, {"/n": 'expected an integer, got the text "1"'}),
        ({"n": 1.5}, {"/n": "expected an integer, got the number 1.5"}),
        ({"n": True}, {"/n": "expected an integer, got true"}),
        ({"n": 0}, {"/n": "expected at least 1"}),
        ({"n": 10}, {"/n": "expected at most 9"}),
        ({"n": 1, "colour": "green"}, {"/colour": 'expected one of "red", "blue"'}),
        ({"n": 1, "maybe": []}, {"/maybe": "expected an integer or null, got an array"}),
        ({"n": 1, "list": ["a", 2]}, {"/list/1": "expected a string, got the number 2"}),
        ({"n": 1, "list": list("abcd")}, {"/list": "expected at most 3 items"}),
        ({"n": 1, "code": "A"}, {"/code": "expected a text that matches ^[a-z]+$"}),
        ({"n": 1, "code": "abcd"}, {"/code": "expected at most 3 characters"}),
        ({"n": 1, "fixed": 8}, {"/fixed": "expected 7"}),
        ({"n": 1, "x~/y": 1}, {"/x~0~1y": "is not known here"}),
        (
            {"n": 1, "either": {}},
            {"/either": "expected one of several forms: /either/a is required and missing | /either expected an array, got an object"},
        ),
    ],
)  # fmt: skip
def test_an_issue_says_where_and_what_was_expected(arguments: dict[str, object], expected: dict[str, str]) -> None:
    assert issues(arguments) == expected


def test_valid_arguments_have_no_issue_and_a_whole_number_is_an_integer_however_written() -> None:
    assert issues({"n": 1.0, "colour": "red", "maybe": None, "list": [], "code": "abc", "either": [1, 2]}) == {}


def test_all_wrong_places_are_told_at_once_but_no_more_than_twenty() -> None:
    assert len(issues({"n": "x", "colour": 1, "code": 2})) == 3
    assert len(issues({"n": 1, **{f"x{index}": 1 for index in range(1_000)}})) == 20


def test_a_long_value_is_not_repeated() -> None:
    (text,) = issues({"n": "x" * 1_000_000}).values()
    assert len(text) < 200


@pytest.mark.parametrize("target", ["http://127.0.0.1:1/x", "https://example.test/x", "file:///etc/passwd", "urn:x:y"])
def test_a_reference_out_of_the_schema_is_never_followed(target: str) -> None:
    with pytest.raises(DataError, match="the schema is invalid"):
        ArgumentSchema(JsonObject({"$ref": target}))


@pytest.mark.parametrize("schema", [{"type": "text"}, {"pattern": "("}, {"pattern": "(?=a)a"}, {"minimum": "x"}])
def test_an_invalid_schema_is_refused(schema: dict[str, object]) -> None:
    with pytest.raises(DataError, match="the schema is invalid"):
        ArgumentSchema(JsonObject(schema))


def test_a_pattern_takes_linear_time_whatever_is_sent() -> None:
    schema: dict[str, JsonValue] = {"properties": {"s": {"type": "string", "pattern": "^(a+)+$"}}}
    assert issues({"s": "a" * 50_000 + "b"}, schema) == {"/s": "expected a text that matches ^(a+)+$"}


def test_a_pointer_escapes_as_the_standard_says() -> None:
    assert pointer(["a/b", "m~n", 0, ""]) == "/a~1b/m~0n/0/"
    assert pointer([]) == ""
