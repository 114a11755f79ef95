"""A run's folder: its artifacts are what is really below it, and a takeover brings all of it along."""

import hashlib
import os
import stat
import threading
from collections.abc import Awaitable
from pathlib import Path

import pytest

from checkrein.cli.commands.verify import problems_of
from checkrein.errors import PathEscape
from checkrein.kernel.state import Phase
from checkrein.runs.lease import LONGEST_NAME
from checkrein.runs.workspace import artifact_of, digest_of, folder_of, prepare_folder
from tests.unit.kernel.story import running
from tests.unit.runs.scene import Scene, Script, write


def _names(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir())


async def test_a_takeover_copies_every_file_but_those_of_unfinished_writes(scene: Scene) -> None:
    task = scene.task(Script([write("kept", "data.partial"), write()]))
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "before append step.start tool.call tool_granted", at=2)
    folder = scene.folder / run_id
    (folder / ".report.txt.1.partial").write_text("half", encoding="utf-8")
    (folder / ".1-1.part").write_text("half", encoding="utf-8")
    os.mkfifo(folder / "pipe")
    (scene.folder / f".{run_id}.2.99.partial").mkdir()
    state = await scene.worker(task).advance(run_id)
    assert (state.phase, state.folder) == (Phase.SUCCEEDED, f"{run_id}.2")
    assert _names(scene.folder / state.folder) == ["data.partial", "report.txt"]
    # What a worker left that died while it copied is gone as well.
    assert _names(scene.folder) == [run_id, f"{run_id}.2", "latest"]


async def test_a_second_crash_before_the_copy_is_there_copies_from_the_folder_before(scene: Scene) -> None:
    task = scene.task(Script([write("first", "first.txt"), write()]))
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "before append step.start tool.call tool_granted", at=2)
    await scene.crash(task, run_id, "after claim lease_taken")
    assert not (scene.folder / f"{run_id}.2").exists()
    state = await scene.worker(task).advance(run_id)
    assert (state.phase, state.folder) == (Phase.SUCCEEDED, f"{run_id}.3")
    assert (scene.folder / state.folder / "first.txt").exists()


async def test_a_run_that_ended_before_its_new_folder_was_made_still_has_its_artifacts(scene: Scene) -> None:
    task = scene.task(Script([write("first", "first.txt"), write()]))
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "before append step.start tool.call tool_granted", at=2)
    await scene.crash(task, run_id, "after claim lease_taken")
    state = await scene.worker().cancel(run_id)
    assert (state.phase, state.folder) == (Phase.FAILED, f"{run_id}.2")
    assert folder_of(scene.folder, state) == scene.folder / run_id
    assert problems_of(state) == ()


@pytest.mark.parametrize(
    "path", ["link.txt", "folder/inner.txt", "../outside.txt", "/etc/hostname", "", "a\0b", "pipe", "."]
)
def test_an_artifact_is_a_plain_file_below_the_folder(tmp_path: Path, path: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "inner.txt").write_text("secret", encoding="utf-8")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "link.txt").symlink_to(outside / "inner.txt")
    (folder / "folder").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    with pytest.raises(PathEscape):
        artifact_of(folder, path)
    assert digest_of(folder, path) == ""


def test_a_missing_artifact_has_no_digest(tmp_path: Path) -> None:
    assert digest_of(tmp_path, "missing/report.txt") == ""
    with pytest.raises(FileNotFoundError):
        artifact_of(tmp_path, "report.txt")


def test_swapping_a_folder_for_a_link_never_leads_outside(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "run"
    for place, text in ((outside, "secret"), (folder / "inner", "ours")):
        place.mkdir(parents=True)
        (place / "file.txt").write_text(text, encoding="utf-8")
    (folder / "link").symlink_to(outside)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            (folder / "inner").rename(folder / "kept")
            (folder / "link").rename(folder / "inner")
            (folder / "inner").rename(folder / "link")
            (folder / "kept").rename(folder / "inner")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        seen = {digest_of(folder, "inner/file.txt") for _ in range(20_000)}
    finally:
        over.set()
        thread.join()
    assert seen <= {"", hashlib.sha256(b"ours").hexdigest()}


async def test_a_worker_with_a_very_long_name_can_hold_a_lease(scene: Scene) -> None:
    task = scene.task([write()])
    worker = scene.worker(task, name="überlang-" * 50)
    run_id = await worker.submit(task)
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    assert ("überlang-" * 50)[:LONGEST_NAME] in (await scene.store.get(run_id)).lease.owner


@pytest.mark.parametrize("name", ["../other", "/etc", "run/..", "latest", "runx", "run.2/../..", ".", "run.2\n"])
async def test_a_folder_that_a_log_names_is_one_of_the_runs_or_refused(tmp_path: Path, name: str) -> None:
    story = running()
    story.lease(name)
    for place in (folder_of, prepare_folder):
        with pytest.raises(PathEscape, match="named by its id"):
            await _settled(place(tmp_path, story.state))
    assert _names(tmp_path) == []


async def _settled(given: "Path | Awaitable[Path]") -> Path:
    return given if isinstance(given, Path) else await given


async def test_the_folders_of_runs_are_their_owners_alone(tmp_path: Path) -> None:
    story = running()
    story.lease("run")
    folder = await prepare_folder(tmp_path / "deep" / "out", story.state)
    assert [stat.S_IMODE(place.stat().st_mode) for place in (folder, folder.parent)] == [0o700, 0o700]
