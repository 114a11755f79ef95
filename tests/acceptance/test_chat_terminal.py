"""A conversation at a terminal: every key does what it says, a person sees what happens, and the terminal is given back as it was."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.terminal import Terminal
from tests.unit.cli.folders import Shell
from tests.unit.cli.models import install_models

ENTER, ALT_ENTER, ESC, CTRL_C, CTRL_D, CTRL_Z = "\r", "\x1b\r", "\x1b", "\x03", "\x04", "\x1a"
WORKING, CANCELLING = "working · Enter steers", "cancelling · what runs has a few seconds"
CANCELLED = "cancelled: what was said and done in this turn is not part of the conversation"
FORBIDDEN = re.compile(r"\x1b\]|\x1bP|\x9b|\u202e|\x1b\[2J|\x07|\x1b\[\?1049")

HELLO = '[[reply]]\ntext = "Hello."\n[[reply]]\ntext = "Again."\n'
CALLING = '[[reply]]\ntext = "Now."\n[[reply.call]]\ntool = "{}"\narguments = {{ seconds = 3600 }}\n' + HELLO
WAITING, BLOCKING = CALLING.format("wait"), CALLING.format("block")

Chat = Callable[..., Terminal]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def at_terminal(shell: Shell) -> Iterator[Chat]:
    """Start commands at terminals of their own, and leave none of them behind."""
    opened: list[Terminal] = []

    def start(*words: str, module: str = "checkrein") -> Terminal:
        opened.append(Terminal(shell, *words, module=module))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


@pytest.fixture
def chat(shell: Shell, at_terminal: Chat) -> Chat:
    """Start `chat` with a script, or with words, and wait until it can be typed into."""

    def start(script: str = "", *words: str) -> Terminal:
        if script:
            words = ("--script", written(shell, script))
        terminal = at_terminal("chat", *words)
        terminal.next("› ")
        return terminal

    return start


def written(shell: Shell, script: str) -> str:
    (shell.home / "script.toml").write_text(script, encoding="utf-8")
    return "script.toml"


def left(terminal: Terminal) -> int:
    """Read to the end, look at what was left behind, and return the exit code."""
    code = terminal.end()
    assert terminal.mode == terminal.mode_before
    assert terminal.text.rindex("\x1b[?2004l") > terminal.text.rindex("\x1b[?2004h")
    assert terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l")
    assert "Traceback" not in terminal.text
    return code


def test_what_is_typed_is_sent_with_enter_and_answered(chat: Chat) -> None:
    terminal = chat(HELLO)
    terminal.type("Hi")
    terminal.next("› Hi")
    terminal.type(ENTER)
    terminal.next("› Hi")
    terminal.next("Hello.")
    terminal.type("and" + ENTER)
    terminal.next("› and")
    terminal.next("Again.")
    terminal.type(CTRL_D)
    assert left(terminal) == 0


def test_keys_are_not_echoed_and_the_mode_is_raw_while_it_runs(chat: Chat) -> None:
    terminal = chat(HELLO)
    assert terminal.mode != terminal.mode_before
    terminal.type("a\x1b[D")
    terminal.next("› a")
    terminal.type(CTRL_D)
    assert left(terminal) == 0
    assert "^[[D" not in terminal.text


def test_enter_steers_and_alt_enter_follows_up_and_both_wait_in_sight(shell: Shell, chat: Chat) -> None:
    site = install_models(shell)
    terminal = chat("", "--model", "held")
    terminal.type("first" + ENTER)
    terminal.next("Thinking about it.")
    terminal.type("later" + ALT_ENTER)
    terminal.next("↳ follow up: later")
    terminal.type("sooner" + ENTER)
    terminal.next("↳ steer: sooner")
    terminal.next(WORKING)
    (site / "request-001").touch()
    terminal.next("✓ clock: ")
    terminal.next("› sooner")
    (site / "request-002").touch()
    terminal.next("Thinking about it. first | sooner")
    terminal.next("› later")
    (site / "request-003").touch()
    terminal.next("Thinking about it. first | sooner | later")
    terminal.type(CTRL_D)
    assert left(terminal) == 0


def test_esc_cancels_and_gives_queued_text_back_into_the_line(chat: Chat) -> None:
    terminal = chat(WAITING)
    terminal.type("go" + ENTER)
    terminal.next("▸ wait")
    terminal.type("sooner" + ENTER + "later" + ALT_ENTER + "typed")
    terminal.next("↳ follow up: later")
    terminal.next("› typed")
    terminal.type(ESC)
    terminal.next(CANCELLED)
    terminal.next("wait: outcome unknown")
    terminal.next("› sooner↵later↵typed")
    terminal.type(ENTER)
    terminal.next("› sooner")
    terminal.next("  later")
    terminal.next("  typed")
    terminal.next("Hello.")
    terminal.type(CTRL_D)
    assert left(terminal) == 0


def test_enter_on_an_empty_line_goes_on_after_a_cancel(chat: Chat) -> None:
    terminal = chat(WAITING)
    terminal.type("go" + ENTER)
    terminal.next("▸ wait")
    terminal.type(ESC)
    terminal.next("Enter on an empty line goes on from here")
    terminal.type(ENTER)
    terminal.next("goes on")
    terminal.next("Hello.")
    terminal.type(ENTER)
    terminal.next("there is nothing to go on from")
    terminal.type(CTRL_D)
    assert left(terminal) == 0


def test_what_is_typed_while_a_run_is_cancelled_is_answered_next(chat: Chat) -> None:
    terminal = chat(BLOCKING)
    terminal.type("go" + ENTER)
    terminal.next("▸ block")
    terminal.type(ESC)
    terminal.next(CANCELLING)
    terminal.type("next" + ENTER)
    terminal.next("↳ steer: next")
    terminal.next(CANCELLED)
    terminal.next("block: outcome unknown")
    terminal.next("› next")
    terminal.next("Hello.")
    terminal.type(CTRL_D)
    assert left(terminal) == 0


def test_ctrl_c_cancels_once_and_leaves_when_nothing_runs(chat: Chat) -> None:
    terminal = chat(WAITING)
    terminal.type("go" + ENTER)
    terminal.next("▸ wait")
    terminal.type(CTRL_C)
    terminal.next(CANCELLED)
    terminal.type("go" + ENTER)
    terminal.next("Hello.")
    terminal.type("half typed" + CTRL_C)
    assert left(terminal) == 0


def test_a_second_ctrl_c_leaves_a_tool_that_cannot_be_cancelled_at_once(chat: Chat) -> None:
    terminal = chat(BLOCKING)
    terminal.type("go" + ENTER)
    terminal.next("▸ block")
    terminal.type(CTRL_C)
    terminal.next(CANCELLING)
    terminal.type(CTRL_C)
    assert left(terminal) == 130
    assert "left at once" in terminal.plain
    assert "outcome unknown" not in terminal.plain


def test_ctrl_d_leaves_although_a_model_never_ends(shell: Shell, chat: Chat) -> None:
    install_models(shell)
    terminal = chat("", "--model", "deaf")
    terminal.type("go" + ENTER)
    terminal.next("I am deaf.")
    terminal.type(CTRL_D)
    terminal.next("leaving · what runs has a few seconds")
    assert left(terminal) == 0
    assert CANCELLED in terminal.plain


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_being_told_to_end_gives_the_terminal_back(chat: Chat, number: signal.Signals) -> None:
    terminal = chat(WAITING)
    terminal.type("go" + ENTER)
    terminal.next("▸ wait")
    terminal.process.send_signal(number)
    assert left(terminal) == 143
    assert CANCELLED in terminal.plain


def test_a_terminal_that_goes_away_ends_it(chat: Chat) -> None:
    terminal = chat(WAITING)
    terminal.type("go" + ENTER)
    terminal.next("▸ wait")
    terminal.hang_up()
    assert terminal.process.wait(30) == 143


def test_an_error_gives_the_terminal_back(shell: Shell, at_terminal: Chat) -> None:
    (shell.home / "broken.py").write_text(
        "import asyncio\n"
        "from pathlib import Path\n"
        "from checkrein.cli.chat_terminal import RawTerminal\n"
        "from checkrein.clock import SystemClock\n\n"
        "async def main():\n"
        "    with RawTerminal(None, SystemClock(), farewell=''):\n"
        "        print('taken', flush=True)\n"
        "        while not Path('go').exists():\n"
        "            await asyncio.sleep(0.01)\n"
        "        raise LookupError('on the way')\n\n"
        "asyncio.run(main())\n",
        encoding="utf-8",
    )
    shell.env["PYTHONPATH"] = str(shell.home)
    terminal = at_terminal(module="broken")
    terminal.next("taken")
    assert terminal.mode != terminal.mode_before
    (shell.home / "go").touch()
    assert terminal.end() == 1
    assert "LookupError: on the way" in terminal.text
    assert terminal.mode == terminal.mode_before


def test_ctrl_backslash_and_ctrl_s_neither_end_nor_freeze_it(chat: Chat) -> None:
    terminal = chat(HELLO)
    terminal.type("\x1c\x13Hi" + ENTER)
    terminal.next("Hello.")
    terminal.type(CTRL_D)
    assert left(terminal) == 0


def test_ctrl_z_and_going_on_leave_it_working(chat: Chat) -> None:
    terminal = chat(HELLO)
    terminal.type(CTRL_Z)  # nobody could tell this process to go on, so the system does not stop it
    terminal.next("› ")
    terminal.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED)
    terminal.process.send_signal(signal.SIGCONT)
    terminal.type("Hi" + ENTER)
    terminal.next("Hello.")
    terminal.type(CTRL_D)
    assert left(terminal) == 0


def test_pasted_lines_are_one_message(chat: Chat) -> None:
    terminal = chat(HELLO)
    terminal.type("\x1b[200~one\ntwo\x1b[31m\x1b[201~")
    terminal.next("› one↵two\\x1b[31m")
    terminal.type(ENTER)
    terminal.next("› one")
    terminal.next("  two\\x1b[31m")
    terminal.next("Hello.")
    terminal.type(CTRL_D)
    assert left(terminal) == 0


def test_the_cursor_stands_where_the_next_character_goes(chat: Chat) -> None:
    terminal = chat(HELLO)
    terminal.type("日本")
    terminal.see("\x1b[7G")
    terminal.type("\x1b[D")
    terminal.see("\x1b[5G")
    terminal.type("\x1b[H")
    terminal.see("\x1b[3G")
    terminal.type(CTRL_D)
    assert left(terminal) == 0


@pytest.mark.parametrize(("columns", "lines"), [("20", "3"), ("40", "10"), ("300", "80")])
def test_every_size_will_do(shell: Shell, chat: Chat, columns: str, lines: str) -> None:
    shell.env |= {"COLUMNS": columns, "LINES": lines}
    terminal = chat(WAITING)
    terminal.type("go" + ENTER)
    terminal.next("▸ wait")
    terminal.type("a long message to steer with, wider than most" + ENTER + ESC)
    terminal.next("cancelled: ")
    terminal.type("\x15" + CTRL_D)
    assert left(terminal) == 0


def test_hostile_text_of_a_model_reaches_no_terminal(shell: Shell, chat: Chat) -> None:
    site = install_models(shell)
    hostile = "a\x1b]52;c;ZXZpbA==\x07b\x1b]8;;http://evil.example\x1b\\c\x9b2Jd\u202ee\x1b[2Jf\rg\x1b[?1049hh"
    (site / "said").write_text(hostile, encoding="utf-8")
    terminal = chat("", "--model", "said")
    terminal.type("\x1b[200~" + hostile + "\x1b[201~" + ENTER)
    terminal.next("h")
    terminal.type(CTRL_D)
    assert left(terminal) == 0
    assert terminal.plain.count("\\x1b]52") >= 2
    assert not FORBIDDEN.search(terminal.text)


def test_a_dumb_terminal_gets_plain_lines(shell: Shell, at_terminal: Chat) -> None:
    shell.env["TERM"] = "dumb"
    terminal = at_terminal("chat", "--script", written(shell, HELLO))
    terminal.type("Hi\n")
    terminal.next("Hello.")
    terminal.type(CTRL_D)
    assert terminal.end() == 0
    assert "\x1b" not in terminal.text
