"""The composition of a task: what its names mean.

`file.py:attr` is the task's own code, from the trusted folder; every other name is looked up among the installed entry points of the groups `checkrein.tools`,
`checkrein.checks` and `checkrein.models`, where the shipped ones are registered too. Nothing is ever imported by a name that is in neither place.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final, Protocol, TypeVar, cast

from msgspec.structs import replace

from checkrein.cli.loader import attribute_of, is_code_name
from checkrein.cli.trust import TaskFolder
from checkrein.cli.unchanged import Unchanged, names_task_folder
from checkrein.errors import MissingExtra, TaskError
from checkrein.harness.permission import Policy
from checkrein.harness.planners import Planner
from checkrein.ports.model import Model
from checkrein.ports.tool import Tool
from checkrein.ports.verifier import Verifier
from checkrein.runs.task import InstallHooks, Task
from checkrein.runs.taskfile import load_task, read_task_file
from checkrein.verify.base import Check, TaskFiles
from checkrein.verify.functions import make_function_check
from checkrein.verify.kinds import make_check

__all__ = ["EXTRAS", "FolderResolver", "brings_code", "installed"]

T = TypeVar("T")

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "documents": ("pypdf", "openpyxl", "defusedxml"),
    "example": ("matplotlib",),
    "mcp": ("mcp",),
    "models": ("openai", "anthropic", "genai_prices", "bpe_openai"),
    "postgres": ("psycopg", "psycopg_pool"),
}
"""The optional parts of checkrein, and the modules that each brings."""

_TOOLS: Final = "checkrein.tools"
_CHECKS: Final = "checkrein.checks"


class MakesModels(Protocol):
    """Makes the models that task files name."""

    def for_file(self, name: str, settings: Mapping[str, object]) -> Model:
        """Return the model of that name.

        Raises:
            CheckreinError: it cannot be made.
        """
        ...

    def for_child(self) -> "MakesModels":
        """Return what makes the models of the task's children."""
        ...

    def planning(self, task: Task) -> Task:
        """Return a task with its model as planner, if it names one.

        Raises:
            CheckreinError: it cannot be made.
        """
        ...


class FolderResolver:
    """Gives objects for the names in one task file.

    Args:
        folder: the folder that holds it.
        root: the folder that was hashed, when the file is that of a child.
        above: the task files that have this one among their children.
        models: makes the model that the file names; None when none may be named.
    """

    def __init__(
        self,
        folder: TaskFolder,
        *,
        root: TaskFolder | None = None,
        above: tuple[Path, ...] = (),
        models: "MakesModels | None" = None,
    ) -> None:
        self._folder = folder
        self._models = models
        self._root = root or folder
        self._above = (*above, folder.file)

    @property
    def code_hash(self) -> str:
        """Return the hash of the task's folder."""
        return self._folder.code_hash

    def planner(self, name: str) -> Planner:
        """Return the planner of that name.

        Raises:
            LookupError: it is no code of the task, or cannot be called.
            TaskError: its file cannot be imported.
        """
        return cast("Planner", self._callable(name, "task.planner"))

    def model(self, name: str, settings: Mapping[str, object]) -> Model:
        """Return the model of that name.

        Raises:
            LookupError: no model may be named here.
            CheckreinError: it cannot be made.
        """
        if self._models is None:
            msg = "whoever loads the task makes no models"
            raise LookupError(msg)
        return self._models.for_file(name, settings)

    def policy(self, name: str) -> Policy:
        """Return the policy of that name.

        Raises:
            LookupError: it is no code of the task, or cannot be called.
            TaskError: its file cannot be imported.
        """
        return cast("Policy", self._callable(name, "task.policy"))

    def hooks(self, name: str) -> InstallHooks:
        """Return the function of that name that registers hooks.

        Raises:
            LookupError: it is no code of the task, or cannot be called.
            TaskError: its file cannot be imported.
        """
        return cast("InstallHooks", self._callable(name, "task.hooks"))

    def child(self, name: str) -> Task:
        """Return the task of another task file of the folder, with the hash of the whole folder.

        Raises:
            LookupError: the file is not among those hashed, or has this task among its own children.
            TaskError: that file is wrong.
        """
        if name not in self._folder.files or not name.endswith(".toml"):
            known = ", ".join(sorted(file for file in self._folder.files if file.endswith(".toml")))
            msg = f"there is no task file {name!r} in the folder; it has {known}"
            raise LookupError(msg)
        folder = _folder_of(self._folder, name)
        if folder.file in self._above:
            msg = f"{name} is the task itself, or has it among its children"
            raise LookupError(msg)
        models = None if self._models is None else self._models.for_child()
        resolver = FolderResolver(folder, root=self._root, above=self._above, models=models)
        task = load_task(folder.file, resolver, self._folder.files[name])
        task = task if models is None else models.planning(task)
        return replace(task, source=str(self._root.file))

    def _callable(self, name: str, key: str) -> object:
        if not is_code_name(name):
            msg = f"{name!r} names no code of the task; write `file.py:function`"
            raise LookupError(msg)
        found = self._own(name, key)
        if not callable(found):
            msg = f"{name} is {type(found).__name__}, which cannot be called"
            raise LookupError(msg)  # noqa: TRY004  the name is wrong, and that is how resolvers say so
        return found

    def tool(self, name: str) -> Tool:
        """Return the tool of that name: the task's own, or an installed one.

        Raises:
            LookupError: there is none, or it is no tool.
            TaskError: it cannot be imported.
        """
        found = self._own(name, "task.tools") if is_code_name(name) else installed(_TOOLS, name, "tool")
        if not isinstance(getattr(found, "name", None), str) or not callable(getattr(found, "call", None)):
            msg = f"{name} is no tool; decorate the function with @tool"
            raise LookupError(msg)  # noqa: TRY004  the name is wrong, and that is how resolvers say so
        return cast("Tool", found)

    def check(self, kind: str, options: Mapping[str, object]) -> Verifier:
        """Return a check of that kind: the task's own function, or an installed kind.

        Raises:
            LookupError: there is no such function.
            TaskError: there is no such kind, an option is wrong, or the function's file cannot be imported.
        """
        source = str(self._folder.file)
        if is_code_name(kind):
            return make_function_check(kind, self._own(kind, "kind"), options, source=source)
        files = TaskFiles(self._folder.folder, self._folder.files)
        made = make_check(kind, options, source=source, base=files, inputs=self._inputs(), kinds=_InstalledKinds())
        return Unchanged(made, self._root) if _needs_trust(kind) and names_task_folder(options) else made

    def _inputs(self) -> list[str]:
        inputs = self._folder.data.get("inputs", {})
        return list(cast("Mapping[str, object]", inputs)) if isinstance(inputs, Mapping) else []

    def _own(self, name: str, key: str) -> object:
        return _without_missing(str(self._folder.file), key, lambda: attribute_of(self._folder, name))


