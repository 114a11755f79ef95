"""The same work on pydantic-ai: a function model, its events streamed."""

# pyright: basic, reportMissingImports=false
# Its libraries live in an environment of its own, which the type checker does not see.

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

from pydantic_ai import Agent, AgentRunResultEvent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.usage import UsageLimits
from work import Count, measure


def prepare(turns: int, count: Count) -> Callable[[], Awaitable[str]]:
    """Make one run."""
    numbers = itertools.count(1)

    async def play(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        del messages, info
        number = next(numbers)
        if number < turns:
            yield {0: DeltaToolCall("add", f'{{"number": {number}}}', tool_call_id=f"call-{number}")}
        else:
            yield "done"

    agent = Agent(FunctionModel(stream_function=play))

    @agent.tool_plain
    async def add(number: int) -> int:
        """Return the next number."""
        return await count.add(number)

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
