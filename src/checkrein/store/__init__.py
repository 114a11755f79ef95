"""Durable storage of runs: implementations of the port `checkrein.ports.store`.

`MemoryStore` keeps runs in a dictionary, `SqliteStore` in one file that survives power loss. Names resolve on first use, so importing this
package loads no database. Nothing here knows the lifecycle: a store sees opaque rows, versions, epochs and leases.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checkrein.store.memory import MemoryStore
    from checkrein.store.sqlite import SqliteOptions, SqliteStore

__all__ = ["MemoryStore", "SqliteOptions", "SqliteStore"]


def __getattr__(name: str) -> object:
    if name == "MemoryStore":
        from checkrein.store.memory import MemoryStore

        return MemoryStore
    if name in {"SqliteOptions", "SqliteStore"}:
        from checkrein.store.sqlite import SqliteOptions, SqliteStore

        return SqliteStore if name == "SqliteStore" else SqliteOptions
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return list(__all__)
