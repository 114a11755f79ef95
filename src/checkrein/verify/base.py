"""What all shipped verifiers share: options in a frozen struct, checked when it is made, and a measurement off the event loop.

A kind of check is a subclass of `Check`: its fields are its options, `validated` refuses a bad one, `look` measures. The invariants: a `Check` that exists has
valid options; `look` runs in a thread, so a large artifact never holds up a run; whatever it raises becomes a finding (`Unmet`) or `VerifierFailed`.
"""

import asyncio
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, NoReturn, TypeVar

import msgspec

from checkrein.errors import TaskError, VerifierFailed
from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.values import shorten
from checkrein.verify.artifacts import Unmet, path_problem, read_artifact

__all__ = ["ArtifactCheck", "Check", "TaskFiles", "off_loop", "refuse", "refuse_path", "settled", "type_in_words"]

T = TypeVar("T")

_PLACE = re.compile(r"^(?P<problem>.*?)(?: - at `\$\.?(?P<key>.*)`)?$", re.DOTALL)
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}


class TaskFiles(msgspec.Struct, frozen=True):
    """The files of a task's folder, which options may name.

    Attributes:
        folder: where they are.
        trusted: their bytes by path relative to the folder, as they were hashed, so that nothing else is ever used; None when nobody hashed them: then
            they are read where they are.
    """

    folder: Path
    trusted: Mapping[str, bytes] | None = None

    def read(self, name: str, *, limit: int) -> bytes:
        """Return the bytes of a file.

        Raises:
            Unmet: the path leads outside, no such file is there (or among those hashed), or it has more than `limit` bytes.
            VerifierFailed: it cannot be read.
        """
        if self.trusted is None:
            return read_artifact(self.folder, name, limit=limit)
        content = self.trusted.get(name)
        if content is None:
            problem = path_problem(name)
            missing = "does not exist in the task's folder, or is one of its inputs or results"
            raise Unmet("escapes" if problem else "missing", f"{name} {problem or missing}")
        if len(content) > limit:
            raise Unmet("too_large", f"{name} has {len(content):,} bytes, more than the {limit:,} that are read")
        return content


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of the shipped kinds of check, and of kinds that others bring; a subclass is a `Verifier`.

    Attributes:
        name: the kind's name in a task file.
        revision: grows when the same bytes could be judged differently.
        needs_trust: the options name code to run, so a task with such a check is trusted like one that brings code.
        title: what the check proves, in words; made from the options when it is not given.

    Raises:
        TaskError: on creation, when an option is wrong.
        MissingExtra: on creation, when it needs an extra that is not installed.
    """

    name: ClassVar[str]
    revision: ClassVar[str]
    needs_trust: ClassVar[bool] = False
    title: str = ""

    def __post_init__(self) -> None:
        """Check types, then meaning; lists become tuples."""
        for field in msgspec.structs.fields(self):
            msgspec.structs.force_setattr(
                self, field.encode_name, _typed(getattr(self, field.encode_name), field.type, field.encode_name)
            )
        self.validated()
        if not self.title:
            msgspec.structs.force_setattr(self, "title", self.in_words())

    @property
    def kind(self) -> str:
        """The kind's name in a task file."""
        return self.name

    @property
    def version(self) -> str:
        """The verifier's own version."""
        return self.revision

    @property
    def subject(self) -> str:
        """The path of the artifact it is about; `""` is the run itself."""
        return ""

    def validated(self) -> None:
        """Refuse options that cannot be meant.

        Raises:
            TaskError: `key` names the option, `fix` what to write.
        """

    def in_words(self) -> str:
        """Return the title of a check that was given none."""
        return f"{self.subject or 'the run'} passes {self.kind}"

    def used_inputs(self) -> tuple[tuple[str, str], ...]:
        """Return pairs of the option that names one of the task's inputs, and that name."""
        return ()

    @classmethod
    def prepared(cls, options: Mapping[str, object], task: TaskFiles) -> Mapping[str, object]:
        """Return `options` with what they name in the task's folder put in its place.

        Raises:
            TaskError: a named file is missing or unfit.
        """
        del task
        return options

    def look(self, context: CheckContext) -> Measurement:
        """Measure the artifact; a subclass says how. It runs in a thread.

        Raises:
            Unmet: the artifact does not meet the check; the same as returning a finding.
            VerifierFailed: the verifier could not run.
        """
        raise VerifierFailed(f"{self.kind} does not say how it measures {context.folder}")

    async def measure(self, context: CheckContext) -> Measurement:
        """Measure the artifact as it is now, in a thread.

        Raises:
            VerifierFailed: the verifier could not run, or took longer than `context.timeout_seconds`.
        """
        return await off_loop(
            lambda: _looked(self, context), seconds=context.timeout_seconds, name=f"check {self.kind}"
        )


