"""Running a command's coroutine to its end.

Unlike `asyncio.run` it waits at the end neither for threads nor, beyond a bound, for tasks: a planner, tool or model that never ends must not keep the process.
"""

import asyncio
import sys
import threading
from collections.abc import Coroutine
from os import _exit as leave_at_once

from checkrein.cli.exits import Exit
from checkrein.clock import close_loop

__all__ = ["leave", "perform"]

_PATIENCE_SECONDS = 0.2
_CLOSING_SECONDS = 1.0


def perform(work: Coroutine[object, object, Exit]) -> Exit:
    """Run `work` on an event loop of its own and return its exit code."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        close_loop(loop, seconds=_CLOSING_SECONDS)


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
