"""Conversations that outgrow a provider's window, over a real wire: what the provider counts and refuses is what starts a summary."""

from collections.abc import Mapping

from checkrein.agent.agent import Agent
from checkrein.harness.loop import HarnessLoop
from checkrein.harness.model_planner import ModelPlanner
from checkrein.harness.pulls import SessionResult
from checkrein.kernel.events import TranscriptCompacted
from checkrein.loop.compaction import Compaction
from checkrein.loop.compactor import CompactingModel
from checkrein.messages import Usage
from checkrein.providers.chat.client import COMPATIBLE_CHAT
from checkrein.providers.model import Access, Key, WireModel
from checkrein.providers.settings import read_settings
from checkrein.tools.function import tool
from tests.unit.providers.wire_server import Answer, Received, WireServer, error, sse

REFUSED = error(
    400, {"message": "This model's maximum context length is 4096 tokens.", "code": "context_length_exceeded"}
)


@tool
async def look() -> str:
    return "x" * 900


def said(text: str, *, tokens: int = 0) -> Answer:
    usage = {"usage": {"prompt_tokens": tokens, "completion_tokens": 1}} if tokens else {}
    return Answer(
        (sse({"id": "r", "choices": [{"delta": {"content": text}, "finish_reason": "stop"}], **usage}, "[DONE]"),)
    )


def called(call_id: str, *, tokens: int = 0) -> Answer:
    usage = {"usage": {"prompt_tokens": tokens, "completion_tokens": 1}} if tokens else {}
    call = {"index": 0, "id": call_id, "function": {"name": "look", "arguments": "{}"}}
    choice = {"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
    return Answer((sse({"id": f"r-{call_id}", "choices": [choice], **usage}, "[DONE]"),))


def model_at(server: WireServer, settings: Mapping[str, object] | None = None) -> WireModel:
    return WireModel(COMPATIBLE_CHAT, Access("a-model", server.url, Key("")), read_settings(settings or {}))


def roles(request: Received) -> list[str]:
    messages = request.body["messages"]
    assert isinstance(messages, list)
    return [str(item["role"]) for item in messages]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  JSON


async def test_an_agent_whose_request_a_provider_refuses_as_too_long_goes_on_with_a_summary() -> None:
    answers = [*(called(f"c{number}") for number in range(3)), REFUSED, said("all x"), said("done")]
    async with WireServer(answers) as server:
        model = model_at(server)
        agent = Agent(model=CompactingModel(model, Compaction(window=100_000, keep_turns=1)), tools=[look])
        result = await agent.prompt("look around")
        await model.aclose()
    assert (result.status, len(agent.messages)) == ("completed", 8)
    assert roles(server.received[3]) == ["user", *["assistant", "tool"] * 3]
    assert (roles(server.received[4]), "tools" in server.received[4].body) == (["user"], False)
    assert roles(server.received[5])[-2:] == ["assistant", "tool"]
    assert "all x" in str(server.received[5].body["messages"])


async def test_a_session_is_kept_to_the_window_that_is_set_by_what_the_provider_counts() -> None:
    answers = [
        called("c1", tokens=600),
        called("c2", tokens=3_300),
        said("all x", tokens=900),
        said("done", tokens=700),
    ]
    async with WireServer(answers) as server:
        model = model_at(server, {"context_window": "4096"})
        loop = HarnessLoop(planner=ModelPlanner(model), tools=[look])
        out = await loop.run("look around")
        await model.aclose()
    assert isinstance(out, SessionResult)
    assert (out.result, len(server.received)) == ("done", 4)
    (fact,) = (event.data for event in loop.events if isinstance(event.data, TranscriptCompacted))
    assert (fact.through_turn, fact.usage) == (1, Usage(900, 1))
    assert roles(server.received[3])[-2:] == ["assistant", "tool"]
