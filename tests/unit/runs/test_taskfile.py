"""Task files: what a valid one means, and that every mistake names file, key and fix."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from checkrein import Budget, Step, Task, tool
from checkrein.errors import MissingExtra, TaskError
from checkrein.harness.model_planner import ModelPlanner
from checkrein.harness.permission import Decision, Policy
from checkrein.harness.planners import Planner
from checkrein.harness.structured import StructuredPlanner
from checkrein.ports.model import Model
from checkrein.ports.tool import Tool
from checkrein.ports.verifier import Verifier
from checkrein.runs.task import Check, InstallHooks
from checkrein.testing import ScriptedModel, reply
from checkrein.toolkit.files import write_file
from checkrein.values import JsonObject
from checkrein.verify import FileCheck, make_check

HEAD = '[task]\nname = "notes"\ngoal = "Write the notes"\nplanner = "plan"\ntools = ["write_file"]\n'
CHECK = '[[check]]\nkind = "file"\npath = "notes.md"\n'


def plan(_goal: str, _history: object, _last_error: object) -> Sequence[Step]:
    return []


def permit(_tool: str, _arguments: JsonObject) -> Decision:
    return "ask"


@tool
def odd(then: Callable[[], None]) -> None:
    """Take what JSON cannot carry."""
    then()


class Names:
    """Gives what its names mean, and fails in the ways a resolver may."""

    code_hash = "c0de"

    def __init__(self, child: Task | None = None) -> None:
        self.children = {} if child is None else {"child": child}

    def planner(self, name: str) -> Planner:
        if name != "plan":
            raise LookupError(f"there is no planner {name!r}")
        return plan

    def model(self, name: str, settings: Mapping[str, object]) -> Model:
        if name != "scripted/one":
            raise LookupError(f"there is no model {name!r}")
        return ScriptedModel([reply(f"{settings.get('seed')}")])

    def tool(self, name: str) -> Tool:
        if name == "broken":
            raise TaskError("elsewhere", "", "tools.py cannot be imported", "correct that file")
        if name == "extra":
            raise MissingExtra("task.toml", "task.tools", "mcp")
        return {"write_file": write_file, "odd": odd}[name]

    def check(self, kind: str, options: Mapping[str, object]) -> Verifier:
        return make_check(kind, options, source="elsewhere", base=Path())

    def hooks(self, name: str) -> InstallHooks:
        raise LookupError(f"there are no hooks {name!r}")

    def child(self, name: str) -> Task:
        if name not in self.children:
            raise LookupError(f"there is no task file {name!r}")
        return self.children[name]

    def policy(self, name: str) -> Policy:
        return {"permit": permit}[name]


def load(folder: Path, text: str) -> Task:
    (folder / "task.toml").write_text(text, encoding="utf-8")
    return Task.load(folder, resolve=Names())


def test_a_task_file_means_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text("total\n1\n", encoding="utf-8")
    task = load(
        tmp_path,
        HEAD
        + 'version = 3\nworkspace = "results"\npolicy = "permit"\non_failure = "skip"\nverify_seconds = 5\n'
        + '[inputs]\nsales = "sales.csv"\n[budget]\ntool_calls = 12\nwall_seconds = 1.5\nrepairs = 0\n'
        + CHECK
        + 'id = "there"\n',
    )
    assert (task.name, task.version, task.goal, task.code_hash) == ("notes", 3, "Write the notes", "c0de")
    assert (task.planner, task.policy, task.on_failure, task.verify_seconds) == (plan, permit, "skip", 5.0)
    assert [item.name for item in task.tools] == ["write_file"]
    assert task.inputs == {"sales": tmp_path / "sales.csv"}
    assert task.workspace == tmp_path / "results"
    assert task.budget == Budget(tool_calls=12, wall_seconds=1.5, repairs=0)
    assert task.checks == (Check(FileCheck(path="notes.md"), "there"),)
    assert task.source == str(tmp_path / "task.toml")


def test_a_task_lists_its_children_whose_results_are_below_its_own(tmp_path: Path) -> None:
    child = replace(load(tmp_path, HEAD + CHECK), name="child")
    (tmp_path / "task.toml").write_text(HEAD + 'children = ["child"]\n' + CHECK, encoding="utf-8")
    for workspace in ("out", "out/child", "out/../out/child"):
        inside = replace(child, workspace=tmp_path / workspace)
        assert Task.load(tmp_path, resolve=Names(child=inside)).child("child") is inside
    for workspace in ("other", "out/../other", "."):
        with pytest.raises(TaskError, match="so count as code") as refused:
            Task.load(tmp_path, resolve=Names(child=replace(child, workspace=tmp_path / workspace)))
        assert (refused.value.key, refused.value.fix) == ("task.children", 'write workspace = "out/child" in child')
    with pytest.raises(TaskError, match="there is no task file 'child'; name another"):
        Task.load(tmp_path, resolve=Names())


@pytest.mark.parametrize("named", ["task.toml", "."])
def test_a_file_and_its_folder_name_the_same_task(tmp_path: Path, named: str) -> None:
    load(tmp_path, HEAD + CHECK)
    assert Task.load(str(tmp_path / named), resolve=Names()).name == "notes"


def test_a_model_may_stand_in_the_place_of_a_planner_and_is_stored_by_its_name(tmp_path: Path) -> None:
    head = HEAD.replace('planner = "plan"', 'model = "scripted/one"')
    task = load(tmp_path, head + "[model]\nseed = 7\n" + CHECK)
    assert isinstance(task.planner, ModelPlanner)
    assert isinstance(task.model, ScriptedModel)
    assert task.record().data["model"] == {"name": "scripted/one", "settings": {"seed": 7}}
    assert "model" not in load(tmp_path, HEAD + CHECK).record().data
    assert isinstance(load(tmp_path, head + 'planning = "steps"\n' + CHECK).planner, StructuredPlanner)


def test_what_is_not_said_has_its_default(tmp_path: Path) -> None:
    task = load(tmp_path, HEAD + CHECK)
    assert (task.version, task.budget, task.inputs, task.workspace) == (1, Budget(), {}, tmp_path / "out")
    assert (task.on_failure, task.policy("write_file", JsonObject())) == ("replan", "allow")


@pytest.mark.parametrize(
    ("text", "key", "problem", "fix"),
    [
        ("", "[task]", "is missing", "add a [task] section"),
        ("task = 1", "[task]", "is no table", "[task]"),
        (HEAD.replace("goal", "gaol") + CHECK, "task.gaol", "is unknown", "did you mean 'goal'?"),
        (HEAD + "colour = 1\n" + CHECK, "task.colour", "is unknown", "known are name, version, goal"),
        (HEAD + "[bugdet]\n" + CHECK, "bugdet", "is unknown", "did you mean 'budget'?"),
        (HEAD + "[budget]\ntool_call = 3\n" + CHECK, "budget.tool_call", "is unknown", "did you mean 'tool_calls'?"),
        (HEAD + '[budget]\ntool_calls = "3"\n' + CHECK, "budget.tool_calls", "no whole number", "0 or more"),
        (HEAD + "[budget]\ntool_calls = 1.5\n" + CHECK, "budget.tool_calls", "no whole number", "0 or more"),
        (HEAD + "[budget]\nrepairs = true\n" + CHECK, "budget.repairs", "no whole number", "0 or more"),
        (HEAD + "[budget]\nwall_seconds = -1\n" + CHECK, "budget.wall_seconds", "less than 0", "0 or more"),
        (HEAD + "[budget]\nwall_seconds = nan\n" + CHECK, "budget", "nan", "correct that limit"),
        (HEAD.replace('"notes"', '"my notes"') + CHECK, "task.name", "no name", "letters, digits"),
        (HEAD.replace('name = "notes"\n', "") + CHECK, "task.name", "is missing", 'name = "my-task"'),
        (HEAD.replace('"Write the notes"', '" "') + CHECK, "task.goal", "no text", "say in a sentence"),
        (HEAD.replace('planner = "plan"\n', "") + CHECK, "task.planner", "is missing", 'planner = "plan.py:plan"'),
        (HEAD + 'planning = "leaps"\n' + CHECK, "task.planning", "'leaps' is unknown", "use calls or steps"),
        (HEAD + 'model = "scripted/one"\n' + CHECK, "task.model", "stands beside a planner", "keep the one"),
        (HEAD + "[model]\nseed = 1\n" + CHECK, "[model]", "the task has none", 'model = "…"'),
        (HEAD.replace('planner = "plan"', 'model = "other"') + CHECK, "task.model", "no model 'other'", "correct the name"),
        (HEAD.replace('"plan"', '"plam"') + CHECK, "task.planner", "no planner 'plam'", "correct the name"),
        (HEAD.replace('["write_file"]', '"write_file"') + CHECK, "task.tools", "is no list", '["one", "two"]'),
        (HEAD.replace('["write_file"]', "[1]") + CHECK, "task.tools[0]", "no text", "text"),
        (HEAD.replace('"write_file"', '"broken"') + CHECK, "task.tools", "cannot be imported", "correct that file"),
        (HEAD.replace('"write_file"', '"odd"') + CHECK, "task.tools", "odd takes something that has no JSON form", "a type"),
        (
            HEAD.replace('["write_file"]', '["write_file", "write_file"]') + CHECK,
            "task.tools", "'write_file' stands there twice", "its own name",
        ),
        (HEAD + "version = 0\n" + CHECK, "task.version", "no version", "whole number from 1"),
        (HEAD + 'version = "1"\n' + CHECK, "task.version", "no whole number", "without quotes"),
        (HEAD + 'on_failure = "retry"\n' + CHECK, "task.on_failure", "is unknown", "replan, skip or abort"),
        (HEAD + "verify_seconds = 0\n" + CHECK, "task.verify_seconds", "is no time", "more than 0"),
        (HEAD + '[inputs]\nsales = "sales.csv"\n' + CHECK, "inputs.sales", "sales.csv is no file", "correct the path"),
        (HEAD + "[inputs]\nsales = 1\n" + CHECK, "inputs.sales", "is no text", "text"),
        (HEAD, "check", "has none", "at least one [[check]]"),
        (HEAD + CHECK.replace("[[check]]", "[check]"), "check", "no list of tables", "two brackets"),
        (HEAD + CHECK.replace("file", "fiel"), "check[0].kind", "no kind of check 'fiel'", "did you mean 'file'?"),
        (HEAD + CHECK + CHECK + "colour = 1\n", "check[1].colour", "is no option here", "the options are"),
        (HEAD + CHECK + "id = 1\n", "check[0].id", "is no text", 'id = "text"'),
        (HEAD + (CHECK + 'id = "a"\n') * 2, "check", "'a' stands there twice", "its own name"),
        (HEAD + CHECK + "title = 2021-01-01\n", "check[0]", "no JSON form", "dates as text"),
    ],
)  # fmt: skip
def test_a_mistake_names_file_key_and_fix(tmp_path: Path, text: str, key: str, problem: str, fix: str) -> None:
    with pytest.raises(TaskError) as caught:
        load(tmp_path, text)
    error = caught.value
    assert (error.source, error.key) == (str(tmp_path / "task.toml"), key)
    assert problem in error.problem
    assert fix in error.fix


def test_a_missing_extra_stays_one(tmp_path: Path) -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'checkrein\[mcp\]'"):
        load(tmp_path, HEAD.replace('"write_file"', '"extra"') + CHECK)


@pytest.mark.parametrize(("text", "place"), [("[task\n", "line 1"), ("[task]\nname = = 1\n", "line 2, column 8")])
def test_a_file_that_is_no_toml_names_the_line(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(TaskError, match=place):
        load(tmp_path, text)


def test_a_file_that_is_no_text_or_missing_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no task file"):
        Task.load(tmp_path, resolve=Names())
    (tmp_path / "task.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(TaskError, match="utf-8"):
        Task.load(tmp_path, resolve=Names())
