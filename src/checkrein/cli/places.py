"""Where checkrein and what it keeps for a person are: the program, the folder for state, the default store, the list of trusted tasks.

Only paths are decided here; nothing is read or made. `XDG_STATE_HOME`, `CHECKREIN_STORE` and, for the program's name, `PATH` are
the only variables of the environment that count.
"""

import getpass
import os
import shutil
import sys
from pathlib import Path

from checkrein.cli.exits import Usage

__all__ = ["default_store", "program_name", "state_folder", "store_path", "user_name"]

_STORE_VARIABLE = "CHECKREIN_STORE"
_PROGRAM = "checkrein"


def state_folder() -> Path:
    """Return the folder for a person's state: `$XDG_STATE_HOME/checkrein`, or `~/.local/state/checkrein`.

    Raises:
        Usage: this user has no home folder, and no variable names another place.
    """
    named = os.environ.get("XDG_STATE_HOME", "")
    if named and Path(named).is_absolute():  # the XDG specification ignores relative paths
        return Path(named) / "checkrein"
    try:
        return Path.home() / ".local" / "state" / "checkrein"
    except RuntimeError as error:
        msg = "this user has no home folder to keep runs in; name a file with --store, or a folder with XDG_STATE_HOME"
        raise Usage(msg) from error


def default_store() -> Path:
    """Return the store that is used when none is named.

    Raises:
        Usage: as `state_folder`.
    """
    named = os.environ.get(_STORE_VARIABLE, "")
    return Path(named).absolute() if named else state_folder() / "runs.db"


def store_path(given: Path | None) -> tuple[Path, bool]:
    """Return the store to use, and whether printed commands must name it.

    Raises:
        Usage: as `state_folder`.
    """
    if given is None:
        return default_store(), False
    path = given.expanduser().absolute()
    try:
        return path, path != default_store()
    except Usage:
        return path, True


def program_name() -> str:
    """Return what to type for this command line here: `checkrein` where a shell finds it by that name, else the path it was called by."""
    typed = Path(sys.argv[0])
    if typed.name != _PROGRAM or not typed.exists():
        return _PROGRAM
    found = shutil.which(_PROGRAM)
    return _PROGRAM if found is not None and typed.samefile(found) else str(typed)


def user_name() -> str:
    """Return who is asking, for the log; `unknown` when the system does not say."""
    try:
        return getpass.getuser() or "unknown"
    except (OSError, KeyError):
        return "unknown"
