"""The tool calls of one response: prepared, made and answered, one result per call, in the order of the calls.

The invariant: while the batch runs, and after it was cut short, it can say of every call whether it began and what came of it, so that a dropped turn can be reported.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from msgspec.structs import replace

from checkrein.loop.answers import answer_of, answer_text
from checkrein.loop.events import ToolFinished, ToolStarted, UnadoptedCall
from checkrein.loop.kit import Kit
from checkrein.loop.options import AfterToolHook, Allow, BeforeToolHook, Deny
from checkrein.messages import Text, ToolCall, ToolResult, clean_message, malformation
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
        was_valid: its arguments were valid.
        task: the task that makes it.
        may_cancel: that task may be cancelled now.
    """

    __slots__ = ("call", "may_cancel", "result", "state", "task", "was_valid")

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.state: CallState = "not_started"
        self.result: ToolResult | None = None
        self.was_valid = True
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
    """

    def __init__(self, engine: "Engine", kit: Kit, calls: tuple[ToolCall, ...]) -> None:
        self._engine = engine
        self._kit = kit
        self._items = [_Item(call) for call in calls]
        self._signal = engine.signal
        self._room = MAX_CHARACTERS
        self.is_running = False

    def unadopted(self) -> tuple[UnadoptedCall, ...]:
        """Return what became of the calls, for a turn that is dropped."""
        return tuple(UnadoptedCall(item.call, item.state, item.result) for item in self._items)

    @property
    def was_all_invalid(self) -> bool:
        """Whether no call of the batch had valid arguments."""
        return not any(item.was_valid for item in self._items)

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
            if self._may_overlap():
                await self._overlapping()
            else:
                await self._one_by_one()
        finally:
            self.is_running = False
        results = tuple(item.result for item in self._items if item.result is not None)
        if len(results) < len(self._items):
            msg = "the task of a call was cancelled"
            raise asyncio.CancelledError(msg)
        return results

    def _may_overlap(self) -> bool:
        if self._engine.options.tool_execution != "parallel" or len(self._items) == 1:
            return False
        tools = (self._kit.preparer.tools.get(item.call.name) for item in self._items)
        return not any(tool is not None and tool.traits.sequential for tool in tools)

    async def _one_by_one(self) -> None:
        task = self._engine.task
        for item in self._items:
            item.task = task
            await self._one(item)
            item.task = None

    async def _overlapping(self) -> None:
        """Make all calls at the same time, each in a task of its own; the first that ends the run stops the others.

        They have a signal of their own, set when the run is cancelled and when one of them ends it.
        """
        self._signal = CancelSignal()
        slots = asyncio.Semaphore(MAX_OVERLAP)
        spawn = self._engine.options.clock.spawn
        tasks: list[asyncio.Task[None]] = []
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
        for task in (*(task for task in tasks if not task.cancelled() and task.exception()), *tasks):
            task.result()

    async def _in_slot(self, slots: asyncio.Semaphore, item: _Item) -> None:
        async with slots:
            await self._one(item)

    async def _ended(self, tasks: list["asyncio.Task[None]"]) -> None:
        """Wait until all calls have ended. Once one ended the run, the others have the grace to stop."""
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if not pending:
            return
        error = next(task.exception() for task in done if not task.cancelled() and task.exception())
        self._engine.fail_unless_done(error)
        self.interrupt("another call of the turn ended the run")
        await asyncio.wait(pending)

    async def _one(self, item: _Item) -> None:
        self._signal.raise_if_cancelled()
        before = self._engine.options.hooks.before_tool_call
        call = item.call
        if before is None:
            prepared = self._kit.preparer.prepare(call.name, call.arguments, malformed=call.malformed)
        else:
            prepared = await self._decided(before, call)
        if isinstance(prepared, FailedCall):
            item.was_valid = prepared.kind != "schema"
            outcome = prepared
        else:
            outcome = await self._made(item, prepared)
        result = self._answer(item, outcome)
        after = self._engine.options.hooks.after_tool_call
        # A turn that will not be adopted has no results to change.
        if after is not None and not self._signal.is_cancelled:
            result = await self._changed(after, call, result)
        self._finish(item, result)
        if isinstance(outcome, FailedCall) and outcome.fatal:
            raise FatalCall(outcome.message)

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

    async def _made(self, item: _Item, prepared: PreparedCall) -> Done | FailedCall | OutcomeUnknown:
        """Run the body.

        Raises:
            asyncio.CancelledError: the run was cancelled, or another call ended it; the item says whether the body began.
        """
        engine, call_id, traits = self._engine, item.call.id, prepared.tool.traits
        self._signal.raise_if_cancelled()
        engine.publisher.publish(ToolStarted, call_id, prepared.tool.name, prepared.arguments)
        self._signal.raise_if_cancelled()
        item.state = "outcome_unknown"
        context = ToolContext(
            call_id=call_id,
            attempt=1,
            idempotency_key=f"{engine.run_id}/{engine.step_number}/{call_id}",
            signal=self._signal,
            progress=partial(self._report, item),
        )
        outcome: Outcome
        if traits.timeout_seconds is None:
            item.may_cancel = traits.cancellable
            outcome = await execute_here(prepared, context)
        else:
            # A timed body has a task of its own, which heeds the signal and has its own grace.
            item.may_cancel = False
            outcome = await engine.dispatcher(self._kit).execute(prepared, context)
        item.may_cancel = True
        if isinstance(outcome, AcceptedJob):
            outcome = await self._polled(prepared, outcome, context)
        return _known(item, outcome)

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
        is_done = isinstance(outcome, Done)
        call = item.call
        result = item.result = ToolResult(
            f"{self._engine.run_id}-{self._engine.step_number}-{call.id}",
            call.id,
            call.name,
            outcome.content if is_done and outcome.content else answer_text(outcome),
            not is_done,
        )
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

    def _finish(self, item: _Item, result: ToolResult) -> None:
        """Publish a call's answer, within what the whole batch may hold."""
        if self._engine.options.repeat_limit is not None:
            result = self._engine.noted_repeat(item.call, result)
        result, self._room = _within(result, self._room)
        item.result = result
        self._engine.publisher.publish(ToolFinished, item.call.id, item.call.name, result)


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


def _known(item: _Item, outcome: Done | FailedCall | OutcomeUnknown) -> Done | FailedCall | OutcomeUnknown:
    """Return the outcome of a body that was not told to stop.

    Raises:
        asyncio.CancelledError: it was; the item says whether it began.
    """
    if isinstance(outcome, FailedCall) and outcome.kind == "cancelled":
        item.state = "not_started"
        raise asyncio.CancelledError(outcome.message)
    if isinstance(outcome, OutcomeUnknown) and outcome.cause != "timeout":
        raise asyncio.CancelledError(outcome.reason)
    return outcome


def _within(result: ToolResult, room: int) -> tuple[ToolResult, int]:
    """Return a result with at most `room` characters beside its marks, and what is left of the room."""
    if isinstance(result.content, str):
        size = len(result.content)
        return (result if size <= room else replace(result, content=cut_text(result.content, room))), max(
            0, room - size
        )
    size = sum(len(block.text) for block in result.content if isinstance(block, Text))
    if size <= room:
        return result, room - size
    text = "".join(block.text for block in result.content if isinstance(block, Text))
    return replace(result, content=cut_text(text, room)), 0


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
