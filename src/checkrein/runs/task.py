"""A task: a goal, who plans it, with which tools, within which budget, and what proves that it was reached.

A task is valid or it is not a `Task`: everything that can be known before a run is stored is checked on creation, and the error names key and fix. A task
without any check is refused, because then nothing could prove success. `taskfile.py` makes tasks from TOML.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, cast, get_args

import msgspec
from msgspec.structs import force_setattr

from checkrein.errors import TaskError
from checkrein.harness.asking import SessionPlanner
from checkrein.harness.hooks import Hooks
from checkrein.harness.model_planner import ModelPlanner
from checkrein.harness.permission import Policy, allow_listed
from checkrein.harness.planners import Planner, PlannerAnswer
from checkrein.harness.structured import StructuredPlanner
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import CheckSpec, TaskRecord, ToolSpec
from checkrein.kernel.session_next import OnFailure
from checkrein.ports.model import Model
from checkrein.ports.tool import Tool
from checkrein.ports.verifier import Verifier
from checkrein.values import JsonObject

__all__ = ["Check", "InstallHooks", "OfRun", "Planning", "Resolver", "Task", "tool_spec"]

Planning: TypeAlias = Literal["calls", "steps"]
OfRun: TypeAlias = Callable[["Task", TaskRecord], "Task"]
"""Returns a task as a stored run of it needs it, before the run is claimed."""
InstallHooks: TypeAlias = Callable[[Hooks], None]
"""Registers a task's hooks; called each time a worker begins to drive a run, with hooks of its own."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")


def unplanned(_goal: str, _history: object, _last_error: object) -> PlannerAnswer:
    """Stand for a planner that was not given."""
    msg = "the task has no planner"
    raise LookupError(msg)


