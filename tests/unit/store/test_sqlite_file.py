"""The file of a SQLite store: made whole and private, recognised before it is touched, and never anything but ours."""

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from checkrein.errors import DamagedStore, DataError, StoreError
from checkrein.ports.store import RunQuery
from checkrein.store import SqliteStore
from checkrein.store.queries import migrations
from checkrein.store.sqlite_connection import Connection
from checkrein.store.sqlite_file import APPLICATION_ID
from checkrein.testing.conformance_base import head, refused, rows


async def made(path: Path) -> Path:
    """Return the file of a store with one run."""
    store = SqliteStore(path)
    await store.create("run", "", rows("a"), head())
    await store.aclose()
    return path


def make_foreign(path: Path) -> None:
    """Make a database of somebody else's, with the process's default layer of files."""
    path.touch()
    foreign = Connection(str(path))
    foreign.script("CREATE TABLE notes (text); INSERT INTO notes VALUES ('mine')")
    foreign.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


async def test_constructing_and_closing_touches_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "deep" / "runs.db")
    await store.aclose()
    assert modes(tmp_path) == {}


async def test_files_and_missing_folders_are_their_owners_alone(tmp_path: Path) -> None:
    old_mask = os.umask(0)
    try:
        store = SqliteStore(tmp_path / "a" / "b" / "runs.db")
        await store.create("run", "", rows("a"), head())
        await store.get("run")
    finally:
        os.umask(old_mask)
    assert modes(tmp_path) == {"a": 0o700}
    assert modes(tmp_path / "a") == {"b": 0o700}
    assert modes(tmp_path / "a" / "b") == {"runs.db": 0o600, "runs.db-wal": 0o600, "runs.db-shm": 0o600}
    await store.aclose()
    assert modes(tmp_path / "a" / "b") == {"runs.db": 0o600}


async def test_a_file_that_is_there_keeps_its_rights(tmp_path: Path) -> None:
    path = await made(tmp_path / "runs.db")
    path.chmod(0o640)
    await made(path)
    assert modes(tmp_path) == {"runs.db": 0o640}


async def test_many_stores_that_make_one_file_at_once_make_one_store(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "runs.db") for _ in range(8)]
    await asyncio.gather(*(store.create(f"run{number}", "", rows("a"), head()) for number, store in enumerate(stores)))
    for store in stores:
        assert len(await store.list_runs(RunQuery())) == 8
    await asyncio.gather(*(store.aclose() for store in stores))
    assert modes(tmp_path) == {"runs.db": 0o600}


async def test_a_file_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    others = {"text": b"all kinds of notes\n" * 300, "empty": b"", "short": b"SQLite format 3\0", "zeros": bytes(8192)}
    make_foreign(tmp_path / "foreign")
    for name, content in others.items():
        (tmp_path / name).write_bytes(content)
    for name in (*others, "foreign"):
        path = tmp_path / name
        before = path.read_bytes()
        store = SqliteStore(path)
        for call in (store.get("run"), store.create("run", "", rows("a"), head()), store.report()):
            error = await refused(DamagedStore, call)
            assert error.path == str(path)
        await store.aclose()
        assert path.read_bytes() == before
    assert sorted(modes(tmp_path)) == sorted([*others, "foreign"])


async def test_a_store_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = await made(tmp_path / "runs.db")
    newest = migrations("sqlite")[-1].number
    newer = Connection(str(path), vfs="cksmvfs")
    assert newer.pragma("application_id") == APPLICATION_ID
    assert newer.pragma("user_version") == newest
    newer.pragma("user_version", newest + 1)
    # The new version is still in the write-ahead log alone, as after a crash.
    files = contents(tmp_path)
    newer.close()
    assert "runs.db-wal" in files
    for name in ("runs.db", "runs.db-wal"):
        (tmp_path / name).write_bytes(files[name])
    store = SqliteStore(path)
    for call in (store.get("run"), store.create("new", "", rows("a"), head())):
        error = await refused(DamagedStore, call)
        assert "newer" in error.reason
    await store.aclose()
    after = contents(tmp_path)
    assert {name: after[name] for name in ("runs.db", "runs.db-wal")} == {
        name: files[name] for name in ("runs.db", "runs.db-wal")
    }


async def test_a_write_ahead_log_without_its_file_is_not_thrown_away(tmp_path: Path) -> None:
    log = tmp_path / "runs.db-wal"
    log.write_bytes(b"the last events")
    store = SqliteStore(tmp_path / "runs.db")
    error = await refused(DamagedStore, store.create("run", "", rows("a"), head()))
    await store.aclose()
    assert "runs.db-wal" in error.reason
    assert log.read_bytes() == b"the last events"
    assert sorted(modes(tmp_path)) == ["runs.db-wal"]


async def test_a_path_where_no_file_can_be_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "folder", tmp_path / "file" / "runs.db", tmp_path / ("n" * 300)):
        store = SqliteStore(path)
        await refused(StoreError, store.create("run", "", rows("a"), head()))
        await store.aclose()


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_path_that_names_no_file_is_refused_at_once(path: str) -> None:
    with pytest.raises(DataError):
        SqliteStore(path)


async def test_names_that_mean_something_to_sqlite_are_plain_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (":memory:", "file:x?mode=memory", "run's 100%.db"):
        await made(Path(name))
        assert (tmp_path / name).stat().st_size > 0


async def test_other_users_of_sqlite_in_the_process_keep_their_default(tmp_path: Path) -> None:
    await made(tmp_path / "runs.db")
    make_foreign(tmp_path / "plain.db")
    assert (tmp_path / "plain.db").read_bytes()[20] == 0


def test_importing_the_stores_loads_no_database() -> None:
    code = """
import sys, checkrein.store
assert "apsw" not in sys.modules
checkrein.store.MemoryStore()
assert "apsw" not in sys.modules
checkrein.store.SqliteStore
assert "apsw" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_unknown_name_of_the_room_is_an_attribute_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from checkrein.store import Nothing"], capture_output=True, text=True, check=False
    )
    assert "ImportError: cannot import name 'Nothing'" in done.stderr
