"""A user's function: what its parameters are, and how it is called.

A `Callee` knows names, annotations and whether a function is plain or async; it converts nothing. A parameter annotated `ToolContext` receives the
context under whatever name. The invariant: a plain function runs in a thread unless it was declared quick, so it cannot hold up the event loop.
"""

import asyncio
import contextlib
import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, partial
from types import CoroutineType, SimpleNamespace
from typing import Annotated, cast, get_args, get_origin

from msgspec.structs import replace

from checkrein.ports.tool import ToolContext
from checkrein.tools.threads import run_in_thread

__all__ = ["Callee", "call_with"]


class Callee:
    """A function made by a user, ready to be called with values by name.

    Args:
        function: a plain or async function, a bound method or any callable with a readable signature.
        owner: the tool's name, for messages.

    Raises:
        TypeError: on creation, when it takes `*args` or `**kwargs`, so that its arguments have no names.
    """

    def __init__(self, function: Callable[..., object], owner: str) -> None:
        self.function = function
        self.owner = owner
        self.signature = inspect.signature(function)
        self.is_async = _is_async(function)
        loose = [p.name for p in self.signature.parameters.values() if p.kind in {p.VAR_POSITIONAL, p.VAR_KEYWORD}]
        if loose:
            msg = f"tool {owner}: {self.name} takes *{loose[0]}; every argument needs a name"
            raise TypeError(msg)

    @property
    def name(self) -> str:
        """The function's own name."""
        return getattr(_without_partial(self.function), "__name__", type(self.function).__name__)

    @cached_property
    def annotations(self) -> Mapping[str, object]:
        """The annotation of each parameter, with names resolved and `Annotated` kept.

        Raises:
            TypeError: an annotation names something that does not exist.
        """
        raw = {name: p.annotation for name, p in self.signature.parameters.items() if p.annotation is not p.empty}
        inner = inspect.unwrap(_without_partial(self.function))
        scope = getattr(getattr(inner, "__func__", inner), "__globals__", {})
        try:
            return typing.get_type_hints(SimpleNamespace(__annotations__=raw), globalns=scope, include_extras=True)
        except (NameError, AttributeError, SyntaxError) as error:
            msg = f"tool {self.owner}: an annotation of {self.name} cannot be resolved: {error}"
            raise TypeError(msg) from error

    @cached_property
    def context_names(self) -> frozenset[str]:
        """The parameters that receive the context."""
        return frozenset(name for name, annotation in self.annotations.items() if _is_context(annotation))

    @cached_property
    def argument_names(self) -> tuple[str, ...]:
        """The parameters that receive arguments, in order."""
        return tuple(name for name in self.signature.parameters if name not in self.context_names)

    @cached_property
    def required_names(self) -> tuple[str, ...]:
        """The parameters that receive arguments and have no default."""
        return tuple(
            name for name in self.argument_names if self.signature.parameters[name].default is inspect.Parameter.empty
        )

    async def call(self, values: Mapping[str, object], context: ToolContext, *, inline: bool = False) -> object:
        """Call the function with those of `values` it takes, and with the context.

        Args:
            values: values by parameter name; names it does not take are left out.
            context: for the parameters annotated so.
            inline: run a plain function on the event loop.

        Raises:
            BaseException: whatever the function raises.
        """
        if self.is_async or inline:
            result = self._invoke(values, context)
        else:
            work = partial(self._invoke, values, _for_thread(context))
            result = await run_in_thread(work, name=f"tool {self.owner}")
        # The one question is for what nearly every async function returns, the other for everything else.
        if type(result) is CoroutineType or inspect.isawaitable(result):
            return await cast("Awaitable[object]", result)
        return result

    def _invoke(self, values: Mapping[str, object], context: ToolContext) -> object:
        named = {name: values[name] for name in self.argument_names if name in values}
        for name in self.context_names:
            named[name] = context
        if not self._positional_names:
            return self.function(**named)
        return self.function(*[named.pop(name) for name in self._positional_names if name in named], **named)

    @cached_property
    def _positional_names(self) -> tuple[str, ...]:
        """The parameters that cannot be given by name."""
        return tuple(name for name, p in self.signature.parameters.items() if p.kind is p.POSITIONAL_ONLY)


async def call_with(function: Callable[[str], object], value: str, *, name: str) -> object:
    """Call a function of one argument: an async one on the loop, a plain one in a thread.

    Raises:
        BaseException: whatever the function raises.
    """
    result = function(value) if _is_async(function) else await run_in_thread(partial(function, value), name=name)
    return await result if inspect.isawaitable(result) else result


def _without_partial(function: Callable[..., object]) -> Callable[..., object]:
    while isinstance(function, partial):
        function = cast("partial[object]", function).func
    return function


def _is_async(function: Callable[..., object]) -> bool:
    outer = _without_partial(function)
    return inspect.iscoroutinefunction(outer) or inspect.iscoroutinefunction(inspect.unwrap(outer))


def _is_context(annotation: object) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_context(get_args(annotation)[0])
    return annotation is ToolContext


def _for_thread(context: ToolContext) -> ToolContext:
    """Return a context whose progress may be reported from a thread."""
    loop = asyncio.get_running_loop()

    def progress(text: str) -> None:
        with contextlib.suppress(RuntimeError):
            # The loop may be closed already; then nobody is left to be told.
            loop.call_soon_threadsafe(context.progress, text)

    return replace(context, progress=progress)
