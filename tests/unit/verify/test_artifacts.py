"""Nothing outside the run's folder is read, and nothing in it can hold a verifier up."""

import os
import threading
from pathlib import Path

import pytest

from checkrein.errors import VerifierFailed
from checkrein.verify.artifacts import (
    Unmet,
    open_artifact,
    open_input,
    path_problem,
    read_artifact,
    read_text,
)
from tests.unit.verify.measuring import context, measure, write

SECRET = b"secret"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's folder with a secret beside it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_bytes(SECRET)
    (tmp_path / "run-twin").mkdir()
    (tmp_path / "run-twin" / "secret.txt").write_bytes(SECRET)
    (tmp_path / "run" / "charts").mkdir(parents=True)
    (tmp_path / "run" / "report.md").write_bytes(b"report")
    (tmp_path / "run" / "charts" / "years.txt").write_bytes(b"chart")
    return tmp_path / "run"


def _code(folder: Path, path: str) -> str:
    with pytest.raises(Unmet) as caught:
        read_artifact(folder, path)
    return caught.value.measurement.code


@pytest.mark.parametrize("path", ["report.md", "charts/years.txt"])
def test_a_file_below_the_folder_is_read(folder: Path, path: str) -> None:
    assert read_artifact(folder, path) == (folder / path).read_bytes()


def test_the_folder_itself_may_be_reached_through_a_link(folder: Path) -> None:
    (folder.parent / "latest").symlink_to(folder)
    assert read_artifact(folder.parent / "latest", "report.md") == b"report"


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "..",
        "/etc/passwd",
        "../outside/secret.txt",
        "../run-twin/secret.txt",
        "charts/../../outside/secret.txt",
        "charts//years.txt",
        "./report.md",
        "report.md/",
        "report.md\0.png",
        "\ud800.md",
        "a" * 256,
        "/".join(["a" * 200] * 30),
    ],
)
def test_a_path_that_is_no_plain_relative_one_is_refused_without_opening_anything(folder: Path, path: str) -> None:
    assert path_problem(path)
    assert _code(folder, path) == "escapes"


def test_a_symlink_is_not_followed_at_the_end_nor_in_the_middle(folder: Path) -> None:
    (folder / "link.txt").symlink_to(folder.parent / "outside" / "secret.txt")
    (folder / "door").symlink_to(folder.parent / "outside")
    (folder / "inner").symlink_to(folder / "charts")
    (folder / "dangling").symlink_to(folder / "nothing")
    assert {_code(folder, path) for path in ("link.txt", "door/secret.txt", "inner/years.txt", "dangling")} == {
        "escapes"
    }


def test_what_is_not_there_is_missing(folder: Path) -> None:
    assert {_code(folder, path) for path in ("nothing.md", "nothing/at/all", "report.md/inner")} == {"missing"}


def test_what_is_no_regular_file_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert {_code(folder, path) for path in ("pipe", "charts")} == {"not_a_file"}


def test_a_file_over_the_limit_is_not_read(folder: Path) -> None:
    write(folder, "large", b"x" * 101)
    with pytest.raises(Unmet, match="more than the 100") as caught:
        read_artifact(folder, "large", limit=100)
    assert caught.value.measurement.code == "too_large"
    assert len(read_artifact(folder, "large", limit=101)) == 101


def test_a_sparse_file_of_a_terabyte_is_refused_at_once(folder: Path) -> None:
    with (folder / "huge").open("wb") as file:
        file.truncate(2**40)
    assert _code(folder, "huge") == "too_large"


def test_a_name_is_the_bytes_it_is_not_a_normal_form(folder: Path) -> None:
    write(folder, "caf\u00e9", b"composed")
    assert _code(folder, "cafe\u0301") == "missing"


def test_swapping_a_folder_for_a_symlink_meanwhile_never_lets_a_read_out(folder: Path) -> None:
    write(folder, "swap/secret.txt", b"harmless")
    (folder / "bait").symlink_to(folder.parent / "outside")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (folder / "swap").rename(folder / "aside")
            (folder / "bait").rename(folder / "swap")
            (folder / "swap").rename(folder / "bait")
            (folder / "aside").rename(folder / "swap")

    thread = threading.Thread(target=swap)
    thread.start()
    read: set[bytes | str] = set()
    try:
        for _ in range(20_000):
            try:
                read.add(read_artifact(folder, "swap/secret.txt"))
            except Unmet as unmet:
                read.add(unmet.measurement.code)
    finally:
        stop.set()
        thread.join()
    assert SECRET not in read
    assert b"harmless" in read


def test_a_folder_that_is_gone_is_the_verifiers_failure(tmp_path: Path) -> None:
    with pytest.raises(VerifierFailed, match="cannot be opened"):
        open_artifact(tmp_path / "gone", "report.md")


@pytest.mark.parametrize(("content", "found"), [(b"caf\xc3\xa9", "café"), (b"\xef\xbb\xbfa", "a"), (b"", "")])
def test_text_is_utf_8_with_or_without_a_mark(content: bytes, found: str) -> None:
    assert read_text(content, "report.md") == found


@pytest.mark.parametrize("content", [b"caf\xe9", b"a\0b", b"\xff\xfea\0", b"\xed\xa0\x80"])
def test_other_encodings_and_binary_data_are_not_text(content: bytes) -> None:
    with pytest.raises(Unmet) as caught:
        read_text(content, "report.md")
    assert caught.value.measurement.code == "not_text"


def test_an_input_that_cannot_be_used_is_the_verifiers_failure_not_the_reports(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    inputs = {"gone": tmp_path / "gone.csv", "pipe": tmp_path / "pipe", "folder": tmp_path}
    for name in ("unknown", *inputs):
        with pytest.raises(VerifierFailed, match=name):
            open_input(context(tmp_path, inputs), name)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("file", {}),
        ("image", {}),
        ("table", {}),
        ("links", {}),
        ("json_schema", {"schema": {}}),
        ("checksum", {"sha256": "0" * 64}),
        ("command", {"argv": ["true"]}),
        ("sql", {"query": "select 1"}),
    ],
)
async def test_every_kind_finds_a_missing_file_and_an_escape_and_raises_neither(
    kind: str, options: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "link.csv").symlink_to("/etc/passwd")
    missing = await measure(kind, {"path": "report.csv", **options}, tmp_path)
    escaping = await measure(kind, {"path": "link.csv", **options}, tmp_path)
    assert (missing.passed, missing.code) == (False, "missing")
    assert (escaping.passed, escaping.code) == (False, "escapes")
