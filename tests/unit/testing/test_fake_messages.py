"""The fake model over the Messages wire says what its script says."""

import pytest

from checkrein.agent.agent import Agent
from checkrein.agent.options import AgentOptions
from checkrein.loop.events import Completed
from checkrein.loop.options import Retry
from checkrein.messages import AssistantMessage, Text, Thinking, ToolCall
from checkrein.providers.registry import anthropic
from checkrein.testing.fake_model import FakeModelServer
from checkrein.testing.script import Call, Reply, Script
from checkrein.tools.function import tool


@tool
async def add(a: int, b: int) -> int:
    return a + b


async def test_a_conversation_is_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "fake")
    calls = (Call("add", {"a": 1, "b": 2}), Call("add", {"a": 3, "b": 4}))
    script = Script(
        (
            Reply(thinking="Two sums.", text="Both at once.", call=calls),
            Reply(error="busy"),
            Reply(text="3 and 7."),
        )
    )
    async with FakeModelServer(script) as server:
        model = anthropic("fake", {"base_url": server.url})
        options = AgentOptions(retry=Retry(attempts=2, first_seconds=0.0))
        async with Agent(model=model, tools=[add], options=options) as agent:
            result = await agent.prompt("Add.")
        await model.aclose()
    assert isinstance(result, Completed), result
    first, second = (message for message in result.messages if isinstance(message, AssistantMessage))
    assert first.content == (
        Thinking("Two sums.", "messages:thinking:ZmFrZQ=="),
        Text("Both at once."),
        ToolCall("toolu_1_1", "add", {"a": 1, "b": 2}),
        ToolCall("toolu_1_2", "add", {"a": 3, "b": 4}),
    )
    assert second.content == (Text("3 and 7."),)
    assert len(server.asked) == 3
    assert result.usage.output_tokens == sum((2 + 1, 3, 4, 2 + 1))
