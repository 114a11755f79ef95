"""Canonical JSON at the door: what is encoded, what is refused, and that nothing can be changed afterwards."""

import copy
import json
import math

import pytest
from hypothesis import given, strategies as st

from checkrein.errors import InvalidJson
from checkrein.values import (
    MAX_INTEGER,
    JsonData,
    JsonObject,
    JsonValue,
    Shared,
    canonical_json,
    clean_text,
    parse_json,
    shorten,
    visible_text,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Mapping(dict[str, object]):
    pass


@given(JSON)
def test_canonical_bytes_are_a_fixed_point(value: JsonValue) -> None:
    encoded = canonical_json(value)
    assert canonical_json(parse_json(encoded)) == encoded
    assert json.loads(encoded) == value


@given(st.dictionaries(st.text(max_size=3), st.integers(-9, 9), max_size=6))
def test_order_of_keys_does_not_matter(value: dict[str, int]) -> None:
    backwards = dict(reversed(list(value.items())))
    assert canonical_json(value) == canonical_json(backwards)
    assert JsonObject(value) == JsonObject(backwards)
    assert hash(JsonObject(value)) == hash(JsonObject(backwards))


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"a": math.nan}, "/a"),
        ([1, math.inf], "/1"),
        ({"a/b": {"c~d": -math.inf}}, "/a~1b/c~0d"),
        (MAX_INTEGER + 1, ""),
        ({"n": -MAX_INTEGER - 1}, "/n"),
        ({1: "a"}, ""),
        ({"x": {1, 2}}, "/x"),
        ({"x": b"bytes"}, "/x"),
        ({chr(0xD800): 1, "\ufffd": 2}, "/\ufffd"),
        (object(), ""),
    ],
)
def test_what_has_no_json_form_is_refused_with_its_place(value: object, pointer: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        canonical_json(value)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    "text",
    [
        '{"a":',
        "[1,]",
        "NaN",
        "[Infinity]",
        "-Infinity",
        '{"a":1,"a":2}',
        "1" * 400,
        "1e999",
        "",
        "\x00",
        "[" * 100_000,
        b"\xff\xfe\xfd",
        "'a'",
    ],
)
def test_json_from_outside_is_parsed_strictly(text: str | bytes) -> None:
    with pytest.raises(InvalidJson):
        parse_json(text)


def test_nesting_and_size_are_bounded() -> None:
    deep: object = 0
    for _ in range(128):
        deep = [deep]
    assert canonical_json(deep)
    with pytest.raises(InvalidJson, match="deeply"):
        canonical_json([deep])
    with pytest.raises(InvalidJson, match="bytes"):
        canonical_json("x" * 100, max_bytes=100)
    with pytest.raises(InvalidJson, match="characters"):
        parse_json(" " * 101, max_bytes=100)


def test_a_cycle_is_too_deep_and_not_a_crash() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(InvalidJson, match="deeply"):
        canonical_json(loop)


def test_subclasses_of_builtins_become_the_builtin() -> None:
    assert canonical_json(Mapping({Text("a"): Number(1), "b": Text("x\ud800")})) == '{"a":1,"b":"x\ufffd"}'.encode()
    assert type(clean_text(Text("a"))) is str


def test_lone_surrogates_become_the_replacement_character_and_pairs_one_character() -> None:
    assert clean_text("a\ud800b\udfffc") == "a\ufffdb\ufffdc"
    assert clean_text("\ud83d\ude00") == "\N{GRINNING FACE}"
    assert clean_text("\ud83d\ud83d\ude00") == "\ufffd\N{GRINNING FACE}"


@given(st.text(st.characters()))
def test_cleaned_text_is_always_valid_unicode(text: str) -> None:
    clean_text(text).encode()


def test_reading_a_json_object_gives_fresh_values_every_time() -> None:
    original = {"list": [1], "inner": {"a": 1}}
    made = JsonObject(original)
    original["list"].append(2)  # type: ignore[union-attr]
    seen = made["list"]
    assert isinstance(seen, list)
    seen.append(3)
    assert made["list"] == [1]
    assert made.decoded() is not made.decoded()


def test_json_object_cannot_be_changed_and_survives_copies() -> None:
    made = JsonObject({"a": 1})
    with pytest.raises(AttributeError):
        made.extra = 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        setattr(made, "_bytes", b"{}")  # noqa: B010  the point is that it is refused
    assert copy.deepcopy(made) is made
    assert copy.copy(made) is made
    assert copy.deepcopy(JsonData([1])) == JsonData([1])
    assert (len(made), list(made), "a" in made, made == {"a": 1}, made == {"a": 2}) == (1, ["a"], True, True, False)
    assert made != {"a": math.nan}


def test_json_data_holds_any_value_by_its_bytes() -> None:
    assert JsonData([1, {"b": 1, "a": 2}]) == JsonData([1, {"a": 2, "b": 1}])
    assert JsonData(None) != JsonData(0)
    assert JsonData(JsonObject({"a": 1})).value == {"a": 1}
    assert len({JsonData(1), JsonData(1), JsonData(1.0)}) == 2
    with pytest.raises(AttributeError):
        setattr(JsonData(1), "_bytes", b"2")  # noqa: B010  the point is that it is refused


@pytest.mark.parametrize(
    "hostile",
    [
        "\x1b[2J",
        "\x1b]52;c;aGk=\x07",
        "\x9b31m",
        "\u202eabc",
        "\u200b",
        "\U000e0041",
        "\x7f",
        "\x00",
        "\u2028",
        "\ufeff",
        "\r",
    ],
)
def test_visible_text_leaves_nothing_a_terminal_would_obey(hostile: str) -> None:
    shown = visible_text(f"a{hostile}b\tc\nd")
    assert hostile not in shown
    assert all(character.isprintable() or character in "\t\n" for character in shown)
    assert shown.startswith("a\\")
    assert "\n" not in visible_text("a\nb", keep_newlines=False)


def test_shortened_text_says_how_much_is_missing() -> None:
    assert shorten("abc", 3) == "abc"
    assert shorten("abcdef", 3) == "abc… (3 more characters)"


def test_shared_sequences_do_not_change_when_others_grow() -> None:
    first = Shared([1, 2])
    second = first.appended(3)
    third = first.appended(4)
    assert (tuple(first), tuple(second), tuple(third)) == ((1, 2), (1, 2, 3), (1, 2, 4))
    assert second == (1, 2, 3)
    assert second == Shared([1, 2, 3])
    assert second != third
    assert hash(second) == hash((1, 2, 3))
    assert (second[-1], second[1:], len(second)) == (3, (2, 3), 3)
    with pytest.raises(IndexError):
        first[2]
    with pytest.raises(IndexError):
        first[-3]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers()), max_size=40))
def test_any_family_of_shared_sequences_equals_its_tuples(steps: list[tuple[int, int]]) -> None:
    family: list[tuple[Shared[int], tuple[int, ...]]] = [(Shared(), ())]
    for parent, item in steps:
        grown, model = family[parent % len(family)]
        family.append((grown.appended(item), (*model, item)))
    assert all(tuple(sequence) == model and len(sequence) == len(model) for sequence, model in family)
