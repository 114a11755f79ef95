"""Tasks from TOML files: parsing, and errors that name file, key and fix.

Names in the file (`planner`, `tools`, kinds of checks, `policy`, `hooks`) are given to a `Resolver`; nothing is imported here. Unknown keys are refused, with the
nearest known one, because a misspelt limit or check would otherwise be silently missing.
"""

import difflib
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from checkrein.errors import DataError, InvalidJson, MissingExtra, TaskError
from checkrein.harness.asking import SessionPlanner
from checkrein.harness.permission import allow_listed
from checkrein.kernel.budget import LIMITS, Budget
from checkrein.kernel.session_next import OnFailure
from checkrein.ports.model import Model
from checkrein.runs.task import Check, Planning, Resolver, Task, unplanned
from checkrein.values import JsonObject

__all__ = ["load_task", "read_task_file", "task_file_of"]

T = TypeVar("T")
_SECTIONS = ("task", "model", "inputs", "budget", "check")
# Keys that a task names when it is made: in a file they stand in the section [task].
_OWN_KEYS = ("name", "version", "goal", "planner", "planning", "tools")
_TEXT_FIXES = {
    "task.name": 'write name = "my-task"',
    "task.goal": 'say in a sentence what is to be reached, as in goal = "Write the yearly report"',
    "task.planner": 'name the function that plans, as in planner = "plan.py:plan", or a model in its place: model = "PROVIDER/NAME"',
}
_TASK_KEYS = (
    "name",
    "version",
    "goal",
    "planner",
    "model",
    "planning",
    "tools",
    "children",
    "workspace",
    "policy",
    "hooks",
    "on_failure",
    "verify_seconds",
)


def task_file_of(path: Path) -> Path:
    """Return the task file that a path means: itself, or `task.toml` in the folder.

    Raises:
        TaskError: there is no such file.
    """
    file = path / "task.toml" if path.is_dir() else path
    if not file.is_file():
        raise TaskError(str(path), "", "there is no task file", "name a task.toml, or a folder that holds one")
    return file


