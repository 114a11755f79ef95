"""Trust in the code that a task folder brings: what is hashed, and which hashes a person has trusted.

The hash covers the task file and every file below its folder, except the workspace and the inputs. The bytes that were hashed are kept and are the only ones that are
ever run, so nothing can be changed between the question and the import. Symbolic links are refused, because what they lead to is not covered. One changed byte is another hash.
"""

import fcntl
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import msgspec

from checkrein.cli.exits import NotCovered
from checkrein.errors import InvalidJson, TaskError
from checkrein.ports.clock import Clock
from checkrein.runs.taskfile import read_task_file
from checkrein.values import canonical_json, parse_json

__all__ = ["TaskFolder", "TrustList", "take_folder"]

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_FILES = 10_000
MAX_TOTAL_BYTES = 128 * 1024 * 1024
_LEFT_OUT = {"__pycache__", ".git", ".hg", ".svn", ".jj"}


class TaskFolder(msgspec.Struct, frozen=True):
    """A task folder as it was read, once.

    Attributes:
        file: the task file.
        files: the bytes by path relative to the folder, with `/`.
        code_hash: SHA-256 (64 hexadecimal digits) over all of it.
        data: the parsed task file, of the same bytes.
    """

    file: Path
    files: Mapping[str, bytes]
    code_hash: str
    data: Mapping[str, object]

    @property
    def folder(self) -> Path:
        """The folder that holds the task file."""
        return self.file.parent


def take_folder(file: Path) -> TaskFolder:
    """Read a task folder and hash it; nothing of it is run.

    Raises:
        NotCovered: a symbolic link or a special file, a name that is no UTF-8, a file that cannot be read, or too much.
        TaskError: the task file cannot be read or is no TOML, or its workspace would hold the task's own files.
    """
    file = file.parent.resolve() / file.name
    if file.is_symlink():
        raise NotCovered(str(file), "", "the task file is a symbolic link", "name the file itself")
    if not file.is_file():
        raise TaskError(str(file), "", "there is no task file", "name a task.toml, or a folder that holds one")
    content = _bytes(file, file)
    data = read_task_file(file, content)
    left_out = _left_out(file, data)
    files = _read(file, left_out)
    files[file.name] = content  # what was parsed is what is hashed
    listed = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    digest = hashlib.sha256(canonical_json({"task": file.name, "files": listed})).hexdigest()
    return TaskFolder(file=file, files=files, code_hash=digest, data=data)


def _read(file: Path, left_out: frozenset[Path]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    total = 0
    for name, path in _walk(file, file.parent, left_out):
        files[name] = _bytes(file, path)
        total += len(files[name])
        if len(files) > MAX_FILES or total > MAX_TOTAL_BYTES:
            raise NotCovered(
                str(file),
                "",
                f"the folder holds more than {MAX_FILES:,} files or {MAX_TOTAL_BYTES:,} bytes",
                "give the task a folder of its own, and name its data among the [inputs]",
            )
    return files


def _left_out(file: Path, data: Mapping[str, object]) -> frozenset[Path]:
    """Return what the hash does not cover: the workspace, and each input."""
    task, inputs = data.get("task"), data.get("inputs", {})
    workspace = cast("Mapping[str, object]", task).get("workspace", "out") if isinstance(task, Mapping) else "out"
    paths: set[Path] = set()
    if isinstance(workspace, str) and workspace:
        paths.add(Path(os.path.normpath(file.parent / workspace)))
        if file.is_relative_to(next(iter(paths))):
            raise TaskError(
                str(file),
                "task.workspace",
                f"{workspace!r} holds the task's own files",
                'name a folder for results alone, such as "out"',
            )
    if isinstance(inputs, Mapping):
        named = cast("Mapping[str, object]", inputs).values()
        paths |= {Path(os.path.normpath(file.parent / path)) for path in named if isinstance(path, str)}
    return frozenset(paths)


def _walk(file: Path, folder: Path, left_out: frozenset[Path]) -> Iterator[tuple[str, Path]]:
    waiting = [folder]
    while waiting:
        for entry in sorted(os.scandir(waiting.pop()), key=lambda item: item.name):
            path = Path(entry.path)
            if path in left_out or entry.name in _LEFT_OUT:
                continue
            name = path.relative_to(folder).as_posix()
            _refuse_uncovered(file, name, entry)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)
                continue
            yield name, path


def _refuse_uncovered(file: Path, name: str, entry: "os.DirEntry[str]") -> None:
    if entry.is_symlink():
        raise NotCovered(
            str(file),
            ascii(name)[1:-1],
            "is a symbolic link",
            "put the file itself there: a hash does not cover what a link leads to",
        )
    if not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)):
        raise NotCovered(str(file), ascii(name)[1:-1], "is neither a file nor a folder", "remove it")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise NotCovered(str(file), ascii(name)[1:-1], "has a name that is no UTF-8", "rename it") from error


def _bytes(file: Path, path: Path) -> bytes:
    name = path.relative_to(file.parent).as_posix()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise NotCovered(str(file), name, "is no regular file", "remove it")
            content = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise NotCovered(
            str(file), name, f"cannot be read: {error.strerror}", "make it readable, or remove it"
        ) from error
    if len(content) > MAX_FILE_BYTES:
        raise NotCovered(
            str(file),
            name,
            f"is larger than {MAX_FILE_BYTES:,} bytes",
            "name it among the [inputs], or move it elsewhere",
        )
    return content


class TrustList:
    """The hashes that a person has trusted, in a file that only they can read.

    Args:
        path: the file; made on the first trust.
        clock: says when.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    def holds(self, code_hash: str) -> bool:
        """Tell whether the hash was trusted.

        Raises:
            TaskError: the file is damaged.
            OSError: it cannot be read.
        """
        return code_hash in self._read()

    def add(self, code_hash: str, file: Path) -> None:
        """Trust a hash from now on.

        Raises:
            TaskError: the file is damaged.
            OSError: it cannot be written.
        """
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked():
            known = self._read()
            if code_hash not in known:
                self._write({**known, code_hash: {"at": self._clock.now(), "file": str(file)}})

    def _read(self) -> Mapping[str, object]:
        try:
            value = parse_json(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except InvalidJson as error:
            raise self._damaged(str(error)) from error
        trusted = value.get("trusted") if isinstance(value, dict) else None
        if not isinstance(trusted, dict):
            raise self._damaged("it is no list of trusted tasks")
        return trusted

    def _damaged(self, reason: str) -> TaskError:
        return TaskError(str(self._path), "", reason, "delete the file; tasks then ask for trust again")

    def _write(self, trusted: Mapping[str, object]) -> None:
        descriptor, name = tempfile.mkstemp(prefix=".trust.", dir=self._path.parent)  # 0600, and exclusive
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump({"trusted": trusted}, file, indent=1, sort_keys=True)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Keep two commands from losing each other's entry."""
        descriptor = os.open(
            self._path.with_name("trust.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
