import asyncio
from typing import Any, cast

import pytest

from checkrein.errors import DataError, FatalToolError
from checkrein.kernel import agent as kernel
from checkrein.loop.engine import Engine
from checkrein.loop.events import Cancelled, Completed, Failed, MaxSteps, MessageAccepted, ToolFinished, ToolStarted
from checkrein.loop.options import LoopOptions, ModelLimits, Retry
from checkrein.loop.run import run_agent_loop
from checkrein.messages import AssistantMessage, Message, Text, ToolCall, ToolResult, Transcript, Usage, UserMessage
from checkrein.ports.tool import CancelSignal
from checkrein.testing.scripted import ScriptedModel, reply
from checkrein.tools.function import tool
from checkrein.tools.registry import ToolRegistry
from checkrein.values import JsonObject
from tests.unit.loop.scene import (
    HELLO,
    Gate,
    add,
    call,
    cancelled,
    completed,
    fail,
    failed,
    gated,
    limited,
    of,
    results,
    roles,
    start,
    states,
    types,
)


async def test_a_plain_run_tells_of_its_messages_chunks_and_tools_and_ends() -> None:
    stream = start([reply("adding", call()), reply("three")])
    result = await completed(stream)
    assert result.final_text == "three"
    assert roles(result.messages) == ["user", "assistant", "tool_result", "assistant"]
    assert types(stream) == [
        "message.accepted",
        "model.chunk",
        "model.chunk",
        "tool.started",
        "tool.finished",
        "model.chunk",
        "run.finished",
    ]
    assert [event.sequence for event in stream] == list(range(7))
    assert {event.run_id for event in stream} == {result.run_id}


async def test_user_messages_at_the_end_of_the_transcript_are_the_first_events() -> None:
    messages = (HELLO, AssistantMessage("a1", (Text("hi"),)), UserMessage("u2", "and"), UserMessage("u3", "so"))
    stream = start([reply("done")], messages=messages)
    await stream
    assert [event.message for event in of(stream, MessageAccepted)] == list(messages[2:])


async def test_requests_are_numbered_within_the_run_and_carry_messages_tools_and_settings() -> None:
    model = ScriptedModel([reply(call()), reply("done")])
    options = LoopOptions(request_sequence_start=7, settings=JsonObject({"temperature": 0}))
    await run_agent_loop(messages=[HELLO], model=model, tools=[add], options=options)
    first, second = model.requests
    assert (first.id, second.id) == ("request-007", "request-008")
    assert (len(first.messages), len(second.messages)) == (1, 3)
    assert [(schema.name, schema.parameters["required"]) for schema in first.tools] == [("add", ["a", "b"])]
    assert (first.settings, second.settings) == ({"temperature": 0}, {"temperature": 0})


# What is captured, and what is refused at once.


async def test_messages_model_and_tools_are_captured_when_the_loop_is_called() -> None:
    messages: list[Message] = [HELLO]
    registry = ToolRegistry([add])
    model = ScriptedModel([reply(call("c1", "fail", {})), reply("done")])
    stream = run_agent_loop(messages=messages, model=model, tools=registry)
    registry.register(fail)
    messages.append(UserMessage("u2", "late"))
    model.stream = cast("Any", None)
    result = await completed(stream)
    assert result.messages[0] == HELLO
    assert len(result.messages) == 4
    assert results(result.messages) == [("c1", "there is no tool 'fail'; there are: add", True)]


