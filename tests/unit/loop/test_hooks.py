"""Where a caller steps in, and what comes of it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from checkrein.loop.events import ToolStarted
from checkrein.loop.options import AgentHooks, Allow, Deny, LoopOptions, ToolDecision, TurnSettings
from checkrein.messages import AssistantMessage, Message, Text, ToolCall, ToolResult, Transcript, UserMessage
from checkrein.ports.tool import CancelSignal
from checkrein.testing.scripted import ScriptedModel, reply
from checkrein.tools.function import tool
from tests.unit.loop.scene import (
    HELLO,
    add,
    call,
    cancelled,
    completed,
    failed,
    limited,
    of,
    results,
    roles,
    start,
    states,
)

BOTH = pytest.mark.parametrize("kind", ["plain", "async"])


def hooked(name: str, hook: Callable[..., Any]) -> LoopOptions:
    return LoopOptions(hooks=AgentHooks(**cast("dict[str, Any]", {name: hook})))


def always(answer: object) -> Callable[..., Any]:
    def hook(*_: object) -> object:
        return answer

    return hook


def either(kind: str, hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return the hook, or an async one that does the same."""
    if kind == "plain":
        return hook

    async def later(*arguments: object) -> object:
        await asyncio.sleep(0)
        return hook(*arguments)

    return later


# Before a call.


@BOTH
@pytest.mark.parametrize("answer", [None, Allow()])
async def test_a_call_that_is_allowed_is_made(answer: ToolDecision, kind: str) -> None:
    asked: list[ToolCall] = []

    def before(given: ToolCall) -> ToolDecision:
        asked.append(given)
        return answer

    result = await completed(
        start([reply(call()), reply("done")], options=hooked("before_tool_call", either(kind, before)))
    )
    assert (asked, results(result.messages)) == ([call()], [("c1", "3", False)])


@BOTH
async def test_a_call_that_is_denied_gets_the_reason_and_its_siblings_run(kind: str) -> None:
    def before(given: ToolCall) -> ToolDecision:
        return Deny("not on \ud800 Sundays") if given.id == "c1" else None

    stream = start(
        [reply(call("c1"), call("c2")), reply("done")], options=hooked("before_tool_call", either(kind, before))
    )
    result = await completed(stream)
    assert results(result.messages) == [("c1", "not on \ufffd Sundays", True), ("c2", "3", False)]
    assert [event.call_id for event in of(stream, ToolStarted)] == ["c2"]


async def test_replaced_arguments_are_used_and_the_transcript_keeps_the_models_own() -> None:
    options = hooked("before_tool_call", always(Allow({"a": 40, "b": 2})))
    stream = start([reply(call()), reply("done")], options=options)
    result = await completed(stream)
    assert results(result.messages) == [("c1", "42", False)]
    assert result.messages[1].content == (call(),)
    assert [event.arguments for event in of(stream, ToolStarted)] == [{"a": 40, "b": 2}]


async def test_replaced_arguments_are_validated_again() -> None:
    options = hooked("before_tool_call", always(Allow({"a": "x"})))
    result = await completed(start([reply(call()), reply("done")], options=options))
    (answer,) = results(result.messages)
    assert answer[2]
    assert "/b: is required and missing" in str(answer[1])


async def test_malformed_arguments_may_be_replaced() -> None:
    options = hooked("before_tool_call", always(Allow({"a": 1, "b": 1})))
    result = await completed(start([reply(ToolCall.parsed("c1", "add", "{")), reply("done")], options=options))
    assert results(result.messages) == [("c1", "2", False)]


@pytest.mark.parametrize("answer", ["yes", True, Allow({"a": float("nan")}), Allow(cast("Any", [1]))], ids=str)
async def test_an_answer_that_is_no_decision_is_an_error_result(answer: object) -> None:
    stream = start([reply(call()), reply("done")], options=hooked("before_tool_call", always(answer)))
    (found,) = results((await completed(stream)).messages)
    assert found[2]
    assert str(found[1]).startswith("the hook before_tool_call failed: ")


# After a call.


