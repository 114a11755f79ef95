"""`--approve ask` at a terminal: a key answers, each question alone; answers from elsewhere are heeded; whatever ends the prompt changes nothing."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.terminal import Terminal
from tests.unit.cli.folders import BATCH, PULL, Shell, asking_folder, task_folder

FIRST = "May write_file be called?"
KEYS = "y allow · n deny · s skip · q quit"
REVIEWED = BATCH + "\n\ndef hooks(hooks):\n    hooks.on('after_plan', lambda payload: Pause('an expensive plan'))\n"
# The planner fails until somebody makes the file `ready` beside it; the workspace is not part of what is trusted.
FAILING = BATCH.replace(
    "    if last_error:\n        return []\n",
    "    if not (Path(__file__).parent / 'out' / 'ready').exists():\n        raise ValueError('not ready')\n",
).replace("from checkrein", "from pathlib import Path\n\nfrom checkrein", 1)


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
    asks = ("--approve", "ask") if words[0] in {"run", "resume"} else ()
    terminals.append(Terminal(shell, *words, *asks))
    return terminals[-1]


def run_of(shell: Shell) -> str:
    return str(shell.spawn("list", "--json").records[0]["run_id"])


def log_of(shell: Shell) -> list[str]:
    return shell.spawn("events", run_of(shell)).lines


def types_of(shell: Shell) -> list[str]:
    return [str(record["type"]) for record in shell.spawn("events", run_of(shell), "--json").records]


def waits_for_a_key(terminal: Terminal) -> None:
    """Wait until the keys of a question are drawn."""
    terminal.next("q quit")


def test_each_of_several_calls_is_allowed_by_a_key_of_its_own(
    shell: Shell, terminals: list[Terminal], tmp_path: Path
) -> None:
    terminal = opened(terminals, shell, "run", asking_folder(tmp_path / "ask"), "--trust")
    for call in ("1.0", "1.1"):
        terminal.next(FIRST)
        terminal.next(call)
        waits_for_a_key(terminal)
        assert "tool_granted" not in types_of(shell)
        terminal.type("y")
        terminal.next(f"call {call} of write_file is allowed")
    assert terminal.end() == 0
    assert "SUCCEEDED" in terminal.plain
    assert types_of(shell).count("unblocked") == 2


def test_a_denial_may_say_why_and_the_planner_is_told(shell: Shell, terminals: list[Terminal], tmp_path: Path) -> None:
    terminal = opened(terminals, shell, "run", asking_folder(tmp_path / "ask"), "--trust")
    waits_for_a_key(terminal)
    terminal.type("n")
    terminal.next("why not?")
    terminal.type("too dearr\x7f\r")
    terminal.next("call 1.0 of write_file is denied")
    waits_for_a_key(terminal)
    terminal.type("n")
    terminal.next("why not?")
    terminal.type("\r")
    assert terminal.end() == 1
    log = "\n".join(log_of(shell))
    assert "call 1.0 denied: too dear\n" in log
    assert "call 1.1 denied\n" in log
    assert "tool_granted" not in log


def test_escape_leads_back_from_the_reason_and_other_keys_do_nothing(
    shell: Shell, terminals: list[Terminal], tmp_path: Path
) -> None:
    terminal = opened(terminals, shell, "run", asking_folder(tmp_path / "ask"), "--trust")
    waits_for_a_key(terminal)
    terminal.type("x\r\x1b[Ayes \r")
    terminal.type("n")
    terminal.next("why not?")
    terminal.type("because\x1b")
    waits_for_a_key(terminal)
    before = types_of(shell)
    assert before[-2:] == ["blocked", "blocked"]
    terminal.type("y")
    terminal.next("is allowed")
    waits_for_a_key(terminal)
    terminal.type("q")
    assert terminal.end() == 4


def test_what_is_skipped_stays_open_and_is_printed_with_its_commands(
    shell: Shell, terminals: list[Terminal], tmp_path: Path
) -> None:
    terminal = opened(terminals, shell, "run", asking_folder(tmp_path / "ask"), "--trust")
    waits_for_a_key(terminal)
    terminal.type("s")
    terminal.next("1.1")
    waits_for_a_key(terminal)
    terminal.type("y")
    terminal.next("call 1.1 of write_file is allowed")
    assert terminal.end() == 4
    run = run_of(shell)
    assert f"checkrein approve {run} 1.0" in terminal.plain
    assert f"checkrein approve {run} 1.1" not in terminal.plain

    resumed = opened(terminals, shell, "resume", run)
    waits_for_a_key(resumed)
    resumed.type("y")
    assert resumed.end() == 0


@pytest.mark.parametrize("key", ["q", "\x04"])
def test_leaving_changes_nothing(shell: Shell, terminals: list[Terminal], tmp_path: Path, key: str) -> None:
    terminal = opened(terminals, shell, "run", asking_folder(tmp_path / "ask"), "--trust")
    waits_for_a_key(terminal)
    before = types_of(shell)
    terminal.type(key)
    assert terminal.end() == 4
    assert types_of(shell) == before
    assert f"checkrein approve {run_of(shell)} 1.0" in terminal.plain


def test_ctrl_c_at_the_prompt_leaves_the_run_blocked_and_the_terminal_as_it_was(
    shell: Shell, terminals: list[Terminal], tmp_path: Path
) -> None:
    terminal = opened(terminals, shell, "run", asking_folder(tmp_path / "ask"), "--trust")
    waits_for_a_key(terminal)
    before = types_of(shell)
    assert terminal.mode != terminal.mode_before
    terminal.type("\x03")
    assert terminal.end() == 130
    assert types_of(shell) == before
    assert before[-1] == "blocked"
    assert terminal.mode == terminal.mode_before
    assert terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l")
    assert "Traceback" not in terminal.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_being_told_to_end_at_the_prompt_changes_nothing(
    shell: Shell, terminals: list[Terminal], tmp_path: Path, number: signal.Signals
) -> None:
    terminal = opened(terminals, shell, "run", asking_folder(tmp_path / "ask"), "--trust")
    waits_for_a_key(terminal)
    before = types_of(shell)
    terminal.process.send_signal(number)
    assert terminal.end() == 4
    assert types_of(shell) == before
    assert terminal.mode == terminal.mode_before


def test_a_terminal_that_is_closed_changes_nothing(shell: Shell, terminals: list[Terminal], tmp_path: Path) -> None:
    terminal = opened(terminals, shell, "run", asking_folder(tmp_path / "ask"), "--trust")
    waits_for_a_key(terminal)
    before = types_of(shell)
    terminal.hang_up()
    assert terminal.process.wait(30) == 4
    assert types_of(shell) == before


def test_an_answer_from_another_process_ends_the_prompt_and_the_run_goes_on(
    shell: Shell, terminals: list[Terminal], tmp_path: Path
) -> None:
    terminal = opened(terminals, shell, "run", asking_folder(tmp_path / "ask"), "--trust")
    waits_for_a_key(terminal)
    run = run_of(shell)
    assert shell.spawn("steer", run, "that asks nothing").code == 0
    assert shell.spawn("approve", run, "1.0").code == 0
    terminal.next("answered elsewhere")
    terminal.next("1.1")
    waits_for_a_key(terminal)
    assert shell.spawn("deny", run, "1.1", "--reason", "not this one").code == 0
    terminal.next("answered elsewhere")
    assert terminal.end() == 1
    assert types_of(shell).count("unblocked") == 2
    assert "denied: not this one" in "\n".join(log_of(shell))


def test_a_reason_that_is_being_typed_goes_away_when_the_call_is_answered_elsewhere(
    shell: Shell, terminals: list[Terminal], tmp_path: Path
) -> None:
    terminal = opened(terminals, shell, "run", asking_folder(tmp_path / "ask"), "--trust")
    waits_for_a_key(terminal)
    terminal.type("n")
    terminal.next("why not?")
    terminal.type("becau")
    assert shell.spawn("approve", run_of(shell), "1.0").code == 0
    terminal.next("answered elsewhere")
    waits_for_a_key(terminal)
    terminal.type("y")
    terminal.next("call 1.1 of write_file is allowed")
    assert terminal.end() == 0


def test_of_two_terminals_that_ask_one_answers_and_both_see_the_end(
    shell: Shell, terminals: list[Terminal], tmp_path: Path
) -> None:
    first = opened(terminals, shell, "run", asking_folder(tmp_path / "ask"), "--trust")
    waits_for_a_key(first)
    second = opened(terminals, shell, "resume", run_of(shell))
    for call in ("1.0", "1.1"):
        second.next(call)
        waits_for_a_key(second)
        second.type("y")
        second.next("is allowed")
        first.next("answered elsewhere")
    assert second.end() == 0
    assert first.end() == 0
    types = types_of(shell)
    assert (types.count("unblocked"), types.count("tool_granted")) == (2, 2)


def test_closing_the_run_elsewhere_ends_the_prompt(shell: Shell, terminals: list[Terminal], tmp_path: Path) -> None:
    terminal = opened(terminals, shell, "run", asking_folder(tmp_path / "ask"), "--trust")
    waits_for_a_key(terminal)
    assert shell.spawn("cancel", run_of(shell)).code == 0
    assert terminal.end() == 1
    assert "FAILED (cancelled)" in terminal.plain


def test_the_whole_call_is_shown_and_nothing_of_it_commands_the_terminal(
    shell: Shell, terminals: list[Terminal], tmp_path: Path
) -> None:
    plan = BATCH.replace('"content": "x"', '"content": "y" * 4_000 + "\\x1b[2J\\x07\\u202e the end"')
    terminal = opened(terminals, shell, "run", asking_folder(tmp_path / "ask", plan=plan), "--trust")
    waits_for_a_key(terminal)
    shown = "".join(terminal.plain.partition(FIRST)[2].split())
    assert "y" * 4_000 in shown
    assert "theend" in shown
    assert "note.txt" in shown
    for forbidden in ("\x1b[2J", "\x07", "\u202e"):
        assert forbidden not in terminal.text
    terminal.type("q")
    assert terminal.end() == 4


def test_a_budget_is_extended_by_what_is_typed(shell: Shell, terminals: list[Terminal], tmp_path: Path) -> None:
    terminal = opened(terminals, shell, "run", task_folder(tmp_path / "poor", tool_calls=1), "--trust")
    terminal.next("1 of 1 tool calls")
    terminal.next("e extend · q quit")
    terminal.type("e")
    terminal.next("how many more tool calls? [1]")
    terminal.type("some\r")
    terminal.next("a whole number, please")
    terminal.type("\x150\r")
    terminal.next("more than 0, please")
    terminal.type("\x154\r")
    terminal.next("4 tool calls more")
    assert terminal.end() == 0
    assert "2 of 5 tool calls" in terminal.plain


def test_a_budget_that_is_not_extended_exits_5(shell: Shell, terminals: list[Terminal], tmp_path: Path) -> None:
    terminal = opened(terminals, shell, "run", task_folder(tmp_path / "poor", tool_calls=1), "--trust")
    waits_for_a_key(terminal)
    terminal.type("q")
    assert terminal.end() == 5


def test_the_result_of_a_call_without_a_tool_is_typed_as_json(
    shell: Shell, terminals: list[Terminal], tmp_path: Path
) -> None:
    terminal = opened(terminals, shell, "run", task_folder(tmp_path / "pull", plan=PULL), "--trust")
    terminal.next("What did look_up return?")
    waits_for_a_key(terminal)
    assert '"price"' in terminal.plain
    terminal.type("r")
    terminal.next("result as JSON:")
    terminal.type('{"price": 3\r')
    terminal.next("no JSON")
    terminal.type("}\r")
    terminal.next("call 1.0 of look_up has its result")
    assert terminal.end() == 0
    assert 'call 1.0 done: {"price":3}' in "\n".join(log_of(shell))


def test_a_call_without_a_tool_may_have_failed(shell: Shell, terminals: list[Terminal], tmp_path: Path) -> None:
    terminal = opened(terminals, shell, "run", task_folder(tmp_path / "pull", plan=PULL), "--trust")
    waits_for_a_key(terminal)
    terminal.type("f")
    terminal.next("why did it fail?")
    terminal.type("\r")
    terminal.next("say why")
    terminal.type("nobody knows\r")
    terminal.next("call 1.0 of look_up has failed")
    assert terminal.end() == 1


def test_a_review_shows_the_plan_it_is_about(shell: Shell, terminals: list[Terminal], tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "review", plan=REVIEWED, extra='hooks = "plan.py:hooks"')
    terminal = opened(terminals, shell, "run", folder, "--trust")
    terminal.next("may it go on?")
    terminal.next("Write copy (write_file)")
    terminal.next("an expensive plan")
    waits_for_a_key(terminal)
    terminal.type("y")
    terminal.next("turn:1 is allowed")
    assert terminal.end() == 0


def test_a_planner_that_failed_is_asked_again(shell: Shell, terminals: list[Terminal], tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "fail", plan=FAILING)
    terminal = opened(terminals, shell, "run", folder, "--trust")
    terminal.next("The planner failed. Ask it again?")
    terminal.next("not ready")
    terminal.next("y ask it again · s skip · q quit")
    (folder / "out" / "ready").touch()
    terminal.type("y")
    terminal.next("the planner is asked again")
    assert terminal.end() == 0


@pytest.mark.parametrize("words", [("run",), ("run", "--json"), ("resume",), ("resume", "--json")])
def test_without_a_terminal_it_says_how_to_answer_and_exits_4(
    shell: Shell, tmp_path: Path, words: tuple[str, ...]
) -> None:
    folder = asking_folder(tmp_path / "ask")
    printed = shell.spawn("run", folder, "--trust", "--approve", "ask", *words[1:])
    if words[0] == "resume":
        printed = shell.spawn("resume", run_of(shell), "--approve", "ask", *words[1:])
    assert printed.code == 4
    assert "there is no terminal to ask at" in printed.out + printed.err
    said = printed.err if "--json" in words else printed.out
    run = run_of(shell)
    for command in ("approve", "deny"):
        assert f"checkrein {command} {run} 1.0" in said
    assert types_of(shell)[-1] == "blocked"


def test_a_dumb_terminal_is_no_place_to_ask(shell: Shell, terminals: list[Terminal], tmp_path: Path) -> None:
    shell.env["TERM"] = "dumb"
    terminal = opened(terminals, shell, "run", asking_folder(tmp_path / "ask"), "--trust")
    assert terminal.end() == 4
    assert "there is no terminal to ask at" in terminal.text
    assert "\x1b" not in terminal.text


@pytest.mark.parametrize("whose", ["one run's", "all"])
def test_ctrl_c_ends_waiting_for_a_pull(shell: Shell, terminals: list[Terminal], tmp_path: Path, whose: str) -> None:
    shell.spawn("run", task_folder(tmp_path / "pull", plan=PULL), "--trust")
    run = run_of(shell)
    assert shell.spawn("answer", run, "3").code == 0
    terminal = opened(terminals, shell, "pull", *([] if whose == "all" else [run]), "--wait")
    terminal.see("nothing is asked yet")
    terminal.type("\x03")
    assert terminal.end() == 130
    assert "Traceback" not in terminal.text
    assert "{" not in terminal.text
