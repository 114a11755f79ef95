"""The same work on checkrein's agent."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from work import PIECES, TEXT, Count, measure

from checkrein import Agent, AssistantMessage, CancelSignal, ModelResponse, Text, TextDelta, ToolCall, tool
from checkrein.ports.model import Chunk, ModelRequest, ToolCallDelta


class Scripted:
    """Plays the script."""

    def __init__(self, calls: Sequence[ToolCall]) -> None:
        self._numbers = itertools.count()
        self._calls = calls

    async def stream(self, request: ModelRequest, signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        """Stream one response."""
        del signal
        number = next(self._numbers)
        calls = self._calls[number : number + 1]
        for piece in PIECES:
            yield TextDelta(request.id, piece)
        for call in calls:
            yield ToolCallDelta(request.id, call)
        message = AssistantMessage(f"message-{number}", (Text(TEXT), *calls))
        yield ModelResponse(f"response-{number}", request.id, message, "tool_call" if calls else "stop")


def prepare(turns: int, count: Count) -> Callable[[], Awaitable[str]]:
    """Make one run."""

    @tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return await count.add(a, b)

    _ = add.schema  # made when it is first looked at; the peers make theirs when the tool is made
    calls = [ToolCall(f"call-{turn}", "add", {"a": turn, "b": 1}) for turn in range(1, turns)]
    agent = Agent(model=Scripted(calls), tools=[add], max_steps=turns)

    async def run() -> str:
        stream = agent.prompt("count")
        async for _ in stream:
            pass
        result = await stream
        return result.final_text if result.status == "completed" else result.status

    return run


if __name__ == "__main__":
    measure("checkrein", prepare)
