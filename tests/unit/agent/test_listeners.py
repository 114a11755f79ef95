"""Who listens to an agent: order, isolation, and what is kept of failures."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest

from checkrein import Agent, AgentOptions
from checkrein.agent.listeners import MAX_ERRORS, SubscriberError
from checkrein.loop.events import AgentEvent, RunResult
from checkrein.ports.tool import CancelSignal
from checkrein.streams import EventStream
from checkrein.testing.scripted import ScriptedModel, reply
from tests.unit.loop.scene import add, call, completed, turns, types

PLAIN = ["message.accepted", "model.chunk", "tool.started", "tool.finished", "model.chunk", "run.finished"]


def agent_of(runs: int = 1) -> Agent:
    return Agent(model=ScriptedModel([item for _ in range(runs) for item in (reply(call()), reply("x"))]), tools=[add])


async def test_listeners_are_called_in_the_order_of_subscribing_with_every_event() -> None:
    agent, heard = agent_of(), list[tuple[int, str]]()
    for number in (1, 2, 3):
        agent.subscribe(lambda event, _signal, number=number: heard.append((number, event.type)))  # type: ignore[misc]
    stream = agent.prompt("go")
    await completed(stream)
    assert types(stream) == PLAIN
    assert heard == [(number, kind) for kind in PLAIN for number in (1, 2, 3)]


async def test_unsubscribing_ends_it_may_come_again_and_releases_the_listener() -> None:
    class Ear:
        """Counts what it hears."""

        def __init__(self) -> None:
            self.heard = 0

        def hear(self, _event: AgentEvent, _signal: CancelSignal) -> None:
            self.heard += 1

    agent, ear = agent_of(2), Ear()
    unsubscribe = agent.subscribe(ear.hear)
    await completed(agent.prompt("go"))
    unsubscribe()
    unsubscribe()
    await completed(agent.prompt("again"))
    assert ear.heard == len(PLAIN)
    known = weakref.ref(ear)
    del ear
    gc.collect()
    assert known() is None


async def test_each_event_goes_to_those_who_listened_when_it_happened() -> None:
    agent, heard = agent_of(), list[str]()
    later: list[Callable[[], None]] = []

    def second(event: AgentEvent, _signal: CancelSignal) -> None:
        heard.append(f"second {event.type}")

    def first(event: AgentEvent, _signal: CancelSignal) -> None:
        heard.append(f"first {event.type}")
        if event.type == "message.accepted":
            later.append(agent.subscribe(lambda event, _signal: heard.append(f"third {event.type}")))
            stop_second()
        if event.type == "tool.started":
            stop_first()

    stop_first = agent.subscribe(first)
    stop_second = agent.subscribe(second)
    await completed(agent.prompt("go"))
    assert heard == [
        "first message.accepted",
        "second message.accepted",
        "first model.chunk",
        "third model.chunk",
        "first tool.started",
        "third tool.started",
        "third tool.finished",
        "third model.chunk",
        "third run.finished",
    ]


class Odd(BaseException):
    """Neither an error nor an interrupt of the program."""


ERRORS = (ValueError("oh"), Odd("oh"), asyncio.CancelledError("oh"), KeyboardInterrupt("oh"), SystemExit("oh"))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_a_listener_that_raises_is_recorded_and_changes_nothing_else(error: BaseException, kind: str) -> None:
    agent, heard = agent_of(), list[str]()

    def raises(_event: AgentEvent, _signal: CancelSignal) -> None:
        raise error

    async def raises_later(_event: AgentEvent, _signal: CancelSignal) -> None:
        await asyncio.sleep(0)
        raise error

    agent.subscribe(raises if kind == "plain" else raises_later)
    agent.subscribe(lambda event, _signal: heard.append(event.type))
    stream = agent.prompt("go")
    await completed(stream)
    await turns()
    assert heard == types(stream) == PLAIN
    assert sorted(error.event_type for error in agent.subscriber_errors) == sorted(PLAIN)
    assert {(error.listener_id, error.message) for error in agent.subscriber_errors} == {(1, "oh")}


async def test_failures_carry_the_number_of_the_listener_from_1_in_the_order_of_subscribing() -> None:
    agent = Agent(model=ScriptedModel([reply("x")]))

    def raises(event: AgentEvent, _signal: CancelSignal) -> None:
        if event.type == "model.chunk":
            msg = "broken \ud800"
            raise ValueError(msg)

    agent.subscribe(lambda _event, _signal: None)()
    agent.subscribe(raises)
    agent.subscribe(raises)
    await completed(agent.prompt("go"))
    assert agent.subscriber_errors == (
        SubscriberError("model.chunk", 2, "broken \ufffd"),
        SubscriberError("model.chunk", 3, "broken \ufffd"),
    )


async def test_an_error_whose_text_cannot_be_made_is_still_recorded() -> None:
    class Mute(Exception):
        """Says nothing."""

        def __str__(self) -> str:
            raise RuntimeError

    agent = Agent(model=ScriptedModel([reply("x")]))

    def raises(_event: AgentEvent, _signal: CancelSignal) -> None:
        raise Mute

    agent.subscribe(raises)
    await completed(agent.prompt("go"))
    assert {error.message for error in agent.subscriber_errors} == {"Mute"}


async def test_only_the_last_failures_are_kept() -> None:
    agent = Agent(model=ScriptedModel([reply(*["x"] * 900), reply(*["x"] * 900)]))

    def raises(event: AgentEvent, _signal: CancelSignal) -> None:
        raise ValueError(str(event.sequence))

    agent.subscribe(raises)
    for _ in range(2):
        await completed(agent.prompt("go"))
    assert len(agent.subscriber_errors) == MAX_ERRORS
    assert agent.subscriber_errors[-1].message == "901"


async def test_coroutines_are_started_in_order_observed_and_not_awaited() -> None:
    agent, begun, release = agent_of(), list[str](), asyncio.Event()

    async def slow(event: AgentEvent, _signal: CancelSignal) -> None:
        begun.append(event.type)
        await release.wait()

    agent.subscribe(slow)
    await completed(agent.prompt("go"))
    await turns()
    assert begun == PLAIN
    release.set()
    await turns()
    assert agent.subscriber_errors == ()


async def test_a_listener_that_awaits_the_runs_result_does_not_hold_it() -> None:
    agent, seen = agent_of(), list[str]()
    streams: list[EventStream[AgentEvent, RunResult]] = []

    async def waits(event: AgentEvent, _signal: CancelSignal) -> None:
        if event.type == "message.accepted":
            seen.append((await streams[0]).status)
            await agent.wait_idle()
            await agent.aclose()
            seen.append("idle")

    agent.subscribe(waits)
    streams.append(agent.prompt("go"))
    await completed(streams[0])
    await turns()
    assert seen == ["completed", "idle"]


async def test_any_awaitable_that_a_listener_returns_is_awaited() -> None:
    agent, loop = Agent(model=ScriptedModel([reply("x")])), asyncio.get_running_loop()
    futures: list[asyncio.Future[None]] = []

    def returns(_event: AgentEvent, _signal: CancelSignal) -> Awaitable[None]:
        futures.append(loop.create_future())
        return futures[-1]

    agent.subscribe(returns)
    await completed(agent.prompt("go"))
    futures[0].set_exception(ValueError("late"))
    for future in futures[1:]:
        future.set_result(None)
    await turns()
    assert [error.message for error in agent.subscriber_errors] == ["late"]


async def test_updates_that_the_log_leaves_out_are_heard() -> None:
    agent, heard = (
        Agent(model=ScriptedModel([reply(*"abcd")]), options=AgentOptions(max_buffered_deltas=2)),
        list[int](),
    )
    agent.subscribe(lambda event, _signal: heard.append(event.sequence))
    stream = agent.prompt("go")
    await completed(stream)
    assert heard == [0, 1, 2, -1, -1, 3, 4]
    assert types(stream) == ["message.accepted", "model.chunk", "model.chunk", "run.warned", "run.finished"]
