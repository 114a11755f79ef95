"""Rows that lie: whatever stands in a sound file, reading it ends in a typed error or an answer, runs nothing and prints nothing harmful."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.counts import amount, report, seed

ROOT = Path(__file__).resolve().parents[3]
ROWS = 2_000


@pytest.mark.timeout(60 + amount(120))
def test_changed_rows_are_refused_or_read_and_never_run_or_shown_raw(fast_folder: Path) -> None:
    rows = amount(ROWS)
    command = ["--seed", str(seed()), "--rows", str(rows), "--folder", str(fast_folder)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.damage.rows", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    counts = found["counts"]
    report("changed rows", rows, passed=rows - len(found["faults"]), seed=seed(), detail={"refused": counts["refused"]})
    assert found["faults"] == []
    assert found["deeds"] == []
    assert found["watched"] == ["compile", "exec"], "the hook that looks for deeds is deaf"
    # Changes that nobody notices, or that nobody accepts, would prove nothing.
    assert counts["refused"] > rows // 2
    assert counts["read"] > rows // 20
