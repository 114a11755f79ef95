"""The line that is typed: edited as a reader sees it, measured as a terminal counts it."""

import re

import pytest
from hypothesis import given, strategies as st
from rich.cells import cell_len, split_graphemes

from checkrein.cli.chat_keys import Key, Pasted, Press, Typed
from checkrein.cli.chat_line import InputLine

FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
PRESSES = st.one_of(
    st.sampled_from([key for key in Key if key not in {Key.ENTER, Key.ALT_ENTER}]),
    st.builds(Typed, st.text(max_size=5)),
    st.builds(Pasted, st.text(max_size=20)),
)


def line_of(*presses: Press) -> InputLine:
    line = InputLine()
    for press in presses:
        line.press(press)
    return line


def test_text_is_inserted_where_the_cursor_is() -> None:
    line = line_of(Typed("held"), Key.LEFT, Key.LEFT, Typed("l"), Key.HOME, Typed("w"), Key.END, Typed("!"))
    assert (line.text, line.cursor) == ("whelld!", 7)


@pytest.mark.parametrize(
    ("presses", "left"),
    [
        ((Key.BACKSPACE,), "one tw"),
        ((Key.HOME, Key.DELETE), "ne two"),
        ((Key.DELETE,), "one two"),
        ((Key.HOME, Key.BACKSPACE), "one two"),
        ((Key.DELETE_WORD,), "one "),
        ((Key.DELETE_WORD, Key.DELETE_WORD), ""),
        ((Key.LEFT, Key.DELETE_BEFORE), "o"),
    ],
)
def test_each_key_deletes_what_it_says(presses: tuple[Key, ...], left: str) -> None:
    assert line_of(Typed("one two"), *presses).text == left


def test_a_key_for_something_else_is_not_taken() -> None:
    assert [key for key in Key if not InputLine().press(key)] == [
        Key.ENTER,
        Key.ALT_ENTER,
        Key.ESCAPE,
        Key.CLOSE,
        Key.REDRAW,
    ]


def test_a_character_of_several_code_points_is_one() -> None:
    family, accented = "👩\u200d👧", "e\u0301"
    assert line_of(Typed(f"a{family}"), Key.BACKSPACE).text == "a"
    assert line_of(Typed(f"a{accented}b"), Key.LEFT, Key.LEFT, Typed("x")).text == f"ax{accented}b"


def test_pasted_newlines_stay_in_the_text_and_are_shown() -> None:
    line = line_of(Pasted("one\r\ntwo\rthree"))
    assert line.text == "one\ntwo\nthree"
    assert line.view(80) == ("one↵two↵three", 13)


def test_wide_characters_take_two_columns() -> None:
    assert line_of(Typed("日本")).view(80) == ("日本", 4)
    assert line_of(Typed("日本"), Key.LEFT).view(80) == ("日本", 2)


def test_hostile_text_is_shown_and_kept() -> None:
    line = line_of(Pasted("\x1b[2Ja"))
    assert line.view(80) == ("\\x1b[2Ja", 8)
    assert line.text == "\x1b[2Ja"


def test_long_text_is_cut_around_the_cursor() -> None:
    line = line_of(Typed("abcdefghijklmnopqrstuvwxyz"))
    assert line.view(10) == ("…stuvwxyz", 9)
    for _ in range(13):
        line.press(Key.LEFT)
    assert line.view(10) == ("…ijklmno…", 6)
    line.press(Key.HOME)
    assert line.view(10) == ("abcdefgh…", 0)


@given(st.lists(PRESSES), st.integers(1, 40))
def test_the_cursor_is_always_in_the_row_and_between_characters(presses: list[Press], width: int) -> None:
    line = line_of(*presses)
    text, column = line.view(width)
    assert cell_len(text) <= width
    assert 0 <= column < width
    assert not FORBIDDEN.search(text)
    assert line.cursor in {0, *(end for _, end, _ in split_graphemes(line.text)[0])}


def test_what_is_given_back_stands_before_what_was_typed() -> None:
    line = line_of(Typed("new"))
    line.give_back("old")
    assert (line.text, line.cursor) == ("old\nnew", 7)
    assert line.take() == "old\nnew"
    line.give_back("old")
    assert (line.text, line.cursor) == ("old", 3)
