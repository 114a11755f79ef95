"""Python's own traps: cancellations that are not ours, generators that do not close, values that lie, references that are dropped, tasks that begin at once."""

import asyncio
import contextvars
import enum
import gc
import threading
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import AsyncIterator
from types import MappingProxyType
from typing import cast

import pytest

from checkrein.agent.agent import Agent, AgentOptions
from checkrein.errors import AgentBusyError, InvalidJson
from checkrein.loop.events import AgentEvent, Cancelled, Failed
from checkrein.loop.options import AgentHooks, Allow
from checkrein.loop.run import run_agent_loop
from checkrein.messages import AssistantMessage, Text, ToolCall, ToolResult, UserMessage, validate_transcript
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse, ModelStream, TextDelta
from checkrein.ports.tool import CancelSignal, ToolContext
from checkrein.testing.manual_clock import ManualClock
from checkrein.testing.scripted import ScriptedModel, reply
from checkrein.tools.function import tool
from tests.acceptance.agent_bench import Bench, Stream, call, has_one_end, states, turns
from tests.eager import eager_task_factory


async def hold_next(agent: Agent) -> None:
    """Hold that an agent is idle and valid, and answers."""
    assert not agent.is_running
    assert validate_transcript(agent.messages) == ()
    assert (await agent.prompt("again")).status == "completed"


def results(agent: Agent) -> list[ToolResult]:
    return [message for message in agent.messages if isinstance(message, ToolResult)]


# Cancellations that are swallowed, or not ours


@pytest.mark.parametrize("execution", ["sequential", "parallel"])
async def test_a_tool_that_swallows_its_cancellation_and_returns_has_finished(execution: str) -> None:
    begun = asyncio.Event()

    @tool
    async def swallows() -> str:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        return "cleaned up"

    options = AgentOptions(tool_execution="parallel" if execution == "parallel" else "sequential")
    script = [reply(call("c1", "swallows"), call("c2", "swallows")), reply("again")]
    agent = Agent(model=ScriptedModel(script), tools=[swallows], options=options)
    stream = agent.prompt("go")
    await begun.wait()
    await turns()
    assert agent.cancel()
    result = await stream
    assert states(result) == {"c1": "finished", "c2": "finished" if execution == "parallel" else "not_started"}
    assert isinstance(result, Cancelled)
    assert result.unadopted_calls[0].result is not None
    assert result.unadopted_calls[0].result.content == "cleaned up"
    await hold_next(agent)


@pytest.mark.parametrize("seconds", [None, 60.0])
@pytest.mark.parametrize("execution", ["sequential", "parallel"])
async def test_a_tool_that_cancels_its_run_and_returns_at_once_has_finished(
    execution: str, seconds: float | None
) -> None:
    @tool(timeout_seconds=seconds)
    async def cancels() -> str:
        assert agent.cancel()
        return "done"

    options = AgentOptions(tool_execution="parallel" if execution == "parallel" else "sequential")
    script = [reply(call("c1", "cancels"), call("c2", "missing")), reply("again")]
    agent = Agent(model=ScriptedModel(script), tools=[cancels], options=options)
    result = await agent.prompt("go")
    assert isinstance(result, Cancelled)
    assert states(result)["c1"] == "finished"
    await hold_next(agent)


@pytest.mark.parametrize("goes_on", ["with a response", "with its end", "with an error"])
async def test_a_model_that_swallows_its_cancellation_adds_nothing(goes_on: str) -> None:
    begun = asyncio.Event()

    async def swallows(_request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if goes_on == "with an error":
                raise ValueError(goes_on) from None
        if goes_on == "with a response":
            yield reply("late")

    agent = Agent(model=ScriptedModel([swallows, reply("again")]))
    stream = agent.prompt("go")
    await begun.wait()
    assert agent.cancel()
    assert (await stream).status == "cancelled"
    assert has_one_end(stream)
    assert len(agent.messages) == 1
    await hold_next(agent)


async def test_a_time_limit_on_a_waiter_ends_the_waiting_and_not_the_run() -> None:
    bench = Bench()
    agent = Agent(model=ScriptedModel([reply(call("c1")), reply("done"), reply("again")]), tools=[bench.work])
    stream = agent.prompt("go")
    await bench.until_begun("c1")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await stream
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(stream, 0.001)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await agent.wait_idle()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(aiter(stream.subscribe(len(stream)))), 0.001)
    first, second = asyncio.ensure_future(stream), asyncio.ensure_future(stream)  # noqa: TID251  two who wait
    await turns()
    first.cancel()
    bench.let_end("c1")
    assert (await second).status == "completed"
    assert first.cancelled()
    assert has_one_end(stream)
    await hold_next(agent)


