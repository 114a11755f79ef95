"""Making a model request, and making it again: reads the stream, bounds its silence, and never waits for its cleanup.

A stream that is left early is closed in the background; one that ignores being cancelled is left behind with the run's task, once the grace is over.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Protocol

from checkrein.errors import ModelError
from checkrein.loop.events import ModelRetried
from checkrein.loop.kit import StreamOf
from checkrein.loop.request import Answer, ResponseCollector
from checkrein.messages import Usage
from checkrein.ports.clock import TimerHandle
from checkrein.ports.model import ModelRequest, ModelStream
from checkrein.ports.tool import CancelSignal
from checkrein.tools.results import describe_error

if TYPE_CHECKING:
    from checkrein.loop.engine import Engine

__all__ = ["ask", "close_later"]

_NOTHING_USED = Usage()


class Spawn(Protocol):
    """Starts a task and keeps it until it ends."""

    def __call__(self, work: Coroutine[object, object, None], *, name: str) -> object:
        """Start it."""
        ...


async def ask(engine: "Engine", stream_of: StreamOf, request: ModelRequest) -> Answer:
    """Return the answer to a request, made as often as the options allow.

    Raises:
        ModelError: no attempt brought a usable response.
        asyncio.CancelledError: the run was cancelled.
    """
    attempt = 1
    while True:
        try:
            return await _attempt(engine, stream_of, request)
        except ModelError as error:
            asked = error.retry_after
            if not error.is_transient or not engine.options.retry.allows(attempt, asked=asked):
                raise
            reason = str(error)
        delay = engine.options.retry.delay(attempt, asked=asked)
        attempt += 1
        engine.publisher.publish(ModelRetried, request.id, attempt, delay, reason)
        engine.raise_if_stopped()
        await engine.options.clock.sleep(delay)
        engine.raise_if_stopped()


async def _attempt(engine: "Engine", stream_of: StreamOf, request: ModelRequest) -> Answer:
    collector = ResponseCollector(request, engine.options.limits, engine.publisher.chunk)
    signal, seconds = engine.signal, engine.options.idle_timeout_seconds
    alarm = None if seconds is None else _Alarm(engine, seconds)
    stream: ModelStream | None = None
    try:
        stream = stream_of(request, signal)
        async for item in stream:
            if signal.is_cancelled:
                raise asyncio.CancelledError(signal.reason)  # noqa: TRY301  a stream is left the same way whoever cancels
            if alarm is not None:
                alarm.hear()
            collector.take(item)
    except GeneratorExit:
        raise
    except BaseException as error:
        is_silent = alarm is not None and alarm.stop()
        close_later(stream, signal, engine.options.clock.spawn)
        if isinstance(error, ModelError) or not engine.is_callers_own(error):
            raise
        raise _silence(engine) if is_silent else _failure(error) from error
    finally:
        if collector.response is not None and collector.response.usage != _NOTHING_USED:
            engine.count(collector.response.usage)
    if alarm is not None and alarm.stop():
        raise _silence(engine)
    if signal.is_cancelled:
        raise asyncio.CancelledError(signal.reason)
    return collector.finished()


def _failure(error: BaseException) -> ModelError:
    if isinstance(error, asyncio.CancelledError):
        return ModelError(f"the model's stream was cancelled from within: {error}", is_transient=True)
    return ModelError(f"the model's stream failed: {describe_error(error)}", is_transient=True)


def _silence(engine: "Engine") -> ModelError:
    return ModelError(
        f"the model's stream said nothing for {engine.options.idle_timeout_seconds:g} s", is_transient=True
    )


class _Alarm:
    """Interrupts a stream that says nothing for too long, by one timer and without a task.

    A stream that does not heed even that keeps the run's task; the run then fails when its grace is over.
    """

    def __init__(self, engine: "Engine", seconds: float) -> None:
        self._engine = engine
        self._seconds = seconds
        self._clock = engine.options.clock
        self._heard = self._clock.monotonic()
        self._has_rung = False
        self._timer: TimerHandle = self._clock.call_later(seconds, self._ring)

    def hear(self) -> None:
        """Take note that the stream said something.

        Raises:
            ModelError: too late: it was interrupted already, and took no notice.
        """
        if self._has_rung:
            raise _silence(self._engine)
        self._heard = self._clock.monotonic()

    def _ring(self) -> None:
        left = self._seconds - (self._clock.monotonic() - self._heard)
        # Rounding must not make a timer of next to nothing.
        if left > self._seconds / 1000:
            self._timer = self._clock.call_later(left, self._ring)
            return
        self._has_rung = True
        self._engine.fail_unless_done(_silence(self._engine))
        self._engine.interrupt("the model's stream said nothing for too long")

    def stop(self) -> bool:
        """Stop watching and take an interruption back; tell whether there was one."""
        self._timer.cancel()
        if not self._has_rung:
            return False
        self._has_rung = False
        self._engine.set_deadline(None)
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        return True


def close_later(stream: ModelStream | None, signal: CancelSignal, spawn: Spawn) -> None:
    """Close a stream that is left early, without waiting: its cleanup may hang or raise. A generator that raised is closed already, and a closing loop closes the rest."""
    close = getattr(stream, "aclose", None)
    task = asyncio.current_task()
    is_torn_down = task is not None and task.cancelling() > 0 and not signal.is_cancelled
    if close is not None and getattr(stream, "ag_frame", stream) is not None and not is_torn_down:
        spawn(_close(close), name="model-stream-close")


async def _close(close: Callable[[], object]) -> None:
    answer = close()
    if inspect.isawaitable(answer):
        await answer
