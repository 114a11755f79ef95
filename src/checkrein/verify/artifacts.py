"""Opens what a verifier may read: artifacts strictly below the run's folder, and the task's inputs by name.

No other module of this room opens a file of a run. The invariant: a path is walked part by part by directory descriptor and no symlink is followed, so
whatever a tool left in the folder, nothing outside it is read; every read has a size cap. What is wrong with an artifact is `Unmet`, a finding; what
keeps the verifier from looking at all is `VerifierFailed`.
"""

import errno
import os
import stat
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Final

from checkrein.errors import VerifierFailed
from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.values import JsonObject, clean_text, shorten

__all__ = [
    "MAX_INPUT_BYTES",
    "MAX_TEXT_BYTES",
    "Unmet",
    "finding",
    "open_artifact",
    "open_input",
    "path_problem",
    "read_artifact",
    "read_text",
]

MAX_TEXT_BYTES: Final = 64 * 1024 * 1024
"""Largest artifact that is read into memory, unless a kind of check says less."""
MAX_INPUT_BYTES: Final = 2 * 1024 * 1024 * 1024
"""Largest input; inputs are streamed."""
MAX_PATH_BYTES: Final = 4096
MAX_NAME_BYTES: Final = 255
MAX_FINDING_CHARACTERS: Final = 2_000

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK opening a named pipe would wait for a writer for ever.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Unmet(Exception):
    """Ends a measurement: the artifact was looked at and does not meet the check. It never leaves this room.

    Attributes:
        measurement: the finding.
    """

    def __init__(self, code: str, text: str, data: Mapping[str, object] | None = None) -> None:
        super().__init__(text)
        self.measurement = finding(code, text, data)


def finding(code: str, text: str, data: Mapping[str, object] | None = None) -> Measurement:
    """Return a failed measurement whose text is cut to a length that people and planners can take in."""
    return Measurement(passed=False, text=shorten(text, MAX_FINDING_CHARACTERS), code=code, data=JsonObject(data or {}))


def path_problem(path: str) -> str:
    """Return in words why `path` cannot name an artifact, `""` when it can: relative, `/` between parts, no `..`, nothing a file system refuses."""
    if not path:
        return "is empty"
    if path != clean_text(path) or "\0" in path:
        return "holds a character that no file name can have"
    if path.startswith("/"):
        return "is absolute"
    parts = path.split("/")
    if any(part in {"", ".", ".."} for part in parts):
        return "has an empty part, `.` or `..`"
    if len(path.encode()) > MAX_PATH_BYTES or any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        return "is longer than a file system allows"
    return ""


def open_artifact(folder: Path, path: str) -> BufferedReader:
    """Open a regular file below `folder` for reading.

    Raises:
        Unmet: `escapes` when the path is no plain relative one or leads through a symlink, `missing` when nothing is there, `not_a_file` when
            something else than a regular file is.
        VerifierFailed: the folder cannot be opened, or the system refuses to open the file.
    """
    problem = path_problem(path)
    if problem:
        raise Unmet("escapes", f"the path {path!r} {problem}")
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise VerifierFailed(f"the run's folder {folder} cannot be opened: {error.strerror}") from error
    try:
        *parents, name = path.split("/")
        for parent in parents:
            inner = _open_part(parent, directory, path, flags=_DIRECTORY)
            os.close(directory)
            directory = inner
        descriptor = _open_part(name, directory, path, flags=_FILE)
    finally:
        os.close(directory)
    return _regular_file(descriptor, path)


def _open_part(name: str, directory: int, path: str, *, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=directory)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.EMLINK} and _is_symlink(name, directory):
            raise Unmet("escapes", f"{path} leads through the symlink {name!r}, which is not followed") from error
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}:
            raise Unmet("missing", f"{path} does not exist in the run's folder") from error
        if error.errno in {errno.ENXIO, errno.ENODEV}:
            raise Unmet("not_a_file", f"{path} is no regular file") from error
        raise VerifierFailed(f"{path} cannot be opened: {error.strerror}") from error


def _is_symlink(name: str, directory: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _regular_file(descriptor: int, path: str) -> BufferedReader:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise Unmet("not_a_file", f"{path} is no regular file")


def read_artifact(folder: Path, path: str, *, limit: int = MAX_TEXT_BYTES) -> bytes:
    """Return the bytes of an artifact.

    Raises:
        Unmet: as `open_artifact`; `too_large` when it has more than `limit` bytes.
        VerifierFailed: it cannot be read.
    """
    with open_artifact(folder, path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            # One byte more than allowed tells a file that grew meanwhile from one that fits.
            content = b"" if size > limit else file.read(limit + 1)
        except OSError as error:
            raise VerifierFailed(f"{path} cannot be read: {error.strerror}") from error
    if max(size, len(content)) > limit:
        raise Unmet("too_large", f"{path} has {max(size, len(content)):,} bytes, more than the {limit:,} that are read")
    return content


def read_text(content: bytes, path: str) -> str:
    """Return `content` as text; a byte order mark is dropped.

    Raises:
        Unmet: `not_text` when it is not UTF-8, or holds a NUL.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unmet(
            "not_text", f"{path} is not UTF-8 text: byte 0x{content[error.start]:02x} at offset {error.start}"
        ) from error
    if "\0" in text:
        raise Unmet("not_text", f"{path} is not text: it holds a NUL character at offset {text.index(chr(0))}")
    return text


def open_input(context: CheckContext, name: str) -> BufferedReader:
    """Open one of the task's inputs for reading.

    Raises:
        VerifierFailed: the task has no such input, or it is no regular file of at most `MAX_INPUT_BYTES` that can be opened.
    """
    path = context.inputs.get(name)
    if path is None:
        raise VerifierFailed(f"the task has no input {name!r}; it has: {', '.join(sorted(context.inputs)) or 'none'}")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise VerifierFailed(f"the input {name} cannot be opened: {error.strerror}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_INPUT_BYTES:
        os.close(descriptor)
        raise VerifierFailed(f"the input {name} is no regular file of at most {MAX_INPUT_BYTES:,} bytes")
    return os.fdopen(descriptor, "rb")