async def test_a_time_limit_on_closing_leaves_the_cancellation_in_force() -> None:
    clock, release = ManualClock(), asyncio.Event()

    @tool(cancellable=False)
    async def keeps() -> str:
        await release.wait()
        return "kept"

    agent = Agent(
        model=ScriptedModel([reply(call("c1", "keeps")), reply("again")]),
        tools=[keeps],
        options=AgentOptions(clock=clock),
    )
    stream = agent.prompt("go")
    await turns()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await agent.aclose()
    assert agent.is_running
    assert not agent.cancel()
    release.set()
    assert states(await stream) == {"c1": "finished"}
    await hold_next(agent)


async def test_a_time_limit_within_a_tool_or_a_model_is_its_own_affair() -> None:
    @tool
    async def limited() -> str:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            return "gave up waiting"
        return "never"

    async def limits(_request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            yield reply(call("c1", "limited"))

    agent = Agent(model=ScriptedModel([limits, reply("done"), reply("again")]), tools=[limited])
    assert (await agent.prompt("go")).status == "completed"
    assert results(agent)[0].content == "gave up waiting"
    await hold_next(agent)


async def test_a_tool_that_cancels_its_own_task_ends_nothing_but_its_run() -> None:
    @tool
    async def drastic() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return "never"

    agent = Agent(model=ScriptedModel([reply(call("c1", "drastic")), reply("done"), reply("again")]), tools=[drastic])
    stream = agent.prompt("go")
    assert (await stream).status in {"cancelled", "completed"}
    assert has_one_end(stream)
    await hold_next(agent)


async def test_a_callback_on_the_signal_that_raises_keeps_nobody_from_being_cancelled() -> None:
    told: list[str] = []
    reported: list[object] = []
    begun = asyncio.Event()

    def fails(_reason: str) -> None:
        raise ValueError("no")

    @tool
    async def waits(context: ToolContext) -> str:
        context.signal.subscribe(fails)
        context.signal.subscribe(told.append)
        begun.set()
        await asyncio.Event().wait()
        return "never"

    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context["exception"]))
    agent = Agent(model=ScriptedModel([reply(call("c1", "waits")), reply("again")]), tools=[waits])
    stream = agent.prompt("go")
    await begun.wait()
    assert agent.cancel("stop")
    assert (await stream).status == "cancelled"
    assert told == ["stop"]
    assert [str(error) for error in reported] == ["no"]
    await hold_next(agent)


# Generators that do not close


