"""A session whose model cannot read everything: old turns become a summary, which is an event of its log."""

from collections.abc import AsyncIterator, Iterable

import pytest

from checkrein.errors import ModelError, TransientModelError
from checkrein.harness.hooks import Pause
from checkrein.harness.loop import HarnessLoop
from checkrein.harness.model_planner import ModelPlanner
from checkrein.harness.pulls import PullRequest, SessionResult
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import Event, TranscriptCompacted, TurnFinished, TurnStart
from checkrein.loop.compaction import Compaction
from checkrein.messages import ToolCall, Usage, UserMessage, validate_transcript
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse
from checkrein.ports.tool import CancelSignal
from checkrein.projections.transcript import fold_transcript
from checkrein.testing.scripted import ScriptedModel, ScriptItem, reply
from checkrein.tools.function import tool
from tests.unit.harness.model_scene import GOAL, Scene as ModelScene, done, pulled

SMALL = Compaction(window=1_000, keep_turns=1, summary_tokens=100)
WIDE = Compaction(window=100_000, keep_turns=1, summary_tokens=100)
OVERFLOW = ModelError("prompt is too long", code="MODEL_CONTEXT")
BUSY = TransientModelError("slow down", code="MODEL_RATE_LIMIT")


@tool
async def look(size: int = 900) -> str:
    return "x" * size


def looks(count: int, *, input_tokens: int = 0) -> list[ModelResponse]:
    """Return responses that look, each bringing about 300 tokens."""
    return [reply(ToolCall("c1", "look", {}), usage=Usage(input_tokens)) for _ in range(count)]


class Scene(ModelScene):
    """A session of a model with a small window."""

    def __init__(
        self, script: Iterable[ScriptItem], compaction: Compaction = SMALL, *, budget: Budget | None = None
    ) -> None:
        super().__init__((), tools=[look], budget=budget)
        self.model = ScriptedModel(script)
        self.loop.planner = ModelPlanner(self.model, compaction=compaction)

    def turns(self) -> list[tuple[int, int]]:
        return [
            (event.data.turn, event.data.attempt) for event in self.loop.events if isinstance(event.data, TurnStart)
        ]

    def summaries(self) -> list[int]:
        return [place for place, item in enumerate(self.model.requests) if "-summary-" in item.id]

    def compacted(self) -> list[TranscriptCompacted]:
        return [event.data for event in self.loop.events if isinstance(event.data, TranscriptCompacted)]

    def check(self) -> None:
        """Hold the log to what every log must be: any prefix of it replays, and gives the transcripts that the model was sent."""
        events: tuple[Event, ...] = tuple(self.loop.events)
        assert HarnessLoop.replay(events).session == self.loop.session
        assert self.loop.budget.used.turns == len(self.turns())
        for request in self.model.requests:
            assert validate_transcript(request.messages) == ()


async def test_old_turns_become_a_summary_before_the_planning_that_would_be_too_long() -> None:
    scene = Scene([*looks(3), reply("seen: x"), reply("all seen")])
    out = done(await scene.run())
    assert (out.reason, out.result, scene.summaries()) == ("goal_met", "all seen", [3])
    assert scene.turns() == [(1, 1), (2, 1), (3, 1), (4, 1), (4, 2)]
    (fact,) = scene.compacted()
    assert (fact.through_turn, fact.summary[-7:]) == (2, "seen: x")
    sent = scene.asked(4)
    assert (sent[0], [message.role for message in sent]) == (
        UserMessage("goal", GOAL),
        ["user", "user", "assistant", "tool_result"],
    )
    assert sent[1] == UserMessage("summary-2", fact.summary)
    view = fold_transcript(scene.loop.events)
    assert view.messages[:4] == sent
    scene.check()


async def test_a_session_that_fits_is_planned_as_ever() -> None:
    scene = Scene([*looks(1), reply("seen")])
    assert done(await scene.run()).reason == "goal_met"
    assert (scene.turns(), scene.compacted(), scene.model.call_count) == ([(1, 1), (2, 1)], [], 2)


async def test_what_the_model_counted_decides_before_any_estimate() -> None:
    scene = Scene([*looks(3, input_tokens=100), reply("all seen")])
    assert done(await scene.run()).reason == "goal_met"
    assert scene.compacted() == []
    scene = Scene([*looks(2, input_tokens=90_000), reply("short"), reply("all seen")], WIDE)
    assert done(await scene.run()).reason == "goal_met"
    assert [fact.through_turn for fact in scene.compacted()] == [1]
    scene.check()


