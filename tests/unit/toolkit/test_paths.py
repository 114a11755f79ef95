"""Files below a folder: nothing outside is ever read or written."""

import ctypes
import os
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkrein.errors import PathEscape
from checkrein.toolkit import paths

CHECKS = 100_000
# Linux: renameat2(2) swaps two names in one step, so that at every moment one of them is there.
AT_FDCWD = -100
RENAME_EXCHANGE = 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder `run` beside a folder `outside` that holds a secret, and a prefix twin `run2`."""
    for name in ("run", "outside", "run2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file.txt").write_text(name, encoding="utf-8")
    return tmp_path / "run"


def read(folder: Path, path: str) -> str:
    with paths.open_file(folder, path) as opened:
        return os.read(opened, 1_000).decode()


def outside(folder: Path) -> dict[str, bytes]:
    """Return everything there is beside the folder."""
    around = (path for path in folder.parent.rglob("*") if path.is_file() and not path.is_relative_to(folder))
    return {str(path): path.read_bytes() for path in around}


@pytest.mark.parametrize("path", ["file.txt", "./file.txt", ".//file.txt"])
def test_a_plain_path_is_read(folder: Path, path: str) -> None:
    assert read(folder, path) == "run"


def test_a_file_is_written_whole_with_the_folders_on_the_way(folder: Path) -> None:
    paths.write_file(folder, "a/b/c.txt", b"one")
    paths.write_file(folder, "a/b/c.txt", b"two")
    assert read(folder, "a/b/c.txt") == "two"
    assert [path.name for path in (folder / "a" / "b").iterdir()] == ["c.txt"]
    assert (folder / "a").stat().st_mode & 0o777 == 0o700
    assert (folder / "a/b/c.txt").stat().st_mode & 0o777 == 0o600


HOSTILE = [
    "", ".", "./", "/", "//", "..", "../", "../outside/file.txt", "../run2/file.txt", "a/../../outside/file.txt",
    "a/..", "./../outside/file.txt", "file.txt/", "file.txt/.", "file\0.txt", "../outside/file.txt\0.txt", "a\nb", "\x7f",
    "\udcff", "a" * 256, "a/" * 40 + "b", "a" * 4_097, "x/" * 3_000, "/etc/passwd", "///etc/passwd", "é" * 128,
]  # fmt: skip


@pytest.mark.parametrize("path", HOSTILE, ids=range(len(HOSTILE)))
def test_a_path_that_is_no_plain_relative_path_is_refused(folder: Path, path: str) -> None:
    before = outside(folder)
    with pytest.raises(PathEscape):
        read(folder, path)
    with pytest.raises(PathEscape):
        paths.write_file(folder, path, b"x")
    assert outside(folder) == before
    assert [item.name for item in folder.iterdir()] == ["file.txt"]


@pytest.mark.parametrize("path", ["..．/x", "．．/outside/file.txt", "‥/outside/file.txt", "..\\outside\\file.txt", "~/x", "$HOME", "%2e%2e/x"])  # fmt: skip
def test_a_name_that_only_looks_like_climbing_is_a_name(folder: Path, path: str) -> None:
    before = outside(folder)
    paths.write_file(folder, path, b"inside")
    assert read(folder, path) == "inside"
    assert outside(folder) == before


def test_names_are_taken_byte_for_byte(folder: Path) -> None:
    composed, decomposed = "\u00e9.txt", "e\u0301.txt"
    paths.write_file(folder, composed, b"composed")
    with pytest.raises(FileNotFoundError):
        read(folder, decomposed)


def test_a_name_as_long_as_the_file_system_takes_is_written(folder: Path) -> None:
    paths.write_file(folder, "é" * 127 + "x", b"long")
    assert read(folder, "é" * 127 + "x") == "long"


def test_a_link_to_a_file_is_not_read_and_is_replaced_by_writing(folder: Path) -> None:
    (folder / "link").symlink_to("../outside/file.txt")
    with pytest.raises(PathEscape, match="link is a symbolic link"):
        read(folder, "link")
    paths.write_file(folder, "link", b"mine")
    assert read(folder, "link") == "mine"
    assert (folder.parent / "outside/file.txt").read_text(encoding="utf-8") == "outside"


@pytest.mark.parametrize("target", ["../outside", "sub", ".", "/", "nowhere"])
def test_a_link_in_the_middle_is_refused_wherever_it_leads(folder: Path, target: str) -> None:
    (folder / "sub").mkdir()
    (folder / "door").symlink_to(target)
    before = outside(folder)
    for path in ("door/file.txt", "sub/../door/file.txt", "door/new.txt", "door/deeper/new.txt"):
        with pytest.raises(PathEscape):
            read(folder, path)
        with pytest.raises(PathEscape):
            paths.write_file(folder, path, b"x")
    assert outside(folder) == before


def test_the_folder_itself_may_be_reached_through_a_link(folder: Path) -> None:
    (folder.parent / "latest").symlink_to("run")
    assert read(folder.parent / "latest", "file.txt") == "run"


def test_what_is_no_regular_file_is_not_opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
    (folder / "sub").mkdir()
    for name, error in (("pipe", OSError), ("socket", OSError), ("sub", IsADirectoryError)):
        with pytest.raises(error):
            read(folder, name)
    with pytest.raises(IsADirectoryError):
        paths.write_file(folder, "sub", b"x")
    assert list((folder / "sub").iterdir()) == []


def test_a_file_on_the_way_is_no_folder_and_no_escape(folder: Path) -> None:
    with pytest.raises(NotADirectoryError):
        read(folder, "file.txt/x")
    with pytest.raises(NotADirectoryError):
        paths.write_file(folder, "file.txt/x", b"x")


def test_a_failed_write_leaves_nothing_behind(folder: Path) -> None:
    (folder / "sub").mkdir()
    with pytest.raises(IsADirectoryError):
        paths.write_file(folder, "sub", b"x")
    assert sorted(item.name for item in folder.iterdir()) == ["file.txt", "sub"]


def test_a_name_left_by_a_crashed_process_is_stepped_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_numbers", iter([7, 7, 8]))
    (folder / f".{os.getpid():x}-7.part").write_text("torn", encoding="utf-8")
    paths.write_file(folder, "new.txt", b"whole")
    assert read(folder, "new.txt") == "whole"


def test_every_descriptor_is_closed_whatever_happens(folder: Path) -> None:
    (folder / "door").symlink_to("../outside")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in ("file.txt", "door/x", "nowhere/x", "file.txt/x", "../x", "a/b/c"):
        for action in (lambda path=path: read(folder, path), lambda path=path: paths.write_file(folder, path, b"x")):
            try:
                action()
            except (OSError, PathEscape):
                continue
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_files_are_found_by_their_ending_and_links_are_not_followed(folder: Path) -> None:
    for name in ("b.CSV", "a/a.csv", "a/b/c.csv", "not.txt"):
        paths.write_file(folder, name, b"x")
    (folder / "link.csv").symlink_to("b.CSV")
    (folder / "a/door").symlink_to("../../outside")
    (folder.parent / "outside/secret.csv").write_text("x", encoding="utf-8")
    (folder / "odd\n.csv").write_text("x", encoding="utf-8")
    assert paths.find_files(folder, ".csv") == ["a/a.csv", "a/b/c.csv", "b.CSV"]


@pytest.fixture
def swapped(folder: Path) -> Iterator[Path]:
    """Return a folder in which `box` is, by turns and without end, a folder inside and a link to the folder outside."""
    (folder / "box").mkdir()
    (folder / "box/file.txt").write_text("inside", encoding="utf-8")
    (folder / "door").symlink_to("../outside")
    box, door = os.fsencode(folder / "box"), os.fsencode(folder / "door")
    rename = ctypes.CDLL(None).renameat2
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            assert rename(AT_FDCWD, box, AT_FDCWD, door, RENAME_EXCHANGE) == 0

    swapper = threading.Thread(target=swap, daemon=True)
    swapper.start()
    yield folder
    done.set()
    swapper.join()


def test_no_read_escapes_while_a_folder_is_swapped_for_a_link(swapped: Path) -> None:
    seen: Counter[str] = Counter()
    for _ in range(CHECKS):
        try:
            seen[read(swapped, "box/file.txt")] += 1
        except PathEscape:
            seen["refused"] += 1
    # Both ways it can go were met, or the race was none.
    assert set(seen) == {"inside", "refused"}
    assert sum(seen.values()) == CHECKS


def test_no_write_escapes_while_a_folder_is_swapped_for_a_link(swapped: Path) -> None:
    before = outside(swapped)
    seen: Counter[str] = Counter()
    # Until both ways it can go were met often; pytest's own limit bounds it.
    while seen.total() < 2_000 or min(seen["written"], seen["refused"]) < 100:
        try:
            paths.write_file(swapped, "box/file.txt", str(seen.total()).encode())
            seen["written"] += 1
        except PathEscape:
            seen["refused"] += 1
    assert outside(swapped) == before


def test_checking_first_and_opening_then_would_escape(swapped: Path) -> None:
    """The race is real: the ordinary way, a check of the resolved path and then an open of the path, reads the secret."""
    seen: Counter[str] = Counter()
    while not seen["outside"]:
        try:
            if (swapped / "box/file.txt").resolve().is_relative_to(swapped):
                seen[(swapped / "box/file.txt").read_text(encoding="utf-8")] += 1
        except OSError:
            # Resolving itself stumbles when a link becomes a folder between two of its steps.
            seen["stumbled"] += 1
    assert seen["outside"]
