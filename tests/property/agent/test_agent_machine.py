"""Whatever is done to an agent, in whatever order, it does what the model of its queues does."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from checkrein.agent.agent import Agent, AgentOptions
from checkrein.errors import AgentBusyError, AgentError
from checkrein.loop.events import AgentEvent, Cancelled, Failed, RunResult
from checkrein.messages import Message, ToolCall, ToolResult, UserMessage, validate_transcript
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse, TextDelta
from checkrein.ports.tool import CancelSignal, ToolContext
from checkrein.streams import EventStream
from checkrein.testing.scripted import ScriptedModel, reply
from checkrein.tools.function import FunctionTool, tool
from tests.counts import amount, report
from tests.exploration.drawn_loop import DrawnLoop
from tests.property.agent.queue_model import Mode, QueueModel, Spoken

T = TypeVar("T")
TEXTS = st.sampled_from(("a", "b", "")) | st.text(max_size=5)
MODES = st.sampled_from(("one-at-a-time", "all"))


class AgentMachine(RuleBasedStateMachine):
    """An agent and a model of it that are told the same things; the agent's own model and tools are held until a rule lets them go on."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = DrawnLoop()
        self.loop.turn = self._turn
        self.orders: asyncio.Queue[Callable[[str], Iterable[Chunk | ModelResponse]]] = asyncio.Queue()
        self.gates: dict[str, asyncio.Future[bool]] = {}
        self.calls = 0
        self.said = ""
        self.streams: list[EventStream[AgentEvent, RunResult]] = []
        self.heard: list[list[tuple[str, int]]] = []
        self.forgets: list[Callable[[], None]] = []
        self.is_raising = False
        self.raised = 0

    @initialize(max_steps=st.integers(1, 4), steering=MODES, follow_up=MODES, is_parallel=st.booleans())
    def begin(self, max_steps: int, steering: Mode, follow_up: Mode, *, is_parallel: bool) -> None:
        self.model = QueueModel(max_steps, steering, follow_up, is_parallel)
        self.agent = Agent(
            model=ScriptedModel([self._answer] * 200),
            tools=[self._tool()],
            max_steps=max_steps,
            options=AgentOptions(
                steering_mode=steering,
                follow_up_mode=follow_up,
                tool_execution="parallel" if is_parallel else "sequential",
            ),
        )

    def _turn(self) -> None:
        if self.loop.ready:
            self.loop.step(0)
        else:
            self.loop.stop()

    def _quiet(self) -> None:
        """Let everything run that can."""
        self.loop.run_forever()

    def _do(self, call: Callable[[], T]) -> T | str:
        """Call the agent within its loop and let everything run; an error comes as its code."""
        made: list[T | str] = []

        def inside() -> None:
            try:
                made.append(call())
            except AgentError as error:
                made.append(error.code)

        self.loop.call_soon(inside)
        self._quiet()
        return made[0]

    async def _answer(self, request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        self.said = ""
        while True:
            order = await self.orders.get()
            for item in order(request.id):
                yield item
                if isinstance(item, ModelResponse):
                    return

    def _tool(self) -> FunctionTool:
        @tool
        async def work(context: ToolContext) -> str:
            gate = self.gates[context.call_id] = self.loop.create_future()
            try:
                if await gate:
                    raise ValueError(context.call_id)
            finally:
                del self.gates[context.call_id]
            return "done"

        return work

    def _start(self, call: Callable[[], EventStream[AgentEvent, RunResult]], expected: str) -> None:
        made = self._do(call)
        assert (made if isinstance(made, str) else "ok") == expected
        if not isinstance(made, str):
            self.streams.append(made)

    def _order(self, order: Callable[[str], Iterable[Chunk | ModelResponse]]) -> None:
        self.loop.call_soon(self.orders.put_nowait, order)
        self._quiet()

    @rule(text=TEXTS)
    def prompt(self, text: str) -> None:
        self._start(lambda: self.agent.prompt(text), self.model.prompt(text))

    @rule()
    def continue_(self) -> None:
        self._start(self.agent.continue_, self.model.continue_())

    @rule(text=TEXTS)
    def steer(self, text: str) -> None:
        message = self._do(lambda: self.agent.steer(text))
        assert isinstance(message, UserMessage)
        self.model.steering.append(text)

    @rule(text=TEXTS)
    def follow_up(self, text: str) -> None:
        message = self._do(lambda: self.agent.follow_up(text))
        assert isinstance(message, UserMessage)
        self.model.follow_up.append(text)

    @rule()
    def clear(self) -> None:
        removed = self._do(self.agent.clear_queue)
        assert not isinstance(removed, str)
        texts = [item.content for item in removed.steering], [item.content for item in removed.follow_up]
        assert texts == self.model.clear()

    @rule()
    def cancel(self) -> None:
        assert self._do(self.agent.cancel) is self.model.cancel()
        assert not self.gates

    @precondition(lambda self: self.model.is_running and not self.model.turn.calls)
    @rule()
    def chunk(self) -> None:
        self.said += "x"
        self._order(lambda request: (TextDelta(request, "x"),))
        self.model.chunk()

    @precondition(lambda self: self.model.is_running and not self.model.turn.calls)
    @rule(count=st.sampled_from((0, 0, 1, 2, 3)))
    def respond(self, count: int) -> None:
        calls = tuple(f"c{self.calls + number}" for number in range(count))
        self.calls += count
        blocks = tuple(ToolCall(call, "work", {}) for call in calls)
        text = (self.said,) if self.said else () if blocks else ("text",)
        self._order(lambda _request: (reply(*text, *blocks),))
        self.model.respond(calls)

    @precondition(lambda self: self.model.is_running and not self.model.turn.calls)
    @rule()
    def fail(self) -> None:
        def broken(_request: str) -> Iterable[Chunk | ModelResponse]:
            raise ConnectionError

        self._order(broken)
        self.model.fail()

    @precondition(lambda self: bool(self.model.turn.calls))
    @rule(which=st.integers(0, 2), is_error=st.sampled_from((False, False, True)))
    def finish_call(self, which: int, *, is_error: bool) -> None:
        running = self.model.turn.open(is_parallel=self.model.is_parallel)
        assert tuple(self.gates) == running
        call = running[which % len(running)]
        self.loop.call_soon(self.gates[call].set_result, is_error)
        self._quiet()
        self.model.finish_call(call, is_error=is_error)

    @rule()
    def subscribe(self) -> None:
        heard: list[tuple[str, int]] = []

        def hear(event: AgentEvent, _signal: CancelSignal) -> None:
            heard.append((event.run_id, event.sequence))
            if self.is_raising:
                self.raised += 1
                raise ValueError(event.type)
            if event.type == "run.finished":
                with pytest.raises(AgentBusyError):
                    self.agent.prompt("from a listener")

        self.heard.append(heard)
        self.forgets.append(self.agent.subscribe(hear))

    @precondition(lambda self: bool(self.forgets))
    @rule()
    def unsubscribe(self) -> None:
        forget = self.forgets.pop(0)
        forget()
        forget()
        self.heard.pop(0)

    @rule(is_raising=st.booleans())
    def misbehave(self, *, is_raising: bool) -> None:
        self.is_raising = is_raising

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "model"):
            return
        agent, model = self.agent, self.model
        assert [_spoken(message) for message in agent.messages] == model.transcript
        assert validate_transcript(agent.messages) == ()
        assert [item.content for item in agent.queued.steering] == model.steering
        assert [item.content for item in agent.queued.follow_up] == model.follow_up
        assert agent.is_running is model.is_running
        assert len(agent.subscriber_errors) == self.raised
        if self.streams:
            self._same_run(self.streams[-1])

    def _same_run(self, stream: EventStream[AgentEvent, RunResult]) -> None:
        told = [event.type for event in stream]
        assert told == self.model.events
        assert [event.sequence for event in stream] == list(range(len(stream)))
        for heard in self.heard:
            mine = [sequence for run_id, sequence in heard if run_id == stream[0].run_id] if len(stream) else []
            assert mine == list(range(len(stream) - len(mine), len(stream)))
        assert stream.is_done is bool(self.model.end)
        if stream.is_done:
            self._same_end(stream)

    def _same_end(self, stream: EventStream[AgentEvent, RunResult]) -> None:
        result = self.loop.run_until_complete(_result_of(stream))
        assert (result.error.code if isinstance(result, Failed) else result.status) == self.model.end
        if isinstance(result, Cancelled):
            assert {call.call.id: call.state for call in result.unadopted_calls} == self.model.unadopted

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self._do(self.agent.cancel)
            assert asyncio.all_tasks(self.loop) == set()
        self.loop.close()


async def _result_of(stream: EventStream[AgentEvent, RunResult]) -> RunResult:
    return await stream


def _spoken(message: Message) -> Spoken:
    if isinstance(message, UserMessage):
        return ("user", message.content, None)
    if isinstance(message, ToolResult):
        return ("result", message.tool_call_id, message.is_error)
    return ("assistant", tuple(block.id for block in message.content if isinstance(block, ToolCall)), None)


@pytest.mark.timeout(600)
def test_an_agent_does_what_the_model_of_its_queues_does() -> None:
    examples = amount(400)
    run_state_machine_as_test(
        AgentMachine, settings=settings(max_examples=examples, stateful_step_count=60, deadline=None)
    )
    report("agent against a model of its queues: examples", examples, passed=examples)
