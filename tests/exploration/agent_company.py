"""Everybody around an agent: a model, tools, hooks and listeners that pause, fail, refuse to stop and call the agent back, as the world draws.

Each of them says when it begins, so that nothing of a run begins after its cancellation or its end.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

from checkrein.errors import AgentStateError, FatalToolError, TransientModelError
from checkrein.loop.events import AgentEvent, Cancelled, Failed
from checkrein.loop.options import AgentHooks, Allow, Deny, ToolDecision, TurnSettings
from checkrein.messages import Message, Text, ToolCall, ToolResult
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse, TextDelta
from checkrein.ports.tool import Accepted, CancelSignal, ToolContext
from checkrein.testing.scripted import reply
from checkrein.tools.function import FunctionTool, tool

if TYPE_CHECKING:
    from tests.exploration.agent_world import Run, World

RUN: ContextVar[int] = ContextVar("run", default=-1)
"""The run whose code this is, by its place among the world's runs; whoever starts one sets it."""
GRACE_SECONDS = 5.0
STAGE: list["Company"] = []
"""The company that plays now; tools are made once and play in every story."""


class OddError(BaseException):
    """What nobody expects a listener or a model to raise."""


@tool
async def work(context: ToolContext) -> str:
    """Work, and stop when told."""
    return await STAGE[-1].body(context)


@tool(cancellable=False)
async def keep(context: ToolContext) -> str:
    """Work to the end."""
    return await STAGE[-1].body(context)


@tool
async def deaf(context: ToolContext) -> str:
    """Work on when told to stop."""
    return await STAGE[-1].body(context, is_deaf=True)


@tool(inline=True)
def quick(context: ToolContext) -> str:
    """Answer at once."""
    return STAGE[-1].quick_body(context)


@tool(timeout_seconds=50)
async def timed(context: ToolContext) -> str:
    """Work within a limit."""
    return await STAGE[-1].body(context)


@tool(sequential=True)
async def alone(number: int, context: ToolContext) -> str:
    """Work while nobody else does."""
    return f"{number} {await STAGE[-1].body(context)}"


@tool
async def job(context: ToolContext) -> Accepted:
    """Accept a job, and be asked for its outcome."""
    await STAGE[-1].body(context)
    STAGE[-1].world.runs[RUN.get()].bodies[context.call_id] = "accepted"
    return Accepted(context.call_id, poll=STAGE[-1].poll, interval_seconds=1.0)


TOOLS: tuple[FunctionTool, ...] = (work, keep, deaf, quick, timed, alone, job)
NAMES = ("work", "work", "keep", "deaf", "quick", "quick", "timed", "alone", "job", "missing")


