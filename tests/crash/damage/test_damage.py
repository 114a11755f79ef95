"""Damaged files: a store refuses or tells the truth, and asking it changes nothing on the disk and starts nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.counts import amount, report, seed

ROOT = Path(__file__).resolve().parents[3]
DAMAGES = 5_000


@pytest.mark.timeout(60 + amount(120))
def test_a_damaged_file_is_refused_or_answers_right_and_is_left_as_it_is(fast_folder: Path) -> None:
    damages = amount(DAMAGES)
    command = ["--seed", str(seed()), "--damages", str(damages), "--folder", str(fast_folder)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.damage", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    detail = {name: found[name] for name in ("refused", "answered")}
    report("damaged files", damages, passed=damages - found["wrong"], seed=seed(), detail=detail)
    assert (found["examples"], found["wrong"]) == ([], 0)
    assert found["deeds"] == []
    assert found["watched"] == ["compile", "exec", "open"], "the hook that looks for deeds is deaf"
    # Damage that changes nothing, or that nobody notices, would prove nothing.
    assert found["refused"] > damages // 2
    assert found["unchanged"] < damages // 100
