"""A user's function: what its parameters are, and how it is called.

A `Callee` knows names, annotations and whether a function is plain or async; it converts nothing. A parameter annotated `ToolContext` receives the
context under whatever name. The invariant: a plain function runs in a thread unless it was declared quick, so it cannot hold up the event loop.
"""

import asyncio
import contextlib
import inspect
import typing
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Annotated, cast, get_args, get_origin

from msgspec.structs import replace

from checkrein.ports.tool import ToolContext
from checkrein.tools.threads import run_in_thread

__all__ = ["Callee", "call_with", "finished"]


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

    async def call(self, values: Mapping[str, object], context: ToolContext) -> object:
        """Call the function and wait for what it returns; see `begin`.

        Raises:
            BaseException: whatever the function raises.
        """
        return await finished(self.begin(values, context))

    def begin(self, values: Mapping[str, object], context: ToolContext, *, inline: bool = False) -> object:
        """Call the function with those of `values` it takes, and with the context.

        Args:
            values: values by parameter name; names it does not take are left out.
            context: for the parameters annotated so.
            inline: run a plain function on the event loop.

        Returns:
            What the function returned, or something to await; `finished` tells the two apart.

        Raises:
            BaseException: whatever the function raises at once.
        """
        if self.is_async or inline:
            return self._invoke(values, context)
        return self._in_thread(values, _for_thread(context))

    async def _in_thread(self, values: Mapping[str, object], context: ToolContext) -> object:
        return await finished(await run_in_thread(partial(self._invoke, values, context), name=f"tool {self.owner}"))

    def _invoke(self, values: Mapping[str, object], context: ToolContext) -> object:
        if not self._argument_set.issuperset(values):
            values = {name: values[name] for name in self.argument_names if name in values}
        if not self._is_special:
            return self.function(**values)
        named = {**values, **dict.fromkeys(self.context_names, context)}
        return self.function(*[named.pop(name) for name in self._positional_names if name in named], **named)

    @cached_property
    def _argument_set(self) -> frozenset[str]:
        return frozenset(self.argument_names)

    @cached_property
    def _is_special(self) -> bool:
        """Whether some parameters are no arguments, or cannot be given by name."""
        return bool(self.context_names or self._positional_names)

    @cached_property
    def _positional_names(self) -> tuple[str, ...]:
        """The parameters that cannot be given by name."""
        return tuple(name for name, p in self.signature.parameters.items() if p.kind is p.POSITIONAL_ONLY)


async def finished(returned: object) -> object:
    """Return what a function returned, awaited when it is to be awaited.

    Raises:
        BaseException: whatever awaiting it raises.
    """
    return await returned if inspect.isawaitable(returned) else returned


async def call_with(function: Callable[[str], object], value: str, *, name: str) -> object:
    """Call a function of one argument: an async one on the loop, a plain one in a thread.

    Raises:
        BaseException: whatever the function raises.
    """
    result = function(value) if _is_async(function) else await run_in_thread(partial(function, value), name=name)
    return await finished(result)


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
