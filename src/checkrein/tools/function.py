"""`@tool`: a typed function becomes a tool.

The schema comes from the signature, the promises from the decorator. pydantic and jsonschema-rs load at the first look at a schema, so a program that
only lists tools by name pays for neither. The invariant: what the decorator does not say is assumed to be unsafe; a function is not idempotent, and a
plain one cannot be cancelled, unless it is declared otherwise.
"""

import inspect
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from types import CoroutineType
from typing import TYPE_CHECKING, TypeAlias, TypedDict, Unpack, cast, overload

from checkrein.errors import DataError, ToolError
from checkrein.ports.tool import Accepted, PollResult, Reconciliation, ToolContext, ToolOutput, ToolTraits
from checkrein.tools.calling import Callee
from checkrein.tools.docstrings import summary
from checkrein.values import JsonObject

if TYPE_CHECKING:
    from checkrein.tools.signature import Signature

__all__ = ["NAME_PATTERN", "FunctionTool", "ToolOptions", "tool"]

NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
"""What every provider accepts as a tool's name."""

_Function: TypeAlias = Callable[..., object]
_HANDLE = "handle"
_OUTCOMES = ("done", "failed", "unknown")


class ToolOptions(TypedDict, total=False):
    """What `@tool` may be told.

    Attributes:
        name: the tool's name; by default the function's.
        idempotent: doing it twice under one idempotency key is the same as doing it once; after a crash it is simply done again. Default False.
        cancellable: an async function's task may be cancelled. Default True for async functions; plain functions cannot be.
        timeout_seconds: how long one execution may take. Default None: no limit.
        sequential: it never overlaps with another call of its batch. Default False.
        inline: a plain function quick enough to run on the event loop instead of in a thread. Default False.
        reconcile: a function that says whether a call whose outcome nobody knows has happened.
        poll: a function that says what became of a job that was accepted.
    """

    name: str
    idempotent: bool
    cancellable: bool
    timeout_seconds: float | None
    sequential: bool
    inline: bool
    reconcile: _Function
    poll: _Function


@overload
def tool(function: _Function, /) -> "FunctionTool": ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[_Function], "FunctionTool"]: ...
def tool(
    function: _Function | None = None, /, **options: Unpack[ToolOptions]
) -> "FunctionTool | Callable[[_Function], FunctionTool]":
    """Make a tool of a plain or async function.

    Args:
        function: the function, when the decorator stands without parentheses.
        options: what the tool promises; see `ToolOptions`.

    Raises:
        TypeError: an option is unknown or does not fit the function; or the function takes `*args` or `**kwargs`.
        DataError: the name is not 1 to 64 of letters, digits, `_`, `-`; or the time limit is not a positive number.
    """
    unknown = options.keys() - ToolOptions.__annotations__.keys()
    if unknown:
        msg = f"@tool has no option {min(unknown)!r}; it has {', '.join(ToolOptions.__annotations__)}"
        raise TypeError(msg)
    if function is not None:
        return FunctionTool(function, options)
    return lambda decorated: FunctionTool(decorated, options)