@pytest.mark.parametrize("max_steps", [0, -1, True, 1.5, "3", None])
async def test_a_step_limit_that_is_no_positive_whole_number_raises_at_once(max_steps: object) -> None:
    with pytest.raises(ValueError, match="max_steps is a whole number from 1"):
        start([reply("x")], max_steps=cast("int", max_steps))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"request_sequence_start": 0}, "request_sequence_start"),
        ({"request_sequence_start": 1.0}, "request_sequence_start"),
        ({"tool_execution": "both"}, "tool_execution"),
        ({"retry": Retry(attempts=0)}, "retry.attempts"),
        ({"retry": Retry(first_seconds=-1.0)}, "retry.first_seconds"),
        ({"retry": Retry(max_seconds=float("inf"))}, "retry.max_seconds"),
        ({"retry": Retry(factor=float("nan"))}, "retry.factor"),
        ({"idle_timeout_seconds": 0}, "idle_timeout_seconds"),
        ({"idle_timeout_seconds": float("nan")}, "idle_timeout_seconds"),
        ({"grace_seconds": -1}, "grace_seconds"),
        ({"grace_seconds": "5"}, "grace_seconds"),
        ({"repeat_limit": 0}, "repeat_limit"),
        ({"max_buffered_deltas": -1}, "max_buffered_deltas"),
        ({"limits": ModelLimits(content_blocks=0)}, "limits.content_blocks"),
    ],
)
def test_an_option_that_makes_no_sense_raises_at_once_with_its_name(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} is "):
        LoopOptions(**options)


async def test_tools_that_are_none_or_have_one_name_raise_at_once() -> None:
    with pytest.raises(DataError, match="is no tool"):
        start([reply("x")], tools=cast("Any", [add.function]))
    with pytest.raises(DataError, match="there is a tool 'add' already"):
        start([reply("x")], tools=[add, add])


async def test_a_tool_without_a_schema_raises_at_once() -> None:
    async def loose(value: object) -> str:
        return str(value)

    del loose.__annotations__["value"]
    with pytest.raises(TypeError, match="parameter value of loose has no annotation"):
        start([reply("x")], tools=[tool(loose)])


def test_a_loop_needs_a_running_event_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        start([reply("x")])


@pytest.mark.parametrize(
    "messages",
    [
        [AssistantMessage("a", (call(),))],
        [HELLO, ToolResult("r", "c9", "add", "x")],
        ["text"],
    ],
)
async def test_an_invalid_transcript_is_a_failed_run_that_asks_no_model(messages: list[Message]) -> None:
    model = ScriptedModel()
    stream = start(model, messages=messages)
    await failed(stream, "INVALID_TRANSCRIPT")
    assert (model.call_count, types(stream)) == (0, ["run.finished"])


# Turns and steps.


async def test_calls_run_in_the_order_of_the_response_and_each_has_one_result() -> None:
    order: list[str] = []

    @tool
    async def note(name: str) -> str:
        order.append(name)
        return name

    calls = [call(f"c{name}", "note", {"name": name}) for name in "abc"]
    result = await completed(start([reply(*calls), reply("done")], tools=[note]))
    assert order == ["a", "b", "c"]
    assert results(result.messages) == [("ca", "a", False), ("cb", "b", False), ("cc", "c", False)]


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_the_step_limit_counts_model_requests_and_finishes_the_last_batch(limit: int) -> None:
    model = ScriptedModel([reply(call(f"c{number}")) for number in range(limit)])
    result = await limited(start(model, max_steps=limit))
    assert (model.call_count, model.remaining, result.max_steps) == (limit, 0, limit)
    assert len(results(result.messages)) == limit


async def test_a_call_id_may_come_again_in_a_later_turn() -> None:
    result = await completed(start([reply(call("c1")), reply(call("c1")), reply("done")]))
    assert results(result.messages) == [("c1", "3", False), ("c1", "3", False)]


async def test_two_calls_with_one_id_are_a_protocol_error_before_any_body() -> None:
    ran: list[int] = []

    @tool
    async def note() -> str:
        ran.append(1)
        return ""

    stream = start([reply(call("c1", "note", {}), call("c1", "note", {}))], tools=[note])
    result = await failed(stream, "MODEL_PROTOCOL_ERROR")
    assert (ran, roles(result.messages)) == ([], ["user"])


