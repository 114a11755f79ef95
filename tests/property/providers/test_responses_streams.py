"""Whatever becomes of a Responses stream on its way, the attempt ends once, and no call comes of it without the wire's end marker."""

import random  # noqa: TID251  the same cuts for one seed
from typing import cast

import pytest

from checkrein.providers.responses.client import COMPATIBLE_RESPONSES
from tests import counts
from tests.property.providers.mutations import bounded, check, cut_everywhere, mutations
from tests.unit.providers.wire_bytes import golden, outcome
from tests.unit.providers.wire_server import sse

MUTATIONS = 6_000
STREAMS = dict(golden("responses"))
ENDS = {"response.completed", "response.incomplete"}


def end_seen(events: list[tuple[str, object]]) -> bool:
    """Tell whether any event says that the response is over."""
    return any(_kind_of(name, data) in ENDS for name, data in events)


def _kind_of(name: str, data: object) -> object:
    kind = cast("dict[str, object]", data).get("type") if isinstance(data, dict) else None
    return kind or name


@pytest.mark.parametrize("name", ["text", "reasoning_hidden", "local_server"])
async def test_a_stream_cut_after_any_byte_completes_only_past_its_end(name: str) -> None:
    ends = await cut_everywhere(COMPATIBLE_RESPONSES, STREAMS[name], end_seen)
    counts.report(
        f"responses stream {name} cut after every byte", sum(ends.values()), passed=sum(ends.values()), detail=ends
    )
    assert set(ends) == {"retried"}, "the end marker is the last event, and nothing before it completes"


async def test_a_mutated_stream_ends_once_and_brings_no_unfinished_call() -> None:
    count, seed = counts.amount(MUTATIONS), counts.seed()
    ends = {"completed": 0, "retried": 0, "failed": 0}
    for raw in mutations(list(STREAMS.values()), count, seed):
        ends[check(await bounded(outcome(COMPATIBLE_RESPONSES, [raw])), raw, end_seen)] += 1
    counts.report("mutated responses streams", count, passed=sum(ends.values()), seed=seed, detail=ends)
    assert all(ends.values()), "a mutation that changes nothing, or breaks everything, tests little"


async def test_where_a_stream_is_split_into_packets_makes_no_difference() -> None:
    draw = random.Random(counts.seed())  # noqa: S311  a test's choices are no secret
    for name, events in STREAMS.items():
        raw = sse(*events)
        whole = await outcome(COMPATIBLE_RESPONSES, [raw])
        for _ in range(5):
            cuts = sorted(draw.sample(range(len(raw)), 12))
            pieces = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
            found = await outcome(COMPATIBLE_RESPONSES, pieces)
            assert (found.response, found.answer) == (whole.response, whole.answer), name
            assert str(found.error) == str(whole.error), name
