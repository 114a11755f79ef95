"""Whatever a model with a small window says, counts, refuses or summarises: each request is valid, each was counted before, and every prefix of the log replays."""

import asyncio
from collections.abc import AsyncIterator

from hypothesis import given, settings, strategies as st

from checkrein.errors import ModelError, TransientModelError
from checkrein.harness.loop import HarnessLoop
from checkrein.harness.model_planner import ModelPlanner
from checkrein.harness.pulls import PullRequest
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import TranscriptCompacted, TurnStart
from checkrein.loop.compaction import Compaction
from checkrein.messages import ToolCall, Usage, validate_transcript
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse
from checkrein.ports.tool import CancelSignal
from checkrein.projections.transcript import TranscriptView, begun, fold_transcript
from checkrein.testing.manual_clock import ManualClock
from checkrein.testing.scripted import ScriptedModel, reply
from checkrein.tools.function import tool

KINDS = ("look", "look", "look", "both", "busy", "overflow", "cut", "empty", "text", "steer", "broken")
SUMMARIES = ("good", "good", "good", "long", "cut", "empty", "busy", "overflow", "call", "auth")
PULLS = 12


class Hasty(ManualClock):
    """A clock on which waiting costs one turn of the event loop."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(min(0.0, seconds))


@tool
async def look(size: int = 300) -> str:
    return "x" * size


def failure(kind: str) -> ModelError | None:
    if kind in {"busy", "broken"}:
        return TransientModelError("busy", code="MODEL_OVERLOADED")
    if kind in {"overflow", "auth"}:
        return ModelError("no", code="MODEL_CONTEXT" if kind == "overflow" else "MODEL_AUTH")
    return None


class Session:
    """One session of a model that does what was drawn."""

    def __init__(
        self, turns: list[tuple[str, int]], summaries: list[str], budget: Budget, compaction: Compaction
    ) -> None:
        self.turns = turns
        self.summaries = summaries
        self.model = ScriptedModel([self.answer] * 200)
        planner = ModelPlanner(self.model, compaction=compaction)
        self.loop = HarnessLoop(planner=planner, budget=budget, tools=[look], clock=Hasty())

    async def answer(self, request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        assert validate_transcript(request.messages) == ()
        # Whatever is asked for was counted before.
        assert self.model.call_count == self.loop.budget.used.turns
        if "-summary-" in request.id:
            kind, size = (self.summaries.pop(0) if self.summaries else "good"), 0
        else:
            kind, size = self.turns.pop(0) if self.turns else ("text", 0)
            assert tuple(request.messages) == tuple(fold_transcript(self.loop.events).messages)
        error = failure(kind)
        if error is not None:
            raise error
        if kind == "steer":
            self.loop.steer("be brief")
        yield self.said(kind, size)

    def said(self, kind: str, size: int) -> ModelResponse:
        if kind in {"look", "both", "steer", "call"}:
            calls = [ToolCall(f"c{number}", "look", {"size": size}) for number in range(2 if kind == "both" else 1)]
            return reply(*calls, usage=Usage(size, 1))
        if kind == "cut":
            return reply("cut of", stop_reason="length", usage=Usage(7, 7))
        return reply({"empty": " ", "long": "y" * 5_000}.get(kind, "fine"))

    async def run(self) -> None:
        out = await self.loop.run("look around")
        for _ in range(PULLS):
            if not isinstance(out, PullRequest):
                return
            if out.reason == "planner_failed":
                out = await self.loop.resume({"decision": "again"})
            else:
                out = await self.loop.resume({"extend": {"turns": 2}})

    def check(self) -> None:
        events = tuple(self.loop.events)
        starts = [event.data for event in events if isinstance(event.data, TurnStart)]
        assert self.loop.budget.used.turns == len(starts) == self.model.call_count
        assert [start.turn for start in starts] == sorted(start.turn for start in starts)
        through = [event.data.through_turn for event in events if isinstance(event.data, TranscriptCompacted)]
        assert through == sorted(through)
        view = TranscriptView()
        for length, event in enumerate(events):
            if isinstance(event.data, TurnStart):
                assert validate_transcript(begun(view, event.data).messages) == ()
            view = fold_transcript((event,), view)
            if length % 7 == 0:
                assert fold_transcript(events[: length + 1]) == view
                assert HarnessLoop.replay(events[: length + 1]).events.read(0) == events[: length + 1]
        assert HarnessLoop.replay(events).session == self.loop.session


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from((1, 300, 900, 3_000))), max_size=14),
    st.lists(st.sampled_from(SUMMARIES), max_size=10),
    st.sampled_from((3, 6, 64)),
    st.builds(
        Compaction,
        window=st.sampled_from((300, 1_000, 100_000)),
        keep_turns=st.integers(1, 3),
        tries=st.integers(1, 3),
        summary_tokens=st.just(50),
    ),
)
def test_every_request_is_valid_and_counted_and_every_prefix_of_the_log_replays(
    turns: list[tuple[str, int]], summaries: list[str], limit: int, compaction: Compaction
) -> None:
    session = Session(turns, summaries, Budget(turns=limit), compaction)
    asyncio.run(session.run())
    session.check()
