"""An agent runs a loop of two turns with parallel calls over every wire, against a server that speaks the wires as the providers do."""

from collections.abc import Mapping
from typing import Final, Literal

import pytest

from checkrein.agent.agent import Agent
from checkrein.agent.options import AgentOptions
from checkrein.errors import ToolError
from checkrein.loop.events import Completed
from checkrein.messages import AssistantMessage, ContentBlock, Text, Thinking, ToolCall, ToolResult
from checkrein.providers.anthropic.client import ANTHROPIC_MESSAGES
from checkrein.providers.chat.client import COMPATIBLE_CHAT, OPENAI_CHAT
from checkrein.providers.model import Access, Key, WireModel, WireParts
from checkrein.providers.responses.client import COMPATIBLE_RESPONSES, OPENAI_RESPONSES
from checkrein.providers.settings import ProviderSettings
from checkrein.tools.function import tool
from tests.acceptance.aimock_server import SOURCE, aimock

FIXTURE: Final = SOURCE / "loop.json"
WIRES: Final[Mapping[str, tuple[WireParts, str]]] = {
    "chat": (COMPATIBLE_CHAT, "a-model"),
    "chat of OpenAI": (OPENAI_CHAT, "gpt-5"),
    "responses": (COMPATIBLE_RESPONSES, "a-model"),
    "responses of OpenAI": (OPENAI_RESPONSES, "gpt-5"),
    "messages": (ANTHROPIC_MESSAGES, "claude-sonnet-4-5"),
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("execution", ["sequential", "parallel"])
async def test_a_loop_of_two_turns_with_parallel_calls_comes_to_its_end(
    wire: str, execution: Literal["sequential", "parallel"]
) -> None:
    added: list[int] = []

    @tool
    async def add(a: int, b: int) -> int:
        added.append(a + b)
        return a + b

    @tool
    async def fail() -> None:
        raise ToolError("no luck")

    parts, name = WIRES[wire]
    async with aimock(FIXTURE) as url:
        model = WireModel(parts, Access(name, f"{url}/v1", Key("mock")), ProviderSettings())
        options = AgentOptions(tool_execution=execution)
        async with Agent(model=model, tools=[add, fail], options=options) as agent:
            result = await agent.prompt("Add all")
        await model.aclose()
    assert isinstance(result, Completed), result
    assert result.final_text == "Together it is 73 — née 70 \U0001f600."
    assert sorted(added) == [3, 70, 73]
    spoken = [spoken_by(message) for message in result.messages if isinstance(message, AssistantMessage)]
    assert spoken[:2] == [
        (Text("Two at once."), add_call("one", 1, 2), add_call("two", 30, 40)),
        (add_call("three", 3, 70), ToolCall("call_four", "fail", {})),
    ]
    results = [message for message in result.messages if isinstance(message, ToolResult)]
    assert [(item.tool_call_id, item.is_error) for item in results] == [
        ("call_one", False),
        ("call_two", False),
        ("call_three", False),
        ("call_four", True),
    ]
    assert result.usage.input_tokens >= 60
    assert result.usage.output_tokens >= 9


def spoken_by(message: AssistantMessage) -> tuple[ContentBlock, ...]:
    """Return what a model said; that it thought before is left to the wire."""
    return tuple(block for block in message.content if not isinstance(block, Thinking))


def add_call(number: str, a: int, b: int) -> ToolCall:
    return ToolCall(f"call_{number}", "add", {"a": a, "b": b})
