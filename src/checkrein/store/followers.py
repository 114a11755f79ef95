"""Who waits for a run to grow: the bells that `follow` hangs up and a commit rings.

One loop, no storage, no task. The invariant: a bell that was hung up before a read rings for every commit after that read, so nobody who reads,
then waits, can miss an event.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["Followers"]


class Followers:
    """The bells of all runs of one store."""

    def __init__(self) -> None:
        self._bells: dict[str, set[asyncio.Event]] = {}

    @contextmanager
    def bell(self, run_id: str) -> Generator[asyncio.Event]:
        """Yield an event that is set at each commit to the run, and when the store closes; the waiter clears it."""
        bell = asyncio.Event()
        bells = self._bells.setdefault(run_id, set())
        bells.add(bell)
        try:
            yield bell
        finally:
            bells.discard(bell)
            if not bells:
                self._bells.pop(run_id, None)

    def ring(self, run_id: str) -> None:
        """Wake those who wait for this run."""
        for bell in self._bells.get(run_id, ()):
            bell.set()

    def ring_all(self) -> None:
        """Wake everybody."""
        for run_id in self._bells:
            self.ring(run_id)
