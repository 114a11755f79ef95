"""The n-th operation on the disk fails, n = 1, 2, …: a typed error, nothing lost, nothing doubled, and the store goes on."""

import json
import subprocess
import sys
from pathlib import Path

from tests.counts import report

ROOT = Path(__file__).resolve().parents[3]


def test_a_store_survives_the_failure_of_any_operation_on_the_disk(fast_folder: Path) -> None:
    command = [sys.executable, "-m", "tests.crash.faults", "--folder", str(fast_folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    report(
        "failing disk operations",
        found["trials"],
        passed=found["trials"] - len(found["wrong"]),
        detail={"told": found["told"]},
    )
    assert found["wrong"] == []
    assert found["errors"].keys() == {"StoreError"}
    # Two kinds of failure: each ends with one trial that met none.
    assert found["met"] == found["trials"] - 2
    assert found["told"] > 200
