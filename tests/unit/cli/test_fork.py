"""`fork`: where a run can be forked, what is said of it, and how the new run goes on."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.example_tasks import EXAMPLES
from tests.unit.cli.folders import POLICY, WRITE, Printed, keys, task_folder

Checkrein = Callable[..., Printed]

# What the run does after a message, or with other code, shows in the note it leaves.
TELLING = """\
from checkrein import Plan, Step

FIRST = "first"


def plan(goal, history, last_error):
    notes = " ".join(item.text for item in history if hasattr(item, "text"))
    done = sum(hasattr(item, "step") for item in history)
    if not done:
        return Plan([write(1, FIRST)], final=False)
    return [write(2, f"{FIRST} second {notes}".strip())]


def write(number, text):
    return Step(id=number, description=f"Write {number}", tool_name="write_file", arguments={"path": "note.txt", "content": text})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return task_folder(tmp_path / "note", plan=TELLING)


@pytest.fixture
def run(checkrein: Checkrein, folder: Path) -> str:
    """A run that ended."""
    printed = checkrein("run", folder, "--trust", "--json")
    assert printed.code == 0
    return str(printed.records[-1]["run_id"])


def fork_of(printed: Printed) -> str:
    """The id of the run that a fork's end line names."""
    return next(line.rpartition(" ")[2] for line in reversed(printed.lines) if " · run " in line)


def places(checkrein: Checkrein, run: str, kind: str) -> list[int]:
    """The offsets after events of a type at which a run can be forked."""
    return [int(str(item["at"])) for item in checkrein("fork", run, "--json").records if item["type"] == kind]


def note(folder: Path, run: str) -> str:
    """What a run wrote."""
    return (folder / "out" / run / "note.txt").read_text()


def test_without_an_offset_it_is_listed_where_a_run_can_be_forked(checkrein: Checkrein, run: str) -> None:
    records = checkrein("fork", run, "--json").records
    assert all(keys(record) == {"at", "phase", "type", "text"} for record in records)
    assert [(item["at"], item["phase"], item["type"]) for item in records[:2]] == [
        (2, "RECEIVED", "session.start"),
        (3, "RECEIVED", "lease_taken"),
    ]
    printed = checkrein("fork", run)
    assert printed.code == 0
    assert len(printed.lines) == len(records) + 1
    for record, line in zip(records, printed.lines, strict=False):
        assert line.split()[:2] == [str(record["at"]), record["phase"]]
        assert line.endswith(str(record["text"]))
    assert printed.lines[-1] == f"next: checkrein fork {run} --at {records[-1]['at']}"


def test_a_fork_goes_on_from_its_cut_and_says_what_it_is_made_of(checkrein: Checkrein, folder: Path, run: str) -> None:
    before = checkrein("events", run).out
    at = places(checkrein, run, "step.end")[0]
    printed = checkrein("fork", run, "--at", at, "--message", "and third")
    fork = fork_of(printed)
    assert printed.code == 0
    assert printed.lines[:3] == [
        f"forked from {run} at {at}: {at} events kept, 1 call not made again",
        f"run {run} did this afterwards, and the fork may do it again:",
        "  2.0  write_file  done",
    ]
    assert printed.lines[-3:] == [
        f"SUCCEEDED · 1/1 checks · 2 of 10 tool calls · run {fork}",
        f"results: {folder / 'out' / fork}",
        f"next: checkrein show {fork}",
    ]
    assert (note(folder, fork), note(folder, run)) == ("first second and third", "first second")
    assert checkrein("events", run).out == before
    assert checkrein("replay", fork).code == 0
    assert checkrein("verify", fork, run).code == 0


def test_a_fork_is_shown_with_where_it_comes_from(checkrein: Checkrein, run: str) -> None:
    fork = fork_of(checkrein("fork", run, "--at", 3))
    shown = checkrein("show", fork).lines
    assert f"  forked from  run {run} at 3" in shown
    assert not any("forked from" in line for line in checkrein("show", run).lines)
    assert f"a fork of run {run}, whose first 3 events these are" in checkrein("events", fork).lines[0]


