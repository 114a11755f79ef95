"""The tool calls of one response: prepared, made and answered, one result per call, in the order of the calls.

The invariant: while the batch runs, and after it was cut short, `calls` says of every call whether it began and what came of it, so that a dropped turn can be reported.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from msgspec.structs import replace

from checkrein.loop.events import ToolFinished, ToolStarted, UnadoptedCall
from checkrein.loop.options import Deny
from checkrein.messages import ToolCall, ToolResult, clean_message, malformation
from checkrein.ports.tool import CancelSignal, Tool, ToolContext
from checkrein.tools.dispatch import Dispatcher, PreparedCall
from checkrein.tools.outcomes import AcceptedJob, Done, FailedCall, Outcome, OutcomeUnknown, Pending
from checkrein.tools.results import describe_error
from checkrein.values import JsonObject, clean_text

if TYPE_CHECKING:
    from checkrein.loop.engine import Engine

__all__ = ["Batch", "FatalCall"]

CallState: TypeAlias = Literal["not_started", "finished", "failed", "outcome_unknown"]


class FatalCall(Exception):
    """A tool asked to end the whole run; the message says why."""


class _Progress:
    """How far one call is."""

    __slots__ = ("call", "is_in_flight", "result", "state", "was_valid")

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.state: CallState = "not_started"
        self.result: ToolResult | None = None
        self.was_valid = True
        self.is_in_flight = False


class Batch:
    """All calls of one response.

    Args:
        engine: the run they belong to.
        calls: the calls, in order.
        dispatcher: makes them.
        tools: the tools of this turn, by name.
    """

    def __init__(
        self, engine: "Engine", calls: tuple[ToolCall, ...], dispatcher: Dispatcher, tools: Mapping[str, Tool]
    ) -> None:
        self._engine = engine
        self._dispatcher = dispatcher
        self._tools = tools
        self._signal = engine.signal
        self.calls = tuple(_Progress(call) for call in calls)

    def unadopted(self) -> tuple[UnadoptedCall, ...]:
        """Return what became of the calls, for a turn that is dropped."""
        return tuple(UnadoptedCall(item.call, item.state, item.result) for item in self.calls)

    @property
    def was_all_invalid(self) -> bool:
        """Whether no call of the batch had valid arguments."""
        return not any(item.was_valid for item in self.calls)

    async def run(self) -> tuple[ToolResult, ...]:
        """Make every call and return the results in order.

        Raises:
            FatalCall: a tool ended the run.
            asyncio.CancelledError: the run was cancelled.
        """
        overlap = self._engine.options.tool_execution == "parallel" and len(self.calls) > 1
        if overlap and not any(
            tool.traits.sequential for item in self.calls if (tool := self._tools.get(item.call.name)) is not None
        ):
            await self._engine.guarded(self._overlapping(), may_cancel=False)
        else:
            for item in self.calls:
                await self._one(item, alone=True)
        return tuple(item.result for item in self.calls if item.result is not None)

    async def _overlapping(self) -> None:
        """Make all calls at the same time, each in a task of its own.

        A signal of the batch's own tells them to stop: when the run is cancelled, or when one of them ends the run. Bodies heed it themselves; tasks that are in a hook are
        cancelled.
        """
        clock, halt = self._engine.options.clock, CancelSignal()
        self._signal = halt

        def stop(reason: str) -> None:
            halt.cancel(reason)
            for item, task in zip(self.calls, tasks, strict=False):
                if not item.is_in_flight:
                    task.cancel(reason)

        tasks: list[asyncio.Task[None]] = []
        forget = self._engine.signal.subscribe(stop)
        try:
            tasks.extend(clock.spawn(self._one(item, alone=False), name=f"call-{item.call.id}") for item in self.calls)
            _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            if pending:
                stop("another call of the turn ended the run")
                await asyncio.wait(pending)
        finally:
            forget()
            for task in tasks:
                task.cancel()
        for task in (*(task for task in tasks if not task.cancelled() and task.exception()), *tasks):
            task.result()

    async def _one(self, item: _Progress, *, alone: bool) -> None:
        engine = self._engine
        self._signal.raise_if_cancelled()
        prepared = await self._prepared(item)
        if isinstance(prepared, FailedCall):
            item.was_valid = prepared.kind != "schema"
            await self._finish(item, prepared)
            return
        self._signal.raise_if_cancelled()
        call_id, name = item.call.id, prepared.name
        engine.publisher.publish(
            lambda sequence, run_id: ToolStarted(sequence, run_id, call_id, name, prepared.arguments)
        )
        self._signal.raise_if_cancelled()
        item.state = "outcome_unknown"
        context = ToolContext(
            call_id=call_id,
            attempt=1,
            idempotency_key=f"{engine.run_id}/{engine.step_number}/{call_id}",
            signal=self._signal,
            progress=lambda text: engine.publisher.progress(call_id, clean_text(text)),
        )
        traits = prepared.tool.traits
        if alone and traits.timeout_seconds is None:
            outcome = await engine.guarded(
                self._dispatcher.execute_here(prepared, context), may_cancel=traits.cancellable
            )
        else:
            outcome = await self._in_flight(item, self._dispatcher.execute(prepared, context))
        if isinstance(outcome, AcceptedJob):
            outcome = await self._polled(prepared, outcome, context)
        if isinstance(outcome, FailedCall) and outcome.kind == "cancelled":
            item.state = "not_started"
            raise asyncio.CancelledError(outcome.message)
        if isinstance(outcome, OutcomeUnknown) and outcome.cause != "timeout":
            raise asyncio.CancelledError(outcome.reason)
        await self._finish(item, outcome)

    async def _in_flight(self, item: _Progress, execution: Awaitable[Outcome]) -> Outcome:
        """Wait for a body that has a task of its own: the signal tells it to stop, and it is waited for until it ends or its grace is over."""
        item.is_in_flight = True
        try:
            return await self._engine.guarded(execution, may_cancel=False)
        finally:
            item.is_in_flight = False

    async def _prepared(self, item: _Progress) -> PreparedCall | FailedCall:
        """Ask the hook, then check name and arguments; a hook's new arguments are checked like the model's."""
        call = item.call
        before = self._engine.options.hooks.before_tool_call
        arguments = call.arguments
        if before is not None:
            try:
                answer = before(call)
                decision = await answer if inspect.isawaitable(answer) else answer
                if isinstance(decision, Deny):
                    return FailedCall("denied", clean_text(decision.reason), attempts=0)
                if decision is not None and decision.arguments is not None:
                    arguments = JsonObject(decision.arguments)
                    return self._dispatcher.prepare(call.name, arguments)
            except BaseException as error:
                if not self._engine.is_callers_own(error):
                    raise
                return FailedCall("internal", f"the hook before_tool_call failed: {describe_error(error)}", attempts=0)
        return self._dispatcher.prepare(call.name, arguments, malformed=call.malformed)

    async def _polled(self, prepared: PreparedCall, job: AcceptedJob, context: ToolContext) -> Done | FailedCall:
        """Wait for a job's outcome; here nothing is durable, so waiting is all that can be done."""
        while True:
            self._engine.raise_if_stopped()
            try:
                answer = await self._dispatcher.poll(prepared, job, context)
            except LookupError as error:
                return FailedCall("internal", describe_error(error))
            if not isinstance(answer, Pending):
                return answer
            await self._engine.options.clock.sleep(job.interval_seconds)

    async def _finish(self, item: _Progress, outcome: Done | FailedCall | OutcomeUnknown) -> None:
        """Turn an outcome into the call's result, let the hook change it, and publish it."""
        result = self._engine.result_of(item.call, outcome)
        item.state, item.result = ("failed" if result.is_error else "finished"), result
        # A turn that will not be adopted has no results to change.
        if self._engine.options.hooks.after_tool_call is not None and not self._signal.is_cancelled:
            result = await self._changed(item.call, result)
        result = self._engine.noted_repeat(item.call, result)
        item.result = result
        self._engine.publisher.publish(
            lambda sequence, run_id: ToolFinished(sequence, run_id, item.call.id, item.call.name, result)
        )
        if isinstance(outcome, FailedCall) and outcome.fatal:
            raise FatalCall(outcome.message)

    async def _changed(self, call: ToolCall, result: ToolResult) -> ToolResult:
        after = self._engine.options.hooks.after_tool_call
        try:
            answer = after(call, result) if after is not None else None
            changed = await answer if inspect.isawaitable(answer) else answer
            return result if changed is None else _adapted(changed, result)
        except BaseException as error:
            if not self._engine.is_callers_own(error):
                raise
            return replace(result, content=f"the hook after_tool_call failed: {describe_error(error)}", is_error=True)


def _adapted(changed: object, result: ToolResult) -> ToolResult:
    """Return what a hook made of a result, with the names of its call.

    Raises:
        TypeError: it is no well-formed result.
    """
    if not isinstance(changed, ToolResult):
        msg = f"it returned a {type(changed).__name__}, no ToolResult"
        raise TypeError(msg)
    made = ToolResult(result.id, result.tool_call_id, result.tool_name, changed.content, changed.is_error)
    problem = malformation(made)
    if problem:
        raise TypeError(problem)
    return cast("ToolResult", clean_message(made))


def answer_text(outcome: Done | FailedCall | OutcomeUnknown) -> str:
    """Return what a model is told of an outcome."""
    if isinstance(outcome, Done):
        if outcome.empty:
            return "empty"
        value = outcome.result.value
        return value if isinstance(value, str) else outcome.result.encoded.decode()
    return outcome.message if isinstance(outcome, FailedCall) else f"outcome unknown: {outcome.reason}"
