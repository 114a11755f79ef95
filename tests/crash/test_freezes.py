"""A worker that was stopped past its lease is fenced: another one takes over in time, and nothing the first one writes later counts."""

from pathlib import Path

import pytest

from tests import counts
from tests.crash.child import LEASE_SECONDS
from tests.crash.freezes import freeze

FREEZES = 20


@pytest.mark.timeout(max(300, counts.amount(300)))
async def test_every_late_write_of_a_stopped_worker_is_refused_and_recorded(tmp_path: Path) -> None:
    chill = await freeze(tmp_path / "arena", times=counts.amount(FREEZES), seed=counts.seed())
    print(chill)  # noqa: T201  shown when it fails
    slowest = max(chill.takeovers)
    counts.report(
        "SIGSTOP past the lease: late writes refused",
        chill.freezes,
        passed=chill.refused,
        seed=chill.seed,
        detail={"slowest_takeover_seconds": round(slowest, 2), "late_files": chill.late_files},
    )
    assert chill.faults == []
    assert chill.refused == chill.freezes == counts.amount(FREEZES)
    assert slowest <= LEASE_SECONDS + 1
