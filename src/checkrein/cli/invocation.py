"""What every command works with: its screen, its store, the time, and who is asking."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from checkrein.cli.exits import Usage
from checkrein.cli.places import store_path, user_name
from checkrein.cli.screen import Screen
from checkrein.clock import SystemClock, SystemIds
from checkrein.codec.wire import skim_events
from checkrein.errors import RunNotFound
from checkrein.kernel.run import fold_run
from checkrein.kernel.state import RunState
from checkrein.ports.store import RunStore
from checkrein.runs.commands import Commands, find_run
from checkrein.store import SqliteStore

__all__ = ["Invocation"]


class Invocation:
    """One call of the command line.

    Args:
        store: the store as it was named; None for the default one.
        json_lines: print for a program.

    Attributes:
        screen: where output goes.
        path: the store's file.
        clock: the time.
        ids: makes ids.

    Raises:
        Usage: no store is named and there is no place for a default one.
    """

    def __init__(self, *, store: Path | None = None, json_lines: bool = False) -> None:
        self.path, is_named = store_path(store)
        self.screen = Screen(json_lines=json_lines, store=self.path if is_named else None)
        self.clock = SystemClock()
        self.ids = SystemIds()

    @asynccontextmanager
    async def store(self, *, must_exist: bool = True) -> AsyncGenerator[RunStore]:
        """Open the store, and close it.

        Args:
            must_exist: do not make it when it is missing.

        Raises:
            Usage: it is missing, or is a folder.
            StoreError: it cannot be opened.
        """
        if self.path.is_dir():
            msg = f"{self.path} is a folder; name a file with --store"
            raise Usage(msg)
        if must_exist and not self.path.exists():
            msg = f"there is no store at {self.path}; `checkrein run PATH` makes one, --store names another"
            raise Usage(msg)
        store = SqliteStore(self.path, clock=self.clock)
        try:
            yield store
        finally:
            await store.aclose()

    def commands(self, store: RunStore) -> Commands:
        """Return the users' side of the runs, in the name of who is asking."""
        return Commands(store, clock=self.clock, ids=self.ids, actor=f"user:{user_name()}")

    async def find(self, store: RunStore, prefix: str) -> str:
        """Return the id of the one run whose id begins so.

        Raises:
            RunNotFound: there is none.
            AmbiguousRun: there are several.
            StoreError: the store cannot be read.
        """
        if not prefix.replace("-", "").replace("_", "").isalnum() or not prefix.isascii():
            raise RunNotFound(prefix)
        return await find_run(store, prefix)

    async def state(self, store: RunStore, run_id: str) -> RunState:
        """Return a run's state.

        Raises:
            DamagedLog: its log is not what it must be.
            StoreError: the store cannot be read.
        """
        return fold_run(skim_events(await store.read(run_id), run_id=run_id))
