"""A run of three turns and six calls, with a hook, a model, a listener and tools that await: the scene in which every await is tried."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from checkrein.agent.agent import Agent, AgentOptions
from checkrein.loop.events import AgentEvent, RunResult
from checkrein.loop.options import AgentHooks
from checkrein.messages import Message, ToolCall, ToolResult
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse, TextDelta, ToolCallDelta
from checkrein.ports.tool import CancelSignal, ToolContext
from checkrein.streams import EventStream
from checkrein.testing.scripted import ScriptedModel, reply
from checkrein.tools.function import FunctionTool, tool
from tests.eager import eager_task_factory
from tests.exploration.drawn_loop import DrawnLoop

Execution = Literal["sequential", "parallel"]
GRACE_SECONDS = 5.0
NAMES = ("look", "keep", "quick")
CALLS = (
    tuple(ToolCall(f"c{number}", name, {}) for number, name in enumerate(NAMES, 1)),
    tuple(ToolCall(f"c{number}", name, {}) for number, name in enumerate(reversed(NAMES), 4)),
)
"""What the first two turns call; the third only speaks, and then a follow-up is answered."""


def _nothing(_number: int, _place: str) -> None:
    """Let an await be."""


def _no_action() -> None:
    """Let a step be."""


@dataclass
class Scene:
    """One run of the story.

    Attributes:
        execution: how the calls of a turn run.
        is_eager: tasks begin at once.
        at: called at each await of user code with its number and its place; may call the agent or raise.
        deaf_at: the number of an await that ignores being cancelled and waits for `release`.
        action: done before step `action_step` of the event loop.
        action_step: when.
    """

    execution: Execution = "sequential"
    is_eager: bool = False
    at: Callable[[int, str], None] = _nothing
    deaf_at: int = -1
    action: Callable[[], object] = _no_action
    action_step: int = -1
    awaits: int = 0
    steps: int = 0
    bodies: dict[str, str] = field(default_factory=dict[str, str])
    places: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.loop = DrawnLoop()
        self.loop.turn = self._turn
        self.loop.set_exception_handler(lambda _loop, context: self.told.append(context))
        self.told: list[dict[str, object]] = []
        if self.is_eager:
            self.loop.set_task_factory(eager_task_factory())
        self.gate: asyncio.Future[None] = self.loop.create_future()
        self.is_calm = False
        self.streams: list[EventStream[AgentEvent, RunResult]] = []
        self.agent = Agent(
            model=ScriptedModel([self._answer] * 20),
            tools=self._tools(),
            hooks=AgentHooks(
                before_tool_call=self._before,
                after_tool_call=self._after,
                transform_context=self._transform,
                prepare_turn=self._prepare,
                should_stop=self._should_stop,
            ),
            options=AgentOptions(tool_execution=self.execution, grace_seconds=GRACE_SECONDS),
        )
        self.agent.subscribe(self._hear)
        self.agent.follow_up("kept")

    def play(self) -> RunResult:
        """Prompt, and run until nothing is left to do; return the result."""
        self.loop.call_soon(lambda: self.streams.append(self.agent.prompt("go")))
        self.loop.run_forever()
        return self.result()

    def again(self) -> RunResult:
        """Prompt once more, undisturbed."""
        self.is_calm = True
        self.at, self.action_step, self.deaf_at = _nothing, -1, -1
        return self.play()

    def release(self) -> None:
        """Let the deaf await go on, and run until nothing is left to do."""
        self.loop.call_soon(self.gate.set_result, None)
        self.loop.run_forever()

    def result(self) -> RunResult:
        """Return the result of the last run, which is there and is the last event's."""
        stream = self.streams[-1]
        assert stream.is_done
        assert [event.sequence for event in stream] == list(range(len(stream)))
        ends = [event for event in stream if event.type == "run.finished"]
        assert len(ends) == 1
        assert stream[-1] is ends[0]
        return ends[0].result

    async def pause(self, place: str) -> None:
        """Be an await of user code."""
        number, self.awaits = self.awaits, self.awaits + 1
        self.places.append(place)
        self.at(number, place)
        while number == self.deaf_at and not self.gate.done():
            try:
                await asyncio.shield(self.gate)
            except asyncio.CancelledError:
                continue
        await asyncio.sleep(0)

    def _turn(self) -> None:
        if self.steps == self.action_step:
            self.action_step = -1
            self.action()
        if self.loop.ready:
            self.steps += 1
            self.loop.step(0)
        elif self.loop.has_timer:
            self.loop.fire()
        else:
            self.loop.stop()

    async def _answer(self, request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        await self.pause("model")
        turn = int(request.id.removeprefix("request-"))
        yield TextDelta(request.id, "text")
        await self.pause("model")
        calls = CALLS[turn - 1] if turn <= len(CALLS) and not self.is_calm else ()
        for call in calls:
            yield ToolCallDelta(request.id, call)
            await self.pause("model")
        yield reply("text", *calls)
        await self.pause("model")

    def _tools(self) -> tuple[FunctionTool, ...]:
        @tool
        async def look(context: ToolContext) -> str:
            return await self._body(context)

        @tool(cancellable=False)
        async def keep(context: ToolContext) -> str:
            return await self._body(context)

        @tool(inline=True)
        def quick(context: ToolContext) -> str:
            self.bodies[context.call_id] = "returned"
            return "done"

        return look, keep, quick

    async def _body(self, context: ToolContext) -> str:
        self.bodies[context.call_id] = "began"
        await self.pause("tool")
        await self.pause("tool")
        self.bodies[context.call_id] = "returned"
        return "done"

    async def _before(self, _call: ToolCall) -> None:
        await self.pause("before")

    async def _after(self, _call: ToolCall, _result: ToolResult) -> None:
        await self.pause("after")

    async def _transform(self, messages: Sequence[Message]) -> Sequence[Message]:
        await self.pause("transform")
        return messages

    async def _prepare(self, _step: int) -> None:
        await self.pause("prepare")

    async def _should_stop(self, _messages: Sequence[Message]) -> bool:
        await self.pause("stop")
        return False

    async def _hear(self, _event: AgentEvent, _signal: CancelSignal) -> None:
        await self.pause("listener")