async def test_a_model_that_refuses_the_transcript_is_asked_again_in_the_same_turn_with_a_summary() -> None:
    scene = Scene([*looks(3), OVERFLOW, reply("short", usage=Usage(30, 3)), reply("all seen")], WIDE)
    out = done(await scene.run())
    assert (out.reason, out.budget.used.turns, out.budget.used.tokens) == ("goal_met", 6, 33)
    assert scene.turns()[3:] == [(4, 1), (4, 2), (4, 3)]
    assert (len(scene.asked(3)), scene.summaries(), len(scene.asked(5))) == (7, [4], 4)
    assert scene.compacted()[0].usage == Usage(30, 3)
    scene.check()


async def test_a_refusal_that_no_summary_mends_pauses_with_its_code() -> None:
    scene = Scene([OVERFLOW], WIDE)
    pull = pulled(await scene.run(), "planner_failed")
    assert (scene.turns(), "MODEL_CONTEXT" in str(pull.payload)) == ([(1, 1)], True)
    scene = Scene([*looks(3), OVERFLOW, reply("short"), OVERFLOW, reply("all seen")], WIDE)
    pulled(await scene.run(), "planner_failed")
    assert scene.turns()[3:] == [(4, 1), (4, 2), (4, 3)]
    assert done(await scene.resume({"decision": "again"})).reason == "goal_met"
    scene.check()


async def test_a_busy_provider_is_asked_again_and_nothing_is_summarised() -> None:
    scene = Scene([*looks(1), BUSY, reply("seen")])
    assert done(await scene.run()).reason == "goal_met"
    assert (scene.turns(), scene.summaries()) == ([(1, 1), (2, 1), (2, 2)], [])


USELESS = [
    reply("cut of", stop_reason="length", usage=Usage(10, 1)),
    reply("   ", usage=Usage(10, 1)),
    reply("y" * 2_400, usage=Usage(10, 1)),
]


@pytest.mark.parametrize("item", USELESS, ids=["length", "empty", "large"])
async def test_after_so_many_summaries_of_no_use_the_session_pauses_with_a_code(item: ModelResponse) -> None:
    scene = Scene([*looks(3), item, item, item, reply("good"), reply("all seen")])
    pull = pulled(await scene.run(), "planner_failed")
    assert "MODEL_CONTEXT: " in str(pull.payload)
    assert (scene.turns()[3:], scene.compacted()) == ([(4, 1), (4, 2), (4, 3)], [])
    # What was consumed for nothing is counted.
    (failed,) = (event.data for event in scene.loop.events if isinstance(event.data, TurnFinished) and event.data.error)
    assert (failed.attempt, failed.usage, scene.loop.budget.used.tokens) == (3, Usage(30, 3), 33)
    assert done(await scene.resume({"decision": "again"})).reason == "goal_met"
    scene.check()


async def test_what_useless_summaries_consumed_stands_beside_the_good_one() -> None:
    scene = Scene([*looks(3), *USELESS[:2], reply("good", usage=Usage(5, 5)), reply("all seen")])
    assert done(await scene.run()).reason == "goal_met"
    assert [fact.usage for fact in scene.compacted()] == [Usage(25, 7)]
    assert scene.turns()[3:] == [(4, 1), (4, 2), (4, 3), (4, 4)]
    scene.check()


async def test_a_provider_that_is_busy_while_it_summarises_is_asked_again_and_then_named() -> None:
    scene = Scene([*looks(3), BUSY, reply("good"), BUSY, BUSY, reply("all seen")])
    assert done(await scene.run()).reason == "goal_met"
    # The attempts for the summary take none from those of the planning.
    assert scene.turns()[3:] == [(4, 1), (4, 2), (4, 3), (4, 4), (4, 5)]
    scene = Scene([*looks(3), BUSY, BUSY, BUSY])
    pull = pulled(await scene.run(), "planner_failed")
    assert "MODEL_RATE_LIMIT: slow down" in str(pull.payload)
    scene.check()


