"""Tasks made in code: a task is valid or there is none, and each mistake names key and fix."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from checkrein import Budget, Step, Task, tool
from checkrein.errors import TaskError
from checkrein.verify import CheckContext, FileCheck, check


def plan(_goal: str, _history: object, _last_error: object) -> Sequence[Step]:
    return []


def undecorated(_context: CheckContext) -> bool:
    return True


@tool
def shout(text: str) -> str:
    """Shout."""
    return text.upper()


def made(changed: Mapping[str, object]) -> Task:
    given = {"name": "notes", "goal": "Write", "planner": plan, "checks": [FileCheck(path="a.md")], **changed}
    return Task(**given)  # pyright: ignore[reportArgumentType]  what is tested


@pytest.mark.parametrize(
    ("key", "value", "problem", "fix"),
    [
        ("name", 1, "1 is no name", "letters"),
        ("name", "../x", "no name", "letters"),
        ("name", "x" * 65, "no name", "1 to 64"),
        ("version", "1", "'1' is no version", "from 1"),
        ("version", True, "no version", "from 1"),
        ("version", 0, "no version", "from 1"),
        ("goal", None, "no text", "sentence"),
        ("goal", " \n", "empty", "sentence"),
        ("planner", "plan", "cannot be called", "(goal, history, last_error)"),
        ("policy", "ask", "cannot be called", "(tool, arguments)"),
        ("tools", shout, "no list", "list of tools"),
        ("tools", "shout", "no list", "list of tools"),
        ("tools", [undecorated], "is no tool", "@tool"),
        ("tools", [shout, shout], "'shout' stands there twice", "its own name"),
        ("checks", FileCheck(path="a.md"), "no list", "list of checks"),
        ("checks", [], "has none", "[[check]]"),
        ("checks", [undecorated], "is no check", "@check"),
        ("checks", [FileCheck], "is no check", "@check"),
        ("budget", {"turns": 1}, "dict is no Budget", "Budget("),
        ("on_failure", "retry", "'retry' is unknown", "replan, skip or abort"),
        ("verify_seconds", 0, "0 is no time", "more than 0"),
        ("verify_seconds", float("inf"), "no time", "more than 0"),
        ("inputs", ["a.csv"], "no mapping", "by name"),
        ("inputs", {"a": 1}, "no path", "path of a file"),
        ("inputs", {"a": "missing.csv"}, "missing.csv is no file", "correct the path"),
        ("workspace", None, "no path", "path of a folder"),
    ],
)
def test_a_mistake_names_key_and_fix(key: str, value: object, problem: str, fix: str) -> None:
    with pytest.raises(TaskError) as caught:
        made({key: value})
    error = caught.value
    assert error.source == "task"
    assert error.key.partition(".")[0] == key.removesuffix("s" if key == "checks" else "")
    assert problem in error.problem
    assert fix in error.fix


def test_paths_may_be_given_as_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n", encoding="utf-8")
    task = made({"inputs": {"a": str(tmp_path / "a.csv")}, "workspace": str(tmp_path / "out")})
    assert (task.inputs, task.workspace) == ({"a": tmp_path / "a.csv"}, tmp_path / "out")


def test_checks_get_ids_that_differ() -> None:
    same = check(path="a.md")(undecorated)
    task = made({"checks": [same, same, FileCheck(path="a.md")], "budget": Budget(turns=1)})
    assert [item.id for item in task.required_checks()] == ["function:a.md", "function:a.md#2", "file:a.md"]
