"""The Messages client against a server on this machine that misbehaves in every way."""

from collections.abc import AsyncIterator, Mapping

import pytest

from checkrein.agent.agent import Agent
from checkrein.agent.options import AgentOptions
from checkrein.clock import spawn
from checkrein.errors import ModelError, TaskError
from checkrein.loop.events import Completed, Failed
from checkrein.loop.options import Retry
from checkrein.messages import AssistantMessage, Text, Usage
from checkrein.ports.model import Chunk, ModelResponse, TextDelta
from checkrein.ports.tool import CancelSignal
from checkrein.providers.anthropic.client import ANTHROPIC_MESSAGES
from checkrein.providers.model import Access, Key, WireModel
from checkrein.providers.registry import anthropic
from checkrein.providers.settings import read_settings
from checkrein.providers.stream import WireEvent
from checkrein.testing import ManualClock
from checkrein.tools.function import tool
from tests.unit.providers.wire_bytes import REQUEST
from tests.unit.providers.wire_server import Answer, Ending, Received, WireServer, error, sse

SECRET = "sk-ant-test-0123456789abcdef"  # noqa: S105  it opens nothing
START = {"type": "message_start", "message": {"id": "m1", "model": "a-model", "usage": {"input_tokens": 3}}}
STOP = {"type": "message_stop"}


def stopped(reason: str) -> bytes:
    return sse({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 2}}, STOP)


def piece(delta: Mapping[str, object]) -> Mapping[str, object]:
    return {"type": "content_block_delta", "index": 0, "delta": delta}


def begin(block: Mapping[str, object]) -> Mapping[str, object]:
    return {"type": "content_block_start", "index": 0, "content_block": block}


END_BLOCK = {"type": "content_block_stop", "index": 0}
BEGUN = sse(START, begin({"type": "text", "text": ""}), piece({"type": "text_delta", "text": "Hel"}))
END = sse(piece({"type": "text_delta", "text": "lo"}), END_BLOCK) + stopped("end_turn")
WHOLE = Answer((BEGUN, END))
INPUT = piece({"type": "input_json_delta", "partial_json": '{"a":1,"b":2}'})
CALLING = sse(START, begin({"type": "tool_use", "id": "toolu_1", "name": "add", "input": None}))
CALLED = CALLING + sse(INPUT, END_BLOCK)
CALLED_WHOLE = Answer((CALLED, stopped("tool_use")))
PING = sse(WireEvent("ping", '{"type": "ping"}'))
BUSY = sse(WireEvent("error", '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'))


def model_at(
    server: WireServer, clock: ManualClock | None = None, settings: Mapping[str, object] | None = None
) -> WireModel:
    access = Access("a-model", server.url, Key(SECRET))
    return WireModel(ANTHROPIC_MESSAGES, access, read_settings(settings or {}), clock=clock or ManualClock())


def key_of(asked: Received) -> str:
    """Return the key that a request shows; which header it stands in is the SDK's choice."""
    return asked.headers.get("x-api-key") or asked.headers["authorization"].removeprefix("Bearer ")


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
    assert response.message == AssistantMessage("m1", (Text("Hello"),))
    assert response.usage == Usage(3, 2)
    asked = server.received[0]
    assert asked.path == "/v1/messages"
    assert key_of(asked) == SECRET
    assert asked.headers["anthropic-version"]
    assert asked.body["stream"] is True


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
async def test_an_address_may_name_the_version_or_not(ending: str) -> None:
    async with WireServer([WHOLE]) as server:
        url = server.url.removesuffix("/v1") + ending
        await items_of(WireModel(ANTHROPIC_MESSAGES, Access("a-model", url, Key("")), read_settings({})))
    assert server.received[0].path == "/v1/messages"


async def test_one_connection_serves_request_after_request() -> None:
    async with WireServer([WHOLE, WHOLE]) as server:
        model = model_at(server)
        for _ in range(2):
            assert [item async for item in model.stream(REQUEST, CancelSignal())]
        await model.aclose()
        assert server.connections == 1


