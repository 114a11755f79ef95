"""Whatever is handed to a store, it answers or refuses with an error of ours, both stores alike, and nothing in it is hurt."""

import asyncio
import math
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings, strategies as st

from checkrein.errors import CheckreinError
from checkrein.ports.store import NewLease, Refusal, Row, RunHead, RunQuery, RunRow, RunStore
from checkrein.store import MemoryStore, SqliteStore
from checkrein.testing.conformance_base import head, rows
from checkrein.testing.manual_clock import ManualClock
from tests.counts import amount

TEXTS = st.one_of(
    st.sampled_from(
        (
            "",
            "run",
            "a",
            "ru",
            "'; DROP TABLE runs; --",
            "\0",
            "%",
            "*",
            "~",
            "[]",
            "\ud800",
            "a" * 129,
            "a" * 201,
            "é",
            "run\n",
        )
    ),
    st.text(max_size=30),
    st.text(alphabet=st.characters(categories=("Cs", "Cc", "Ll"))),
)
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.integers(),
    st.sampled_from((2**31, 2**32, 2**53, 2**53 - 1, 2**63, 2**64, 10**5000, -(10**5000))),
    st.floats(),
    st.booleans(),
)
WILD = st.one_of(TEXTS, NUMBERS, st.none(), st.binary(max_size=40), st.lists(st.text(max_size=3)), st.just(object()))


def mostly(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return good values with wild ones among them, so that one wild argument meets good others."""
    return st.one_of(good, good, good, TEXTS, NUMBERS, WILD)


LABELS = mostly(st.sampled_from(("a", "b", "run", "e1", "née")))
RUN_IDS = mostly(st.sampled_from(("run", "run", "other", "none")))
COUNTS = mostly(st.integers(0, 4))
ROWS = mostly(
    st.lists(
        st.builds(
            Row,
            event_id=LABELS,
            type=LABELS,
            fingerprint=mostly(st.just(b"f" * 32)),
            body=mostly(st.binary(min_size=1, max_size=50)),
        ),
        max_size=3,
    )
)
HEADS = mostly(
    st.builds(
        RunHead,
        phase=LABELS,
        is_terminal=mostly(st.just(value=False)),
        is_claimable=mostly(st.booleans()),
        task=LABELS,
        task_version=COUNTS,
        goal=LABELS,
        updated_at=COUNTS,
    )
)
LEASES = mostly(st.builds(NewLease, owner=LABELS, seconds=mostly(st.sampled_from((1, 2.5))), dead_owner=LABELS))
QUERIES = mostly(
    st.builds(
        RunQuery,
        phases=mostly(st.lists(LABELS, max_size=2).map(tuple)),
        tasks=mostly(st.lists(LABELS, max_size=2).map(tuple)),
        prefix=mostly(st.sampled_from(("", "r", "run"))),
        claimable=mostly(st.booleans()),
        limit=COUNTS,
    )
)
REFUSALS = mostly(st.builds(Refusal, event_id=LABELS, type=LABELS, code=LABELS, detail=LABELS, actor=LABELS, at=COUNTS))

# Each method of the port with what is handed to it; a name ending in "=" is a keyword.
CALLS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "create": {"run_id": RUN_IDS, "request_id": LABELS, "rows": ROWS, "head": HEADS, "epoch=": COUNTS},
    "append": {
        "run_id": RUN_IDS,
        "version=": COUNTS,
        "epoch=": mostly(st.one_of(st.none(), st.integers(0, 3))),
        "rows=": ROWS,
        "head=": HEADS,
    },
    "claim": {"run_id": RUN_IDS, "version=": COUNTS, "lease=": LEASES, "rows=": ROWS, "head=": HEADS},
    "renew": {"run_id": RUN_IDS, "epoch=": COUNTS, "seconds=": mostly(st.sampled_from((1, 2.5)))},
    "release": {"run_id": RUN_IDS, "epoch=": COUNTS},
    "get": {"run_id": RUN_IDS},
    "find_event": {"run_id": RUN_IDS, "event_id": LABELS},
    "find_request": {"request_id": LABELS},
    "read": {"run_id": RUN_IDS, "offset": COUNTS, "limit": mostly(st.one_of(st.none(), st.integers(0, 3)))},
    "follow": {"run_id": mostly(st.sampled_from(("ended", "none"))), "offset": COUNTS},
    "list_runs": {"query": QUERIES},
    "record_refusal": {"run_id": RUN_IDS, "refusal": REFUSALS},
    "refusals": {"run_id": RUN_IDS},
}


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.mark.parametrize("method", CALLS)
@pytest.mark.timeout(30 + amount(60))
def test_every_argument_is_answered_or_refused_alike(
    method: str, loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    clock = ManualClock()
    stores: list[RunStore] = [MemoryStore(clock=clock), SqliteStore(tmp_path / "runs.db", clock=clock)]

    def do(call: Coroutine[Any, Any, Any]) -> Any:
        return loop.run_until_complete(call)

    for store in stores:
        do(store.create("run", "request", rows("e1"), head()))
        do(store.create("ended", "", rows("e1", "e2"), head("SUCCEEDED")))

    @settings(max_examples=amount(150), deadline=None, database=None)
    @given(st.fixed_dictionaries(CALLS[method]))
    def hand_over(arguments: dict[str, Any]) -> None:
        memory, sqlite = (do(_outcome(store, method, arguments)) for store in stores)
        assert memory == sqlite

    hand_over()
    reports = [do(store.report()) for store in stores]
    assert [(report.runs, report.events, report.problems) for report in reports] == [
        (reports[0].runs, reports[0].events, ())
    ] * 2
    memory, sqlite = (do(store.list_runs(RunQuery(limit=10_000))) for store in stores)
    assert memory == sqlite
    for store in stores:
        do(store.aclose())


async def _outcome(store: RunStore, method: str, arguments: dict[str, Any]) -> tuple[str, object]:
    """Return what a call answers, or the name of its error; any error that is not ours comes through."""
    places = [value for name, value in arguments.items() if not name.endswith("=")]
    keywords = {name.rstrip("="): value for name, value in arguments.items() if name.endswith("=")}
    try:
        answer = getattr(store, method)(*places, **keywords)
        if method == "follow":
            return "ok", [body async for body in cast("AsyncIterator[bytes]", answer)]
        return "ok", _comparable(await answer)
    except CheckreinError as error:
        return type(error).__name__, str(error)


def _comparable(answer: object) -> object:
    """Return an answer so that equal ones are equal: `2` and `2.0` of a head are."""
    if isinstance(answer, RunRow):
        assert math.isfinite(answer.lease.expires_in)
    return answer
