"""Waiting for an agent, closing it, and running it without an event loop of one's own."""

import asyncio
import signal
import threading
from collections.abc import Callable

import pytest

from checkrein import Agent, AgentHooks, AgentOptions, AgentStateError
from checkrein.clock import run_bounded
from checkrein.loop.events import AgentEvent, Cancelled
from checkrein.ports.tool import CancelSignal
from checkrein.testing.scripted import ScriptedModel, reply
from checkrein.tools.function import tool
from tests.unit.loop.scene import Gate, Held, Stream, call, cancelled, completed, failed, gated, results, turns


async def test_waiting_returns_at_once_when_idle_and_otherwise_with_the_end_of_the_run() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([held]))
    await agent.wait_idle()
    stream = agent.prompt("go")
    waiter = asyncio.get_running_loop().create_task(agent.wait_idle())
    await turns()
    assert not waiter.done()
    held.release.set()
    await waiter
    assert (stream.is_done, agent.is_running) == (True, False)


async def test_closing_cancels_and_settles_and_may_come_again_in_any_order() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([held, reply("ok")]))
    await agent.aclose()
    stream = agent.prompt("go")
    await held.asked.wait()
    await asyncio.gather(agent.aclose(), agent.wait_idle(), agent.aclose())
    await agent.aclose()
    await cancelled(stream)
    await completed(agent.prompt("again"))


async def test_leaving_the_context_cancels_and_settles() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([held]))
    async with agent as same:
        stream = agent.prompt("go")
        await held.asked.wait()
    assert (same is agent, agent.is_running, stream.is_done) == (True, False, True)
    await cancelled(stream)


async def test_leaving_the_context_by_an_error_cancels_and_hides_nothing() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([held]))

    async def works() -> None:
        async with agent:
            agent.prompt("go")
            await held.asked.wait()
            msg = "mine"
            raise ValueError(msg)

    with pytest.raises(ValueError, match="mine"):
        await works()
    assert (agent.is_running, held.was_cancelled) == (False, True)


async def test_a_time_limit_on_waiting_leaves_the_run_alone() -> None:
    held = Held()
    agent = Agent(model=ScriptedModel([held]))
    stream = agent.prompt("go")
    await held.asked.wait()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await agent.wait_idle()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await stream
    assert agent.is_running
    held.release.set()
    await completed(stream)


# From within.

WAITS: dict[str, Callable[[Agent], object]] = {"wait_idle": Agent.wait_idle, "aclose": Agent.aclose}


@pytest.mark.parametrize("name", WAITS)
@pytest.mark.parametrize("where", ["sequential", "parallel", "timed", "thread", "task of its own"])
async def test_a_tool_cannot_wait_for_the_end_of_its_own_run(where: str, name: str) -> None:
    loop = asyncio.get_running_loop()

    async def waits() -> None:
        await getattr(agent, name)()

    @tool
    async def on_loop() -> str:
        await waits()
        return "waited"

    @tool(timeout_seconds=5.0)
    async def timed() -> str:
        await waits()
        return "waited"

    @tool
    def in_thread() -> str:
        asyncio.run_coroutine_threadsafe(waits(), loop).result(5.0)
        return "waited"

    @tool
    async def in_task() -> str:
        await loop.create_task(waits())
        return "waited"

    made = {"timed": timed, "thread": in_thread, "task of its own": in_task}.get(where, on_loop)
    options = AgentOptions(tool_execution="parallel" if where == "parallel" else "sequential")
    calls = [call(f"c{number}", made.name, {}) for number in range(2)]
    agent = Agent(model=ScriptedModel([reply(*calls), reply("done")]), tools=[made], options=options)
    await completed(agent.prompt("go"))
    expected = "AgentStateError: a tool or hook cannot wait for the end of its own run"
    assert [item[1:] for item in results(agent.messages)] == [(expected, True)] * 2


@pytest.mark.parametrize("name", WAITS)
async def test_a_hook_cannot_wait_for_the_end_of_its_own_run(name: str) -> None:
    async def waits(_step: int) -> None:
        with pytest.raises(AgentStateError) as caught:
            await getattr(agent, name)()
        assert caught.value.code == "AGENT_WAITS_FOR_ITSELF"
        raise caught.value

    agent = Agent(model=ScriptedModel([reply("x")]), hooks=AgentHooks(prepare_turn=waits))
    result = await failed(agent.prompt("go"), "AGENT_STATE_FAILED")
    assert "prepare_turn failed: " in result.error.message


async def test_a_tool_may_wait_for_another_agent() -> None:
    other = Agent(model=ScriptedModel([reply("other")]))

    @tool
    async def asks() -> str:
        other.prompt("question")
        await other.wait_idle()
        return "answered"

    agent = Agent(model=ScriptedModel([reply(call("c1", "asks", {})), reply("done")]), tools=[asks])
    await completed(agent.prompt("go"))
    assert results(agent.messages) == [("c1", "answered", False)]