class Stubborn:
    """A stream that is left early, with an `aclose` that misbehaves."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.hanging = asyncio.Event()
        self.closed = 0

    def __aiter__(self) -> "Stubborn":
        return self

    async def __anext__(self) -> Chunk:
        return TextDelta("another request", "a")

    def aclose(self) -> object:
        self.closed += 1
        if self.kind == "raises at once":
            raise ValueError(self.kind)
        return 5 if self.kind == "returns no awaitable" else self.close()

    async def close(self) -> None:
        if self.kind == "hangs":
            await self.hanging.wait()
        if self.kind == "raises":
            raise ValueError(self.kind)
        if self.kind == "cancels":
            raise asyncio.CancelledError


@pytest.mark.parametrize("kind", ["raises at once", "raises", "hangs", "cancels", "returns no awaitable"])
async def test_a_stream_whose_closing_misbehaves_holds_and_changes_nothing(kind: str) -> None:
    made = Stubborn(kind)

    class Model:
        """Gives the stubborn stream first."""

        def __init__(self) -> None:
            self.then = ScriptedModel([reply("again")])
            self.calls = 0

        def stream(self, request: ModelRequest, signal: CancelSignal) -> ModelStream:
            self.calls += 1
            return made if self.calls == 1 else self.then.stream(request, signal)

    agent = Agent(model=Model())
    stream = agent.prompt("go")
    result = await stream
    assert isinstance(result, Failed)
    assert result.error.code == "MODEL_PROTOCOL_ERROR"
    await turns()
    assert made.closed == 1
    await hold_next(agent)
    made.hanging.set()
    await turns()


async def test_a_generator_that_yields_while_it_is_closed_is_left_behind() -> None:
    async def never_closes(request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        try:
            yield TextDelta(request.id, "a")
            await asyncio.Event().wait()
        finally:
            yield reply("late")

    agent = Agent(model=ScriptedModel([never_closes, reply("again")]))
    stream = agent.prompt("go")
    await turns()
    assert agent.cancel()
    assert (await stream).status == "cancelled"
    assert has_one_end(stream)
    await hold_next(agent)


async def test_a_model_that_returns_no_stream_is_a_failed_stream() -> None:
    class Odd:
        """No model at all."""

        def stream(self, request: ModelRequest, signal: CancelSignal) -> ModelStream:
            return cast("ModelStream", (request, signal))

    result = await Agent(model=Odd()).prompt("go")
    assert isinstance(result, Failed)
    assert result.error.code == "MODEL_STREAM_FAILED"


async def test_a_tool_that_is_a_generator_gets_an_error_result() -> None:
    @tool(name="gen")
    async def gen() -> AsyncIterator[str]:
        yield "a"

    agent = Agent(model=ScriptedModel([reply(call("c1", "gen")), reply("done")]), tools=[gen])
    assert (await agent.prompt("go")).status == "completed"
    assert results(agent)[0].is_error


# Values that are not quite what they are


class Loud(str):
    """Text that shouts when it is asked what it says."""

    __slots__ = ("extra",)

    def __str__(self) -> str:
        return self.upper()


class Colour(str, enum.Enum):  # noqa: UP042  its text is not its value, which is the trap
    """An enumeration whose members are text."""

    RED = "red"


class Odd(int):
    """A number that compares as it likes."""

    def __le__(self, other: object) -> bool:
        return True

    def __ge__(self, other: object) -> bool:
        return True


@pytest.mark.parametrize("text", [Loud("quiet"), Colour.RED])
async def test_subclasses_of_text_become_plain_text_with_their_own_value(text: str) -> None:
    async def speaks(request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        yield TextDelta(request.id, text)
        yield reply(Text(text), ToolCall(text, "echo", {text: text}))

    @tool(inline=True)
    def echo(quiet: str = "", red: str = "") -> str:
        assert "".join(text) in (quiet, red)
        return text

    agent = Agent(model=ScriptedModel([speaks, reply("done")]), tools=[echo])
    agent.steer(text)
    stream = agent.prompt(text)
    assert (await stream).status == "completed"
    plain = "".join(text)
    user, steered, assistant, result, _ = agent.messages
    assert [type(user.content), user.content, steered.content] == [str, plain, plain]
    assert isinstance(assistant, AssistantMessage)
    said, made = assistant.content
    assert isinstance(said, Text)
    assert isinstance(made, ToolCall)
    assert [type(said.text), said.text, type(made.id), made.id] == [str, plain, str, plain]
    assert made.arguments == {plain: plain}
    assert isinstance(result, ToolResult)
    assert [type(result.content), result.content, type(result.tool_call_id)] == [str, plain, str]


async def test_subclasses_of_numbers_and_mappings_keep_no_tie_to_who_made_them() -> None:
    inner = [1]
    given: OrderedDict[str, object] = OrderedDict(
        a=defaultdict(list, b=inner), c=Odd(7), d=MappingProxyType({"e": True}), f=UserDict(g=1.5)
    )
    made = ToolCall("c1", "echo", given)
    inner.append(2)
    given["late"] = Odd(1)
    assert made.arguments == {"a": {"b": [1]}, "c": 7, "d": {"e": True}, "f": {"g": 1.5}}
    assert type(made.arguments["c"]) is int
    with pytest.raises(InvalidJson):
        ToolCall("c1", "echo", {"n": Odd(2**60)})


NO_JSON = {
    "nan": float("nan"),
    "infinity": float("inf"),
    "large": 2**53,
    "huge": 10**5000,
    "bytes": b"x",
    "key": {1: 2},
    "object": object(),
    "set": {1},
}


@pytest.mark.parametrize("value", NO_JSON.values(), ids=NO_JSON.keys())
async def test_arguments_without_a_json_form_never_become_a_call(value: object) -> None:
    async def speaks(_request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        yield reply(ToolCall("c1", "fine", {"n": value}))

    @tool(inline=True)
    def fine(n: float = 0) -> float:
        return n

    agent = Agent(model=ScriptedModel([speaks, reply("again")]), tools=[fine])
    result = await agent.prompt("go")
    assert isinstance(result, Failed)
    assert result.error.code == "MODEL_STREAM_FAILED"
    await hold_next(agent)
    hooked = Agent(
        model=ScriptedModel([reply(call("c1", "fine")), reply("done")]),
        tools=[fine],
        hooks=AgentHooks(before_tool_call=lambda _call: Allow({"n": value})),
    )
    assert (await hooked.prompt("go")).status == "completed"
    assert results(hooked)[0].is_error


def deep(levels: int) -> object:
    value: object = "x"
    for _ in range(levels):
        value = (value,)
    return value


async def test_deep_nesting_is_refused_with_a_reason_and_never_overflows() -> None:
    nested = UserMessage("u1", cast("str", deep(100_000)))
    assert [issue.code for issue in validate_transcript([nested])] == ["invalid_message"]
    with pytest.raises(ValueError, match="invalid_message"):
        Agent(model=ScriptedModel(), messages=[nested])
    with pytest.raises(InvalidJson):
        ToolCall("c1", "fine", {"n": deep(100_000)})
    arguments: dict[str, object] = {}
    for _ in range(33):
        arguments = {"n": arguments}
    result = await Agent(model=ScriptedModel([reply(call("c1", "fine", arguments))])).prompt("go")
    assert isinstance(result, Failed)
    assert result.error.code == "MODEL_LIMIT"


# References, contexts, tasks


async def test_a_run_that_nobody_refers_to_goes_on_to_its_end() -> None:
    done: list[str] = []
    heard: list[str] = []

    @tool
    async def effect(context: ToolContext) -> str:
        await turns(3)
        gc.collect()
        await turns(3)
        done.append(context.call_id)
        return "done"

    async def hears(event: AgentEvent, _signal: CancelSignal) -> None:
        await turns(3)
        heard.append(event.type)

    def begin() -> None:
        script = [reply(call("c1", "effect"), call("c2", "effect")), reply("done")]
        agent = Agent(model=ScriptedModel(script), tools=[effect], options=AgentOptions(tool_execution="parallel"))
        agent.subscribe(hears)
        agent.prompt("go")

    begin()
    for _ in range(12):
        gc.collect()
        await turns(5)
    assert sorted(done) == ["c1", "c2"]
    assert heard[-1] == "run.finished"


async def test_tools_see_the_context_of_who_prompted() -> None:
    who = contextvars.ContextVar("who", default="nobody")

    @tool
    async def asks() -> str:
        return who.get()

    @tool
    def asks_in_thread() -> str:
        return who.get()

    agent = Agent(
        model=ScriptedModel([reply(call("c1", "asks"), call("c2", "asks_in_thread")), reply("done")]),
        tools=[asks, asks_in_thread],
    )
    who.set("me")
    stream = agent.prompt("go")
    who.set("somebody else")
    await stream
    assert [result.content for result in results(agent)] == ["me", "me"]


async def test_of_many_tasks_that_prompt_at_once_one_owns_the_transcript() -> None:
    agent = Agent(model=ScriptedModel([reply("done")]))
    begun: list[Stream] = []
    refused = 0

    async def prompts(number: int) -> None:
        nonlocal refused
        await asyncio.sleep(0)
        try:
            begun.append(agent.prompt(str(number)))
        except AgentBusyError:
            refused += 1

    await asyncio.gather(*(prompts(number) for number in range(50)))
    assert (len(begun), refused) == (1, 49)
    assert (await begun[0]).status == "completed"
    assert len(agent.messages) == 2


# Threads


@pytest.fixture
async def eager() -> AsyncIterator[None]:
    """Let the tasks of a test begin at once."""
    loop = asyncio.get_running_loop()
    loop.set_task_factory(eager_task_factory())
    yield
    loop.set_task_factory(None)


async def test_a_plain_tool_that_is_left_behind_returns_to_nobody() -> None:
    clock, release, ended, begun = ManualClock(), threading.Event(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @tool
    def slow() -> str:
        loop.call_soon_threadsafe(begun.set)
        release.wait(30)
        ended.set()
        return "late"

    agent = Agent(
        model=ScriptedModel([reply(call("c1", "slow")), reply("again")]),
        tools=[slow],
        options=AgentOptions(clock=clock),
    )
    stream = agent.prompt("go")
    await begun.wait()
    assert agent.cancel()
    await clock.advance(5)
    assert states(await stream) == {"c1": "outcome_unknown"}
    await hold_next(agent)
    events, messages = len(stream), agent.messages
    release.set()
    assert await asyncio.to_thread(ended.wait, 30)
    await turns()
    assert (len(stream), agent.messages) == (events, messages)


# Tasks that begin at once


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("execution", ["sequential", "parallel"])
async def test_nothing_happens_before_prompt_has_returned_also_where_tasks_begin_at_once(execution: str) -> None:
    seen: list[str] = []

    @tool
    async def works() -> str:
        seen.append("tool")
        return "done"

    async def speaks(_request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        seen.append("model")
        yield reply(call("c1", "works"), call("c2", "works"))

    async def hears(event: AgentEvent, _signal: CancelSignal) -> None:
        seen.append(event.type)

    options = AgentOptions(tool_execution="parallel" if execution == "parallel" else "sequential")
    model = ScriptedModel([speaks, reply("done"), reply("again")])
    agent = Agent(model=model, tools=[works], options=options)
    agent.subscribe(hears)
    stream = agent.prompt("go")
    assert seen == []
    assert len(stream) == 0
    assert agent.is_running
    assert (await stream).status == "completed"
    assert seen[:2] == ["message.accepted", "model"]
    assert has_one_end(stream)
    await hold_next(agent)


@pytest.mark.usefixtures("eager")
async def test_the_stateless_loop_does_nothing_before_it_has_returned_where_tasks_begin_at_once() -> None:
    model = ScriptedModel([reply("done")])
    stream = run_agent_loop(messages=[UserMessage("u1", "go")], model=model)
    assert (model.call_count, len(stream)) == (0, 0)
    assert (await stream).status == "completed"
    assert has_one_end(stream)


@pytest.mark.usefixtures("eager")
async def test_an_agent_within_a_tool_within_an_agent_works_where_tasks_begin_at_once() -> None:
    inner = Agent(model=ScriptedModel([reply("inner done")]))

    @tool
    async def asks() -> str:
        result = await inner.prompt("go")
        return result.status

    outer = Agent(model=ScriptedModel([reply(call("c1", "asks")), reply("outer done"), reply("again")]), tools=[asks])
    assert (await outer.prompt("go")).status == "completed"
    assert results(outer)[0].content == "completed"
    await hold_next(outer)
