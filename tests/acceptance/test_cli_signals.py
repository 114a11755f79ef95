"""Ctrl-C cancels, SIGTERM hands back, SIGKILL loses nothing, and two processes never advance one run."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from checkrein.store.sqlite_file import SqliteOptions, open_store
from tests.unit.cli.folders import WAIT, Shell, ended, task_folder, waiting_folder

CANCELLABLE = WAIT.replace("while not (", "while not context.signal.is_cancelled and not (").replace(
    '    return "went', '    context.signal.raise_if_cancelled()\n    return "went'
)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def started(shell: Shell) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Start commands, and leave none of them behind."""
    running: list[subprocess.Popen[str]] = []

    def start(*words: str | Path) -> "subprocess.Popen[str]":
        running.append(shell.start(*words))
        return running[-1]

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


Started = Callable[..., "subprocess.Popen[str]"]


def heard(process: "subprocess.Popen[str]", text: str) -> str:
    """Read stdout until a line holds `text`, and return that line."""
    assert process.stdout
    for line in process.stdout:
        if text in line:
            return line
    message = f"{text!r} never came; stderr: {process.stderr.read() if process.stderr else ''}"
    raise AssertionError(message)


def running_tool(process: "subprocess.Popen[str]") -> str:
    """Wait until the tool's body has begun, and return the run's id."""
    run = json.loads(heard(process, '"tool_granted"'))["run_id"]
    return str(run)


def began(folder: Path) -> list[str]:
    """Return the calls whose bodies began."""
    file = folder / "out" / "began"
    return file.read_text().split() if file.exists() else []


def freeze(process: "subprocess.Popen[str]", store: Path) -> None:
    """Stop a process outside a commit; inside one it would keep every other writer waiting."""
    while True:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        try:
            with closing(open_store(store, SqliteOptions(patience_seconds=0), is_writer=True)) as connection:
                connection.script("BEGIN IMMEDIATE; ROLLBACK")
        except apsw.BusyError:
            process.send_signal(signal.SIGCONT)
        else:
            return


def test_ctrl_c_cancels_the_run_and_exits_130(shell: Shell, started: Started, tmp_path: Path) -> None:
    folder = waiting_folder(tmp_path / "wait")
    (folder / "plan.py").write_text(CANCELLABLE)
    process = started("run", folder, "--trust", "--json")
    run = running_tool(process)
    process.send_signal(signal.SIGINT)
    printed = ended(process)
    assert printed.code == 130
    assert (printed.records[-1]["phase"], printed.records[-1]["code"]) == ("FAILED", "cancelled")
    assert "Traceback" not in printed.err
    shown = shell.spawn("show", run)
    assert shown.code == 1
    assert "cancelled: Ctrl-C" in shown.out


