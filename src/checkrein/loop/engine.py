"""One logical run, step by step: the coroutine that the stateless loop and the stateful agent share.

A step is one model response and all its tool calls. It runs in the run's one task: there is no inner stream, no task and no timer of its own on the plain path. The
invariant: a step either returns the whole turn, or raises, and then the transcript is what it was before.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, TypeAlias, TypeVar, cast, get_args

import msgspec
from msgspec.structs import replace

from checkrein.errors import ModelError
from checkrein.loop.answers import answer_of
from checkrein.loop.asking import ask
from checkrein.loop.batch import Batch, FatalCall
from checkrein.loop.events import ErrorCode, RunWarned, UnadoptedCall
from checkrein.loop.kit import Kit
from checkrein.loop.options import LoopOptions, PrepareHook, ShouldStopHook, TransformHook
from checkrein.loop.publisher import Publisher
from checkrein.messages import Message, Text, ToolCall, ToolResult, Transcript, Usage
from checkrein.ports.model import ModelRequest
from checkrein.ports.tool import CancelSignal
from checkrein.tools.dispatch import Dispatcher, DispatchOptions
from checkrein.tools.results import describe_error

__all__ = ["Engine", "Step", "StepFailed"]

T = TypeVar("T")
Stop: TypeAlias = Literal["", "repeated_call", "should_stop"]
INVALID_BATCHES = 3
"""Batches in a row with only invalid arguments after which a run fails."""
_NOTHING_USED: Final = Usage(cost=0.0)
_MODEL_CODES: Final = frozenset(code for code in get_args(ErrorCode) if code.startswith("MODEL_"))


class Step(msgspec.Struct, frozen=True):
    """One whole turn.

    Attributes:
        transcript: the transcript with the turn: the assistant's message and the results.
        added: how many messages that are.
        had_calls: whether it called tools.
        text: the text of the response.
        stop: why the run stops after it, `""` when it does not.
    """

    transcript: Transcript
    added: int
    had_calls: bool
    text: str
    stop: Stop = ""


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
        task: the run's task, once it runs.
        set_deadline: told an error with which the run fails if it is still stuck when its grace is over, and None when it is not stuck any more.
    """

    def __init__(self, kit: Kit, *, options: LoopOptions, publisher: Publisher, signal: CancelSignal) -> None:
        self.run_id = publisher.run_id
        self.options = options
        self.publisher = publisher
        self.signal = signal
        self.usage = _NOTHING_USED
        self.step_number = 0
        self.task: asyncio.Task[object] | None = None
        self.set_deadline: Callable[[StepFailed | None], None] = _nothing
        self._hooks = options.hooks
        self._kit = kit
        self._dispatchers: dict[Kit, Dispatcher] = {}
        self._requests = options.request_sequence_start - 1
        self._batch: Batch | None = None
        self._invalid_batches = 0
        self._repeats: tuple[object, int] = (None, 0)
        self._is_repeating = False

    def unadopted(self) -> tuple[UnadoptedCall, ...]:
        """Return what became of the calls of the turn in progress; empty between turns."""
        return () if self._batch is None else self._batch.unadopted()

    def interrupt(self, reason: str) -> None:
        """Cancel at once what may be cancelled: the model's stream, a hook, the bodies of tools that allow it."""
        if self._batch is not None and self._batch.is_running:
            self._batch.interrupt(reason)
        elif self.task is not None:
            self.task.cancel(reason)

    def raise_if_stopped(self) -> None:
        """Raise when the run was cancelled, or ended while it was stuck.

        Raises:
            asyncio.CancelledError: nothing of it may begin any more.
        """
        if self.signal.is_cancelled or self.publisher.is_closed:
            raise asyncio.CancelledError(self.signal.reason)

    def is_callers_own(self, error: BaseException) -> bool:
        """Tell whether an error is what a caller's code raised by itself: neither an interrupt of the program, nor a cancellation of the run or of its task."""
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            return not self.signal.is_cancelled and (task is None or not task.cancelling())
        return not isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit))

    def fail_unless_done(self, error: BaseException | None) -> None:
        """Let the run fail with `error`, should it be stuck until its grace is over."""
        self.set_deadline(_step_failed(error))

    def dispatcher(self, kit: Kit) -> Dispatcher:
        """Return what runs the bodies that need more than the run's own task."""
        if kit not in self._dispatchers:
            options = DispatchOptions(grace_seconds=self.options.grace_seconds)
            self._dispatchers[kit] = Dispatcher(kit.preparer, clock=self.options.clock, options=options)
        return self._dispatchers[kit]

    async def step(self, transcript: Transcript, room: int) -> Step:
        """Ask the model once and make its calls.

        Args:
            transcript: what the model answers; it is not changed.
            room: how many messages the turn may have.

        Raises:
            StepFailed: with the run's error code.
            asyncio.CancelledError: the run was cancelled.
        """
        self._batch = None
        self._is_repeating = False
        self.step_number += 1
        if self.signal.is_cancelled or room < 1:
            self._check_start(room)
        kit, messages, hooks = self._kit, transcript, self._hooks
        if hooks.prepare_turn is not None or hooks.transform_context is not None:
            kit, messages = await self._adjusted(transcript)
        self._requests += 1
        request = ModelRequest(f"request-{self._requests:03}", messages, kit.schemas, kit.settings)
        try:
            answer = await ask(self, kit.stream_of, request)
            added: tuple[Message, ...] = (answer.message,)
            if answer.calls:
                if len(answer.calls) > 1 or room <= 1:
                    self._check_turn(answer.calls, room)
                batch = self._batch = Batch(self, kit, answer.calls)
                added += await batch.run()
                if batch.invalid or self._invalid_batches or self.signal.is_cancelled:
                    self._check_batch(batch.invalid, len(answer.calls))
        except (ModelError, FatalCall) as error:
            raise _step_failed(error) from error
        grown = transcript.extended(added)
        stop: Stop = "repeated_call" if self._is_repeating else ""
        if hooks.should_stop is not None and not stop:
            # The turn is in progress until its hook has answered.
            stop = await self._stop_after(hooks.should_stop, grown)
        return Step(grown, len(added), len(added) > 1, answer.text, stop)

    def _check_start(self, room: int) -> None:
        if self.signal.is_cancelled:
            raise asyncio.CancelledError(self.signal.reason)
        if room < 1:
            raise StepFailed("AGENT_MESSAGE_LIMIT", "the transcript has no room for another response")

    def _check_turn(self, calls: tuple[ToolCall, ...], room: int) -> None:
        if len(calls) > 1 and len({call.id for call in calls}) != len(calls):
            raise StepFailed("MODEL_PROTOCOL_ERROR", "two calls of one response have the same id")
        if 1 + len(calls) > room:
            raise StepFailed(
                "AGENT_MESSAGE_LIMIT", f"a turn of {1 + len(calls)} messages does not fit; there is room for {room}"
            )

    def _check_batch(self, invalid: int, calls: int) -> None:
        self._invalid_batches = self._invalid_batches + 1 if invalid == calls else 0
        if self._invalid_batches >= INVALID_BATCHES:
            raise StepFailed("TOOL_ARGUMENTS_LOOP", f"{INVALID_BATCHES} batches in a row had only invalid arguments")
        if self.signal.is_cancelled:
            raise asyncio.CancelledError(self.signal.reason)

    async def _adjusted(self, transcript: Transcript) -> tuple[Kit, Transcript]:
        """Return what this turn works with, and what its model is sent, after the hooks."""
        kit, messages, hooks = self._kit, transcript, self._hooks
        if hooks.prepare_turn is not None:
            kit = await self._chosen_kit(hooks.prepare_turn)
        if hooks.transform_context is not None:
            messages = await self._transformed(hooks.transform_context, transcript)
        return kit, messages

    def count(self, usage: Usage) -> None:
        """Add what a response consumed, whether it was used or not."""
        mine = self.usage
        is_unknown = mine.cost is None or (usage.cost is None and usage.total_tokens)
        self.usage = mine.plus(usage, cost=None if is_unknown else (mine.cost or 0.0) + (usage.cost or 0.0))

    async def _chosen_kit(self, hook: PrepareHook) -> Kit:
        async def chosen() -> Kit:
            answer = await answer_of(hook(self.step_number))
            return self._kit if answer is None else self._kit.changed(answer)

        return await self._asked("prepare_turn", chosen)

    async def _transformed(self, hook: TransformHook, transcript: Transcript) -> Transcript:
        """Return what the model is sent; an invalid transcript never reaches it."""

        async def transformed() -> Sequence[Message]:
            answer = await answer_of(hook(transcript))
            return answer if isinstance(answer, Transcript) else tuple(answer)

        answer = await self._asked("transform_context", transformed)
        if isinstance(answer, Transcript):
            return answer
        try:
            return Transcript.checked(answer)
        except ValueError as error:
            text = f"the hook transform_context returned an invalid transcript: {error}"
            raise StepFailed("INVALID_TRANSCRIPT", text) from error

    async def _stop_after(self, hook: ShouldStopHook, transcript: Transcript) -> Stop:
        async def asked() -> bool:
            return bool(await answer_of(hook(transcript)))

        return "should_stop" if await self._asked("should_stop", asked) else ""

    async def _asked(self, name: str, ask_hook: Callable[[], Awaitable[T]]) -> T:
        """Return a hook's answer.

        Raises:
            StepFailed: the hook raised, or its answer is none.
            asyncio.CancelledError: the run was cancelled meanwhile.
        """
        try:
            answer = await ask_hook()
        except BaseException as error:
            if not self.is_callers_own(error):
                raise
            raise StepFailed("AGENT_STATE_FAILED", f"the hook {name} failed: {describe_error(error)}") from error
        self.raise_if_stopped()
        return answer

    def noted_repeat(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Count the same call with the same result in a row: warn the first time it is too often and say so in that result; at twice that the run stops after this turn."""
        limit = self.options.repeat_limit
        if limit is None:
            return result
        same = (call.name, call.arguments, call.malformed, result.content)
        count = self._repeats[1] + 1 if self._repeats[0] == same else 1
        self._repeats = (same, count)
        self._is_repeating = self._is_repeating or count >= 2 * limit
        if count != limit:
            return result
        text = f"this is time {count} in a row that {call.name} was called with these arguments and gave this result; try something else"
        self.publisher.publish(RunWarned, "repeated_call", text)
        noted = (*result.content, Text(text)) if isinstance(result.content, tuple) else f"{result.content}\n\n[{text}]"
        return replace(result, content=noted)


def _step_failed(error: BaseException | None) -> StepFailed:
    if isinstance(error, FatalCall):
        return StepFailed("TOOL_EXECUTION_FAILED", str(error))
    if isinstance(error, ModelError):
        # A model may raise with a code of its own; one that is not of the closed set counts as a failed stream.
        code = cast("ErrorCode", error.code) if error.code in _MODEL_CODES else "MODEL_STREAM_FAILED"
        return StepFailed(code, str(error))
    return StepFailed("AGENT_STATE_FAILED", "stuck" if error is None else describe_error(error))


def _nothing(_error: StepFailed | None) -> None:
    """Set no deadline: nobody drives the run yet."""
