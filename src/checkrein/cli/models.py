"""Models by name: what a command line, a task file or a stored run says about who plans, and the model that comes of it.

A name is `PROVIDER/MODEL`; providers are the installed entry points of the group `checkrein.models`: functions that take what follows the first `/` (`""` when nothing
does) and, where something is set, the settings, and return a model. Nothing is ever imported by another name. The invariant: what is stored with a run holds no key; a key
is read from the environment alone.
"""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from checkrein.cli.exits import Usage
from checkrein.cli.resolver import installed
from checkrein.errors import CheckreinError
from checkrein.kernel.events import TaskRecord
from checkrein.ports.model import Model
from checkrein.providers.model import WireModel
from checkrein.providers.record import FileRecorder
from checkrein.providers.registry import keys_of_environment
from checkrein.runs.task import Task
from checkrein.values import JsonObject

__all__ = ["GROUP", "ModelChoice", "Models", "briefing", "read_choice", "stored_choice"]

GROUP: Final = "checkrein.models"
_HINT: Final = f"checkrein models lists them; further ones are packages with an entry point of the group {GROUP}"
_NOTHING: Final[Mapping[str, object]] = {}


class ModelChoice(msgspec.Struct, frozen=True):
    """Which model is wanted.

    Attributes:
        name: as `PROVIDER/MODEL`; `""` for the one that the task or the run names.
        settings: set by hand; they are added to those of the task or the run where the model is the same.
        record: where to keep what goes over the wire; None for nowhere.
        goes_on: go on with a record that is there.
    """

    name: str = ""
    settings: Mapping[str, object] = {}
    record: Path | None = None
    goes_on: bool = False

    def over(self, other: "ModelChoice") -> "ModelChoice":
        """Return this choice, with what it leaves open from the other one."""
        if self.name and self.name != other.name:
            return self
        return replace(self, name=other.name, settings={**other.settings, **self.settings})

    @property
    def data(self) -> Mapping[str, object]:
        """What is stored with a run; empty when there is no model."""
        return {"name": self.name, "settings": dict(self.settings)} if self.name else {}


def read_choice(name: str, config: Sequence[str], record: Path | None) -> ModelChoice:
    """Return the choice of a command line.

    Raises:
        Usage: a setting is no `key=value`, or holds a key or password.
    """
    settings: dict[str, object] = {}
    for item in config:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            msg = f"-c {item}: write it as key=value, such as -c temperature=0"
            raise Usage(msg)
        settings[key.strip()] = value
    _refuse_secrets(settings, "-c ")
    return ModelChoice(name, settings, record)


def _refuse_secrets(settings: Mapping[str, object], place: str) -> None:
    """Refuse settings that hold a secret: they are stored with the run.

    Raises:
        Usage: one does; it is not shown.
    """
    keys = keys_of_environment()
    for name, value in settings.items():
        text = value if isinstance(value, str) else JsonObject({"value": value}).encoded.decode()
        if any(key in text for key in keys) or (name == "base_url" and _has_password(text)):
            msg = f"{place}{name} holds a key or password, which would be stored with the run; set it in the environment, the only place that keys are read from"
            raise Usage(msg)


def _has_password(url: str) -> bool:
    try:
        return "@" in urlsplit(url).netloc
    except ValueError:
        return False


