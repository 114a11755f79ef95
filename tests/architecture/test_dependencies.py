"""The core stays small: eight direct dependencies, twenty-five distributions in all."""

from importlib.metadata import requires

from packaging.requirements import Requirement

DIRECT = 8
ALL = 25


def test_the_core_has_at_most_eight_direct_dependencies() -> None:
    direct = _needed("checkrein")
    assert len(direct) <= DIRECT, sorted(direct)


def test_the_core_has_at_most_25_distributions_with_transitive_ones() -> None:
    found: set[str] = set()
    waiting = {"checkrein"}
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= _needed(name) - found
    assert len(found) <= ALL, sorted(found)


def _needed(distribution: str) -> set[str]:
    wanted = (Requirement(line) for line in requires(distribution) or ())
    return {item.name.lower() for item in wanted if item.marker is None or item.marker.evaluate({"extra": ""})}