class ArtifactCheck(Check, frozen=True, kw_only=True):
    """A check of one artifact.

    Attributes:
        path: the artifact, relative to the run's folder.
    """

    path: str

    def __post_init__(self) -> None:
        """Check the path before anything is said about it."""
        if isinstance(self.path, str):  # pyright: ignore[reportUnnecessaryIsInstance]  options come from files
            refuse_path(self.path, "path")
        Check.__post_init__(self)

    @property
    def subject(self) -> str:
        """The artifact."""
        return self.path


def _looked(check: Check, context: CheckContext) -> Measurement:
    try:
        return check.look(context)
    except Unmet as unmet:
        return unmet.measurement


async def off_loop(work: Callable[[], T], *, seconds: float, name: str) -> T:
    """Return what `work` returns, run in a thread of its own.

    The thread is a daemon and nobody's pool: a measurement that never ends keeps neither the process from ending nor others from measuring.

    Raises:
        VerifierFailed: `work` raised it, raised anything else but an interrupt, or took longer than `seconds`.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if outcome.done():
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)  # pyright: ignore[reportArgumentType]  without an error there is a result

    def body() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001  carried to the loop, where it is raised
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            return  # The loop was closed meanwhile; nobody waits any more.

    threading.Thread(target=body, name=name, daemon=True).start()
    try:
        return await settled(outcome, seconds=seconds, name=name)
    finally:
        outcome.cancel()


async def settled(outcome: asyncio.Future[T], *, seconds: float, name: str) -> T:
    """Return the outcome of a future.

    Raises:
        VerifierFailed: it has none within `seconds`, or it is that error, any other `Exception`, or a `SystemExit`.
    """
    done, _ = await asyncio.wait({outcome}, timeout=seconds)
    if not done:
        raise VerifierFailed(f"{name} took longer than {seconds:g} s")
    try:
        return outcome.result()
    except VerifierFailed:
        raise
    except (Exception, SystemExit) as error:
        raise VerifierFailed(f"{name} could not run: {type(error).__name__}: {shorten(str(error), 500)}") from error


def refuse(key: str, problem: str, fix: str) -> NoReturn:
    """Refuse an option.

    Raises:
        TaskError: always.
    """
    raise TaskError("task", key, problem, fix)


def refuse_path(path: str, key: str) -> None:
    """Refuse a path that cannot name an artifact.

    Raises:
        TaskError: it cannot.
    """
    problem = path_problem(path)
    if problem:
        refuse(
            key,
            f"the path {path!r} {problem}",
            "give a path relative to the run's folder, such as `report.md` or `charts/years.png`",
        )


def _typed(value: object, wanted: object, key: str) -> object:
    try:
        return msgspec.convert(value, wanted)  # pyright: ignore[reportArgumentType, reportUnknownVariableType, reportCallIssue]  types read from fields
    except msgspec.ValidationError as error:
        problem, inner, fix = type_in_words(error)
        refuse(f"{key}{'' if not inner or inner.startswith('[') else '.'}{inner}", problem, fix)


def type_in_words(error: msgspec.ValidationError) -> tuple[str, str, str]:
    """Return `(problem, key, fix)` of a value of the wrong type; the key is relative to the value that was converted."""
    found = _PLACE.match(str(error))
    key = (found["key"] or "") if found else ""
    problem = found["problem"] if found else str(error)
    expected = re.match(r"Expected `(?P<wanted>[^`]*)`, got `(?P<given>[^`]*)`", problem)
    if not expected:
        return problem, key, "correct the value"
    wanted = " or ".join(_WORDS.get(name, name) for name in expected["wanted"].split(" | ") if name != "null")
    return f"is {_WORDS.get(expected['given'], expected['given'])}", key, f"give {wanted}"