class Check(msgspec.Struct, frozen=True):
    """A required check: a verifier under an id.

    Attributes:
        verifier: what measures.
        id: unique in the task; by default made of the verifier's kind and subject.
    """

    verifier: Verifier
    id: str = ""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done, and what proves that it was.

    Attributes:
        name: 1 to 64 of letters, digits, `_`, `.`, `-`; workers find their runs by it.
        version: a whole number from 1; raise it when the meaning of the task changes.
        goal: what is to be reached, in words.
        planner: decides the steps: a function, or what sees the turn as a model does.
        model: decides the steps, in place of a planner: each turn of it is a planning.
        model_data: how the model was named, which is stored with each run; it must hold no secret.
        planning: how a model plans: by calling tools, or by drafting plans of several `steps`.
        tools: the tools that steps may use; names are unique.
        children: the tasks whose runs its tools may start; a worker that has this task advances those runs too.
        budget: limits of one run.
        checks: what must be proved, at least one; a bare verifier is a check under a default id.
        inputs: read-only files by name.
        workspace: folder in which each run gets its own; made when missing.
        policy: what is permitted.
        hooks: registers the hooks of its sessions.
        on_failure: what follows a failed step.
        verify_seconds: how long one measurement may take.
        code_hash: hash of the code the task brings; `""` when it brings none that is watched.
        source: where it comes from, for messages.
        of_run: gives the task for one stored run; None for the same task for every run.

    Raises:
        TaskError: on creation, naming the key and what to do.
    """

    name: str
    goal: str
    checks: Sequence[Check | Verifier]
    planner: SessionPlanner = unplanned
    model: Model | None = None
    model_data: Mapping[str, object] = {}
    planning: Planning = "calls"
    version: int = 1
    tools: Sequence[Tool] = ()
    children: "Sequence[Task]" = ()
    budget: Budget = Budget()
    inputs: Mapping[str, Path] = {}
    workspace: Path = Path("out")
    policy: Policy = allow_listed
    hooks: InstallHooks | None = None
    on_failure: OnFailure = "replan"
    verify_seconds: float = 60.0
    code_hash: str = ""
    source: str = "task"
    of_run: OfRun | None = None

    def __post_init__(self) -> None:
        """Check everything that can be known now; paths may be given as text, and a model plans by itself."""
        if self.model is not None and self.planner is unplanned:
            force_setattr(self, "planner", self.planned_by(self.model))
        for key, is_right, problem, fix in _demands(self):
            if not is_right:
                raise TaskError(self.source, key, problem, fix)
        force_setattr(self, "workspace", Path(self.workspace))
        force_setattr(self, "inputs", {name: Path(path) for name, path in self.inputs.items()})
        for name, path in self.inputs.items():
            if not path.is_file():
                raise TaskError(
                    self.source, f"inputs.{name}", f"{path} is no file", "correct the path, relative to the task file"
                )
        _refuse_twice(self.source, "tools", [tool.name for tool in self.tools])
        _refuse_twice(self.source, "children", [child.name for child in self.children])
        for tool in self.tools:
            _refuse_without_schema(self.source, tool)
        _refuse_twice(self.source, "check", [check.id for check in self.required_checks()])

    @classmethod
    def load(cls, path: "str | Path", *, resolve: "Resolver") -> "Task":
        """Return the task of a TOML file; see `checkrein.runs.taskfile`.

        Args:
            path: the file, or a folder that holds `task.toml`.
            resolve: gives objects for the names in the file.

        Raises:
            TaskError: the file cannot be read, or something in it is wrong.
        """
        from checkrein.runs.taskfile import load_task

        return load_task(Path(path), resolve)

    def required_checks(self) -> tuple[Check, ...]:
        """Return the checks, each with its id; default ids are made unique by a number."""
        named: list[Check] = []
        taken: set[str] = set()
        for given in self.checks:
            check = given if isinstance(given, Check) else Check(given)
            if check.id:
                named.append(check)
                continue
            base = ":".join(part for part in (check.verifier.kind, check.verifier.subject) if part)
            name, number = base, 2
            while name in taken:
                name, number = f"{base}#{number}", number + 1
            taken.add(name)
            named.append(Check(check.verifier, name))
        return tuple(named)

    def planned_by(self, model: Model, settings: Mapping[str, object] | None = None) -> ModelPlanner:
        """Return the planner that a model is for this task.

        Args:
            model: answers its requests.
            settings: the provider's settings for each of them.
        """
        kind = StructuredPlanner if self.planning == "steps" else ModelPlanner
        return kind(model, settings=settings)

    def tool(self, name: str) -> Tool | None:
        """Return the tool of that name, if the task lists it."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def child(self, name: str) -> "Task | None":
        """Return the task of that name among those whose runs its tools may start."""
        return next((child for child in self.children if child.name == name), None)

    def family(self) -> "Iterator[Task]":
        """Yield the task and, each after its parent, all below it; one that stands in several places comes several times."""
        yield self
        for child in self.children:
            yield from child.family()

    def record(self) -> TaskRecord:
        """Return the facts that a run keeps; reads the inputs to take their digests."""
        return TaskRecord(
            name=self.name,
            version=self.version,
            goal=self.goal,
            code_hash=self.code_hash,
            checks=tuple(
                CheckSpec(id=check.id, kind=check.verifier.kind, subject=check.verifier.subject, title=check.verifier.title)
                for check in self.required_checks()
            ),
            tools=tuple(tool_spec(tool) for tool in self.tools),
            data=JsonObject({
                "inputs": {name: {"path": str(path), "sha256": _digest(path)} for name, path in sorted(self.inputs.items())},
                "source": self.source,
                "workspace": str(self.workspace),
                **({"model": dict(self.model_data)} if self.model_data else {}),
            }),
        )  # fmt: skip


class Resolver(Protocol):
    """Gives objects for the names in a task file; implemented where code is composed, because nothing is ever imported by `runs` itself."""

    @property
    def code_hash(self) -> str:
        """Return the hash of the task's code, `""` when it brings none."""
        ...

    def planner(self, name: str) -> Planner:
        """Return the planner of that name.

        Raises:
            LookupError: there is none; the message is shown with file and key.
        """
        ...

    def model(self, name: str, settings: Mapping[str, object]) -> Model:
        """Return the model of that name, with these settings.

        Raises:
            LookupError: there is none; the message is shown with file and key.
            TaskError: a setting is wrong, or its key is missing.
        """
        ...

    def tool(self, name: str) -> Tool:
        """Return the tool of that name.

        Raises:
            LookupError: there is none; the message is shown with file and key.
        """
        ...

    def check(self, kind: str, options: Mapping[str, object]) -> Verifier:
        """Return a verifier of that kind.

        Raises:
            LookupError: there is none; the message is shown with file and key.
            TaskError: an option is wrong.
        """
        ...

    def hooks(self, name: str) -> InstallHooks:
        """Return the function of that name that registers hooks.

        Raises:
            LookupError: there is none; the message is shown with file and key.
        """
        ...

    def child(self, name: str) -> Task:
        """Return the task of another task file of the folder.

        Raises:
            LookupError: there is none; the message is shown with file and key.
            TaskError: that file is wrong.
        """
        ...

    def policy(self, name: str) -> Policy:
        """Return the policy of that name.

        Raises:
            LookupError: there is none; the message is shown with file and key.
        """
        ...


