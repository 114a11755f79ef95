"""Exit codes, and which error gives which.

The invariant: every way to leave a command has a code of `Exit`, and an error of checkrein becomes one line with what to do, never a traceback.
"""

from enum import IntEnum

from checkrein.errors import (
    AmbiguousRun,
    CheckreinError,
    DamagedLog,
    DataError,
    RunNotFound,
    TaskError,
    UntrustedTask,
)
from checkrein.kernel.state import Phase, RunState

__all__ = ["Exit", "NotCovered", "Refused", "Usage", "exit_of", "exit_of_error"]


class Exit(IntEnum):
    """Every exit code."""

    SUCCEEDED = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    BLOCKED = 4
    BUDGET = 5
    DEFECT = 70
    INTERRUPTED = 130
    TERMINATED = 143


class Usage(CheckreinError):
    """What was asked for cannot be meant; nothing was done."""


class Refused(CheckreinError):
    """What was asked for is not possible or not allowed now; nothing was done."""


class NotCovered(TaskError):
    """Something in a task folder cannot be covered by a hash, so the folder cannot be trusted."""


_USAGE = (Usage, RunNotFound, AmbiguousRun, TaskError, DataError)
_NOT_USAGE = (UntrustedTask, NotCovered, DamagedLog)


def exit_of_error(error: Exception) -> Exit:
    """Return the code for an error that ended a command."""
    if isinstance(error, _USAGE) and not isinstance(error, _NOT_USAGE):
        return Exit.USAGE
    return Exit.REFUSED if isinstance(error, (CheckreinError, OSError)) else Exit.DEFECT


def exit_of(state: RunState) -> Exit:
    """Return the code for a run as it stands; 0 while it can go on."""
    if state.phase is Phase.FAILED:
        return Exit.FAILED
    if state.phase is not Phase.BLOCKED:
        return Exit.SUCCEEDED
    return Exit.BUDGET if all(cause.kind == "budget" for cause in state.causes) else Exit.BLOCKED
