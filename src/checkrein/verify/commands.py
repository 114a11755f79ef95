"""The check `command`: a program that the task names ends with the exit status it must have.

No shell: the program gets its arguments as they are. Its environment is an allow-list, its home and temporary folder are new and empty, its working directory is the run's
folder, which it should only read. It runs in a process group of its own, which is killed whole when the time is over, the measurement is cancelled, or the program has ended
and left something behind.
"""

import asyncio
import os
import re
import selectors
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, ClassVar, Final, cast

from checkrein.errors import VerifierFailed
from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.values import JsonObject, clean_text, shorten
from checkrein.verify.artifacts import Unmet, finding, open_artifact
from checkrein.verify.base import Check, TaskFiles, off_loop, refuse, refuse_path

__all__ = ["ENVIRONMENT", "CommandCheck"]

ENVIRONMENT: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
"""What a program is given of our environment; everything else has to be said in the task."""
KEPT_BYTES: Final = 4_000
"""How much of the end of a program's output is kept."""
SHOWN_CHARACTERS: Final = 1_000
POLL_SECONDS: Final = 0.1
_PLACE: Final = re.compile(r"\{(task|input:(?P<name>[^{}]+))\}")


class CommandCheck(Check, frozen=True, kw_only=True):
    """A program ends as it must.

    Attributes:
        argv: the program and its arguments. `{input:NAME}` is the path of an input; in a task file `{task}` is the task's folder.
        path: the artifact it is about; the run itself when it is not given.
        exit_status: how it must end.
        timeout_seconds: how long it may take; nothing is known when it takes longer.
        env: further environment variables and their values.
    """

    name: ClassVar[str] = "command"
    revision: ClassVar[str] = "1"
    needs_trust: ClassVar[bool] = True
    argv: tuple[str, ...]
    path: str = ""
    exit_status: int = 0
    timeout_seconds: float = 60.0
    env: Mapping[str, str] = {}

    @property
    def subject(self) -> str:
        """The artifact it is about, or the run."""
        return self.path

    def validated(self) -> None:
        """Refuse commands that cannot be started, and programs of the run's folder: those were written by what is to be checked.

        Raises:
            TaskError: it is one.
        """
        if self.path:
            refuse_path(self.path, "path")
        if not self.argv or not self.argv[0]:
            refuse("argv", "names no program", 'give a list, such as ["python3", "{task}/check.py"]')
        if "/" in self.argv[0] and not self.argv[0].startswith(("/", "{task}/")):
            refuse(
                "argv",
                f"{self.argv[0]!r} would be looked for in the run's folder",
                "give the name of a program on PATH, an absolute path, or `{task}/…`",
            )
        if any("\0" in text for text in (*self.argv, *self.env, *self.env.values())) or any(
            not name or "=" in name for name in self.env
        ):
            refuse(
                "argv", "holds what no program can be given", "leave out NUL characters, and `=` in the names of `env`"
            )
        if not 0 <= self.exit_status <= 255:  # noqa: PLR2004  POSIX: eight bits
            refuse("exit_status", f"is {self.exit_status}", "give 0 to 255")
        if not 0 < self.timeout_seconds < float("inf"):
            refuse("timeout_seconds", f"is {self.timeout_seconds}", "give a number of seconds above 0")

    def in_words(self) -> str:
        """Return the title."""
        return f"`{shorten(' '.join(self.argv), 120)}` ends with exit status {self.exit_status}"

    def used_inputs(self) -> tuple[tuple[str, str], ...]:
        """Return the inputs whose paths are arguments."""
        return tuple(("argv", found["name"]) for text in self.argv for found in _PLACE.finditer(text) if found["name"])

    @classmethod
    def prepared(cls, options: Mapping[str, object], task: TaskFiles) -> Mapping[str, object]:
        """Put the task's folder for `{task}`."""
        argv = options.get("argv")
        if not isinstance(argv, list):
            return options
        words = cast("list[object]", argv)
        return {
            **options,
            "argv": [
                word.replace("{task}", str(task.folder.absolute())) if isinstance(word, str) else word for word in words
            ],
        }

    async def measure(self, context: CheckContext) -> Measurement:
        """Run the program in the run's folder.

        Raises:
            VerifierFailed: there is no such program, it cannot be started, or it took too long.
        """
        program = _Program()
        seconds = min(self.timeout_seconds, context.timeout_seconds)
        try:
            # The program's own time limit comes first; the one of the thread is for a system that does not answer.
            return await off_loop(
                lambda: self._run(program, context, seconds), seconds=seconds + 10, name=f"check {self.kind}"
            )
        except asyncio.CancelledError:
            program.kill()
            raise

    def _run(self, program: "_Program", context: CheckContext, seconds: float) -> Measurement:
        if self.path:
            # A program that says "fine" about an artifact that is not there would be believed otherwise.
            try:
                open_artifact(context.folder, self.path).close()
            except Unmet as unmet:
                return unmet.measurement
        with tempfile.TemporaryDirectory(prefix="checkrein-") as home:
            status, output = program.run(self._argv(context), context.folder, self._environment(home), seconds)
        ended = f"exit status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
        text = f"`{shorten(' '.join(self.argv), 200)}` ended with {ended}"
        data = {"exit_status": status, "output": output}
        if status == self.exit_status:
            return Measurement(passed=True, text=text, data=JsonObject(data))
        # What a program says last is why it ended.
        last = output.strip()[-SHOWN_CHARACTERS:]
        said = f"; its last words: {last}" if last else "; it said nothing"
        return finding("exit_status", f"{text}, not {self.exit_status}{said}", data)

    def _argv(self, context: CheckContext) -> list[str]:
        def path_of(found: re.Match[str]) -> str:
            if not found["name"]:
                return found.group()
            if found["name"] not in context.inputs:
                raise VerifierFailed(f"the task has no input {found['name']!r}")
            return str(context.inputs[found["name"]].absolute())

        program, *arguments = (_PLACE.sub(path_of, text) for text in self.argv)
        where = shutil.which(program, path=self.env.get("PATH", os.environ.get("PATH", os.defpath)))
        if where is None:
            raise VerifierFailed(f"there is no program {program!r} on PATH; install it, or correct argv")
        return [where, *arguments]

    def _environment(self, home: str) -> dict[str, str]:
        ours = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        # Python would run compiled code that it finds beside a module, which nobody has read or hashed.
        python = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": home}
        return {**ours, "HOME": home, "TMPDIR": home, **python, **self.env}


