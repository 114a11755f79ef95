"""The tool calls of one response: prepared, made and answered, one result per call, in the order of the calls.

The invariant: while the batch runs, and after it was cut short, it can say of every call whether it began and what came of it, so that a dropped turn can be reported.
"""

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from msgspec.structs import replace

from checkrein.loop.answers import answer_of, answer_text
from checkrein.loop.events import ToolFinished, ToolStarted, UnadoptedCall
from checkrein.loop.kit import Kit
from checkrein.loop.options import AfterToolHook, Allow, BeforeToolHook, Deny
from checkrein.messages import ContentBlock, Text, ToolCall, ToolResult, clean_message, malformation
from checkrein.ports.tool import CancelSignal, ToolContext
from checkrein.tools.dispatch import PreparedCall, execute_here
from checkrein.tools.outcomes import AcceptedJob, Done, FailedCall, Outcome, OutcomeUnknown, Pending
from checkrein.tools.results import cut_text, describe_error
from checkrein.values import JsonObject, clean_text

if TYPE_CHECKING:
    from checkrein.loop.engine import Engine

__all__ = ["Batch", "FatalCall"]

CallState: TypeAlias = Literal["not_started", "finished", "failed", "outcome_unknown"]

MAX_OVERLAP: Final = 64
"""Calls that run at the same time."""
MAX_CHARACTERS: Final = 4 * 1024 * 1024
"""Characters of all results of one batch; what goes beyond is cut and marked."""
MAX_PROGRESS_CHARACTERS: Final = 16 * 1024
"""Characters of one report of progress."""


class FatalCall(Exception):
    """A tool asked to end the whole run; the message says why."""


class _Item:
    """How far one call is.

    Attributes:
        call: what the model asked for.
        state: what is known of it.
        result: its answer, once there is one.
        task: the task that makes it.
        may_cancel: that task may be cancelled now.
    """

    __slots__ = ("call", "may_cancel", "result", "state", "task")

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.state: CallState = "not_started"
        self.result: ToolResult | None = None
        self.task: asyncio.Task[object] | None = None
        self.may_cancel = True