async def test_a_turn_that_does_not_fit_fails_before_any_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkrein.loop.run.MAX_MESSAGES", 4)
    fitting = await start([reply(call("c1"), call("c2")), reply("x")])
    assert isinstance(fitting, Failed)
    assert len(fitting.messages) == 4, "a turn that fills the transcript fits"
    assert fitting.error.message == "the transcript has no room for another response"
    stream = start([reply(call("c1"), call("c2"), call("c3"))])
    result = await failed(stream, "AGENT_MESSAGE_LIMIT")
    assert (roles(result.messages), of(stream, ToolStarted)) == (["user"], [])
    assert kernel.MAX_MESSAGES == 4096


# Tools that do not give a result.


async def test_a_tool_that_is_unknown_is_given_bad_arguments_or_raises_gives_an_error_result_and_the_run_goes_on() -> (
    None
):
    calls = (call("c1", "nobody", {}), call("c2", "add", {"a": "x", "b": 1}), call("c3", "fail", {"text": "broken"}))
    stream = start([reply(*calls), reply("done")])
    result = await completed(stream)
    answers = results(result.messages)
    assert answers[0] == ("c1", "there is no tool 'nobody'; there are: add, fail", True)
    assert answers[1] == ("c2", 'invalid arguments for add: /a: expected an integer, got the text "x"', True)
    assert answers[2] == ("c3", "ValueError: broken", True)
    assert [event.call_id for event in of(stream, ToolStarted)] == ["c3"]
    assert [event.call_id for event in of(stream, ToolFinished)] == ["c1", "c2", "c3"]


async def test_malformed_arguments_get_a_short_echo_and_the_schema_and_their_siblings_run() -> None:
    bad = ToolCall.parsed("c1", "add", '{"a": ' + "9" * 500)
    result = await completed(start([reply(bad, call("c2")), reply("done")]))
    (first, second) = results(result.messages)
    text = str(first[1])
    assert text.startswith('the arguments of add are no JSON object: {"a": 999')
    assert '"required":["a","b"]' in text
    assert len(text) < 800
    assert (first[2], second) == (True, ("c2", "3", False))


async def test_three_batches_in_a_row_with_only_invalid_arguments_end_the_run() -> None:
    bad = call("c1", "add", {})
    result = await failed(start([reply(bad), reply(bad), reply(bad)]), "TOOL_ARGUMENTS_LOOP")
    assert (states(result), len(result.messages)) == ({"c1": "failed"}, 5)


async def test_a_batch_with_one_valid_call_begins_the_count_anew() -> None:
    bad = call("c1", "add", {})
    items = [reply(bad), reply(bad), reply(bad, call("c2")), reply(bad), reply(bad), reply("done")]
    await completed(start(items))


async def test_a_call_of_an_unknown_tool_has_no_invalid_arguments() -> None:
    await completed(start([*(reply(call("c1", "nobody", {})) for _ in range(4)), reply("done")]))


async def test_a_fatal_error_ends_the_run_and_lists_the_calls_of_its_turn() -> None:
    @tool
    async def explode() -> str:
        msg = "the disk is gone"
        raise FatalToolError(msg)

    stream = start([reply(call("c1"), call("c2", "explode", {}), call("c3"))], tools=[add, explode])
    result = await failed(stream, "TOOL_EXECUTION_FAILED")
    assert result.error.message == "the disk is gone"
    assert states(result) == {"c1": "finished", "c2": "failed", "c3": "not_started"}
    assert [item.result.content if item.result else None for item in result.unadopted_calls] == [
        "3",
        "the disk is gone",
        None,
    ]
    assert roles(result.messages) == ["user"]


async def test_a_tool_that_times_out_gives_an_error_result_and_the_run_goes_on() -> None:
    gate = Gate()

    @tool(timeout_seconds=0.01, idempotent=True)
    async def slow() -> str:
        return await gate.wait()

    result = await completed(start([reply(call("c1", "slow", {})), reply("done")], tools=[slow]))
    assert results(result.messages) == [("c1", "slow did not end within 0.01 s", True)]
    assert gate.was_cancelled


# Ends.