@pytest.mark.parametrize(
    "pieces", [(CALLING,), (CALLED,), (CALLED, stopped("tool_use").partition(b"\n\n")[0] + b"\n\n")]
)
@pytest.mark.parametrize("ending", ["reset", "cut", "end"])
async def test_a_stream_that_breaks_off_fails_and_no_call_of_it_exists(
    pieces: tuple[bytes, ...], ending: Ending
) -> None:
    came: list[Chunk | ModelResponse] = []

    async def take_all(model: WireModel) -> None:
        async for item in model.stream(REQUEST, CancelSignal()):
            came.append(item)  # noqa: PERF401  what came before the failure is what is asked for

    async with WireServer([Answer(pieces, ending=ending)]) as server:
        model = model_at(server)
        with pytest.raises(ModelError) as caught:
            await take_all(model)
        await model.aclose()
    assert came == []
    assert (caught.value.code, caught.value.is_transient) == ("MODEL_STREAM_FAILED", True)


async def test_a_reset_after_the_last_event_changes_nothing() -> None:
    async with WireServer([Answer((BEGUN, END), ending="reset")]) as server:
        assert isinstance((await items_of(model_at(server)))[-1], ModelResponse)


async def test_an_error_inside_a_stream_is_an_error_however_it_goes_on() -> None:
    failed = await failure_of(Answer((CALLED, BUSY, stopped("tool_use"))))
    assert (failed.code, failed.is_transient) == ("MODEL_OVERLOADED", True)


SPENT = {"type": "rate_limit_error", "message": "no", "details": {"error_code": "enforced_spend_limit_reached"}}


def said(kind: str, message: str = "no") -> Mapping[str, object]:
    return {"type": kind, "message": message}


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, said("invalid_request_error"), ("MODEL_REQUEST", False)),
        (400, said("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), ("MODEL_CONTEXT", False)),
        (400, said("invalid_request_error", "Your credit balance is too low"), ("MODEL_QUOTA", False)),
        (401, said("authentication_error", f"invalid x-api-key {SECRET}"), ("MODEL_AUTH", False)),
        (402, said("billing_error"), ("MODEL_QUOTA", False)),
        (403, said("permission_error"), ("MODEL_AUTH", False)),
        (404, said("not_found_error", "model: a-model"), ("MODEL_NOT_FOUND", False)),
        (408, "", ("MODEL_UNAVAILABLE", True)),
        (409, "", ("MODEL_UNAVAILABLE", True)),
        (413, said("request_too_large"), ("MODEL_CONTEXT", False)),
        (429, said("rate_limit_error"), ("MODEL_RATE_LIMIT", True)),
        (429, SPENT, ("MODEL_QUOTA", False)),
        (500, said("api_error"), ("MODEL_UNAVAILABLE", True)),
        (502, "<html>oops</html>", ("MODEL_UNAVAILABLE", True)),
        (504, said("timeout_error"), ("MODEL_UNAVAILABLE", True)),
        (529, said("overloaded_error"), ("MODEL_OVERLOADED", True)),
    ],
)
async def test_an_error_status_has_its_code(
    status: int, body: Mapping[str, object] | str, expected: tuple[str, bool]
) -> None:
    failed = await failure_of(error(status, body))
    assert (failed.code, failed.is_transient) == expected
    assert SECRET not in str(failed)
    assert SECRET not in repr(failed.args)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:30 GMT"}, 30.0),
        ({"anthropic-ratelimit-requests-reset": "1970-01-01T00:01:00Z"}, 60.0),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "1970-01-01T00:01:00Z",
                "anthropic-ratelimit-input-tokens-remaining": "4000",
                "anthropic-ratelimit-input-tokens-reset": "1970-01-01T01:00:00Z",
            },
            60.0,
        ),
        ({}, None),
    ],
)
async def test_a_provider_says_when_to_ask_again(headers: Mapping[str, str], seconds: float | None) -> None:
    async with WireServer([error(429, said("rate_limit_error"), headers)]) as server:
        with pytest.raises(ModelError) as caught:
            await items_of(model_at(server, ManualClock(0.0)))
    assert caught.value.retry_after == seconds


