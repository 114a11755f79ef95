"""The runner of console blocks is no rubber stamp: it sees every difference that is not allowed to vary."""

from pathlib import Path

import pytest

from tests.docs.console import Command, Terminal, commands
from tests.docs.pages import Block, blocks


def _block(text: str) -> Block:
    return Block("page.md", 1, "console", "", text)


@pytest.mark.parametrize(
    ("documented", "printed"),
    [
        ("done in 0.41 s", "done in 12 ms\n"),
        ("run 3f2a9c11 · 3f2a9c11", "run 00bb1122 · 00bb1122\n"),
        ("at 2026-01-02T03:04:05Z", "at 2031-11-12T13:14:15Z\n"),
        ("a … z", "a whatever z\n"),
        ("first\n…\nlast", "first\n1\n2\n3\nlast\n"),
        ("first\n…", "first\n"),
        ("", ""),
    ],
)
def test_what_may_vary_is_accepted(documented: str, printed: str, tmp_path: Path) -> None:
    Terminal(tmp_path).compare(Command("x", tuple(documented.splitlines())), printed)


@pytest.mark.parametrize(
    ("documented", "printed"),
    [
        ("7 of 12 tool calls", "8 of 12 tool calls\n"),
        ("run 3f2a9c11 · 3f2a9c11", "run 00bb1122 · 00bb1133\n"),
        ("done", "done\nand more\n"),
        ("done\nand more", "done\n"),
        ("", "surprise\n"),
        ("a … z", "a whatever\n"),
    ],
)
def test_what_may_not_vary_is_refused(documented: str, printed: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        Terminal(tmp_path).compare(Command("x", tuple(documented.splitlines())), printed)


def test_an_id_printed_once_is_used_in_later_commands(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.compare(Command("x", ("run 3f2a9c11",)), "run 00bb1122\n")
    assert terminal.run(Command("echo show 3f2a9c11", ())) == "show 00bb1122\n"


def test_an_exit_code_can_be_asked_for_by_the_next_command(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.run(Command("exit 4", ()))
    assert terminal.run(Command("echo $?", ())) == "4\n"


def test_commands_and_their_outputs_are_told_apart() -> None:
    found = list(commands(_block("$ one\nout\n\n$ two \\\n> more\n$ three\n")))
    assert found == [Command("one", ("out",)), Command("two \\\nmore", ()), Command("three", ())]


def test_continued_blocks_are_joined_and_outputs_attached(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nprint(0)\n```\n```output\n0\n```\ntext\n```python continued\nprint(1)\n```\n```output\n1\n```\n",
        encoding="utf-8",
    )
    (block,) = blocks(page)
    assert (block.text, block.output) == ("print(0)\nprint(1)\n", "0\n1\n")


def test_a_reason_not_to_run_is_read_from_the_info_string(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console not run: needs a key of yours\n$ x\n```\n", encoding="utf-8")
    (block,) = blocks(page)
    assert block.reason_not_to_run == "needs a key of yours"
