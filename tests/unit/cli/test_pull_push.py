"""`pull` and `push`: what a run waits for and its answer, as JSON between processes, each answer taken once and at the version that was seen."""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.unit.cli.folders import PULL, Printed, Shell, asking_folder, ended, keys, task_folder

Checkrein = Callable[..., Printed]
Start = Callable[..., "subprocess.Popen[str]"]

KEYS = {"run_id", "version", "phase", "kind", "reason", "state", "payload"}
BOTH = PULL.replace('tool_name="write_file"', 'batch="b", tool_name="write_file"').replace(
    'tool_name="look_up"', 'batch="b", tool_name="look_up"'
)


@pytest.fixture
def start(shell: Shell) -> Iterator[Start]:
    """Start commands in processes of their own, and leave none of them behind."""
    running: list[subprocess.Popen[str]] = []

    def started(*words: str | Path) -> "subprocess.Popen[str]":
        running.append(shell.start(*words))
        return running[-1]

    yield started
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def run_of(checkrein: Checkrein, folder: Path) -> str:
    return str(checkrein("run", folder, "--trust", "--json").records[-1]["run_id"])


def pulled(checkrein: Checkrein, run: str) -> dict[str, object]:
    printed = checkrein("pull", run)
    assert (printed.code, len(printed.records)) == (0, 1)
    return printed.records[0]


def payload_of(record: dict[str, object]) -> dict[str, object]:
    return cast("dict[str, object]", record["payload"])


def number_of_events(checkrein: Checkrein, run: str) -> int:
    return len(checkrein("events", run, "--json").records)


@pytest.fixture
def pulling(checkrein: Checkrein, tmp_path: Path) -> str:
    """A run that waits for the result of call 1.0."""
    return run_of(checkrein, task_folder(tmp_path / "pull", plan=PULL))


@pytest.fixture
def asking(checkrein: Checkrein, tmp_path: Path) -> str:
    """A run that asks about the calls 1.0 and 1.1 at once."""
    return run_of(checkrein, asking_folder(tmp_path / "ask"))


@pytest.fixture
def poor(checkrein: Checkrein, tmp_path: Path) -> str:
    """A run whose budget is used up."""
    return run_of(checkrein, task_folder(tmp_path / "poor", tool_calls=1))


def test_a_call_is_pulled_with_all_that_is_needed_to_make_it(checkrein: Checkrein, pulling: str) -> None:
    found = pulled(checkrein, pulling[:6])
    assert keys(found) == KEYS
    assert (found["run_id"], found["version"]) == (pulling, number_of_events(checkrein, pulling))
    assert (found["phase"], found["kind"], found["reason"], found["state"]) == (
        "BLOCKED", "tool", "tool_result", "AWAITING_TOOL",
    )  # fmt: skip
    call = {"step_id": "look", "call_id": "1.0", "name": "look_up", "arguments": {"what": "price"}}
    assert payload_of(found) == {**call, "calls": [call]}


def test_approvals_are_pulled_together(checkrein: Checkrein, asking: str) -> None:
    found = pulled(checkrein, asking)
    assert (found["kind"], found["state"]) == ("pause", "IDLE")
    calls = cast("list[dict[str, object]]", payload_of(found)["calls"])
    assert [call["call_id"] for call in calls] == ["1.0", "1.1"]
    assert calls[0]["arguments"] == {"path": "note.txt", "content": "x"}


def test_a_budget_is_pulled_with_what_is_used_and_allowed(checkrein: Checkrein, poor: str) -> None:
    found = pulled(checkrein, poor)
    assert (found["kind"], found["reason"]) == ("pause", "budget_exceeded:tool_calls")
    assert cast("dict[str, object]", payload_of(found)["used"])["tool_calls"] == 1
    assert cast("dict[str, object]", payload_of(found)["limits"])["tool_calls"] == 1


def test_nothing_but_json_is_printed_and_pulling_appends_nothing(checkrein: Checkrein, pulling: str) -> None:
    before = number_of_events(checkrein, pulling)
    assert checkrein("pull", pulling).out == checkrein("pull", pulling, "--json").out
    assert number_of_events(checkrein, pulling) == before