def _folder_of(whole: TaskFolder, name: str) -> TaskFolder:
    """Return the part of a hashed folder that a task file in it may name."""
    file, (place, _, _) = whole.folder / name, name.rpartition("/")
    prefix = f"{place}/" if place else ""
    files = {path.removeprefix(prefix): content for path, content in whole.files.items() if path.startswith(prefix)}
    return replace(whole, file=file, files=files, data=read_task_file(file, whole.files[name]))


def brings_code(folder: TaskFolder) -> bool:
    """Tell whether the folder would have anything done by itself: Python files, names of its own code, checks whose options are commands, or a model, which is asked at an address."""
    if any(name.endswith(".py") for name in folder.files):
        return True
    task, checks = folder.data.get("task"), folder.data.get("check", [])
    names: list[object] = []
    if isinstance(task, Mapping):
        table = cast("Mapping[str, object]", task)
        if table.get("children"):
            return True  # their files are not looked into
        if "model" in table or "model" in folder.data:
            return True  # it is asked in the user's name and for the user's money, where the folder says
        tools = table.get("tools", [])
        names += [
            table.get("planner"),
            table.get("policy"),
            table.get("hooks"),
            *(cast("list[object]", tools) if isinstance(tools, list) else []),
        ]
    kinds = [
        cast("Mapping[str, object]", item).get("kind")
        for item in (cast("list[object]", checks) if isinstance(checks, list) else [])
        if isinstance(item, Mapping)
    ]
    return any(isinstance(name, str) and is_code_name(name) for name in (*names, *kinds)) or any(
        map(_needs_trust, kinds)
    )


def _needs_trust(kind: object) -> bool:
    """Tell whether a kind's options are code; of a kind that cannot be asked it is assumed."""
    known = _points(_CHECKS)
    if not isinstance(kind, str) or kind not in known:
        return False  # an unknown kind makes the task invalid, so nothing of it is run
    try:
        return bool(getattr(known[kind].load(), "needs_trust", True))
    except ImportError:
        return True


@cache
def _points(group: str) -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def installed(group: str, name: str, what: str, *, source: str = "task") -> object:
    """Return what an installed entry point names.

    Raises:
        LookupError: there is none of that name.
        MissingExtra: it needs an optional part of checkrein.
        TaskError: it cannot be imported; `source` is where the name comes from.
    """
    points = _points(group)
    if name not in points:
        near = difflib.get_close_matches(name, list(points), n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        msg = f"no {what} {name!r} is installed; {hint}installed are {', '.join(sorted(points)) or 'none'}"
        raise LookupError(msg)
    return _without_missing(source, name, points[name].load)


def _without_missing(source: str, key: str, load: Callable[[], T]) -> T:
    """Return what `load` returns.

    Raises:
        MissingExtra: a module is missing that an optional part of checkrein brings.
        TaskError: any other module is missing.
        LookupError: what `load` raises.
    """
    try:
        return load()
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        extra = next((extra for extra, modules in EXTRAS.items() if missing in modules), None)
        if extra is not None:
            raise MissingExtra(source, key, extra) from error
        if missing:
            raise TaskError(source, key, f"it needs the module {missing!r}", "install it beside checkrein") from error
        raise TaskError(source, key, f"it cannot be imported: {error}", "correct that import") from error


class _InstalledKinds(Mapping[str, type[Check]]):
    """The installed kinds of checks; one is loaded when it is asked for."""

    def __getitem__(self, kind: str) -> type[Check]:
        return _without_missing("task", "kind", lambda: cast("type[Check]", _points(_CHECKS)[kind].load()))

    def __iter__(self) -> Iterator[str]:
        return iter(_points(_CHECKS))

    def __len__(self) -> int:
        return len(_points(_CHECKS))

    def __contains__(self, kind: object) -> bool:
        return kind in _points(_CHECKS)
