"""Child runs from the command line: their task files, who advances them, and how a family is shown."""

import signal
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Checkrein
from tests.unit.cli.folders import Shell

CODE = """\
from checkrein import Step, ToolContext, tool


def plan(goal, history, last_error):
    return [Step(id="delegate", description="Delegate", tool_name="delegate"), *write(goal, history, last_error)]


def write(goal, history, last_error):
    return [Step(id="write", description="Write", tool_name="write_file", arguments={"path": "note.txt", "content": goal})]


@tool(idempotent=True)
async def delegate(context: ToolContext) -> object:
    \"\"\"Hand the work to a child run.\"\"\"
    return await context.runs.start("part", goal="A part of it", share={"turns": 2})
"""
DYING = """

def dangerous(goal, history, last_error):
    return [Step(id="die", description="Die", tool_name="die_once"), *write(goal, history, last_error)]


@tool(idempotent=True)
def die_once(context: ToolContext) -> str:
    \"\"\"Kill the process, the first time.\"\"\"
    import os, signal

    if context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"
"""
PARENT = """\
[task]
name = "whole"
goal = "The whole of it"
planner = "plan.py:plan"
tools = ["plan.py:delegate", "write_file"]
children = ["part.toml"]
[[check]]
kind = "file"
path = "note.txt"
"""
CHILD = """\
[task]
name = "part"
goal = "A part"
planner = "plan.py:write"
tools = ["write_file"]
workspace = "out/part"
[[check]]
kind = "file"
path = "note.txt"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "family"
    folder.mkdir()
    for name, text in (("plan.py", CODE), ("task.toml", PARENT), ("part.toml", CHILD)):
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def _runs(checkrein: Checkrein) -> dict[str, str]:
    """Return the ids of the runs by their goals."""
    rows = [line.split(maxsplit=1) for line in checkrein("list").lines]
    return {goal: row[0] for row in rows for goal in ("The whole of it", "A part of it") if goal in row[1]}


def test_run_advances_the_children_of_the_run_too_and_show_tells_of_the_family(
    checkrein: Checkrein, folder: Path
) -> None:
    printed = checkrein("run", folder, "--trust")
    assert printed.code == 0, printed.err
    runs = _runs(checkrein)
    parent, child = runs["The whole of it"], runs["A part of it"]
    shown = checkrein("show", parent).lines
    line = shown[shown.index("child runs") + 1]
    assert line.split()[:3] == [child, "part", "SUCCEEDED"]
    assert "2 turns" in line
    told = checkrein("show", child)
    assert f"run {parent}" in next(text for text in told.lines if text.strip().startswith("child of"))
    note = next((folder / "out" / "part").glob("*/note.txt"))
    assert note.read_text(encoding="utf-8") == "A part of it"
    # Results are no code, so the folder is still the one that was trusted.
    assert checkrein("run", folder).code == 0


def test_after_a_crash_a_child_is_resumed_by_its_own_id_and_its_parent_after_it(
    checkrein: Checkrein, folder: Path, shell: Shell
) -> None:
    with (folder / "plan.py").open("a", encoding="utf-8") as file:
        file.write(DYING)
    part = CHILD.replace("plan.py:write", "plan.py:dangerous").replace("tools = [", 'tools = ["plan.py:die_once", ')
    (folder / "part.toml").write_text(part, encoding="utf-8")
    assert shell.spawn("run", folder, "--trust").code == -signal.SIGKILL
    runs = _runs(checkrein)
    parent, child = runs["The whole of it"], runs["A part of it"]
    assert "RUNNING" in "".join(checkrein("show", child).lines)
    assert checkrein("resume", child).code == 0
    assert checkrein("resume", parent).code == 0
    assert checkrein("replay", parent).code == 0


def test_one_changed_byte_in_the_file_of_a_child_asks_again(checkrein: Checkrein, folder: Path) -> None:
    checkrein("trust", folder)
    (folder / "part.toml").write_text(CHILD.replace("A part", "Another part"), encoding="utf-8")
    assert checkrein("run", folder).code == 3


@pytest.mark.parametrize(
    ("parent", "child", "words"),
    [
        ('["nothing.toml"]', CHILD, ("task.children", "there is no task file 'nothing.toml'", "part.toml")),
        ('["../part.toml"]', CHILD, ("task.children", "there is no task file '../part.toml'")),
        ('["task.toml"]', CHILD, ("task.children", "task.toml is the task itself")),
        ('["part.toml"]', CHILD.replace("out/part", "results"), ("task.children", 'workspace = "out/part"')),
        ('["part.toml"]', CHILD.replace('kind = "file"', 'kind = "fil"'), ("part.toml", "check[0].kind")),
        (
            '["part.toml"]',
            CHILD.replace("[task]", '[task]\nchildren = ["task.toml"]'),
            ("task.toml is the task itself",),
        ),
    ],
)
def test_what_is_wrong_with_a_child_names_its_file_and_the_fix(
    checkrein: Checkrein, folder: Path, parent: str, child: str, words: tuple[str, ...]
) -> None:
    (folder / "task.toml").write_text(PARENT.replace('["part.toml"]', parent), encoding="utf-8")
    (folder / "part.toml").write_text(child, encoding="utf-8")
    printed = checkrein("run", folder, "--trust")
    assert printed.code == 2
    assert all(word in printed.err for word in words), printed.err
