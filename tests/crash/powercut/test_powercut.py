"""Power cuts: what a store accepted is there afterwards, and what is there is sound."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.counts import amount, report, seed

ROOT = Path(__file__).resolve().parents[3]
CUTS = 50_000
PROCESSES = 2


@pytest.mark.timeout(60 + amount(120))
def test_no_accepted_event_is_lost_and_no_file_is_corrupt_after_a_power_cut(fast_folder: Path) -> None:
    with ThreadPoolExecutor(PROCESSES) as pool:
        parts = list(
            pool.map(partial(_cut, fast_folder, cuts=amount(CUTS) // PROCESSES), range(seed(), seed() + PROCESSES))
        )
    cuts, lost, corrupt = (sum(part[name] for part in parts) for name in ("cuts", "lost", "corrupt"))
    detail = {name: sum(part[name] for part in parts) for name in ("entries", "places", "lost", "corrupt")}
    report("power cuts", cuts, passed=cuts - lost - corrupt, seed=seed(), detail=detail)
    assert [example for part in parts for example in part["examples"]] == []
    assert (lost, corrupt) == (0, 0)
    assert all(part["places"] == min(part["cuts"], part["moments"]) for part in parts)


def test_a_new_store_is_on_the_disk_before_it_gets_its_name(fast_folder: Path) -> None:
    assert _cut(fast_folder, seed(), cuts=1)["unsynced"] == []


def test_a_disk_that_forgets_syncs_is_noticed(fast_folder: Path) -> None:
    found = _cut(fast_folder, seed(), cuts=1_500, is_forgetful=True)
    assert found["lost"] > 100
    assert found["corrupt"] > 100


def _cut(folder: Path, number: int, *, cuts: int, is_forgetful: bool = False) -> dict[str, Any]:
    """Record and cut in a process of its own: a recording disk must be there before SQLite's first file."""
    own = folder / str(number)
    own.mkdir()
    command = ["--seed", str(number), "--cuts", str(cuts), "--folder", str(own)] + ["--forget-syncs"] * is_forgetful
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.powercut", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