def test_a_second_ctrl_c_leaves_at_once_and_the_outcome_is_in_doubt(
    shell: Shell, started: Started, tmp_path: Path
) -> None:
    folder = waiting_folder(tmp_path / "wait")
    process = started("run", folder, "--trust", "--json")
    run = running_tool(process)
    process.send_signal(signal.SIGINT)
    assert process.stderr
    assert any("cancel requested" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    printed = ended(process)
    assert printed.code == 130
    assert f"the outcome of open calls is in doubt until: checkrein resume {run}" in printed.err

    resumed = shell.spawn("resume", run)
    assert resumed.code == 4
    assert "cancel requested, outcome awaiting reconciliation: 1.0 of wait" in resumed.out
    answer = f"checkrein unblock {run} reconcile:1.0 --outcome done"
    assert answer in resumed.out
    assert began(folder) == ["1.0"]
    assert shell.spawn(*answer.split()[1:]).code == 0
    shown = shell.spawn("show", run)
    assert "FAILED (cancelled)" in shown.out
    assert "what did happen: 1 × wait" in shown.out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_being_told_to_end_hands_the_run_back(
    shell: Shell, started: Started, tmp_path: Path, number: signal.Signals
) -> None:
    folder = waiting_folder(tmp_path / "wait")
    process = started("run", folder, "--trust", "--json")
    run = running_tool(process)
    process.send_signal(number)
    assert process.stderr
    assert any("handing the run back" in line for line in process.stderr)
    (folder / "out" / "go").touch()
    printed = ended(process)
    assert printed.code == 143
    assert printed.records[-1]["phase"] == "RUNNING"

    resumed = shell.spawn("resume", run)
    assert resumed.code == 0
    assert "waiting" not in resumed.out
    assert "taken over" not in resumed.out
    assert began(folder) == ["1.0"]


def test_a_killed_run_is_taken_over_at_once_and_nothing_is_done_twice(
    shell: Shell, started: Started, tmp_path: Path
) -> None:
    folder = waiting_folder(tmp_path / "wait")
    process = started("run", folder, "--trust", "--json", "--lease", "3600")
    run = running_tool(process)
    process.kill()
    process.communicate()
    blocked = shell.spawn("resume", run)
    assert blocked.code == 4
    assert "lease 2 taken over by resume" in blocked.out
    assert "call 1.0 in doubt" in blocked.out
    assert shell.spawn("unblock", run, "reconcile:1.0", "--outcome", "done", "--result", '"went on"').code == 0
    done = shell.spawn("resume", run)
    assert done.code == 0
    assert f"SUCCEEDED · 1/1 checks · 2 of 10 tool calls · run {run}" in done.out
    assert len(began(folder)) <= 1
    assert f"out/{run}.2" in done.out
    assert shell.spawn("verify", run).code == 0


def test_a_run_that_a_live_process_holds_is_waited_for_and_then_refused(
    shell: Shell, started: Started, tmp_path: Path
) -> None:
    folder = waiting_folder(tmp_path / "wait")
    process = started("run", folder, "--trust", "--json", "--lease", "0.5")
    run = running_tool(process)
    before = len(shell.spawn("events", run, "--json").records)
    refused = shell.spawn("resume", run)
    assert refused.code == 3
    assert f"held by run (process {process.pid}); waiting up to" in refused.out
    assert f"run {run} is held by" in refused.err
    assert len(shell.spawn("events", run, "--json").records) == before
    (folder / "out" / "go").touch()
    assert ended(process).code == 0
    assert began(folder) == ["1.0"]


def test_a_frozen_holder_is_taken_over_when_its_lease_ends_and_its_late_write_is_refused(
    shell: Shell, started: Started, tmp_path: Path
) -> None:
    folder = waiting_folder(tmp_path / "wait")
    process = started("run", folder, "--trust", "--json", "--lease", "0.5")
    run = running_tool(process)
    freeze(process, shell.store)
    taken = shell.spawn("resume", run)
    assert taken.code == 4
    assert "taken over" in taken.out
    (folder / "out" / "go").touch()
    process.send_signal(signal.SIGCONT)
    late = ended(process)
    assert late.code == 3
    assert "Traceback" not in late.err
    assert "lease_lost" in shell.spawn("show", run).out


def test_cancel_from_another_process_stops_a_run(shell: Shell, started: Started, tmp_path: Path) -> None:
    folder = waiting_folder(tmp_path / "wait")
    (folder / "plan.py").write_text(CANCELLABLE)
    process = started("run", folder, "--trust", "--json")
    run = running_tool(process)
    said = shell.spawn("cancel", run[:6], "--reason", "not today")
    assert said.code == 0
    printed = ended(process)
    assert printed.code == 1
    assert printed.records[-1]["code"] == "cancelled"


def test_events_are_followed_while_another_process_works(started: Started, tmp_path: Path) -> None:
    folder = waiting_folder(tmp_path / "wait")
    process = started("run", folder, "--trust", "--json")
    run = running_tool(process)
    follower = started("events", run, "--follow", "--json")
    heard(follower, '"tool_granted"')
    (folder / "out" / "go").touch()
    printed = ended(process)
    followed = ended(follower)
    assert (printed.code, followed.code) == (0, 0)
    assert followed.records[-1] == printed.records[-2]


def test_a_reader_that_goes_away_is_no_error(shell: Shell, tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "note")
    run = str(shell.spawn("run", folder, "--trust", "--json").records[-1]["run_id"])
    for command in (f"events {run}", f"events {run} --json", f"show {run}", "list", "--help", f"run {folder}"):
        script = f'set -o pipefail; python -m checkrein {command} | true; echo "${{PIPESTATUS[0]}}"'
        env = {**shell.environment(), "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
        done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=False)  # noqa: S607
        assert (done.stdout, done.stderr) == ("0\n", ""), command
    phases = [record["phase"] for record in shell.spawn("list", "--json").records]
    assert phases == ["SUCCEEDED", "SUCCEEDED"]
