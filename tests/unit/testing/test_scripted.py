import asyncio
from collections.abc import AsyncIterator

import pytest

from checkrein import AssistantMessage, ModelResponse, Text, TextDelta, ToolCall
from checkrein.errors import ModelError
from checkrein.messages import Thinking, Usage
from checkrein.ports.model import Chunk, ModelRequest, ThinkingDelta, ToolCallDelta
from checkrein.ports.tool import CancelSignal
from checkrein.testing import ScriptedModel, reply

CALL = ToolCall("c1", "add", {"a": 1})


def request(number: int = 1) -> ModelRequest:
    return ModelRequest(f"request-{number:03}", ())


async def played(model: ScriptedModel, number: int = 1) -> list[Chunk | ModelResponse]:
    return [item async for item in model.stream(request(number), CancelSignal())]


def test_a_reply_has_empty_ids_and_the_stop_reason_of_its_blocks() -> None:
    assert reply("a", CALL) == ModelResponse("", "", AssistantMessage("", (Text("a"), CALL)), "tool_call", Usage())
    assert reply("a").stop_reason == "stop"
    assert reply("a", stop_reason="length", usage=Usage(1, 2)).usage == Usage(1, 2)


async def test_a_response_is_streamed_as_one_chunk_per_block() -> None:
    items = await played(ScriptedModel([reply("a", Thinking("b"), CALL)]))
    assert items[:-1] == [
        TextDelta("request-001", "a"),
        ThinkingDelta("request-001", "b"),
        ToolCallDelta("request-001", CALL),
    ]
    assert isinstance(items[-1], ModelResponse)


async def test_items_are_played_in_order_and_requests_recorded() -> None:
    model = ScriptedModel([reply("one")])
    model.append_response(reply("two"))
    texts = [(await played(model, number))[0] for number in (1, 2)]
    assert texts == [TextDelta("request-001", "one"), TextDelta("request-002", "two")]
    assert (model.call_count, model.requests, model.remaining) == (2, [request(1), request(2)], 0)


async def test_ids_are_stamped_and_message_ids_are_unique_over_the_whole_model() -> None:
    model = ScriptedModel([reply("one")] * 3)
    responses = [(await played(model, number))[-1] for number in (1, 2, 1)]
    assert all(isinstance(item, ModelResponse) for item in responses)
    made = [item for item in responses if isinstance(item, ModelResponse)]
    assert [item.request_id for item in made] == ["request-001", "request-002", "request-001"]
    assert len({item.message.id for item in made}) == len({item.id for item in made}) == 3


async def test_ids_that_an_item_brings_are_kept() -> None:
    given = ModelResponse("r", "other", AssistantMessage("m", (Text("x"),)), "stop")
    assert (await played(ScriptedModel([given])))[-1] == given


@pytest.mark.parametrize("error", [ValueError("mine"), asyncio.CancelledError("mine")], ids=repr)
async def test_an_exception_is_raised(error: BaseException) -> None:
    with pytest.raises(type(error), match="mine"):
        await played(ScriptedModel([error]))


async def test_a_generator_is_asked_and_its_last_response_stamped() -> None:
    async def held(asked: ModelRequest, signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        assert not signal.is_cancelled
        yield TextDelta(asked.id, "done")
        yield reply("done")

    items = await played(ScriptedModel([held]))
    assert isinstance(items[1], ModelResponse)
    assert (items[0], items[1].request_id) == (TextDelta("request-001", "done"), "request-001")
    assert items[1].message.id


async def test_closing_the_stream_closes_the_generator() -> None:
    closed: list[str] = []

    async def held(asked: ModelRequest, signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        del signal
        try:
            yield TextDelta(asked.id, "one")
            yield TextDelta(asked.id, "two")
        finally:
            closed.append("closed")

    stream = ScriptedModel([held]).stream(request(), CancelSignal())
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert closed == ["closed"]


async def test_a_request_without_an_item_fails() -> None:
    model = ScriptedModel()
    with pytest.raises(ModelError, match="the script has no item for request request-001, number 1") as caught:
        await played(model)
    assert (caught.value.code, model.call_count) == ("MODEL_STREAM_FAILED", 1)


async def test_as_a_context_manager_it_fails_on_items_that_nobody_asked_for() -> None:
    with ScriptedModel([reply("one")]) as model:
        await played(model)
    with pytest.raises(AssertionError, match="1 scripted items were never asked for"), ScriptedModel([reply("one")]):
        pass


def test_as_a_context_manager_it_does_not_hide_another_error() -> None:
    def fails() -> None:
        with ScriptedModel([reply("one")]):
            msg = "mine"
            raise ValueError(msg)

    with pytest.raises(ValueError, match="mine"):
        fails()