def test_an_offset_inside_of_an_append_is_refused_with_the_nearest_ones(checkrein: Checkrein, run: str) -> None:
    printed = checkrein("fork", run, "--at", 4)
    assert (printed.code, printed.out) == (3, "")
    assert f"run {run} cannot be forked: at 4, turn.start and turn_granted were recorded together" in printed.err
    assert "the nearest place where it can be forked is at 3 or 5" in printed.err
    assert len(checkrein("list", "--json").records) == 1


def test_an_artifact_that_was_changed_since_is_named_and_made_again(
    checkrein: Checkrein, folder: Path, run: str
) -> None:
    at = places(checkrein, run, "step.end")[0]
    printed = checkrein("fork", run, "--at", at)
    assert "note.txt was not copied: its bytes are not those that were recorded any more" in printed.lines
    (folder / "out" / run / "note.txt").write_text("changed")
    at = places(checkrein, run, "work_done")[0]
    printed = checkrein("fork", run, "--at", at)
    assert printed.code == 1
    assert "note.txt was not copied: its bytes are not those that were recorded any more" in printed.lines
    assert any("note.txt is gone since the tool call recorded it" in line for line in printed.lines)


def test_a_message_that_comes_after_the_work_is_said_to_be_read_only_if_a_check_fails(
    checkrein: Checkrein, run: str
) -> None:
    at = places(checkrein, run, "work_done")[0]
    text = "the work was done at this offset: the message is read only if a check fails"
    assert text in checkrein("fork", run, "--at", at, "--message", "more").lines
    assert text not in checkrein("fork", run, "--at", at).lines


def test_code_that_was_changed_since_must_be_accepted(checkrein: Checkrein, folder: Path, run: str) -> None:
    (folder / "plan.py").write_text(TELLING.replace('FIRST = "first"', 'FIRST = "other"'))
    at = places(checkrein, run, "step.end")[0]
    printed = checkrein("fork", run, "--at", at, "--message", "x y")
    assert (printed.code, printed.out) == (3, "")
    assert f"checkrein fork {run} --at {at} --message 'x y' --trust" in printed.err
    assert len(checkrein("list", "--json").records) == 1
    printed = checkrein("fork", run, "--at", at, "--trust")
    fork = fork_of(printed)
    assert printed.code == 0
    assert note(folder, fork) == "other second"
    assert any("other code accepted" in line for line in checkrein("events", fork).lines)
    # What was accepted for the fork is its code from now on.
    assert checkrein("fork", fork, "--at", at).code == 0


def test_another_task_folder_is_trusted_like_any_other(checkrein: Checkrein, tmp_path: Path, run: str) -> None:
    other = task_folder(tmp_path / "other" / "note", plan=TELLING.replace('FIRST = "first"', 'FIRST = "other"'))
    printed = checkrein("fork", run, "--at", 3, "--task", other)
    assert (printed.code, printed.out) == (3, "")
    assert f"checkrein fork {run} --at 3 --task {other} --trust" in printed.err
    assert checkrein("trust", other).code == 0
    printed = checkrein("fork", run, "--at", 3, "--task", other)
    assert printed.code == 0
    assert note(other, fork_of(printed)) == "other second"


def test_a_task_of_another_name_is_refused(checkrein: Checkrein, tmp_path: Path, run: str) -> None:
    printed = checkrein("fork", run, "--at", 3, "--task", task_folder(tmp_path / "else", plan=WRITE), "--trust")
    assert printed.code == 3
    assert f"run {run} cannot be forked: it is of task 'note'" in printed.err


