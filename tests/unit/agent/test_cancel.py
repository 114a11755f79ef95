"""Cancelling: when it is accepted, what it drops, and what it leaves behind."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from checkrein import Agent, AgentHooks, AgentOptions
from checkrein.loop.events import AgentEvent
from checkrein.messages import ToolCall
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse, TextDelta
from checkrein.ports.tool import CancelSignal, ToolContext
from checkrein.testing.manual_clock import ManualClock
from checkrein.testing.scripted import ScriptedModel, reply
from checkrein.tools.function import tool
from tests.unit.loop.scene import (
    Gate,
    Held,
    add,
    call,
    cancelled,
    completed,
    gated,
    results,
    roles,
    states,
    turns,
    types,
)


async def test_cancelling_is_false_when_idle_already_cancelled_or_the_end_is_chosen() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([held, reply("ok")]))
    assert agent.cancel() is False
    stream = agent.prompt("go")
    await held.asked.wait()
    assert agent.cancel() is True
    assert agent.cancel() is False
    await stream
    assert agent.cancel() is False
    answers: list[bool] = []

    def listener(event: AgentEvent, _signal: CancelSignal) -> None:
        if event.type == "run.finished":
            answers.append(agent.cancel())

    agent.subscribe(listener)
    await completed(agent.prompt("again"))
    assert answers == [False]


@pytest.mark.parametrize(("reason", "told"), [(None, "Agent run cancelled"), ("en\ud800ough", "en\ufffdough")])
async def test_a_cancelled_run_ends_once_with_its_reason_and_its_turn_is_not_adopted(
    reason: str | None, told: str
) -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([reply(call()), held]), tools=[add])
    stream = agent.prompt("go")
    await held.asked.wait()
    assert agent.cancel() if reason is None else agent.cancel(reason)
    result = await cancelled(stream)
    assert (result.reason, roles(result.messages)) == (told, ["user", "assistant", "tool_result"])
    assert (types(stream).count("run.finished"), held.was_cancelled) == (1, True)


async def test_a_run_is_cancelled_though_its_response_arrives_at_the_same_time() -> None:
    agent = Agent(model=ScriptedModel([reply("done")]))
    answers: list[bool] = []

    def listener(event: AgentEvent, _signal: CancelSignal) -> None:
        if event.type == "model.chunk":
            answers.append(agent.cancel())

    agent.subscribe(listener)
    stream = agent.prompt("go")
    result = await cancelled(stream)
    assert (answers, roles(result.messages)) == ([True], ["user"])


async def test_a_run_cancelled_right_after_the_prompt_asks_no_model_and_tells_of_its_message() -> None:
    model = ScriptedModel([reply("never")])
    agent = Agent(model=model)
    stream = agent.prompt("go")
    assert agent.cancel()
    await cancelled(stream)
    assert (model.call_count, types(stream), roles(agent.messages)) == (
        0,
        ["message.accepted", "run.finished"],
        ["user"],
    )


async def test_a_cancellation_at_the_acceptance_of_a_message_leaves_it_in_the_transcript() -> None:
    model = ScriptedModel([reply("one"), reply("never")])
    agent = Agent(model=model)
    later = agent.follow_up("later")
    agent.subscribe(
        lambda event, _signal: event.type == "message.accepted" and len(agent.messages) > 1 and agent.cancel()
    )
    result = await cancelled(agent.prompt("go"))
    assert (model.call_count, result.messages[-1], len(agent.queued)) == (1, later, 0)


async def test_a_run_cancelled_as_a_body_is_about_to_run_never_runs_it() -> None:
    ran: list[int] = []

    @tool
    async def counts() -> str:
        ran.append(1)
        return ""

    agent = Agent(model=ScriptedModel([reply(call("c1", "counts", {}))]), tools=[counts])
    agent.subscribe(lambda event, _signal: event.type == "tool.started" and agent.cancel())
    result = await cancelled(agent.prompt("go"))
    assert (ran, states(result)) == ([], {"c1": "not_started"})


async def test_the_signal_of_the_run_is_set_for_model_tool_and_listeners() -> None:
    seen: dict[str, CancelSignal] = {}
    gate = Gate()

    @tool
    async def waits(context: ToolContext) -> str:
        seen["tool"] = context.signal
        return await gate.wait()

    async def asks(request: ModelRequest, signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        seen["model"] = signal
        yield TextDelta(request.id, "x")
        yield reply("x", call("c1", "waits", {}))

    agent = Agent(model=ScriptedModel([asks]), tools=[waits])
    agent.subscribe(lambda _event, signal: seen.update(listener=signal))
    stream = agent.prompt("go")
    await gate.begun.wait()
    assert {signal.is_cancelled for signal in seen.values()} == {False}
    agent.cancel("enough")
    await cancelled(stream)
    assert {(signal.is_cancelled, signal.reason) for signal in seen.values()} == {(True, "enough")}


async def test_setting_the_runs_signal_is_cancelling_the_run() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([held, reply("ok")]))
    signals: list[CancelSignal] = []
    agent.subscribe(lambda _event, signal: signals.append(signal))
    stream = agent.prompt("go")
    await held.asked.wait()
    signals[0].cancel("from a listener's hand")
    assert agent.cancel() is False
    assert (await cancelled(stream)).reason == "from a listener's hand"
    await completed(agent.prompt("again"))


async def test_a_tool_may_cancel_its_own_run() -> None:
    @tool
    async def stops() -> str:
        assert agent.cancel("seen enough")
        await asyncio.Event().wait()
        return "never"

    agent = Agent(model=ScriptedModel([reply(call("c1", "stops", {}))]), tools=[stops])
    result = await cancelled(agent.prompt("go"))
    assert (result.reason, states(result)) == ("seen enough", {"c1": "outcome_unknown"})


async def test_a_tool_that_cancels_its_run_and_returns_has_finished() -> None:
    @tool
    async def stops() -> str:
        agent.cancel()
        return "stopped"

    agent = Agent(model=ScriptedModel([reply(call("c1", "stops", {}), call("c2"))]), tools=[stops, add])
    result = await cancelled(agent.prompt("go"))
    assert states(result) == {"c1": "finished", "c2": "not_started"}


async def test_every_call_of_the_dropped_turn_is_listed_with_what_became_of_it() -> None:
    gate = Gate()
    items = [reply(call("c1"), call("c2", "nobody", {}), call("c3", "waits", {}), call("c4"))]
    agent = Agent(model=ScriptedModel(items), tools=[add, gated("waits", gate.wait)])
    stream = agent.prompt("go")
    await gate.begun.wait()
    agent.cancel()
    result = await cancelled(stream)
    found = [(item.call.id, item.state, item.result is not None) for item in result.unadopted_calls]
    assert found == [
        ("c1", "finished", True),
        ("c2", "failed", True),
        ("c3", "outcome_unknown", False),
        ("c4", "not_started", False),
    ]
    assert results(agent.messages) == []


@pytest.mark.parametrize("name", ["should_stop", "before_tool_call", "after_tool_call"])
async def test_a_turn_is_in_progress_until_its_hooks_have_answered(name: str) -> None:
    asked = asyncio.Event()

    async def hangs(*_: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    hooks = {
        "should_stop": AgentHooks(should_stop=hangs),  # type: ignore[arg-type]  it never answers
        "before_tool_call": AgentHooks(before_tool_call=hangs),
        "after_tool_call": AgentHooks(after_tool_call=hangs),
    }[name]
    agent = Agent(model=ScriptedModel([reply(call())]), tools=[add], hooks=hooks)
    stream = agent.prompt("go")
    steered = agent.steer("now")
    await asked.wait()
    agent.cancel()
    result = await cancelled(stream)
    assert roles(result.messages) == ["user"]
    assert states(result) == {"c1": "not_started" if name == "before_tool_call" else "finished"}
    assert agent.queued.steering == (steered,)


# Who ignores it.


async def test_a_tool_that_ignores_its_cancellation_is_left_behind_after_the_grace() -> None:
    clock, gate = ManualClock(), Gate()
    agent = Agent(
        model=ScriptedModel([reply(call("c1", "deaf", {})), reply("next")]),
        tools=[gated("deaf", gate.wait_deaf)],
        options=AgentOptions(clock=clock),
    )
    stream = agent.prompt("go")
    await gate.begun.wait()
    agent.cancel()
    await clock.advance(4.9)
    assert (agent.is_running, gate.was_cancelled) == (True, True)
    await clock.advance(0.2)
    result = await cancelled(stream)
    assert states(result) == {"c1": "outcome_unknown"}
    second = agent.prompt("again")
    gate.release.set()
    await completed(second)
    await turns()
    assert roles(agent.messages) == ["user", "user", "assistant"]
    assert types(stream)[-1] == "run.finished"
    assert result.unadopted_calls[0].result is None


async def test_a_model_that_ignores_its_cancellation_is_left_behind_after_the_grace() -> None:
    clock, release = ManualClock(), asyncio.Event()

    async def deaf(request: ModelRequest, signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        del signal
        yield TextDelta(request.id, "I will ")
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        yield TextDelta(request.id, "never stop")
        yield reply("I will never stop")

    agent = Agent(model=ScriptedModel([deaf, reply("next")]), options=AgentOptions(clock=clock, grace_seconds=2.0))
    stream = agent.prompt("go")
    await turns()
    agent.cancel()
    await clock.advance(2.1)
    await cancelled(stream)
    events = len(stream)
    release.set()
    await turns()
    assert len(stream) == events
    await completed(agent.prompt("again"))


async def test_a_tool_that_cannot_be_cancelled_is_waited_for() -> None:
    clock, gate = ManualClock(), Gate()
    agent = Agent(
        model=ScriptedModel([reply(call("c1", "hard", {}))]),
        tools=[gated("hard", gate.wait, cancellable=False)],
        options=AgentOptions(clock=clock),
    )
    stream = agent.prompt("go")
    await gate.begun.wait()
    agent.cancel()
    await clock.advance(4.0)
    assert (agent.is_running, gate.was_cancelled) == (True, False)
    gate.release.set()
    result = await cancelled(stream)
    assert states(result) == {"c1": "finished"}
    assert clock.timers == 0


async def test_a_hook_after_a_call_that_ended_too_late_is_not_asked() -> None:
    clock, gate, asked = ManualClock(), Gate(), list[ToolCall]()

    def after(given: ToolCall, _result: object) -> None:
        asked.append(given)

    agent = Agent(
        model=ScriptedModel([reply(call("c1", "deaf", {}))]),
        tools=[gated("deaf", gate.wait_deaf)],
        hooks=AgentHooks(after_tool_call=after),
        options=AgentOptions(clock=clock),
    )
    stream = agent.prompt("go")
    await gate.begun.wait()
    agent.cancel()
    await clock.advance(5.1)
    await cancelled(stream)
    gate.release.set()
    await turns()
    assert asked == []


async def test_a_cancelled_run_keeps_no_timer() -> None:
    clock = ManualClock()
    agent = Agent(model=ScriptedModel([Held() for _ in range(5)]), options=AgentOptions(clock=clock))
    for _ in range(5):
        stream = agent.prompt("go")
        await turns()
        agent.cancel()
        await cancelled(stream)
        assert clock.timers == 0


async def test_the_child_of_a_tool_is_cancelled_first_and_both_can_go_on() -> None:
    gate, ends = Gate(), list[str]()
    child = Agent(
        model=ScriptedModel([reply(call("c1", "waits", {})), reply("child")]), tools=[gated("waits", gate.wait)]
    )

    @tool
    async def delegate() -> str:
        async with child:
            result = await child.prompt("work")
            return result.status

    parent = Agent(model=ScriptedModel([reply(call("p1", "delegate", {})), reply("parent")]), tools=[delegate])
    child.subscribe(lambda event, _signal: event.type == "run.finished" and ends.append("child"))
    parent.subscribe(lambda event, _signal: event.type == "run.finished" and ends.append("parent"))
    stream = parent.prompt("go")
    await gate.begun.wait()
    later = child.follow_up("later")
    parent.cancel()
    await cancelled(stream)
    assert (ends, gate.was_cancelled, child.queued.follow_up) == (["child", "parent"], True, (later,))
    await completed(parent.prompt("again"))
