"""One logical run, step by step: the coroutine that the stateless loop and the stateful agent share.

A step is one model response and all its tool calls. It runs in the caller's task: there is no inner stream, no task and no timer of its own on the plain path. The
invariant: a step either returns the whole turn, or raises, and then the transcript is what it was before.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar, cast

import msgspec
from msgspec.structs import replace

from checkrein.errors import ModelError
from checkrein.loop.asking import StreamOf, ask
from checkrein.loop.batch import Batch, FatalCall, answer_text
from checkrein.loop.events import ErrorCode, RunWarned, UnadoptedCall
from checkrein.loop.options import LoopOptions
from checkrein.loop.publisher import Publisher
from checkrein.messages import Message, Text, ToolCall, ToolResult, Usage
from checkrein.ports.model import ModelRequest, ToolSchema
from checkrein.ports.tool import CancelSignal, Tool
from checkrein.tools.dispatch import Dispatcher, DispatchOptions
from checkrein.tools.outcomes import Done, FailedCall, OutcomeUnknown
from checkrein.tools.results import describe_error
from checkrein.values import JsonObject

__all__ = ["Engine", "Step", "StepFailed"]

T = TypeVar("T")
INVALID_BATCHES = 3
"""Batches in a row with only invalid arguments after which a run fails."""


class Step(msgspec.Struct, frozen=True):
    """One whole turn.

    Attributes:
        messages: what it adds to the transcript: the assistant's message and the results.
        had_calls: whether it called tools.
        text: the text of the response.
        repeated: the same call brought the same result too often; the run stops after this turn.
    """

    messages: tuple[Message, ...]
    had_calls: bool
    text: str
    repeated: bool = False


class StepFailed(Exception):
    """A step brought no turn; `code` and the text say why."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code: ErrorCode = code


