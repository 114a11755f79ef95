"""How agents in memory are known to fail when they are cancelled, steered, overlapped or limited, and that this one does not."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from checkrein.agent.agent import Agent, AgentOptions
from checkrein.errors import AgentBusyError, FatalToolError, TransientModelError
from checkrein.loop.events import AgentEvent, Cancelled, Failed, MaxSteps
from checkrein.loop.options import AgentHooks, Allow, Retry
from checkrein.messages import ToolCall, ToolResult, validate_transcript
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse, TextDelta
from checkrein.ports.tool import CancelSignal
from checkrein.testing.manual_clock import ManualClock
from checkrein.testing.scripted import ScriptedModel, reply
from checkrein.tools.function import tool
from tests.acceptance.agent_bench import Bench, call, has_one_end, said, states, turns, until_finished

PARALLEL = AgentOptions(tool_execution="parallel")


@tool(inline=True)
def echo(text: str = "") -> str:
    """Say it again."""
    return text


async def hold_next(agent: Agent, model: ScriptedModel) -> None:
    """Hold that the next prompt is sent a valid history and is answered."""
    result = await agent.prompt("B")
    assert result.status == "completed"
    assert validate_transcript(model.requests[-1].messages) == ()
    assert validate_transcript(agent.messages) == ()


# C1, C2


@pytest.mark.parametrize("finished", [(), ("c1",), ("c2",)])
async def test_c1_a_turn_cancelled_while_calls_run_is_not_in_the_history_of_the_next_prompt(
    finished: tuple[str, ...],
) -> None:
    bench = Bench()
    model = ScriptedModel([reply(call("c1"), call("c2")), reply("B done")])
    agent = Agent(model=model, tools=[bench.work], options=PARALLEL)
    stream = agent.prompt("A")
    await bench.until_begun("c1", "c2")
    bench.let_end(*finished)
    await until_finished(stream, *finished)
    assert agent.cancel()
    assert states(await stream) == {
        name: "finished" if name in finished else "outcome_unknown" for name in ("c1", "c2")
    }
    assert said(agent.messages) == ["A"]
    await hold_next(agent, model)
    assert said(agent.messages) == ["A", "B", "assistant"]


@pytest.mark.parametrize("calls", [1, 2])
async def test_c2_a_run_cancelled_in_its_first_call_says_that_its_outcome_is_unknown(calls: int) -> None:
    bench = Bench()
    names = [f"c{number + 1}" for number in range(calls)]
    model = ScriptedModel([reply(*(call(name) for name in names)), reply("B done")])
    agent = Agent(model=model, tools=[bench.work])
    stream = agent.prompt("A")
    await bench.until_begun("c1")
    agent.cancel()
    assert states(await stream) == {name: "outcome_unknown" if name == "c1" else "not_started" for name in names}
    await hold_next(agent, model)


async def test_c2_a_run_cancelled_when_all_its_calls_are_finished_reports_their_results() -> None:
    model = ScriptedModel([reply(call("c1", "echo"), call("c2", "echo")), reply("B done")])
    agent = Agent(model=model, tools=[echo])

    def listener(event: AgentEvent, _signal: CancelSignal) -> None:
        if event.type == "tool.finished" and event.call_id == "c2":
            agent.cancel()

    agent.subscribe(listener)
    result = await agent.prompt("A")
    assert states(result) == {"c1": "finished", "c2": "finished"}
    assert isinstance(result, Cancelled)
    assert all(item.result is not None for item in result.unadopted_calls)
    assert said(agent.messages) == ["A"]
    await hold_next(agent, model)


async def test_c2_a_run_that_a_call_ends_waits_for_its_siblings_and_reports_them() -> None:
    release, begun = asyncio.Event(), asyncio.Event()

    @tool(cancellable=False)
    async def keeps() -> str:
        begun.set()
        await release.wait()
        return "kept"

    @tool
    async def waits() -> str:
        await asyncio.Event().wait()
        return "never"

    @tool
    async def fatal() -> str:
        await begun.wait()
        raise FatalToolError("enough")

    script = [reply(call("c1", "keeps"), call("c2", "waits"), call("c3", "fatal")), reply("B done")]
    model = ScriptedModel(script)
    agent = Agent(model=model, tools=[keeps, waits, fatal], options=PARALLEL)
    stream = agent.prompt("A")
    await begun.wait()
    await turns()
    assert not stream.is_done
    release.set()
    result = await stream
    assert isinstance(result, Failed)
    assert result.error.code == "TOOL_EXECUTION_FAILED"
    assert states(result) == {"c1": "finished", "c2": "outcome_unknown", "c3": "failed"}
    await hold_next(agent, model)


# C3


@pytest.mark.parametrize("is_closed", [False, True])
async def test_c3_calls_of_a_sequential_batch_that_never_began_are_said_to_be_not_started(*, is_closed: bool) -> None:
    bench = Bench()
    model = ScriptedModel([reply(call("c1"), call("c2"), call("c3")), reply("B done")])
    agent = Agent(model=model, tools=[bench.work])
    stream = agent.prompt("A")
    await bench.until_begun("c1")
    if is_closed:
        await agent.aclose()
    else:
        agent.cancel()
    assert states(await stream) == {"c1": "outcome_unknown", "c2": "not_started", "c3": "not_started"}
    assert bench.bodies == ["c1"]
    await hold_next(agent, model)


async def test_c3_a_cancellation_in_the_hook_before_a_call_leaves_it_not_started() -> None:
    bench = Bench()
    in_hook = asyncio.Event()

    async def before(made: ToolCall) -> Allow:
        if made.id == "c2":
            in_hook.set()
            await asyncio.Event().wait()
        return Allow()

    model = ScriptedModel([reply(call("c1"), call("c2"), call("c3")), reply("B done")])
    agent = Agent(model=model, tools=[bench.work], hooks=AgentHooks(before_tool_call=before))
    stream = agent.prompt("A")
    bench.let_end("c1")
    await in_hook.wait()
    agent.cancel()
    assert states(await stream) == {"c1": "finished", "c2": "not_started", "c3": "not_started"}
    await hold_next(agent, model)


# C4


async def test_c4_a_tool_that_ignores_its_cancellation_is_left_behind_and_its_late_return_changes_nothing() -> None:
    clock, release, begun, ended = ManualClock(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def deaf() -> str:
        begun.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        return "late"

    model = ScriptedModel([reply(call("c1", "deaf")), reply("B done")])
    agent = Agent(model=model, tools=[deaf], options=AgentOptions(grace_seconds=5, clock=clock))
    stream = agent.prompt("A")
    await begun.wait()
    agent.cancel()
    await clock.advance(4.9)
    assert not stream.is_done
    await clock.advance(5.1)
    assert has_one_end(stream)
    assert states(await stream) == {"c1": "outcome_unknown"}
    events, messages = stream.read(), agent.messages
    release.set()
    await ended.wait()
    await turns()
    assert (stream.read(), agent.messages, agent.is_running) == (events, messages, False)
    await hold_next(agent, model)


# C6


async def stalls(request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
    """Say two things, and then nothing."""
    yield TextDelta(request.id, "a")
    yield TextDelta(request.id, "b")
    await asyncio.Event().wait()
    yield reply("never")


async def hangs_in_cleanup(request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
    """Say two things, then nothing, and never end when told to."""
    yield TextDelta(request.id, "a")
    yield TextDelta(request.id, "b")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.get_name() == "last":
                raise
            continue
        yield reply("never")


@pytest.mark.parametrize("attempts", [1, 2])
async def test_c6_a_stream_that_says_nothing_fails_after_its_idle_timeout_and_may_be_tried_again(attempts: int) -> None:
    clock = ManualClock()
    model = ScriptedModel([stalls, reply("B done"), reply("C done")])
    retry = Retry(attempts=attempts, first_seconds=1, max_seconds=0.5)
    agent = Agent(model=model, options=AgentOptions(clock=clock, idle_timeout_seconds=30, retry=retry))
    stream = agent.prompt("A")
    await clock.advance(29)
    assert not stream.is_done
    await clock.advance(2)
    await clock.advance(1)
    result = await stream
    assert has_one_end(stream)
    if attempts == 1:
        assert isinstance(result, Failed)
        assert result.error.code == "MODEL_STREAM_FAILED"
    else:
        assert result.status == "completed"
        assert [event.type for event in stream].count("model.retried") == 1
        assert [request.id for request in model.requests] == ["request-001", "request-001"]
    await hold_next(agent, model)


@pytest.mark.parametrize("idle_timeout_seconds", [None, 30.0])
async def test_c6_a_run_is_cancelled_at_once_while_its_stream_says_nothing(idle_timeout_seconds: float | None) -> None:
    clock = ManualClock()
    model = ScriptedModel([stalls, reply("B done")])
    agent = Agent(model=model, options=AgentOptions(clock=clock, idle_timeout_seconds=idle_timeout_seconds))
    stream = agent.prompt("A")
    await turns()
    assert len(stream) == len(("accepted", "a", "b"))
    assert agent.cancel()
    assert (await stream).status == "cancelled"
    assert clock.monotonic() == 0
    assert has_one_end(stream)
    await hold_next(agent, model)


@pytest.mark.parametrize("idle_timeout_seconds", [None, 30.0])
async def test_c6_a_stream_whose_cleanup_hangs_is_left_behind(idle_timeout_seconds: float | None) -> None:
    clock = ManualClock()
    model = ScriptedModel([hangs_in_cleanup, reply("B done")])
    options = AgentOptions(clock=clock, idle_timeout_seconds=idle_timeout_seconds, grace_seconds=5)
    agent = Agent(model=model, options=options)
    before = asyncio.all_tasks()
    stream = agent.prompt("A")
    await turns()
    agent.cancel()
    await clock.advance(5)
    assert (await stream).status == "cancelled"
    assert has_one_end(stream)
    await hold_next(agent, model)
    for task in asyncio.all_tasks() - before:
        task.set_name("last")
        task.cancel()
    await turns()


async def test_c6_a_silent_stream_that_ignores_its_interruption_ends_the_run_and_begins_nothing_when_it_comes_back() -> (
    None
):
    clock, release = ManualClock(), asyncio.Event()

    async def deaf(request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        yield TextDelta(request.id, "late")

    model = ScriptedModel([deaf, reply("B done")])
    retry = Retry(attempts=3, first_seconds=0)
    options = AgentOptions(clock=clock, idle_timeout_seconds=30, grace_seconds=5, retry=retry)
    agent = Agent(model=model, options=options)
    stream = agent.prompt("A")
    await clock.advance(30)
    assert not stream.is_done
    await clock.advance(5)
    result = await stream
    assert isinstance(result, Failed)
    assert result.error.code == "MODEL_STREAM_FAILED"
    events = stream.read()
    release.set()
    await turns()
    await clock.advance(60)
    assert (stream.read(), model.call_count) == (events, 1)
    await hold_next(agent, model)


# C7


PLACES = (
    "before the first chunk",
    "mid stream",
    "between call and start",
    "in the hook before",
    "in the tool",
    "in the hook after",
    "at the end of the turn",
    "in the hook that prepares",
)


class CancelsAt:
    """Cancels a run at one place, once."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.is_done = False
        self.agent: Agent

    def now(self, place: str) -> None:
        if place == self.place and not self.is_done:
            self.is_done = True
            assert self.agent.cancel()

    async def at(self, place: str) -> None:
        self.now(place)
        await asyncio.sleep(0)

    async def talks(self, request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        await self.at("before the first chunk")
        yield TextDelta(request.id, "a")
        await self.at("mid stream")
        yield reply("a", call("c1", "acts"))

    async def before(self, _call: ToolCall) -> None:
        await self.at("in the hook before")

    async def after(self, _call: ToolCall, _result: ToolResult) -> None:
        await self.at("in the hook after")

    async def prepare(self, _step: int) -> None:
        await self.at("in the hook that prepares")

    def listen(self, event: AgentEvent, _signal: CancelSignal) -> None:
        self.now(
            {"tool.started": "between call and start", "tool.finished": "at the end of the turn"}.get(event.type, "")
        )


@pytest.mark.parametrize("place", PLACES)
async def test_c7_a_cancellation_anywhere_has_one_end_and_wakes_who_waits(place: str) -> None:
    cancels = CancelsAt(place)

    @tool
    async def acts() -> str:
        await cancels.at("in the tool")
        return "done"

    hooks = AgentHooks(before_tool_call=cancels.before, after_tool_call=cancels.after, prepare_turn=cancels.prepare)
    script = [reply("B done")] if place == "in the hook that prepares" else [cancels.talks, reply("B done")]
    model = ScriptedModel(script)
    agent = cancels.agent = Agent(model=model, tools=[acts], hooks=hooks)
    agent.subscribe(cancels.listen)
    stream = agent.prompt("A")
    async with asyncio.timeout(10):
        await asyncio.gather(agent.wait_idle(), agent.wait_idle())
        assert (await stream).status == "cancelled"
    assert cancels.is_done
    events = len(stream)
    await turns()
    assert has_one_end(stream)
    assert len(stream) == events
    await hold_next(agent, model)


# C10


async def test_c10_what_is_queued_survives_a_cancellation_and_the_next_prompt_takes_it() -> None:
    bench = Bench()
    model = ScriptedModel([reply(call("c1")), reply("B done"), reply("F done")])
    agent = Agent(model=model, tools=[bench.work])
    stream = agent.prompt("A")
    await bench.until_begun("c1")
    steered, followed = agent.steer("S"), agent.follow_up("F")
    agent.cancel()
    await stream
    assert agent.queued.steering == (steered,)
    assert agent.queued.follow_up == (followed,)
    await hold_next(agent, model)
    assert said(agent.messages) == ["A", "B", "S", "assistant", "F", "assistant"]
    assert steered in agent.messages
    assert followed in agent.messages


# Q1, Q2, Q4


@pytest.mark.parametrize("where", ["listener", "hook"])
async def test_q1_a_steering_message_is_the_queues_until_it_is_in_the_transcript(where: str) -> None:
    agent: Agent

    @tool(inline=True)
    def steers() -> str:
        agent.steer("S")
        return "done"

    def should_stop(_messages: object) -> bool:
        if where == "hook":
            agent.cancel()
        return False

    def listener(event: AgentEvent, _signal: CancelSignal) -> None:
        if where == "listener" and event.type == "tool.finished" and event.call_id == "c2":
            agent.cancel()

    model = ScriptedModel([reply(call("c1", "steers"), call("c2", "echo")), reply("B done"), reply("later")])
    agent = Agent(model=model, tools=[steers, echo], hooks=AgentHooks(should_stop=should_stop))
    agent.subscribe(listener)
    result = await agent.prompt("A")
    assert result.status == "cancelled"
    assert [message.content for message in agent.queued.steering] == ["S"]
    assert "S" not in said(agent.messages)
    agent.steer("later")
    assert [message.content for message in agent.clear_queue().steering] == ["S", "later"]
    assert len(agent.queued) == 0


async def test_q2_a_cancellation_is_no_failure_and_leaves_the_queue_visible_and_usable() -> None:
    bench = Bench()
    model = ScriptedModel([reply(call("c1")), reply("F done")])
    agent = Agent(model=model, tools=[bench.work])
    stream = agent.prompt("A")
    await bench.until_begun("c1")
    followed = agent.follow_up("F")
    agent.cancel()
    result = await stream
    assert result.status == "cancelled"
    await turns()
    assert not agent.is_running, "nothing starts by itself"
    assert agent.queued.follow_up == (followed,)
    # The tail is the user's own message, so going on answers it; then the follow-up has its turn.
    model.append_response(reply("after F"))
    assert (await agent.continue_()).status == "completed"
    assert said(agent.messages) == ["A", "assistant", "F", "assistant"]


async def test_q4_steering_comes_before_a_follow_up_and_after_the_results() -> None:
    bench = Bench()
    model = ScriptedModel([reply(call("c1"), call("c2")), reply("after S"), reply("after F")])
    agent = Agent(model=model, tools=[bench.work])
    stream = agent.prompt("A")
    await bench.until_begun("c1")
    agent.follow_up("F")
    agent.steer("S")
    bench.let_end("c1", "c2")
    assert (await stream).status == "completed"
    order = ["A", "assistant", "tool_result", "tool_result", "S", "assistant", "F", "assistant"]
    assert said(agent.messages) == order


async def test_q4_a_response_that_would_end_the_run_is_followed_by_steering_first() -> None:
    agent: Agent

    async def talks(_request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        agent.follow_up("F")
        agent.steer("S")
        yield reply("A done")

    agent = Agent(model=ScriptedModel([talks, reply("after S"), reply("after F")]))
    assert (await agent.prompt("A")).status == "completed"
    assert said(agent.messages) == ["A", "assistant", "S", "assistant", "F", "assistant"]


# O1


async def test_o1_a_second_prompt_is_refused_with_a_code_before_any_effect() -> None:
    bench = Bench()
    model = ScriptedModel([reply(call("c1")), reply("A done")])
    agent = Agent(model=model, tools=[bench.work])
    stream = agent.prompt("A")
    await bench.until_begun("c1")
    before = agent.messages, agent.queued, stream.read(), model.call_count
    for refused in (lambda: agent.prompt("B"), agent.continue_, lambda: agent.prompt("B", request_id="b")):
        with pytest.raises(AgentBusyError, match="Agent is already running") as caught:
            refused()
        assert caught.value.code == "AGENT_BUSY"
    assert (agent.messages, agent.queued, stream.read(), model.call_count) == before
    bench.let_end("c1")
    assert (await stream).status == "completed"
    assert "B" not in said(agent.messages)


async def test_o1_the_same_request_gets_the_first_runs_stream_while_it_runs_and_after() -> None:
    bench = Bench()
    agent = Agent(model=ScriptedModel([reply(call("c1")), reply("A done"), reply("B done")]), tools=[bench.work])
    stream = agent.prompt("A", request_id="a")
    await bench.until_begun("c1")
    assert agent.prompt("A", request_id="a") is stream
    with pytest.raises(ValueError, match="another text"):
        agent.prompt("B", request_id="a")
    bench.let_end("c1")
    await stream
    assert agent.prompt("A", request_id="a") is stream
    assert said(agent.messages).count("A") == 1
    assert (await agent.prompt("B", request_id="b")).status == "completed"


# L1, L2


@pytest.mark.parametrize("limit", [1, 2, 64])
async def test_l1_a_run_makes_exactly_as_many_requests_as_it_may_and_settles_the_last_batch(limit: int) -> None:
    model = ScriptedModel(reply(call(f"c{number}", "echo", {"text": str(number)})) for number in range(2 * limit))
    agent = Agent(model=model, tools=[echo], max_steps=limit)
    for run in (1, 2):
        result = await agent.prompt("go")
        assert isinstance(result, MaxSteps)
        assert (result.max_steps, result.limit) == (limit, "max_steps")
        assert model.call_count == run * limit
        assert agent.messages[-1] == ToolResult(
            agent.messages[-1].id, f"c{run * limit - 1}", "echo", f"{run * limit - 1}"
        )
        assert validate_transcript(agent.messages) == ()


async def test_l1_an_answer_in_the_last_step_is_an_answer() -> None:
    agent = Agent(model=ScriptedModel([reply(call("c1", "echo")), reply("answer")]), tools=[echo], max_steps=2)
    result = await agent.prompt("go")
    assert result.status == "completed"
    assert result.final_text == "answer"


async def test_l1_a_request_that_is_made_again_counts_once() -> None:
    clock = ManualClock()
    script = [TransientModelError("busy"), reply(call("c1", "echo")), TransientModelError("busy"), reply("answer")]
    model = ScriptedModel(script)
    options = AgentOptions(clock=clock, retry=Retry(attempts=2, first_seconds=4, max_seconds=1))
    agent = Agent(model=model, tools=[echo], max_steps=2, options=options)
    stream = agent.prompt("go")
    await clock.advance(1)
    await clock.advance(1)
    assert (await stream).status == "completed"
    assert [request.id for request in model.requests] == ["request-001"] * 2 + ["request-002"] * 2


async def test_l2_the_step_limit_is_a_pause_that_keeps_queue_and_transcript() -> None:
    model = ScriptedModel([reply(call("c1", "echo")), reply(call("c2", "echo")), reply("done"), reply("B done")])
    agent = Agent(model=model, tools=[echo], max_steps=1)
    followed = agent.follow_up("F")
    result = await agent.prompt("A")
    assert result.status == "max_steps"
    assert agent.queued.follow_up == (followed,)
    assert tuple(result.messages) == agent.messages
    assert (await agent.continue_()).status == "max_steps"
    assert (await agent.continue_()).status == "completed"
    agent.clear_queue()
    await hold_next(agent, model)


async def test_l2_a_steering_message_at_the_limit_waits_for_the_next_run() -> None:
    agent: Agent

    @tool(inline=True)
    def steers() -> str:
        agent.steer("S")
        return "done"

    model = ScriptedModel([reply(call("c1", "steers")), reply("B done")])
    agent = Agent(model=model, tools=[steers], max_steps=1)
    assert (await agent.prompt("A")).status == "max_steps"
    assert [message.content for message in agent.queued.steering] == ["S"]
    assert (await agent.continue_()).status == "completed"
    assert said(agent.messages) == ["A", "assistant", "tool_result", "S", "assistant"]
