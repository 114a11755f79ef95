"""Running a command's coroutine to its end.

Unlike `asyncio.run` it waits at the end neither for threads nor, beyond a bound, for tasks: a planner, tool or model that never ends must not keep the process.
"""

import asyncio
import sys
import threading
from collections.abc import Coroutine
from os import _exit as leave_at_once

from checkrein.cli.exits import Exit

__all__ = ["leave", "perform"]

_PATIENCE_SECONDS = 0.2
_TASK_SECONDS = 1.0
_left_behind: list["asyncio.Task[object]"] = []
"""Tasks that did not end when they were cancelled; kept, so that nothing complains about them."""


def perform(work: Coroutine[object, object, Exit]) -> Exit:
    """Run `work` on an event loop of its own and return its exit code."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        _settle(loop)


def _settle(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        _, pending = loop.run_until_complete(asyncio.wait(left, timeout=_TASK_SECONDS))
        _left_behind.extend(pending)
        for task in left - pending:
            _ = task.cancelled() or task.exception()
    if not _left_behind:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def leave(code: int) -> int:
    """Return the exit code, or end the process with it when threads or tasks of ours would keep it."""
    threads = [
        thread for thread in threading.enumerate() if thread is not threading.main_thread() and not thread.daemon
    ]
    for thread in threads:
        thread.join(_PATIENCE_SECONDS)
    if _left_behind or any(thread.is_alive() for thread in threads):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        leave_at_once(code)
    return code
