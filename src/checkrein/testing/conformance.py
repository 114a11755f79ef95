"""`RunStoreConformance`: the contract of `checkrein.ports.store` as tests, for every implementation.

Subclass it in a test file and say how a store is made; pytest finds the tests by the class's name::

    class TestMyStore(RunStoreConformance):
        def make_store(self, clock):
            return MyStore(clock=clock)

A store whose data outlives it subclasses `DurableStoreConformance` instead and also says how to open the same data again. The tests need no plug-in and no
fixture: each runs an event loop of its own. They never look inside a store, so what they demand is the contract and nothing more.
"""

from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from checkrein.errors import Conflict, DataError, LeaseHeld, RunNotFound, StoreError
from checkrein.ports.clock import Clock
from checkrein.ports.store import NewLease, Refusal, Row, RunHead, RunQuery, RunStore
from checkrein.testing.conformance_base import claim, head, refused, row, rows, same, scenario
from checkrein.testing.conformance_lease import LeaseConformance
from checkrein.testing.conformance_log import LogConformance

__all__ = ["DurableStoreConformance", "RunStoreConformance"]


class RunStoreConformance(LogConformance, LeaseConformance):
    """What every store must do."""

    @scenario
    async def test_runs_are_listed_newest_change_first(self, store: RunStore) -> None:
        for run_id, at in (("b", 2.0), ("a", 2.0), ("c", 1.0), ("d", 3.0)):
            await store.create(run_id, "", rows("x"), head(at=at))
        same([run.run_id for run in await store.list_runs(RunQuery())], ["d", "b", "a", "c"])
        await store.append("c", version=1, epoch=None, rows=rows("y"), head=head(at=4.0))
        same([run.run_id for run in await store.list_runs(RunQuery(limit=3))], ["c", "d", "b"])

    @scenario
    async def test_lists_are_filtered(self, store: RunStore) -> None:
        await store.create("abc-1", "", rows("x"), head("RUNNING", at=1, task="t"))
        await store.create("abc-2", "", rows("x"), head("FAILED", at=2, task="u"))
        await store.create("ABC_3", "", rows("x"), head("FAILED", at=3, task='"]; --'))
        for query, expected in (
            (RunQuery(phases=("FAILED",)), ["ABC_3", "abc-2"]),
            (RunQuery(phases=("FAILED", "RUNNING")), ["ABC_3", "abc-2", "abc-1"]),
            (RunQuery(phases=("failed", "")[:1]), []),
            (RunQuery(tasks=("t", '"]; --')), ["ABC_3", "abc-1"]),
            (RunQuery(prefix="abc"), ["abc-2", "abc-1"]),
            (RunQuery(prefix="ABC_"), ["ABC_3"]),
            (RunQuery(prefix="abc-1"), ["abc-1"]),
            (RunQuery(prefix="abc_"), []),
            (RunQuery(phases=("FAILED",), tasks=("u",), prefix="a", claimable=False, limit=1), ["abc-2"]),
            (RunQuery(phases=("FAILED",), claimable=True), []),
        ):
            same((query, [run.run_id for run in await store.list_runs(query)]), (query, expected))

    @scenario
    async def test_a_list_shows_what_get_shows(self, store: RunStore) -> None:
        await store.create("run", "request", rows("x"), head())
        await claim(store, "run", "me")
        same(list(await store.list_runs(RunQuery())), [await store.get("run")])

    @scenario
    async def test_refusals_are_kept_in_order_also_after_the_end(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head("SUCCEEDED"))
        await store.create("other", "", rows("a"), head())
        refusals = [
            Refusal(event_id=f"e{n % 2}", type="tool_done", code="terminal", detail="née\0\n", actor="me", at=9.0 - n)
            for n in range(4)
        ]
        for refusal in refusals:
            await store.record_refusal("run", refusal)
        same(list(await store.refusals("run")), refusals)
        same(list(await store.refusals("other")), [])
        same((await store.get("run")).version, 1)

    @scenario
    async def test_unknown_runs_are_refused(self, store: RunStore) -> None:
        refusal = Refusal(event_id="e", type="t", code="c", detail="", actor="", at=0)
        for call in (
            store.get("none"),
            store.read("none"),
            store.append("none", version=0, epoch=None, rows=rows("a"), head=head()),
            store.record_refusal("none", refusal),
            store.refusals("none"),
            _first(store.follow("none")),
        ):
            same((await refused(RunNotFound, call)).run_id, "none")

    @scenario
    async def test_arguments_that_break_a_rule_are_refused_and_nothing_is_written(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        for call in _broken_calls(store):
            await refused(DataError, _answer(call))
        run = await store.get("run")
        same((run.version, run.head, run.lease.epoch), (1, head(), 0))

    @scenario
    async def test_a_report_counts_and_finds_no_fault(self, store: RunStore) -> None:
        await store.create("one", "", rows("a", "b"), head())
        await store.create("two", "", rows("a"), head())
        report = await store.report()
        same((report.runs, report.events, report.problems), (2, 3, ()))
        same(bool(report.location) and bool(report.engine), True)

    @scenario
    async def test_a_closed_store_refuses_everything_and_may_be_closed_again(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        follower = self.clock.spawn(_all(store.follow("run")), name="follower")
        for _ in range(5):
            await self.clock.sleep(0)
        await store.aclose()
        await store.aclose()
        await refused(StoreError, follower)
        for call in (
            store.create("new", "", rows("a"), head()),
            store.append("run", version=1, epoch=None, rows=rows("b"), head=head()),
            store.claim("run", version=1, lease=NewLease(owner="me", seconds=1), rows=rows("b"), head=head()),
            store.renew("run", epoch=1, seconds=1),
            store.release("run", epoch=1),
            store.get("run"),
            store.find_event("run", "a"),
            store.find_request("request"),
            store.read("run"),
            _all(store.follow("run")),
            store.list_runs(RunQuery()),
            store.record_refusal("run", Refusal(event_id="e", type="t", code="c", detail="", actor="", at=0)),
            store.refusals("run"),
            store.report(),
        ):
            await refused(StoreError, call)


class DurableStoreConformance(RunStoreConformance):
    """What every store must do whose data outlives it and may be used by several processes."""

    @abstractmethod
    def reopen_store(self, clock: Clock) -> RunStore:
        """Return another store on the data of this test's first one, as a second process would have it."""

    @asynccontextmanager
    async def another(self) -> AsyncGenerator[RunStore]:
        """Yield a second store on the same data."""
        store = self.reopen_store(self.clock)
        try:
            yield store
        finally:
            await store.aclose()

    @scenario
    async def test_what_was_accepted_is_there_after_reopening(self, store: RunStore) -> None:
        await store.create("run", "request", rows("a"), head("RECEIVED"))
        await claim(store, "run", "me")
        await store.append("run", version=2, epoch=1, rows=rows("b"), head=head("BLOCKED", at=9))
        refusal = Refusal(event_id="e", type="t", code="c", detail="d", actor="me", at=1)
        await store.record_refusal("run", refusal)
        before = await store.get("run")
        await store.aclose()
        async with self.another() as again:
            same(await again.get("run"), before)
            same(list(await again.read("run")), [b"a:", b"lease-1-me:", b"b:"])
            same(await again.find_event("run", "b"), (2, row("b").fingerprint))
            same(await again.find_request("request"), "run")
            same(list(await again.refusals("run")), [refusal])

    @scenario
    async def test_two_stores_on_one_data_share_versions_leases_and_ids(self, store: RunStore) -> None:
        await store.create("run", "request", rows("a"), head())
        async with self.another() as other:
            same(await other.create("new", "request", rows("b"), head()), "run")
            await other.append("run", version=1, epoch=None, rows=rows("b"), head=head())
            error = await refused(Conflict, store.append("run", version=1, epoch=None, rows=rows("c"), head=head()))
            same(error.actual, (2, 0))
            await claim(store, "run", "first")
            await refused(LeaseHeld, claim(other, "run", "second"))
            await self.pass_time(6)
            same(await claim(other, "run", "second"), 2)
            error = await refused(Conflict, store.append("run", version=4, epoch=1, rows=rows("d"), head=head()))
            same(error.code, "lease_lost")

    @scenario
    async def test_a_follower_hears_of_what_another_store_wrote(self, store: RunStore) -> None:
        await store.create("run", "", rows("a"), head())
        follower = self.clock.spawn(_all(store.follow("run")), name="follower")
        async with self.another() as other:
            for version, phase in enumerate(("RUNNING", "RUNNING", "FAILED"), start=1):
                await self.clock.sleep(0)
                await other.append("run", version=version, epoch=None, rows=rows(f"n{version}"), head=head(phase))
        while not follower.done():
            await self.pass_time(1)
        same(await follower, [b"a:", b"n1:", b"n2:", b"n3:"])


async def _answer(call: Callable[[], Awaitable[object]]) -> object:
    """Call, so that what is refused at once and what is refused when awaited look the same."""
    return await call()


async def _all(bodies: AsyncIterator[bytes]) -> list[bytes]:
    return [body async for body in bodies]


async def _first(bodies: AsyncIterator[bytes]) -> bytes:
    return await anext(aiter(bodies))


def _broken_calls(store: RunStore) -> list[Callable[[], Awaitable[object]]]:
    """Return calls each of which breaks one rule; called one by one, or the others would never be awaited."""
    good, fine = rows("b"), head()
    batches: list[tuple[list[Row], RunHead]] = [
        ([], fine),
        ([*good, *good], fine),
        (rows(""), fine),
        (rows("x" * 201), fine),
        ([Row(event_id="\ud800", type="t", fingerprint=b"f" * 32, body=b"b")], fine),
        ([Row(event_id="e", type="", fingerprint=b"f" * 32, body=b"b")], fine),
        ([Row(event_id="e", type="t", fingerprint=b"f" * 31, body=b"b")], fine),
        ([Row(event_id="e", type="t", fingerprint=b"f" * 32, body=b"")], fine),
        (good, head("")),
        (good, head(at=float("nan"))),
        (good, head(at=float("inf"))),
        (good, head(task="\0")),
    ]
    appends = [partial(store.append, "run", version=1, epoch=None, rows=batch, head=after) for batch, after in batches]
    creates = [
        partial(store.create, run_id, "", good, fine)
        for run_id in ("", "x" * 129, "a/b", "..", "a b", "é", "a\n", "\0", "'; --")
    ]
    wrong = (("", 1), ("me", 0), ("me", float("inf")))
    leases = [NewLease(owner=owner, seconds=seconds) for owner, seconds in wrong]
    claims = [partial(store.claim, "run", version=1, lease=lease, rows=good, head=fine) for lease in leases]
    queries = [
        RunQuery(limit=0),
        RunQuery(limit=-1),
        RunQuery(limit=2**63),
        RunQuery(prefix="%"),
        RunQuery(prefix="a*"),
        RunQuery(phases=("\ud800",)),
        RunQuery(tasks=("",)),
    ]
    lists = [partial(store.list_runs, query) for query in queries]
    return [
        *appends,
        *creates,
        *claims,
        *lists,
        lambda: store.append("run", version=-1, epoch=None, rows=good, head=fine),
        lambda: store.append("run", version=1, epoch=-1, rows=good, head=fine),
        lambda: store.append("run", version=2**70, epoch=None, rows=good, head=fine),
        lambda: store.create("new", "x" * 201, good, fine),
        lambda: store.create("new", "", good, fine, epoch=-1),
        lambda: store.renew("run", epoch=1, seconds=-1),
        lambda: store.renew("run", epoch=1, seconds=float("nan")),
        lambda: store.release("run", epoch=-1),
        lambda: store.get("a' OR 1=1"),
        lambda: store.read("run", -1),
        lambda: store.read("run", 0, -1),
        lambda: store.read("run", 2**63),
        lambda: store.find_event("run", ""),
        lambda: store.find_request(""),
        lambda: store.refusals(""),
        lambda: store.record_refusal("run", Refusal(event_id="e", type="t", code="c", detail="\udfff", actor="", at=0)),
        lambda: _first(store.follow("run", -1)),
        lambda: _first(store.follow("")),
    ]
