"""Time limits, cancellation and grace: whatever a body does, there is one outcome, in bounded time."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from checkrein.ports.tool import CancelSignal, ToolContext, ToolOutput
from checkrein.testing.manual_clock import ManualClock
from checkrein.tools.dispatch import Dispatcher, DispatchOptions
from checkrein.tools.function import FunctionTool, tool
from checkrein.tools.outcomes import Done, FailedCall, Outcome, OutcomeUnknown
from tests.unit.tools.calls import context, dispatcher, prepared

GRACE = 5.0
LIMIT = 10.0


class Scene:
    """A tool whose body a test holds in its hand."""

    def __init__(self, body: Callable[..., object], *, idempotent: bool = False, cancellable: bool = True) -> None:
        self.clock = ManualClock()
        self.signal = CancelSignal()
        self.tool: FunctionTool = tool(
            name="held", idempotent=idempotent, cancellable=cancellable, timeout_seconds=LIMIT
        )(body)
        self.made: Dispatcher = dispatcher(self.tool, clock=self.clock, options=DispatchOptions(grace_seconds=GRACE))

    def start(self, *, key: str = "") -> "asyncio.Task[Outcome]":
        call = self.made.execute(prepared(self.made, "held"), context(signal=self.signal, key=key))
        return self.clock.spawn(call, name="caller")


async def endless() -> None:
    await asyncio.Event().wait()


async def deaf(release: asyncio.Event) -> str:
    """Swallow every cancellation until released."""
    while not release.is_set():
        try:
            await release.wait()
        except asyncio.CancelledError:
            continue
    return "too late"


async def test_a_body_within_its_limit_is_not_disturbed() -> None:
    release = asyncio.Event()

    async def body() -> str:
        await release.wait()
        return "in time"

    scene = Scene(body)
    waiting = scene.start()
    await scene.clock.advance(LIMIT - 0.001)
    release.set()
    outcome = await waiting
    assert isinstance(outcome, Done)
    assert (outcome.result.value, scene.clock.timers) == ("in time", 0)


async def test_a_timeout_of_an_idempotent_tool_is_a_failure_that_may_pass() -> None:
    scene = Scene(endless, idempotent=True)
    waiting = scene.start()
    await scene.clock.advance(LIMIT)
    assert await waiting == FailedCall("timeout", "held did not end within 10 s", transient=True)
    assert (scene.clock.timers, scene.made.abandoned) == (0, ())


async def test_a_timeout_of_any_other_tool_leaves_its_outcome_unknown() -> None:
    scene = Scene(endless)
    waiting = scene.start()
    await scene.clock.advance(LIMIT)
    outcome = await waiting
    assert isinstance(outcome, OutcomeUnknown)
    assert (outcome.cause, outcome.is_running) == ("timeout", False)


async def test_the_limit_counts_from_the_body_and_not_from_the_queue() -> None:
    clock = ManualClock()
    release = asyncio.Event()

    @tool(timeout_seconds=LIMIT)
    async def slow() -> str:
        await release.wait()
        return "done"

    @tool
    async def first() -> None:
        await release.wait()

    made = dispatcher(slow, first, clock=clock, options=DispatchOptions(limit=1))
    holding = clock.spawn(made.execute(prepared(made, "first"), context()), name="first")
    waiting = clock.spawn(made.execute(prepared(made, "slow"), context()), name="slow")
    await clock.advance(LIMIT * 3)
    release.set()
    assert isinstance(await waiting, Done)
    assert isinstance(await holding, Done)


async def test_a_body_that_swallows_cancellation_is_given_up_after_the_grace() -> None:
    release = asyncio.Event()

    async def body() -> str:
        return await deaf(release)

    scene = Scene(body)
    waiting = scene.start()
    await scene.clock.advance(LIMIT + GRACE - 0.001)
    assert not waiting.done()
    await scene.clock.advance(0.001)
    outcome = await waiting
    assert isinstance(outcome, OutcomeUnknown)
    assert (outcome.cause, outcome.is_running) == ("timeout", True)
    assert scene.made.abandoned == ("tool held 1.0",)
    release.set()
    await scene.clock.advance(0)
    assert scene.made.abandoned == ()


async def test_a_result_after_the_time_limit_is_dropped() -> None:
    async def body() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "too late"
        return "never"

    scene = Scene(body, idempotent=True)
    waiting = scene.start()
    await scene.clock.advance(LIMIT)
    outcome = await waiting
    assert isinstance(outcome, FailedCall)
    assert outcome.kind == "timeout"


async def test_an_abandoned_body_gives_its_slot_back_and_its_error_is_observed() -> None:
    release = asyncio.Event()
    clock = ManualClock()

    @tool(timeout_seconds=LIMIT)
    async def stubborn() -> None:
        await deaf(release)
        msg = "nobody hears this"
        raise ValueError(msg)

    @tool
    async def other() -> str:
        return "served"

    made = dispatcher(stubborn, other, clock=clock, options=DispatchOptions(limit=1, grace_seconds=GRACE))
    holding = clock.spawn(made.execute(prepared(made, "stubborn"), context()), name="stubborn")
    await clock.advance(0)
    waiting = clock.spawn(made.execute(prepared(made, "other"), context()), name="other")
    await clock.advance(LIMIT + GRACE)
    assert isinstance(await waiting, Done)
    assert isinstance(await holding, OutcomeUnknown)
    release.set()
    # An exception that nobody observed would fail this test: warnings are errors.
    await clock.advance(0)
    assert made.abandoned == ()


async def test_a_cancelled_body_that_stops_says_so() -> None:
    scene = Scene(endless)
    waiting = scene.start()
    await scene.clock.advance(0)
    scene.signal.cancel("enough\udcff")
    await scene.clock.advance(0)
    assert await waiting == OutcomeUnknown("cancelled", "interrupted, outcome unknown: enough\ufffd", is_running=False)


async def test_a_cancelled_body_that_finishes_within_the_grace_has_its_result() -> None:
    release = asyncio.Event()

    async def body() -> str:
        await release.wait()
        return "sent"

    scene = Scene(body, cancellable=False)
    waiting = scene.start()
    await scene.clock.advance(0)
    scene.signal.cancel("enough")
    await scene.clock.advance(GRACE - 1)
    release.set()
    outcome = await waiting
    assert isinstance(outcome, Done)
    assert outcome.result.value == "sent"


async def test_a_cancelled_body_that_fails_within_the_grace_has_failed() -> None:
    async def body() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            msg = "clean-up failed"
            raise ValueError(msg) from None

    scene = Scene(body)
    waiting = scene.start()
    await scene.clock.advance(0)
    scene.signal.cancel("enough")
    assert await waiting == FailedCall("internal", "ValueError: clean-up failed")


async def test_a_body_that_cannot_be_cancelled_is_waited_for_no_longer_than_the_grace() -> None:
    scene = Scene(endless, cancellable=False)
    waiting = scene.start()
    await scene.clock.advance(0)
    scene.signal.cancel("enough")
    await scene.clock.advance(GRACE - 0.001)
    assert not waiting.done()
    await scene.clock.advance(0.001)
    assert await waiting == OutcomeUnknown("cancelled", "interrupted, outcome unknown: enough", is_running=True)


async def test_a_body_that_cannot_be_cancelled_is_given_up_at_its_limit() -> None:
    scene = Scene(endless, cancellable=False)
    waiting = scene.start()
    await scene.clock.advance(LIMIT)
    outcome = await waiting
    assert isinstance(outcome, OutcomeUnknown)
    assert outcome.is_running


async def test_a_body_that_never_began_is_not_in_doubt() -> None:
    signal = CancelSignal()
    signal.cancel("before")
    count = 0

    async def body() -> None:
        nonlocal count
        count += 1

    scene = Scene(body, cancellable=False)
    scene.signal = signal
    assert await scene.start() == FailedCall("cancelled", "not started: before")
    assert count == 0


async def test_a_call_that_was_cancelled_before_does_not_wait_for_its_turn() -> None:
    clock = ManualClock()
    signal = CancelSignal()
    signal.cancel("before")
    held = tool(name="held")(endless)
    made = dispatcher(held, clock=clock, options=DispatchOptions(limit=1))
    first = clock.spawn(made.execute(prepared(made, "held"), context()), name="first")
    await clock.advance(0)
    second = clock.spawn(made.execute(prepared(made, "held"), context(signal=signal)), name="second")
    await clock.advance(0)
    assert second.result() == FailedCall("cancelled", "not started: before")
    first.cancel()
    await clock.advance(0)
    assert first.cancelled()


async def test_a_call_waiting_for_its_turn_can_be_cancelled() -> None:
    clock = ManualClock()
    release = asyncio.Event()
    signal = CancelSignal()

    @tool
    async def held() -> None:
        await release.wait()

    made = dispatcher(held, clock=clock, options=DispatchOptions(limit=1))
    first = clock.spawn(made.execute(prepared(made, "held"), context()), name="first")
    second = clock.spawn(made.execute(prepared(made, "held"), context(signal=signal)), name="second")
    await clock.advance(0)
    signal.cancel("enough")
    assert await second == FailedCall("cancelled", "not started: enough")
    release.set()
    assert isinstance(await first, Done)
    assert isinstance(await made.execute(prepared(made, "held"), context()), Done)


async def test_the_bodys_own_signal_is_set_with_the_reason() -> None:
    seen: list[CancelSignal] = []

    async def body(ctx: ToolContext) -> None:
        seen.append(ctx.signal)
        await asyncio.Event().wait()

    scene = Scene(body)
    waiting = scene.start()
    await scene.clock.advance(LIMIT)
    await waiting
    assert (seen[0].is_cancelled, seen[0].reason) == (True, "timed out after 10 s")
    assert not scene.signal.is_cancelled


async def test_a_waiter_that_is_cancelled_stops_the_body() -> None:
    stopped = asyncio.Event()

    async def body() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    scene = Scene(body)
    waiting = scene.start(key="k")
    await scene.clock.advance(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await stopped.wait()
    await scene.clock.advance(GRACE)
    assert scene.clock.timers == 0


async def test_progress_after_the_verdict_is_dropped() -> None:
    heard: list[str] = []
    given: list[ToolContext] = []

    async def body(ctx: ToolContext) -> None:
        given.append(ctx)
        ctx.progress("half")

    made = dispatcher(tool(name="f")(body))
    await made.execute(prepared(made, "f"), context(progress=heard.append))
    given[0].progress("after")
    assert heard == ["half"]


async def test_a_thread_that_never_ends_is_given_up_and_keeps_nobody() -> None:
    release = threading.Event()
    clock = ManualClock()
    entered = asyncio.Event()
    loop = asyncio.get_running_loop()

    @tool(timeout_seconds=LIMIT)
    def stubborn(ctx: ToolContext) -> str:
        loop.call_soon_threadsafe(entered.set)
        ctx.progress("from a thread")
        release.wait()
        return "too late"

    heard = asyncio.Event()
    made = dispatcher(stubborn, clock=clock)
    given = context(progress=lambda _text: heard.set())
    waiting = clock.spawn(made.execute(prepared(made, "stubborn"), given), name="caller")
    await entered.wait()
    await heard.wait()
    await clock.advance(LIMIT)
    outcome = await waiting
    assert isinstance(outcome, OutcomeUnknown)
    assert outcome.is_running
    (thread,) = [item for item in threading.enumerate() if item.name == "tool stubborn"]
    assert thread.daemon
    release.set()
    thread.join()
    await clock.advance(0)
    assert made.abandoned == ()


async def test_a_thread_that_outlives_its_loop_is_dropped_in_silence() -> None:
    release, entered = threading.Event(), threading.Event()

    @tool(timeout_seconds=0.01)
    def stubborn() -> ToolOutput:
        entered.set()
        release.wait()
        return ToolOutput("too late")

    def run() -> None:
        async def main() -> None:
            made = dispatcher(stubborn)
            await made.execute(prepared(made, "stubborn"), context())

        asyncio.run(main())

    await asyncio.to_thread(run)
    assert entered.is_set()
    (thread,) = [item for item in threading.enumerate() if item.name == "tool stubborn"]
    release.set()
    thread.join()
    assert not thread.is_alive()