def test_where_nothing_is_asked_kind_is_null_and_the_code_is_that_of_the_run(
    checkrein: Checkrein, pulling: str, asking: str
) -> None:
    checkrein("push", pulling, '{"result": 3}')
    for code, phase in ((0, "RUNNING"), (0, "SUCCEEDED")):
        printed = checkrein("pull", pulling)
        (record,) = printed.records
        assert (printed.code, record["phase"]) == (code, phase)
        assert {record[name] for name in ("kind", "reason", "state", "payload")} == {None}
        checkrein("resume", pulling)
    checkrein("cancel", asking)
    assert checkrein("pull", asking).code == 1


def test_every_open_pull_of_the_store_is_listed(
    checkrein: Checkrein, pulling: str, asking: str, poor: str, tmp_path: Path
) -> None:
    run_of(checkrein, task_folder(tmp_path / "done"))
    printed = checkrein("pull")
    assert printed.code == 0
    assert [(record["run_id"], record["kind"]) for record in printed.records] == [
        (pulling, "tool"), (asking, "pause"), (poor, "pause"),
    ]  # fmt: skip
    assert all(keys(record) == KEYS for record in printed.records)
    checkrein("push", pulling, '{"result": 3}')
    assert len(checkrein("pull").records) == 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [('{"result": {"price": 3}}', "call 1.0 done"), ('{"error": "no idea", "call_id": "1.0"}', "call 1.0 failed")],
)
def test_a_result_is_pushed_from_another_process_and_taken_once(
    shell: Shell, checkrein: Checkrein, pulling: str, answer: str, said: str
) -> None:
    version = pulled(checkrein, pulling)["version"]
    pushed = shell.spawn("push", pulling, answer, "--version", str(version))
    assert (pushed.code, pushed.err) == (0, "")
    (record,) = pushed.records
    assert keys(record) == {"run_id", "version", "phase"}
    assert (record["run_id"], record["phase"]) == (pulling, "RUNNING")
    assert record["version"] == number_of_events(checkrein, pulling)
    again = shell.spawn("push", pulling, answer)
    assert (again.code, again.out) == (3, "")
    assert len(again.err.splitlines()) == 1
    assert number_of_events(checkrein, pulling) == record["version"]
    assert said in checkrein("events", pulling).out


def test_an_answer_to_what_was_seen_before_the_log_moved_on_is_refused(checkrein: Checkrein, pulling: str) -> None:
    version = str(pulled(checkrein, pulling)["version"])
    checkrein("steer", pulling, "mind the date")
    before = number_of_events(checkrein, pulling)
    stale = checkrein("push", pulling, '{"result": 3}', "--version", version)
    assert (stale.code, stale.out) == (3, "")
    assert "the log moved on" in stale.err
    assert number_of_events(checkrein, pulling) == before
    assert checkrein("push", pulling, '{"result": 3}', "--version", str(before)).code == 0


def test_of_two_processes_that_push_at_once_one_is_taken(checkrein: Checkrein, start: Start, pulling: str) -> None:
    version = str(pulled(checkrein, pulling)["version"])
    pushes = [start("push", pulling, f'{{"result": {number}}}', "--version", version) for number in range(4)]
    assert sorted(ended(process).code for process in pushes) == [0, 3, 3, 3]
    types = [event["type"] for event in checkrein("events", pulling, "--json").records]
    assert types.count("tool_done") == 1


def test_an_answer_may_come_from_standard_input(
    checkrein: Checkrein, pulling: str, asking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"result":\n "x"}'))
    assert checkrein("push", pulling).code == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"decision": "allow", "call_id": "1.1"}'))
    assert checkrein("push", asking, "-").code == 0
    calls = cast("list[dict[str, object]]", payload_of(pulled(checkrein, asking))["calls"])
    assert [call["call_id"] for call in calls] == ["1.0"]


def test_decisions_are_pushed_by_call_and_each_once(checkrein: Checkrein, asking: str) -> None:
    allow = '{"decision": "allow", "call_id": "1.1"}'
    assert checkrein("push", asking, '{"decision": "allow"}').code == 3
    assert checkrein("push", asking, allow).records[0]["phase"] == "BLOCKED"
    assert checkrein("push", asking, allow).code == 3
    assert checkrein("push", asking, '{"decision": {"deny": "no"}, "call_id": "1.0"}').records[0]["phase"] == "RUNNING"
    assert checkrein("resume", asking).code == 1


