"""Counts that the reliability page is made of: a test that ran something many times says how often, and with which seed.

Each is one line of JSON in the file that the environment variable CHECKREIN_COUNTS names; without it they are only printed.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

FILE = "CHECKREIN_COUNTS"
AMOUNT = "CHECKREIN_AMOUNT"
SEED = "CHECKREIN_SEED"


def seed() -> int:
    """Return the seed of everything random in this run of the tests; the environment's CHECKREIN_SEED sets it."""
    return int(os.environ.get(SEED, "1"))


def amount(usual: int) -> int:
    """Return how often to do what is usually done `usual` times; the environment's CHECKREIN_AMOUNT scales it."""
    return max(1, round(usual * float(os.environ.get(AMOUNT, "1"))))


def report(
    name: str, count: int, *, passed: int, seed: int | None = None, detail: Mapping[str, object] | None = None
) -> None:
    """Print a count and keep it for the reliability page."""
    line = json.dumps({"name": name, "count": count, "passed": passed, "seed": seed, **(detail or {})})
    print(line)  # noqa: T201  numbers of this kind are printed on every run
    target = os.environ.get(FILE)
    if target:
        with Path(target).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