@BOTH
async def test_parts_of_a_result_may_be_replaced_but_not_whose_it_is(kind: str) -> None:
    def after(given: ToolCall, result: ToolResult) -> ToolResult:
        assert (given, result.content) == (call(), "3")
        return ToolResult("x", "y", "z", "masked \ud800", is_error=True)

    result = await completed(
        start([reply(call()), reply("done")], options=hooked("after_tool_call", either(kind, after)))
    )
    message = result.messages[2]
    assert isinstance(message, ToolResult)
    assert (message.tool_call_id, message.tool_name, message.content) == ("c1", "add", "masked \ufffd")
    assert message.is_error
    assert message.id not in {"", "x"}


async def test_no_answer_leaves_the_result_as_it_is() -> None:
    result = await completed(start([reply(call()), reply("done")], options=hooked("after_tool_call", always(None))))
    assert results(result.messages) == [("c1", "3", False)]


@pytest.mark.parametrize("answer", ["text", ToolResult("r", "c1", "add", cast("Any", ["x"]))], ids=str)
async def test_an_answer_that_is_no_result_is_an_error_result(answer: object) -> None:
    result = await completed(start([reply(call()), reply("done")], options=hooked("after_tool_call", always(answer))))
    (found,) = results(result.messages)
    assert found[2]
    assert str(found[1]).startswith("the hook after_tool_call failed: ")


# The context.


@BOTH
async def test_a_transform_changes_what_the_model_is_sent_and_not_the_transcript(kind: str) -> None:
    seen: list[int] = []

    def transform(messages: Sequence[Message]) -> Sequence[Message]:
        seen.append(len(messages))
        return [UserMessage("s1", "be \ud800 brief"), *messages[-1:]]

    model = ScriptedModel([reply("one")])
    result = await completed(start(model, options=hooked("transform_context", either(kind, transform))))
    assert seen == [1]
    assert list(model.requests[0].messages) == [UserMessage("s1", "be \ufffd brief"), HELLO]
    assert list(result.messages)[:1] == [HELLO]
    assert roles(result.messages) == ["user", "assistant"]


async def test_a_transform_is_asked_before_each_request() -> None:
    seen: list[int] = []

    def transform(messages: Sequence[Message]) -> Sequence[Message]:
        seen.append(len(messages))
        return messages

    model = ScriptedModel([reply(call()), reply("done")])
    await completed(start(model, options=hooked("transform_context", transform)))
    assert seen == [1, 3]
    assert isinstance(model.requests[1].messages, Transcript)


@pytest.mark.parametrize(
    "answer",
    [
        [ToolResult("r", "c9", "add", "x")],
        [HELLO, AssistantMessage("a", (call(),))],
        ["text"],
        [AssistantMessage("a", cast("Any", [Text("x")]))],
    ],
    ids=str,
)
async def test_an_invalid_transcript_from_a_transform_never_reaches_the_model(answer: list[Message]) -> None:
    model = ScriptedModel([reply("never")])
    stream = start(model, options=hooked("transform_context", always(answer)))
    result = await failed(stream, "INVALID_TRANSCRIPT")
    assert model.call_count == 0
    assert result.error.message.startswith("the hook transform_context returned an invalid transcript: message ")


# The turn.


@BOTH
async def test_a_turn_may_have_a_model_tools_and_settings_of_its_own(kind: str) -> None:
    other = ScriptedModel([reply(call("c2", "multiply", {"a": 3, "b": 4}))])

    @tool
    async def multiply(a: int, b: int) -> int:
        return a * b

    def prepare(step: int) -> TurnSettings | None:
        return TurnSettings(model=other, tools=[multiply], settings={"temperature": 1}) if step == 2 else None

    model = ScriptedModel([reply(call("c1")), reply("done")])
    result = await completed(start(model, options=hooked("prepare_turn", either(kind, prepare))))
    assert results(result.messages) == [("c1", "3", False), ("c2", "12", False)]
    (request,) = other.requests
    assert [(schema.name) for schema in request.tools] == ["multiply"]
    assert (request.id, request.settings) == ("request-002", {"temperature": 1})
    assert [[schema.name for schema in item.tools] for item in model.requests] == [["add", "fail"]] * 2


