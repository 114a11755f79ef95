"""At a terminal: it asks for trust, draws a picture, obeys Ctrl-C, and shows nothing that a terminal would obey."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.terminal import CONTROL, Terminal
from tests.unit.cli.folders import WAIT, WRITE, Shell, task_folder, waiting_folder

MARKING = "from pathlib import Path\n\nPath(__file__).with_name('imported').write_text('')\n" + WRITE
COLOUR = re.compile(r"\x1b\[[0-9;]*(?:3[0-9]|4[0-9]|9[0-7])[0-9;]*m")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def terminals(shell: Shell) -> Iterator[list[Terminal]]:
    assert shell
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def opened(terminals: list[Terminal], shell: Shell, *words: str | Path) -> Terminal:
    terminals.append(Terminal(shell, *words))
    return terminals[-1]


@pytest.mark.parametrize("answer", ["\n", "n\n", "maybe\n"])
def test_it_asks_before_anything_is_imported_and_only_yes_is_yes(
    shell: Shell, terminals: list[Terminal], tmp_path: Path, answer: str
) -> None:
    folder = task_folder(tmp_path / "note", plan=MARKING)
    terminal = opened(terminals, shell, "run", folder)
    terminal.see("[y/N]")
    assert "plan.py" in terminal.text
    assert not (folder / "imported").exists()
    terminal.type(answer)
    assert terminal.end() == 3
    assert not (folder / "imported").exists()
    assert not shell.store.exists()


def test_yes_trusts_and_the_picture_shows_the_plan_the_checks_and_the_budget(
    shell: Shell, terminals: list[Terminal], tmp_path: Path
) -> None:
    terminal = opened(terminals, shell, "run", task_folder(tmp_path / "note"))
    terminal.see("[y/N]")
    terminal.type("y\n")
    assert terminal.end() == 0
    plain = CONTROL.sub("", terminal.text)
    for part in (
        "✓ 1 Write 1 (write_file)",
        "✓ 2 Write 2 (write_file)",
        "✓ note.txt",
        "2 of 10 tool calls",
        "SUCCEEDED",
    ):
        assert part in plain
    assert COLOUR.search(terminal.text)
    assert terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l")


def test_ctrl_c_cancels_and_gives_the_cursor_back(shell: Shell, terminals: list[Terminal], tmp_path: Path) -> None:
    folder = waiting_folder(tmp_path / "wait")
    stopping = WAIT.replace("while not (", "while not context.signal.is_cancelled and not (")
    (folder / "plan.py").write_text(stopping)
    terminal = opened(terminals, shell, "run", folder, "--trust")
    terminal.see("Wait for a sign")
    terminal.type("\x03")
    assert terminal.end() == 130
    assert "FAILED (cancelled)" in CONTROL.sub("", terminal.text)
    assert "Traceback" not in terminal.text
    assert terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l")


def test_ctrl_c_at_the_question_leaves_and_stores_nothing(
    shell: Shell, terminals: list[Terminal], tmp_path: Path
) -> None:
    terminal = opened(terminals, shell, "run", task_folder(tmp_path / "note"))
    terminal.see("[y/N]")
    terminal.type("\x03")
    assert terminal.end() == 130
    assert "Traceback" not in terminal.text
    assert not shell.store.exists()


def test_no_colour_is_used_where_none_is_wanted(shell: Shell, terminals: list[Terminal], tmp_path: Path) -> None:
    shell.env["NO_COLOR"] = "1"
    terminal = opened(terminals, shell, "run", task_folder(tmp_path / "note"), "--trust")
    assert terminal.end() == 0
    assert not COLOUR.search(terminal.text)


def test_a_dumb_terminal_gets_plain_lines(shell: Shell, terminals: list[Terminal], tmp_path: Path) -> None:
    shell.env["TERM"] = "dumb"
    terminal = opened(terminals, shell, "run", task_folder(tmp_path / "note"), "--trust")
    assert terminal.end() == 0
    assert "\x1b" not in terminal.text
    assert "1/2 Write 1" in terminal.text


@pytest.mark.parametrize("width", ["20", "40", "300"])
def test_every_width_will_do(shell: Shell, terminals: list[Terminal], tmp_path: Path, width: str) -> None:
    shell.env["COLUMNS"] = width
    folder = task_folder(tmp_path / "note", goal="A goal that is long enough to be wrapped or cut on a narrow terminal")
    assert opened(terminals, shell, "run", folder, "--trust").end() == 0
    for words in (("list",), ("doctor",), ("--help",), ("run", "--help")):
        assert opened(terminals, shell, *words).end() == 0


def test_hostile_text_is_harmless_in_the_picture(shell: Shell, terminals: list[Terminal], tmp_path: Path) -> None:
    goal = "a\x1b]52;c;ZXZpbA==\x07b\x1b]8;;http://evil.example\x1b\\c\x9b2Jd\u202ee\x1b[2Jf\rg\U000e0041"
    plan = WRITE.replace('f"Write {number}"', "goal")
    terminal = opened(terminals, shell, "run", task_folder(tmp_path / "evil", plan=plan, goal=goal), "--trust")
    assert terminal.end() == 0
    assert "\\x1b]52" in terminal.text
    for forbidden in ("\x1b]", "\x9b", "\u202e", "\x1b[2J", "\x07", "\U000e0041"):
        assert forbidden not in terminal.text
