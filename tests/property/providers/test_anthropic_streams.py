"""Whatever becomes of a Messages stream on its way, the attempt ends once, and no call comes of it without the wire's end marker."""

import random  # noqa: TID251  the same broken streams for one seed
from typing import cast

import pytest

from checkrein.providers.anthropic.client import ANTHROPIC_MESSAGES
from tests import counts
from tests.property.providers.mutations import bounded, check, cut_everywhere, mutations
from tests.unit.providers.wire_bytes import golden, outcome
from tests.unit.providers.wire_server import sse

MUTATIONS = 7_000
STREAMS = dict(golden("anthropic"))


def end_seen(events: list[tuple[str, object]]) -> bool:
    """Tell whether the message stopped, after a stop reason."""
    kinds = [_kind(name, data) for name, data in events]
    return "message_stop" in kinds and any(_has_reason(data) for _, data in events)


def _kind(name: str, data: object) -> object:
    return (cast("dict[str, object]", data).get("type") if isinstance(data, dict) else None) or name


def _has_reason(data: object) -> bool:
    delta = cast("dict[str, object]", data).get("delta") if isinstance(data, dict) else None
    return isinstance(delta, dict) and bool(cast("dict[str, object]", delta).get("stop_reason"))


@pytest.mark.parametrize(
    "name", ["text", "parallel_calls", "thinking_between_calls", "thinking_hidden", "text_with_done"]
)
async def test_a_stream_cut_after_any_byte_completes_only_past_its_end(name: str) -> None:
    ends = await cut_everywhere(ANTHROPIC_MESSAGES, STREAMS[name], end_seen)
    counts.report(
        f"messages stream {name} cut after every byte", sum(ends.values()), passed=sum(ends.values()), detail=ends
    )
    assert ends["retried"] > ends.get("completed", 0)


async def test_a_mutated_stream_ends_once_and_brings_no_unfinished_call() -> None:
    count, seed = counts.amount(MUTATIONS), counts.seed()
    ends = {"completed": 0, "retried": 0, "failed": 0}
    for raw in mutations(list(STREAMS.values()), count, seed):
        ends[check(await bounded(outcome(ANTHROPIC_MESSAGES, [raw])), raw, end_seen)] += 1
    counts.report("mutated messages streams", count, passed=sum(ends.values()), seed=seed, detail=ends)
    assert all(ends.values()), "a mutation that changes nothing, or breaks everything, tests little"


async def test_where_a_stream_is_split_into_packets_makes_no_difference() -> None:
    draw = random.Random(counts.seed())  # noqa: S311  a test's choices are no secret
    for name, events in STREAMS.items():
        raw = sse(*events)
        whole = await outcome(ANTHROPIC_MESSAGES, [raw])
        for _ in range(5):
            cuts = sorted(draw.sample(range(len(raw)), 12))
            pieces = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
            found = await outcome(ANTHROPIC_MESSAGES, pieces)
            assert (found.response, found.answer) == (whole.response, whole.answer), name
            assert str(found.error) == str(whole.error), name
