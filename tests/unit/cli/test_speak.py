"""`steer`, `cancel`, `unblock`, `extend`, and `resume` of a run whose code changed: what was said is in the log, and the next command is printed."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from tests.unit.cli.folders import WRITE, Printed, task_folder

Checkrein = Callable[..., Printed]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return task_folder(tmp_path / "poor", tool_calls=1)


@pytest.fixture
def run(checkrein: Checkrein, folder: Path) -> str:
    return str(checkrein("run", folder, "--trust", "--json").records[-1]["run_id"])


def last_event(checkrein: Checkrein, run: str) -> dict[str, object]:
    return checkrein("events", run, "--json").records[-1]


def test_steering_is_stored_under_who_said_it(checkrein: Checkrein, run: str) -> None:
    printed = checkrein("steer", run, "mind the year 2013")
    assert (printed.code, printed.lines[0]) == (
        0,
        f"✓ the run will read it at its next planning · BLOCKED · run {run}",
    )
    event = last_event(checkrein, run)
    assert (event["type"], event["epoch"]) == ("steer_queued", None)
    assert isinstance(event["data"], dict)
    assert event["data"]["text"] == "mind the year 2013"


def test_a_follow_up_is_another_event(checkrein: Checkrein, run: str) -> None:
    assert checkrein("steer", run, "and a summary", "--follow-up").code == 0
    assert last_event(checkrein, run)["type"] == "follow_up_queued"


def test_the_same_request_id_says_it_once(checkrein: Checkrein, run: str) -> None:
    for _ in range(2):
        assert checkrein("steer", run, "once", "--request-id", "r1").code == 0
    types = [event["type"] for event in checkrein("events", run, "--json").records]
    assert types.count("steer_queued") == 1


def test_saying_nothing_is_usage(checkrein: Checkrein, run: str) -> None:
    assert checkrein("steer", run, "  ").code == 2
    assert checkrein("extend", run).code == 2
    assert checkrein("extend", run, "--tool-calls", "-3").code == 2


def test_cancel_ends_a_run_without_open_calls_and_says_what_happened(checkrein: Checkrein, run: str) -> None:
    printed = checkrein("cancel", run, "--reason", "not needed any more")
    assert (printed.code, printed.lines) == (0, [f"✓ cancelled · FAILED · run {run}", f"next: checkrein show {run}"])
    shown = checkrein("show", run)
    assert shown.code == 1
    assert "cancelled: not needed any more" in shown.lines
    assert "what did happen: 1 × write_file" in shown.lines


@pytest.mark.parametrize("words", [("steer", "x"), ("cancel",), ("extend", "--steps", "1"), ("unblock", "x")])
def test_nothing_can_be_said_to_a_run_that_ended(checkrein: Checkrein, run: str, words: tuple[str, ...]) -> None:
    checkrein("cancel", run)
    printed = checkrein(words[0], run, *words[1:])
    assert printed.code == 3
    assert "nothing may follow" in printed.err
    assert len(printed.err.splitlines()) == 1


def test_resuming_a_run_that_ended_prints_its_end_line_and_exits_by_it(checkrein: Checkrein, run: str) -> None:
    checkrein("cancel", run)
    printed = checkrein("resume", run)
    assert printed.code == 1
    assert f"FAILED (cancelled) · 0/1 checks · 1 of 1 tool calls · run {run}" in printed.lines


def test_resuming_a_run_that_waits_for_a_person_appends_nothing(checkrein: Checkrein, run: str) -> None:
    before = checkrein("events", run, "--json").records
    assert checkrein("resume", run).code == 5
    assert checkrein("events", run, "--json").records == before


def test_closing_ends_a_blocked_run(checkrein: Checkrein, run: str) -> None:
    assert checkrein("unblock", run, "budget:steps", "--close", "enough").code == 2
    printed = checkrein("unblock", run, "budget:tool_calls", "--close", "enough")
    assert (printed.code, printed.lines[0]) == (0, f"✓ closed · FAILED · run {run}")
    assert "FAILED (closed)" in checkrein("show", run).out


@pytest.mark.parametrize(
    "words",
    [
        ("--answer", "allow", "--close", "x"),
        ("--answer", "allow", "--outcome", "done"),
        ("--result", "1"),
        ("--outcome", "failed", "--result", "1"),
        ("--outcome", "done", "--result", "{"),
        ("--outcome", "perhaps"),
    ],
)
def test_answers_that_contradict_each_other_are_usage(checkrein: Checkrein, run: str, words: tuple[str, ...]) -> None:
    assert checkrein("unblock", run, "budget:tool_calls", *words).code == 2


def test_a_limit_that_is_still_used_up_cannot_be_unblocked(checkrein: Checkrein, run: str) -> None:
    printed = checkrein("unblock", run, "budget:tool_calls")
    assert printed.code == 3
    assert "extend it" in printed.err


def test_every_limit_has_its_option(checkrein: Checkrein, run: str) -> None:
    words = "--turns 1 --tool-calls 2 --wall-seconds 1.5 --tokens 3 --cost 0.5 --steps 4 --replans 5 --repairs 6"
    printed = checkrein("extend", run, *words.split(), "--json")
    budget = cast("dict[str, dict[str, object]]", printed.records[0]["budget"])
    assert {name: figures["limit"] for name, figures in budget.items()} == {
        "turns": 65, "tool_calls": 3, "wall_seconds": 3601.5, "tokens": None, "cost": None, "steps": 260, "replans": 21, "repairs": 6,
    }  # fmt: skip


def test_a_denied_call_is_an_error_that_the_planner_sees(checkrein: Checkrein, tmp_path: Path) -> None:
    plan = WRITE.replace(
        "def plan(goal, history, last_error):",
        "def plan(goal, history, last_error):\n    if last_error:\n        return []",
    )
    policy = "\n\ndef policy(tool, arguments):\n    return 'ask'\n"
    asking = task_folder(tmp_path / "ask", plan=plan + policy, extra='policy = "plan.py:policy"')
    run = str(checkrein("run", asking, "--trust", "--json").records[-1]["run_id"])
    assert checkrein("unblock", run, "permission:1.0", "--answer", "perhaps").code == 3
    assert checkrein("unblock", run, "permission:1.0", "--answer", '{"deny": "too early"}').code == 0
    printed = checkrein("resume", run)
    assert printed.code == 1
    assert "denied: too early" in printed.out
    assert "FAILED (gave_up)" in printed.out


def test_changed_code_exits_3_appends_nothing_and_prints_both_hashes(
    checkrein: Checkrein, run: str, folder: Path
) -> None:
    checkrein("extend", run, "--tool-calls", "1")
    before = checkrein("events", run, "--json").records
    old = str(checkrein("trust", folder, "--json").records[0]["code_hash"])
    (folder / "plan.py").write_text("raise SystemExit('imported')\n" + WRITE)
    printed = checkrein("resume", run)
    assert printed.code == 3
    new = str(checkrein("trust", folder, "--json").records[0]["code_hash"])
    assert old in printed.err
    assert new in printed.err
    assert f"checkrein resume {run} --trust" in printed.err
    assert checkrein("resume", run).code == 3
    assert checkrein("events", run, "--json").records == before


def test_changed_code_that_is_trusted_goes_on(checkrein: Checkrein, run: str, folder: Path) -> None:
    checkrein("extend", run, "--tool-calls", "1")
    (folder / "plan.py").write_text(WRITE + "\n")
    printed = checkrein("resume", run, "--trust")
    assert printed.code == 0
    types = [event["type"] for event in checkrein("events", run, "--json").records]
    assert types.count("code_accepted") == 1


def test_a_request_id_of_a_run_with_other_code_is_refused(checkrein: Checkrein, folder: Path) -> None:
    checkrein("run", folder, "--trust", "--request-id", "r")
    (folder / "plan.py").write_text(WRITE + "\n")
    printed = checkrein("run", folder, "--trust", "--request-id", "r")
    assert printed.code == 3
    assert "--trust" in printed.err


def test_a_task_that_moved_is_named(checkrein: Checkrein, run: str, folder: Path, tmp_path: Path) -> None:
    checkrein("extend", run, "--tool-calls", "1")
    moved = folder.rename(tmp_path / "moved")
    missing = checkrein("resume", run)
    assert missing.code == 2
    assert "--task PATH" in missing.err
    other = task_folder(tmp_path / "other")
    assert checkrein("resume", run, "--task", other, "--trust").code == 3
    assert checkrein("resume", run, "--task", moved).code == 0
