"""Loading of named queries and migrations, which live in `.sql` files beside the code.

A query file holds blocks that begin with `-- name: <name>`. The invariant: a store's `Queries` has exactly the names of its file, so a missing or
a left-over query is found when the first store opens, and by every test.
"""

import re
from functools import cache
from importlib.resources import files

import msgspec

__all__ = ["SQLITE", "Migration", "Queries", "migrations"]

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_SQL = files("checkrein.store") / "sql"


class Queries(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The statements of one dialect."""

    advance: str
    count_all: str
    create_run: str
    find_event: str
    find_gaps: str
    find_request: str
    find_run: str
    find_state: str
    get_run: str
    insert_event: str
    insert_refusal: str
    list_claimable: str
    list_refusals: str
    list_runs: str
    read_events: str
    release: str
    renew: str
    take_lease: str


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema.

    Attributes:
        number: the schema's version after it, from 1.
        name: what it does, in words.
        script: its statements; they return no rows.
    """

    number: int
    name: str
    script: str


def _load(dialect: str) -> Queries:
    _, *parts = _NAME.split((_SQL / dialect / "queries.sql").read_text(encoding="utf-8"))
    return msgspec.convert(dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True)), Queries)


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """Return the steps of a dialect's schema in order."""
    found = [item for item in (_SQL / dialect / "migrations").iterdir() if item.name.endswith(".sql")]
    steps: list[Migration] = []
    for item in sorted(found, key=lambda item: item.name):
        number, _, name = item.name.removesuffix(".sql").partition("_")
        steps.append(
            Migration(number=int(number), name=name.replace("_", " "), script=item.read_text(encoding="utf-8"))
        )
    return tuple(steps)


SQLITE = _load("sqlite")
