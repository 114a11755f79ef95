"""The dispatcher: prepare → execute → finalise, and the only place that knows limits of time and number, and idempotency.

`prepare` decides whether a call can be made at all (see `prepare.py`); `execute` makes one attempt; what came of it is a value of the closed union in `outcomes.py`.
Nothing here retries: each attempt is a grant of its own, so the driver asks `next_attempt` and comes back. Invariants: a body runs at most once per
`execute`; callers that share an idempotency key at the same time share one execution; no exception of a tool leaves this module except
`KeyboardInterrupt` and the caller's own cancellation; a body that calls `sys.exit` has failed, and does not end the process.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from msgspec.structs import replace

from checkrein.ports.clock import Clock
from checkrein.ports.tool import PollResult, Reconciliation, Tool, ToolContext, ToolOutput
from checkrein.tools.calling import call_with
from checkrein.tools.function import polled
from checkrein.tools.outcomes import AcceptedJob, Done, FailedCall, Outcome, OutcomeUnknown, Pending
from checkrein.tools.prepare import PreparedCall, Preparer
from checkrein.tools.results import describe_error, failure, finalise
from checkrein.tools.supervise import Desk, Flight, Raised, Returned, Stopped, TimedOut, Verdict, Watch
from checkrein.values import JsonObject, clean_text, shorten

__all__ = ["DispatchOptions", "Dispatcher", "PreparedCall", "execute_here"]

_ECHO_CHARACTERS = 200


class DispatchOptions(msgspec.Struct, frozen=True):
    """Limits of a dispatcher.

    Attributes:
        limit: bodies at once; further calls wait for their turn.
        grace_seconds: how long a body that was told to stop may take to end before it is given up.
        max_output_bytes: largest result, as canonical JSON; a larger one is cut and marked.
        question_seconds: how long a poll or a probe may take.
    """

    limit: int = 8
    grace_seconds: float = 5.0
    max_output_bytes: int = 1024 * 1024
    question_seconds: float = 30.0


_DEFAULTS = DispatchOptions()


async def execute_here(
    call: PreparedCall, context: ToolContext, *, max_output_bytes: int = _DEFAULTS.max_output_bytes
) -> Done | AcceptedJob | FailedCall:
    """Make one attempt of a call in the caller's own task: no slot, no time limit, no sharing, and so nothing beside the body to pay for.

    Raises:
        asyncio.CancelledError: the caller's task was cancelled, or `context.signal` was set while the body ran.
        KeyboardInterrupt: the body raised it.
    """
    try:
        value = await call.tool.call(call.arguments, context)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if context.signal.is_cancelled or (task is not None and task.cancelling()):
            raise
        return failure(error, attempt=context.attempt)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001  whatever a tool raises is its call's outcome
        return failure(error, attempt=context.attempt)
    return finalise(value, attempt=context.attempt, max_bytes=max_output_bytes)


class Dispatcher:
    """Makes tool calls.

    Args:
        tools: tools by name, as `ToolRegistry.snapshot()` gives them, or what prepares calls of them already.
        clock: time and tasks.
        options: limits.
    """

    def __init__(
        self, tools: Mapping[str, Tool] | Preparer, *, clock: Clock, options: DispatchOptions = _DEFAULTS
    ) -> None:
        self._preparer = tools if isinstance(tools, Preparer) else Preparer(tools)
        self._options = options
        self._desk = Desk(clock, options.limit)
        self._flights: dict[str, tuple[PreparedCall, Flight]] = {}

    @property
    def abandoned(self) -> tuple[str, ...]:
        """The bodies that were given up and still run, by task name."""
        return tuple(sorted(task.get_name() for task in self._desk.abandoned))

    def is_running(self, call: PreparedCall, context: ToolContext) -> bool:
        """Whether a body of this call was given up and still runs."""
        return _task_name(call, context) in self.abandoned

    def prepare(self, name: str, arguments: JsonObject, *, malformed: str = "") -> PreparedCall | FailedCall:
        """Decide whether a call can be made, as `Preparer.prepare`."""
        return self._preparer.prepare(name, arguments, malformed=malformed)

    async def execute(self, call: PreparedCall, context: ToolContext) -> Outcome:
        """Make one attempt of a call and say what came of it.

        Callers with one idempotency key at the same time share one execution, and all get its outcome. When `context.signal` is set, a
        cancellable body's task is cancelled and any other is waited for; after the grace the body is given up.

        Raises:
            asyncio.CancelledError: the waiting task was cancelled; the body is told to stop if nobody else waits for it.
            KeyboardInterrupt: the body raised it.
            SystemExit: the body raised it.
        """
        key = context.idempotency_key
        shared = self._flights.get(key) if key else None
        if shared is not None:
            if (shared[0].name, shared[0].arguments) != (call.name, call.arguments):
                text = (
                    f"idempotency key {shorten(key, _ECHO_CHARACTERS)} is in use for another call of {shared[0].name}"
                )
                return FailedCall("internal", text, attempts=context.attempt)
            flight = shared[1]
        else:
            flight = self._launch(call, context, key)
        return self._outcome(call, context.attempt, await flight.join())

    async def poll(self, call: PreparedCall, job: AcceptedJob, context: ToolContext) -> Done | FailedCall | Pending:
        """Ask once what became of an accepted job; by the job's own `poll` if it lives in this process, else by the tool's.

        Returns:
            The job's result or failure, or `Pending`: not finished, or the question itself failed or took too long (with the reason).

        Raises:
            LookupError: neither the job nor the tool can be asked.
        """
        ask = job.poll
        if ask is None and not call.tool.traits.has_poll:
            msg = f"job {job.handle} of {call.name} cannot be asked: the tool has no poll function"
            raise LookupError(msg)

        async def question(inner: ToolContext) -> object:
            if ask is None:
                return await call.tool.poll(job.handle, call.arguments, inner)
            return polled(await call_with(ask, job.handle, name=f"poll of {call.name}"))

        verdict = await self._question(question, context, f"poll of {call.name}")
        answer = verdict.value if isinstance(verdict, Returned) else None
        if not isinstance(answer, PollResult):
            return Pending(_unanswered(verdict, self._options.question_seconds))
        if not answer.is_finished:
            return Pending()
        if answer.error:
            return FailedCall("internal", shorten(clean_text(answer.error), 4_000), attempts=context.attempt)
        return self._given(answer.output, context.attempt)

    async def probe(self, call: PreparedCall, context: ToolContext) -> Done | FailedCall | OutcomeUnknown:
        """Ask the tool's `reconcile` what became of a call whose outcome nobody knows; never runs the body.

        Returns:
            `Done` (it happened), `FailedCall` (it did not and will not), or `OutcomeUnknown` with cause `probe`: it cannot tell,
            raised, or took too long.
        """
        verdict = await self._question(
            lambda inner: call.tool.probe(call.arguments, inner), context, f"reconcile of {call.name}"
        )
        answer = verdict.value if isinstance(verdict, Returned) else None
        if not isinstance(answer, Reconciliation):
            return OutcomeUnknown("probe", _unanswered(verdict, self._options.question_seconds))
        message = shorten(clean_text(answer.message), 4_000)
        if answer.outcome == "done":
            return self._given(answer.output, context.attempt)
        if answer.outcome == "failed":
            return FailedCall("internal", message or "the call did not happen", attempts=context.attempt)
        return OutcomeUnknown("probe", message or "the tool's reconcile function cannot tell")

    def _launch(self, call: PreparedCall, context: ToolContext, key: str) -> Flight:
        traits = call.tool.traits
        watch = Watch(
            _task_name(call, context),
            traits.timeout_seconds,
            self._options.grace_seconds,
            traits.cancellable,
        )
        flight = Flight(self._desk, watch, outer=context.signal)
        if key:
            self._flights[key] = (call, flight)
        inner = _inner(context, flight)
        flight.start(lambda: call.tool.call(call.arguments, inner), on_end=lambda: self._forget(key, flight))
        return flight

    def _forget(self, key: str, flight: Flight) -> None:
        known = self._flights.get(key)
        if known is not None and known[1] is flight:
            del self._flights[key]

    async def _question(
        self, ask: Callable[[ToolContext], Awaitable[object]], context: ToolContext, name: str
    ) -> Verdict:
        """Ask something of a tool: bounded in time, cancelled with the call, in no slot of the bodies'."""
        watch = Watch(
            f"{name} {context.call_id}",
            self._options.question_seconds,
            self._options.grace_seconds,
            is_cancellable=True,
            needs_slot=False,
        )
        flight = Flight(self._desk, watch, outer=context.signal)
        inner = _inner(context, flight)
        flight.start(lambda: ask(inner), on_end=lambda: None)
        return await flight.join()

    def _outcome(self, call: PreparedCall, attempt: int, verdict: Verdict) -> Outcome:
        match verdict:
            case Returned(value):
                return finalise(value, attempt=attempt, max_bytes=self._options.max_output_bytes)
            case Raised(error):
                return failure(error, attempt=attempt)
            case TimedOut(is_running):
                return _timed_out(call, attempt, is_running=is_running)
            case Stopped(reason, has_begun, is_running):
                why = clean_text(reason)
                if not has_begun:
                    return FailedCall("cancelled", f"not started: {why}", attempts=attempt)
                return OutcomeUnknown("cancelled", f"interrupted, outcome unknown: {why}", is_running=is_running)

    def _given(self, output: ToolOutput | None, attempt: int) -> Done | FailedCall:
        made = finalise(output or ToolOutput(), attempt=attempt, max_bytes=self._options.max_output_bytes)
        if isinstance(made, AcceptedJob):
            return FailedCall("internal", "a job's outcome cannot be another job", attempts=attempt)
        return made


def _task_name(call: PreparedCall, context: ToolContext) -> str:
    return f"tool {call.name} {context.call_id}"


def _inner(context: ToolContext, flight: Flight) -> ToolContext:
    """Return the context a body gets: with a signal of its own, and progress that ends with the verdict."""

    def progress(text: str) -> None:
        if flight.is_open:
            context.progress(clean_text(text))

    return replace(context, signal=flight.stop, progress=progress)


def _timed_out(call: PreparedCall, attempt: int, *, is_running: bool) -> FailedCall | OutcomeUnknown:
    text = f"{call.name} did not end within {call.tool.traits.timeout_seconds:g} s"
    if call.tool.traits.idempotent:
        return FailedCall("timeout", text, attempts=attempt, transient=True)
    return OutcomeUnknown("timeout", f"{text}; whether it took effect is unknown", is_running=is_running)


def _unanswered(verdict: Verdict, seconds: float) -> str:
    match verdict:
        case Raised(error):
            return f"the question failed: {describe_error(error)}"
        case TimedOut():
            return f"the question was not answered within {seconds:g} s"
        case Stopped(reason):
            return f"the question was interrupted: {clean_text(reason)}"
        case Returned(value):
            return f"the question was answered with a {type(value).__name__}, which says nothing"
