"""The file of a SQLite store: how it is made, recognised, brought to the newest schema and opened.

A store comes into being whole: it is built under another name, with its schema and with checksummed pages, and then linked to its own. So a file of
that name is a store, or it is not one of ours and is left as it is. Every page carries a checksum (SQLite's `cksumvfs`, part of apsw), so that
a flipped bit is an error and never a wrong answer. Nothing here opens the file but SQLite: closing a second descriptor of our own would drop SQLite's
locks on it.

Sources: https://sqlite.org/cksumvfs.html, https://sqlite.org/howtocorrupt.html §2.2 (locks and descriptors), https://sqlite.org/wal.html.
"""

import os
import tempfile
import threading
from contextlib import closing
from pathlib import Path
from typing import cast

import apsw
import msgspec
from apsw import sqlite_extra

from checkrein.clock import jitter
from checkrein.errors import DamagedStore, StoreError
from checkrein.store.queries import migrations
from checkrein.store.sqlite_connection import Connection

__all__ = ["APPLICATION_ID", "CHECKSUM_BYTES", "SqliteOptions", "open_store"]

APPLICATION_ID = 0x63687265
"""`chre` in ASCII, in the header of each of our files."""
CHECKSUM_BYTES = 8
"""What cksumvfs keeps at the end of each page."""
PAUSE_SECONDS = 0.001
"""The mean wait between two tries to lock; short and random, so that a command gets in between two commits of a busy worker."""

_CHECKSUM_VFS = "cksmvfs"
_loading = threading.Lock()


class SqliteOptions(msgspec.Struct, frozen=True):
    """How a store uses SQLite. The defaults are right; tests of storage vary them.

    Attributes:
        patience_seconds: how long to wait for another process's lock before `StoreBusy`.
        checkpoint_pages: how many pages the write-ahead log gathers before they are moved into the file.
        is_exclusive: no second connection, no shared memory; needed where the file system has none.
    """

    patience_seconds: float = 5.0
    checkpoint_pages: int = 1000
    is_exclusive: bool = False


def open_store(path: Path, options: SqliteOptions, *, is_writer: bool) -> Connection:
    """Return a connection to the store at `path`, which is made if there is none and migrated if it is older.

    Raises:
        DamagedStore: the file is no store of ours, is of a newer version, or is damaged.
        StoreError: this apsw has no checksums.
        apsw.Error: SQLite could not read, write or lock the file.
        OSError: the file or its folder could not be made.
    """
    _load_checksums()
    if not path.exists():
        _create(path)
    if path.stat().st_size == 0:
        # SQLite would take it for a new database and delete the write-ahead log beside it.
        raise DamagedStore(str(path), "the file is empty")
    connection = Connection(str(path), vfs=_CHECKSUM_VFS)
    try:
        # Until it is known to be ours, nothing is written, not even by moving the write-ahead log into the file on closing.
        connection.raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        _wait_politely(connection, options.patience_seconds)
        if options.is_exclusive:
            connection.pragma("locking_mode", "exclusive")
        _recognise(connection, path)
        _harden(connection)
        _migrate(connection, path)
        if is_writer:
            _prepare_to_write(connection)
        else:
            connection.pragma("query_only", "on")
    except BaseException:
        connection.close()
        raise
    return connection


def _load_checksums() -> None:
    """Register cksumvfs under its name, and leave the process's default as it was."""
    with _loading:
        default, *_ = names = apsw.vfs_names()
        if _CHECKSUM_VFS in names:
            return
        with closing(Connection(":memory:")) as carrier:
            try:
                sqlite_extra.load(carrier.raw, "cksumvfs")
            except (LookupError, sqlite_extra.NotAvailable, apsw.Error) as error:
                msg = f"this apsw brings no cksumvfs ({error}); install apsw as its wheel: pip install --only-binary apsw apsw"
                raise StoreError(msg) from error
        apsw.set_default_vfs(default)


def _create(path: Path) -> None:
    """Put a whole, empty store at `path`, unless another process is faster."""
    if _write_ahead_log(path).exists() and not path.exists():
        raise DamagedStore(
            str(path), f"the file is gone but {_write_ahead_log(path).name} with its last events is there"
        )
    _make_folder(path.parent)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
    os.close(descriptor)
    fresh = Path(name)
    try:
        _build(fresh)
        os.link(fresh, path)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    _sync_folder(path.parent)


def _build(fresh: Path) -> None:
    with closing(Connection(str(fresh), vfs=_CHECKSUM_VFS)) as connection:
        connection.pragma("locking_mode", "exclusive")
        connection.raw.reserve_bytes("main", CHECKSUM_BYTES)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        connection.pragma("application_id", APPLICATION_ID)
        _migrate(connection, fresh)


def _write_ahead_log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, each for its owner alone."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _wait_politely(connection: Connection, patience_seconds: float) -> None:
    """Wait for locks in short random pauses; `busy_timeout` grows its pauses and lets a busy writer starve others."""
    pauser = threading.Event()
    waited = 0.0

    def pause(tries: int) -> bool:
        nonlocal waited
        waited = 0.0 if tries == 0 else waited
        if waited >= patience_seconds:
            return False
        seconds = jitter(PAUSE_SECONDS, spread=0.8)
        pauser.wait(seconds)
        waited += seconds
        return True

    connection.raw.set_busy_handler(pause)


def _recognise(connection: Connection, path: Path) -> None:
    """Refuse a file that is not ours, before anything is written to it.

    Raises:
        DamagedStore: it is of another application, or without checksums.
    """
    if connection.pragma("application_id") != APPLICATION_ID:
        raise DamagedStore(str(path), "the file is no store of checkrein")
    if connection.raw.reserve_bytes("main") != CHECKSUM_BYTES:
        raise DamagedStore(
            str(path), "the header of the file is damaged, or its pages were rewritten without checksums"
        )


def _harden(connection: Connection) -> None:
    """Let a crafted file do nothing but fail."""
    connection.raw.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.pragma("trusted_schema", "off")
    connection.pragma("cell_size_check", "on")


def _prepare_to_write(connection: Connection) -> None:
    connection.raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    connection.pragma("journal_mode", "wal")
    # NORMAL would lose acknowledged commits with the power.
    connection.pragma("synchronous", "full")
    connection.watch_log()


def _migrate(connection: Connection, path: Path) -> None:
    """Bring the schema to the newest version, each step in a transaction.

    Raises:
        DamagedStore: the schema is newer than this program.
    """
    steps = migrations("sqlite")
    newest = steps[-1].number
    if _schema(connection) == newest:
        return
    for step in steps:
        with connection.transaction():
            current = _schema(connection)
            if current > newest:
                raise DamagedStore(
                    str(path),
                    f"its schema {current} is newer than {newest}, the newest this checkrein knows: update checkrein",
                )
            if current == step.number - 1:
                connection.script(step.script)
                connection.pragma("user_version", step.number)


def _schema(connection: Connection) -> int:
    return cast("int", connection.pragma("user_version"))
