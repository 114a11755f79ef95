"""Requests that are made again, streams that say nothing, and streams that are left early."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from checkrein.errors import ModelError, TransientModelError
from checkrein.loop.events import ModelRetried
from checkrein.loop.options import LoopOptions, Retry
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse, TextDelta
from checkrein.ports.tool import CancelSignal
from checkrein.testing.manual_clock import ManualClock
from checkrein.testing.scripted import ScriptedModel, ScriptItem, reply
from tests.unit.loop.scene import Held, Stream, call, cancelled, completed, failed, of, start, turns, types

RETRY = Retry(attempts=3, first_seconds=10.0, factor=2.0, max_seconds=25.0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def patient(clock: ManualClock) -> LoopOptions:
    return LoopOptions(retry=RETRY, clock=clock)


async def until_done(clock: ManualClock, stream: Stream) -> None:
    """Let time pass until the run has ended."""
    for _ in range(500):
        if stream.is_done:
            return
        await clock.advance(1.0)
    msg = "the run never ended"
    raise AssertionError(msg)


async def test_nothing_is_asked_again_unless_it_is_wanted() -> None:
    model = ScriptedModel([TransientModelError("busy"), reply("done")])
    await failed(start(model), "MODEL_STREAM_FAILED")
    assert model.call_count == 1


async def _breaks_off(request: ModelRequest, signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
    del signal
    yield TextDelta(request.id, "half an ans")


@pytest.mark.parametrize(
    "first",
    [TransientModelError("busy"), OSError("reset"), _breaks_off, reply(), reply("")],
    ids=["busy", "reset", "breaks off", "nothing", "empty text"],
)
async def test_what_may_pass_is_asked_again_with_the_same_request_off_the_step_count(
    first: ScriptItem, clock: ManualClock
) -> None:
    model = ScriptedModel([first, reply("done")])
    stream = start(model, options=patient(clock), max_steps=1)
    await until_done(clock, stream)
    assert (await completed(stream)).final_text == "done"
    assert [request.id for request in model.requests] == ["request-001", "request-001"]


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (ModelError("no such key"), "MODEL_STREAM_FAILED"),
        (ModelError("too long", code="MODEL_LIMIT"), "MODEL_LIMIT"),
        (reply("x", stop_reason="length"), "MODEL_OUTPUT_LIMIT"),
        (reply("x", stop_reason="tool_call"), "MODEL_PROTOCOL_ERROR"),
    ],
    ids=str,
)
async def test_what_will_not_pass_is_not_asked_again(first: ScriptItem, code: str, clock: ManualClock) -> None:
    model = ScriptedModel([first, reply("done")])
    await failed(start(model, options=patient(clock)), code)
    assert (model.call_count, clock.timers) == (1, 0)


async def test_asking_again_is_told_with_attempt_delay_and_error_and_chunks_before_are_void(clock: ManualClock) -> None:
    stream = start([_breaks_off, OSError("reset"), reply("done")], options=patient(clock))
    await until_done(clock, stream)
    await completed(stream)
    first, second = of(stream, ModelRetried)
    assert (first.attempt, second.attempt, first.request_id) == (2, 3, "request-001")
    assert (first.error, second.error) == (
        "the stream ended without its response",
        "the model's stream failed: OSError: reset",
    )
    assert 5.0 <= first.delay <= 15.0
    assert 10.0 <= second.delay <= 25.0
    assert types(stream)[:4] == ["message.accepted", "model.chunk", "model.retried", "model.retried"]


@pytest.mark.parametrize("asked", [40.0, 300.0])
async def test_a_wait_that_was_asked_for_is_kept_in_full(asked: float, clock: ManualClock) -> None:
    stream = start([TransientModelError("busy", retry_after=asked), reply("done")], options=patient(clock))
    await until_done(clock, stream)
    await completed(stream)
    assert [event.delay for event in of(stream, ModelRetried)] == [asked]
    assert clock.monotonic() >= asked


async def test_a_wait_that_is_too_long_is_not_waited_for(clock: ManualClock) -> None:
    busy = TransientModelError("closed until tomorrow", code="MODEL_RATE_LIMIT", retry_after=300.1)
    stream = start([busy], options=patient(clock))
    result = await failed(stream, "MODEL_RATE_LIMIT")
    assert result.error.message == "closed until tomorrow"
    assert clock.monotonic() == 0


async def test_the_last_failure_is_the_runs_when_the_attempts_are_used_up(clock: ManualClock) -> None:
    model = ScriptedModel([OSError("first"), OSError("second"), OSError("third"), reply("never")])
    stream = start(model, options=patient(clock))
    await until_done(clock, stream)
    result = await failed(stream, "MODEL_STREAM_FAILED")
    assert (model.call_count, result.error.message) == (3, "the model's stream failed: OSError: third")


async def test_each_turn_has_attempts_of_its_own(clock: ManualClock) -> None:
    items = [OSError("1"), OSError("2"), reply(call()), OSError("3"), OSError("4"), reply("done")]
    stream = start(items, options=patient(clock))
    await until_done(clock, stream)
    await completed(stream)


async def test_a_cancellation_acts_during_the_wait(clock: ManualClock) -> None:
    model, signal = ScriptedModel([OSError("reset"), reply("never")]), CancelSignal()
    stream = start(model, options=patient(clock), signal=signal)
    await clock.wait_for_timers()
    signal.cancel("enough")
    await cancelled(stream)
    assert (model.call_count, clock.timers) == (1, 0)


@pytest.mark.parametrize("attempt", range(1, 6))
def test_waits_grow_by_the_factor_and_are_varied_up_to_the_longest(attempt: int) -> None:
    plain = 10.0 * 2.0 ** (attempt - 1)
    for _ in range(50):
        assert min(25.0, plain * 0.5) <= RETRY.delay(attempt) <= min(25.0, plain * 1.5)
    assert Retry(attempts=10_000, factor=10.0, max_seconds=9.0).delay(9_999) == 9.0


# Silence.


def watchful(clock: ManualClock, *, attempts: int = 1) -> LoopOptions:
    retry = Retry(attempts=attempts, first_seconds=0.0)
    return LoopOptions(idle_timeout_seconds=30.0, grace_seconds=5.0, retry=retry, clock=clock)


class Talks:
    """A stream that says one word each time it is let."""

    def __init__(self) -> None:
        self.turns = asyncio.Queue[str]()

    async def __call__(self, request: ModelRequest, signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        del signal
        text = ""
        while (word := await self.turns.get()) != "":
            text += word
            yield TextDelta(request.id, word)
        yield reply(text)


async def test_a_stream_that_says_nothing_for_too_long_failed(clock: ManualClock) -> None:
    held = Held()
    stream = start([held], options=watchful(clock))
    await held.asked.wait()
    await clock.advance(29.9)
    assert not stream.is_done
    await clock.advance(0.2)
    result = await failed(stream, "MODEL_STREAM_FAILED")
    assert result.error.message == "the model's stream said nothing for 30 s"
    assert (held.was_cancelled, clock.timers) == (True, 0)


async def test_silence_is_counted_from_the_last_chunk(clock: ManualClock) -> None:
    talks = Talks()
    stream = start([talks], options=watchful(clock))
    for word in ("a", "b", "c", "d"):
        await clock.advance(20.0)
        talks.turns.put_nowait(word)
        await turns()
    await clock.advance(20.0)
    talks.turns.put_nowait("")
    assert (await completed(stream)).final_text == "abcd"
    assert clock.timers == 0


async def test_a_silent_stream_may_be_asked_again(clock: ManualClock) -> None:
    held = Held()
    model = ScriptedModel([held, reply("done")])
    stream = start(model, options=watchful(clock, attempts=2))
    await held.asked.wait()
    await clock.advance(31.0)
    await clock.advance(1.0)
    assert (await completed(stream)).final_text == "done"
    assert [event.error for event in of(stream, ModelRetried)] == ["the model's stream said nothing for 30 s"]


async def test_a_silent_stream_that_ignores_its_interruption_is_left_behind_after_the_grace(clock: ManualClock) -> None:
    release = asyncio.Event()

    async def deaf(request: ModelRequest, signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        del signal
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        yield TextDelta(request.id, "late")
        yield reply("late")

    stream = start([deaf], options=watchful(clock, attempts=3))
    await clock.advance(31.0)
    assert not stream.is_done
    await clock.advance(5.0)
    await failed(stream, "MODEL_STREAM_FAILED")
    release.set()
    await turns()
    assert types(stream) == ["message.accepted", "run.finished"]


async def test_a_silent_stream_that_speaks_after_its_interruption_has_failed_all_the_same(clock: ManualClock) -> None:
    async def speaks_up(request: ModelRequest, signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        del signal
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            yield TextDelta(request.id, "I am here")
        yield reply("I am here")

    stream = start([speaks_up], options=watchful(clock))
    await clock.advance(31.0)
    result = await failed(stream, "MODEL_STREAM_FAILED")
    assert "said nothing for 30 s" in result.error.message


async def test_a_stream_may_end_in_silence_of_its_own_making(clock: ManualClock) -> None:
    async def ends(request: ModelRequest, signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        del request, signal
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return
        yield reply("never")

    stream = start([ends], options=watchful(clock))
    await clock.advance(31.0)
    result = await failed(stream, "MODEL_STREAM_FAILED")
    assert "said nothing for 30 s" in result.error.message


async def test_a_cancellation_during_silence_is_a_cancellation(clock: ManualClock) -> None:
    held, signal = Held(), CancelSignal()
    stream = start([held], options=watchful(clock), signal=signal)
    await held.asked.wait()
    await clock.advance(29.0)
    signal.cancel("enough")
    await cancelled(stream)
    assert clock.timers == 0


# Streams that are left early.


async def test_a_stream_that_breaks_the_protocol_is_closed() -> None:
    closed: list[str] = []

    async def wrong(request: ModelRequest, signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        del request, signal
        try:
            yield TextDelta("other", "x")
            yield TextDelta("other", "y")
        finally:
            closed.append("closed")

    await failed(start([wrong]), "MODEL_PROTOCOL_ERROR")
    await turns()
    assert closed == ["closed"]


async def test_the_cleanup_of_a_stream_that_is_left_is_not_waited_for() -> None:
    release = asyncio.Event()

    class Hangs:
        """Yields what is not for us, and takes its time to close."""

        def __init__(self) -> None:
            self.is_closing = False

        def stream(self, request: ModelRequest, signal: CancelSignal) -> "Hangs":
            del request, signal
            return self

        def __aiter__(self) -> "Hangs":
            return self

        async def __anext__(self) -> Chunk | ModelResponse:
            return TextDelta("other", "x")

        async def aclose(self) -> None:
            self.is_closing = True
            await release.wait()

    model = Hangs()
    await failed(start(model), "MODEL_PROTOCOL_ERROR")
    await turns()
    assert model.is_closing
    release.set()
    await turns()


async def test_a_stream_that_cancels_itself_failed() -> None:
    result = await failed(start([asyncio.CancelledError("mine")]), "MODEL_STREAM_FAILED")
    assert result.error.message == "the model's stream was cancelled from within: mine"
