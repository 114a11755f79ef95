"""Every store of ours keeps the contract of the port."""

from pathlib import Path

import pytest

from checkrein.ports.clock import Clock
from checkrein.store import MemoryStore, SqliteStore
from checkrein.testing.conformance import DurableStoreConformance, RunStoreConformance


class TestMemoryStore(RunStoreConformance):
    def make_store(self, clock: Clock) -> MemoryStore:
        return MemoryStore(clock=clock)


class TestSqliteStore(DurableStoreConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "runs.db"

    def make_store(self, clock: Clock) -> SqliteStore:
        return SqliteStore(self.path, clock=clock)

    def reopen_store(self, clock: Clock) -> SqliteStore:
        return self.make_store(clock)
