"""Plain functions in threads of their own.

A daemon thread per call, not a pool: a pool's threads are joined when the interpreter ends, so one body that never returns would keep the process.
The number of threads is bounded by the dispatcher's limit plus the bodies it gave up. The invariant: an outcome that arrives after its waiter or
its loop is gone is dropped in silence.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["run_in_thread"]

T = TypeVar("T")


async def run_in_thread(function: Callable[[], T], *, name: str) -> T:
    """Run `function` in a new daemon thread, in a copy of the current context, and return what it returns.

    Raises:
        asyncio.CancelledError: the waiting task was cancelled; the function runs on.
        RuntimeError: the function raised `StopIteration`, which no future can carry.
        BaseException: whatever the function raised.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            value = context.run(function)
        except BaseException as error:  # noqa: BLE001  carried to the waiter, which raises it
            _deliver(loop, lambda caught=error: _fail(future, caught))
        else:
            _deliver(loop, lambda: _settle(future, value))

    threading.Thread(target=work, name=name, daemon=True).start()
    return await future


def _deliver(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        # The loop was closed while the function ran: nobody is left to be told.
        return


def _settle(future: "asyncio.Future[T]", value: T) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: "asyncio.Future[T]", error: BaseException) -> None:
    if future.done():
        return
    if isinstance(error, StopIteration):
        stopped = RuntimeError("the function raised StopIteration")
        stopped.__cause__ = error
        future.set_exception(stopped)
        return
    future.set_exception(error)
