"""`worker` advances every run of its tasks, says so line by line, and ends cleanly."""

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkrein.cli.tasks import compose, read_folder
from checkrein.clock import SystemClock, SystemIds
from checkrein.runs.commands import Commands
from checkrein.store import SqliteStore
from tests.unit.cli.folders import Shell, ended, task_folder, waiting_folder


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def submitted(shell: Shell, folder: Path, count: int) -> list[str]:
    """Store runs of a task without advancing them."""

    async def submit() -> list[str]:
        store = SqliteStore(shell.store)
        try:
            commands = Commands(store, clock=SystemClock(), ids=SystemIds(), actor="user:test")
            task = compose(read_folder(folder))
            return [await commands.submit(task) for _ in range(count)]
        finally:
            await store.aclose()

    return asyncio.run(submit())


def phases(shell: Shell) -> dict[object, object]:
    return {record["run_id"]: record["phase"] for record in shell.spawn("list", "--json").records}


@pytest.fixture
def serving(shell: Shell) -> Iterator[list["subprocess.Popen[str]"]]:
    """Workers that are ended whatever happens."""
    assert shell
    running: list[subprocess.Popen[str]] = []
    yield running
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_once_advances_every_run_of_every_task_and_no_other(shell: Shell, tmp_path: Path) -> None:
    first, second, other = (task_folder(tmp_path / name) for name in ("first", "second", "other"))
    runs = [*submitted(shell, first, 3), *submitted(shell, second, 2)]
    (left,) = submitted(shell, other, 1)
    printed = shell.spawn("worker", first, second, "--once", "--trust")
    assert printed.code == 0
    assert phases(shell) == {**dict.fromkeys(runs, "SUCCEEDED"), left: "RECEIVED"}
    for run in runs:
        assert any(run in line and "lease 1 taken by worker-" in line for line in printed.lines)
        assert any(run in line and "all checks passed" in line for line in printed.lines)
    assert left not in printed.out


def test_json_prints_the_event_lines(shell: Shell, tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "note")
    (run,) = submitted(shell, folder, 1)
    printed = shell.spawn("worker", folder, "--once", "--trust", "--json")
    whole = shell.spawn("events", run, "--json").records
    assert printed.records == whole[2:]


def test_a_run_that_cannot_be_advanced_is_said_once_and_exits_1(shell: Shell, tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "note")
    submitted(shell, folder, 1)
    (folder / "out").write_text("in the way of the workspace")
    printed = shell.spawn("worker", folder, "--once", "--trust")
    assert printed.code == 1
    assert len(printed.err.splitlines()) == 1
    assert "Traceback" not in printed.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_drains_and_ends(
    shell: Shell, serving: list["subprocess.Popen[str]"], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    folder = waiting_folder(tmp_path / "wait")
    (run,) = submitted(shell, folder, 1)
    process = shell.start("worker", folder, "--trust")
    serving.append(process)
    assert process.stdout
    assert any("of wait granted" in line for line in process.stdout)
    process.send_signal(number)
    assert any("draining" in line for line in process.stdout)
    (folder / "out" / "go").touch()
    printed = ended(process)
    assert (printed.code, printed.err) == (code, "")
    assert phases(shell) == {run: "RUNNING"}
    assert (folder / "out" / "began").read_text() == "1.0\n"
    assert shell.spawn("resume", run).code == 0


@pytest.mark.parametrize("is_reverted", [False, True])
def test_a_worker_blocks_a_run_whose_code_changed_until_somebody_accepts_it(
    shell: Shell, tmp_path: Path, *, is_reverted: bool
) -> None:
    folder = task_folder(tmp_path / "note")
    (run,) = submitted(shell, folder, 1)
    plan = (folder / "plan.py").read_text()
    (folder / "plan.py").write_text(plan + "\n")
    assert shell.spawn("worker", folder, "--once", "--trust").code == 0
    blocked = shell.spawn("resume", run)
    assert blocked.code == 4
    assert f"checkrein resume {run} --trust" in blocked.out
    if is_reverted:
        (folder / "plan.py").write_text(plan)
    done = shell.spawn("resume", run, "--trust")
    assert done.code == 0
    assert "the run goes on with code" in done.out


def test_two_tasks_of_one_name_are_refused(shell: Shell, tmp_path: Path) -> None:
    first, second = task_folder(tmp_path / "a" / "note"), task_folder(tmp_path / "b" / "note")
    printed = shell.spawn("worker", first, second, "--once", "--trust")
    assert printed.code == 2
    assert "two tasks are called 'note'" in printed.err


def test_an_untrusted_task_is_refused_before_anything_is_imported(shell: Shell, tmp_path: Path) -> None:
    printed = shell.spawn("worker", task_folder(tmp_path / "note"), "--once")
    assert printed.code == 3
    assert not shell.store.exists()
