"""Whatever is done to a store, in whatever order, it does what the model does."""

import asyncio
import tempfile
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from checkrein.ports.store import NewLease, Refusal, Row, RunHead, RunQuery, RunStore
from checkrein.store import MemoryStore, SqliteStore
from checkrein.testing.conformance_base import row
from checkrein.testing.manual_clock import ManualClock
from tests.counts import amount
from tests.property.store.model import Batch, Model, Outcome, outcome_of

T = TypeVar("T")

RUN_IDS = st.sampled_from(("a", "ab", "b"))
REQUESTS = st.sampled_from(("", "q", "r"))
OWNERS = st.sampled_from(("me", "you"))
NEAR = st.sampled_from((0, 0, 0, 0, -1, 1))
SECONDS = st.sampled_from((0.5, 1.0, 5.0))
BATCHES = st.lists(
    st.tuples(st.sampled_from([f"e{number}" for number in range(30)]), st.sampled_from((0, 0, 0, 1))),
    min_size=1,
    max_size=3,
    unique_by=lambda event: event[0],
)
HEADS = st.builds(
    RunHead,
    phase=st.sampled_from(("RUNNING", "BLOCKED")),
    is_terminal=st.sampled_from((False, False, False, False, True)),
    is_claimable=st.booleans(),
    task=st.sampled_from(("t", "u")),
    task_version=st.integers(0, 2**53 - 1),
    goal=st.text(max_size=20),
    updated_at=st.integers(-3, 3).map(float),
)
QUERIES = st.builds(
    RunQuery,
    phases=st.sampled_from(((), ("RUNNING",), ("RUNNING", "BLOCKED"), ("GONE",))),
    tasks=st.sampled_from(((), ("t",), ("t", "u"))),
    prefix=st.sampled_from(("", "a", "b", "abc")),
    claimable=st.booleans(),
    limit=st.integers(1, 4),
)


