"""The Chat client against a server on this machine that misbehaves in every way."""

import asyncio
import traceback
from collections.abc import AsyncIterator, Mapping

import pytest

from checkrein.agent.agent import Agent
from checkrein.agent.options import AgentOptions
from checkrein.clock import spawn
from checkrein.errors import ModelError
from checkrein.loop.events import Completed, Failed
from checkrein.loop.options import Retry
from checkrein.messages import AssistantMessage, Text
from checkrein.ports.model import Chunk, ModelResponse, TextDelta
from checkrein.ports.tool import CancelSignal
from checkrein.providers.chat.client import COMPATIBLE_CHAT, OPENAI_CHAT
from checkrein.providers.model import Access, Key, WireModel
from checkrein.providers.settings import read_settings
from checkrein.testing import ManualClock
from checkrein.tools.function import tool
from tests.unit.providers.wire_bytes import REQUEST
from tests.unit.providers.wire_server import Answer, Ending, WireServer, error, sse

KEY = "sk-test-0123456789abcdef"
BEGUN = sse({"id": "r1", "choices": [{"delta": {"content": "Hel"}}]})
END = sse({"choices": [{"delta": {"content": "lo"}, "finish_reason": "stop"}]}, "[DONE]")
WHOLE = Answer((BEGUN, END))
CALL = {"index": 0, "id": "c1", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}
CALLED = sse({"id": "r0", "choices": [{"delta": {"tool_calls": [CALL]}}]})
CALLED_WHOLE = Answer((CALLED, sse({"choices": [{"finish_reason": "tool_calls"}]}, "[DONE]")))


def model_at(
    server: WireServer, clock: ManualClock | None = None, settings: Mapping[str, object] | None = None
) -> WireModel:
    access = Access("a-model", server.url, Key(KEY))
    return WireModel(COMPATIBLE_CHAT, access, read_settings(settings or {}), clock=clock or ManualClock())


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
    assert chunks == [TextDelta("request-001", "Hel"), TextDelta("request-001", "lo")]
    assert isinstance(response, ModelResponse)
    assert response.message == AssistantMessage("r1", (Text("Hello"),))
    assert server.received[0].path == "/v1/chat/completions"
    assert server.received[0].headers["authorization"] == f"Bearer {KEY}"


async def test_one_connection_serves_request_after_request() -> None:
    async with WireServer([WHOLE, WHOLE]) as server:
        model = model_at(server)
        for _ in range(2):
            assert [item async for item in model.stream(REQUEST, CancelSignal())]
        await model.aclose()
        assert server.connections == 1


@pytest.mark.parametrize("ending", ["reset", "cut", "end"])
async def test_a_stream_that_breaks_off_fails_and_no_call_of_it_exists(ending: Ending) -> None:
    failed = await failure_of(Answer((CALLED,), ending=ending))
    assert (failed.code, failed.is_transient) == ("MODEL_STREAM_FAILED", True)


async def test_a_reset_after_the_last_event_changes_nothing() -> None:
    async with WireServer([Answer((BEGUN, END), ending="reset")]) as server:
        assert isinstance((await items_of(model_at(server)))[-1], ModelResponse)


@pytest.mark.parametrize(
    ("status", "said", "expected"),
    [
        (400, {"message": "bad", "type": "invalid_request_error"}, ("MODEL_REQUEST", False)),
        (400, {"message": "maximum context length is 10", "code": "context_length_exceeded"}, ("MODEL_CONTEXT", False)),
        (401, {"message": f"Incorrect API key: {KEY}"}, ("MODEL_AUTH", False)),
        (403, {"message": "no"}, ("MODEL_AUTH", False)),
        (404, {"message": "no such model"}, ("MODEL_NOT_FOUND", False)),
        (408, "", ("MODEL_UNAVAILABLE", True)),
        (409, "", ("MODEL_UNAVAILABLE", True)),
        (429, {"message": "slow down"}, ("MODEL_RATE_LIMIT", True)),
        (429, {"message": "pay", "code": "insufficient_quota"}, ("MODEL_QUOTA", False)),
        (500, "<html>oops</html>", ("MODEL_UNAVAILABLE", True)),
        (503, {"message": "busy"}, ("MODEL_OVERLOADED", True)),
        (529, {"message": "busy"}, ("MODEL_OVERLOADED", True)),
    ],
)
async def test_an_error_status_has_its_code(
    status: int, said: Mapping[str, object] | str, expected: tuple[str, bool]
) -> None:
    failed = await failure_of(error(status, said))
    assert (failed.code, failed.is_transient) == expected
    assert KEY not in str(failed)
    assert KEY not in "".join(traceback.format_exception(failed))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"x-ratelimit-reset-tokens": "6m0s"}, 360.0),
        ({}, None),
    ],
)
async def test_a_provider_says_when_to_ask_again(headers: Mapping[str, str], seconds: float | None) -> None:
    assert (await failure_of(error(429, {"message": "slow down"}, headers))).retry_after == seconds


async def test_an_error_in_json_with_status_200_is_an_error() -> None:
    failed = await failure_of(
        Answer((b'{"error":{"message":"no","code":"invalid_api_key"}}',), content_type="application/json")
    )
    assert failed.code == "MODEL_AUTH"


async def test_an_answer_that_is_no_event_stream_fails() -> None:
    failed = await failure_of(Answer((b"<html>",), content_type="text/html"))
    assert (failed.code, failed.is_transient) == ("MODEL_STREAM_FAILED", True)
    assert "text/html" in str(failed)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    async with WireServer([]) as server:
        url = server.url
    model = WireModel(COMPATIBLE_CHAT, Access("a-model", url, Key("")), read_settings({}))
    with pytest.raises(ModelError) as caught:
        await items_of(model)
    assert (caught.value.code, caught.value.is_transient) == ("MODEL_UNAVAILABLE", True)


