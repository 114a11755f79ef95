"""The same work on pydantic-ai: a function model, its events streamed."""

# pyright: basic, reportMissingImports=false
# Its libraries live in an environment of its own, which the type checker does not see.

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

from pydantic_ai import Agent, AgentRunResultEvent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.usage import UsageLimits
from work import PIECES, Count, measure


def prepare(turns: int, count: Count) -> Callable[[], Awaitable[str]]:
    """Make one run."""
    numbers = itertools.count(1)

    async def play(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        del messages, info
        number = next(numbers)
        for piece in PIECES:
            yield piece
        if number < turns:
            yield {0: DeltaToolCall("add", f'{{"a": {number}, "b": 1}}', tool_call_id=f"call-{number}")}

    agent = Agent(FunctionModel(stream_function=play))

    @agent.tool_plain
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return await count.add(a, b)

    async def run() -> str:
        text = ""
        async with agent.run_stream_events("count", usage_limits=UsageLimits(request_limit=None)) as events:
            async for event in events:
                if isinstance(event, AgentRunResultEvent):
                    text = event.result.output
        return text

    return run


if __name__ == "__main__":
    measure("pydantic-ai-slim", prepare)
