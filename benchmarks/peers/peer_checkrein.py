"""The same work on checkrein's agent."""

from collections.abc import Awaitable, Callable

from work import Count, measure

from checkrein import ToolCall, tool
from checkrein.agent.agent import Agent
from checkrein.testing import ScriptedModel, reply


def prepare(turns: int, count: Count) -> Callable[[], Awaitable[str]]:
    """Make one run."""

    @tool
    async def add(number: int) -> int:
        """Return the next number."""
        return await count.add(number)

    _ = add.schema  # made when it is first looked at; the peers make theirs when the tool is made
    calls = [reply(ToolCall(f"call-{turn}", "add", {"number": turn})) for turn in range(1, turns)]
    agent = Agent(model=ScriptedModel([*calls, reply("done")]), tools=[add], max_steps=turns)

    async def run() -> str:
        stream = agent.prompt("count")
        async for _ in stream:
            pass
        result = await stream
        return result.final_text if result.status == "completed" else result.status

    return run


if __name__ == "__main__":
    measure("checkrein", prepare)
