"""Prompting, continuing, and the guards around both."""

import asyncio
from typing import Any, cast

import pytest

from checkrein import Agent, AgentBusyError, AgentHooks, AgentOptions, AgentStateError
from checkrein.errors import ModelError
from checkrein.loop.events import AgentEvent, Completed, MessageAccepted, RunFinished
from checkrein.loop.options import ModelLimits
from checkrein.messages import AssistantMessage, Message, Text, ToolResult, Transcript, UserMessage
from checkrein.ports.tool import CancelSignal
from checkrein.testing.scripted import ScriptedModel, reply
from checkrein.tools.registry import ToolRegistry
from tests.unit.loop.scene import (
    HELLO,
    Gate,
    Held,
    add,
    call,
    completed,
    fail,
    failed,
    gated,
    limited,
    of,
    results,
    roles,
    turns,
    types,
)

SAID = AssistantMessage("a1", (Text("hi"),))


async def test_a_prompt_appends_one_user_message_and_starts_one_run() -> None:
    agent = Agent(model=ScriptedModel([reply("Hello.")]))
    stream = agent.prompt("Hi")
    assert agent.is_running
    assert agent.messages == (UserMessage("agent-user-000001", "Hi"),)
    events = [event async for event in stream]
    result = await stream
    assert isinstance(result, Completed)
    assert result.final_text == "Hello."
    assert [event.type for event in events] == ["message.accepted", "model.chunk", "run.finished"]
    assert [event.sequence for event in events] == [0, 1, 2]
    assert roles(agent.messages) == ["user", "assistant"]
    assert not agent.is_running


async def test_ids_of_user_messages_go_on_past_those_of_the_initial_ones() -> None:
    messages = (UserMessage("agent-user-000041", "x"), UserMessage("agent-user-7x", "y"), SAID)
    agent = Agent(model=ScriptedModel([reply("ok")]), messages=messages)
    await agent.prompt("next")
    assert agent.messages[3].id == "agent-user-000042"
    assert agent.steer("more").id == "agent-user-000043"


async def test_nothing_runs_before_the_call_has_returned() -> None:
    model, heard = ScriptedModel([reply("one"), reply("two")]), list[str]()
    agent = Agent(model=model)
    agent.subscribe(lambda event, _signal: heard.append(event.type))
    for begin in (lambda: agent.prompt("Hi"), agent.continue_):
        calls, count = model.call_count, len(heard)
        stream = begin()
        assert (model.call_count, len(heard), len(stream)) == (calls, count, 0)
        await stream
        agent.follow_up("and")


async def test_text_is_cleaned_at_the_door() -> None:
    agent = Agent(model=ScriptedModel([reply("ok")]), messages=[UserMessage("u", "\ud800")])
    await agent.prompt("a\ud800")
    assert [message.content for message in agent.messages[:2]] == ["\ufffd", "a\ufffd"]


@pytest.mark.parametrize("text", [None, 5, b"x", ["x"]])
async def test_what_is_no_text_is_refused_before_any_effect(text: object) -> None:
    agent = Agent(model=ScriptedModel([reply("ok")]))
    for speak in (agent.prompt, agent.steer, agent.follow_up):
        with pytest.raises(TypeError, match="is no text"):
            speak(cast("str", text))
    assert (agent.messages, len(agent.queued), agent.is_running) == ((), 0, False)
    assert agent.steer("fine").id == "agent-user-000001"


# What is captured on creation.


async def test_model_tools_and_messages_are_captured_on_creation() -> None:
    model, registry, messages = ScriptedModel([reply(call("c1", "fail", {})), reply("x")]), ToolRegistry([add]), [HELLO]
    agent = Agent(model=model, tools=registry, messages=iter(messages))
    registry.register(fail)
    messages.append(UserMessage("u2", "late"))
    model.stream = cast("Any", None)
    await agent.prompt("go")
    assert results(agent.messages) == [("c1", "there is no tool 'fail'; there are: add", True)]
    assert agent.messages[0] == HELLO


