"""`approve`, `deny` and `answer`: each names one open question, is taken once, executes nothing, and leads to the next command."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.folders import BATCH, PULL, Printed, Shell, asking_folder, task_folder

Checkrein = Callable[..., Printed]

REVIEWED = (
    BATCH
    + """

def hooks(hooks):
    hooks.on("{topic}", lambda payload: Pause("look at {topic}"))
"""
)
FAILING = """\
def plan(goal, history, last_error):
    raise ValueError("no idea")
"""


def run_of(checkrein: Checkrein, folder: Path) -> str:
    printed = checkrein("run", folder, "--trust", "--json")
    assert printed.code in {4, 5}
    return str(printed.records[-1]["run_id"])


def types_of(checkrein: Checkrein, run: str) -> list[str]:
    return [str(event["type"]) for event in checkrein("events", run, "--json").records]


@pytest.fixture
def asking(checkrein: Checkrein, tmp_path: Path) -> str:
    """A run that asks about the calls 1.0 and 1.1 at once."""
    return run_of(checkrein, asking_folder(tmp_path / "ask"))


@pytest.fixture
def pulling(checkrein: Checkrein, tmp_path: Path) -> str:
    """A run that waits for the result of call 1.0."""
    return run_of(checkrein, task_folder(tmp_path / "pull", plan=PULL))


def test_calls_are_decided_in_any_order_and_the_last_one_lets_the_run_go_on(
    checkrein: Checkrein, asking: str, tmp_path: Path
) -> None:
    first = checkrein("approve", asking, "1.1")
    assert first.code == 0
    assert first.lines[0] == f"✓ call 1.1 of write_file is allowed · BLOCKED · run {asking}"
    assert f"      checkrein approve {asking} 1.0" in first.lines
    assert "1.1" not in "".join(first.lines[1:])
    second = checkrein("approve", asking, "permission:1.0")
    assert second.lines[0] == f"✓ call 1.0 of write_file is allowed · RUNNING · run {asking}"
    assert second.lines[1:] == [f"next: checkrein resume {asking}"]
    assert not (tmp_path / "ask" / "out" / asking / "note.txt").exists()
    assert "tool_granted" not in types_of(checkrein, asking)
    assert checkrein("resume", asking[:6]).code == 0


def test_a_call_may_be_left_out_only_when_it_is_the_only_one(checkrein: Checkrein, asking: str) -> None:
    before = types_of(checkrein, asking)
    several = checkrein("approve", asking)
    assert (several.code, several.out) == (2, "")
    assert "1.0 (write_file), 1.1 (write_file)" in several.err
    assert types_of(checkrein, asking) == before
    assert checkrein("approve", asking, "1.0").code == 0
    assert checkrein("deny", asking[:5]).lines[0].startswith("✓ call 1.1 of write_file is denied")


@pytest.mark.parametrize("name", ["1.7", "", "look", "permission:1.7", "a\x1b[2J"])
def test_what_is_not_open_is_refused_with_a_list_of_what_is(checkrein: Checkrein, asking: str, name: str) -> None:
    checkrein("approve", asking, "1.0")
    before = types_of(checkrein, asking)
    printed = checkrein("approve", asking, name or "1.0")
    assert printed.code == 3
    assert "open: 1.1 (write_file)" in printed.err
    assert len(printed.err.splitlines()) == 1
    assert types_of(checkrein, asking) == before


def test_a_denial_says_why_and_the_planner_is_told(checkrein: Checkrein, asking: str) -> None:
    checkrein("approve", asking, "1.0")
    assert checkrein("deny", asking, "1.1", "--reason", "too dear").code == 0
    printed = checkrein("resume", asking)
    assert printed.code == 1
    assert "denied: too dear" in printed.out
    told = checkrein("events", asking).out
    assert "call 1.0 allowed" in told
    assert "call 1.1 denied: too dear" in told


def test_the_same_request_id_decides_once_and_another_answer_under_it_is_refused(
    checkrein: Checkrein, asking: str
) -> None:
    for _ in range(2):
        assert checkrein("approve", asking, "1.0", "--request-id", "r1").code == 0
    assert types_of(checkrein, asking).count("unblocked") == 1
    assert checkrein("deny", asking, "1.0", "--request-id", "r1").code == 3
    checkrein("approve", asking, "1.1")
    assert checkrein("resume", asking).code == 0
    assert checkrein("approve", asking, "1.0", "--request-id", "r1").code == 0


def test_json_is_how_the_run_stands(checkrein: Checkrein, asking: str) -> None:
    records = checkrein("approve", asking, "1.0", "--json").records
    assert [(item["run_id"], item["phase"]) for item in records] == [(asking, "BLOCKED")]


@pytest.mark.parametrize(
    ("topic", "subject"), [("before_plan", "turn:1"), ("after_plan", "turn:1"), ("before_step", "step:note")]
)
def test_a_review_of_something_else_than_a_call_is_decided_by_its_subject_or_without(
    checkrein: Checkrein, tmp_path: Path, topic: str, subject: str
) -> None:
    folder = task_folder(tmp_path / "review", plan=REVIEWED.replace("{topic}", topic), extra='hooks = "plan.py:hooks"')
    run = run_of(checkrein, folder)
    shown = checkrein("show", run)
    assert f"      checkrein approve {run} {subject}" in shown.lines
    assert f"      checkrein deny {run} {subject}" in shown.lines
    assert checkrein("approve", run, "turn:9").code == 3
    named = checkrein("approve", run, subject)
    assert named.lines[0] == f"✓ {subject} is allowed · {checkrein('list', '--json').records[0]['phase']} · run {run}"
    other = run_of(checkrein, folder)
    assert checkrein("deny", other, "--reason", "not today").code == 0
    assert checkrein("resume", other).code in {1, 4}
    assert "denied: not today" in checkrein("events", other).out


def test_a_hooks_question_about_a_call_is_decided_like_a_policys(checkrein: Checkrein, tmp_path: Path) -> None:
    plan = REVIEWED.replace("{topic}", "before_tool_call")
    run = run_of(checkrein, task_folder(tmp_path / "review", plan=plan, extra='hooks = "plan.py:hooks"'))
    shown = checkrein("show", run)
    assert f"      checkrein approve {run} 1.1" in shown.lines
    assert "look at before_tool_call" in shown.out
    assert (checkrein("approve", run, "1.0").code, checkrein("approve", run, "1.1").code) == (0, 0)
    assert checkrein("resume", run).code == 0


def test_a_planner_that_failed_is_asked_again_and_cannot_be_denied(checkrein: Checkrein, tmp_path: Path) -> None:
    run = run_of(checkrein, task_folder(tmp_path / "fail", plan=FAILING))
    denied = checkrein("deny", run)
    assert denied.code == 3
    assert f"checkrein unblock {run} planner:1 --close TEXT" in denied.err
    assert checkrein("approve", run).lines[0].startswith("✓ the planner is asked again")
    assert "the planner is asked again (turn 1)" in checkrein("events", run).out


def test_a_run_that_waits_for_something_else_asks_for_no_decision(
    checkrein: Checkrein, pulling: str, tmp_path: Path
) -> None:
    printed = checkrein("approve", pulling)
    assert (printed.code, "it waits for answer:1.0" in printed.err) == (3, True)
    poor = run_of(checkrein, task_folder(tmp_path / "poor", tool_calls=1))
    for words in (("approve", poor), ("answer", poor, "1")):
        printed = checkrein(*words)
        assert (printed.code, "it waits for budget:tool_calls" in printed.err) == (3, True)


@pytest.mark.parametrize("words", [("approve",), ("deny",), ("answer", "1")])
def test_nothing_is_decided_about_a_run_that_ended(checkrein: Checkrein, asking: str, words: tuple[str, ...]) -> None:
    checkrein("cancel", asking)
    printed = checkrein(words[0], asking, *words[1:])
    assert printed.code == 3
    assert "nothing may follow" in printed.err


@pytest.mark.parametrize(
    ("words", "result"),
    [
        (("1.0", '{"price": 3}'), '{"price":3}'),
        (("answer:1.0", "[1]"), "[1]"),
        (("null",), "no data"),
        (("-5",), "-5"),
        (('"text"',), '"text"'),
    ],
)
def test_a_result_is_brought_once_with_or_without_the_calls_id(
    checkrein: Checkrein, pulling: str, words: tuple[str, ...], result: str
) -> None:
    printed = checkrein("answer", pulling, *words)
    assert printed.code == 0
    assert printed.lines == [
        f"✓ call 1.0 of look_up has its result · RUNNING · run {pulling}",
        f"next: checkrein resume {pulling}",
    ]
    assert f"call 1.0 done: {result}" in checkrein("events", pulling).out
    assert checkrein("answer", pulling, *words).code == 3
    assert checkrein("resume", pulling).code == 0


def test_a_result_may_come_from_standard_input(
    checkrein: Checkrein, pulling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"price":\n 3}'))
    assert checkrein("answer", pulling, "1.0", "-").code == 0
    assert 'call 1.0 done: {"price":3}' in checkrein("events", pulling).out


def test_an_error_is_an_answer_that_the_planner_is_told(checkrein: Checkrein, pulling: str) -> None:
    printed = checkrein("answer", pulling, "--error", "nobody knows", "--request-id", "e")
    assert printed.lines[0] == f"✓ call 1.0 of look_up has failed · RUNNING · run {pulling}"
    assert checkrein("answer", pulling, "1.0", "--error", "nobody knows", "--request-id", "e").code == 0
    resumed = checkrein("resume", pulling)
    assert resumed.code == 1
    assert "nobody knows" in resumed.out


@pytest.mark.parametrize(
    "words", [(), ("1.0",), ("1.0", "{"), ("{",), ("1.0", "1", "2"), ("1.0", "1", "--error", "x"), ("NaN",)]
)
def test_what_is_no_result_is_usage_and_appends_nothing(
    checkrein: Checkrein, pulling: str, words: tuple[str, ...]
) -> None:
    before = types_of(checkrein, pulling)
    printed = checkrein("answer", pulling, *words)
    assert (printed.code, printed.out) == (2, "")
    assert types_of(checkrein, pulling) == before


def test_a_call_that_waits_for_its_result_is_shown_whole_with_its_command(checkrein: Checkrein, pulling: str) -> None:
    shown = checkrein("show", pulling)
    assert shown.code == 4
    assert '      arguments: {"what":"price"}' in shown.lines
    assert f"      checkrein answer {pulling} 1.0 JSON" in shown.lines
    assert "call 1.0 waits for its result from outside" in shown.out


def test_a_run_that_waits_for_a_result_can_be_closed(checkrein: Checkrein, pulling: str) -> None:
    printed = checkrein("unblock", pulling, "answer:1.0", "--close", "no need any more")
    assert (printed.code, printed.lines[0]) == (0, f"✓ closed · FAILED · run {pulling}")
    assert "FAILED (closed)" in checkrein("show", pulling).out
    assert checkrein("replay", pulling).code == 0


def test_a_draft_that_a_hook_drops_is_told(checkrein: Checkrein, tmp_path: Path) -> None:
    plan = BATCH + (
        "\n\ndef drop(payload):\n    if payload['steps']:\n        raise HookAbort('too many steps')\n"
        "\n\ndef hooks(hooks):\n    hooks.on('after_plan', drop)\n"
    )
    folder = task_folder(tmp_path / "drop", plan=plan, extra='hooks = "plan.py:hooks"')
    printed = checkrein("run", folder, "--trust")
    assert printed.code == 1
    assert "draft dropped: too many steps" in printed.lines
    run = str(checkrein("list", "--json").records[0]["run_id"])
    assert "draft dropped: too many steps" in checkrein("show", run).out


def test_a_store_that_is_named_is_named_in_what_comes_next(checkrein: Checkrein, tmp_path: Path, shell: Shell) -> None:
    store = tmp_path / "a b.db"
    folder = asking_folder(tmp_path / "ask")
    run = str(checkrein("run", folder, "--trust", "--json", "--store", store).records[-1]["run_id"])
    printed = checkrein("approve", run, "1.0", "--store", store)
    assert f"      checkrein approve {run} 1.1 --store '{store}'" in printed.lines
    assert not shell.store.exists()
