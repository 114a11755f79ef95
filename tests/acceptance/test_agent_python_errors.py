"""Python's errors that are no `Exception`, or that lie: whatever a tool, model, hook or listener raises is an outcome of its place, and never another end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Literal, cast

import pytest

from checkrein.agent.agent import Agent, AgentOptions
from checkrein.loop.events import AgentEvent, Failed
from checkrein.loop.options import AgentHooks
from checkrein.messages import ToolResult, validate_transcript
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse, ModelStream, TextDelta
from checkrein.ports.tool import CancelSignal
from checkrein.testing.scripted import ScriptedModel, reply
from checkrein.tools.function import FunctionTool, tool
from tests.acceptance.agent_bench import call, has_one_end, turns

Execution = Literal["sequential", "parallel"]
Hook = Callable[..., object]


class OddError(BaseException):
    """Nobody expects it."""


class MuteError(Exception):
    """It cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError


ERRORS: tuple[BaseException, ...] = (
    asyncio.CancelledError("by itself"),
    OddError("odd"),
    MuteError(),
    StopIteration("stop"),
    StopAsyncIteration("stop"),
    asyncio.InvalidStateError("state"),
    TimeoutError("late"),
    ExceptionGroup("many", [ValueError("one"), KeyError("two")]),
    BaseExceptionGroup("many", [OddError("one")]),
    RecursionError("deep"),
    MemoryError("full"),
)
each_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


async def hold_next(agent: Agent) -> None:
    """Hold that an agent is idle and valid, and answers."""
    assert not agent.is_running
    assert validate_transcript(agent.messages) == ()
    assert (await agent.prompt("again")).status == "completed"


def raising(error: BaseException, kind: str) -> FunctionTool:
    """Return a tool that raises."""

    async def on_loop() -> str:
        await asyncio.sleep(0)
        raise error

    def at_once() -> str:
        raise error

    if kind == "thread":
        return tool(name="bad")(at_once)
    if kind == "inline":
        return tool(name="bad", inline=True)(at_once)
    return tool(name="bad", timeout_seconds=60 if kind == "timed" else None)(on_loop)


@each_error
@pytest.mark.parametrize("kind", ["async", "timed", "inline", "thread"])
@pytest.mark.parametrize("execution", ["sequential", "parallel"])
async def test_whatever_a_tool_raises_is_an_error_result_of_its_call(
    error: BaseException, kind: str, execution: Execution
) -> None:
    script = [reply(call("c1", "bad"), call("c2", "bad")), reply("done"), reply("again")]
    options = AgentOptions(tool_execution=execution)
    agent = Agent(model=ScriptedModel(script), tools=[raising(error, kind)], options=options)
    stream = agent.prompt("go")
    assert (await stream).status == "completed"
    assert [message.is_error for message in agent.messages if isinstance(message, ToolResult)] == [True, True]
    assert has_one_end(stream)
    await hold_next(agent)


class RaisingModel:
    """Raises at its first request, and answers the others."""

    def __init__(self, error: BaseException, when: str) -> None:
        self.error = error
        self.when = when
        self.calls = 0
        self.then = ScriptedModel([reply("again")])

    def stream(self, request: ModelRequest, signal: CancelSignal) -> ModelStream:
        self.calls += 1
        if self.calls > 1:
            return self.then.stream(request, signal)
        if self.when == "when it is called":
            raise self.error
        return self.speak(request)

    async def speak(self, request: ModelRequest) -> AsyncIterator[Chunk | ModelResponse]:
        if self.when == "after a chunk":
            yield TextDelta(request.id, "a")
        await asyncio.sleep(0)
        raise self.error


@each_error
@pytest.mark.parametrize("when", ["when it is called", "before a chunk", "after a chunk"])
async def test_whatever_a_model_raises_is_a_failed_stream(error: BaseException, when: str) -> None:
    agent = Agent(model=RaisingModel(error, when))
    stream = agent.prompt("go")
    result = await stream
    assert isinstance(result, Failed)
    assert result.error.code == "MODEL_STREAM_FAILED"
    assert has_one_end(stream)
    await hold_next(agent)


def hooks_with(name: str, hook: Hook) -> AgentHooks:
    """Return hooks of which one is set."""
    made: dict[str, Callable[[], AgentHooks]] = {
        "before_tool_call": lambda: AgentHooks(before_tool_call=cast("None", hook)),
        "after_tool_call": lambda: AgentHooks(after_tool_call=cast("None", hook)),
        "transform_context": lambda: AgentHooks(transform_context=cast("None", hook)),
        "prepare_turn": lambda: AgentHooks(prepare_turn=cast("None", hook)),
        "should_stop": lambda: AgentHooks(should_stop=cast("None", hook)),
    }
    return made[name]()


HOOKS = ("before_tool_call", "after_tool_call", "transform_context", "prepare_turn", "should_stop")


def hook_that_raises_once(error: BaseException, name: str, *, is_async: bool) -> Hook:
    has_raised: list[bool] = []

    def plain(*given: object) -> object:
        if not has_raised:
            has_raised.append(True)
            raise error
        return given[0] if name == "transform_context" else None

    async def waiting(*given: object) -> object:
        await asyncio.sleep(0)
        return plain(*given)

    return waiting if is_async else plain


@tool(inline=True)
def fine() -> str:
    """Be fine."""
    return "fine"


@each_error
@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.parametrize("is_async", [False, True])
async def test_whatever_a_hook_raises_is_its_calls_error_or_the_runs_failure_with_its_name(
    error: BaseException, name: str, *, is_async: bool
) -> None:
    hooks = hooks_with(name, hook_that_raises_once(error, name, is_async=is_async))
    agent = Agent(
        model=ScriptedModel([reply(call("c1", "fine")), reply("done"), reply("again")]), tools=[fine], hooks=hooks
    )
    stream = agent.prompt("go")
    result = await stream
    assert has_one_end(stream)
    if "tool_call" in name:
        assert result.status == "completed"
        answer = next(message for message in agent.messages if isinstance(message, ToolResult))
        assert answer.is_error
        assert name in cast("str", answer.content)
    else:
        assert isinstance(result, Failed)
        assert result.error.code == "AGENT_STATE_FAILED"
        assert name in result.error.message
        agent.steer("go on")
    await hold_next(agent)


@pytest.mark.parametrize("error", [*ERRORS, KeyboardInterrupt(), SystemExit(3), GeneratorExit()], ids=type)
@pytest.mark.parametrize("is_async", [False, True])
async def test_whatever_a_listener_raises_is_recorded_and_the_others_are_told(
    error: BaseException, *, is_async: bool
) -> None:
    def plain(_event: AgentEvent, _signal: CancelSignal) -> None:
        raise error

    async def waiting(event: AgentEvent, signal: CancelSignal) -> None:
        plain(event, signal)

    heard: list[str] = []
    agent = Agent(model=ScriptedModel([reply("done"), reply("again")]))
    agent.subscribe(waiting if is_async else plain)
    agent.subscribe(lambda event, _signal: heard.append(event.type))
    stream = agent.prompt("go")
    assert (await stream).status == "completed"
    await turns()
    assert heard == [event.type for event in stream]
    assert [item.event_type for item in agent.subscriber_errors] == heard
    await hold_next(agent)
