"""Steering and following up: where messages enter, and that none is lost."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from checkrein import Agent, AgentMessageLimitError, AgentOptions
from checkrein.agent.inbox import Queued
from checkrein.errors import ModelError
from checkrein.kernel.agent import AgentLimits
from checkrein.loop.events import AgentEvent, MessageAccepted
from checkrein.messages import AssistantMessage, Message, Text, UserMessage
from checkrein.ports.tool import CancelSignal
from checkrein.testing.scripted import ScriptedModel, reply
from tests.unit.loop.scene import (
    HELLO,
    Gate,
    add,
    call,
    cancelled,
    completed,
    failed,
    gated,
    limited,
    of,
    roles,
)

SAID = AssistantMessage("a1", (Text("hi"),))


def words(agent: Agent) -> list[str]:
    return [str(item.content) for item in agent.messages if isinstance(item, UserMessage)]


def on(kind: str, act: Callable[[], object]) -> Callable[[AgentEvent, CancelSignal], None]:
    """Return a listener that acts once, at the first event of a kind."""
    done: list[object] = []

    def listener(event: AgentEvent, _signal: CancelSignal) -> None:
        if event.type == kind and not done:
            done.append(act())

    return listener


async def test_queueing_returns_the_very_message_that_enters_the_transcript() -> None:
    agent = Agent(model=ScriptedModel([reply("one"), reply("two"), reply("three")]))
    steered, followed = agent.steer("now"), agent.follow_up("later")
    assert agent.queued == Queued((steered,), (followed,))
    assert (list(agent.queued), agent.queued[1], steered in agent.queued) == ([steered, followed], followed, True)
    stream = agent.prompt("Hi")
    await completed(stream)
    assert agent.messages[1] is steered
    assert agent.messages[3] is followed
    assert [event.message for event in of(stream, MessageAccepted)][1:] == [steered, followed]


async def test_steering_queued_while_idle_joins_right_after_the_prompt_and_is_decided_inside_the_call() -> None:
    model = ScriptedModel([reply("one"), reply("two")])
    agent = Agent(model=model)
    first = agent.steer("first")
    stream = agent.prompt("Hi")
    second = agent.steer("second")
    assert agent.messages[1:] == (first,)
    await completed(stream)
    assert [len(request.messages) for request in model.requests] == [2, 4]
    assert agent.messages[3] == second


async def test_steering_enters_at_the_boundary_of_a_finished_turn_one_per_boundary() -> None:
    gate = Gate()
    model = ScriptedModel([reply(call("c1", "waits", {}), call("c2")), reply(call("c3")), reply("done")])
    agent = Agent(model=model, tools=[add, gated("waits", gate.wait)])
    stream = agent.prompt("go")
    await gate.begun.wait()
    agent.steer("one")
    agent.steer("two")
    assert words(agent) == ["go"]
    gate.release.set()
    await completed(stream)
    tool = ["assistant", "tool_result"]
    assert roles(agent.messages) == ["user", *tool, "tool_result", "user", *tool, "user", "assistant"]
    assert words(agent) == ["go", "one", "two"]


async def test_steering_is_looked_at_before_a_run_would_complete_and_before_a_follow_up() -> None:
    agent = Agent(model=ScriptedModel([reply("1"), reply("2"), reply("3")]))
    stream = agent.prompt("go")
    agent.follow_up("later")
    agent.steer("now")
    await completed(stream)
    assert words(agent) == ["go", "now", "later"]
    assert roles(agent.messages) == ["user", "assistant"] * 3


async def test_a_follow_up_enters_only_when_the_run_would_end() -> None:
    model = ScriptedModel([reply(call()), reply(call()), reply("end"), reply("end again")])
    agent = Agent(model=model, tools=[add])
    agent.follow_up("later")
    await completed(agent.prompt("go"))
    assert [len(request.messages) for request in model.requests] == [1, 3, 5, 7]
    assert words(agent) == ["go", "later"]


async def test_every_item_stays_a_message_of_its_own() -> None:
    agent = Agent(model=ScriptedModel([reply(str(number)) for number in range(4)]))
    for text in ("a", "b", "a"):
        agent.follow_up(text)
    await completed(agent.prompt("go"))
    assert words(agent) == ["go", "a", "b", "a"]
    assert len({message.id for message in agent.messages}) == 8


# No step left.


async def test_with_no_step_left_a_turn_with_tools_ends_at_the_limit_and_the_queue_is_kept() -> None:
    agent = Agent(model=ScriptedModel([reply(call())]), tools=[add], max_steps=1)
    stream = agent.prompt("go")
    steered, followed = agent.steer("now"), agent.follow_up("later")
    await limited(stream)
    assert agent.queued == Queued((steered,), (followed,))


async def test_with_no_step_left_a_response_that_would_stop_completes_and_the_queue_is_kept() -> None:
    agent = Agent(model=ScriptedModel([reply("done")]), max_steps=1)
    stream = agent.prompt("go")
    steered, followed = agent.steer("now"), agent.follow_up("later")
    assert (await completed(stream)).final_text == "done"
    assert agent.queued == Queued((steered,), (followed,))


# Nothing is lost.


@pytest.mark.parametrize("how", ["cancelled", "failed", "limit", "raising listener"])
async def test_no_way_out_loses_a_queued_message(how: str) -> None:
    gate = Gate()
    items = [reply(call("c1", "waits", {})), ModelError("no") if how == "failed" else reply(call()), reply("x")]
    agent = Agent(
        model=ScriptedModel(items), tools=[add, gated("waits", gate.wait)], max_steps=1 if how == "limit" else 64
    )
    if how == "raising listener":
        agent.subscribe(lambda _event, _signal: 1 / 0)
    stream = agent.prompt("go")
    await gate.begun.wait()
    said = {agent.steer("s1").id, agent.steer("s2").id, agent.follow_up("f1").id}
    if how == "cancelled":
        agent.cancel()
    gate.release.set()
    await stream
    kept = {item.id for item in (*agent.queued.steering, *agent.queued.follow_up)}
    entered = {item.id for item in agent.messages}
    assert said <= kept | entered
    assert not kept & entered


async def test_what_is_left_after_a_run_comes_before_what_is_queued_later() -> None:
    gate = Gate()
    model = ScriptedModel([reply(call("c1", "waits", {})), *(reply(str(number)) for number in range(3))])
    agent = Agent(model=model, tools=[gated("waits", gate.wait)])
    stream = agent.prompt("go")
    await gate.begun.wait()
    agent.steer("first")
    agent.cancel()
    await cancelled(stream)
    agent.steer("second")
    assert [item.content for item in agent.queued.steering] == ["first", "second"]
    await completed(agent.prompt("again"))
    assert words(agent) == ["go", "again", "first", "second"]


async def test_clearing_gives_back_what_was_removed() -> None:
    agent = Agent(model=ScriptedModel([reply("ok")]))
    steered, followed = agent.steer("now"), agent.follow_up("later")
    assert agent.clear_queue() == Queued((steered,), (followed,))
    assert agent.clear_queue() == agent.queued == Queued()
    await completed(agent.prompt("go"))
    assert words(agent) == ["go"]


async def test_queueing_from_a_listener_counts_for_the_next_boundary() -> None:
    agent = Agent(model=ScriptedModel([reply("one"), reply("two")]))
    agent.subscribe(on("model.chunk", lambda: agent.steer("heard")))
    await completed(agent.prompt("go"))
    assert words(agent) == ["go", "heard"]


async def test_queueing_when_the_end_is_told_waits_for_the_next_run() -> None:
    agent = Agent(model=ScriptedModel([reply("one"), reply("two")]))
    agent.subscribe(on("run.finished", lambda: agent.follow_up("late")))
    await completed(agent.prompt("go"))
    assert (words(agent), [item.content for item in agent.queued.follow_up]) == (["go"], ["late"])
    await completed(agent.continue_())


# All at once.


async def test_a_queue_may_be_accepted_all_at_once() -> None:
    model = ScriptedModel([reply("one"), reply("two"), reply("three")])
    agent = Agent(model=model, options=AgentOptions(steering_mode="all", follow_up_mode="all"))
    stream = agent.prompt("go")
    for text in ("s1", "s2"):
        agent.steer(text)
    for text in ("f1", "f2"):
        agent.follow_up(text)
    await completed(stream)
    assert roles(agent.messages) == ["user", "assistant", "user", "user", "assistant", "user", "user", "assistant"]
    assert words(agent) == ["go", "s1", "s2", "f1", "f2"]


async def test_all_steering_joins_a_prompt_and_all_of_one_queue_a_continuation() -> None:
    agent = Agent(model=ScriptedModel([reply("one"), reply("two")]), options=AgentOptions(steering_mode="all"))
    for text in ("s1", "s2"):
        agent.steer(text)
    await completed(agent.prompt("go"))
    for text in ("s3", "s4"):
        agent.steer(text)
    await completed(agent.continue_())
    assert words(agent) == ["go", "s1", "s2", "s3", "s4"]


# Capacity, on a small house.


def small(agent: Agent, messages: int, *, queued: int = 256, blocks: int = 2) -> Agent:
    """Give an agent less room."""
    conversation = agent._conversation  # pyright: ignore[reportPrivateUsage]  the same machine, with less room
    conversation.state = replace(conversation.state, limits=AgentLimits(messages, queued, blocks))
    return agent


def history(count: int) -> list[Message]:
    return [HELLO, SAID] * (count // 2)


async def test_a_prompt_that_cannot_fit_is_refused_with_its_code_and_changes_nothing() -> None:
    agent = small(Agent(model=ScriptedModel(), messages=history(4)), 5)
    with pytest.raises(AgentMessageLimitError, match="a prompt does not fit: 4 messages of at most 5") as caught:
        agent.prompt("go", request_id="r1")
    assert (caught.value.code, agent.messages, agent.is_running) == ("AGENT_MESSAGE_LIMIT", tuple(history(4)), False)
    with pytest.raises(AgentMessageLimitError):
        agent.prompt("other", request_id="r1")


async def test_a_prompt_at_the_border_and_its_answer_fill_the_transcript() -> None:
    agent = small(Agent(model=ScriptedModel([reply("ok")]), messages=history(4)), 6)
    await completed(agent.prompt("go"))
    assert len(agent.messages) == 6
    with pytest.raises(AgentMessageLimitError):
        agent.steer("more")


async def test_what_is_queued_while_idle_fits_with_an_answer_for_each() -> None:
    agent = small(Agent(model=ScriptedModel([reply("one"), reply("two")]), messages=history(4)), 8)
    agent.follow_up("one")
    agent.follow_up("two")
    with pytest.raises(AgentMessageLimitError, match="the message does not fit"):
        agent.follow_up("three")
    with pytest.raises(AgentMessageLimitError, match="a prompt does not fit"):
        agent.prompt("go")
    await completed(agent.continue_())
    assert (len(agent.messages), len(agent.queued)) == (8, 0)


async def test_going_on_that_cannot_fit_is_refused() -> None:
    agent = Agent(model=ScriptedModel(), messages=[*history(4), HELLO])
    agent.follow_up("later")
    small(agent, 7)
    with pytest.raises(AgentMessageLimitError, match="going on does not fit"):
        agent.continue_()


async def test_what_is_queued_during_a_turn_enters_after_the_largest_turn_there_may_be() -> None:
    gate = Gate()
    largest = reply(call("c1", "waits", {}), call("c2"))
    agent = Agent(model=ScriptedModel([largest, reply("done")]), tools=[add, gated("waits", gate.wait)])
    small(agent, 6)
    stream = agent.prompt("go")
    await gate.begun.wait()
    agent.steer("one")
    agent.steer("two")
    with pytest.raises(AgentMessageLimitError):
        agent.steer("three")
    gate.release.set()
    await failed(stream, "AGENT_MESSAGE_LIMIT")
    assert words(agent) == ["go", "one"]
    assert [item.content for item in agent.queued.steering] == ["two"]
    assert len(agent.messages) == 5


async def test_a_later_turn_that_does_not_fit_beside_the_queue_fails_before_any_body_and_keeps_it() -> None:
    ran: list[int] = []
    gate = Gate()

    async def counts() -> str:
        ran.append(1)
        return ""

    items = [reply(call("c1", "waits", {})), reply(call("c2", "counts", {}), call("c3", "counts", {}))]
    agent = Agent(model=ScriptedModel(items), tools=[gated("waits", gate.wait), gated("counts", counts)], max_steps=10)
    small(agent, 6)
    stream = agent.prompt("go")
    await gate.begun.wait()
    later = agent.follow_up("later")
    gate.release.set()
    result = await failed(stream, "AGENT_MESSAGE_LIMIT")
    assert (ran, agent.queued.follow_up, len(result.messages)) == ([], (later,), 3)
    assert result.unadopted_calls == ()


async def test_at_most_256_messages_are_queued() -> None:
    agent = Agent(model=ScriptedModel())
    for number in range(256):
        agent.follow_up(str(number))
    with pytest.raises(AgentMessageLimitError, match="256 queued of at most 256"):
        agent.steer("one too many")
