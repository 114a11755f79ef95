"""A task factory that runs a task's first step at once, also on Pythons that have none.

From Python 3.12 it is `asyncio.eager_task_factory`; before, the same order of things is made here: the coroutine runs up to its first suspension inside
`create_task`, in a context of its own, and the creating task goes on after that.
"""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, cast

Factory = Callable[..., asyncio.Future[Any]]


def eager_task_factory() -> Factory:
    """Return the factory, to be given to `loop.set_task_factory`."""
    native = cast("Factory | None", getattr(asyncio, "eager_task_factory", None))
    return native or _emulated


def _emulated(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[object, object, object],
    *,
    context: contextvars.Context | None = None,
) -> "asyncio.Task[object]":
    if not loop.is_running():
        return asyncio.Task(coroutine, loop=loop, context=context)
    first: list[asyncio.Handle] = []

    def keep(
        callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, loop, context)
        first.append(handle)
        return handle

    vars(loop)["call_soon"] = keep
    try:
        task = asyncio.Task(coroutine, loop=loop, context=context)
    finally:
        del vars(loop)["call_soon"]
    creator = asyncio.current_task(loop)
    tasks = cast("Any", asyncio.tasks)
    if creator is not None:
        tasks._leave_task(loop, creator)
    try:
        cast("Any", first[0])._run()
    finally:
        if creator is not None:
            tasks._enter_task(loop, creator)
    return task