class Company:
    """Plays everybody of one story."""

    tools = TOOLS

    def __init__(self, world: "World") -> None:
        self.world = world
        self.calls = 0
        self.clumsiness = world.rng.choice((0.05,) * 9 + (0.9,))
        STAGE[:] = [self]

    def begin(self, what: str) -> "Run":
        """Note that somebody of the present run begins, and hold that it may."""
        world = self.world
        world.note(what)
        world.must(not world.is_calling, f"{what} began before the call had returned")
        run = world.runs[RUN.get()]
        world.must(run.may_begin, f"{what} began after the end or the cancellation of its run")
        return run

    async def pause(self, *, is_deaf: bool = False) -> None:
        """Wait for a gate, for a turn of the loop, or not at all; the deaf wait on when cancelled."""
        world, draw = self.world, self.world.rng.random()
        if draw < 0.35:
            return
        if draw < 0.5 and not is_deaf:
            await asyncio.sleep(0)
            return
        gates = world.gates
        while True:
            gate: asyncio.Future[None] = world.loop.create_future()
            gates.append(gate)
            try:
                await gate
            except asyncio.CancelledError:
                if not is_deaf:
                    raise
                gates = world.stubborn
            else:
                return

    def sometimes(self, chance: float) -> bool:
        """Draw whether something unusual happens; never in a calm story."""
        return not self.world.is_calm and self.world.rng.random() < chance

    def visit(self, chance: float = 0.1) -> None:
        """Sometimes call the agent back."""
        if self.sometimes(chance):
            self.world.reenter()

    # The model.

    async def answer(self, request: ModelRequest, signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        run = self.begin("model")
        self._check_request(run, request, signal)
        is_deaf = self.sometimes(0.05)
        await self.pause(is_deaf=is_deaf)
        self.visit()
        if self.sometimes(0.12):
            raise self.world.rng.choice(
                (
                    RuntimeError("broken"),
                    TransientModelError("busy"),
                    asyncio.CancelledError("by itself"),
                    OddError("odd"),
                )
            )
        text = "" if self.sometimes(0.1) else "text"
        if text:
            yield TextDelta(request.id, text)
            await self.pause(is_deaf=is_deaf)
        calls = self._calls() if self.sometimes(0.5) else ()
        yield reply(*((Text(text),) if text else ()), *calls)
        if self.sometimes(0.05):
            await self.pause()

    def _check_request(self, run: "Run", request: ModelRequest, signal: CancelSignal) -> None:
        world = self.world
        world.absorb()
        world.must(not signal.is_cancelled, "a request after the cancellation")
        world.must(tuple(request.messages) == world.ledger.transcript, "the request's messages are not the transcript")
        is_retry = bool(run.requests) and request.id == run.requests[-1]
        expected = f"request-{len(set(run.requests)) + 1:03}"
        world.must(is_retry or request.id == expected, f"request {request.id}, not {expected}")
        came, run.came_before_request = len(run.came) - run.came_before_request, len(run.came)
        at_most = 1 if run.requests else 2
        if set(world.modes.values()) == {"one-at-a-time"}:
            world.must(came <= at_most, f"{came} messages were accepted at one boundary")
        run.requests.append(request.id)

    def _calls(self) -> tuple[ToolCall, ...]:
        rng = self.world.rng
        made: list[ToolCall] = []
        for _ in range(rng.choice((1, 1, 2, 2, 3))):
            self.calls += 1
            name = rng.choice(NAMES)
            arguments: dict[str, object] = {"number": 1} if name == "alone" and rng.random() < 0.8 else {}
            malformed = "{" if rng.random() < self.clumsiness else ""
            made.append(ToolCall(f"c{self.calls}", name, {} if malformed else arguments, malformed))
        room = self.world.ledger.caps.blocks - 1
        return tuple(made[:room])

    # The tools.

    async def body(self, context: ToolContext, *, is_deaf: bool = False) -> str:
        run = self.begin("tool")
        run.bodies[context.call_id] = "began"
        try:
            await self.pause(is_deaf=is_deaf)
            context.progress("half")
            self.visit()
            await self._waits_for_itself(run)
            await self.pause(is_deaf=is_deaf)
            self._fails(context)
        except asyncio.CancelledError:
            run.bodies[context.call_id] = "stopped" if context.signal.is_cancelled else "cancelled itself"
            raise
        except BaseException:
            run.bodies[context.call_id] = "raised"
            raise
        run.bodies[context.call_id] = "returned"
        return "done"

    def quick_body(self, context: ToolContext) -> str:
        run = self.begin("quick tool")
        run.bodies[context.call_id] = "raised"
        self.visit(0.2)
        try:
            self._fails(context)
        except asyncio.CancelledError:
            run.bodies[context.call_id] = "cancelled itself"
            raise
        run.bodies[context.call_id] = "returned"
        return "done"

    def _fails(self, context: ToolContext) -> None:
        if self.sometimes(0.12):
            errors = (ValueError("no"), asyncio.CancelledError("by itself"), OddError("odd"), FatalToolError("fatal"))
            error = self.world.rng.choice(errors)
            if not (isinstance(error, asyncio.CancelledError) and context.signal.is_cancelled):
                raise error

    async def poll(self, _handle: str) -> str | None:
        """Say what became of a job: nothing yet, its result, or an error."""
        self.begin("poll")
        self.visit()
        await self.pause()
        if self.sometimes(0.1):
            raise ValueError("no")
        return None if self.sometimes(0.3) else "job done"

    async def _waits_for_itself(self, run: "Run") -> None:
        if not self.sometimes(0.05) or run.stream.is_done:
            return
        try:
            await self.world.agent.wait_idle()
        except AgentStateError:
            return
        self.world.must(run.stream.is_done, "a tool waited for the end of its own run")

    # The hooks.

    def hooks(self) -> AgentHooks:
        """Return some of the hooks."""

        def some() -> bool:
            return self.world.rng.random() < 0.3

        return AgentHooks(
            before_tool_call=self.before if some() else None,
            after_tool_call=self.after if some() else None,
            transform_context=self.transform if some() else None,
            prepare_turn=self.prepare if some() else None,
            should_stop=self.stops if some() else None,
        )

    async def _hook(self, what: str) -> None:
        self.begin(what)
        self.visit()
        await self.pause(is_deaf=self.sometimes(0.05))
        self.visit()
        if self.sometimes(0.05):
            raise self.world.rng.choice((ValueError("no"), asyncio.CancelledError("by itself"), OddError("odd")))

    async def before(self, _call: ToolCall) -> ToolDecision:
        await self._hook("hook before")
        if self.sometimes(0.1):
            return self.world.rng.choice((Deny("no"), Allow({"number": 2}), Allow({"number": "x"}), None))
        return None

    async def after(self, _call: ToolCall, _result: ToolResult) -> ToolResult | None:
        await self._hook("hook after")
        return ToolResult("", "", "", "changed") if self.sometimes(0.2) else None

    def transform(self, messages: Sequence[Message]) -> Sequence[Message] | Awaitable[Sequence[Message]]:
        self.begin("hook transform")
        self.visit()
        return messages

    async def prepare(self, _step: int) -> TurnSettings | None:
        await self._hook("hook prepare")
        return None

    def stops(self, _messages: Sequence[Message]) -> bool | Awaitable[bool]:
        if self.world.rng.random() < 0.5:
            return self._stops_later()
        self.begin("hook stop")
        self.visit(0.2)
        return self.sometimes(0.1)

    async def _stops_later(self) -> bool:
        await self._hook("hook stop")
        return self.sometimes(0.1)

    # Those who wait.

    async def later(self) -> None:
        """Wait for the run's end, for idleness, or for the agent to close, and look at what came."""
        world = self.world
        run = world.open_run()
        await self.pause()
        draw = world.rng.random()
        if draw < 0.5 and run is not None:
            result = await run.stream
            world.must(run.stream[-1].type == "run.finished", "a waiter was woken before the end")
            world.must(result is await run.stream, "two results of one run")
        elif draw < 0.9:
            await world.agent.wait_idle()
        else:
            world.expect_cancel()
            await world.agent.aclose()

    async def fails_later(self) -> None:
        """Fail after a while, as a listener's coroutine may."""
        await self.pause()
        self.world.listener_failures += 1
        raise OddError("later")

    def check_unadopted(self, run: "Run", result: Cancelled | Failed) -> None:
        """Hold what a dropped turn says of its calls against what their bodies did."""
        world = self.world
        was_abandoned = run.is_cancelled and world.loop.now >= run.cancelled_at + GRACE_SECONDS
        for call in result.unadopted_calls:
            body = run.bodies.get(call.call.id, "never began")
            expected = {
                "never began": {"not_started", "failed"},
                "began": {"outcome_unknown"},
                "stopped": {"outcome_unknown"},
                "raised": {"failed"},
                "cancelled itself": {"failed", "outcome_unknown"},
                "returned": {"finished"},
                "accepted": {"finished", "failed", "outcome_unknown"},
            }[body]
            if call.call.name == "timed" or was_abandoned:
                expected = expected | {"outcome_unknown", "failed"}
            world.must(call.state in expected, f"{call.call.id} {body}, and is said to be {call.state}")
            has_result = call.state in {"finished", "failed"}
            world.must((call.result is not None) == has_result, f"{call.state} with result {call.result}")


class Ear:
    """A listener: hears every event of the runs it was there for, in order, and is not always well-behaved."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.is_subscribed = True
        self._run = ""
        self._next = 0

    def hear(self, event: AgentEvent, signal: CancelSignal) -> object:
        world = self.world
        run = world.runs[int(event.run_id.removeprefix("run")) - 1]
        world.must(not world.is_calling, f"{event.type} before the call had returned")
        world.must(not run.stream.is_done, f"{event.type} after the end")
        if event.run_id != self._run:
            world.must(self._next == 0 or world.runs[-1] is run, "an event of an earlier run")
            self._run, self._next = event.run_id, event.sequence
        world.must(event.sequence == self._next, f"heard {event.sequence}, not {self._next}")
        self._next += 1
        run.is_finishing = run.is_finishing or event.type == "run.finished"
        world.must(signal.is_cancelled or not run.is_cancelled, "the signal does not say that the run is cancelled")
        return self._misbehave()

    def _misbehave(self) -> object:
        world, company = self.world, self.world.company
        company.visit(0.06)
        draw = world.rng.random()
        if world.is_calm or draw > 0.09:
            return None
        if draw < 0.05:
            world.count("listener raised")
            world.listener_failures += 1
            raise world.rng.choice((ValueError("no"), OddError("odd"), asyncio.CancelledError("listener")))
        return company.later() if draw < 0.07 else company.fails_later()