class Models:
    """Makes the models of one command, each once.

    Args:
        choice: what the command line says.
    """

    def __init__(self, choice: ModelChoice | None = None) -> None:
        self._choice = choice or ModelChoice()
        self._made: dict[bytes, Model] = {}
        self._recorder: FileRecorder | None = None

    @property
    def typed(self) -> tuple[str, ...]:
        """The words of the command line that say it."""
        choice = self._choice
        named = [("--model", choice.name)] if choice.name else []
        named += [("-c", f"{key}={value}") for key, value in choice.settings.items()]
        named += [] if choice.record is None else [("--record", str(choice.record))]
        return tuple(word for pair in named for word in pair)

    def chosen(self) -> Model:
        """Return the model that the command line names.

        Raises:
            Usage: none is named, or it cannot be made.
            CheckreinError: as `model`.
        """
        return self._chosen(self._choice)

    def model(self, name: str, settings: Mapping[str, object] = _NOTHING) -> Model:
        """Return the model of that name with these settings.

        Raises:
            Usage: none is installed under it, or it makes no model.
            TaskError: it cannot be imported, a setting is wrong, or its key is missing.
            CheckreinError: the provider's own, such as a `MissingExtra`.
        """
        _refuse_secrets(settings, "the setting ")
        identity = JsonObject({"name": name, "settings": dict(settings)}).encoded
        if identity not in self._made:
            self._made[identity] = _made(name, settings)
        return self._made[identity]

    def for_file(self, name: str, settings: Mapping[str, object]) -> Model:
        """Return the model for a task file that names one: the one of the command line before that of the file.

        Raises:
            Usage: as `model`.
            CheckreinError: as `model`.
        """
        choice = self._choice.over(ModelChoice(name, settings))
        return self.model(choice.name, choice.settings)

    def for_child(self) -> "Models":
        """Return what makes the models of a task's children, which the command line says nothing about."""
        return Models()

    def planning(self, task: Task) -> Task:
        """Return a task that is planned by the chosen model, if one is named by the command line or the task.

        Raises:
            Usage: a model is set or recorded, and none is named.
            CheckreinError: as `model`.
        """
        choice = self._choice.over(_stored(task.model_data))
        if choice.name:
            task = self._planned(task, choice)
        elif choice.settings or choice.record is not None:
            msg = f"-c and --record are about a model, and task {task.name} is planned without one; name one with --model PROVIDER/MODEL"
            raise Usage(msg)
        return replace(task, of_run=self._of_run)

    def _of_run(self, task: Task, record: TaskRecord) -> Task:
        """Return a task as a stored run of it is planned: by the model of the command line, or by that of the run.

        Raises:
            Usage: as `model`.
            CheckreinError: as `model`.
        """
        stored = stored_choice(record)
        if self._choice.name or not stored.name or stored.data == task.model_data:
            return task
        return self._planned(task, self._choice.over(stored))

    def _planned(self, task: Task, choice: ModelChoice) -> Task:
        model = self._chosen(choice)
        settings = None if "system" in choice.settings else {"system": briefing(task)}
        return replace(task, model=model, model_data=choice.data, planner=task.planned_by(model, settings))

    def _chosen(self, choice: ModelChoice) -> Model:
        model = self.model(choice.name, choice.settings)
        return model if choice.record is None else self._recorded(model, choice)

    def _recorded(self, model: Model, choice: ModelChoice) -> Model:
        if not isinstance(model, WireModel):
            msg = f"--record: {choice.name} speaks no wire, so there is nothing to record"
            raise Usage(msg)
        provider = choice.name.partition("/")[0]
        if self._recorder is None:
            file = cast("Path", choice.record)
            self._recorder = FileRecorder(file, provider, secrets=keys_of_environment(), goes_on=choice.goes_on)
        identity = JsonObject({"recorded": choice.data}).encoded
        if identity not in self._made:
            self._made[identity] = self._recorder.of(model)
        return self._made[identity]

    async def aclose(self) -> None:
        """Close the connections of all models."""
        for model in self._made.values():
            if isinstance(model, WireModel):
                await model.aclose()


def stored_choice(record: TaskRecord) -> ModelChoice:
    """Return the model that a run is stored with; no choice when a planner plans it."""
    stored = record.data.get("model")
    return _stored(cast("Mapping[str, object]", stored)) if isinstance(stored, Mapping) else ModelChoice()


def _stored(data: Mapping[str, object]) -> ModelChoice:
    """Return the choice that is stored with a run or a task."""
    name, settings = data.get("name"), data.get("settings")
    if not isinstance(name, str) or not isinstance(settings, Mapping):
        return ModelChoice()
    return ModelChoice(name, dict(cast("Mapping[str, object]", settings)))


def briefing(task: Task) -> str:
    """Return what a model that plans a task is told before the goal: how it works, what it has, and what will be checked."""
    checks = [f"- {check.verifier.title or check.id}" for check in task.required_checks()]
    inputs = [f"- {name}: {path.name}" for name, path in task.inputs.items()]
    parts = [
        "You reach a goal alone, by calling tools. Call several at once where they do not depend on each other.",
        "When the goal is reached, answer in words, without a call. Then the results are checked, and what is not as it must be is told to you, to be repaired.",
        "Files are written below the run's own folder; name them by relative paths.",
    ]
    if inputs:
        parts.append("\n".join(["Input files, read-only; a CSV file is also a table of that name for SQL:", *inputs]))
    parts.append("\n".join(["What will be checked:", *checks]))
    return "\n\n".join(parts)


def _made(name: str, settings: Mapping[str, object]) -> Model:
    provider, _, variant = name.partition("/")
    try:
        make = installed(GROUP, provider, "model", source="--model")
    except LookupError as error:
        msg = f"--model {name}: {error}; {_HINT}"
        raise Usage(msg) from error
    if not callable(make):
        msg = f"--model {name}: its entry point is {type(make).__name__}, which cannot be called"
        raise Usage(msg)
    arguments: tuple[object, ...] = (variant, dict(settings)) if settings else (variant,)
    try:
        inspect.signature(make).bind(*arguments)
    except (TypeError, ValueError) as error:
        msg = f"--model {name}: it takes no settings, and {', '.join(settings) or 'none'} is set"
        raise Usage(msg) from error
    try:
        model: object = make(*arguments)
    except CheckreinError:
        raise
    except Exception as error:
        msg = f"--model {name}: it cannot be made: {type(error).__name__}: {error}"
        raise Usage(msg) from error
    if not callable(getattr(model, "stream", None)):
        msg = f"--model {name}: its entry point made {type(model).__name__}, which has no `stream`"
        raise Usage(msg)
    return cast("Model", model)