class Batch:
    """All calls of one response.

    Args:
        engine: the run they belong to.
        kit: what the turn works with.
        calls: the calls, in order.

    Attributes:
        is_running: calls are being made.
        invalid: how many calls had invalid arguments.
    """

    def __init__(self, engine: "Engine", kit: Kit, calls: tuple[ToolCall, ...]) -> None:
        self._engine = engine
        self._kit = kit
        self._items = tuple(map(_Item, calls))
        self.invalid = 0
        self._signal = engine.signal
        self._room = MAX_CHARACTERS
        self.is_running = False

    def unadopted(self) -> tuple[UnadoptedCall, ...]:
        """Return what became of the calls, for a turn that is dropped."""
        return tuple(UnadoptedCall(item.call, item.state, item.result) for item in self._items)

    def interrupt(self, reason: str) -> None:
        """Tell the calls to stop, and cancel at once those that may be cancelled."""
        if self._signal is not self._engine.signal:
            self._signal.cancel(reason)
        for item in self._items:
            if item.task is not None and item.may_cancel:
                item.task.cancel(reason)

    async def run(self) -> tuple[ToolResult, ...]:
        """Make every call and return the results in order.

        Raises:
            FatalCall: a tool ended the run.
            asyncio.CancelledError: the run was cancelled.
        """
        self.is_running = True
        try:
            if self._engine.options.tool_execution == "parallel" and self._may_overlap():
                return await self._overlapping()
            results: tuple[ToolResult, ...] = ()
            for item in self._items:
                item.task = self._engine.task
                results += (await self._one(item),)
                item.task = None
            return results
        finally:
            self.is_running = False

    def _may_overlap(self) -> bool:
        tools = (self._kit.preparer.tools.get(item.call.name) for item in self._items)
        return len(self._items) > 1 and not any(tool is not None and tool.traits.sequential for tool in tools)

    async def _overlapping(self) -> tuple[ToolResult, ...]:
        """Make all calls at the same time, each in a task of its own; the first that ends the run stops the others.

        They have a signal of their own, set when the run is cancelled and when one of them ends it.
        """
        self._signal = CancelSignal()
        slots = asyncio.Semaphore(MAX_OVERLAP)
        spawn = self._engine.options.clock.spawn
        tasks: list[asyncio.Task[ToolResult]] = []
        try:
            for item in self._items:
                task = item.task = spawn(self._in_slot(slots, item), name=f"call-{item.call.id}")
                tasks.append(task)
            if self._engine.signal.is_cancelled:
                # Where tasks start at once, a call may have cancelled the run before all were there.
                self.interrupt(self._engine.signal.reason)
            await self._ended(tasks)
        finally:
            for task in tasks:
                task.cancel()
        for task in tasks:
            if not task.cancelled() and task.exception() is not None:
                task.result()
        return tuple(task.result() for task in tasks)

    async def _in_slot(self, slots: asyncio.Semaphore, item: _Item) -> ToolResult:
        async with slots:
            return await self._one(item)

    async def _ended(self, tasks: list["asyncio.Task[ToolResult]"]) -> None:
        """Wait until all calls have ended. Once one ended the run, the others have the grace to stop."""
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if not pending:
            return
        error = next(task.exception() for task in done if not task.cancelled() and task.exception())
        self._engine.fail_unless_done(error)
        self.interrupt("another call of the turn ended the run")
        await asyncio.wait(pending)

    async def _one(self, item: _Item) -> ToolResult:
        """Make one call, from the hook before it to the event after it.

        Raises:
            FatalCall: the tool ended the run.
            asyncio.CancelledError: the run was cancelled, or another call ended it; the item says whether the body began.
        """
        if self._signal.is_cancelled:
            raise asyncio.CancelledError(self._signal.reason)
        call, hooks = item.call, self._engine.options.hooks
        outcome: Outcome
        if hooks.before_tool_call is None:
            prepared = self._kit.preparer.prepare(call.name, call.arguments, malformed=call.malformed)
        else:
            prepared = await self._decided(hooks.before_tool_call, call)
        if isinstance(prepared, FailedCall):
            self.invalid += prepared.kind == "schema"
            outcome = prepared
        else:
            outcome = await self._begun(item, prepared)
            item.may_cancel = True
            if not isinstance(outcome, Done):
                outcome = await self._settled(item, prepared, outcome)
        result = self._answer(item, outcome)
        # A turn that will not be adopted has no results to change.
        if hooks.after_tool_call is not None and not self._signal.is_cancelled:
            result = await self._changed(hooks.after_tool_call, call, result)
        result = self._finish(item, result)
        if isinstance(outcome, FailedCall) and outcome.fatal:
            raise FatalCall(outcome.message)
        return result

    async def _decided(self, before: BeforeToolHook, call: ToolCall) -> PreparedCall | FailedCall:
        """Ask the hook, then check name and arguments; a hook's new arguments are checked like the model's."""
        try:
            decision = _decision(await answer_of(before(call)))
        except BaseException as error:
            if not self._engine.is_callers_own(error):
                raise
            return FailedCall("internal", f"the hook before_tool_call failed: {describe_error(error)}", attempts=0)
        if isinstance(decision, FailedCall):
            return decision
        if decision is not None:
            return self._kit.preparer.prepare(call.name, decision)
        return self._kit.preparer.prepare(call.name, call.arguments, malformed=call.malformed)

    def _begun(self, item: _Item, prepared: PreparedCall) -> Awaitable[Outcome]:
        """Say that the body is about to run, and return what runs it.

        Raises:
            asyncio.CancelledError: the run was cancelled; the body never runs.
        """
        call_id, traits, signal = item.call.id, prepared.tool.traits, self._signal
        if not signal.is_cancelled:
            self._engine.publisher.publish(ToolStarted, call_id, item.call.name, prepared.arguments)
        if signal.is_cancelled:
            raise asyncio.CancelledError(signal.reason)
        # From here on nobody knows the outcome until the body gives one.
        item.state = "outcome_unknown"
        context = self._context(item)
        if traits.timeout_seconds is None:
            item.may_cancel = traits.cancellable
            return execute_here(prepared, context)
        # A timed body has a task of its own, which heeds the signal and has its own grace.
        item.may_cancel = False
        return self._engine.dispatcher(self._kit).execute(prepared, context)

    def _context(self, item: _Item) -> ToolContext:
        key = f"{self._engine.run_id}/{self._engine.step_number}/{item.call.id}"
        return ToolContext(item.call.id, 1, key, self._signal, progress=partial(self._report, item))

    async def _settled(
        self, item: _Item, prepared: PreparedCall, outcome: AcceptedJob | FailedCall | OutcomeUnknown
    ) -> Done | FailedCall | OutcomeUnknown:
        """Return what a body that gave no result came to, of a job that it began once there is an outcome.

        Raises:
            asyncio.CancelledError: the body was told to stop; the item says whether it began.
        """
        if isinstance(outcome, AcceptedJob):
            return await self._polled(prepared, outcome, self._context(item))
        if isinstance(outcome, FailedCall) and outcome.kind == "cancelled":
            item.state = "not_started"
            raise asyncio.CancelledError(outcome.message)
        if isinstance(outcome, OutcomeUnknown) and outcome.cause != "timeout":
            raise asyncio.CancelledError(outcome.reason)
        return outcome

    def _report(self, item: _Item, text: object) -> None:
        """Publish progress of a call that is being made; what comes later is dropped."""
        if item.state == "outcome_unknown":
            self._engine.publisher.progress(item.call.id, cut_text(clean_text(str(text)), MAX_PROGRESS_CHARACTERS))

    async def _polled(self, prepared: PreparedCall, job: AcceptedJob, context: ToolContext) -> Done | FailedCall:
        """Wait for a job's outcome; here nothing is durable, so waiting is all that can be done."""
        while True:
            self._signal.raise_if_cancelled()
            try:
                answer = await self._engine.dispatcher(self._kit).poll(prepared, job, context)
            except LookupError as error:
                return FailedCall("internal", describe_error(error))
            if not isinstance(answer, Pending):
                return answer
            await self._engine.options.clock.sleep(job.interval_seconds)

    def _answer(self, item: _Item, outcome: Done | FailedCall | OutcomeUnknown) -> ToolResult:
        """Turn an outcome into the message that the model gets."""
        call, is_done = item.call, isinstance(outcome, Done)
        content = outcome.content if isinstance(outcome, Done) and outcome.content else answer_text(outcome)
        identity = f"{self._engine.run_id}-{self._engine.step_number}-{call.id}"
        result = item.result = ToolResult(identity, call.id, call.name, content, not is_done)
        item.state = "finished" if is_done else "failed"
        return result

    async def _changed(self, after: AfterToolHook, call: ToolCall, result: ToolResult) -> ToolResult:
        try:
            changed = await answer_of(after(call, result))
            return result if changed is None else _adapted(changed, result)
        except BaseException as error:
            if not self._engine.is_callers_own(error):
                raise
            return replace(result, content=f"the hook after_tool_call failed: {describe_error(error)}", is_error=True)

    def _finish(self, item: _Item, result: ToolResult) -> ToolResult:
        """Publish a call's answer, within what the whole batch may hold."""
        if self._engine.options.repeat_limit is not None:
            result = self._engine.noted_repeat(item.call, result)
        self._room -= len(result.content) if isinstance(result.content, str) else _size(result.content)
        if self._room < 0:
            result, self._room = _cut(result, self._room), 0
        item.result = result
        self._engine.publisher.publish(ToolFinished, item.call.id, item.call.name, result)
        return result


def _decision(answer: object) -> JsonObject | FailedCall | None:
    """Return what a hook decided: other arguments, a refusal, or None for the call as it is.

    Raises:
        TypeError: that is no decision.
        InvalidJson: the arguments have no JSON form.
    """
    match answer:
        case None | Allow(arguments=None):
            return None
        case Allow(arguments=arguments):
            return JsonObject(arguments)
        case Deny(reason=reason):
            return FailedCall("denied", clean_text(reason), attempts=0)
        case _:
            msg = f"it returned a {type(answer).__name__}, no Allow or Deny"
            raise TypeError(msg)


def _size(content: tuple[ContentBlock, ...]) -> int:
    return sum(len(block.text) for block in content if isinstance(block, Text))


def _cut(result: ToolResult, room: int) -> ToolResult:
    """Return a result that is shorter by the characters for which there is no room; blocks become one text."""
    content = result.content
    text = content if isinstance(content, str) else "".join(block.text for block in content if isinstance(block, Text))
    return replace(result, content=cut_text(text, max(0, len(text) + room)))


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