@pytest.mark.parametrize(
    "messages",
    [[ToolResult("r", "c1", "add", "x")], [AssistantMessage("a", (call(),))], ["text"], [HELLO] * 4097],
    ids=["orphan", "missing", "stranger", "too many"],
)
def test_invalid_initial_messages_raise(messages: list[Message]) -> None:
    with pytest.raises(ValueError, match="initial messages"):
        Agent(model=ScriptedModel(), messages=messages)


@pytest.mark.parametrize("max_steps", [0, True, 2.0])
def test_a_step_limit_that_is_no_positive_whole_number_raises(max_steps: object) -> None:
    with pytest.raises(ValueError, match="max_steps is a whole number from 1"):
        Agent(model=ScriptedModel(), max_steps=cast("int", max_steps))


def test_a_queue_mode_that_is_none_raises() -> None:
    with pytest.raises(ValueError, match="steering_mode is one-at-a-time or all"):
        AgentOptions(steering_mode=cast("Any", "some"))
    with pytest.raises(ValueError, match="repeat_limit is a whole number"):
        AgentOptions(repeat_limit=0)


async def test_hooks_of_their_own_replace_those_of_the_options() -> None:
    options = AgentOptions(hooks=AgentHooks(should_stop=lambda _messages: True))
    stopped = Agent(model=ScriptedModel([reply(call())]), tools=[add], options=options)
    await limited(stopped.prompt("go"), "should_stop")
    agent = Agent(model=ScriptedModel([reply(call()), reply("x")]), tools=[add], hooks=AgentHooks(), options=options)
    await completed(agent.prompt("go"))


async def test_views_are_immutable_and_made_afresh() -> None:
    agent = Agent(model=ScriptedModel([reply("ok")]))
    before, queued, errors = agent.messages, agent.queued, agent.subscriber_errors
    agent.follow_up("later")
    await agent.prompt("Hi")
    assert (before, len(queued), errors) == ((), 0, ())
    assert agent.messages is not agent.messages
    assert all(isinstance(view, tuple) for view in (agent.messages, agent.subscriber_errors, agent.queued.follow_up))


async def test_requests_and_results_share_the_transcript_without_copying_it() -> None:
    model = ScriptedModel([reply("one"), reply("two")])
    agent = Agent(model=model)
    first = await agent.prompt("Hi")
    kept = tuple(first.messages)
    second = await agent.prompt("again")
    assert (first.messages, len(second.messages)) == (kept, 4)
    request = model.requests[1].messages
    assert isinstance(request, Transcript)
    storages = {id(cast("Any", item)._items) for item in (first.messages, second.messages, request)}
    assert len(storages) == 1


# The busy guard.


async def test_a_second_run_is_refused_at_once_and_queues_nothing() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([held]))
    stream = agent.prompt("Hi")
    for begin in (lambda: agent.prompt("again"), agent.continue_):
        with pytest.raises(AgentBusyError, match=r"^Agent is already running$") as caught:
            begin()
        assert caught.value.code == "AGENT_BUSY"
    held.release.set()
    await stream
    assert (roles(agent.messages), len(agent.queued)) == (["user", "assistant"], 0)
    assert agent.steer("next").id == "agent-user-000002"


async def test_a_run_owns_the_transcript_until_its_end_was_told_and_no_longer() -> None:
    agent = Agent(model=ScriptedModel([reply("one"), reply("two")]))
    seen: list[str] = []

    def listener(event: AgentEvent, _signal: CancelSignal) -> None:
        if isinstance(event, RunFinished):
            with pytest.raises(AgentBusyError):
                agent.prompt("too early")
            seen.append("refused")

    agent.subscribe(listener)
    stream = agent.prompt("Hi")
    await stream
    assert seen == ["refused"]
    await agent.prompt("now")
    assert agent.subscriber_errors == ()


async def test_a_waiter_may_prompt_as_soon_as_it_has_the_result() -> None:
    agent = Agent(model=ScriptedModel([reply(str(number)) for number in range(50)]))

    async def waits_and_prompts(count: int) -> None:
        for _ in range(count):
            await agent.prompt("next")

    await waits_and_prompts(50)
    assert len(agent.messages) == 100