def _demands(task: Task) -> Iterator[tuple[str, bool, str, str]]:
    """Yield what a task must be: the key, whether it is so, what is wrong else, and how it is mended. Nothing is taken for granted: tasks are made by hand."""
    name, version, goal = cast("tuple[object, object, object]", (task.name, task.version, task.goal))
    yield (
        "name",
        isinstance(name, str) and _NAME.match(name) is not None,
        f"{name!r:.80} is no name",
        "use 1 to 64 letters, digits, `_`, `.` or `-`",
    )
    is_count = isinstance(version, int) and not isinstance(version, bool) and version >= 1
    yield "version", is_count, f"{version!r:.80} is no version", "use a whole number from 1"
    is_said = isinstance(goal, str) and bool(goal.strip())
    yield "goal", is_said, "it is empty, or no text", "say in a sentence what is to be reached"
    yield "planner", task.planner is not unplanned, "the task has none", "give a planner, or a model"
    yield (
        "planner",
        callable(task.planner) or hasattr(task.planner, "draft"),
        "it cannot be called",
        "give a function (goal, history, last_error)",
    )
    planning = cast("object", task.planning)
    yield "planning", planning in get_args(Planning), f"{planning!r:.80} is unknown", "use calls or steps"
    yield "policy", callable(task.policy), "it cannot be called", "give a function (tool, arguments)"
    has_hooks = task.hooks is None or callable(task.hooks)
    yield "hooks", has_hooks, "it cannot be called", "give a function (hooks) that registers them"
    yield from _demands_of_parts(task)
    budget, on_failure, seconds = cast(
        "tuple[object, object, object]", (task.budget, task.on_failure, task.verify_seconds)
    )
    yield "budget", isinstance(budget, Budget), f"{type(budget).__name__} is no Budget", "give Budget(tool_calls=…)"
    yield "on_failure", on_failure in get_args(OnFailure), f"{on_failure!r:.80} is unknown", "use replan, skip or abort"
    is_time = isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 < seconds < float("inf")
    yield "verify_seconds", is_time, f"{seconds!r:.80} is no time", "give seconds, more than 0"


def _demands_of_parts(task: Task) -> Iterator[tuple[str, bool, str, str]]:
    """Yield what tools, checks and files must be."""
    tools, checks = cast("tuple[object, object]", (task.tools, task.checks))
    strange = next((item for item in _items(tools) if not _has(item, "name", "call", "traits")), None)
    yield "tools", _is_list(tools), "it is no list", "give a list of tools"
    yield "tools", strange is None, f"{strange!r:.80} is no tool", "decorate the function with @tool"
    no_task = next((item for item in _items(task.children) if not isinstance(item, Task)), None)
    yield "children", _is_list(task.children), "it is no list", "give a list of tasks"
    yield "children", no_task is None, f"{no_task!r:.80} is no task", "give a Task"
    yield "check", _is_list(checks), "it is no list", "give a list of checks"
    none = "add at least one [[check]]: without evidence there is no success"
    yield "check", bool(checks), "the task has none", none
    other = next(
        (item for item in _items(checks) if not (isinstance(item, Check) or _has(item, "kind", "measure"))), None
    )
    yield "check", other is None, f"{other!r:.80} is no check", "decorate the function with @check"
    inputs, workspace = cast("tuple[object, object]", (task.inputs, task.workspace))
    yield "inputs", isinstance(inputs, Mapping), "it is no mapping", "give paths by name"
    no_path = next(
        (name for name, path in task.inputs.items() if not isinstance(cast("object", path), (str, Path))), None
    )
    yield f"inputs.{no_path}", no_path is None, "it is no path", "give the path of a file"
    yield "workspace", isinstance(workspace, (str, Path)), "it is no path", "give the path of a folder"


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _items(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if _is_list(value) else ()


def _has(item: object, *names: str) -> bool:
    return not isinstance(item, type) and all(hasattr(item, name) for name in names)


def tool_spec(tool: Tool) -> ToolSpec:
    """Return what a tool declares, as it is stored."""
    traits = tool.traits
    return ToolSpec(
        name=tool.name, idempotent=traits.idempotent, cancellable=traits.cancellable, has_probe=traits.has_probe
    )


def _refuse_twice(source: str, key: str, names: list[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise TaskError(source, key, f"{twice!r} stands there twice", "give each its own name")


def _refuse_without_schema(source: str, tool: Tool) -> None:
    """Refuse a tool whose arguments cannot be described: every call of it would fail."""
    try:
        _ = tool.schema
    except TypeError as error:
        raise TaskError(source, "tools", str(error), "give every parameter a type that JSON can carry") from error


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