def test_an_extension_that_is_not_enough_changes_nothing(checkrein: Checkrein, poor: str) -> None:
    version = pulled(checkrein, poor)["version"]
    printed = checkrein("push", poor, '{"extend": {"tokens": 5}}')
    assert (printed.code, printed.records[0]["version"]) == (0, version)
    assert checkrein("push", poor, '{"extend": {"tool_calls": 1}}').records[0]["phase"] == "RUNNING"
    assert checkrein("resume", poor).code == 0


def test_closing_ends_the_run_whatever_it_waits_for(checkrein: Checkrein, pulling: str, asking: str, poor: str) -> None:
    for run in (pulling, asking, poor):
        assert checkrein("push", run, '{"close": "enough"}').records[0]["phase"] == "FAILED"
        assert checkrein("push", run, '{"close": "enough"}').code == 3
        assert checkrein("replay", run).code == 0


@pytest.mark.parametrize(
    "answer", ["{}", "[]", "3", '{"result": 1, "error": "x"}', '{"nonsense": 1}', '{"decision": "allow"}', "null"]
)
def test_an_answer_that_is_not_taken_there_exits_3_and_appends_nothing(
    checkrein: Checkrein, pulling: str, answer: str
) -> None:
    before = number_of_events(checkrein, pulling)
    printed = checkrein("push", pulling, answer)
    assert (printed.code, printed.out, len(printed.err.splitlines())) == (3, "", 1)
    assert number_of_events(checkrein, pulling) == before


@pytest.mark.parametrize("answer", ["", "{", "NaN", '{"result": 1, "result": 2}'])
def test_what_is_no_json_is_usage(checkrein: Checkrein, pulling: str, answer: str) -> None:
    printed = checkrein("push", pulling, answer)
    assert (printed.code, printed.out) == (2, "")
    assert "the answer is no JSON" in printed.err


def test_the_same_request_id_is_one_answer(checkrein: Checkrein, pulling: str) -> None:
    words = ("push", pulling, '{"result": 3}', "--request-id", "r")
    versions = [checkrein(*words).records[0]["version"] for _ in range(2)]
    assert versions[0] == versions[1]
    assert checkrein("push", pulling, '{"result": 4}', "--request-id", "r").code == 3


def test_waiting_ends_with_the_next_thing_that_is_asked(checkrein: Checkrein, start: Start, tmp_path: Path) -> None:
    run = run_of(checkrein, task_folder(tmp_path / "twice", plan=PULL.replace("write_file", "look_up")))
    checkrein("push", run, '{"result": 3}')
    waiting, anything = start("pull", run, "--wait"), start("pull", "--wait")
    for process in (waiting, anything):
        assert process.stderr
        assert "nothing is asked yet" in process.stderr.readline()
    assert checkrein("resume", run).code == 4
    for process in (waiting, anything):
        printed = ended(process)
        (record,) = printed.records
        assert (printed.code, record) == (0, pulled(checkrein, run))
        assert payload_of(record)["call_id"] == "1.1"


def test_waiting_ends_with_the_run(checkrein: Checkrein, start: Start, pulling: str) -> None:
    checkrein("push", pulling, '{"result": 3}')
    waiting = start("pull", pulling, "--wait")
    assert waiting.stderr
    assert "nothing is asked yet" in waiting.stderr.readline()
    checkrein("cancel", pulling)
    printed = ended(waiting)
    assert (printed.code, printed.records[0]["phase"], printed.records[0]["kind"]) == (1, "FAILED", None)
    assert checkrein("pull", pulling, "--wait").code == 1


def test_waiting_for_what_is_asked_already_ends_at_once(checkrein: Checkrein, pulling: str) -> None:
    assert checkrein("pull", pulling, "--wait").out == checkrein("pull", pulling).out
    assert checkrein("pull", "--wait").out == checkrein("pull").out


def test_a_pull_beside_a_call_that_a_tool_makes_is_seen_once_the_batch_is_granted(
    checkrein: Checkrein, tmp_path: Path
) -> None:
    run = run_of(checkrein, task_folder(tmp_path / "both", plan=BOTH))
    found = pulled(checkrein, run)
    assert (found["version"], payload_of(found)["call_id"]) == (number_of_events(checkrein, run), "1.0")
    assert checkrein("push", run, json.dumps({"result": 3}), "--version", str(found["version"])).code == 0
    assert checkrein("resume", run).code == 0