async def test_a_listener_may_close_the_agent() -> None:
    gate, closed = Gate(), list[str]()

    async def closes(event: AgentEvent, _signal: CancelSignal) -> None:
        if event.type == "tool.started":
            await agent.aclose()
            closed.append("closed")

    agent = Agent(model=ScriptedModel([reply(call("c1", "waits", {}))]), tools=[gated("waits", gate.wait)])
    agent.subscribe(closes)
    await cancelled(agent.prompt("go"))
    await turns()
    assert (closed, agent.subscriber_errors) == (["closed"], ())


# Without an event loop.


def test_a_program_without_an_event_loop_prompts_and_gets_the_result() -> None:
    agent = Agent(model=ScriptedModel([reply("one"), reply("two")]))
    assert agent.run_sync("Hi").status == "completed"
    assert [agent.run_sync("again", request_id="r1"), agent.is_running] == [
        agent.run_sync("again", request_id="r1"),
        False,
    ]
    assert len(agent.messages) == 4


async def test_within_an_event_loop_it_is_refused_and_nothing_changes() -> None:
    agent = Agent(model=ScriptedModel([reply("one")]))
    with pytest.raises(RuntimeError, match="an event loop is running in this thread already"):
        agent.run_sync("Hi")
    assert (agent.messages, agent.is_running) == ((), False)


def test_a_tool_that_ignores_its_cancellation_does_not_keep_the_program() -> None:
    gate: list[Gate] = []

    @tool
    async def deaf() -> str:
        gate.append(Gate())
        asyncio.get_running_loop().call_soon(agent.cancel)
        return await gate[0].wait_deaf()

    options = AgentOptions(grace_seconds=0.02)
    agent = Agent(model=ScriptedModel([reply(call("c1", "deaf", {})), reply("next")]), tools=[deaf], options=options)
    result = agent.run_sync("go")
    assert isinstance(result, Cancelled)
    assert agent.run_sync("again").status == "completed"


def test_a_plain_tool_that_never_ends_does_not_keep_the_program() -> None:
    release = threading.Event()

    @tool
    def endless() -> str:
        agent_loop[0].call_soon_threadsafe(agent.cancel)
        release.wait(30)
        return "late"

    agent_loop: list[asyncio.AbstractEventLoop] = []
    options = AgentOptions(grace_seconds=0.02)
    agent = Agent(model=ScriptedModel([reply(call("c1", "endless", {}))]), tools=[endless], options=options)
    agent.subscribe(lambda _event, _signal: agent_loop.append(asyncio.get_running_loop()))
    result = agent.run_sync("go")
    assert isinstance(result, Cancelled)
    assert result.unadopted_calls[0].state == "outcome_unknown"
    release.set()


def test_an_interrupt_of_the_program_cancels_the_run_and_comes_out() -> None:
    @tool
    async def interrupts() -> str:
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()
        return "never"

    agent = Agent(model=ScriptedModel([reply(call("c1", "interrupts", {})), reply("next")]), tools=[interrupts])
    with pytest.raises(KeyboardInterrupt):
        agent.run_sync("go")
    assert (agent.is_running, len(agent.messages)) == (False, 1)
    assert agent.run_sync("again").status == "completed"


def test_what_a_coroutine_raises_comes_out_and_its_tasks_are_cancelled() -> None:
    ended: list[str] = []

    async def lingers() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def raises() -> None:
        asyncio.get_running_loop().create_task(lingers())
        await turns()
        msg = "mine"
        raise ValueError(msg)

    with pytest.raises(ValueError, match="mine"):
        run_bounded(raises(), seconds=1.0)
    assert ended == ["cancelled"]


# An event loop that is closed.


def test_a_loop_that_ends_cancels_the_run_that_is_left() -> None:
    agent = Agent(model=ScriptedModel([Held(), reply("ok")]))
    streams: list[Stream] = []

    async def leaves(*, at_once: bool) -> None:
        streams.append(agent.prompt("go"))
        if not at_once:
            await turns()

    asyncio.run(leaves(at_once=False))
    assert (agent.is_running, streams[0].is_done) == (False, True)
    asyncio.run(leaves(at_once=True))
    assert (agent.is_running, streams[1].is_done, streams[1][-1].type) == (False, True, "run.finished")


def test_a_loop_that_is_closed_under_a_run_leaves_an_agent_that_works() -> None:
    agent = Agent(model=ScriptedModel([Held(), reply("ok"), reply("ok")]))
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _loop, _context: None)

    async def begins() -> None:
        agent.prompt("go")
        await turns()

    async def listens(_event: AgentEvent, _signal: CancelSignal) -> None:
        await asyncio.sleep(0)

    loop.run_until_complete(begins())
    later = agent.follow_up("later")
    loop.close()
    agent.subscribe(listens)
    assert agent.cancel() is False
    assert agent.is_running is False
    assert agent.queued.follow_up == (later,)
    assert [error.event_type for error in agent.subscriber_errors] == ["run.finished"], "nobody could start it"
    assert agent.run_sync("again").status == "completed"
