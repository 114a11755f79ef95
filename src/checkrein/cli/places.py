"""Where checkrein keeps what belongs to a person: the folder for state, the default store, the list of trusted tasks.

Only paths are decided here; nothing is read or made. `XDG_STATE_HOME` and `CHECKREIN_STORE` are the only variables of the environment that count.
"""

import getpass
import os
from pathlib import Path

from checkrein.cli.exits import Usage

__all__ = ["default_store", "state_folder", "store_path", "user_name"]

_STORE_VARIABLE = "CHECKREIN_STORE"


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


def user_name() -> str:
    """Return who is asking, for the log; `unknown` when the system does not say."""
    try:
        return getpass.getuser() or "unknown"
    except (OSError, KeyError):
        return "unknown"
