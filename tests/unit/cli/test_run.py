"""`run`, and how runs end: every phase has its exit code, its line and its JSON."""

from collections.abc import Callable
from pathlib import Path

import pytest

from checkrein.cli.endings import commands_for
from checkrein.cli.screen import Screen
from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import Blocked, Cause
from tests.unit.cli.folders import WRITE, Printed, Shell, keys, task_folder
from tests.unit.kernel.story import running

Checkrein = Callable[..., Printed]

ASK = """
def policy(tool, arguments):
    return "ask"
"""
FORGET = """\
from checkrein import Step


def plan(goal, history, last_error):
    return [Step(id=1, description="Do nothing", tool_name=None)]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return task_folder(tmp_path / "note")


def run_id_of(printed: Printed) -> str:
    return next(line.rpartition(" ")[2] for line in printed.lines if " · run " in line)


def test_a_run_that_proves_everything_exits_0_and_says_what_it_cost(checkrein: Checkrein, folder: Path) -> None:
    printed = checkrein("run", folder, "--trust")
    run = run_id_of(printed)
    assert printed.code == 0
    assert printed.lines[-3:] == [
        f"SUCCEEDED · 1/1 checks · 2 of 10 tool calls · run {run}",
        f"results: {folder / 'out' / run}",
        f"next: checkrein show {run}",
    ]
    assert "✓ 1/2 Write 1 (write_file)" in printed.lines
    assert (folder / "out" / run / "note.txt").read_text() == "xx"
    assert printed.err == ""


def test_a_task_file_and_its_folder_are_the_same_task(checkrein: Checkrein, folder: Path) -> None:
    assert checkrein("run", folder, "--trust").code == 0
    assert checkrein("run", folder / "task.toml").code == 0


def test_a_run_whose_check_fails_exits_1_and_says_which_and_why(checkrein: Checkrein, tmp_path: Path) -> None:
    printed = checkrein("run", task_folder(tmp_path / "forget", plan=FORGET), "--trust")
    run = run_id_of(printed)
    assert printed.code == 1
    assert printed.lines[-2] == f"FAILED (check_failed) · 0/1 checks · 0 of 10 tool calls · run {run}"
    failed = next(index for index, line in enumerate(printed.lines) if line.startswith("✗"))
    assert "note.txt" in printed.lines[failed]
    assert printed.lines[failed + 1] == "  no finished tool call of this run named note.txt as its artifact"


def test_a_run_that_needs_permission_exits_4_and_its_commands_bring_it_to_its_end(
    checkrein: Checkrein, tmp_path: Path
) -> None:
    asking = task_folder(tmp_path / "ask", plan=WRITE + ASK, extra='policy = "plan.py:policy"')
    blocked = checkrein("run", asking, "--trust")
    run = run_id_of(blocked)
    assert blocked.code == 4
    allow = f"checkrein approve {run} 1.0"
    assert allow in [line.strip() for line in blocked.lines]
    answered = checkrein(*allow.split()[1:])
    assert answered.code == 0
    assert answered.lines[-1] == f"next: checkrein resume {run}"
    again = checkrein("resume", run)
    assert (again.code, "permission:1.1" in again.out) == (4, True)
    checkrein("unblock", run, "permission:1.1", "--answer", "allow")
    assert checkrein("resume", run).code == 0


def test_a_person_who_is_asked_sees_the_whole_call(checkrein: Checkrein, tmp_path: Path) -> None:
    plan = WRITE.replace('"x" * number', '"x" * 9_000 + "and then \\x1b[2J the end"') + ASK
    folder = task_folder(tmp_path / "asking", plan=plan, extra='policy = "plan.py:policy"')
    printed = checkrein("run", folder, "--trust")
    assert printed.code == 4
    asked = f'{{"content":"{"x" * 9_000}and then \\u001b[2J the end","path":"note.txt"}}'
    assert f"may write_file be called with {asked}?" in printed.out


def test_what_the_environment_holds_is_nowhere_in_what_is_kept(
    checkrein: Checkrein, folder: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-never-to-be-kept")
    printed = checkrein("run", folder, "--trust", "--json")
    assert printed.code == 0
    kept = [
        path.read_bytes() for place in (shell.home / "state", folder) for path in place.rglob("*") if path.is_file()
    ]
    assert kept
    assert not any(b"sk-never-to-be-kept" in content for content in (*kept, printed.out.encode()))


def test_a_run_without_budget_exits_5_and_goes_on_when_it_is_extended(checkrein: Checkrein, tmp_path: Path) -> None:
    blocked = checkrein("run", task_folder(tmp_path / "poor", tool_calls=1), "--trust")
    run = run_id_of(blocked)
    assert blocked.code == 5
    extend = f"checkrein extend {run} --tool-calls 1"
    assert extend in [line.strip() for line in blocked.lines]
    again = checkrein("resume", run)
    assert (again.code, extend in again.out) == (5, True)
    assert checkrein(*extend.split()[1:]).code == 0
    done = checkrein("resume", run)
    assert done.code == 0
    assert done.lines[-3].startswith("SUCCEEDED · 1/1 checks · 2 of 2 tool calls")


def test_the_same_request_id_is_the_same_run(checkrein: Checkrein, folder: Path) -> None:
    first = checkrein("run", folder, "--trust", "--request-id", "monday")
    second = checkrein("run", folder, "--request-id", "monday")
    assert (first.code, second.code) == (0, 0)
    assert run_id_of(first) == run_id_of(second)
    assert second.lines[0].startswith("SUCCEEDED")
    assert len(checkrein("list", "--json").records) == 1


def test_json_prints_every_event_then_how_it_ended(checkrein: Checkrein, folder: Path) -> None:
    printed = checkrein("run", folder, "--trust", "--json")
    *events, end = printed.records
    assert [event["offset"] for event in events] == list(range(len(events)))
    assert {"offset", "type", "at", "run_id", "epoch", "data"} == keys(events[1])
    assert all(("phase" in event) is ("." not in str(event["type"])) for event in events)
    assert events[0]["phase"] == "RECEIVED"
    assert events[-1]["phase"] == "SUCCEEDED"
    assert keys(end) == {"run_id", "phase", "code", "checks", "budget"}
    assert (end["phase"], end["code"]) == ("SUCCEEDED", "goal_met")
    assert printed.err.startswith("trusted ")


def test_json_of_a_blocked_run_has_no_code(checkrein: Checkrein, tmp_path: Path) -> None:
    printed = checkrein("run", task_folder(tmp_path / "poor", tool_calls=1), "--trust", "--json")
    assert (printed.code, printed.records[-1]["phase"], printed.records[-1]["code"]) == (5, "BLOCKED", None)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[task]\nname = 'x'\n", "task.planner"),
        ("no toml", "line 1"),
        ("[task]\nnmae = 'x'\n", "name"),
    ],
)
def test_an_invalid_task_exits_2_and_names_the_key(checkrein: Checkrein, tmp_path: Path, text: str, key: str) -> None:
    (tmp_path / "task.toml").write_text(text)
    printed = checkrein("run", tmp_path / "task.toml", "--trust")
    assert (printed.code, printed.out) == (2, "")
    assert key in printed.err
    assert len(printed.err.splitlines()) <= 2


def test_a_task_that_misspells_a_tool_is_told_the_nearest(checkrein: Checkrein, tmp_path: Path) -> None:
    printed = checkrein("run", task_folder(tmp_path / "x", tools=("wirte_file",)), "--trust")
    assert printed.code == 2
    assert "did you mean 'write_file'?" in printed.err


def test_a_task_that_misspells_a_kind_of_check_is_told_the_nearest(checkrein: Checkrein, folder: Path) -> None:
    task = folder / "task.toml"
    task.write_text(task.read_text().replace('kind = "file"', 'kind = "flie"'))
    printed = checkrein("run", folder, "--trust")
    assert printed.code == 2
    assert "did you mean 'file'?" in printed.err


def test_a_task_that_needs_a_missing_extra_is_told_how_to_install_it(checkrein: Checkrein, folder: Path) -> None:
    (folder / "plan.py").write_text("import psycopg_pool\n")
    printed = checkrein("run", folder, "--trust")
    assert printed.code == 2
    assert "pip install 'checkrein[postgres]'" in printed.err
    assert checkrein("list", "--json").records == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import no_such_module\n", "no_such_module"),
        ("def plan(:\n", "SyntaxError"),
        ("\n1 / 0\n", "ZeroDivisionError: division by zero (plan.py, line 2)"),
        ("raise SystemExit(0)\n", "SystemExit"),
        ("plan = 3\n", "cannot be called"),
        ("other = 3\n", "plan.py has no 'plan'"),
        ("import helpers\n", "from . import helpers"),
    ],
)
def test_code_that_cannot_be_used_exits_2_without_a_traceback(
    checkrein: Checkrein, folder: Path, code: str, said: str
) -> None:
    (folder / "helpers.py").write_text("")
    (folder / "plan.py").write_text(code)
    printed = checkrein("run", folder, "--trust")
    assert printed.code == 2
    assert said in printed.err
    assert "Traceback" not in printed.err


def test_a_workspace_that_cannot_be_made_leaves_a_run_that_goes_on_when_it_can(
    checkrein: Checkrein, folder: Path
) -> None:
    (folder / "out").write_text("in the way")
    printed = checkrein("run", folder, "--trust")
    assert printed.code == 3
    run = run_id_of(printed)
    assert f"{folder / 'out'}" in printed.err
    assert f"then: checkrein resume {run}" in printed.err
    (folder / "out").unlink()
    assert checkrein("resume", run).code == 0


def test_each_message_leads_from_a_planner_that_fails_to_a_run_that_succeeds(
    checkrein: Checkrein, folder: Path
) -> None:
    right = (folder / "plan.py").read_text()
    (folder / "plan.py").write_text("def plan(goal, history, last_error):\n    raise ValueError('no idea')\n")
    printed = checkrein("run", folder, "--trust")
    run = run_id_of(printed)
    ask_again = f"checkrein approve {run} planner:1"
    assert printed.code == 4
    assert "turn 1 failed: ValueError: no idea (plan.py, line 2)" in printed.lines
    assert f"      {ask_again}" in printed.lines
    assert (
        sum("no idea" in line for line in printed.lines if "waits" not in line) == 2
    )  # said when it happened, and where it is answered
    (folder / "plan.py").write_text(right)
    assert checkrein(*ask_again.split()[1:]).lines[-1] == f"next: checkrein resume {run}"
    refused = checkrein("resume", run)
    assert refused.code == 3
    assert f"checkrein resume {run} --trust" in refused.err
    assert checkrein("resume", run, "--trust").code == 0


@pytest.mark.parametrize(("allowed", "used", "more"), [(0.3, 0.2, "1"), (1.0, 60.0, "60"), (120.0, 121.0, "120")])
def test_the_printed_extension_is_enough_for_a_run_that_overdrew_its_time(
    allowed: float, used: float, more: str
) -> None:
    limit = "wall_seconds"
    story = running(Budget(wall_seconds=allowed))
    story.worker(Blocked(Cause(f"budget:{limit}", "budget", "", limit)), elapsed=used)
    command, _ = commands_for(Screen(), story.state, story.state.causes[0])
    assert command == f"checkrein extend run --wall-seconds {more}"
    assert not story.state.budget.extended(Amounts(wall_seconds=float(more))).is_reached(limit)


def test_a_store_that_is_named_stands_in_every_command_that_is_printed(
    checkrein: Checkrein, folder: Path, tmp_path: Path
) -> None:
    store = tmp_path / "a b.db"
    printed = checkrein("run", folder, "--trust", "--store", store)
    assert printed.lines[-1].endswith(f"--store '{store}'")
    assert checkrein("list").out.startswith("no runs yet")


def test_the_store_of_the_environment_is_the_default(
    checkrein: Checkrein, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHECKREIN_STORE", str(tmp_path / "env.db"))
    printed = checkrein("run", folder, "--trust")
    assert printed.lines[-1] == f"next: checkrein show {run_id_of(printed)}"
    assert (tmp_path / "env.db").exists()
