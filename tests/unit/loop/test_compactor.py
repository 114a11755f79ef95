"""An agent whose requests never outgrow the model's window, while its transcript stays whole."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest
from msgspec.structs import replace

from checkrein.agent.agent import Agent
from checkrein.agent.options import AgentOptions
from checkrein.errors import ModelError, TransientModelError
from checkrein.loop.compaction import Compaction
from checkrein.loop.compactor import CompactingModel
from checkrein.loop.events import Cancelled, Completed, Failed, RunResult
from checkrein.loop.options import Retry
from checkrein.messages import AssistantMessage, Message, Text, ToolResult, Usage, UserMessage, validate_transcript
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse, TextDelta
from checkrein.ports.tool import CancelSignal
from checkrein.testing.manual_clock import ManualClock
from checkrein.testing.scripted import ScriptedModel, ScriptItem, reply
from checkrein.tools.function import tool
from checkrein.values import JsonObject
from tests.unit.loop.scene import Stream, call

SMALL = Compaction(window=1_000, keep_turns=1, summary_tokens=100)
OVERFLOW = ModelError("prompt is too long", code="MODEL_CONTEXT")


@tool(inline=True)
def look(size: int = 900) -> str:
    return "x" * size


def looks(count: int, *, size: int = 900) -> list[ModelResponse]:
    """Return responses that look, each bringing about 300 tokens."""
    return [reply(call(f"c{number}", "look", {"size": size})) for number in range(count)]


class Scene:
    """An agent in front of a script."""

    def __init__(self, script: Iterable[ScriptItem], compaction: Compaction = SMALL, *, attempts: int = 1) -> None:
        self.model = ScriptedModel(script)
        self.compacting = CompactingModel(self.model, compaction)
        self.clock = ManualClock()
        options = AgentOptions(clock=self.clock, retry=Retry(attempts=attempts))
        self.agent = Agent(model=self.model, tools=[look], hooks=self.compacting.hooks(), options=options)

    async def prompt(self, text: str = "look around") -> Completed | Failed | Cancelled:
        waiting = self.clock.spawn(_result(self.agent.prompt(text)), name="waiting")
        while not waiting.done():
            await self.clock.advance(1.0)
        result = await waiting
        assert isinstance(result, (Completed, Failed, Cancelled)), result
        assert validate_transcript(self.agent.messages) == ()
        return result

    def asked(self, number: int) -> tuple[Message, ...]:
        messages = tuple(self.model.requests[number].messages)
        assert validate_transcript(messages) == ()
        return messages

    def summaries(self) -> list[int]:
        """Return which requests asked for a summary."""
        return [place for place, item in enumerate(self.model.requests) if "-summary-" in item.id]


async def _result(stream: Stream) -> RunResult:
    return await stream


async def test_the_oldest_turns_become_a_summary_and_the_transcript_stays_whole() -> None:
    scene = Scene([*looks(3), reply("seen: x"), reply("all seen")])
    result = await scene.prompt()
    assert (result.status, scene.summaries(), scene.model.remaining) == ("completed", [3], 0)
    assert len(scene.agent.messages) == 1 + 3 * 2 + 1
    sent = scene.asked(4)
    assert sent[0] == scene.agent.messages[0]
    assert isinstance(sent[1], UserMessage)
    assert str(sent[1].content).endswith("seen: x")
    assert sent[2:] == tuple(scene.agent.messages[5:7])
    assert not any("seen: x" in str(message) for message in scene.agent.messages)


async def test_a_request_that_fits_is_sent_as_it_is() -> None:
    scene = Scene([*looks(1), reply("seen")])
    assert (await scene.prompt()).status == "completed"
    assert (scene.summaries(), len(scene.asked(1))) == ([], 3)


async def test_the_summary_is_kept_for_the_turns_that_follow_and_becomes_part_of_the_next() -> None:
    script = [*looks(3), reply("one"), *looks(2, size=600), reply("two"), reply("done"), reply("again")]
    scene = Scene(script)
    assert (await scene.prompt()).status == "completed"
    assert (scene.summaries(), scene.compacting.compactions) == ([3, 6], 2)
    assert str(scene.asked(5)[1].content).endswith("one")
    assert "\n\none\n\n" in str(scene.asked(6)[0].content)
    last = scene.asked(7)
    assert [str(message.content)[-3:] for message in last if isinstance(message, UserMessage)] == ["und", "two"]
    assert (await scene.prompt("and again?")).status == "completed"
    assert scene.asked(8)[:2] == last[:2]


async def test_what_the_provider_counted_decides_before_any_estimate() -> None:
    counted = [
        reply(call("c0", "look", {"size": 30}), usage=Usage(input_tokens=780, output_tokens=19)),
        reply("said", usage=Usage(5, 1)),
    ]
    scene = Scene([*counted, reply("done")])
    assert (await scene.prompt()).status == "completed"
    # 799 tokens and a small result are more than 800, and there is no old turn to summarise.
    assert (scene.summaries(), scene.model.call_count) == ([], 2)
    scene = Scene([reply("hello", usage=Usage(799, 1)), reply("x"), reply("done", usage=Usage(9, 1))], SMALL)
    assert (await scene.prompt("p" * 300)).status == "completed"
    assert (await scene.prompt("go on")).status == "completed"
    assert scene.summaries() == []


async def test_a_model_that_refuses_the_request_as_too_long_is_asked_again_with_a_summary() -> None:
    scene = Scene([*looks(3), OVERFLOW, reply("short"), reply("done")], Compaction(window=100_000))
    assert (await scene.prompt()).status == "completed"
    assert (scene.summaries(), len(scene.asked(3)), len(scene.asked(5))) == ([4], 7, 4)
    assert scene.model.requests[3].id == scene.model.requests[5].id


async def test_a_refusal_ends_the_run_with_its_code_where_nothing_can_be_summarised_or_it_comes_again() -> None:
    scene = Scene([OVERFLOW], Compaction(window=100_000))
    result = await scene.prompt()
    assert isinstance(result, Failed)
    assert (result.error.code, scene.summaries()) == ("MODEL_CONTEXT", [])
    scene = Scene([*looks(3), OVERFLOW, reply("short"), OVERFLOW], Compaction(window=100_000))
    result = await scene.prompt()
    assert isinstance(result, Failed)
    assert (result.error.code, scene.summaries(), scene.model.remaining) == ("MODEL_CONTEXT", [4], 0)


async def test_a_result_larger_than_the_window_is_sent_and_if_it_is_refused_that_is_the_end() -> None:
    scene = Scene([*looks(1, size=9_000), reply("read all the same")])
    assert ((await scene.prompt()).status, scene.summaries()) == ("completed", [])
    scene = Scene([*looks(1, size=9_000), OVERFLOW])
    result = await scene.prompt()
    assert isinstance(result, Failed)
    assert (result.error.message, scene.summaries()) == ("prompt is too long", [])


async def test_a_busy_provider_is_no_reason_to_summarise() -> None:
    busy = TransientModelError("slow down", code="MODEL_RATE_LIMIT")
    scene = Scene([*looks(1), busy, reply("done")], attempts=2)
    assert (await scene.prompt()).status == "completed"
    assert (scene.summaries(), scene.model.call_count) == ([], 3)


USELESS = [
    reply("cut of", stop_reason="length"),
    reply("   "),
    reply("no", stop_reason="refusal"),
    reply(call("c9", "look")),
    reply("y" * 2_400),
    OVERFLOW,
]


@pytest.mark.parametrize("item", USELESS, ids=["length", "empty", "refusal", "call", "large", "overflow"])
async def test_a_summary_of_no_use_is_never_sent_and_after_so_many_the_run_fails_with_a_code(item: ScriptItem) -> None:
    scene = Scene([*looks(3), item, item, item])
    result = await scene.prompt()
    assert isinstance(result, Failed)
    assert (result.error.code, scene.summaries(), scene.model.remaining) == ("MODEL_CONTEXT", [3, 4, 5], 0)
    assert "3 tries" in result.error.message


async def test_a_good_summary_after_useless_ones_is_sent() -> None:
    scene = Scene([*looks(3), *USELESS[:2], reply("good"), reply("done")])
    assert (await scene.prompt()).status == "completed"
    assert (scene.summaries(), str(scene.asked(6)[1].content)[-4:]) == ([3, 4, 5], "good")


async def test_a_provider_that_is_busy_while_it_summarises_keeps_its_code_and_is_asked_again_as_retries_allow() -> None:
    busy = TransientModelError("slow down", code="MODEL_RATE_LIMIT", retry_after=3.0)
    scene = Scene([*looks(3), busy])
    result = await scene.prompt()
    assert isinstance(result, Failed)
    assert result.error.code == "MODEL_RATE_LIMIT"
    scene = Scene([*looks(3), busy, reply("good"), reply("done")], attempts=2)
    assert (await scene.prompt()).status == "completed"
    assert scene.summaries() == [3, 4]


async def test_what_summaries_consume_is_part_of_the_usage_of_the_run() -> None:
    script = [
        *looks(3),
        reply("  ", usage=Usage(100, 1)),
        reply("good", usage=Usage(50, 2)),
        reply("done", usage=Usage(7, 3)),
    ]
    scene = Scene(script)
    result = await scene.prompt()
    assert (result.status, result.usage.input_tokens, result.usage.output_tokens) == ("completed", 157, 6)
    assert (scene.compacting.usage.input_tokens, scene.compacting.usage.output_tokens) == (150, 3)


async def test_a_summary_is_asked_for_without_tools_and_with_settings_of_its_own() -> None:
    own = JsonObject({"temperature": 0})
    model = ScriptedModel([*looks(3), reply("good"), reply("done")])
    compacting = CompactingModel(model, replace(SMALL, settings=own))
    options = AgentOptions(settings=JsonObject({"tool_choice": "auto"}))
    agent = Agent(model=compacting, tools=[look], options=options)
    assert (await agent.prompt("look around")).status == "completed"
    assert (model.requests[3].tools, model.requests[3].settings) == ((), own)
    assert [item.settings for item in model.requests if item.tools] == [options.settings] * 4


class Sighted(ScriptedModel):
    """A model that says how large its window is."""

    context_window: int | None = 1_000


async def test_a_model_that_knows_its_window_needs_no_settings_and_another_is_left_alone() -> None:
    long = looks(6)
    sighted = Sighted([*long, reply("done")])
    sighted.context_window = None
    agent = Agent(model=CompactingModel(sighted), tools=[look])
    assert (await agent.prompt("look around")).status == "completed"
    assert [len(item.messages) for item in sighted.requests] == [1, 3, 5, 7, 9, 11, 13]
    sighted = Sighted([*looks(3), reply("good"), reply("done")])
    agent = Agent(model=CompactingModel(sighted), tools=[look])
    assert (await agent.prompt("look around")).status == "completed"
    assert [len(item.messages) for item in sighted.requests] == [1, 3, 5, 1, 4]
    refusing = CompactingModel(ScriptedModel([*looks(3), OVERFLOW]))
    result = await Agent(model=refusing, tools=[look]).prompt("look around")
    assert isinstance(result, Failed)
    assert (result.error.code, refusing.compaction) == ("MODEL_CONTEXT", None)


async def test_another_model_may_write_the_summaries() -> None:
    model, writer = ScriptedModel([*looks(3), reply("done")]), ScriptedModel([reply("good")])
    agent = Agent(model=CompactingModel(model, SMALL, summariser=writer), tools=[look])
    with model, writer:
        assert (await agent.prompt("look around")).status == "completed"


async def test_another_transcript_is_not_sent_with_the_summary_of_the_first() -> None:
    scene = Scene([*looks(3), reply("secret"), reply("done"), reply("hello")])
    assert (await scene.prompt()).status == "completed"
    other = Agent(model=scene.compacting)
    assert (await other.prompt("hi")).status == "completed"
    assert scene.asked(5) == tuple(other.messages[:1])


async def test_a_transcript_that_begins_with_a_response_keeps_no_first_message() -> None:
    begun = [
        AssistantMessage("a0", (Text("y" * 1_200),)),
        UserMessage("u0", "x" * 900),
        AssistantMessage("a1", (Text("y" * 900),)),
    ]
    scene = Scene([reply("one"), reply("done", usage=Usage(1, 1)), reply("two"), reply("more")])
    agent = Agent(model=scene.compacting, messages=begun)
    assert (await agent.prompt("z" * 900)).status == "completed"
    sent = scene.asked(1)
    assert str(sent[0].content).endswith("one")
    assert sent[-1] == agent.messages[3]


async def test_a_run_is_cancelled_while_a_summary_is_written() -> None:
    async def hesitate(request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        yield TextDelta(request.id, "well")
        scene.agent.cancel("enough")
        await asyncio.Event().wait()

    scene = Scene([*looks(3), hesitate, reply("later"), reply("done")])
    result = await scene.prompt()
    assert (result.status, len(scene.agent.messages)) == ("cancelled", 7)
    assert (await scene.prompt("go on")).status == "completed"


async def test_the_stream_of_the_model_is_closed_when_the_run_is_cancelled() -> None:
    closed = asyncio.Event()

    async def talk(request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        try:
            yield TextDelta(request.id, "well")
            scene.agent.cancel("enough")
            yield TextDelta(request.id, " then")
            await asyncio.Event().wait()
        finally:
            closed.set()

    scene = Scene([talk])
    assert (await scene.prompt()).status == "cancelled"
    await asyncio.wait_for(closed.wait(), 5)


async def test_memory_and_requests_stay_small_in_a_long_conversation() -> None:
    turns = 60
    script: list[ScriptItem] = []

    async def anything(request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        if "-summary-" in request.id:
            yield reply("so far so good")
            return
        assert len(request.messages) <= 10
        yield reply(call("c", "look", {"size": 900})) if not is_enough() else reply("done")

    def is_enough() -> bool:
        return len(scene.agent.messages) > 2 * turns

    script.extend([anything] * (3 * turns))
    scene = Scene(script)
    assert (await scene.prompt()).status == "completed"
    assert sum(isinstance(message, ToolResult) for message in scene.agent.messages) == turns
    assert scene.compacting.compactions == len(scene.summaries()) < turns
