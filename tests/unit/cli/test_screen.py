"""Text that others wrote reaches a terminal visible and harmless, wherever it came from."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from checkrein.cli.screen import Screen, columns, shown
from tests.unit.cli.folders import Printed, task_folder, toml_text

Checkrein = Callable[..., Printed]

HOSTILE = {
    "escape": "\x1b[2J\x1b[31mred",
    "clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "link": "\x1b]8;;http://evil.example\x1b\\text\x1b]8;;\x1b\\",
    "c1": "\x9b31m\x9d52;c;x\x9c",
    "bidi": "safe\u202eexe.txt\u2066",
    "tags": "a\U000e0041\U000e007f",
    "zero": "a\u200bb\ufeff",
    "return": "SUCCEEDED\rFAILED",
    "delete": "a\x7f\x08",
    "markup": "[red]x[/red] [link=http://evil.example]y[/link] :smile:",
}
FORBIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
ALL = " ".join(HOSTILE.values())

FAILING = """\
from checkrein import Step, tool


def plan(goal, history, last_error):
    if last_error:
        raise RuntimeError(goal)
    return [
        Step(id=goal, description=goal, tool_name="write_file", arguments={"path": "a" + goal, "content": goal}),
        Step(id="fail", description=goal, tool_name="fail", arguments={"text": goal}),
    ]


@tool
def fail(text: str) -> str:
    \"\"\"Fail with what was given.\"\"\"
    raise RuntimeError(text)
"""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_made_visible(name: str) -> None:
    assert not FORBIDDEN.search(shown(HOSTILE[name]))
    assert "\n" not in shown(f"{HOSTILE[name]}\nsecond line")


@pytest.fixture
def printed_run(checkrein: Checkrein, tmp_path: Path) -> tuple[str, list[Printed]]:
    """A run whose goal, steps, arguments, results, errors, file names and messages are hostile, shown by every command."""
    folder = task_folder(tmp_path / "evil", plan=FAILING, tools=("write_file", "plan.py:fail"), goal=ALL)
    task = folder / "task.toml"
    task.write_text(task.read_text().replace('path = "note.txt"', f'path = "note.txt"\ntitle = {toml_text(ALL)}'))
    begun = checkrein("run", folder, "--trust")
    run = next(line.rpartition(" ")[2] for line in begun.lines if " · run " in line)
    said = [
        checkrein("steer", run, ALL),
        checkrein("unblock", run, ALL),
        checkrein("show", run),
        checkrein("events", run),
        checkrein("list"),
        checkrein("resume", run),
        checkrein("unblock", run, "planner:2", "--close", ALL),
        checkrein("show", run),
        checkrein("verify", run),
        checkrein("show", ALL),
        checkrein("run", ALL),
        checkrein(ALL),
        checkrein("list", "--phase", ALL),
        checkrein("list", "--json"),
        checkrein("events", run, "--json"),
    ]
    return run, [begun, *said]


def test_no_command_prints_a_character_that_a_terminal_obeys(printed_run: tuple[str, list[Printed]]) -> None:
    _, printed = printed_run
    for item in printed:
        assert not FORBIDDEN.search(item.out)
        assert not FORBIDDEN.search(item.err)
    assert sum("\\x1b]52" in item.out for item in printed) >= 4


def test_markup_is_text(printed_run: tuple[str, list[Printed]]) -> None:
    run, printed = printed_run
    shown_run = next(item for item in printed if item.out.startswith("\\x1b[2J"))
    assert "[red]x[/red]" in shown_run.out
    assert ":smile:" in shown_run.out
    assert run in shown_run.out


def test_json_keeps_the_text_as_it_is(printed_run: tuple[str, list[Printed]]) -> None:
    _, printed = printed_run
    assert printed[-2].records[0]["goal"] == ALL


def test_columns_count_what_a_terminal_shows() -> None:
    assert columns("日本", 6) == "日本  "
    assert columns("long already", 3) == "long already"


def test_a_line_is_not_broken_when_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Screen().line("word " * 100, indent=4)
    assert capsys.readouterr().out == "    " + "word " * 100 + "\n"


def test_commands_are_quoted_as_a_shell_needs_it() -> None:
    screen = Screen(store=Path("/tmp/a b/$x.db"))  # noqa: S108  a path that is never opened
    assert (
        screen.command("unblock", "r", "verifier:a b") == "checkrein unblock r 'verifier:a b' --store '/tmp/a b/$x.db'"
    )
    assert screen.with_commands("go on with `checkrein extend RUN --steps N`, or end it", "r1") == (
        "go on with `checkrein extend r1 --steps N --store '/tmp/a b/$x.db'`, or end it"
    )
