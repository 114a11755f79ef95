"""Shorthands for making tool calls in tests: real registry, real dispatcher."""

from collections.abc import Callable
from pathlib import Path

from checkrein.clock import SystemClock
from checkrein.ports.clock import Clock
from checkrein.ports.tool import CancelSignal, Tool, ToolContext
from checkrein.tools.dispatch import Dispatcher, DispatchOptions, PreparedCall
from checkrein.tools.outcomes import FailedCall, Outcome
from checkrein.tools.registry import ToolRegistry
from checkrein.values import JsonObject


def context(
    *,
    key: str = "",
    attempt: int = 1,
    signal: CancelSignal | None = None,
    workspace: Path | None = None,
    progress: Callable[[str], None] = lambda _text: None,
) -> ToolContext:
    return ToolContext("1.0", attempt, key, signal or CancelSignal(), workspace=workspace, progress=progress)


def dispatcher(*tools: Tool, clock: Clock | None = None, options: DispatchOptions | None = None) -> Dispatcher:
    return Dispatcher(
        ToolRegistry(tools).snapshot(), clock=clock or SystemClock(), options=options or DispatchOptions()
    )


def prepared(made: Dispatcher, name: str, arguments: dict[str, object] | None = None) -> PreparedCall:
    call = made.prepare(name, JsonObject(arguments or {}))
    assert isinstance(call, PreparedCall), call
    return call


def refused(made: Dispatcher, name: str, arguments: dict[str, object], *, malformed: str = "") -> FailedCall:
    call = made.prepare(name, JsonObject(arguments), malformed=malformed)
    assert isinstance(call, FailedCall), call
    return call


async def outcome_of(
    tool: Tool, arguments: dict[str, object] | None = None, *, given: ToolContext | None = None
) -> Outcome:
    made = dispatcher(tool)
    return await made.execute(prepared(made, tool.name, arguments), given or context())