class FunctionTool:
    """A tool made of a function; it satisfies `checkrein.ports.tool.Tool`.

    Attributes:
        function: the function as written, to be called directly, for example in a test.
        traits: what it promises; to be read only.
    """

    def __init__(self, function: _Function, options: ToolOptions) -> None:
        self.function = function
        self._name = options.get("name") or getattr(function, "__name__", "")
        if not NAME_PATTERN.match(self._name):
            msg = f"{self._name!r} is no name for a tool: 1 to 64 of the letters A-Z a-z, digits, _ and -; give name="
            raise DataError(msg)
        self._body = Callee(function, self._name)
        self._reconcile = self._helper(options.get("reconcile"))
        self._poll = self._helper(options.get("poll"))
        self.traits = self._promised(options)
        self._bound: tuple[JsonObject, Mapping[str, object]] | None = None

    def __repr__(self) -> str:
        """Show the name."""
        return f"FunctionTool({self._name})"

    @property
    def name(self) -> str:
        """The name that plans and models use."""
        return self._name

    @property
    def description(self) -> str:
        """The docstring up to its first section."""
        return summary(inspect.getdoc(self.function) or "")

    @property
    def schema(self) -> JsonObject:
        """The JSON Schema 2020-12 of its arguments.

        Raises:
            TypeError: the signature has no schema: an annotation is missing, cannot be resolved or has no JSON form; or `reconcile` or `poll`
                asks for an argument that the tool does not have.
        """
        return self._signature.schema

    def check(self, arguments: JsonObject) -> None:
        """Refuse arguments that cannot be converted to what the function asks for.

        Raises:
            InvalidArguments: which places are wrong, and what was expected there.
        """
        self._bound = (arguments, self._signature.bind(arguments))

    async def call(self, arguments: JsonObject, context: ToolContext) -> ToolOutput | Accepted:
        """Run the function once.

        Raises:
            InvalidArguments: as `check`; the function was not called.
            Exception: whatever the function raises.
        """
        signature = self._signature
        # What `check` has just bound is used once: the function may change its arguments.
        checked, self._bound = self._bound, None
        values = checked[1] if checked and checked[0] is arguments else signature.bind(arguments)
        returned = self._body.begin(values, context, inline=self.traits.inline)
        # The first question is for what nearly every async function returns.
        if type(returned) is CoroutineType or inspect.isawaitable(returned):
            returned = await cast("Awaitable[object]", returned)
        return returned if isinstance(returned, Accepted) else signature.output(returned)

    async def probe(self, arguments: JsonObject, context: ToolContext) -> Reconciliation:
        """Ask `reconcile` what became of a call.

        Raises:
            LookupError: the tool has no `reconcile`.
            ToolError: it answered something else than `done`, `failed` or `unknown`.
            Exception: whatever it raises.
        """
        if self._reconcile is None:
            msg = f"tool {self._name} has no reconcile function"
            raise LookupError(msg)
        answer = await self._reconcile.call(self._signature.bind(arguments), context)
        return _reconciled(answer, self._name)

    async def poll(self, handle: str, arguments: JsonObject, context: ToolContext) -> PollResult:
        """Ask `poll` what became of an accepted job.

        Raises:
            LookupError: the tool has no `poll`.
            Exception: whatever it raises.
        """
        if self._poll is None:
            msg = f"tool {self._name} has no poll function"
            raise LookupError(msg)
        values = {**self._signature.bind(arguments), _HANDLE: handle}
        return polled(await self._poll.call(values, context))

    @cached_property
    def _signature(self) -> "Signature":
        from checkrein.tools.signature import Signature

        self._check_helpers()
        return Signature(self._body)

    def _helper(self, function: _Function | None) -> Callee | None:
        return None if function is None else Callee(function, self._name)

    def _check_helpers(self) -> None:
        known = set(self._body.argument_names)
        for option, helper, more in (("reconcile", self._reconcile, set[str]()), ("poll", self._poll, {_HANDLE})):
            strange = [name for name in helper.required_names if name not in known | more] if helper else []
            if strange:
                msg = f"tool {self._name}: {option} asks for {strange[0]!r}, which the tool does not have; it has {', '.join(sorted(known | more))}"
                raise TypeError(msg)
        if self._poll and _HANDLE in known:
            msg = f"tool {self._name}: with poll, no argument may be called {_HANDLE!r}: poll gets the job's handle under that name"
            raise TypeError(msg)

    def _promised(self, options: ToolOptions) -> ToolTraits:
        is_async = self._body.is_async
        limit = options.get("timeout_seconds")
        if limit is not None and not (limit > 0 and math.isfinite(limit)):
            msg = f"tool {self._name}: timeout_seconds is a positive number of seconds or None, not {limit!r}"
            raise DataError(msg)
        if options.get("inline") and is_async:
            msg = f"tool {self._name}: inline is for plain functions; an async one runs on the event loop anyway"
            raise TypeError(msg)
        if options.get("cancellable") and not is_async:
            msg = f"tool {self._name}: a plain function cannot be cancelled; it may look at context.signal"
            raise TypeError(msg)
        return ToolTraits(
            idempotent=options.get("idempotent", False),
            cancellable=options.get("cancellable", is_async),
            timeout_seconds=limit,
            sequential=options.get("sequential", False),
            inline=options.get("inline", False),
            has_probe=self._reconcile is not None,
            has_poll=self._poll is not None,
        )


def polled(answer: object) -> PollResult:
    """Return what a poll function's answer means: None is *not yet*, a `PollResult` speaks for itself, anything else is the result."""
    if isinstance(answer, PollResult):
        return answer
    return PollResult(is_finished=False) if answer is None else PollResult(is_finished=True, output=_output(answer))


def _output(value: object) -> ToolOutput:
    from checkrein.tools.signature import output_of

    return output_of(value)


def _reconciled(answer: object, name: str) -> Reconciliation:
    match answer:
        case Reconciliation():
            made = answer
        case str():
            made = Reconciliation(answer)
        case tuple():
            made = _reconciled_with(cast("tuple[object, ...]", answer))
        case _:
            made = Reconciliation("")
    if made.outcome not in _OUTCOMES:
        msg = (
            f"reconcile of {name} answered {answer!r:.100}; it answers 'done', 'failed' or 'unknown', a pair of that and the "
            "result or the reason, or a Reconciliation"
        )
        raise ToolError(msg)
    return made


def _reconciled_with(answer: tuple[object, ...]) -> Reconciliation:
    outcome, more = answer if len(answer) == len(("outcome", "more")) else ("", None)
    if outcome in _OUTCOMES and outcome != "done":
        return Reconciliation(str(outcome), message=more if isinstance(more, str) else "")
    return Reconciliation(outcome if isinstance(outcome, str) else "", _output(more))
