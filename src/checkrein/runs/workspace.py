"""The folders of runs: one below the task's workspace for each run, a fresh copy of it for each takeover.

A worker that lost its lease may still be writing. So the next owner never works in the same folder: it copies the whole folder to `<run id>.<epoch>` before any
grant, and a copy appears under its name only when it is complete. Artifacts are named relative to the folder and are known by their digests; a fork gets copies of
those that still have theirs.
"""

import asyncio
import errno
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Final

from checkrein.errors import PathEscape
from checkrein.kernel.events import Artifact
from checkrein.kernel.state import RunState

__all__ = [
    "ANSWER",
    "artifact_of",
    "digest_of",
    "discard_folder",
    "folder_of",
    "folders_of",
    "prepare_folder",
    "seed_folder",
    "write_answer",
]

_LATEST = "latest"
_CHUNK_BYTES = 1 << 20
ANSWER: Final = "answer"
"""The artifact in which a run keeps the answer that it reports."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_BELOW = _FOLDER | os.O_NOFOLLOW
# Non-blocking, because opening a pipe that nobody writes to would wait for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def folder_of(workspace: Path, state: RunState) -> Path:
    """Return the folder that counts: that of the last lease, or of the last owner that got as far as making it; before all that the one there will be.

    Raises:
        PathEscape: the log names a folder that is none of the run's.
    """
    made = folders_of(workspace, state)
    return made[0] if made else _place(workspace, state, state.folder or state.run_id)


def folders_of(workspace: Path, state: RunState) -> tuple[Path, ...]:
    """Return the folders that the run's owners made and that are still there, newest first.

    Raises:
        PathEscape: the log names a folder that is none of the run's.
    """
    return tuple(place for name in reversed(state.folders) if (place := _place(workspace, state, name)).is_dir())


def _place(workspace: Path, state: RunState, name: str) -> Path:
    """Return where a run's folder of that name is; names come from the log, and must not lead elsewhere."""
    if not re.fullmatch(rf"{re.escape(state.run_id)}(?:\.[0-9]+)?", name):
        raise PathEscape(name, f"the folders of run {state.run_id} are named by its id")
    return workspace / name


async def prepare_folder(workspace: Path, state: RunState) -> Path:
    """Make the run's folder ready for its new owner, and let `latest` point to it.

    Raises:
        PathEscape: the log names a folder that is none of the run's.
        OSError: the workspace cannot be written.
    """
    return await asyncio.to_thread(_prepare, workspace, state)


def _prepare(workspace: Path, state: RunState) -> Path:
    folder, before = _place(workspace, state, state.folder or state.run_id), folder_of(workspace, state)
    if not folder.exists():
        workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        if before == folder:
            folder.mkdir(mode=0o700, exist_ok=True)
        else:
            _copy(before, folder, state.epoch)
    _point(workspace / _LATEST, folder.name)
    return folder