async def test_tools_of_a_turn_that_grow_are_seen() -> None:
    tools = [add]

    @tool
    async def late() -> str:
        return "here"

    def prepare(step: int) -> TurnSettings:
        if step == 2:
            tools.append(late)
        return TurnSettings(tools=tools)

    items = [reply(call("c1", "late", {})), reply(call("c2", "late", {})), reply("done")]
    result = await completed(start(items, options=hooked("prepare_turn", prepare)))
    assert [item[2] for item in results(result.messages)] == [True, False]


@pytest.mark.parametrize(
    "answer", ["fast", TurnSettings(tools=[add, add]), TurnSettings(model=cast("Any", 5))], ids=["text", "two", "model"]
)
async def test_settings_that_make_no_sense_fail_the_run_with_the_hooks_name(answer: object) -> None:
    model = ScriptedModel([reply("never")])
    result = await failed(start(model, options=hooked("prepare_turn", always(answer))), "AGENT_STATE_FAILED")
    assert result.error.message.startswith("the hook prepare_turn failed: ")
    assert model.call_count == 0


@BOTH
async def test_a_run_may_be_stopped_after_a_turn(kind: str) -> None:
    seen: list[list[str]] = []

    def stops(messages: Sequence[Message]) -> bool:
        seen.append(roles(messages))
        return len(messages) > 4

    items = [reply(call("c1")), reply(call("c2")), reply("never")]
    result = await limited(start(items, options=hooked("should_stop", either(kind, stops))), "should_stop")
    assert len(result.messages) == 5
    assert seen == [["user", *["assistant", "tool_result"] * count] for count in (1, 2)]


async def test_a_response_that_ends_the_run_is_completed_though_it_should_stop() -> None:
    result = await completed(start([reply("done")], options=hooked("should_stop", always(answer=True))))
    assert result.final_text == "done"


# Hooks that fail.

NAMES = ("prepare_turn", "transform_context", "should_stop")


@BOTH
@pytest.mark.parametrize("error", [ValueError("oh"), asyncio.CancelledError("oh")], ids=repr)
@pytest.mark.parametrize("name", NAMES)
async def test_a_hook_that_raises_fails_the_run_with_its_name(name: str, error: BaseException, kind: str) -> None:
    def raises(*_: object) -> object:
        raise error

    stream = start([reply(call()), reply("x")], options=hooked(name, either(kind, raises)))
    result = await failed(stream, "AGENT_STATE_FAILED")
    assert result.error.message.startswith(f"the hook {name} failed: ")
    assert roles(result.messages) == ["user"]
    if name == "should_stop":
        assert states(result) == {"c1": "finished"}


@BOTH
@pytest.mark.parametrize("error", [ValueError("oh"), asyncio.CancelledError("oh")], ids=repr)
@pytest.mark.parametrize("name", ["before_tool_call", "after_tool_call"])
async def test_a_tool_hook_that_raises_is_an_error_result_of_its_call(
    name: str, error: BaseException, kind: str
) -> None:
    def raises(given: ToolCall, *_: object) -> None:
        if given.id == "c1":
            raise error

    stream = start([reply(call("c1"), call("c2")), reply("done")], options=hooked(name, either(kind, raises)))
    first, second = results((await completed(stream)).messages)
    assert first[2]
    assert str(first[1]).startswith(f"the hook {name} failed: ")
    assert second == ("c2", "3", False)


@pytest.mark.parametrize("name", [*NAMES, "before_tool_call", "after_tool_call"])
async def test_a_hook_that_hangs_ends_with_the_cancellation_and_its_turn_is_not_adopted(name: str) -> None:
    signal, hanging = CancelSignal(), asyncio.Event()

    async def hangs(*_: object) -> None:
        hanging.set()
        await asyncio.Event().wait()

    stream = start([reply(call()), reply("x")], options=hooked(name, hangs), signal=signal)
    await hanging.wait()
    signal.cancel("enough")
    result = await cancelled(stream)
    assert roles(result.messages) == ["user"]
