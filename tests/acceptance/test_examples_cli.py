"""The examples from the command line, as a newcomer types them: what the screen says, what the exit code is, and that a killed run goes on."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.example_tasks import LIAR, REPORT, copied

SECONDS = 60


@dataclass
class Typed:
    """What a command line printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """What was printed, line by line."""
        return self.out.splitlines()

    def json(self) -> list[dict[str, object]]:
        """Return the JSON objects that were printed, one per line."""
        return [json.loads(line) for line in self.lines]


class Terminal:
    """A folder with the examples, and a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.examples = copied(folder)
        self.store = folder / "runs.db"
        # What one test trusts, another does not.
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}

    def command(self, *words: str) -> list[str]:
        """Return a whole command line."""
        return [sys.executable, "-m", "checkrein", *words, "--store", str(self.store)]

    def type(self, *words: str) -> Typed:
        """Run a command line to its end."""
        done = subprocess.run(
            self.command(*words),
            cwd=self.examples.parent,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return Typed(done.returncode, done.stdout, done.stderr)

    def limit(self, tool_calls: int) -> None:
        """Write another limit into the report's task file."""
        file = self.examples / REPORT / "task.toml"
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("tool_calls = 12", f"tool_calls = {tool_calls}"), encoding="utf-8")

    def only_run(self) -> str:
        """Return the id of the store's only run."""
        (row,) = self.type("list", "--json").json()
        return str(row["run_id"])


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def test_the_first_command_of_a_newcomer_ends_with_ten_checks_passed(terminal: Terminal) -> None:
    done = terminal.type("run", f"examples/{REPORT}", "--trust")
    assert done.code == 0, done.err
    assert sum(line.startswith("✓ ") for line in done.lines) == 8 + 10
    assert "✓ the total in report.md is the sum of the invoices" in done.lines
    assert f"SUCCEEDED · 10/10 checks · 8 of 12 tool calls · run {terminal.only_run()}" in done.lines
    latest = terminal.examples / REPORT / "out" / "latest" / "report.md"
    assert "**Total sales: $2,328.60**" in latest.read_text(encoding="utf-8")


def test_the_example_runs_only_when_it_is_trusted(terminal: Terminal) -> None:
    done = terminal.type("run", f"examples/{REPORT}")
    assert done.code == 3
    assert "--trust" in done.err
    assert not (terminal.examples / REPORT / "out").exists()


def test_the_screen_says_which_checks_the_liar_fails_and_why(terminal: Terminal) -> None:
    done = terminal.type("run", f"examples/{LIAR}", "--trust")
    assert done.code == 1
    last = done.lines[len(done.lines) - done.lines[::-1].index("✗ the total in report.md is the sum of the invoices") :]
    assert "report.md says $2,400.00" in last[0]
    assert "2328.60 from 412 rows" in last[0]
    assert "✓ summary.json is valid by its JSON Schema" in last
    assert f"FAILED (check_failed) · 5/10 checks · 2 of 12 tool calls · run {terminal.only_run()}" in done.lines


def test_programs_read_the_same_as_json_lines(terminal: Terminal) -> None:
    done = terminal.type("run", f"examples/{LIAR}", "--trust", "--json")
    assert done.code == 1
    *events, end = done.json()
    assert (end["phase"], end["code"]) == ("FAILED", "check_failed")
    assert [event["offset"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "check_failed"


def test_a_finished_run_explains_itself_replays_and_verifies(terminal: Terminal) -> None:
    terminal.type("run", f"examples/{REPORT}", "--trust")
    run = terminal.only_run()
    shown = terminal.type("show", run[:6])
    assert shown.code == 0
    assert "2328.60 from 412 rows" in shown.out
    replayed = terminal.type("replay", run)
    assert replayed.code == 0
    assert "0 model calls, 0 tool calls, state equal" in replayed.lines[-1]
    assert terminal.type("verify", run).code == 0
    report = terminal.examples / REPORT / "out" / run / "report.md"
    report.write_text(report.read_text(encoding="utf-8").replace("2,328.60", "2,382.60"), encoding="utf-8")
    assert terminal.type("verify", run).code == 1


def test_a_spent_budget_exits_5_and_the_page_s_two_commands_finish_the_run(terminal: Terminal) -> None:
    terminal.limit(6)
    assert terminal.type("run", f"examples/{REPORT}", "--trust").code == 5
    run = terminal.only_run()
    assert terminal.type("extend", run, "--tool-calls", "6").code == 0
    resumed = terminal.type("resume", run)
    assert resumed.code == 0, resumed.err
    assert f"SUCCEEDED · 10/10 checks · 8 of 12 tool calls · run {run}" in resumed.lines


def test_a_note_from_another_command_is_quoted_in_the_report(terminal: Terminal) -> None:
    terminal.limit(7)
    assert terminal.type("run", f"examples/{REPORT}", "--trust").code == 5
    run = terminal.only_run()
    assert terminal.type("steer", run, "Mention the refunds of March").code == 0
    assert terminal.type("extend", run, "--tool-calls", "5").code == 0
    assert terminal.type("resume", run).code == 0
    report = terminal.examples / REPORT / "out" / "latest" / "report.md"
    assert "> “Mention the refunds of March”" in report.read_text(encoding="utf-8")


@pytest.mark.parametrize("seen", ["work_started", "tool_granted", "tool_done", "work_done"])
def test_a_run_that_was_killed_is_resumed_to_the_same_report(seen: str, terminal: Terminal) -> None:
    command = terminal.command("run", f"examples/{REPORT}", "--trust", "--json", "--lease", "0.3")
    with subprocess.Popen(
        command, cwd=terminal.examples.parent, env=terminal.environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["type"] == seen:
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    run = terminal.only_run()
    resumed = terminal.type("resume", run)
    assert resumed.code == 0, resumed.err
    assert "SUCCEEDED · 10/10 checks" in resumed.out
    events = terminal.type("events", run, "--json").json()
    written = [event["data"] for event in events if event["type"] == "tool_done"]
    assert len(written) == 8
    report = terminal.examples / REPORT / "out" / "latest" / "report.md"
    assert "**Total sales: $2,328.60**" in report.read_text(encoding="utf-8")
