"""The tool calls of one response: prepared, made and answered, one result per call, in the order of the calls.

The invariant: while the batch runs, and after it was cut short, `calls` says of every call whether it began and what came of it, so that a dropped turn can be reported.
"""

import asyncio
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec.structs import replace

from checkrein.loop.events import ToolFinished, ToolStarted, UnadoptedCall
from checkrein.loop.options import Deny
from checkrein.messages import ToolCall, ToolResult
from checkrein.ports.tool import Tool, ToolContext
from checkrein.tools.dispatch import Dispatcher, PreparedCall
from checkrein.tools.outcomes import AcceptedJob, Done, FailedCall, OutcomeUnknown, Pending
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

    __slots__ = ("call", "result", "state", "was_valid")

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.state: CallState = "not_started"
        self.result: ToolResult | None = None
        self.was_valid = True


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
            await self._overlapping()
        else:
            for item in self.calls:
                self._engine.raise_if_stopped()
                await self._one(item, alone=True)
        return tuple(item.result for item in self.calls if item.result is not None)

    async def _overlapping(self) -> None:
        clock = self._engine.options.clock
        tasks = [clock.spawn(self._one(item, alone=False), name=f"call-{item.call.id}") for item in self.calls]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _one(self, item: _Progress, *, alone: bool) -> None:
        engine = self._engine
        prepared = await self._prepared(item)
        if isinstance(prepared, FailedCall):
            item.was_valid = prepared.kind != "schema"
            await self._finish(item, prepared)
            return
        engine.raise_if_stopped()
        item.state = "outcome_unknown"
        call_id, name = item.call.id, prepared.name
        engine.publisher.publish(
            lambda sequence, run_id: ToolStarted(sequence, run_id, call_id, name, prepared.arguments)
        )
        context = ToolContext(
            call_id=call_id,
            attempt=1,
            idempotency_key=f"{engine.run_id}/{engine.step_number}/{call_id}",
            signal=engine.signal,
            progress=lambda text: engine.publisher.progress(call_id, clean_text(text)),
        )
        traits = prepared.tool.traits
        if alone and traits.timeout_seconds is None:
            outcome = await engine.guarded(
                self._dispatcher.execute_here(prepared, context), may_cancel=traits.cancellable
            )
        else:
            outcome = await self._dispatcher.execute(prepared, context)
        if isinstance(outcome, AcceptedJob):
            outcome = await self._polled(prepared, outcome, context)
        if isinstance(outcome, OutcomeUnknown) and outcome.cause != "timeout":
            raise asyncio.CancelledError(outcome.reason)
        await self._finish(item, outcome)

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
            except Exception as error:  # noqa: BLE001  a hook is the caller's code; its failure is this call's
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
            await self._engine.guarded(self._engine.options.clock.sleep(job.interval_seconds), may_cancel=True)

    async def _finish(self, item: _Progress, outcome: Done | FailedCall | OutcomeUnknown) -> None:
        """Turn an outcome into the call's result, let the hook change it, and publish it."""
        result = self._engine.result_of(item.call, outcome)
        item.state, item.result = ("failed" if result.is_error else "finished"), result
        after = self._engine.options.hooks.after_tool_call
        if after is not None:
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
            if changed is None:
                return result
            return replace(changed, id=result.id, tool_call_id=result.tool_call_id, tool_name=result.tool_name)
        except Exception as error:  # noqa: BLE001  a hook is the caller's code; its failure is this call's
            return replace(result, content=f"the hook after_tool_call failed: {describe_error(error)}", is_error=True)


def answer_text(outcome: Done | FailedCall | OutcomeUnknown) -> str:
    """Return what a model is told of an outcome."""
    if isinstance(outcome, Done):
        if outcome.empty:
            return "empty"
        value = outcome.result.value
        return value if isinstance(value, str) else outcome.result.encoded.decode()
    return outcome.message if isinstance(outcome, FailedCall) else f"outcome unknown: {outcome.reason}"