async def test_every_end_has_its_status_run_id_usage_and_cost() -> None:
    usage = Usage(10, 5, 2, cost=0.5)
    done = await start([reply(call(), usage=usage), reply("x", usage=usage)])
    assert isinstance(done, Completed)
    assert (done.status, done.usage, done.cost) == ("completed", Usage(20, 10, 4, 1.0), 1.0)
    stopped = await start([reply(call(), usage=usage)], max_steps=1)
    assert isinstance(stopped, MaxSteps)
    assert (stopped.status, stopped.usage, stopped.cost) == ("max_steps", usage, 0.5)
    broken = await start([reply(usage=usage)])
    assert isinstance(broken, Failed)
    assert (broken.status, broken.error.code, broken.usage) == ("failed", "MODEL_EMPTY", usage)
    assert len({done.run_id, stopped.run_id, broken.run_id}) == 3


async def test_the_cost_is_unknown_once_that_of_a_response_is() -> None:
    known, unknown = Usage(1, 1, cost=0.1), Usage(2, 2)
    result = await start([reply(call(), usage=known), reply(call(), usage=unknown), reply("x", usage=known)])
    assert (result.usage.total_tokens, result.cost) == (8, None)


async def test_a_run_without_usage_cost_nothing() -> None:
    assert (await start([reply("x")])).cost == 0.0


async def test_the_transcript_of_a_result_is_immutable_and_taken_over_without_copying() -> None:
    first = await start([reply(call()), reply("done")])
    assert isinstance(first.messages, Transcript)
    before = tuple(first.messages)
    second = await start([reply("more")], messages=first.messages)
    assert first.messages == before
    assert second.messages[:4] == before
    assert cast("Any", second.messages)._items is cast("Any", first.messages)._items


async def test_a_run_that_ended_gives_one_result_and_nothing_after_it() -> None:
    stream = start([reply("done")])
    assert await stream is await stream
    assert types(stream).count("run.finished") == 1
    assert stream[-1].type == "run.finished"


# Cancelling a loop by its signal.


async def test_setting_the_signal_cancels_the_run_and_drops_the_turn_in_progress() -> None:
    gate, signal = Gate(), CancelSignal()
    items = [reply(call("c1")), reply(call("c2"), call("c3", "waits", {}), call("c4"))]
    stream = start(items, tools=[add, gated("waits", gate.wait)], signal=signal)
    await gate.begun.wait()
    signal.cancel("enough")
    result = await cancelled(stream)
    assert (result.reason, roles(result.messages)) == ("enough", ["user", "assistant", "tool_result"])
    assert states(result) == {"c2": "finished", "c3": "outcome_unknown", "c4": "not_started"}
    assert gate.was_cancelled


async def test_a_signal_that_is_set_already_ends_the_run_before_the_model_is_asked() -> None:
    signal, model = CancelSignal(), ScriptedModel()
    signal.cancel("no")
    result = await cancelled(start(model, signal=signal))
    assert (result.reason, model.call_count, list(result.messages)) == ("no", 0, [HELLO])


async def test_a_signal_of_many_runs_keeps_no_reference_to_those_that_ended() -> None:
    signal = CancelSignal()
    for _ in range(3):
        await completed(start([reply("done")], signal=signal))
    assert signal._callbacks == {}  # pyright: ignore[reportPrivateUsage]


async def test_a_run_whose_task_is_cancelled_before_it_began_ends_cancelled() -> None:
    stream = start([reply("done")])
    before = asyncio.current_task()
    for task in asyncio.all_tasks():
        if task is not before:
            task.cancel()
    result = await stream
    assert isinstance(result, Cancelled)
    assert types(stream) == ["run.finished"]


async def test_an_error_of_our_own_is_a_failed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_engine: Engine, _transcript: Transcript, _room: int) -> None:
        msg = "a bug"
        raise RuntimeError(msg)

    monkeypatch.setattr(Engine, "step", broken)
    result = await failed(start([reply("x")]), "AGENT_STATE_FAILED")
    assert result.error.message == "RuntimeError: a bug"
