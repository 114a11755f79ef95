"""What a response must be before anything of it has an effect."""

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from checkrein.errors import ModelError
from checkrein.loop.events import Completed, ModelChunk, ToolStarted
from checkrein.loop.options import LoopOptions, ModelLimits
from checkrein.messages import AssistantMessage, ContentBlock, Text, Thinking, ToolCall, Usage
from checkrein.ports.model import (
    Chunk,
    ModelRequest,
    ModelResponse,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from checkrein.ports.tool import CancelSignal
from checkrein.testing.scripted import reply
from checkrein.values import JsonObject
from tests.unit.loop.scene import call, completed, failed, of, start, types

HIGH, LOW, REPLACED = "\ud83d", "\ude00", "\ufffd"
RUN_ID = "request-001"


class Plays:
    """A model that yields just these items; `RUN_ID` is the id of the only request."""

    def __init__(self, *items: object) -> None:
        self._items = items

    async def stream(self, request: ModelRequest, signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        del request, signal
        for item in self._items:
            yield cast("Chunk", item)


def response(
    *content: ContentBlock, stop_reason: StopReason = "stop", request_id: str = RUN_ID, usage: Usage | None = None
) -> ModelResponse:
    return ModelResponse("r1", request_id, AssistantMessage("m1", content), stop_reason, usage or Usage())


async def test_chunks_that_make_up_the_message_are_agreed() -> None:
    chunks = (
        ThinkingDelta(RUN_ID, "let me "),
        ThinkingDelta(RUN_ID, "see"),
        TextDelta(RUN_ID, "a"),
        TextDelta(RUN_ID, ""),
        TextDelta(RUN_ID, "b"),
    )
    stream = start(Plays(*chunks, response(Thinking("let me see", "signed"), Text("a"), Text("b"))))
    result = await completed(stream)
    assert result.messages[-1].content == (Thinking("let me see", "signed"), Text("a"), Text("b"))
    assert [event.chunk for event in of(stream, ModelChunk)] == list(chunks)
    assert {event.request_id for event in of(stream, ModelChunk)} == {RUN_ID}


async def test_a_response_may_come_whole() -> None:
    assert (await completed(start(Plays(response(Text("all")))))).final_text == "all"


@pytest.mark.parametrize(
    "items",
    [
        (TextDelta(RUN_ID, "other"), response(Text("text"))),
        (TextDelta(RUN_ID, "te"), response(Text("text"))),
        (ThinkingDelta(RUN_ID, "hm"), response(Text("text"))),
        (ToolCallDelta(RUN_ID, call("c1")), response(call("c2"), stop_reason="tool_call")),
        (ToolCallDelta(RUN_ID, call("c1")), response(Text("text"))),
        (TextDelta("request-002", "text"), response(Text("text"))),
        (response(Text("text"), request_id="request-002"),),
        (response(Text("text")), TextDelta(RUN_ID, "more")),
        (response(Text("text")), response(Text("text"))),
        ("text", response(Text("text"))),
        (None,),
        (response(stop_reason="tool_call"),),
        (response(Text("text"), stop_reason="tool_call"),),
        (response(call()),),
        (response(Text("no"), call(), stop_reason="refusal"),),
        (response(Text("x"), stop_reason=cast("StopReason", "because")),),
        (response(ToolCall("c1", "", {}), stop_reason="tool_call"),),
        (response(ToolCall("c1", "add", JsonObject.from_canonical(b"[1]")), stop_reason="tool_call"),),
        (response(ToolCall("c1", "add", {"a": 1}, malformed="{"), stop_reason="tool_call"),),
        (response(Text(cast("str", 5))),),
        (response(cast("Text", "text")),),
        (TextDelta(RUN_ID, cast("str", 5)), response(Text("text"))),
        (ToolCallDelta(RUN_ID, cast("ToolCall", "call")), response(Text("text"))),
        (ModelResponse("r1", RUN_ID, cast("AssistantMessage", "text"), "stop"),),
        (ModelResponse("r1", RUN_ID, AssistantMessage("m", cast("Any", [Text("x")])), "stop"),),
        (ModelResponse("r1", RUN_ID, AssistantMessage(cast("str", 1), (Text("x"),)), "stop"),),
        (response(Text("text"), usage=cast("Usage", 5)),),
    ],
    ids=str,
)
async def test_what_does_not_agree_is_a_protocol_error_and_nothing_of_it_runs(items: tuple[object, ...]) -> None:
    stream = start(Plays(*items))
    result = await failed(stream, "MODEL_PROTOCOL_ERROR")
    assert (len(result.messages), result.unadopted_calls, of(stream, ToolStarted)) == (1, (), [])


async def test_a_response_cut_off_by_length_is_not_adopted_and_none_of_its_calls_run() -> None:
    stream = start(Plays(response(Text("so"), call(), stop_reason="length")))
    result = await failed(stream, "MODEL_OUTPUT_LIMIT")
    assert (len(result.messages), types(stream)) == (1, ["message.accepted", "run.finished"])


async def test_a_refusal_with_text_completes() -> None:
    result = await completed(start(Plays(response(Text("I will not."), stop_reason="refusal"))))
    assert result.final_text == "I will not."


@pytest.mark.parametrize("content", [(), (Text(""),), (Text(" \n"),), (Thinking("hm"),), (Thinking("hm"), Text(""))])
@pytest.mark.parametrize("reason", ["stop", "refusal"])
async def test_no_text_and_no_call_is_empty(content: tuple[ContentBlock, ...], reason: StopReason) -> None:
    await failed(start(Plays(response(*content, stop_reason=reason))), "MODEL_EMPTY")


@pytest.mark.parametrize("items", [(), (TextDelta(RUN_ID, "so"),)])
async def test_a_stream_that_ends_without_its_response_failed(items: tuple[object, ...]) -> None:
    result = await failed(start(Plays(*items)), "MODEL_STREAM_FAILED")
    assert result.error.message == "the stream ended without its response"


async def test_a_stream_that_raises_failed() -> None:
    result = await failed(start([OSError("the line is dead")]), "MODEL_STREAM_FAILED")
    assert result.error.message == "the model's stream failed: OSError: the line is dead"


async def test_a_model_may_fail_with_a_code_of_the_closed_set_only() -> None:
    await failed(start([ModelError("too much", code="MODEL_LIMIT")]), "MODEL_LIMIT")
    await failed(start([ModelError("odd", code="TEAPOT")]), "MODEL_STREAM_FAILED")


# Limits, at their borders.


def nested(depth: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


async def ends_with(code: str, *items: object, options: LoopOptions) -> None:
    stream = start(Plays(*items), options=options, max_steps=1)
    result = await stream
    found = result.error.code if result.status == "failed" else ""
    assert found == code, result
    assert code == "" or not of(stream, ToolStarted)


@pytest.mark.parametrize(("blocks", "code"), [(3, ""), (4, "MODEL_LIMIT")])
async def test_a_response_has_at_most_so_many_content_blocks(blocks: int, code: str) -> None:
    content = [Text("x")] * (blocks - 1) + [Text("y")]
    await ends_with(code, response(*content), options=LoopOptions(limits=ModelLimits(content_blocks=3)))


@pytest.mark.parametrize(("chunks", "code"), [(3, ""), (4, "MODEL_LIMIT")])
async def test_a_stream_has_at_most_so_many_chunks(chunks: int, code: str) -> None:
    items = [TextDelta(RUN_ID, "x")] * chunks
    await ends_with(code, *items, response(Text("x" * chunks)), options=LoopOptions(limits=ModelLimits(chunks=3)))


@pytest.mark.parametrize("kind", ["chunks", "message"])
@pytest.mark.parametrize(("characters", "code"), [(6, ""), (7, "MODEL_LIMIT")])
async def test_a_response_has_at_most_so_many_code_points_of_text(kind: str, characters: int, code: str) -> None:
    text = "😀" * (characters - 2)
    streamed = (ThinkingDelta(RUN_ID, "hm"), TextDelta(RUN_ID, text)) if kind == "chunks" else ()
    message = response(Thinking("hm"), Text(text))
    await ends_with(code, *streamed, message, options=LoopOptions(limits=ModelLimits(text_characters=6)))


@pytest.mark.parametrize(("depth", "code"), [(32, ""), (33, "MODEL_LIMIT")])
async def test_arguments_are_nested_at_most_32_deep(depth: int, code: str) -> None:
    message = response(call("c1", "add", nested(depth)), stop_reason="tool_call")
    await ends_with(code, message, options=LoopOptions())


async def test_brackets_within_texts_are_no_nesting() -> None:
    message = response(call("c1", "add", {"a": "{[" * 100}), stop_reason="tool_call")
    await ends_with("", message, options=LoopOptions())


@pytest.mark.parametrize(("size", "code"), [(65_536, ""), (65_537, "MODEL_LIMIT")])
@pytest.mark.parametrize("is_malformed", [False, True])
async def test_arguments_have_at_most_64_kib(size: int, code: str, *, is_malformed: bool) -> None:
    made = ToolCall("c1", "add", {}, malformed="[" + "x" * (size - 1))
    if not is_malformed:
        made = call("c1", "add", {"a": "x" * (size - len('{"a":""}'))})
    await ends_with(code, response(made, stop_reason="tool_call"), options=LoopOptions())


def test_the_limits_are_those_that_are_promised() -> None:
    assert ModelLimits() == ModelLimits(1024, 65_536, 1_048_576, 32, 65_536)


# Text is Unicode.


async def chunks_and_text(*items: object) -> tuple[list[str], str]:
    stream = start(Plays(*items))
    result = await completed(stream)
    pieces = [event.chunk.delta for event in of(stream, ModelChunk) if not isinstance(event.chunk, ToolCallDelta)]
    return pieces, result.final_text


async def test_a_pair_split_over_two_chunks_is_one_character() -> None:
    items = (TextDelta(RUN_ID, f"a{HIGH}"), TextDelta(RUN_ID, f"{LOW}b"), response(Text("a😀b")))
    assert await chunks_and_text(*items) == (["a", "😀b"], "a😀b")


async def test_a_pair_of_reasoning_split_over_two_chunks_is_one_character_whatever_comes_between() -> None:
    items = (ThinkingDelta(RUN_ID, HIGH), TextDelta(RUN_ID, "ok"), ThinkingDelta(RUN_ID, LOW))
    assert await chunks_and_text(*items, response(Thinking("😀"), Text("ok"))) == (["", "ok", "😀"], "ok")


@pytest.mark.parametrize("half", [HIGH, LOW])
async def test_half_a_pair_in_a_chunk_is_replaced_in_chunk_and_message(half: str) -> None:
    pieces, text = await chunks_and_text(TextDelta(RUN_ID, f"a{half}"), response(Text(f"a{half}")))
    assert ("".join(pieces), text) == (f"a{REPLACED}", f"a{REPLACED}")


async def test_half_a_pair_of_reasoning_that_never_gets_its_other_half_is_replaced() -> None:
    stream = start(Plays(ThinkingDelta(RUN_ID, HIGH), response(Thinking(HIGH), Text("ok"))))
    result = await completed(stream)
    assert result.messages[-1].content == (Thinking(REPLACED), Text("ok"))


async def test_lone_surrogates_in_calls_are_replaced_in_chunk_and_message() -> None:
    odd = ToolCall(f"c{HIGH}", f"ad{LOW}", {"a": HIGH}, malformed="")
    stream = start(Plays(ToolCallDelta(RUN_ID, odd), response(odd, stop_reason="tool_call")), max_steps=1)
    result = await stream
    clean = ToolCall(f"c{REPLACED}", f"ad{REPLACED}", {"a": REPLACED})
    assert result.messages[1].content == (clean,)
    assert [event.chunk for event in of(stream, ModelChunk)] == [ToolCallDelta(RUN_ID, clean)]


async def test_an_answer_keeps_blocks_and_order_as_the_model_gave_them() -> None:
    result = await start([reply("one", call("c1"), "two")], max_steps=1)
    assert not isinstance(result, Completed)
    assert result.messages[1].content == (Text("one"), call("c1"), Text("two"))