class Engine:
    """The machinery of one run.

    Attributes:
        run_id: the run.
        options: its settings.
        publisher: where its events go.
        signal: set when it is cancelled.
        usage: what its responses consumed so far.
        step_number: the number of the step in progress, from 1.
    """

    def __init__(
        self,
        *,
        stream_of: StreamOf,
        tools: Mapping[str, Tool],
        options: LoopOptions,
        publisher: Publisher,
        signal: CancelSignal,
    ) -> None:
        self.run_id = publisher.run_id
        self.options = options
        self.publisher = publisher
        self.signal = signal
        self.usage = Usage(cost=0.0)
        self.step_number = 0
        self._stream_of = stream_of
        self._tools = tools
        self._kit: tuple[Dispatcher, tuple[ToolSchema, ...]] | None = None
        self._requests = options.request_sequence_start - 1
        self._batch: Batch | None = None
        self._invalid_batches = 0
        self._repeats: tuple[tuple[str, JsonObject, object], int] | None = None
        self._is_repeating = False
        self._task: asyncio.Task[object] | None = None
        self._may_cancel = True

    def unadopted(self) -> tuple[UnadoptedCall, ...]:
        """Return what became of the calls of the turn in progress; empty between turns."""
        return () if self._batch is None else self._batch.unadopted()

    def stop(self, reason: str) -> None:
        """Set the signal, and cancel what may be cancelled at once."""
        self.signal.cancel(reason)
        if self._task is not None and self._may_cancel:
            self._task.cancel(reason)

    def raise_if_stopped(self) -> None:
        """Raise when the run was cancelled.

        Raises:
            asyncio.CancelledError: it was.
        """
        if self.signal.is_cancelled:
            raise asyncio.CancelledError(self.signal.reason)

    async def guarded(self, work: Awaitable[T], *, may_cancel: bool) -> T:
        """Await `work` in this task, and let `stop` cancel it only if it may be."""
        before, self._may_cancel = self._may_cancel, may_cancel
        try:
            return await work
        finally:
            self._may_cancel = before

    async def step(self, messages: Sequence[Message], room: int) -> Step:
        """Ask the model once and make its calls.

        Args:
            messages: the transcript, which is not changed.
            room: how many messages the turn may have.

        Raises:
            StepFailed: with the run's error code.
            asyncio.CancelledError: the run was cancelled.
        """
        self._task = cast("asyncio.Task[object] | None", asyncio.current_task())
        self._batch = None
        self.step_number += 1
        self.raise_if_stopped()
        stream_of, dispatcher, tools, request = await self._prepare(messages)
        try:
            response = await ask(self, stream_of, request)
        except ModelError as error:
            raise StepFailed(cast("ErrorCode", error.code), str(error)) from error
        self._count(response.usage)
        calls = tuple(block for block in response.message.content if isinstance(block, ToolCall))
        self._check_turn(calls, room)
        results = await self._run_batch(calls, dispatcher, tools) if calls else ()
        self.raise_if_stopped()
        self._batch = None
        text = "".join(block.text for block in response.message.content if isinstance(block, Text))
        return Step((response.message, *results), had_calls=bool(calls), text=text, repeated=self._is_repeating)

    def _check_turn(self, calls: tuple[ToolCall, ...], room: int) -> None:
        ids = {call.id for call in calls}
        if len(ids) != len(calls):
            raise StepFailed("MODEL_PROTOCOL_ERROR", "two calls of one response have the same id")
        if 1 + len(calls) > room:
            raise StepFailed(
                "AGENT_MESSAGE_LIMIT", f"a turn of {1 + len(calls)} messages does not fit; {room} are left"
            )

    def _count(self, usage: Usage) -> None:
        mine = self.usage
        cost = (
            None
            if mine.cost is None or (usage.cost is None and usage.total_tokens)
            else mine.cost + (usage.cost or 0.0)
        )
        self.usage = Usage(
            mine.input_tokens + usage.input_tokens,
            mine.output_tokens + usage.output_tokens,
            mine.cached_tokens + usage.cached_tokens,
            cost,
        )

    async def _prepare(
        self, messages: Sequence[Message]
    ) -> tuple[StreamOf, Dispatcher, Mapping[str, Tool], ModelRequest]:
        hooks = self.options.hooks
        stream_of, tools, settings = self._stream_of, self._tools, self.options.settings
        kit = self._kit = self._kit or self._kit_of(tools)
        prepare, transform = hooks.prepare_turn, hooks.transform_context
        if prepare is not None:
            chosen = await self._asked("prepare_turn", lambda: prepare(self.step_number))
            self.raise_if_stopped()
            if chosen is not None:
                stream_of = stream_of if chosen.model is None else chosen.model.stream
                settings = settings if chosen.settings is None else JsonObject(chosen.settings)
                if chosen.tools is not None:
                    tools = {tool.name: tool for tool in chosen.tools}
                    kit = self._kit_of(tools)
        if transform is not None:
            messages = tuple(await self._asked("transform_context", lambda: transform(messages)))
            self.raise_if_stopped()
        self._requests += 1
        return stream_of, kit[0], tools, ModelRequest(f"request-{self._requests:03}", messages, kit[1], settings)

    def _kit_of(self, tools: Mapping[str, Tool]) -> tuple[Dispatcher, tuple[ToolSchema, ...]]:
        schemas = tuple(ToolSchema(tool.name, tool.description, tool.schema) for tool in tools.values())
        options = DispatchOptions(grace_seconds=self.options.grace_seconds)
        return Dispatcher(tools, clock=self.options.clock, options=options), schemas

    async def _asked(self, name: str, answer: Callable[[], Awaitable[T] | T]) -> T:
        """Return a hook's answer.

        Raises:
            StepFailed: the hook raised.
        """
        try:
            given = answer()
            return cast("T", await given if inspect.isawaitable(given) else given)
        except BaseException as error:
            if not self.is_callers_own(error):
                raise
            raise StepFailed("AGENT_STATE_FAILED", f"the hook {name} failed: {describe_error(error)}") from error

    async def should_stop(self, messages: Sequence[Message]) -> bool:
        """Ask the hook whether the run ends here.

        Raises:
            StepFailed: the hook raised.
        """
        hook = self.options.hooks.should_stop
        return hook is not None and bool(await self._asked("should_stop", lambda: hook(messages)))

    def is_callers_own(self, error: BaseException) -> bool:
        """Tell whether an error is what a caller's code raised by itself: neither an interrupt of the program, nor a cancellation of the run or of its task."""
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            return not self.signal.is_cancelled and (task is None or not task.cancelling())
        return not isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit))

    async def _run_batch(
        self, calls: tuple[ToolCall, ...], dispatcher: Dispatcher, tools: Mapping[str, Tool]
    ) -> tuple[ToolResult, ...]:
        batch = self._batch = Batch(self, calls, dispatcher, tools)
        try:
            results = await batch.run()
        except FatalCall as error:
            raise StepFailed("TOOL_EXECUTION_FAILED", str(error)) from error
        self._invalid_batches = self._invalid_batches + 1 if batch.was_all_invalid else 0
        if self._invalid_batches >= INVALID_BATCHES:
            raise StepFailed("TOOL_ARGUMENTS_LOOP", f"{INVALID_BATCHES} batches in a row had only invalid arguments")
        return results

    def result_of(self, call: ToolCall, outcome: Done | FailedCall | OutcomeUnknown) -> ToolResult:
        """Return an outcome as the message that the model gets."""
        is_done = isinstance(outcome, Done)
        return ToolResult(
            id=f"{self.run_id}-{self.step_number}-{call.id}",
            tool_call_id=call.id,
            tool_name=call.name,
            content=outcome.content if is_done and outcome.content else answer_text(outcome),
            is_error=not is_done,
        )

    def noted_repeat(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Count the same call with the same result in a row; warn once it is too often, and say so in the result."""
        limit = self.options.repeat_limit
        if limit is None:
            return result
        same = (call.name, call.arguments, result.content)
        count = self._repeats[1] + 1 if self._repeats is not None and self._repeats[0] == same else 1
        self._repeats = (same, count)
        self._is_repeating = count >= 2 * limit
        if count < limit:
            return result
        text = f"this is time {count} in a row that {call.name} was called with these arguments and gave this result; try something else"
        if count == limit:
            self.publisher.publish(lambda sequence, run_id: RunWarned(sequence, run_id, "repeated_call", text))
        noted = (*result.content, Text(text)) if isinstance(result.content, tuple) else f"{result.content}\n\n[{text}]"
        return replace(result, content=noted)
