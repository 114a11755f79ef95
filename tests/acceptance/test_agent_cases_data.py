"""How agents are known to fail on data from models and tools, on listeners, and over time, and that this one does not."""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import cast

import msgspec
import pytest

from checkrein.agent.agent import Agent, AgentOptions
from checkrein.loop.engine import Engine
from checkrein.loop.events import AgentEvent, Completed, Failed, RunWarned
from checkrein.loop.options import Retry
from checkrein.messages import Message, Thinking, ToolCall, ToolResult, validate_transcript
from checkrein.ports.model import (
    Chunk,
    ModelRequest,
    ModelResponse,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from checkrein.ports.tool import CancelSignal, ToolContext
from checkrein.streams import EventStream, StreamLog
from checkrein.testing.manual_clock import ManualClock
from checkrein.testing.scripted import ScriptedModel, reply
from checkrein.tools.function import tool
from checkrein.values import JsonObject
from tests.acceptance.agent_bench import Bench, call, has_one_end, turns

MEGABYTE = 1024 * 1024
HIGH, LOW = "\ud83d", "\ude00"


@tool(inline=True)
def number(value: int) -> str:
    """Say a number."""
    return f"number {value}"


def encoded(messages: tuple[Message, ...]) -> bytes:
    """Encode a transcript; a lone surrogate anywhere in it raises."""
    return msgspec.json.encode(messages, enc_hook=lambda value: cast("JsonObject", value).decoded())


def results(agent: Agent) -> list[ToolResult]:
    return [message for message in agent.messages if isinstance(message, ToolResult)]


# D1


MALFORMED = (
    '{"a":',
    "[1]",
    '"x"',
    "NaN",
    '{"value": NaN}',
    '{"value": 1, "value": 2}',
    '{"value": 1e999}',
    "[" * 10_000,
)


@pytest.mark.parametrize("text", MALFORMED, ids=range(len(MALFORMED)))
async def test_d1_arguments_that_are_no_object_get_an_error_result_and_their_sibling_runs(text: str) -> None:
    script = [
        reply(ToolCall.parsed("c1", "number", text), ToolCall.parsed("c2", "number", '{"value": 7}')),
        reply("ok"),
    ]
    agent = Agent(model=ScriptedModel(script), tools=[number])
    assert (await agent.prompt("go")).status == "completed"
    bad, good = results(agent)
    assert bad.is_error
    assert text[:40] in cast("str", bad.content)
    assert '"value"' in cast("str", bad.content), "the schema is shown"
    assert len(bad.content) < 3_000
    assert (good.content, good.is_error) == ("number 7", False)
    assert validate_transcript(agent.messages) == ()


@pytest.mark.parametrize("text", ["", "  ", "{}"])
async def test_d1_no_arguments_at_all_are_an_empty_object(text: str) -> None:
    agent = Agent(model=ScriptedModel([reply(ToolCall.parsed("c1", "number", text)), reply("ok")]), tools=[number])
    await agent.prompt("go")
    assert "/value" in cast("str", results(agent)[0].content)


async def test_d1_three_batches_in_a_row_with_only_bad_arguments_end_the_run() -> None:
    def bad(batch: int) -> ModelResponse:
        return reply(*(ToolCall.parsed(f"c{batch}{item}", "number", "{") for item in range(2)))

    good = reply(ToolCall.parsed("g1", "number", "{"), ToolCall.parsed("g2", "number", '{"value": 1}'))
    model = ScriptedModel([bad(1), bad(2), good, bad(3), bad(4), bad(5), reply("never")])
    agent = Agent(model=model, tools=[number])
    result = await agent.prompt("go")
    assert isinstance(result, Failed)
    assert result.error.code == "TOOL_ARGUMENTS_LOOP"
    assert model.remaining == 1
    assert validate_transcript(agent.messages) == ()


# D2


@pytest.mark.parametrize("stop_reason", ["length", "tool_call"])
@pytest.mark.parametrize("text", ['{"value":', "{}", '{"value": 1}'])
async def test_d2_nothing_of_a_response_that_was_cut_off_runs(stop_reason: StopReason, text: str) -> None:
    bench = Bench()
    cut = reply("so far", call("c1"), ToolCall.parsed("c2", "number", text), stop_reason=stop_reason)
    bench.let_end("c1")
    model = ScriptedModel([cut, reply("next")])
    agent = Agent(model=model, tools=[bench.work, number], options=AgentOptions(retry=Retry(attempts=3)))
    result = await agent.prompt("go")
    if stop_reason == "tool_call":
        assert bench.bodies == ["c1"], "a whole response with one bad call is no cut-off one"
        return
    assert isinstance(result, Failed)
    assert result.error.code == "MODEL_OUTPUT_LIMIT"
    assert bench.bodies == []
    assert model.call_count == 1, "it would be cut off again"
    assert len(agent.messages) == 1
    assert (await agent.prompt("again")).status == "completed"


# D3


EMPTY: dict[str, ModelResponse] = {
    "nothing": reply(),
    "empty text": reply(""),
    "white space": reply(" \n"),
    "reasoning only": reply(Thinking("I think")),
}


@pytest.mark.parametrize("response", EMPTY.values(), ids=EMPTY.keys())
async def test_d3_an_empty_response_is_no_success_and_may_be_tried_again(response: ModelResponse) -> None:
    agent = Agent(model=ScriptedModel([response, reply("next")]))
    result = await agent.prompt("go")
    assert isinstance(result, Failed)
    assert result.error.code == "MODEL_EMPTY"
    assert len(agent.messages) == 1
    clock = ManualClock()
    retry = Retry(attempts=2, first_seconds=4, max_seconds=1)
    patient = Agent(model=ScriptedModel([response, reply("at last")]), options=AgentOptions(retry=retry, clock=clock))
    stream = patient.prompt("go")
    await clock.advance(1)
    assert cast("Completed", await stream).final_text == "at last"


async def test_d3_a_response_cut_off_before_its_first_word_is_a_failure_of_its_own() -> None:
    result = await Agent(model=ScriptedModel([reply(stop_reason="length")])).prompt("go")
    assert isinstance(result, Failed)
    assert result.error.code == "MODEL_OUTPUT_LIMIT"


async def test_d3_a_refusal_with_words_is_an_answer() -> None:
    result = await Agent(model=ScriptedModel([reply("I will not.", stop_reason="refusal")])).prompt("go")
    assert result.status == "completed"
    assert result.final_text == "I will not."


# D5


@tool
async def lone(key: str) -> dict[str, str]:
    """Answer with half a character."""
    return {f"{key}{HIGH}": LOW}


@tool
async def fails(key: str) -> str:
    """Fail with half a character, as an error about a file of such a name does."""
    raise OSError(2, "No such file", f"{key}\udcff{LOW}")


@pytest.mark.parametrize("half", [HIGH, LOW, "\udcff"])
async def test_d5_a_lone_surrogate_never_reaches_the_transcript(half: str) -> None:
    async def speaks(request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        yield TextDelta(request.id, f"a{half}")
        yield ThinkingDelta(request.id, half)
        calls = (ToolCall(f"c1{half}", "lone", {"key": f"k{half}"}), ToolCall("c2", "fails", {"key": half}))
        yield reply(f"a{half}", Thinking(half), *calls)

    agent = Agent(model=ScriptedModel([speaks, reply(f"b{half}")]), tools=[lone, fails])
    agent.follow_up(half)
    agent.clear_queue()
    stream = agent.prompt(f"p{half}")
    assert (await stream).status == "completed"
    assert "\ufffd" in encoded(agent.messages).decode()
    assert validate_transcript(agent.messages) == ()
    assert [message.role for message in agent.messages].count("tool_result") == 2
    for event in stream:
        str(event).encode()


@pytest.mark.parametrize("kind", ["text", "thinking"])
async def test_d5_a_pair_split_over_two_chunks_is_one_character(kind: str) -> None:
    async def speaks(request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        delta = TextDelta if kind == "text" else ThinkingDelta
        yield delta(request.id, f"a{HIGH}")
        yield delta(request.id, f"{LOW}b")
        yield reply("a😀b") if kind == "text" else reply(Thinking("a😀b"), "answer")

    stream = Agent(model=ScriptedModel([speaks])).prompt("go")
    assert (await stream).status == "completed"
    chunks = [event.chunk for event in stream if event.type == "model.chunk"]
    told = "".join(chunk.delta for chunk in chunks if not isinstance(chunk, ToolCallDelta))
    assert told == "a😀b"


# D6


@tool(inline=True)
def huge(kind: str) -> object:
    """Return far too much."""
    if kind == "lines":
        return "é line\n" * (10 * MEGABYTE // 8)
    if kind == "one line":
        return "é" * (5 * MEGABYTE)
    return [["x" * 1_000] * 1_000] * 10


@pytest.mark.parametrize("kind", ["lines", "one line", "wide"])
async def test_d6_a_huge_result_is_cut_at_the_door_on_a_character_and_marked(kind: str) -> None:
    agent = Agent(model=ScriptedModel([reply(call("c1", "huge", {"kind": kind})), reply("ok")]), tools=[huge])
    assert (await agent.prompt("go")).status == "completed"
    content = cast("str", results(agent)[0].content)
    assert len(content.encode()) <= MEGABYTE
    assert "cut" in content[-200:]
    assert "\ufffd" not in content


@pytest.mark.parametrize("execution", ["sequential", "parallel"])
async def test_d6_the_results_of_one_batch_are_bounded_together(execution: str) -> None:
    calls = (call(f"c{item}", "huge", {"kind": "lines"}) for item in range(20))
    options = AgentOptions(tool_execution="parallel" if execution == "parallel" else "sequential")
    agent = Agent(model=ScriptedModel([reply(*calls), reply("ok")]), tools=[huge], options=options)
    assert (await agent.prompt("go")).status == "completed"
    sizes = [len(result.content) for result in results(agent)]
    assert len(sizes) == 20
    assert sum(sizes) <= 4 * MEGABYTE + 20 * 100
    assert "cut" in cast("str", results(agent)[-1].content)


@tool(inline=True)
def odd(kind: str) -> object:
    """Return what has no JSON form."""

    def endless() -> Iterator[int]:
        while True:
            yield 1

    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    values: dict[str, object] = {
        "binary": b"\x00\xff",
        "endless": endless(),
        "nan": float("nan"),
        "infinite": float("inf"),
        "huge": 10**400,
        "nested": nested,
        "own": nested,
        "object": object(),
        "set": {1},
    }
    if kind == "own":
        nested.append(nested)
    return values[kind]


@pytest.mark.parametrize("kind", ["binary", "endless", "nan", "infinite", "huge", "nested", "own", "object", "set"])
async def test_d6_a_result_without_a_json_form_is_an_error_or_text_and_the_run_goes_on(kind: str) -> None:
    agent = Agent(model=ScriptedModel([reply(call("c1", "odd", {"kind": kind})), reply("ok")]), tools=[odd])
    assert (await agent.prompt("go")).status == "completed"
    assert results(agent)[0].is_error or kind in {"binary", "set"}
    encoded(agent.messages)


async def test_d6_endless_progress_is_bounded_in_the_log_and_reaches_listeners() -> None:
    @tool(inline=True)
    def talks(context: ToolContext) -> str:
        for _ in range(1_000):
            context.progress("more")
        return "done"

    heard: list[str] = []
    options = AgentOptions(max_buffered_deltas=10)
    agent = Agent(model=ScriptedModel([reply(call("c1", "talks")), reply("ok")]), tools=[talks], options=options)
    agent.subscribe(lambda event, _signal: heard.append(event.type))
    stream = agent.prompt("go")
    assert (await stream).status == "completed"
    kinds = [event.type for event in stream]
    assert kinds.count("tool.progress") + kinds.count("model.chunk") == 10
    assert heard.count("tool.progress") == 1_000
    warned = [event for event in stream if isinstance(event, RunWarned)]
    assert sum(event.dropped for event in warned) == 1_000 + heard.count("model.chunk") - 10
    assert [event.sequence for event in stream] == list(range(len(stream)))


# E1


class OddError(BaseException):
    """Nobody expects it."""


KINDS = ("message.accepted", "model.chunk", "tool.started", "tool.progress", "tool.finished", "run.finished")


def talkative() -> tuple[Agent, list[str]]:
    """Return an agent whose run has every plain kind of event, and what a last listener hears of it."""

    @tool(inline=True)
    def speaks(context: ToolContext) -> str:
        context.progress("half")
        return "done"

    return Agent(model=ScriptedModel([reply("a", call("c1", "speaks")), reply("b")]), tools=[speaks]), []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [ValueError("no"), OddError("odd"), asyncio.CancelledError("by itself")], ids=type)
@pytest.mark.parametrize("is_async", [False, True])
async def test_e1_a_listener_that_raises_is_recorded_and_changes_nothing(
    kind: str, error: BaseException, *, is_async: bool
) -> None:
    agent, heard = talkative()

    def raises(event: AgentEvent, _signal: CancelSignal) -> None:
        if event.type == kind:
            raise error

    async def raises_later(event: AgentEvent, signal: CancelSignal) -> None:
        raises(event, signal)

    agent.subscribe(raises_later if is_async else raises)
    agent.subscribe(lambda event, _signal: heard.append(event.type))
    stream = agent.prompt("go")
    assert (await stream).status == "completed"
    await turns()
    assert heard == [event.type for event in stream]
    errors = agent.subscriber_errors
    assert [(item.event_type, item.listener_id, item.message) for item in errors] == [
        (kind, 1, str(error))
    ] * heard.count(kind)
    assert heard.count(kind) >= 1


async def test_e1_a_listener_that_hangs_or_waits_for_the_end_does_not_hold_the_run() -> None:
    agent, heard = talkative()
    woken: list[str] = []
    stream = None

    async def waits(event: AgentEvent, _signal: CancelSignal) -> None:
        if event.type == "message.accepted":
            assert stream is not None
            woken.append((await stream).status)
            await agent.wait_idle()
            await agent.aclose()
            woken.append("closed")

    hanging = asyncio.Event()
    agent.subscribe(waits)
    agent.subscribe(lambda _event, _signal: hanging.wait())
    agent.subscribe(lambda event, _signal: heard.append(event.type))
    stream = agent.prompt("go")
    assert (await stream).status == "completed"
    await turns()
    assert woken == ["completed", "closed"]
    assert len(heard) == len(stream)
    hanging.set()
    await turns()


async def test_e1_listeners_may_unsubscribe_themselves_and_others_and_subscribe_in_a_callback() -> None:
    agent, heard = talkative()
    forgets: list[Callable[[], None]] = []
    late: list[str] = []

    def once(_event: AgentEvent, _signal: CancelSignal) -> None:
        for forget in forgets:
            forget()
            forget()
        agent.subscribe(lambda event, _signal: late.append(event.type))

    forgets.append(agent.subscribe(once))
    forgets.append(agent.subscribe(lambda event, _signal: heard.append(event.type)))
    stream = agent.prompt("go")
    await stream
    assert heard == ["message.accepted"], "the listeners of an event are those of its beginning"
    assert late == [event.type for event in stream][1:]
    assert agent.subscriber_errors == ()


async def test_e1_failures_of_listeners_are_kept_within_bounds() -> None:
    @tool(inline=True)
    def talks(context: ToolContext) -> str:
        for _ in range(5_000):
            context.progress("more")
        return "done"

    def raises(_event: AgentEvent, _signal: CancelSignal) -> None:
        msg = "no"
        raise ValueError(msg)

    agent = Agent(model=ScriptedModel([reply(call("c1", "talks")), reply("ok")]), tools=[talks])
    agent.subscribe(raises)
    assert (await agent.prompt("go")).status == "completed"
    assert 0 < len(agent.subscriber_errors) <= 1_000
    assert agent.subscriber_errors[-1].event_type == "run.finished", "the oldest are forgotten first"


# E4


def alive() -> dict[str, int]:
    """Count what belongs to one run and must not outlive it."""
    gc.collect()
    kinds: tuple[type, ...] = (Engine, StreamLog, EventStream, asyncio.Task, CancelSignal)
    present = Counter(type(cast("object", item)) for item in gc.get_objects())
    return {kind.__name__: present[kind] for kind in kinds}


async def test_e4_a_thousand_runs_on_one_agent_leave_nothing_but_the_transcript() -> None:
    @tool(inline=True)
    def echo(text: str) -> str:
        return text

    def script(count: int) -> Iterator[ModelResponse]:
        for item in range(count):
            yield reply(call(f"c{item}", "echo", {"text": "x"}))
            yield reply("done")

    runs = 1_000
    agent = Agent(model=ScriptedModel(script(runs)), tools=[echo])
    early: dict[str, int] = {}
    for index in range(runs):
        forget = agent.subscribe(lambda _event, _signal: None)
        stream = agent.prompt("go")
        if index % 3:
            await agent.wait_idle()
        else:
            assert (await stream).status == "completed"
        forget()
        if index == 10:
            early = alive()
    assert len(agent.messages) == 4 * runs
    late = alive()
    assert all(late[kind] <= early[kind] for kind in early), (early, late)


async def test_e4_a_stream_that_nobody_reads_is_bounded_and_does_not_hold_the_run() -> None:
    async def talks(request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        for _ in range(5_000):
            yield TextDelta(request.id, "x")
        yield reply("x" * 5_000)

    agent = Agent(model=ScriptedModel([talks]), options=AgentOptions(max_buffered_deltas=100))
    stream = agent.prompt("go")
    slow = aiter(stream)
    first = await anext(slow)
    assert (await stream).status == "completed"
    assert has_one_end(stream)
    assert len(stream) == len(("accepted", "warned", "finished")) + 100
    assert [first, *[event async for event in slow]] == list(stream)
