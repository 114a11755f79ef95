"""Making a model request, and making it again: reads the stream, bounds its silence, and never waits for its cleanup.

A stream that is left early is closed in the background; one that ignores being cancelled is the agent's to leave behind after its grace.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from checkrein.clock import jitter
from checkrein.errors import ModelError
from checkrein.loop.events import ModelRetried
from checkrein.loop.request import ResponseCollector
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse, ModelStream
from checkrein.ports.tool import CancelSignal
from checkrein.tools.results import describe_error

if TYPE_CHECKING:
    from checkrein.loop.engine import Engine

__all__ = ["StreamOf", "ask"]

StreamOf = Callable[[ModelRequest, CancelSignal], ModelStream]


async def ask(engine: "Engine", stream_of: StreamOf, request: ModelRequest) -> ModelResponse:
    """Return the response to a request, made as often as the options allow.

    Raises:
        ModelError: no attempt brought a usable response.
        asyncio.CancelledError: the run was cancelled.
    """
    retry = engine.options.retry
    attempt = 1
    while True:
        try:
            return await _attempt(engine, stream_of, request)
        except ModelError as error:
            if attempt >= retry.attempts or not error.is_transient:
                raise
            reason = str(error)
        delay = min(retry.max_seconds, jitter(retry.first_seconds * retry.factor ** (attempt - 1)))
        attempt += 1
        _tell(engine, request.id, (attempt, delay, reason))
        await engine.options.clock.sleep(delay)
        engine.raise_if_stopped()


def _tell(engine: "Engine", request_id: str, retry: tuple[int, float, str]) -> None:
    engine.publisher.publish(lambda sequence, run_id: ModelRetried(sequence, run_id, request_id, *retry))


async def _attempt(engine: "Engine", stream_of: StreamOf, request: ModelRequest) -> ModelResponse:
    collector = ResponseCollector(request, engine.options.limits, engine.publisher.chunk)
    stream: ModelStream | None = None
    try:
        stream = stream_of(request, engine.signal)
        await _read(engine, stream, collector)
    except ModelError:
        _close_later(engine, stream)
        raise
    except asyncio.CancelledError as error:
        _close_later(engine, stream)
        if not engine.is_callers_own(error):
            raise
        raise ModelError(f"the model's stream was cancelled from within: {error}", is_transient=True) from error
    except BaseException as error:
        if not engine.is_callers_own(error):
            raise
        raise ModelError(f"the model's stream failed: {describe_error(error)}", is_transient=True) from error
    engine.raise_if_stopped()
    return collector.finished()


async def _read(engine: "Engine", stream: ModelStream, collector: ResponseCollector) -> None:
    seconds = engine.options.idle_timeout_seconds
    if seconds is not None:
        await _read_with_alarm(engine, aiter(stream), collector)
        return
    async for item in stream:
        engine.raise_if_stopped()
        collector.take(item)


async def _read_with_alarm(
    engine: "Engine", iterator: AsyncIterator[Chunk | ModelResponse], collector: ResponseCollector
) -> None:
    """Read the stream in a task of its own, so that one that says nothing can be left even if it ignores being cancelled."""
    clock, seconds = engine.options.clock, engine.options.idle_timeout_seconds or 0.0
    while True:
        pull = clock.spawn(_pull(engine, iterator), name="model-stream")
        alarm = clock.spawn(clock.sleep(seconds), name="model-stream-alarm")
        try:
            await asyncio.wait((pull, alarm), return_when=asyncio.FIRST_COMPLETED)
        finally:
            alarm.cancel()
            pull.cancel()
        if not pull.done():
            raise ModelError(f"the model's stream said nothing for {seconds:g} s", is_transient=True)
        engine.raise_if_stopped()
        item = pull.result()
        if item is None:
            return
        collector.take(item)


async def _pull(engine: "Engine", iterator: AsyncIterator[Chunk | ModelResponse]) -> Chunk | ModelResponse | None:
    engine.raise_if_stopped()
    return await anext(iterator, None)


def _close_later(engine: "Engine", stream: ModelStream | None) -> None:
    """Close a stream that is left early, without waiting: its cleanup may hang or raise."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        engine.options.clock.spawn(_close(close), name="model-stream-close")


async def _close(close: Callable[[], object]) -> None:
    answer = close()
    if asyncio.iscoroutine(answer) or hasattr(answer, "__await__"):
        await answer  # type: ignore[misc]  # checked in the line above
