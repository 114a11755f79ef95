"""Checks in the trusted task's own code: a function of a `CheckContext` that returns a `Measurement`, a bool or an objection."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, Protocol, TypeAlias, cast

import msgspec

from checkrein.clock import spawn
from checkrein.errors import TaskError, VerifierFailed
from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.verify.artifacts import Unmet, finding, open_artifact
from checkrein.verify.base import off_loop, refuse, refuse_path, settled

__all__ = ["CheckFunction", "FunctionVerifier", "check", "make_function_check"]

Answer: TypeAlias = Measurement | bool | str


class CheckFunction(Protocol):
    """A function that checks: plain (run in a thread) or async (run on the event loop)."""

    def __call__(self, context: CheckContext, /) -> Answer | Awaitable[Answer]:
        """Return a measurement; True or `""` when the check is met; False, or what is wrong in words, when it is not."""
        ...


class FunctionVerifier(msgspec.Struct, frozen=True, kw_only=True):
    """A check by a function.

    Attributes:
        function: what checks.
        path: the artifact it is about, which must exist; `""` is the run itself.
        title: what it proves, in words; the first line of the function's docstring, or its name, when it is not given.
        kind: as named in the task file.
        version: change it when the same bytes could be judged differently.

    Raises:
        TaskError: on creation, when the function cannot be called or the path cannot name an artifact.
    """

    needs_trust: ClassVar[bool] = True
    function: CheckFunction
    path: str = ""
    title: str = ""
    kind: str = "function"
    version: str = "1"

    def __post_init__(self) -> None:
        """Check the options and make the title."""
        if not callable(self.function):
            refuse(
                "function",
                f"{self.function!r:.80} cannot be called",
                "give a function of one argument, the CheckContext",
            )
        if self.path:
            refuse_path(self.path, "path")
        if not self.title:
            name = getattr(self.function, "__name__", "the function")
            words = (inspect.getdoc(self.function) or "").partition("\n")[0].strip().rstrip(".")
            msgspec.structs.force_setattr(self, "title", words or name.replace("_", " "))

    @property
    def subject(self) -> str:
        """The artifact it is about, or the run."""
        return self.path

    async def measure(self, context: CheckContext) -> Measurement:
        """Ask the function.

        Raises:
            VerifierFailed: it raised, answered with something else, or took longer than `context.timeout_seconds`.
        """
        if self.path:
            missing = await off_loop(
                lambda: _missing(context, self.path), seconds=context.timeout_seconds, name=f"check {self.kind}"
            )
            if missing is not None:
                return missing
        return self._judged(await self._answer(context))

    async def _answer(self, context: CheckContext) -> object:
        seconds = context.timeout_seconds
        if inspect.iscoroutinefunction(self.function):
            return await self._awaited(cast("Awaitable[object]", self.function(context)), seconds)
        answer = await off_loop(lambda: self.function(context), seconds=seconds, name=f"check {self.kind}")
        # An object with an async __call__ looks like a plain function until it has been called.
        return (
            await self._awaited(cast("Awaitable[object]", answer), seconds) if inspect.isawaitable(answer) else answer
        )

    async def _awaited(self, answer: Awaitable[object], seconds: float) -> object:
        async def wait_for_it() -> object:
            try:
                return await answer
            except SystemExit as error:
                # A task that raises it would stop the loop, and with it every run of this process.
                raise VerifierFailed(f"check {self.kind} called sys.exit({error.code!r:.200})") from error

        task = spawn(wait_for_it(), name=f"check {self.kind}")
        try:
            return await settled(task, seconds=seconds, name=f"check {self.kind}")
        finally:
            task.cancel()

    def _judged(self, answer: object) -> Measurement:
        if isinstance(answer, Measurement):
            return answer
        if isinstance(answer, bool):
            return (
                Measurement(passed=True, text=self.title)
                if answer
                else finding("check_failed", f"not so: {self.title}")
            )
        if isinstance(answer, str):
            return finding("check_failed", answer) if answer else Measurement(passed=True, text=self.title)
        raise VerifierFailed(
            f"check {self.kind} answered with {type(answer).__name__}; it must return a Measurement, a bool, or what is wrong as text"
        )


def _missing(context: CheckContext, path: str) -> Measurement | None:
    try:
        open_artifact(context.folder, path).close()
    except Unmet as unmet:
        return unmet.measurement
    return None


def check(*, path: str = "", title: str = "", version: str = "1") -> Callable[[CheckFunction], FunctionVerifier]:
    """Make a function a check.

    Args:
        path: the artifact it is about; the run itself when it is not given.
        title: what it proves, in words.
        version: change it when the same bytes could be judged differently.

    Raises:
        TaskError: the path cannot name an artifact.
    """
    return lambda function: FunctionVerifier(function=function, path=path, title=title, version=version)


def make_function_check(kind: str, function: object, options: Mapping[str, object], *, source: str) -> FunctionVerifier:
    """Make the check that a task file names as `file.py:name`; `path` and `title` in the file win over those of the decorator.

    Raises:
        TaskError: an option is unknown or no text, the path cannot name an artifact, or `function` cannot be called.
    """
    for key, value in options.items():
        if key not in {"path", "title"} or not isinstance(value, str):
            raise TaskError(
                source,
                key,
                "is no option of a check in code" if key not in {"path", "title"} else "is no text",
                "such a check has the options `path` and `title`",
            )
    made = function if isinstance(function, FunctionVerifier) else None
    given = cast("dict[str, str]", dict(options))
    try:
        if made is not None:
            return msgspec.structs.replace(made, kind=kind, **given)
        return FunctionVerifier(function=cast("CheckFunction", function), kind=kind, **given)
    except TaskError as error:
        raise TaskError(source, error.key, error.problem, error.fix) from None
