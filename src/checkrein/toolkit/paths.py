"""Files below a folder, reached by directory descriptors, one component at a time, and never through a symbolic link.

A path is taken apart into plain names before anything is opened; each folder on the way is opened relative to the descriptor of the one before it with
`O_NOFOLLOW`. So what a check saw is what is used: swapping a folder for a link between two steps changes nothing, because the second step does not look at
the path again. The folder itself is trusted and may be reached through links. The invariant: no byte outside the folder is read or written.

Names are taken as they are given, byte for byte in UTF-8: nothing is normalised, so no character can turn into a separator. A hard link to a file outside
is a file of the folder; making one already needs access to both.
"""

import errno
import itertools
import os
import stat
import unicodedata
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from checkrein.errors import PathEscape

__all__ = ["find_files", "open_file", "split_path", "write_file"]

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 4_096
MAX_FOUND = 1_000
MAX_FOLDERS = 32

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Non-blocking, because opening a pipe that nobody writes to would wait for ever.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_numbers = itertools.count()


def split_path(path: str) -> tuple[str, ...]:
    """Return the plain names a relative path is made of, `.` and doubled slashes left out.

    Raises:
        PathEscape: the path is empty or absolute, ends with a slash, contains `..`, a control character or a lone surrogate, or is too long.
    """
    reason = _refusal(path)
    if reason:
        raise PathEscape(path[:200], reason)
    return tuple(part for part in path.split("/") if part not in {"", "."})


def _refusal(path: str) -> str:
    """Return why a path is no plain relative path of a file, `""` when it is."""
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in path[:MAX_PATH_BYTES]):
        return "it contains a control character or is no Unicode text"
    parts = path.split("/")
    if len(path) > MAX_PATH_BYTES or len(path.encode()) > MAX_PATH_BYTES:
        return f"it is longer than {MAX_PATH_BYTES:,} bytes"
    if path.startswith("/"):
        return "it is absolute"
    if ".." in parts:
        return "it climbs out with .."
    if len(parts) > MAX_FOLDERS:
        return f"it goes through more than {MAX_FOLDERS} folders"
    if any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        return f"a name in it is longer than {MAX_NAME_BYTES} bytes"
    return "it names no file" if parts[-1] in {"", "."} else ""


@contextmanager
def open_file(folder: Path, path: str) -> Generator[int]:
    """Open a regular file below `folder` for reading, and give its descriptor.

    Raises:
        PathEscape: the path leads outside, or through or to a symbolic link.
        FileNotFoundError: there is no such file.
        NotADirectoryError: something on the way is no folder.
        IsADirectoryError: the path names a folder.
        OSError: it is no regular file, or cannot be read.
    """
    *folders, name = split_path(path)
    with _open_folder(folder, tuple(folders), path=path) as parent:
        opened = _open(name, _READ, parent, path)
    try:
        mode = os.fstat(opened).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file", path)
        yield opened
    finally:
        os.close(opened)


def write_file(folder: Path, path: str, content: bytes) -> None:
    """Write a whole file below `folder`: after a crash there is the old file or the new one, never a part.

    The bytes go to a new file in the same folder, are made durable, and take the name in one step. Missing folders on the way are made. A symbolic link
    that has the name is replaced, not followed.

    Raises:
        PathEscape: the path leads outside, or through a symbolic link.
        NotADirectoryError: something on the way is no folder.
        IsADirectoryError: the path names a folder.
        OSError: it cannot be written.
    """
    *folders, name = split_path(path)
    with _open_folder(folder, tuple(folders), path=path, make=True) as parent:
        temporary = _write_temporary(parent, content)
        try:
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=parent)
            raise
        os.fsync(parent)


def _write_temporary(parent: int, content: bytes) -> str:
    """Write a new file durably and return its name; a name left by a crashed process is not used again."""
    while True:
        name = f".{os.getpid():x}-{next(_numbers):x}.part"
        try:
            opened = os.open(name, _CREATE, 0o600, dir_fd=parent)
        except FileExistsError:
            continue
        try:
            with os.fdopen(opened, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                os.unlink(name, dir_fd=parent)
            raise
        return name


@contextmanager
def _open_folder(root: Path, names: tuple[str, ...], *, path: str, make: bool = False) -> Generator[int]:
    """Walk down from `root` and give the descriptor of the last folder."""
    current = os.open(root, _ROOT)
    try:
        for name in names:
            inner = _open_or_make(name, current, path) if make else _open(name, _FOLDER, current, path)
            os.close(current)
            current = inner
        yield current
    finally:
        os.close(current)


def _open_or_make(name: str, parent: int, path: str) -> int:
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
        # The name of a new folder must be as durable as the file that will be in it.
        os.fsync(parent)
    return _open(name, _FOLDER, parent, path)


def _open(name: str, flags: int, parent: int, path: str) -> int:
    """Open one name without following a link.

    Raises:
        PathEscape: the name is a symbolic link.
        OSError: it cannot be opened.
    """
    try:
        return os.open(name, flags, dir_fd=parent)
    except OSError as error:
        # A link gives ELOOP, or ENOTDIR where a folder is asked for; so does a plain file, which is no escape. When it is neither by now,
        # somebody changes it under our hands, and it was a link a moment ago.
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and not _is_regular(name, parent)):
            raise PathEscape(path, f"{name} is a symbolic link") from error
        raise OSError(error.errno, os.strerror(error.errno or 0), path) from error


def find_files(folder: Path, suffix: str) -> list[str]:
    """Return the paths of the regular files below `folder` whose names end with `suffix` in any case, sorted; links are not followed.

    At most 1,000 are returned, and folders deeper than 32 are left out.

    Raises:
        OSError: the folder cannot be read.
    """
    found: list[str] = []
    for path, folders, names, descriptor in os.fwalk(folder, follow_symlinks=False):
        relative = os.path.relpath(path, folder)
        depth = 0 if relative == "." else relative.count("/") + 1
        # Pruned and sorted in place: the walk goes where this list says, in this order.
        folders[:] = sorted(folders) if depth < MAX_FOLDERS else []
        for name in names:
            whole = name if depth == 0 else f"{relative}/{name}"
            if name.lower().endswith(suffix) and _is_regular(name, descriptor) and not _refusal(whole):
                found.append(whole)
        if len(found) > MAX_FOUND:
            break
    return sorted(found)[:MAX_FOUND]


def _is_regular(name: str, parent: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        return False