def read_task_file(file: Path, content: bytes | None = None) -> Mapping[str, object]:
    """Return the parsed TOML of a task file, with its sections checked for unknown names.

    Args:
        file: the file.
        content: its bytes, when they were read before; the file is not read then.

    Raises:
        TaskError: it cannot be read, is no TOML (with line and column), or has an unknown section or key.
    """
    try:
        data: Mapping[str, object] = tomllib.loads((file.read_bytes() if content is None else content).decode())
    except OSError as error:
        raise TaskError(
            str(file), "", f"cannot be read: {error.strerror}", "check the path and its permissions"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TaskError(str(file), "", f"is no TOML: {error}", "correct that place") from error
    _known(file, "", data, _SECTIONS)
    _known(file, "task", _table(file, "task", data.get("task")), _TASK_KEYS)
    return data


def load_task(path: Path, resolve: Resolver, content: bytes | None = None) -> Task:
    """Return the task of a file or folder.

    Args:
        path: the file or folder.
        resolve: gives objects for the names in the file.
        content: the file's bytes, when they were read before (and hashed, say); the file is not read then.

    Raises:
        TaskError: naming file, key and fix.
    """
    file = task_file_of(path)
    data = read_task_file(file, content)
    table = _table(file, "task", data.get("task"))
    planned = _planned(file, data, resolve)
    policy = (
        allow_listed
        if "policy" not in table
        else _resolved(file, "task.policy", resolve.policy, _string(file, "task.policy", table["policy"]))
    )
    hooks = (
        None
        if "hooks" not in table
        else _resolved(file, "task.hooks", resolve.hooks, _string(file, "task.hooks", table["hooks"]))
    )
    try:
        return Task(
            name=_string(file, "task.name", table.get("name")),
            version=_integer(file, "task.version", table.get("version", 1)),
            goal=_string(file, "task.goal", table.get("goal")),
            planner=planned.planner,
            model=planned.model,
            model_data=planned.data,
            planning=cast("Planning", table.get("planning", "calls")),
            tools=tuple(
                _resolved(file, "task.tools", resolve.tool, name)
                for name in _strings(file, "task.tools", table.get("tools", []))
            ),
            children=_children(file, table, resolve),
            budget=_budget(file, _table(file, "budget", data.get("budget", {}))),
            checks=_checks(file, data.get("check", []), resolve),
            inputs=_inputs(file, _table(file, "inputs", data.get("inputs", {}))),
            workspace=_workspace(file, table),
            on_failure=_on_failure(file, table.get("on_failure", "replan")),
            verify_seconds=_seconds(file, "task.verify_seconds", table.get("verify_seconds", 60)),
            code_hash=resolve.code_hash,
            source=str(file),
            policy=policy,
            hooks=hooks,
        )
    except TaskError as error:
        if error.key not in _OWN_KEYS:
            raise
        raise TaskError(error.source, f"task.{error.key}", error.problem, error.fix) from error


class _Planned(msgspec.Struct, frozen=True):
    """Who plans: a planner, or a model and how it was named."""

    planner: SessionPlanner = unplanned
    model: Model | None = None
    data: Mapping[str, object] = {}


def _planned(file: Path, data: Mapping[str, object], resolve: Resolver) -> _Planned:
    """Return who plans.

    Raises:
        TaskError: nobody, two, or a model that cannot be made.
    """
    table = _table(file, "task", data.get("task"))
    if "model" not in table:
        if "model" in data:
            raise TaskError(
                str(file), "[model]", "sets a model, and the task has none", 'name it in [task]: model = "…"'
            )
        planner = _string(file, "task.planner", table.get("planner"))
        return _Planned(_resolved(file, "task.planner", resolve.planner, planner))
    if "planner" in table:
        raise TaskError(str(file), "task.model", "stands beside a planner", "keep the one that is to plan")
    name = _string(file, "task.model", table["model"])
    try:
        settings = JsonObject(_table(file, "model", data.get("model", {})))
    except InvalidJson as error:
        raise TaskError(str(file), "model", str(error), "write dates as text") from error
    model = _resolved(file, "task.model", lambda name: resolve.model(name, settings), name)
    return _Planned(model=model, data={"name": name, "settings": settings.decoded()})


def _known(file: Path, where: str, table: Mapping[str, object], names: Iterable[str]) -> None:
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(key, list(names), n=1)
            fix = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
            raise TaskError(str(file), f"{where}.{key}" if where else key, "is unknown", fix)


def _table(file: Path, key: str, value: object) -> Mapping[str, object]:
    if isinstance(value, Mapping):
        return cast("Mapping[str, object]", value)
    raise TaskError(str(file), f"[{key}]", "is missing" if value is None else "is no table", f"add a [{key}] section")


def _string(file: Path, key: str, value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value
    problem = "is missing" if value is None else f"{value!r:.80} is no text"
    raise TaskError(str(file), key, problem, _TEXT_FIXES.get(key, f'write {key.rpartition(".")[2]} = "text"'))


def _strings(file: Path, key: str, value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(_string(file, f"{key}[{index}]", item) for index, item in enumerate(cast("list[object]", value)))
    raise TaskError(str(file), key, "is no list", 'write ["one", "two"]')


def _integer(file: Path, key: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TaskError(str(file), key, f"{value!r:.80} is no whole number", "write a number without quotes")


def _seconds(file: Path, key: str, value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        return float(value)
    raise TaskError(str(file), key, f"{value!r:.80} is no time", "write seconds, more than 0")


def _on_failure(file: Path, value: object) -> OnFailure:
    if value in {"replan", "skip", "abort"}:
        return cast("OnFailure", value)
    raise TaskError(str(file), "task.on_failure", f"{value!r:.80} is unknown", "use replan, skip or abort")


def _budget(file: Path, table: Mapping[str, object]) -> Budget:
    _known(file, "budget", table, LIMITS)
    limits: dict[str, float] = {}
    for key, value in table.items():
        whole = key not in {"wall_seconds", "cost"}
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            raise TaskError(
                str(file),
                f"budget.{key}",
                f"{value!r:.80} is no {'whole ' if whole else ''}number",
                "write a number, 0 or more",
            )
        if value < 0:
            raise TaskError(str(file), f"budget.{key}", f"{value} is less than 0", "write a number, 0 or more")
        limits[key] = cast("float", value)
    try:
        return Budget(**limits)  # pyright: ignore[reportArgumentType]  # whole numbers were checked above
    except DataError as error:
        raise TaskError(str(file), "budget", str(error), "correct that limit") from error


def _workspace(file: Path, table: Mapping[str, object]) -> Path:
    return file.resolve().parent / _string(file, "task.workspace", table.get("workspace", "out"))


def _children(file: Path, table: Mapping[str, object], resolve: Resolver) -> tuple[Task, ...]:
    """Return the tasks whose runs the task's tools may start; what is wrong in one of their files is said of that file."""
    children: list[Task] = []
    place = _workspace(file, table)
    for name in _strings(file, "task.children", table.get("children", [])):
        try:
            child = resolve.child(name)
        except LookupError as error:
            raise TaskError(
                str(file), "task.children", _reason(error), "name another task file of the folder"
            ) from error
        if not Path(os.path.normpath(child.workspace)).is_relative_to(os.path.normpath(place)):
            raise TaskError(
                str(file),
                "task.children",
                f"the results of {child.name} would not be below {place.name}, where this task's are, and so count as code",
                f'write workspace = "{table.get("workspace", "out")}/{child.name}" in {name}',
            )
        children.append(child)
    return tuple(children)


def _inputs(file: Path, table: Mapping[str, object]) -> Mapping[str, Path]:
    base = file.resolve().parent
    return {name: base / _string(file, f"inputs.{name}", value) for name, value in table.items()}


def _checks(file: Path, value: object, resolve: Resolver) -> tuple[Check, ...]:
    if not isinstance(value, list):
        raise TaskError(str(file), "check", "is no list of tables", "write [[check]] with two brackets")
    made: list[Check] = []
    for index, item in enumerate(cast("list[object]", value)):
        key = f"check[{index}]"
        table = dict(_table(file, key, item))
        kind = _string(file, f"{key}.kind", table.pop("kind", None))
        name = table.pop("id", "")
        if not isinstance(name, str):
            raise TaskError(str(file), f"{key}.id", f"{name!r:.80} is no text", 'write id = "text"')
        try:
            verifier = resolve.check(kind, JsonObject(table).decoded())
        except InvalidJson as error:
            raise TaskError(str(file), key, str(error), "write dates as text") from error
        except LookupError as error:
            raise TaskError(
                str(file), f"{key}.kind", _reason(error), "see the list of kinds in docs/checks.md"
            ) from error
        except TaskError as error:
            raise TaskError(str(file), f"{key}.{error.key}" if error.key else key, error.problem, error.fix) from error
        made.append(Check(verifier, name))
    return tuple(made)


def _resolved(file: Path, key: str, resolve: Callable[[str], T], name: str) -> T:
    try:
        return resolve(name)
    except LookupError as error:
        raise TaskError(str(file), key, _reason(error), "correct the name") from error
    except MissingExtra:
        raise
    except TaskError as error:
        raise TaskError(str(file), key, error.problem, error.fix) from error


def _reason(error: LookupError) -> str:
    return str(error.args[0]) if error.args else "not found"
