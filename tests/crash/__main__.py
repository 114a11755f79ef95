"""`./dev crash`: kill and stop real workers, and print what came of it.

`python -m tests.crash [--kills 200] [--freezes 20] [--seed N] [--times N] [--folder F]`; the same seed draws the same kills. Exit code 1 when anything is wrong.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests import counts
from tests.crash.freezes import freeze
from tests.crash.kills import Campaign

KILLS = 200
FREEZES = 20


def main() -> int:
    """Run both campaigns."""
    parser = argparse.ArgumentParser(prog="./dev crash")
    parser.add_argument("--kills", type=int, default=KILLS, help="workers to kill")
    parser.add_argument("--freezes", type=int, default=FREEZES, help="workers to stop past their lease")
    parser.add_argument("--seed", type=int, default=counts.seed(), help="decides where and when")
    parser.add_argument("--times", type=int, default=1, help="do all of it so many times, each time with the next seed")
    parser.add_argument("--folder", type=Path, help="an empty folder to work in, which is kept")
    given = parser.parse_args()
    faults = 0
    for seed in range(given.seed, given.seed + given.times):
        with tempfile.TemporaryDirectory(prefix="checkrein-crash-") as temporary:
            folder = given.folder / str(seed) if given.folder else Path(temporary)
            faults += asyncio.run(_both(folder, kills=given.kills, freezes=given.freezes, seed=seed))
    return 1 if faults else 0


async def _both(folder: Path, *, kills: int, freezes: int, seed: int) -> int:
    tally = await Campaign(folder / "kills", kills=kills, seed=seed).run()
    print(tally, flush=True)  # noqa: T201  the counts are the point
    chill = await freeze(folder / "freezes", times=freezes, seed=seed)
    print(chill, flush=True)  # noqa: T201  the counts are the point
    return len(tally.faults) + len(chill.faults)


if __name__ == "__main__":
    sys.exit(main())
