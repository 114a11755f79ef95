"""The folders of runs: one below the task's workspace for each run, a fresh copy of it for each takeover.

A worker that lost its lease may still be writing. So the next owner never works in the same folder: it copies the whole folder to `<run id>.<epoch>` before any
grant, and a copy appears under its name only when it is complete. Artifacts are named relative to the folder and are known by their digests.
"""

import asyncio
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath

from checkrein.errors import PathEscape
from checkrein.kernel.events import Artifact
from checkrein.kernel.state import RunState

__all__ = ["artifact_of", "digest_of", "folder_of", "prepare_folder"]

_LATEST = "latest"


def folder_of(workspace: Path, state: RunState) -> Path:
    """Return the folder that the run works in; before its first lease the one it will get."""
    return workspace / (state.folder or state.run_id)


async def prepare_folder(workspace: Path, state: RunState) -> Path:
    """Make the run's folder ready for its new owner, and let `latest` point to it.

    Raises:
        OSError: the workspace cannot be written.
    """
    return await asyncio.to_thread(_prepare, workspace, state)


def _prepare(workspace: Path, state: RunState) -> Path:
    folder = folder_of(workspace, state)
    if not folder.exists():
        workspace.mkdir(parents=True, exist_ok=True)
        before = next((workspace / name for name in reversed(state.folders[:-1]) if (workspace / name).is_dir()), None)
        if before is None:
            folder.mkdir(mode=0o700, exist_ok=True)
        else:
            _copy(before, folder, state.epoch)
    _point(workspace / _LATEST, folder.name)
    return folder


def _copy(source: Path, target: Path, epoch: int) -> None:
    partial = target.with_name(f".{target.name}.{epoch}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial, symlinks=True, ignore=_vanishing, copy_function=_copy_file)
    partial.rename(target)


def _copy_file(source: str, target: str) -> None:
    """Copy a file, unless the worker that lost its lease has just removed it."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


def _vanishing(folder: str, names: list[str]) -> Iterable[str]:
    """Leave out temporary files of unfinished atomic writes, and whatever is neither file, folder nor link."""
    return [name for name in names if name.endswith(".partial") or not _is_plain(Path(folder, name))]


def _is_plain(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _point(link: Path, name: str) -> None:
    """Let a link point to a sibling, atomically; a thing of that name that is no link is left alone."""
    if link.exists() and not link.is_symlink():
        return
    partial = link.with_name(f".{link.name}.{os.getpid()}.{name}.partial")
    partial.unlink(missing_ok=True)
    partial.symlink_to(name)
    partial.replace(link)


def artifact_of(folder: Path, path: str) -> Artifact:
    """Return an artifact with the digest of its bytes as they are now.

    Raises:
        PathEscape: the path leads outside the folder, or through a link.
        FileNotFoundError: there is no such file.
        OSError: it cannot be read.
    """
    name = PurePosixPath(path)
    if name.is_absolute() or ".." in name.parts or not name.parts or "\0" in path:
        raise PathEscape(path, "artifacts are named relative to the run's folder")
    current = folder
    for part in name.parts:
        current = current / part
        if current.is_symlink():
            raise PathEscape(path, f"{part!r} is a symbolic link")
    descriptor = os.open(current, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise PathEscape(path, "it is no regular file")
        return Artifact(path=str(name), sha256=hashlib.file_digest(file, "sha256").hexdigest())


def digest_of(folder: Path, path: str) -> str:
    """Return the SHA-256 of an artifact as it is now, `""` when it is not there or not a plain file of the folder."""
    try:
        return artifact_of(folder, path).sha256
    except (OSError, PathEscape):
        return ""
