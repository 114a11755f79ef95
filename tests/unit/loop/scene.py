"""What the tests of the loop and the agent share: scripted runs, and models and tools that a test holds in its hand."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from checkrein.loop.events import AgentEvent, Cancelled, Completed, Failed, MaxSteps, RunResult
from checkrein.loop.options import LoopOptions
from checkrein.loop.run import run_agent_loop
from checkrein.messages import Message, ToolCall, ToolResult, UserMessage
from checkrein.ports.model import Chunk, Model, ModelRequest, ModelResponse, TextDelta
from checkrein.ports.tool import CancelSignal, Tool
from checkrein.streams import EventStream
from checkrein.testing.scripted import ScriptedModel, ScriptItem, reply
from checkrein.tools.function import tool

HELLO = UserMessage("u1", "hello")
Stream = EventStream[AgentEvent, RunResult]
E = TypeVar("E", bound=AgentEvent)
DEFAULTS = LoopOptions()


@tool
async def add(a: int, b: int) -> int:
    return a + b


@tool
async def fail(text: str = "no") -> str:
    raise ValueError(text)


def call(call_id: str = "c1", name: str = "add", arguments: Mapping[str, object] | None = None) -> ToolCall:
    return ToolCall(call_id, name, {"a": 1, "b": 2} if arguments is None else arguments)


def start(
    model: Model | Iterable[ScriptItem],
    *,
    tools: Iterable[Tool] = (add, fail),
    messages: Iterable[Message] = (HELLO,),
    max_steps: int = 64,
    signal: CancelSignal | None = None,
    options: LoopOptions = DEFAULTS,
) -> Stream:
    """Start a loop on a model or on a script."""
    given: Model = ScriptedModel(model) if isinstance(model, Iterable) else model
    return run_agent_loop(
        messages=messages, model=given, tools=tools, max_steps=max_steps, signal=signal, options=options
    )


async def completed(stream: Stream) -> Completed:
    result = await stream
    assert isinstance(result, Completed), result
    return result


async def failed(stream: Stream, code: str) -> Failed:
    result = await stream
    assert isinstance(result, Failed), result
    assert result.error.code == code, result.error
    return result


async def cancelled(stream: Stream) -> Cancelled:
    result = await stream
    assert isinstance(result, Cancelled), result
    return result


async def limited(stream: Stream, limit: str = "max_steps") -> MaxSteps:
    result = await stream
    assert isinstance(result, MaxSteps), result
    assert result.limit == limit
    return result


def types(stream: Stream) -> list[str]:
    return [event.type for event in stream]


def of(stream: Stream, kind: type[E]) -> list[E]:
    return [event for event in stream if isinstance(event, kind)]


def results(messages: Iterable[Message]) -> list[tuple[str, object, bool]]:
    return [(item.tool_call_id, item.content, item.is_error) for item in messages if isinstance(item, ToolResult)]


def roles(messages: Iterable[Message]) -> list[str]:
    return [message.role for message in messages]


def states(result: Cancelled | Failed) -> dict[str, str]:
    return {item.call.id: item.state for item in result.unadopted_calls}


async def turns(count: int = 10) -> None:
    """Give everybody some turns of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)


class Held:
    """A scripted item that says so when it was asked, and answers when it is let go."""

    def __init__(self, response: ModelResponse | None = None) -> None:
        self.asked = asyncio.Event()
        self.release = asyncio.Event()
        self.was_cancelled = False
        self._response = response or reply("done")

    async def __call__(self, request: ModelRequest, signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        del signal
        yield TextDelta(request.id, "d")
        self.asked.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        yield TextDelta(request.id, "one")
        yield self._response


class Gate:
    """A tool body that says so when it began, and ends when it is let go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.release = asyncio.Event()
        self.was_cancelled = False

    async def wait(self) -> str:
        self.begun.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return "released"

    async def wait_deaf(self) -> str:
        """Ignore every cancellation."""
        self.begun.set()
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.was_cancelled = True
        return "late"


def gated(name: str, body: Callable[[], Awaitable[str]], *, cancellable: bool = True) -> Tool:
    """Return a tool of that name that runs the body."""

    @tool(name=name, cancellable=cancellable)
    async def waits() -> str:
        return await body()

    return waits
