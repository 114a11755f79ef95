"""From apsw's exceptions to ours: the only place that knows both.

Which of them mean that the file cannot be trusted, which that somebody else has it, and which that the system refused. The invariant: nothing that
apsw raises about storage leaves the package unconverted.
"""

from pathlib import Path

import apsw

from checkrein.errors import DamagedStore, StoreBusy, StoreError

__all__ = ["FOREIGN", "converted"]

FOREIGN = (apsw.Error, UnicodeDecodeError, OSError)
"""What reading and writing a store can raise besides our own errors: SQLite's, bytes that are no UTF-8, and the file system's."""

# `SQLError` is in it because every statement is ours and fits our schema: if it does not run, the schema is another one.
_DAMAGE = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.FormatError,
    apsw.SQLError,
    apsw.ConstraintError,
    apsw.MismatchError,
)
_DAMAGED_READS = {apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_CORRUPTFS, apsw.SQLITE_IOERR_SHORT_READ}


def converted(error: Exception, path: Path) -> StoreError:
    """Return our error for one of `FOREIGN`."""
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        msg = f"{path}: another process kept the store locked; wait for it or stop it, then repeat the call"
        return StoreBusy(msg)
    if isinstance(error, (*_DAMAGE, UnicodeDecodeError)) or _is_damaged_read(error):
        return DamagedStore(str(path), f"the file is damaged or no store of checkrein ({_reason(error)})")
    if isinstance(error, apsw.FullError):
        msg = f"{path}: the disk is full; make room, then repeat the call"
        return StoreError(msg)
    msg = f"{path}: the store could not be read or written ({_reason(error)}); look at the file, its folder and their rights"
    return StoreError(msg)


def _is_damaged_read(error: Exception) -> bool:
    return isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) in _DAMAGED_READS


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
