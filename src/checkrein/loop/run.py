"""The stateless loop: steps until the model has nothing more to do, and one result, whatever happens.

What is given is captured when the call is made; a tool registered later changes nothing. Invalid options raise at once; everything after that is data.
"""

import asyncio
from collections.abc import Iterable

from checkrein.kernel.agent import MAX_MESSAGES
from checkrein.loop.ends import Ends
from checkrein.loop.engine import Engine, Step, StepFailed
from checkrein.loop.events import AgentEvent, Cancelled, RunResult
from checkrein.loop.options import LoopOptions
from checkrein.loop.publisher import Publisher
from checkrein.messages import Message, validate_transcript
from checkrein.ports.model import Model
from checkrein.ports.tool import CancelSignal, Tool
from checkrein.streams import EventStream
from checkrein.tools.registry import ToolRegistry
from checkrein.values import Shared

__all__ = ["check_max_steps", "run_agent_loop", "tools_of"]


def run_agent_loop(
    *,
    messages: Iterable[Message],
    model: Model,
    tools: ToolRegistry | Iterable[Tool] | None = None,
    max_steps: int = 64,
    signal: CancelSignal | None = None,
    options: LoopOptions = LoopOptions(),  # noqa: B008  a frozen value
) -> EventStream[AgentEvent, RunResult]:
    """Start a loop on a transcript and return its stream; the caller keeps the transcript.

    Args:
        messages: the transcript to go on from; a `Shared` sequence is taken without copying.
        model: answers the requests.
        tools: what the model may call.
        max_steps: model requests at most; 1 or more.
        signal: set it to cancel the run.
        options: further settings.

    Returns:
        The run's events, and exactly one `RunResult`.

    Raises:
        ValueError: `max_steps` is no positive whole number.
        DataError: a tool is none, or two have one name.
        RuntimeError: no event loop is running.
    """
    check_max_steps(max_steps)
    transcript = messages if isinstance(messages, Shared) else Shared(messages)
    publisher = Publisher(options.ids.new_id(), max_deltas=options.max_buffered_deltas)
    engine = Engine(
        stream_of=model.stream, tools=tools_of(tools), options=options, publisher=publisher, signal=CancelSignal()
    )
    loop = _Loop(engine, transcript, max_steps)
    task = options.clock.spawn(loop.run(), name=f"loop-{engine.run_id}")
    if signal is not None:
        forget = signal.subscribe(loop.cancel)
        task.add_done_callback(lambda _: forget())
    return publisher.log.stream


def tools_of(tools: ToolRegistry | Iterable[Tool] | None) -> dict[str, Tool]:
    """Return the tools by name, as they are now.

    Raises:
        DataError: a tool is none, or two have one name.
    """
    registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools or ())
    return dict(registry.snapshot())


def check_max_steps(max_steps: object) -> None:
    """Refuse what is no positive whole number.

    Raises:
        ValueError: it is none.
    """
    if isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 1:
        msg = f"max_steps is a whole number from 1, not {max_steps!r}"
        raise ValueError(msg)


class _Loop:
    """One run of the loop; `_messages` is its transcript up to the last whole turn."""

    def __init__(self, engine: Engine, messages: Shared[Message], max_steps: int) -> None:
        self._engine = engine
        self._ends = Ends(engine, max_steps)
        self._messages = messages
        self._max_steps = max_steps

    def cancel(self, reason: str) -> None:
        """Cancel what can be cancelled, and end the run anyway once the grace is over."""
        self._engine.stop(reason)
        self._engine.options.clock.call_later(
            self._engine.options.grace_seconds, lambda: self._finish(self._ends.cancelled(self._messages))
        )

    def _finish(self, result: RunResult) -> None:
        if self._engine.signal.is_cancelled and not isinstance(result, Cancelled):
            # The cancellation came first, whatever still came of the turn.
            result = self._ends.cancelled(self._messages)
        self._engine.publisher.finish(result, before_result=_nothing)

    async def run(self) -> None:
        """Run to the end; the stream gets its result whatever happens."""
        result: RunResult = self._ends.failed(self._messages, "AGENT_STATE_FAILED", "the run was torn down")
        try:
            result = await self._steps()
        finally:
            self._finish(result)

    async def _steps(self) -> RunResult:
        issues = validate_transcript(self._messages)
        if issues:
            first = issues[0]
            return self._ends.failed(
                self._messages, "INVALID_TRANSCRIPT", f"message {first.index}: {first.code} {first.detail}".rstrip()
            )
        try:
            for number in range(1, self._max_steps + 1):
                step = await self._engine.step(self._messages, MAX_MESSAGES - len(self._messages))
                for message in step.messages:
                    self._messages = self._messages.appended(message)
                end = await self._end_after(step, is_last=number == self._max_steps)
                if end is not None:
                    return end
        except StepFailed as error:
            return self._ends.failed(self._messages, error.code, str(error))
        except asyncio.CancelledError:
            return self._ends.cancelled(self._messages)
        except Exception as error:  # noqa: BLE001  the end of a run is a value, whatever went wrong inside
            return self._ends.broken(self._messages, error)
        return self._ends.limited(self._messages)

    async def _end_after(self, step: Step, *, is_last: bool) -> RunResult | None:
        if not step.had_calls:
            return self._ends.completed(self._messages, step.text)
        if step.repeated:
            return self._ends.limited(self._messages, "repeated_call")
        should_stop = await self._engine.should_stop(self._messages)
        self._engine.raise_if_stopped()
        if should_stop:
            return self._ends.limited(self._messages, "should_stop")
        return self._ends.limited(self._messages) if is_last else None


def _nothing() -> None:
    """Do nothing between the last event and the result: the loop has no owner to clear."""
