"""Signals of a person or a system, handed to the event loop.

The first Ctrl-C asks, the second leaves at once: it is handled outside the event loop, so a body that holds the loop cannot hold the process. SIGTERM, and SIGHUP unless
it was ignored (`nohup`), ask to hand back.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from checkrein.cli.exits import Exit

__all__ = ["heeding"]


@contextmanager
def heeding(*, interrupt: Callable[[], None], terminate: Callable[[], None], farewell: str) -> Generator[None]:
    """Call `interrupt` on the first Ctrl-C and `terminate` on SIGTERM or SIGHUP, on the running loop; a second Ctrl-C prints `farewell` and leaves.

    Raises:
        RuntimeError: no loop is running.
    """
    loop = asyncio.get_running_loop()
    count = 0

    def on_interrupt(_signal: int, _frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count > 1:
            # The cursor may be hidden by a picture, and nothing else will be run any more.
            ends = b"\x1b[?25h" if os.isatty(1) else b""
            os.write(2, ends + f"\n{farewell}\n".encode())
            os._exit(Exit.INTERRUPTED)
        loop.call_soon_threadsafe(interrupt)

    def on_terminate(_signal: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(terminate)

    handlers = {signal.SIGINT: on_interrupt, signal.SIGTERM: on_terminate}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handlers[signal.SIGHUP] = on_terminate
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