@pytest.mark.parametrize("turns", [3, 4, 5, 6])
async def test_no_summary_is_asked_for_that_the_budget_does_not_allow(turns: int) -> None:
    scene = Scene([*looks(3), BUSY, reply("good"), reply("all seen")], budget=Budget(turns=turns))
    out: PullRequest | SessionResult = await scene.run()
    answers = 0
    while isinstance(out, PullRequest):
        assert scene.model.call_count == len(scene.turns()) == scene.loop.budget.used.turns == turns + answers
        if out.reason == "planner_failed":
            out = await scene.resume({"decision": "again"})
            continue
        answers += 1
        out = await scene.resume({"extend": {"turns": 1}})
    assert (out.reason, answers, scene.model.call_count) == ("goal_met", 6 - turns, 6)
    scene.check()


async def test_the_planner_is_looked_at_once_and_only_when_it_is_asked_for_steps() -> None:
    scene = Scene([*looks(3), reply("good"), reply("all seen")])
    seen: list[object] = []
    scene.loop.hooks.on("before_plan", lambda payload: seen.append(payload["turn"]))
    assert done(await scene.run()).reason == "goal_met"
    assert seen == [1, 2, 3, 4]


async def test_a_planning_that_is_held_after_its_summary_is_counted_once() -> None:
    scene = Scene([*looks(3), reply("good"), reply("all seen")])
    scene.loop.hooks.on(
        "before_plan", lambda payload: Pause("look") if payload["turn"] == 4 and "decision" not in payload else None
    )
    pulled(await scene.run(), "review:look")
    assert (scene.summaries(), scene.turns()[3:]) == ([3], [(4, 1), (4, 2)])
    assert done(await scene.resume({"decision": "allow"})).reason == "goal_met"
    assert (scene.turns()[3:], scene.model.call_count) == ([(4, 1), (4, 2)], 5)
    scene.check()


async def test_a_result_larger_than_the_window_is_sent_and_if_it_is_refused_that_is_the_end() -> None:
    large = reply(ToolCall("c1", "look", {"size": 9_000}))
    scene = Scene([large, reply("read all the same")])
    assert (done(await scene.run()).result, scene.summaries()) == ("read all the same", [])
    scene = Scene([large, OVERFLOW])
    pull = pulled(await scene.run(), "planner_failed")
    assert ("prompt is too long" in str(pull.payload), scene.summaries(), scene.turns()) == (True, [], [(1, 1), (2, 1)])
    # Old turns make room, and what is left is still too long.
    scene = Scene([*looks(2), large, OVERFLOW, reply("good"), OVERFLOW], WIDE)
    pulled(await scene.run(), "planner_failed")
    assert (scene.summaries(), scene.turns()[3:]) == ([4], [(4, 1), (4, 2), (4, 3)])
    scene.check()


async def test_a_message_that_comes_while_a_summary_is_written_is_read_by_a_later_planning() -> None:
    async def steered(_request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        scene.loop.steer("be brief")
        yield reply("good")

    scene = Scene([*looks(3), steered, reply("seen?"), reply("all seen")])
    assert done(await scene.run()).result == "all seen"
    assert ("be brief" in scene.said(4), scene.said(5)[-1]) == (False, "be brief")
    scene.check()


async def test_a_session_left_while_a_summary_was_written_asks_for_it_once_more() -> None:
    scene = Scene([*looks(3), KeyboardInterrupt(), reply("good"), reply("all seen")])
    with pytest.raises(KeyboardInterrupt):
        await scene.loop.run(GOAL)
    assert scene.turns()[3:] == [(4, 1)]
    copy = HarnessLoop.replay(tuple(scene.loop.events), scene.loop.planner, tools=[look])
    out = await copy.continue_()
    assert isinstance(out, SessionResult)
    starts = [(event.data.turn, event.data.attempt) for event in copy.events if isinstance(event.data, TurnStart)]
    assert (out.reason, starts[3:], scene.model.remaining) == ("goal_met", [(4, 1), (4, 2), (4, 3)], 0)


async def test_a_long_session_is_summarised_again_and_again_and_its_requests_stay_small() -> None:
    async def anything(request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        assert len(request.messages) <= 10
        is_over = len(scene.loop.session.history) > 40
        yield reply("so far so good") if "-summary-" in request.id or is_over else looks(1)[0]

    scene = Scene([anything] * 200, budget=Budget(turns=200))
    assert done(await scene.run()).reason == "goal_met"
    through = [fact.through_turn for fact in scene.compacted()]
    assert (len(through) > 5, through) == (True, sorted(set(through)))
    scene.check()