class _Program:
    """One run of a program, which another thread may kill."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_killed = False

    def run(self, argv: list[str], folder: Path, environment: dict[str, str], seconds: float) -> tuple[int, str]:
        """Return the exit status (negative: the signal) and the end of the output.

        Raises:
            VerifierFailed: it cannot be started, was killed, or took longer than `seconds`.
        """
        tail = _Tail()
        with self._started(argv, folder, environment) as process:
            reader = threading.Thread(
                target=tail.read, args=(cast("IO[bytes]", process.stdout),), daemon=True, name="check output"
            )
            reader.start()
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired as error:
                raise VerifierFailed(
                    f"`{' '.join(argv)}` took longer than {seconds:g} s and was killed; nothing is known"
                ) from error
            finally:
                self.kill()
                process.wait()
                tail.stop()
                reader.join()
        return status, tail.text()

    def _started(self, argv: list[str], folder: Path, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
        with self._lock:
            if self._is_killed:
                raise VerifierFailed("the measurement was cancelled")
            try:
                self._process = subprocess.Popen(  # noqa: S603  the trusted task's own command, without a shell
                    argv,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise VerifierFailed(f"`{' '.join(argv)}` cannot be started: {error.strerror}") from error
            return self._process

    def kill(self) -> None:
        """Kill the whole process group, or keep it from being started; safe to call again."""
        with self._lock:
            self._is_killed = True
            if self._process is not None:
                # Also after the leader's end: what it left behind keeps the group, and with it the number.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)


class _Tail:
    """Reads a pipe to its end and keeps the last of it; something that left the group and holds the pipe open is not waited for."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._is_stopped = threading.Event()

    def read(self, pipe: IO[bytes]) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while True:
                if not selector.select(POLL_SECONDS):
                    if self._is_stopped.is_set():
                        return
                    continue
                chunk = os.read(pipe.fileno(), 65_536)
                if not chunk:
                    return
                self._kept += chunk
                del self._kept[:-KEPT_BYTES]

    def stop(self) -> None:
        """End reading once the pipe is empty."""
        self._is_stopped.set()

    def text(self) -> str:
        """Return what was kept."""
        return clean_text(self._kept.decode("utf-8", "replace"))
