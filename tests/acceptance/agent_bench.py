"""Shorthands for scenarios of agents: a tool whose calls end when told to, a model that is held, and what a run says of itself."""

import asyncio
from collections.abc import Mapping

from checkrein.loop.events import AgentEvent, Cancelled, Failed, RunFinished, RunResult
from checkrein.messages import Message, ToolCall, UserMessage
from checkrein.streams import EventStream
from checkrein.tools.function import FunctionTool, tool

Stream = EventStream[AgentEvent, RunResult]


def call(call_id: str, name: str = "work", arguments: Mapping[str, object] | None = None) -> ToolCall:
    """Return a call; one of `work` says which it is."""
    return ToolCall(call_id, name, {"which": call_id} if name == "work" else arguments or {})


class Bench:
    """A tool `work` whose calls say that they began, and end when they are told to."""

    def __init__(self) -> None:
        self._begun: dict[str, asyncio.Event] = {}
        self._gates: dict[str, asyncio.Event] = {}
        self.bodies: list[str] = []

        @tool
        async def work(which: str) -> str:
            self.bodies.append(which)
            self._begun.setdefault(which, asyncio.Event()).set()
            await self._gates.setdefault(which, asyncio.Event()).wait()
            return f"{which} done"

        self.work: FunctionTool = work

    async def until_begun(self, *which: str) -> None:
        """Return when these calls began."""
        for item in which:
            await self._begun.setdefault(item, asyncio.Event()).wait()

    def let_end(self, *which: str) -> None:
        """Let these calls end."""
        for item in which:
            self._gates.setdefault(item, asyncio.Event()).set()


async def until_finished(stream: Stream, *which: str) -> None:
    """Return when a run has told of the results of these calls."""
    waiting = set(which)
    async for event in stream.subscribe():
        if event.type == "tool.finished":
            waiting.discard(event.call_id)
        if not waiting:
            return


def states(result: RunResult) -> dict[str, str]:
    """Return what a dropped turn says of its calls."""
    assert isinstance(result, (Cancelled, Failed))
    return {item.call.id: item.state for item in result.unadopted_calls}


def said(messages: tuple[Message, ...]) -> list[object]:
    """Return roles, and of user messages what they say."""
    return [message.content if isinstance(message, UserMessage) else message.role for message in messages]


def has_one_end(stream: Stream) -> bool:
    """Tell whether a run has exactly one end, and nothing after it."""
    return [event for event in stream if isinstance(event, RunFinished)] == [stream[-1]] and stream.is_done


async def turns(count: int = 10) -> None:
    """Give everybody some turns of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)
