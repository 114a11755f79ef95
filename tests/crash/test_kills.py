"""kill -9 loses nothing: 200 workers die at every recorded point and at random times, and every run reaches one end."""

from pathlib import Path

import pytest

from tests import counts
from tests.crash.kills import Campaign

KILLS = 200


@pytest.mark.timeout(max(600, counts.amount(600)))
async def test_every_run_reaches_one_end_and_nothing_is_done_twice_however_often_its_workers_are_killed(
    tmp_path: Path,
) -> None:
    kills = counts.amount(KILLS)
    tally = await Campaign(tmp_path / "arena", kills=kills, seed=counts.seed()).run()
    print(tally)  # noqa: T201  shown when it fails
    counts.report(
        "kill -9 of a real worker",
        tally.kills,
        passed=tally.kills - len(tally.faults),
        seed=tally.seed,
        detail={
            "at_points": tally.at_points,
            "points_covered": len(tally.covered),
            "points": tally.points,
            "runs": tally.runs,
            "ends": dict(sorted(tally.ends.items())),
            "in_doubt_records": tally.doubts,
            "doubled_bodies": tally.doubled,
            "seconds": round(tally.seconds, 1),
        },
    )
    assert tally.faults == []
    assert tally.kills >= kills
    assert tally.doubled == 0
    # A share of the points is missed when a worker is through with the run before it comes to its point.
    assert len(tally.covered) >= min(kills, tally.points) * 0.95
