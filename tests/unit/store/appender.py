"""A process that appends to a run which other processes append to as well: `python -m tests.unit.store.appender PATH NAME COUNT`."""

import asyncio
import sys
from pathlib import Path

from checkrein.errors import Conflict
from checkrein.store import SqliteStore
from checkrein.testing.conformance_base import head, rows


async def main(path: Path, name: str, count: int) -> None:
    """Append `count` events, trying again whenever somebody else was faster."""
    store = SqliteStore(path)
    done = 0
    while done < count:
        version = (await store.get("run")).version
        try:
            await store.append("run", version=version, epoch=None, rows=rows(f"{name}{done}"), head=head(at=version))
        except Conflict:
            continue
        done += 1
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