def test_prompting_without_an_event_loop_changes_nothing() -> None:
    agent = Agent(model=ScriptedModel([reply("x")]))
    agent.follow_up("later")
    for begin in (lambda: agent.prompt("Hi"), agent.continue_):
        with pytest.raises(RuntimeError, match="no running event loop"):
            begin()
    assert (agent.messages, len(agent.queued), agent.is_running) == ((), 1, False)


# Continuing.


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ((), "Cannot continue an empty transcript without queued work"),
        ((HELLO, SAID), "Cannot continue from an assistant message without queued work"),
    ],
    ids=["empty", "answered"],
)
async def test_there_is_nothing_to_continue_without_queued_work(messages: tuple[Message, ...], text: str) -> None:
    agent = Agent(model=ScriptedModel([reply("ok")]), messages=messages)
    with pytest.raises(AgentStateError, match=f"^{text}$") as caught:
        agent.continue_()
    assert (caught.value.code, agent.is_running, agent.messages) == ("AGENT_NOTHING_TO_CONTINUE", False, messages)
    agent.follow_up("go on")
    await completed(agent.continue_())
    assert roles(agent.messages)[-2:] == ["user", "assistant"]


async def test_continuing_answers_the_tail_and_leaves_follow_ups_for_the_end() -> None:
    model = ScriptedModel([reply("one"), reply("two")])
    agent = Agent(model=model, messages=[HELLO])
    later = agent.follow_up("later")
    await completed(agent.continue_())
    assert [len(request.messages) for request in model.requests] == [1, 3]
    assert agent.messages[2] == later


@pytest.mark.parametrize("messages", [(), (HELLO,), (HELLO, SAID)], ids=["empty", "open", "answered"])
async def test_continuing_takes_queued_steering_first(messages: tuple[Message, ...]) -> None:
    model = ScriptedModel([reply("one"), reply("two")])
    agent = Agent(model=model, messages=messages)
    later, now = agent.follow_up("later"), agent.steer("now")
    stream = agent.continue_()
    assert agent.messages == (*messages, now)
    await completed(stream)
    assert [event.message for event in of(stream, MessageAccepted)] == [now, later]


async def test_a_run_that_came_to_its_limit_is_continued() -> None:
    agent = Agent(model=ScriptedModel([reply(call()), reply("done")]), tools=[add], max_steps=1)
    await limited(agent.prompt("go"))
    assert roles(agent.messages) == ["user", "assistant", "tool_result"]
    await completed(agent.continue_())


# One run, one order.


async def test_a_run_of_several_turns_has_one_event_counter_one_request_counter_and_one_end() -> None:
    model = ScriptedModel([reply(call("c1")), reply("one"), reply(call("c2")), reply("two")])
    agent = Agent(model=model, tools=[add])
    agent.follow_up("and then")
    stream = agent.prompt("go")
    await completed(stream)
    assert [event.sequence for event in stream] == list(range(len(stream)))
    assert {event.run_id for event in stream} == {(await stream).run_id}
    assert [request.id for request in model.requests] == [f"request-00{number}" for number in range(1, 5)]
    assert types(stream).count("run.finished") == 1
    assert types(stream).count("message.accepted") == 2


async def test_the_step_limit_bounds_the_whole_run() -> None:
    agent = Agent(model=ScriptedModel([reply("one"), reply("two")]), max_steps=2)
    for text in ("b", "c"):
        agent.follow_up(text)
    result = await completed(agent.prompt("a"))
    assert (result.final_text, [item.content for item in agent.queued.follow_up]) == ("two", ["c"])


async def test_each_run_counts_its_requests_and_events_anew() -> None:
    model = ScriptedModel([reply("one"), reply("two")])
    agent = Agent(model=model)
    for _ in range(2):
        stream = agent.prompt("go")
        await stream
        assert (stream[0].sequence, model.requests[-1].id) == (0, "request-001")


