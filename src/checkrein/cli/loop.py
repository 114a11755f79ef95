"""Running a command's coroutine to its end.

Unlike `asyncio.run` it does not wait for threads at the end: a planner that never returns must not keep a cancelled run's process.
"""

import asyncio
import sys
import threading
from collections.abc import Coroutine
from os import _exit as leave_at_once

from checkrein.cli.exits import Exit

__all__ = ["leave", "perform"]

_PATIENCE_SECONDS = 0.2


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
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def leave(code: int) -> int:
    """Return the exit code, or end the process with it when threads of ours would keep it."""
    threads = [
        thread for thread in threading.enumerate() if thread is not threading.main_thread() and not thread.daemon
    ]
    for thread in threads:
        thread.join(_PATIENCE_SECONDS)
    if any(thread.is_alive() for thread in threads):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        leave_at_once(code)
    return code