def _copy(source: Path, target: Path, epoch: int) -> None:
    run_id = target.name.removesuffix(f".{epoch}")
    for left_behind in target.parent.glob(f".{run_id}.*.partial"):
        # Of a worker that died, or lost its lease, while it copied.
        shutil.rmtree(left_behind, ignore_errors=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    shutil.copytree(source, partial, symlinks=True, ignore=_vanishing, copy_function=_copy_file)
    partial.rename(target)


def _copy_file(source: str, target: str) -> None:
    """Copy a file, unless the worker that lost its lease has just removed it."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


def _vanishing(folder: str, names: list[str]) -> Iterable[str]:
    """Leave out temporary files of unfinished atomic writes, and whatever is neither file, folder nor link."""
    return [name for name in names if _is_unfinished(name) or not _is_plain(Path(folder, name))]


def _is_unfinished(name: str) -> bool:
    return name.startswith(".") and name.endswith((".part", ".partial"))


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
    with _file_of(folder, path) as file:
        return Artifact(path=str(PurePosixPath(path)), sha256=hashlib.file_digest(file, "sha256").hexdigest())


def _file_of(folder: Path, path: str) -> BufferedReader:
    """Open a plain file below a folder.

    Raises:
        PathEscape: the path leads outside the folder, or through a link, or to something else than a file.
        OSError: it is not there, or cannot be opened.
    """
    name = PurePosixPath(path)
    if name.is_absolute() or ".." in name.parts or not name.parts or "\0" in path:
        raise PathEscape(path, "artifacts are named relative to the run's folder")
    file = os.fdopen(_opened(folder, name, path), "rb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise PathEscape(path, "it is no regular file")


async def write_answer(folder: Path, text: str) -> Artifact:
    """Write a reported answer to the run's folder, whole or not at all, and return it as the artifact `answer`.

    Raises:
        PathEscape: something else than a file has that name.
        OSError: it cannot be written.
    """
    return await asyncio.to_thread(_write_answer, folder, text)


def _write_answer(folder: Path, text: str) -> Artifact:
    part = folder / f".{ANSWER}.part"
    part.unlink(missing_ok=True)
    with part.open("x", encoding="utf-8") as file:
        file.write(text)
    part.replace(folder / ANSWER)
    return artifact_of(folder, ANSWER)


def _opened(folder: Path, name: PurePosixPath, path: str) -> int:
    """Return a descriptor of a file below a folder; each part is opened relative to the one before, so that none can be swapped for a link meanwhile.

    Raises:
        PathEscape: a part is a symbolic link.
        OSError: a part is missing, or cannot be opened.
    """
    current = os.open(folder, _FOLDER)
    for part, flags in zip(name.parts, [_BELOW] * (len(name.parts) - 1) + [_FILE], strict=True):
        try:
            following = os.open(part, flags, dir_fd=current)
        except OSError as error:
            is_link = error.errno in {errno.ELOOP, errno.ENOTDIR} and _is_link(part, current)
            if is_link:
                raise PathEscape(path, f"{part!r} is a symbolic link") from error
            raise
        finally:
            os.close(current)
        current = following
    return current


def _is_link(part: str, descriptor: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(part, dir_fd=descriptor, follow_symlinks=False).st_mode)
    except OSError:
        return False


def digest_of(folder: Path, path: str) -> str:
    """Return the SHA-256 of an artifact as it is now, `""` when it is not there or not a plain file of the folder."""
    try:
        return artifact_of(folder, path).sha256
    except (OSError, PathEscape):
        return ""


def seed_folder(
    workspace: Path, run_id: str, artifacts: Sequence[Artifact], sources: Sequence[Path]
) -> tuple[Artifact, ...]:
    """Make the folder of a run that is not stored yet, with copies of artifacts of another run.

    Args:
        workspace: where the folder is made, whole or not at all.
        run_id: the new run.
        artifacts: what to copy; each from the first source where it has the recorded bytes.
        sources: folders of the other run.

    Returns:
        The artifacts that were copied; no source has the others any more.

    Raises:
        OSError: the workspace cannot be written.
    """
    partial = workspace / f".{run_id}.{os.getpid()}.partial"
    workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial.mkdir(mode=0o700)
    try:
        copied = tuple(item for item in artifacts if any(_copied(source, partial, item) for source in sources))
        partial.rename(workspace / run_id)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return copied


def discard_folder(workspace: Path, run_id: str) -> None:
    """Remove the folder that `seed_folder` made for a run that was not stored after all."""
    shutil.rmtree(workspace / run_id, ignore_errors=True)


def _copied(source: Path, target: Path, artifact: Artifact) -> bool:
    """Copy an artifact if the very bytes that were copied have the recorded digest."""
    try:
        file = _file_of(source, artifact.path)
    except (OSError, PathEscape):
        return False
    place = target / artifact.path
    with file:
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            copy = place.open("xb")
        except (FileExistsError, NotADirectoryError):
            return False  # an artifact of another time had a part of this path as its name
        digest = hashlib.sha256()
        with copy:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                copy.write(chunk)
            os.fchmod(copy.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o777)
    if digest.hexdigest() == artifact.sha256:
        return True
    place.unlink()
    return False
