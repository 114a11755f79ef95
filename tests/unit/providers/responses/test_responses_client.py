"""The Responses client against a server on this machine that misbehaves."""

from collections.abc import Mapping

import pytest

from checkrein.agent.agent import Agent
from checkrein.agent.options import AgentOptions
from checkrein.clock import spawn
from checkrein.errors import ModelError
from checkrein.loop.events import Completed
from checkrein.loop.options import Retry
from checkrein.messages import AssistantMessage, Text
from checkrein.ports.model import Chunk, ModelResponse, TextDelta
from checkrein.ports.tool import CancelSignal
from checkrein.providers.model import Access, Key, WireModel
from checkrein.providers.registry import compatible, openai
from checkrein.providers.responses.client import OPENAI_RESPONSES
from checkrein.providers.settings import read_settings
from checkrein.testing import ManualClock
from checkrein.tools.function import tool
from tests.unit.providers.wire_bytes import REQUEST, STREAMS, events_of
from tests.unit.providers.wire_server import Answer, Ending, WireServer, error, sse

KEY = "sk-test-0123456789abcdef"


def bytes_of(name: str) -> list[bytes]:
    return [sse(event) for event in events_of(STREAMS / "responses" / f"{name}.jsonl")]


TEXT, CALL = bytes_of("text"), bytes_of("reasoning_hidden")
WHOLE = Answer(tuple(TEXT))
CALLED = Answer(tuple(CALL))
SAID = "Hello, wörld \U0001f600!"


def model_at(
    server: WireServer, clock: ManualClock | None = None, settings: Mapping[str, object] | None = None
) -> WireModel:
    access = Access("a-model", server.url, Key(KEY))
    return WireModel(OPENAI_RESPONSES, access, read_settings(settings or {}), clock=clock or ManualClock())


async def items_of(model: WireModel) -> list[Chunk | ModelResponse]:
    try:
        return [item async for item in model.stream(REQUEST, CancelSignal())]
    finally:
        await model.aclose()


async def failure_of(*answers: Answer) -> ModelError:
    async with WireServer(answers) as server:
        with pytest.raises(ModelError) as caught:
            await items_of(model_at(server))
        assert len(server.received) == 1, "the SDK must not retry by itself"
    return caught.value


async def test_a_whole_answer_is_its_chunks_and_one_response() -> None:
    async with WireServer([WHOLE]) as server:
        *chunks, response = await items_of(model_at(server))
    assert "".join(chunk.delta for chunk in chunks if isinstance(chunk, TextDelta)) == SAID
    assert isinstance(response, ModelResponse)
    assert response.message == AssistantMessage("resp_1", (Text(SAID),))
    assert server.received[0].path == "/v1/responses"
    assert server.received[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("ending", ["reset", "cut", "end"])
async def test_a_stream_that_breaks_off_before_its_last_event_fails(ending: Ending) -> None:
    failed = await failure_of(Answer(tuple(CALL[:-1]), ending=ending))
    assert (failed.code, failed.is_transient) == ("MODEL_STREAM_FAILED", True)


async def test_a_reset_after_the_last_event_changes_nothing() -> None:
    async with WireServer([Answer(tuple(CALL), ending="reset")]) as server:
        assert isinstance((await items_of(model_at(server)))[-1], ModelResponse)


async def test_an_error_that_the_sdk_takes_for_an_event_is_an_error() -> None:
    said = sse({"type": "error", "code": "server_error", "message": f"broke with {KEY}", "sequence_number": 3})
    failed = await failure_of(Answer((*TEXT[:3], said)))
    assert (failed.code, failed.is_transient) == ("MODEL_UNAVAILABLE", True)
    assert KEY not in str(failed)


async def test_an_error_status_has_its_code_and_says_when_to_ask_again() -> None:
    failed = await failure_of(error(429, {"message": "slow down"}, {"retry-after": "7"}))
    assert (failed.code, failed.retry_after) == ("MODEL_RATE_LIMIT", 7.0)


async def test_keep_alives_do_not_keep_a_stalled_stream_alive() -> None:
    clock = ManualClock()
    alive = b": keep-alive\n\n" + sse({"type": "keepalive"})
    async with WireServer([Answer((*TEXT[:5], *[alive] * 50), ending="hold")]) as server:
        model = model_at(server, clock, {"timeout": "60"})
        stream = model.stream(REQUEST, CancelSignal())
        assert isinstance(await anext(stream), TextDelta)

        async def rest() -> list[Chunk | ModelResponse]:
            return [item async for item in stream]

        waiting = spawn(rest(), name="rest")
        await server.written.wait()
        while not waiting.done():
            await clock.advance(61)
        with pytest.raises(ModelError, match="no progress for 60 s"):
            await waiting
        await model.aclose()


async def test_a_server_that_keeps_the_connection_after_the_end_does_not_hold_up_the_answer() -> None:
    clock = ManualClock()
    async with WireServer([Answer(tuple(TEXT), ending="hold")]) as server:
        waiting = spawn(items_of(model_at(server, clock)), name="items")
        await server.written.wait()
        await clock.wait_for_timers(1)
        while not waiting.done():
            await clock.advance(0.1)
        assert isinstance((await waiting)[-1], ModelResponse)


async def test_an_agent_runs_a_tool_once_although_two_streams_break_off_and_sends_reasoning_back() -> None:
    ran: list[int] = []

    @tool(name="add")
    async def counted(a: int) -> int:
        ran.append(a)
        return a + 1

    broken = [Answer(tuple(CALL[:-1]), ending="reset"), Answer(tuple(CALL[:-1]))]
    async with WireServer([*broken, CALLED, WHOLE]) as server:
        model = model_at(server)
        options = AgentOptions(retry=Retry(attempts=3, first_seconds=0.0))
        async with Agent(model=model, tools=[counted], options=options) as agent:
            result = await agent.prompt("add")
        await model.aclose()
    assert isinstance(result, Completed), result
    assert ran == [1]
    assert result.final_text == SAID
    assert server.received[-1].body["input"] == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "add"}]},
        {"type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": "gBBBB=="},
        {"type": "function_call", "call_id": "call_a", "name": "add", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "call_a", "output": "2"},
    ]


async def test_openai_is_asked_over_responses_and_others_over_chat_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    here = {"base_url": "http://127.0.0.1:1/v1"}
    assert openai("m").wire == "responses"
    assert openai("m", {"api": "chat"}).wire == "chat"
    assert compatible("m", here).wire == "chat"
    assert compatible("m", {**here, "api": "responses"}).wire == "responses"
