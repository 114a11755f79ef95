"""Damage a store's files many times, ask the store, and print what came of it as one line of JSON.

`python -m tests.crash.damage --seed 1 --damages 5000 --folder F [--every 2 --first 0]`

It runs in a process of its own because it installs an audit hook, which stays: while a damaged store is asked, the hook writes down every import, every
run of code, every file that Python opens for writing, every process and every connection.
"""

import argparse
import asyncio
import json
import random  # noqa: TID251  seeded, so that a damage can be made again
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from checkrein.errors import DamagedLog, DamagedStore
from tests.crash.damage.files import Answer, ask, damaged, faults, healthy, lay, log_faults, rewritten

WRITING = 0o3 | 0o100 | 0o1000
DEEDS = {
    "import",
    "exec",
    "compile",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "socket.connect",
}

Judge = Callable[[dict[str, Answer], dict[str, Answer]], list[str]]


class Watch:
    """What an audit hook saw while it was told to look."""

    def __init__(self) -> None:
        self.is_on = False
        self.seen: list[str] = []
        sys.addaudithook(self.hear)

    def hear(self, event: str, arguments: tuple[object, ...]) -> None:
        """Be the hook."""
        if self.is_on and (event in DEEDS or (event == "open" and _writes(arguments))):
            self.seen.append(f"{event}: {arguments[:2]!r:.200}")


def _writes(arguments: tuple[object, ...]) -> bool:
    _, mode, flags = arguments
    return bool(set(str(mode or "")) & set("wax+")) or (isinstance(flags, int) and bool(flags & WRITING))


class Tally:
    """What came of the damages so far."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self.examples: list[str] = []

    def add(self, name: str, answers: dict[str, Answer], found: list[str]) -> None:
        """Count one damage."""
        is_refused = any(isinstance(answer, DamagedStore | DamagedLog) for answer in answers.values())
        self.counts.update({"damages": 1, "refused" if is_refused else "answered": 1, "wrong": bool(found)})
        self.examples += [f"{name}: {fault}" for fault in found[: 5 - len(self.examples)]]


async def main() -> None:
    """Damage the file of a closed store, and both files of one that crashed; print the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--damages", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument(
        "--every", type=int, default=1, help="make only one of so many damages, for one of as many processes"
    )
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    given = parser.parse_args()
    watch, tally = Watch(), Tally()
    closed = given.damages * 4 // 5
    for is_closed, damages in ((True, closed), (False, given.damages - closed)):
        numbers = range(given.first, damages, given.every)
        folder = given.folder / f"closed-{is_closed}"
        folder.mkdir()
        files = await healthy(given.folder / f"closed-{is_closed}.db", is_closed=is_closed)
        await damage_all(files, folder, numbers, (given.seed, watch, tally))
    found = {"examples": tally.examples, "deeds": sorted(set(watch.seen)), "watched": await _sees(watch, given.folder)}
    sys.stdout.write(json.dumps({"counts": tally.counts, **found}))


async def damage_all(files: dict[str, bytes], folder: Path, numbers: range, tools: tuple[int, Watch, Tally]) -> None:
    """Damage one of some files, ask the store and judge, many times."""
    seed, watch, tally = tools
    names = list(files)
    judge: Judge = faults if len(names) == 1 else log_faults
    path = folder / names[0]
    lay(files, folder)
    truth = await ask(path)
    for number in numbers:
        chance = random.Random(f"{seed}/{len(names)}/{number}")  # noqa: S311  no secret
        target = names[0] if chance.random() < 0.2 else names[-1]
        changed = {**files, target: damaged(files[target], chance)}
        tally.counts["unchanged"] += changed == files
        lay(changed, folder)
        watch.is_on = True
        answers = await ask(path)
        watch.is_on = False
        tally.add(f"{target} {number}", answers, [*judge(answers, truth), *rewritten(changed, folder)])


async def _sees(watch: Watch, folder: Path) -> list[str]:
    """Do what must not happen, and return what the hook made of it: a hook that is deaf proves nothing."""
    before = len(watch.seen)
    watch.is_on = True
    lay({"deed": b"x"}, folder / "closed-True")
    exec("0")  # noqa: S102
    watch.is_on = False
    return sorted({line.partition(":")[0] for line in watch.seen[before:]})


if __name__ == "__main__":
    asyncio.run(main())
