"""Whatever a path is made of, nothing outside the folder is read, written or made."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings, strategies as st

from checkrein.errors import PathEscape
from checkrein.toolkit import paths

PIECES = st.sampled_from(
    ["..", ".", "", "/", "\\", "a", "link", "out", "run", "run2", "file.txt", "\0", "\n", "~", "é", "e\u0301", "．．", "\udc80", "x" * 300, "%2e%2e"]
) | st.text(max_size=6)  # fmt: skip
PATHS = st.lists(PIECES, max_size=8).map("/".join) | st.text(max_size=40)
LINKS = st.dictionaries(
    st.sampled_from(["link", "a", "out"]), st.sampled_from(["..", "../outside", "/", ".", "file.txt", "link", "../outside/file.txt"])
)  # fmt: skip


@contextmanager
def world(links: dict[str, str]) -> Generator[Path]:
    """Give a folder `run` with links, beside `outside` and `run2` that hold a secret each."""
    with TemporaryDirectory() as name:
        for folder in ("run", "outside", "run2"):
            (Path(name) / folder).mkdir()
            (Path(name) / folder / "file.txt").write_text(f"secret of {folder}", encoding="utf-8")
        for link, target in links.items():
            (Path(name) / "run" / link).symlink_to(target)
        yield Path(name) / "run"


def around(folder: Path) -> dict[str, str]:
    """Return what is beside the folder."""
    found = (path for path in sorted(folder.parent.rglob("*")) if not path.is_relative_to(folder))
    return {str(path): path.read_text(encoding="utf-8") if path.is_file() else "" for path in found}


@settings(max_examples=300)
@given(path=PATHS, links=LINKS)
@example(path="link/file.txt", links={"link": "../outside"})
@example(path="a/link/x", links={"a": ".", "link": ".."})
def test_nothing_outside_is_touched(path: str, links: dict[str, str]) -> None:
    with world(links) as folder:
        before = around(folder)
        try:
            with paths.open_file(folder, path) as opened:
                assert os.read(opened, 100) == b"secret of run"
        except (PathEscape, OSError):
            pass
        try:
            paths.write_file(folder, path, b"mine")
        except (PathEscape, OSError):
            pass
        else:
            with paths.open_file(folder, path) as opened:
                assert os.read(opened, 100) == b"mine"
        assert around(folder) == before
        assert not list(folder.rglob("*.part"))


@settings(max_examples=500)
@given(path=PATHS)
def test_a_path_that_passes_is_made_of_plain_names(path: str) -> None:
    try:
        parts = paths.split_path(path)
    except PathEscape:
        return
    assert parts
    assert all(part not in {"", ".", ".."} and "/" not in part and "\0" not in part for part in parts)
    assert all(len(part.encode()) <= 255 for part in parts)
    assert paths.split_path("/".join(parts)) == parts
