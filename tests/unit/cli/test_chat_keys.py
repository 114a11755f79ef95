"""Bytes of a terminal become keys whole or not at all, however they are cut."""

import pytest
from hypothesis import given, strategies as st

from checkrein.cli.chat_keys import ESCAPE_SECONDS, PASTE_SECONDS, Key, KeyReader, Pasted, Press, Typed

KEYS = {
    b"\r": Key.ENTER,
    b"\n": Key.ENTER,
    b"\x1b\r": Key.ALT_ENTER,
    b"\x1b\n": Key.ALT_ENTER,
    b"\x1b[13;3u": Key.ALT_ENTER,
    b"\x1b[27;3;13~": Key.ALT_ENTER,
    b"\x7f": Key.BACKSPACE,
    b"\x08": Key.BACKSPACE,
    b"\x1b[3~": Key.DELETE,
    b"\x17": Key.DELETE_WORD,
    b"\x1b\x7f": Key.DELETE_WORD,
    b"\x15": Key.DELETE_BEFORE,
    b"\x1b[D": Key.LEFT,
    b"\x1bOD": Key.LEFT,
    b"\x02": Key.LEFT,
    b"\x1b[C": Key.RIGHT,
    b"\x1bOC": Key.RIGHT,
    b"\x06": Key.RIGHT,
    b"\x1b[H": Key.HOME,
    b"\x1b[1~": Key.HOME,
    b"\x1bOH": Key.HOME,
    b"\x01": Key.HOME,
    b"\x1b[F": Key.END,
    b"\x1b[4~": Key.END,
    b"\x1bOF": Key.END,
    b"\x05": Key.END,
    b"\x04": Key.CLOSE,
    b"\x0c": Key.REDRAW,
}
UNKNOWN = [b"\x1b[A", b"\x1b[1;5C", b"\x1b[<0;1;1M", b"\x1bq", b"\x1b[24~", b"\x1bOP", b"\x07", b"\x00", b"\x1c", b"\t"]


def pressed(*parts: bytes) -> list[Press]:
    """What comes of bytes that arrive in these parts, after which nothing comes."""
    reader = KeyReader()
    found = [press for part in parts for press in reader.feed(part)]
    return found + reader.flush()


@pytest.mark.parametrize("data", KEYS)
def test_every_key_is_known(data: bytes) -> None:
    assert pressed(data) == [KEYS[data]]


@pytest.mark.parametrize("data", UNKNOWN)
def test_an_unknown_key_types_nothing(data: bytes) -> None:
    assert pressed(b"a" + data + b"b") == [Typed("a"), Typed("b")]


@given(
    st.lists(st.sampled_from([*KEYS, *UNKNOWN, b"abc", "日本".encode(), b"\x1b[200~x\r\ny\x1b[A\x1b[201~"])), st.data()
)
def test_where_the_bytes_are_cut_makes_no_difference(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)))))
    parts = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert joined(pressed(*parts)) == joined(pressed(whole))


def joined(presses: list[Press]) -> list[Press]:
    """Presses with what was typed in pieces as one."""
    found: list[Press] = []
    for press in presses:
        if isinstance(press, Typed) and found and isinstance(found[-1], Typed):
            found[-1] = Typed(found[-1].text + press.text)
        else:
            found.append(press)
    return found


@given(st.lists(st.binary()))
def test_no_bytes_at_all_type_a_control_character(parts: list[bytes]) -> None:
    typed = "".join(press.text for press in pressed(*parts) if isinstance(press, Typed))
    assert all(mark.isprintable() or ord(mark) >= 0xA0 for mark in typed)


def test_esc_alone_is_a_key_once_nothing_follows() -> None:
    reader = KeyReader()
    assert reader.feed(b"a\x1b") == [Typed("a")]
    assert reader.wait_seconds == ESCAPE_SECONDS
    assert reader.flush() == [Key.ESCAPE]
    assert reader.wait_seconds is None


def test_esc_twice_is_esc_twice() -> None:
    assert pressed(b"\x1b\x1b") == [Key.ESCAPE, Key.ESCAPE]


def test_esc_right_after_which_something_is_typed_is_no_esc_and_types_nothing_wrong() -> None:
    assert pressed(b"\x1bx", b"y") == [Typed("y")]


def test_a_sequence_that_never_ends_types_nothing() -> None:
    assert pressed(b"\x1b[1;") == []
    assert pressed(b"\x1b[" + b"1" * 100 + b"\r")[-1] is Key.ENTER


def test_pasted_text_is_one_press_with_whatever_it_holds() -> None:
    assert pressed(b"\x1b[200~one\r\ntwo\x1b[2J\x03", b"\x1b[20", b"1~\r") == [
        Pasted("one\r\ntwo\x1b[2J\x03"),
        Key.ENTER,
    ]


def test_a_paste_whose_end_never_comes_is_taken_as_it_is() -> None:
    reader = KeyReader()
    assert reader.feed(b"\x1b[200~half") == []
    assert reader.wait_seconds == PASTE_SECONDS
    assert reader.flush() == [Pasted("half")]
    assert reader.feed(b"\r") == [Key.ENTER]


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert pressed(b"\xff\xfea") == [Typed("\ufffd\ufffda")]
