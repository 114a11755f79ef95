"""`./dev` explains itself, from any folder, without making an environment first."""

import re
import subprocess
from pathlib import Path

import pytest

DEV = Path(__file__).resolve().parents[2] / "dev"


def _dev(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([DEV, *arguments], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [(), ("help",), ("--help",)])
def test_help_prints_one_line_for_each_task(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = _dev(*arguments, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    explained = set(re.findall(r"^  ([\w-]+)(?: |$)", done.stdout, re.MULTILINE))
    cases = re.findall(r"^  ([\w |-]+)\)(?: exec|$)", DEV.read_text(encoding="utf-8"), re.MULTILINE)
    known = {task.strip() for case in cases for task in case.split("|")}
    assert {"demo", "test", "check", "bench", "crash"} <= known <= explained


def test_an_unknown_task_exits_2_and_prints_the_usage(tmp_path: Path) -> None:
    done = _dev("dance", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown task: dance" in done.stderr
    assert "usage: ./dev TASK" in done.stderr


def test_a_python_that_is_too_old_or_missing_is_named_with_the_way_out(tmp_path: Path) -> None:
    clone = tmp_path / "a clone"
    clone.mkdir()
    (clone / "dev").write_bytes(DEV.read_bytes())
    (clone / "requirements.lock").touch()
    done = subprocess.run(
        ["/bin/sh", clone / "dev", "test"],
        env={"PATH": "/usr/bin:/bin", "PYTHON": str(tmp_path / "no-python")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "no Python 3.11 or newer found" in done.stderr
    assert not (clone / ".venv").exists()