class StoreMachine(RuleBasedStateMachine):
    """A store and a model that are told the same things."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.folder = tempfile.TemporaryDirectory()
        self.store = self.open()
        self.model = Model()

    def open(self) -> RunStore:
        raise AssertionError("each machine says what it opens")

    def teardown(self) -> None:
        self.do(self.store.aclose())
        self.loop.close()
        self.folder.cleanup()

    def do(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(call)

    def near(self, run_id: str) -> tuple[int, int]:
        """Return a run's version and epoch, or zeros."""
        run = self.model.runs.get(run_id)
        return (len(run.log), run.epoch) if run else (0, 0)

    def same(self, call: Coroutine[Any, Any, object], expected: Outcome) -> None:
        assert self.do(outcome_of(call)) == expected

    @rule(run_id=RUN_IDS, request_id=REQUESTS, batch=BATCHES, head=HEADS)
    def create(self, run_id: str, request_id: str, batch: Batch, head: RunHead) -> None:
        expected = self.model.create(run_id, request_id, batch, head)
        self.same(self.store.create(run_id, request_id, _rows(batch), head), expected)

    @rule(run_id=RUN_IDS, drift=NEAR, epoch_drift=st.one_of(st.none(), NEAR), batch=BATCHES, head=HEADS)
    def append(self, run_id: str, drift: int, epoch_drift: int | None, batch: Batch, head: RunHead) -> None:
        version, epoch = self.near(run_id)
        version, wanted = max(0, version + drift), None if epoch_drift is None else max(0, epoch + epoch_drift)
        expected = self.model.append(run_id, version, wanted, batch, head)
        self.same(self.store.append(run_id, version=version, epoch=wanted, rows=_rows(batch), head=head), expected)

    @rule(calls=st.lists(st.tuples(RUN_IDS, NEAR, BATCHES, HEADS), min_size=2, max_size=6))
    def append_at_once(self, calls: list[tuple[str, int, Batch, RunHead]]) -> None:
        """Appends that wait together share a commit, and each is decided as if they came one after the other."""
        expected: list[Outcome] = []
        waiting: list[Coroutine[Any, Any, Outcome]] = []
        for run_id, drift, batch, head in calls:
            version = max(0, self.near(run_id)[0] + drift)
            expected.append(self.model.append(run_id, version, None, batch, head))
            waiting.append(
                outcome_of(self.store.append(run_id, version=version, epoch=None, rows=_rows(batch), head=head))
            )

        async def together() -> list[Outcome]:
            return await asyncio.gather(*waiting)

        assert self.do(together()) == expected

    @rule(
        run_id=RUN_IDS,
        drift=NEAR,
        owner=OWNERS,
        dead=st.sampled_from(("", "me", "you")),
        seconds=SECONDS,
        batch=BATCHES,
    )
    def claim(self, run_id: str, drift: int, owner: str, dead: str, seconds: float, batch: Batch) -> None:  # noqa: PLR0917  a claim has as many parts
        version, head = max(0, self.near(run_id)[0] + drift), _plain_head(batch)
        claimant = (owner, dead, self.clock.now() + seconds, self.clock.now())
        expected = self.model.claim(run_id, version, claimant, batch, head)
        lease = NewLease(owner=owner, seconds=seconds, dead_owner=dead)
        self.same(self.store.claim(run_id, version=version, lease=lease, rows=_rows(batch), head=head), expected)

    @rule(run_id=RUN_IDS, drift=NEAR, seconds=SECONDS)
    def renew(self, run_id: str, drift: int, seconds: float) -> None:
        epoch = max(0, self.near(run_id)[1] + drift)
        self.same(
            self.store.renew(run_id, epoch=epoch, seconds=seconds),
            self.model.renew(run_id, epoch, self.clock.now() + seconds),
        )

    @rule(run_id=RUN_IDS, drift=NEAR)
    def release(self, run_id: str, drift: int) -> None:
        epoch = max(0, self.near(run_id)[1] + drift)
        self.same(self.store.release(run_id, epoch=epoch), self.model.release(run_id, epoch))

    @rule(run_id=RUN_IDS, detail=st.text(max_size=20))
    def record_refusal(self, run_id: str, detail: str) -> None:
        self.same(self.store.record_refusal(run_id, _refusal(detail)), self.model.record_refusal(run_id, detail))

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        self.do(self.clock.advance(seconds))

    @rule(seconds=SECONDS)
    def the_clock_is_set_back(self, seconds: float) -> None:
        self.clock.step_back(seconds)

    @rule(query=QUERIES)
    def list_runs(self, query: RunQuery) -> None:
        assert [run.run_id for run in self.do(self.store.list_runs(query))] == self.model.fitting(
            query, self.clock.now()
        )

    @rule(run_id=RUN_IDS, offset=st.integers(0, 8), limit=st.one_of(st.none(), st.integers(0, 8)))
    def read(self, run_id: str, offset: int, limit: int | None) -> None:
        run = self.model.runs.get(run_id)
        end = None if limit is None else offset + limit
        expected = ("RunNotFound",) if run is None else ("ok", [event.body for event in _rows(run.log)[offset:end]])
        self.same(self.store.read(run_id, offset, limit), expected)

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        for run_id, run in self.model.runs.items():
            found = self.do(self.store.get(run_id))
            assert (found.run_id, found.request_id, found.version, found.head) == (
                run_id,
                run.request_id,
                len(run.log),
                run.head,
            )
            held = bool(run.owner) and not run.is_released
            remaining = run.ends_at - self.clock.now() if held else 0.0
            lease = found.lease
            assert (lease.owner, lease.epoch, lease.expires_in, lease.is_released) == (
                run.owner,
                run.epoch,
                remaining,
                run.is_released,
            )
            assert self.do(self.store.read(run_id)) == [event.body for event in _rows(run.log)]
            assert [refusal.detail for refusal in self.do(self.store.refusals(run_id))] == run.audit
            for offset, event in enumerate(_rows(run.log)):
                assert self.do(self.store.find_event(run_id, event.event_id)) == (offset, event.fingerprint)


class MemoryMachine(StoreMachine):
    def open(self) -> RunStore:
        return MemoryStore(clock=self.clock)


class SqliteMachine(StoreMachine):
    def open(self) -> RunStore:
        return SqliteStore(Path(self.folder.name) / "runs.db", clock=self.clock)

    @rule()
    def reopen(self) -> None:
        self.do(self.store.aclose())
        self.store = self.open()

    @rule()
    def check(self) -> None:
        assert self.do(self.store.report()).problems == ()


@pytest.mark.parametrize(("machine", "examples"), [(MemoryMachine, 300), (SqliteMachine, 60)])
@pytest.mark.timeout(60 + amount(60))
def test_a_store_does_what_the_model_does(machine: type[StoreMachine], examples: int) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=amount(examples), stateful_step_count=40, deadline=None)
    )


def _rows(batch: Batch) -> list[Row]:
    return [row(event_id, str(content)) for event_id, content in batch]


def _plain_head(batch: Batch) -> RunHead:
    head = partial(RunHead, phase="RUNNING", is_terminal=False, is_claimable=True, task="t", task_version=1, goal="g")
    return head(updated_at=float(len(batch)))


def _refusal(detail: str) -> Refusal:
    return Refusal(event_id="e", type="t", code="c", detail=detail, actor="me", at=1.0)
