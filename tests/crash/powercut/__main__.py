"""Cut the power many times and print what came of it as one line of JSON.

`python -m tests.crash.powercut --seed 1 --cuts 25000 --folder F [--forget-syncs]`
"""

import argparse
import json
import random  # noqa: TID251  seeded, so that a cut can be made again
from itertools import count
from pathlib import Path

from tests.crash.powercut.disk import Disk, Sync, Told
from tests.crash.powercut.workload import Promises, Recording, faults, record


def main() -> None:
    """Record one workload, cut it at every entry and then at random ones, and print the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--cuts", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument(
        "--forget-syncs", action="store_true", help="a disk that lies: what is synced is as uncertain as what is not"
    )
    given = parser.parse_args()
    recording = record(given.folder, given.seed)
    found = cut_all(recording, given.seed, given.cuts, given.folder / "cut", forgets=given.forget_syncs)
    print(json.dumps({"unsynced": recording.unsynced, "entries": len(recording.trace), **found}))  # noqa: T201


def cut_all(recording: Recording, seed: int, cuts: int, folder: Path, *, forgets: bool) -> dict[str, object]:
    """Make `cuts` cuts, spread evenly over all entries of the trace, and return the counts."""
    folder.mkdir()
    disk, promises = Disk(recording.before), Promises()
    done, lost, corrupt, places = 0, 0, 0, 0
    examples: list[str] = []
    moments = len(recording.trace) + 1
    for place in range(moments):
        target = cuts * (place + 1) // moments
        places += done < target
        for number in count():
            if done >= target:
                break
            chance = random.Random(f"{seed}/{place}/{number}")  # noqa: S311  no secret
            wrong = _cut(disk, promises, recording, chance, folder)
            done += 1
            lost += any(fault.startswith("lost") for fault in wrong)
            corrupt += any(fault.startswith("corrupt") for fault in wrong)
            examples += [f"entry {place}, cut {number}: {fault}" for fault in wrong[: 5 - len(examples)]]
        if place < len(recording.trace):
            entry = recording.trace[place]
            if isinstance(entry, Told):
                promises.add(entry.what)
            elif not (forgets and isinstance(entry, Sync)):
                disk.play(entry)
    return {"cuts": done, "places": places, "moments": moments, "lost": lost, "corrupt": corrupt, "examples": examples}


def _cut(disk: Disk, promises: Promises, recording: Recording, chance: random.Random, folder: Path) -> list[str]:
    """Write what the disk may hold now into a folder, and return what is wrong with it."""
    for left in folder.iterdir():
        left.unlink()
    for name, content in disk.after_cut(chance).items():
        (folder / name).write_bytes(content)
    return faults(folder / "runs.db", recording, promises)


if __name__ == "__main__":
    main()
