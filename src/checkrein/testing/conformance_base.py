"""What the parts of `RunStoreConformance` share: a store per test, rows and heads to write, and the assertion that a call is refused.

No test stands here, and nothing depends on a test runner: a scenario is a plain method that runs its own event loop.
"""

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

from checkrein.errors import CheckreinError
from checkrein.ports.clock import Clock
from checkrein.ports.store import NewLease, Row, RunHead, RunStore
from checkrein.testing.manual_clock import ManualClock

__all__ = ["ConformanceBase", "claim", "head", "refused", "row", "rows", "same", "scenario"]

C = TypeVar("C", bound="ConformanceBase")
E = TypeVar("E", bound=CheckreinError)

LEASE_SECONDS = 5.0


class ConformanceBase(ABC):
    """A store per test.

    Attributes:
        clock: the clock handed to the store; stands still until `pass_time`.
    """

    clock: ManualClock

    @abstractmethod
    def make_store(self, clock: Clock) -> RunStore:
        """Return a store without runs, new for each test; called once per test."""

    async def pass_time(self, seconds: float) -> None:
        """Let the store's clock go on; override it for a store that reads a clock of its own."""
        await self.clock.advance(seconds)


def scenario(test: Callable[[C, RunStore], Coroutine[object, object, None]]) -> Callable[[C], None]:
    """Make a test of a coroutine method that takes a store: it runs on a loop of its own and closes the store."""

    async def with_store(self: C) -> None:
        self.clock = ManualClock()
        store = self.make_store(self.clock)
        try:
            await test(self, store)
        finally:
            await store.aclose()

    def run(self: C) -> None:
        asyncio.run(with_store(self))

    # Not functools.wraps: a runner that looks through it would take the store for a fixture.
    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def refused(kind: type[E], call: Awaitable[object]) -> E:
    """Return the error that a call raises.

    Raises:
        AssertionError: it returned; an error of another kind comes through as it is.
    """
    try:
        answer = await call
    except kind as error:
        return error
    msg = f"expected {kind.__name__}, got {answer!r}"
    raise AssertionError(msg)


def same(actual: object, expected: object) -> None:
    """Compare; not an `assert`, which is dropped by `-O` and shows no values outside of test files.

    Raises:
        AssertionError: the two differ; shows both.
    """
    if actual != expected:
        msg = f"expected {expected!r}, got {actual!r}"
        raise AssertionError(msg)


def row(event_id: str, content: str = "", *, body: bytes | None = None) -> Row:
    """Return a row whose fingerprint and body follow from its id and content."""
    text = f"{event_id}:{content}".encode()
    return Row(
        event_id=event_id, type="noted", fingerprint=hashlib.sha256(text).digest(), body=text if body is None else body
    )


def rows(*event_ids: str) -> list[Row]:
    """Return a batch."""
    return [row(event_id) for event_id in event_ids]


def head(phase: str = "RUNNING", *, at: float = 1.0, task: str = "task", is_claimable: bool = True) -> RunHead:
    """Return a head; the phases SUCCEEDED and FAILED are terminal."""
    is_terminal = phase in {"SUCCEEDED", "FAILED"}
    return RunHead(
        phase=phase,
        is_terminal=is_terminal,
        is_claimable=is_claimable and not is_terminal,
        task=task,
        task_version=1,
        goal="a goal",
        updated_at=at,
    )


async def claim(store: RunStore, run_id: str, owner: str, *, dead_owner: str = "") -> int:
    """Claim a run at its present version for 5 s and return the new epoch."""
    run = await store.get(run_id)
    epoch = run.lease.epoch + 1
    lease = NewLease(owner=owner, seconds=LEASE_SECONDS, dead_owner=dead_owner)
    await store.claim(run_id, version=run.version, lease=lease, rows=rows(f"lease-{epoch}-{owner}"), head=head())
    return epoch