# Requests that come again.


async def test_the_same_request_id_and_text_give_the_stream_of_the_first_run_while_it_runs_and_after() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([held, reply("two")]))
    stream = agent.prompt("Hi", request_id="r1")
    assert agent.prompt("Hi", request_id="r1") is stream
    held.release.set()
    await stream
    assert agent.prompt("Hi", request_id="r1") is stream
    assert len(agent.messages) == 2


async def test_a_request_id_with_another_text_is_refused_before_the_busy_guard() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([held]))
    stream = agent.prompt("Hi", request_id="r1")
    with pytest.raises(ValueError, match="'r1' was used with another text"):
        agent.prompt("Ho", request_id="r1")
    with pytest.raises(AgentBusyError):
        agent.prompt("Hi", request_id="r2")
    held.release.set()
    await stream
    assert agent.is_running is False


async def test_the_last_256_request_ids_are_remembered() -> None:
    agent = Agent(model=ScriptedModel([reply("ok") for _ in range(258)]))
    streams = {number: agent.prompt("Hi", request_id=str(number)) for number in range(1)}
    for number in range(257):
        if number:
            streams[number] = agent.prompt("Hi", request_id=str(number))
        await streams[number]
    assert agent.prompt("Hi", request_id="1") is streams[1]
    assert agent.prompt("Hi", request_id="256") is streams[256]
    forgotten = agent.prompt("Hi", request_id="0")
    assert forgotten is not streams[0]
    await forgotten


async def test_a_request_that_was_refused_is_not_remembered() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([held, reply("two")]))
    stream = agent.prompt("Hi")
    with pytest.raises(AgentBusyError):
        agent.prompt("Hi", request_id="r1")
    held.release.set()
    await stream
    assert (await completed(agent.prompt("Hi", request_id="r1"))).final_text == "two"


# Settling.


@pytest.mark.parametrize("how", ["completed", "cancelled", "max_steps", "failed", "internal error"])
async def test_on_every_way_out_the_owner_is_cleared_and_a_later_call_works(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    first = {
        "completed": reply("ok"),
        "cancelled": reply(call("c1", "waits", {})),
        "max_steps": reply(call()),
        "failed": ModelError("no"),
        "internal error": reply("ok"),
    }[how]
    agent = Agent(
        model=ScriptedModel([first, *(reply("after") for _ in range(3))]),
        tools=[add, gated("waits", gate.wait)],
        max_steps=1,
    )
    with monkeypatch.context() as patch:
        if how == "internal error":
            patch.setattr(type(agent._conversation), "finish", _broken)  # pyright: ignore[reportPrivateUsage]
        stream = agent.prompt("go")
        if how == "cancelled":
            await gate.begun.wait()
            assert agent.cancel()
        result = await stream
    expected = {"internal error": "failed"}.get(how, how)
    assert (result.status, agent.is_running, types(stream)[-1]) == (expected, False, "run.finished")
    if how == "internal error":
        await failed(stream, "AGENT_STATE_FAILED")
    await completed(agent.prompt("again"))


def _broken(*_: object) -> None:
    msg = "a bug"
    raise RuntimeError(msg)


async def test_what_a_response_may_hold_follows_the_options() -> None:
    options = AgentOptions(limits=ModelLimits(content_blocks=2))
    agent = Agent(model=ScriptedModel([reply("a", "b", "c")]), options=options)
    await failed(agent.prompt("go"), "MODEL_LIMIT")


async def test_of_several_tasks_that_prompt_one_gets_the_run_and_the_others_are_refused() -> None:
    agent = Agent(model=ScriptedModel([reply("ok")]))
    outcomes: list[str] = []

    async def tries() -> None:
        try:
            await agent.prompt("me")
            outcomes.append("ran")
        except AgentBusyError:
            outcomes.append("refused")

    await asyncio.gather(*(tries() for _ in range(5)))
    await turns()
    assert sorted(outcomes) == ["ran", *["refused"] * 4]
