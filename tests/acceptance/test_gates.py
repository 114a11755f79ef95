"""The gates of `./dev check` say why they failed, also when every test passed."""

import sys

import pytest

from tools.gates import Gate, Outcome, run, run_last

CLOSING = "===== 4007 passed in 605.97s (0:10:05) ====="
ENDS = {
    "raise SystemExit(0)": "",
    "raise SystemExit(1)": "FAILED (exit 1)",
    "import signal; signal.raise_signal(signal.SIGKILL)": "FAILED (exit 137: SIGKILL)",
    "import os; os.kill(os.getpid(), 40)": "FAILED (exit 168: signal 40)",
}


def _gate(end: str, *lines: str) -> Gate:
    script = "".join(f"print({line!r}, flush=True)\n" for line in lines) + end
    return Gate("tests", (sys.executable, "-c", script))


@pytest.mark.parametrize(("end", "said"), ENDS.items())
def test_a_gate_that_failed_says_with_which_exit_code(end: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(_gate(end))
    line = capsys.readouterr().out.splitlines()[-1]
    assert outcome.passed == (not said)
    assert line.startswith("FAILED" if said else "ok")
    assert line.endswith(said.removeprefix("FAILED") if said else "tests")


@pytest.mark.parametrize(("end", "said"), ENDS.items())
def test_pytest_s_closing_line_is_the_last_and_the_table_says_how_the_process_ended(
    end: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = run_last(_gate(end, "a test", CLOSING, "what is said after the tests"), [Outcome("lint", 0, 1.0)])
    lines = capsys.readouterr().out.splitlines()
    assert outcome.passed == (not said)
    assert lines[:2] == ["a test", "what is said after the tests"]
    assert lines[-1] == CLOSING
    assert next(line for line in lines if line.startswith("tests")).endswith(f"%  {said}" if said else "%")


def test_a_python_that_crashes_says_where(capfd: pytest.CaptureFixture[str]) -> None:
    run_last(_gate("import signal; signal.raise_signal(signal.SIGSEGV)", CLOSING), [])
    lines = capfd.readouterr().out.splitlines()
    assert "Fatal Python error: Segmentation fault" in lines
    assert any(line.endswith("FAILED (exit 139: SIGSEGV)") for line in lines)
    assert lines[-1] == CLOSING


def test_tests_that_never_came_to_their_end_have_no_closing_line(capsys: pytest.CaptureFixture[str]) -> None:
    run_last(_gate("raise SystemExit(3)", "a test"), [])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a test"
    assert lines[-1].startswith("all ")
