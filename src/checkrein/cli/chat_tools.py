"""The tools of a conversation: harmless ones that take time, so that a person can steer, follow up and cancel meanwhile.

None of them reads or writes anything. They differ in what they promise: one can be cancelled, one cannot, one is quick.
"""

import threading
from datetime import UTC, datetime
from typing import Annotated, Final

from pydantic import Field

from checkrein.ports.clock import Clock
from checkrein.ports.tool import Tool, ToolContext
from checkrein.tools.function import tool

__all__ = ["TOOL_NAMES", "tools_with"]

TOOL_NAMES: Final = ("wait", "block", "clock")
"""What a script may call."""

Seconds = Annotated[float, Field(gt=0, le=3600)]


def tools_with(clock: Clock) -> tuple[Tool, ...]:
    """Return the tools."""

    @tool(idempotent=True)
    async def wait(seconds: Seconds, context: ToolContext) -> str:
        """Wait, and tell every second how long; it can be cancelled.

        Args:
            seconds: how long.
            context: told how long it took so far.
        """
        begun = clock.monotonic()
        while (passed := clock.monotonic() - begun) < seconds:
            context.progress(f"{passed:.0f} of {seconds:g} s")
            await clock.sleep(min(1.0, seconds - passed))
        return f"waited {seconds:g} s"

    @tool(idempotent=True)
    def block(seconds: Seconds) -> str:
        """Wait in a thread, deaf to being cancelled.

        Args:
            seconds: how long.
        """
        threading.Event().wait(seconds)
        return f"blocked {seconds:g} s"

    @tool(idempotent=True, inline=True, name="clock")
    def tell_time() -> str:
        """Tell the time in UTC."""
        return datetime.fromtimestamp(clock.now(), UTC).isoformat(timespec="seconds")

    return wait, block, tell_time
