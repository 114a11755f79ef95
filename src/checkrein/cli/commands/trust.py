"""`trust`: trust a task folder's code as it is now, and nothing else."""

from pathlib import Path

from checkrein.cli.exits import Exit
from checkrein.cli.invocation import Invocation
from checkrein.cli.resolver import brings_code
from checkrein.cli.screen import shown
from checkrein.cli.tasks import read_folder, trust_now

__all__ = ["trust"]


def trust(invocation: Invocation, path: Path) -> Exit:
    """Trust what is there now.

    Raises:
        TaskError: there is no task file, or something in the folder cannot be covered by a hash.
        OSError: the folder cannot be read, or the list of trusted tasks cannot be written.
    """
    screen = invocation.screen
    folder = read_folder(path)
    if brings_code(folder):
        trust_now(folder, screen)
    else:
        screen.note(f"{shown(folder.file)} brings no code, so it needs no trust")
    screen.record({"file": str(folder.file), "code_hash": folder.code_hash})
    screen.next_command("run", str(path))
    return Exit.SUCCEEDED