def test_a_task_that_is_gone_must_be_named(checkrein: Checkrein, folder: Path, tmp_path: Path, run: str) -> None:
    folder.rename(tmp_path / "moved")
    printed = checkrein("fork", run, "--at", 3)
    assert printed.code == 2
    assert "--task PATH" in printed.err
    assert checkrein("fork", run, "--at", 3, "--task", tmp_path / "moved").code == 0


@pytest.mark.parametrize("words", [("--message", "x"), ("--trust",), ("--request-id", "a")])
def test_what_is_to_be_different_needs_an_offset(checkrein: Checkrein, run: str, words: tuple[str, ...]) -> None:
    printed = checkrein("fork", run, *words)
    assert (printed.code, printed.out) == (2, "")
    assert "--at" in printed.err


def test_the_same_request_id_gives_the_same_fork(checkrein: Checkrein, run: str) -> None:
    first = checkrein("fork", run, "--at", 3, "--request-id", "once")
    again = checkrein("fork", run, "--at", 3, "--request-id", "once")
    assert fork_of(again) == fork_of(first)
    assert again.code == 0
    assert again.lines[0].endswith("; the fork was there already")
    assert len(checkrein("list", "--json").records) == 2


def test_for_a_program_the_fork_comes_first_and_then_the_events_that_are_its_own(
    checkrein: Checkrein, run: str
) -> None:
    at = places(checkrein, run, "step.end")[0]
    first, *events, end = checkrein("fork", run, "--at", at, "--json").records
    assert keys(first) == {"run_id", "fork_of", "fork_at", "calls_kept", "made_after", "copied", "missing"}
    assert (first["fork_of"], first["fork_at"], first["calls_kept"]) == (run, at, 1)
    assert first["made_after"] == [{"call_id": "2.0", "tool": "write_file", "status": "done", "attempts": 1}]
    assert (first["copied"], first["missing"]) == ([], ["note.txt"])
    assert [event["offset"] for event in events] == list(range(at, at + len(events)))
    assert (end["run_id"], end["phase"]) == (first["run_id"], "SUCCEEDED")


def test_a_fork_that_waits_for_a_person_exits_like_a_run(checkrein: Checkrein, tmp_path: Path) -> None:
    asking = task_folder(tmp_path / "asking", plan=WRITE + POLICY, extra='policy = "plan.py:policy"')
    run = fork_of(checkrein("run", asking, "--trust"))
    blocked = places(checkrein, run, "blocked")[0]
    assert checkrein("approve", run).code == 0
    printed = checkrein("fork", run, "--at", blocked)
    fork = fork_of(printed)
    assert printed.code == 4
    assert f"BLOCKED · 0/1 checks · 0 of 10 tool calls · run {fork}" in printed.lines
    assert any(f"approve {fork}" in line for line in printed.lines)


def test_the_store_report_goes_on_from_the_middle_and_is_proved(checkrein: Checkrein, tmp_path: Path) -> None:
    report = tmp_path / "store-report"
    shutil.copytree(EXAMPLES / "store-report", report, ignore=shutil.ignore_patterns("out", "__pycache__"))
    run = str(checkrein("run", report, "--trust", "--json").records[-1]["run_id"])
    at = places(checkrein, run, "step.end")[5]
    printed = checkrein("fork", run, "--at", at)
    fork = fork_of(printed)
    assert printed.code == 0
    assert printed.lines[0] == f"forked from {run} at {at}: {at} events kept, 6 calls not made again"
    assert f"SUCCEEDED · 10/10 checks · 8 of 12 tool calls · run {fork}" in printed.lines
    made = {path.name for path in (report / "out" / fork / "charts").iterdir()}
    assert made == {"sales-by-year.png", "sales-by-country.png"}
    assert checkrein("verify", fork).code == 0
    grants = [json.loads(line) for line in checkrein("events", fork, "--json").lines]
    assert [item["data"]["call_id"] for item in grants if item["type"] == "tool_granted" and item["offset"] >= at] == [
        "2.2",
        "2.3",
    ]