async def next_of(stream: AsyncIterator[Chunk | ModelResponse]) -> Chunk | ModelResponse:
    return await anext(stream)


async def begun(model: WireModel, signal: CancelSignal | None = None) -> "asyncio.Task[Chunk | ModelResponse]":
    """Read the first chunk, and wait for the second."""
    stream = model.stream(REQUEST, signal or CancelSignal())
    assert isinstance(await anext(stream), TextDelta)
    return spawn(next_of(stream), name="next")


async def test_a_silent_stream_fails_when_its_time_is_over() -> None:
    clock = ManualClock()
    async with WireServer([Answer((BEGUN,), ending="hold")]) as server:
        model = model_at(server, clock, {"timeout": "60"})
        waiting = await begun(model)
        await clock.advance(59)
        assert not waiting.done()
        await clock.advance(2)
        with pytest.raises(ModelError, match="no progress for 60 s") as caught:
            await waiting
        assert (caught.value.code, caught.value.is_transient) == ("MODEL_STREAM_FAILED", True)
        await model.aclose()


async def test_keep_alives_do_not_keep_a_stalled_stream_alive() -> None:
    clock = ManualClock()
    alive = b": keep-alive\n\n" + sse({"choices": [{"delta": {"content": ""}}]})
    async with WireServer([Answer((BEGUN, *[alive] * 50), ending="hold")]) as server:
        model = model_at(server, clock, {"timeout": "60"})
        waiting = await begun(model)
        await server.written.wait()
        await clock.advance(61)
        with pytest.raises(ModelError, match="no progress"):
            await waiting
        await model.aclose()


async def test_a_server_that_never_answers_is_left() -> None:
    clock = ManualClock()
    async with WireServer([Answer(silent=True, ending="hold")]) as server:
        model = model_at(server, clock, {"timeout": "60"})
        waiting = spawn(items_of(model), name="items")
        await server.asked.wait()
        await clock.advance(61)
        with pytest.raises(ModelError, match="no progress") as caught:
            await waiting
        assert caught.value.code == "MODEL_UNAVAILABLE"


async def test_a_server_that_keeps_the_connection_after_the_end_does_not_hold_up_the_answer() -> None:
    clock = ManualClock()
    async with WireServer([Answer((BEGUN, END), ending="hold")]) as server:
        model = model_at(server, clock)
        waiting = spawn(items_of(model), name="items")
        await server.written.wait()
        await clock.wait_for_timers(1)
        while not waiting.done():
            await clock.advance(0.1)
        assert isinstance((await waiting)[-1], ModelResponse)


async def test_a_slow_reader_is_no_stall() -> None:
    clock = ManualClock()
    async with WireServer([WHOLE]) as server:
        model = model_at(server, clock, {"timeout": "60"})
        stream = model.stream(REQUEST, CancelSignal())
        await anext(stream)
        await clock.advance(1_000)
        assert isinstance([item async for item in stream][-1], ModelResponse)
        await model.aclose()


async def test_cancel_ends_a_stream_that_waits() -> None:
    async with WireServer([Answer((BEGUN,), ending="hold")]) as server:
        model, signal = model_at(server), CancelSignal()
        waiting = await begun(model, signal)
        await asyncio.sleep(0)
        signal.cancel("not wanted")
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await model.aclose()


async def test_an_agent_runs_a_tool_once_although_its_first_two_streams_break_off() -> None:
    ran: list[int] = []

    @tool(name="add")
    async def counted(a: int, b: int) -> int:
        ran.append(a + b)
        return a + b

    broken = [Answer((CALLED,), ending="reset"), Answer((CALLED,))]
    async with WireServer([*broken, CALLED_WHOLE, WHOLE]) as server:
        model = model_at(server)
        options = AgentOptions(retry=Retry(attempts=3, first_seconds=0.0))
        async with Agent(model=model, tools=[counted], options=options) as agent:
            result = await agent.prompt("add")
        await model.aclose()
    assert isinstance(result, Completed), result
    assert ran == [3]
    assert result.final_text == "Hello"
    messages = server.received[-1].body["messages"]
    assert messages == [
        {"role": "user", "content": "add"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"type": "function", "id": "c1", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    ]


async def test_an_agent_waits_as_long_as_the_provider_asks_and_gives_up_on_too_long() -> None:
    clock = ManualClock()
    busy, closed = (
        error(429, {"message": "slow"}, {"retry-after": "40"}),
        error(429, {"message": "slow"}, {"retry-after": "4000"}),
    )
    async with WireServer([busy, closed]) as server:
        model = model_at(server)
        agent = Agent(model=model, options=AgentOptions(retry=Retry(attempts=5), clock=clock))
        stream = agent.prompt("hi")
        await clock.wait_for_timers(1)
        await clock.advance(39)
        assert len(server.received) == 1
        await clock.advance(2)
        result = await stream
        await model.aclose()
    assert isinstance(result, Failed), result
    assert result.error.code == "MODEL_RATE_LIMIT"
    assert len(server.received) == 2


async def test_the_key_shows_nowhere_and_the_account_goes_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-mine")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-mine")
    async with WireServer([WHOLE, WHOLE]) as server:
        theirs = model_at(server)
        assert KEY not in repr(theirs)
        assert KEY not in repr(Key(KEY))
        await items_of(theirs)
        await items_of(WireModel(OPENAI_CHAT, Access("m", server.url, Key(KEY), "openai"), read_settings({})))
    first, second = server.received
    assert not [name for name in first.headers if name.startswith("openai-")]
    assert second.headers["openai-organization"] == "org-mine"
