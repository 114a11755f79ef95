"""What a store is, in as few words as possible: the yardstick of the state machine that drives the real ones.

A call's outcome is a tuple: `("ok", …)` or an error's name with what distinguishes it. Nothing here is shared with a store's code.
"""

from collections.abc import Awaitable
from dataclasses import dataclass, field

from checkrein.errors import Conflict, DuplicateEvent, LeaseHeld, StoreError
from checkrein.ports.store import Appended, RunHead, RunQuery

Outcome = tuple[object, ...]
Batch = list[tuple[str, int]]
"""Event ids with their content."""


@dataclass
class ModelRun:
    """One run: its log, its head, its lease, its audit."""

    request_id: str
    head: RunHead
    log: Batch = field(default_factory=Batch)
    owner: str = ""
    epoch: int = 0
    ends_at: float = 0.0
    is_released: bool = False
    audit: list[str] = field(default_factory=list[str])

    def place(self, event_id: str) -> int | None:
        """Return where an event is."""
        return next((offset for offset, (known, _) in enumerate(self.log) if known == event_id), None)

    def is_live(self, now: float) -> bool:
        """Whether somebody holds the lease."""
        return self.owner != "" and not self.is_released and self.ends_at > now


class Model:
    """All runs of a store."""

    def __init__(self) -> None:
        self.runs: dict[str, ModelRun] = {}

    def create(self, run_id: str, request_id: str, batch: Batch, head: RunHead) -> Outcome:
        for known_id, known in self.runs.items():
            if request_id and known.request_id == request_id:
                return ("ok", known_id)
        run = self.runs.get(run_id)
        if run is None:
            self.runs[run_id] = ModelRun(request_id, head, list(batch))
            return ("ok", run_id)
        if run.request_id == request_id and run.log[0] == batch[0]:
            return ("ok", run_id)
        return ("DuplicateEvent", batch[0][0], 0)

    def append(self, run_id: str, version: int, epoch: int | None, batch: Batch, head: RunHead) -> Outcome:
        run = self.runs.get(run_id)
        if run is None:
            return ("RunNotFound",)
        return self._known(run, batch) or self._conflict(run, version, epoch) or self._add(run, batch, head)

    def claim(
        self, run_id: str, version: int, claimant: tuple[str, str, float, float], batch: Batch, head: RunHead
    ) -> Outcome:
        run = self.runs.get(run_id)
        if run is None:
            return ("RunNotFound",)
        owner, dead_owner, ends_at, now = claimant
        known = self._known(run, batch)
        if known:
            return known
        if run.is_live(now) and run.owner not in {owner, dead_owner}:
            return ("LeaseHeld", run.owner)
        conflict = self._conflict(run, version, None)
        if conflict:
            return conflict
        run.owner, run.epoch, run.ends_at, run.is_released = owner, run.epoch + 1, ends_at, False
        return self._add(run, batch, head)

    def renew(self, run_id: str, epoch: int, ends_at: float) -> Outcome:
        run = self.runs.get(run_id)
        if run is None:
            return ("RunNotFound",)
        if run.epoch != epoch or not run.owner or run.is_released:
            return ("Conflict", "lease_lost", (len(run.log), run.epoch))
        run.ends_at = ends_at
        return ("ok", None)

    def release(self, run_id: str, epoch: int) -> Outcome:
        run = self.runs.get(run_id)
        if run is None:
            return ("RunNotFound",)
        is_holder = run.epoch == epoch and run.owner != "" and not run.is_released
        run.is_released = run.is_released or is_holder
        return ("ok", is_holder)

    def record_refusal(self, run_id: str, detail: str) -> Outcome:
        run = self.runs.get(run_id)
        if run is None:
            return ("RunNotFound",)
        run.audit.append(detail)
        return ("ok", None)

    def fitting(self, query: RunQuery, now: float) -> list[str]:
        """Return the ids that a query lists."""
        found = [
            (run.head.updated_at, run_id)
            for run_id, run in self.runs.items()
            if run_id.startswith(query.prefix)
            and (not query.phases or run.head.phase in query.phases)
            and (not query.tasks or run.head.task in query.tasks)
            and (not query.claimable or (run.head.is_claimable and not run.head.is_terminal and not run.is_live(now)))
        ]
        return [run_id for _, run_id in sorted(found, reverse=True)][: query.limit]

    def _known(self, run: ModelRun, batch: Batch) -> Outcome | None:
        for number, (event_id, content) in enumerate(batch):
            place = run.place(event_id)
            if place is None:
                continue
            if number == 0 and run.log[place][1] == content:
                return ("ok", Appended(version=min(place + len(batch), len(run.log)), is_known=True))
            return ("DuplicateEvent", event_id, place)
        return None

    def _conflict(self, run: ModelRun, version: int, epoch: int | None) -> Outcome | None:
        actual = (len(run.log), run.epoch)
        if epoch is not None and epoch != run.epoch:
            return ("Conflict", "lease_lost", actual)
        if version != len(run.log) or run.head.is_terminal:
            return ("Conflict", "stale_version", actual)
        return None

    def _add(self, run: ModelRun, batch: Batch, head: RunHead) -> Outcome:
        run.log += batch
        run.head = head
        return ("ok", Appended(version=len(run.log), is_known=False))


async def outcome_of(call: Awaitable[object]) -> Outcome:
    """Return what came of a call to a real store."""
    try:
        return ("ok", await call)
    except Conflict as error:
        return ("Conflict", error.code, error.actual)
    except DuplicateEvent as error:
        return ("DuplicateEvent", error.event_id, error.offset)
    except LeaseHeld as error:
        return ("LeaseHeld", error.owner)
    except StoreError as error:
        return (type(error).__name__,)
