"""Whatever becomes of a Chat stream on its way, the attempt ends once, and no call comes of it without the wire's end marker."""

import random  # noqa: TID251  the same broken streams for one seed
from typing import cast

import pytest

from checkrein.providers.chat.client import COMPATIBLE_CHAT
from tests import counts
from tests.property.providers.mutations import bounded, check, cut_everywhere, mutations
from tests.unit.providers.wire_bytes import golden, outcome
from tests.unit.providers.wire_server import sse

MUTATIONS = 7_000
STREAMS = dict(golden("chat"))


def end_seen(events: list[tuple[str, object]]) -> bool:
    """Tell whether any event gives a finish reason."""
    return any(_is_end(data) for _, data in events)


def _is_end(data: object) -> bool:
    choices = cast("dict[str, object]", data).get("choices") if isinstance(data, dict) else None
    items = cast("list[object]", choices) if isinstance(choices, list) else []
    return any(isinstance(item, dict) and bool(cast("dict[str, object]", item).get("finish_reason")) for item in items)


@pytest.mark.parametrize("name", ["text", "parallel_calls", "thinking_details"])
async def test_a_stream_cut_after_any_byte_completes_only_past_its_end(name: str) -> None:
    ends = await cut_everywhere(COMPATIBLE_CHAT, STREAMS[name], end_seen)
    counts.report(
        f"chat stream {name} cut after every byte", sum(ends.values()), passed=sum(ends.values()), detail=ends
    )
    assert ends["retried"] > ends["completed"] > 0


async def test_a_mutated_stream_ends_once_and_brings_no_unfinished_call() -> None:
    count, seed = counts.amount(MUTATIONS), counts.seed()
    ends = {"completed": 0, "retried": 0, "failed": 0}
    for raw in mutations(list(STREAMS.values()), count, seed):
        ends[check(await bounded(outcome(COMPATIBLE_CHAT, [raw])), raw, end_seen)] += 1
    counts.report("mutated chat streams", count, passed=sum(ends.values()), seed=seed, detail=ends)
    assert all(ends.values()), "a mutation that changes nothing, or breaks everything, tests little"


async def test_where_a_stream_is_split_into_packets_makes_no_difference() -> None:
    draw = random.Random(counts.seed())  # noqa: S311  a test's choices are no secret
    for name, events in STREAMS.items():
        raw = sse(*events)
        whole = await outcome(COMPATIBLE_CHAT, [raw])
        for _ in range(5):
            cuts = sorted(draw.sample(range(len(raw)), 12))
            pieces = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
            found = await outcome(COMPATIBLE_CHAT, pieces)
            assert (found.response, found.answer) == (whole.response, whole.answer), name
            assert str(found.error) == str(whole.error), name
