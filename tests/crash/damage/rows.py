"""Change rows of a store as somebody with a grudge would, and let every reader of logs read them.

`python -m tests.crash.damage.rows --seed 1 --rows 2000 --folder F`

A flipped bit is found by the pages' checksums; here the file is sound and its rows lie. While they are read, folded, told in words, replayed and shown, an audit hook
writes down every import, every run of code, every file that Python opens for writing, every process and every connection.
"""

import argparse
import asyncio
import contextlib
import io
import json
import random  # noqa: TID251  seeded, so that a change can be made again
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias, cast

from checkrein.cli.main import main as checkrein
from checkrein.cli.timeline import timeline_of
from checkrein.cli.view import RunView
from checkrein.cli.words import words
from checkrein.codec.wire import decode_events, row_of
from checkrein.errors import CheckreinError
from checkrein.kernel.session import fold_session
from checkrein.runs.journal import head_of
from checkrein.store.sqlite import SqliteStore
from checkrein.store.sqlite_connection import Connection
from tests.crash.damage.__main__ import Watch
from tests.golden.scenarios import RUN

Json: TypeAlias = "dict[str, Json] | list[Json] | str | float | bool | None"

GOLDEN: Final = Path(__file__).resolve().parents[2] / "golden"
COMMANDS: Final = ("show", "events", "replay", "verify", "list")
CODES: Final = {0, 1, 3, 4, 5}
TERMINAL: Final = set(map(chr, (*range(9), *range(11, 32), *range(127, 160)))) | set("\u202e\u2066\u200b")
EVIL: Final[tuple[Json, ...]] = (
    "__import__('os').system('touch owned')",
    "os:system",
    "plan.py:plan",
    "../../../../etc/passwd",
    "/etc",
    "file:///etc/passwd",
    "'; DROP TABLE runs; --",
    "\x1b]52;c;ZXZpbA==\x07\x9b31m\u202e",
    "x" * 300_000,
    "\ud800",
    "",
    None,
    True,
    -1,
    2**53,
    1e308,
    [],
    {},
    {"__class__": "os.system", "py/object": "subprocess.Popen", "$ref": "file:///etc/passwd"},
    [[[[[[[[[[]]]]]]]]]],
)
RAW: Final = (b"NaN", b"1e999", b"[" * 100_000, b"9" * 5_000, b'{"a":1,"a":2}', b"\xff\xfe", b"\0", b'"\\ud800"', b"")


def golden() -> list[list[bytes]]:
    """Return the golden logs."""
    return [path.read_bytes().splitlines() for path in sorted(GOLDEN.glob("*.jsonl"))]


def changed(bodies: list[bytes], chance: random.Random) -> list[bytes]:
    """Return a log with one of its rows changed."""
    offset = chance.randrange(len(bodies))
    result = list(bodies)
    result[offset] = _changed_row(bodies[offset], chance)
    return result


def _changed_row(body: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.2:
        place = chance.randrange(len(body))
        return body[:place] + chance.choice(RAW) + body[place + chance.randrange(3) :]
    event = cast("dict[str, Json]", json.loads(body))
    table, key = chance.choice(list(_places(event)))
    manner = chance.randrange(4)
    if manner == 0 and isinstance(table, dict):
        del table[cast("str", key)]
    elif manner == 1 and isinstance(table, dict):
        table[str(chance.choice(EVIL))] = chance.choice(EVIL)
    else:
        table[key] = chance.choice(EVIL)  # pyright: ignore[reportArgumentType, reportCallIssue]  a key of that very table
    return json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=chance.random() < 0.5).encode(
        "utf-8", "surrogatepass"
    )


def _places(value: Json) -> "Iterator[tuple[dict[str, Json] | list[Json], str | int]]":
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield cast("dict[str, Json] | list[Json]", value), key
        yield from _places(inner)


def read(bodies: list[bytes]) -> str:
    """Let every fold read a log, and return what came of it; any exception that is not one of ours comes through."""
    view = RunView(RUN)
    try:
        events = decode_events(bodies, run_id=RUN)
        fold_session(events)
        _ = [words(event.data) for event in events], list(timeline_of(events))
        view.take_all(bodies)
    except CheckreinError:
        return "refused"
    return "read"


async def store_at(path: Path, bodies: list[bytes]) -> None:
    """Make a store with one run."""
    events = decode_events(bodies, run_id=RUN)
    view = RunView(RUN)
    view.take_all(bodies)
    assert view.state is not None
    store = SqliteStore(path)
    await store.create(RUN, "", [row_of(event) for event in events], head_of(view.state, events[-1].at))
    await store.aclose()


def lie(path: Path, bodies: list[bytes]) -> None:
    """Write other rows into the store's file, with checksums that are right."""
    with contextlib.closing(Connection(str(path), vfs="cksmvfs")) as connection:
        for offset, body in enumerate(bodies):
            connection.run("UPDATE events SET body = :body WHERE position = :offset", {"body": body, "offset": offset})


def shown(command: str, path: Path) -> tuple[int, str]:
    """Run a command on the store, and return its code and all it printed."""
    printed = io.StringIO()
    target = () if command == "list" else (RUN,)
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = checkrein([command, *target, "--store", str(path)])
    return code, printed.getvalue()


def faults_of(command: str, path: Path, counts: Counter[str]) -> Iterator[str]:
    """Yield what is wrong with what a command did."""
    code, printed = shown(command, path)
    counts[f"exit {code}"] += 1
    if code not in CODES:
        yield f"{command}: exit {code}: {printed[-300:]!r}"
    if TERMINAL & set(printed):
        yield f"{command} printed what a terminal obeys"


def main() -> None:
    """Change rows; print the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    watch, counts, logs = Watch(), Counter[str](), golden()
    faults: list[str] = []
    paths = [given.folder / f"{number}.db" for number in range(len(logs))]
    for path, log in zip(paths, logs, strict=True):
        asyncio.run(store_at(path, log))
        assert read(log) == "read"
        for command in COMMANDS:
            faults += faults_of(command, path, Counter())
    for number in range(given.rows):
        chance = random.Random(f"{given.seed}/{number}")  # noqa: S311  no secret
        which = chance.randrange(len(logs))
        log = changed(logs[which], chance)
        _watched(watch, lambda log=log: counts.update([read(log)]))
        if number % 10 == 0:
            lie(paths[which], log)
            for command in COMMANDS:
                _watched(watch, lambda c=command, p=paths[which]: faults.extend(faults_of(c, p, counts)))
            lie(paths[which], logs[which])
    found = {"counts": counts, "faults": faults[:5], "deeds": sorted(set(watch.seen)), "watched": _sees(watch)}
    sys.stdout.write(json.dumps(found))


def _watched(watch: Watch, deed: Callable[[], None]) -> None:
    watch.is_on = True
    deed()
    watch.is_on = False


def _sees(watch: Watch) -> list[str]:
    """Do what must not happen, and return what the hook made of it: a hook that is deaf proves nothing."""
    watch.seen.clear()
    _watched(watch, lambda: exec("0"))  # noqa: S102
    return sorted({line.partition(":")[0] for line in watch.seen})


if __name__ == "__main__":
    main()
