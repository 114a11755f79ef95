"""Damaged files: a store refuses or tells the truth, and asking it changes nothing on the disk and starts nothing."""

import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.counts import amount, report, seed

ROOT = Path(__file__).resolve().parents[3]
DAMAGES = 5_000
PROCESSES = 2


@pytest.mark.timeout(60 + amount(120))
def test_a_damaged_file_is_refused_or_answers_right_and_is_left_as_it_is(fast_folder: Path) -> None:
    damages = amount(DAMAGES)
    with ThreadPoolExecutor(PROCESSES) as pool:
        parts = list(pool.map(partial(_damage, fast_folder, damages), range(PROCESSES)))
    found = Counter[str]()
    for part in parts:
        found.update(part["counts"])
    detail = {name: found[name] for name in ("refused", "answered")}
    report("damaged files", damages, passed=damages - found["wrong"], seed=seed(), detail=detail)
    assert found["damages"] == damages
    assert ([example for part in parts for example in part["examples"]], found["wrong"]) == ([], 0)
    for part in parts:
        assert part["deeds"] == []
        assert part["watched"] == ["compile", "exec", "open"], "the hook that looks for deeds is deaf"
    # Damage that changes nothing, or that nobody notices, would prove nothing.
    assert found["refused"] > damages // 2
    assert found["unchanged"] < damages // 100


def _damage(folder: Path, damages: int, first: int) -> dict[str, Any]:
    """Make a share of the damages in a process of its own, which an audit hook listens to."""
    own = folder / str(first)
    own.mkdir()
    command = ["--seed", str(seed()), "--damages", str(damages), "--folder", str(own)]
    share = ["--every", str(PROCESSES), "--first", str(first)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.damage", *command, *share],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)