async def test_an_error_in_json_with_status_200_is_an_error() -> None:
    body = b'{"type":"error","error":{"type":"authentication_error","message":"no"}}'
    assert (await failure_of(Answer((body,), content_type="application/json"))).code == "MODEL_AUTH"


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    async with WireServer([]) as server:
        url = server.url
    model = WireModel(ANTHROPIC_MESSAGES, Access("a-model", url, Key("")), read_settings({}))
    with pytest.raises(ModelError) as caught:
        await items_of(model)
    assert (caught.value.code, caught.value.is_transient) == ("MODEL_UNAVAILABLE", True)


async def next_of(stream: AsyncIterator[Chunk | ModelResponse]) -> Chunk | ModelResponse:
    return await anext(stream)


@pytest.mark.parametrize("alive", [b"", PING, b": keep-alive\n\n"])
async def test_a_stream_that_gets_nowhere_fails_when_its_time_is_over(alive: bytes) -> None:
    clock = ManualClock()
    async with WireServer([Answer((BEGUN, *[alive] * 50), ending="hold")]) as server:
        model = model_at(server, clock, {"timeout": "60"})
        stream = model.stream(REQUEST, CancelSignal())
        assert isinstance(await anext(stream), TextDelta)
        waiting = spawn(next_of(stream), name="next")
        await server.written.wait()
        await clock.advance(59)
        assert not waiting.done()
        await clock.advance(2)
        with pytest.raises(ModelError, match="no progress for 60 s") as caught:
            await waiting
        assert (caught.value.code, caught.value.is_transient) == ("MODEL_STREAM_FAILED", True)
        await model.aclose()


async def test_an_agent_runs_a_tool_once_although_its_first_streams_break_off() -> None:
    ran: list[int] = []

    @tool(name="add")
    async def counted(a: int, b: int) -> int:
        ran.append(a + b)
        return a + b

    broken = [Answer((CALLED,), ending="reset"), Answer((CALLED,)), Answer((CALLED, BUSY)), Answer((CALLING,))]
    async with WireServer([*broken, CALLED_WHOLE, WHOLE]) as server:
        model = model_at(server, settings={"cache": "false"})
        options = AgentOptions(retry=Retry(attempts=5, first_seconds=0.0))
        async with Agent(model=model, tools=[counted], options=options) as agent:
            result = await agent.prompt("add")
        await model.aclose()
    assert isinstance(result, Completed), result
    assert ran == [3]
    assert result.final_text == "Hello"
    assert server.received[-1].body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "add"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1, "b": 2}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "3"}]}],
        },
    ]


async def test_an_agent_waits_as_long_as_the_provider_asks_and_gives_up_on_too_long() -> None:
    clock = ManualClock()
    busy = [error(529, said("overloaded_error"), {"retry-after": seconds}) for seconds in ("40", "4000")]
    async with WireServer(busy) as server:
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
    assert result.error.code == "MODEL_OVERLOADED"
    assert len(server.received) == 2


async def test_the_key_comes_from_the_environment_and_no_other_account_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "another-account")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    async with WireServer([WHOLE]) as server:
        with pytest.raises(TaskError, match="ANTHROPIC_API_KEY"):
            anthropic("a-model", {"base_url": server.url})
        monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
        model = anthropic("a-model", {"base_url": server.url})
        assert SECRET not in repr(model)
        await items_of(model)
    assert key_of(server.received[0]) == SECRET
    assert "another-account" not in str(server.received[0].headers)
