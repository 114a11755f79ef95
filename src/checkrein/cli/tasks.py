"""From a path to a task that may run: read once, trusted, composed.

The order is the promise: the folder is hashed before anything of it is imported, and only a trusted hash is imported at all.
"""

from pathlib import Path

from checkrein.cli.exits import Refused, Usage
from checkrein.cli.models import Models
from checkrein.cli.places import state_folder
from checkrein.cli.resolver import FolderResolver, brings_code
from checkrein.cli.screen import Screen, shown
from checkrein.cli.trust import TaskFolder, TrustList, take_folder
from checkrein.clock import SystemClock
from checkrein.errors import UntrustedTask
from checkrein.kernel.state import RunState
from checkrein.runs.task import Task
from checkrein.runs.taskfile import load_task, task_file_of

__all__ = ["compose", "demand_trust", "home_of", "load_trusted", "read_folder", "refuse_other_code", "trust_now"]


def read_folder(path: Path) -> TaskFolder:
    """Return the folder of a task file, or of a folder that holds `task.toml`; nothing of it is run.

    Raises:
        TaskError: there is no task file, it is no TOML, or something in the folder cannot be covered by a hash.
        OSError: a folder cannot be read.
    """
    return take_folder(task_file_of(path))


def load_trusted(path: Path, screen: Screen, *, trust: bool, models: Models | None = None) -> Task:
    """Return the task at a path, once it is trusted.

    Args:
        path: a task file, or a folder that holds `task.toml`.
        screen: says what is trusted, and asks if it may.
        trust: trust what is there now without asking.
        models: makes the model that plans it, if the command line or the task names one.

    Raises:
        UntrustedTask: it brings code that nobody has trusted; nothing was imported.
        TaskError: the task is invalid.
        Usage: its model cannot be made.
        OSError: a folder cannot be read, or the list of trusted tasks cannot be written.
    """
    folder = read_folder(path)
    typed = () if models is None else models.typed
    demand_trust(folder, screen, trust=trust, command=("run", str(path), *typed, "--trust"))
    return compose(folder, models)


def compose(folder: TaskFolder, models: Models | None = None) -> Task:
    """Return the task of a folder that is trusted.

    Args:
        folder: what was read.
        models: makes the model that plans it, if the command line or the task names one.

    Raises:
        TaskError: the task is invalid.
        Usage: its model cannot be made.
    """
    models = models or Models()
    return models.planning(
        load_task(folder.file, FolderResolver(folder, models=models), folder.files[folder.file.name])
    )


def demand_trust(folder: TaskFolder, screen: Screen, *, trust: bool, command: tuple[str, ...]) -> None:
    """Return if the folder brings no code, was trusted before, or is trusted now.

    Args:
        folder: what was read.
        screen: says what is trusted, and asks if it may.
        trust: trust it without asking.
        command: what to type to trust it, if the answer is no.

    Raises:
        UntrustedTask: it is not trusted; nothing was imported.
        TaskError: the list of trusted tasks is damaged.
        OSError: the list cannot be read or written.
    """
    if not brings_code(folder):
        return
    known = _trust_list()
    if known is not None and known.holds(folder.code_hash):
        return
    if not trust and not _is_agreed(folder, screen):
        raise UntrustedTask(
            str(folder.file),
            folder.code_hash,
            f"read it, then trust exactly what is there now with: {screen.command(*command)}",
        )
    trust_now(folder, screen)


def trust_now(folder: TaskFolder, screen: Screen) -> None:
    """Trust what was read, and say so; without a place for the list, for this command only.

    Raises:
        TaskError: the list of trusted tasks is damaged.
        OSError: the list cannot be written.
    """
    known = _trust_list()
    if known is not None:
        known.add(folder.code_hash, folder.file)
    screen.note(
        "trusted ",
        (folder.code_hash, "bold"),
        "" if known is not None else " for this command only: this user has no home folder",
    )


def home_of(state: RunState) -> Path:
    """Return where the task file of a run was when the run was stored.

    Raises:
        Usage: it is not there any more, or there was none.
    """
    source = state.task.data.get("source")
    path = Path(source) if isinstance(source, str) else Path()
    if not path.is_absolute():
        msg = f"run {state.run_id} was stored by a program of its own; go on with it there, or name its task file with --task PATH"
        raise Usage(msg)
    if not path.is_file():
        msg = f"the task of run {state.run_id} is not at {path} any more; name its task file with --task PATH"
        raise Usage(msg)
    return path


def refuse_other_code(
    state: RunState, code_hash: str, where: Path, screen: Screen, command: tuple[str, ...] = ()
) -> None:
    """Return if a run was stored with this code.

    Args:
        state: the run.
        code_hash: the hash of the code.
        where: where it is.
        screen: how commands are printed.
        command: what to type to accept it; by default `resume RUN --trust`.

    Raises:
        Refused: it was stored with other code; both hashes and the way to accept the new one are in the message.
    """
    if code_hash != state.code_hash:
        msg = (
            f"the task's code is not what run {state.run_id} was stored with: it had {state.code_hash or 'none'}, {where} has {code_hash}; "
            f"read what changed, then go on with it: {screen.command(*(command or ('resume', state.run_id, '--trust')))}"
        )
        raise Refused(msg)


def _is_agreed(folder: TaskFolder, screen: Screen) -> bool:
    if not screen.can_ask:
        return False
    screen.note("This task brings code that would run with your rights:")
    for name in sorted(folder.files)[:20]:
        screen.note("  ", shown(name))
    if len(folder.files) > 20:  # noqa: PLR2004  a screenful
        screen.note(f"  … and {len(folder.files) - 20} more")
    screen.note("hash ", (folder.code_hash, "bold"))
    return screen.ask(f"Trust {shown(str(folder.folder))} as it is now?")


def _trust_list() -> TrustList | None:
    """Return the list of this user; None when there is no place for it, so that trust lasts as long as the command."""
    try:
        return TrustList(state_folder() / "trust.json", SystemClock())
    except Usage:
        return None
