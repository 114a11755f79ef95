"""The stateless loop: steps until the model has nothing more to do, and one result, whatever happens.

What is given is captured when the call is made; a tool registered later changes nothing. Invalid options raise at once; everything after that is data.
"""

from collections.abc import Iterable
from itertools import takewhile
from typing import cast

from checkrein.kernel.agent import MAX_MESSAGES
from checkrein.loop.driver import Run
from checkrein.loop.engine import Engine, StepFailed
from checkrein.loop.events import AgentEvent, RunResult
from checkrein.loop.kit import Kit
from checkrein.loop.options import LoopOptions, check_whole
from checkrein.loop.publisher import Publisher
from checkrein.messages import Message, Transcript, UserMessage
from checkrein.ports.model import Model
from checkrein.ports.tool import CancelSignal, Tool
from checkrein.streams import EventStream
from checkrein.tools.registry import ToolRegistry

__all__ = ["kit_of", "run_agent_loop"]


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
        messages: the transcript to go on from; that of another run's result is taken without copying or checking it again.
        model: answers the requests.
        tools: what the model may call.
        max_steps: model requests at most; 1 or more.
        signal: set it to cancel the run.
        options: further settings.

    Returns:
        The run's events, and exactly one `RunResult`. User messages at the end of the transcript are its first events.

    Raises:
        ValueError: `max_steps` is no positive whole number.
        DataError: a tool is none, or two have one name.
        TypeError: a tool's function has no schema.
        RuntimeError: no event loop is running.
    """
    check_whole("max_steps", max_steps)
    kit = kit_of(model, tools, options)
    given = messages if isinstance(messages, Transcript) else tuple(messages)
    publisher = Publisher(options.ids.new_id(), max_deltas=options.max_buffered_deltas)
    engine = Engine(kit, options=options, publisher=publisher, signal=signal or CancelSignal())
    return _LoopRun(engine, given, max_steps).start()


def kit_of(model: Model, tools: ToolRegistry | Iterable[Tool] | None, options: LoopOptions) -> Kit:
    """Return the model's method and the tools as they are now.

    Raises:
        DataError: a tool is none, or two have one name.
        TypeError: a tool's function has no schema.
    """
    registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools or ())
    return Kit(model.stream, registry.snapshot(), options.settings)


class _LoopRun(Run):
    """One run of the loop."""

    def __init__(self, engine: Engine, given: Transcript | tuple[Message, ...], max_steps: int) -> None:
        super().__init__(engine, max_steps)
        self._given = given
        self._max_steps = max_steps
        self._messages = given if isinstance(given, Transcript) else Transcript()

    @property
    def messages(self) -> Transcript:
        """The transcript up to the last whole turn."""
        return self._messages

    async def turns(self) -> RunResult:
        """Take turns until the model has nothing more to do, or a limit is reached.

        Raises:
            StepFailed: the end is a failure.
            asyncio.CancelledError: the end is a cancellation.
        """
        if not isinstance(self._given, Transcript):
            try:
                self._messages = Transcript.checked(self._given)
            except ValueError as error:
                raise StepFailed("INVALID_TRANSCRIPT", str(error)) from error
        self.announce(_unanswered(self._messages))
        for _ in range(self._max_steps):
            step = await self.engine.step(self._messages, MAX_MESSAGES - len(self._messages))
            self._messages = step.transcript
            if not step.had_calls:
                return self.ends.completed(self._messages, step.text)
            if step.stop:
                return self.ends.limited(self._messages, step.stop)
        return self.ends.limited(self._messages)

    def accept_cancel(self) -> None:
        """Do nothing: the signal says it all."""

    def choose_end(self, result: RunResult, *, grace_is_over: bool) -> None:
        """Do nothing: there is no state beside the result."""

    def release(self) -> None:
        """Do nothing: the caller owns the transcript."""


def _unanswered(messages: Transcript) -> tuple[UserMessage, ...]:
    """Return the user messages at the end of a transcript."""
    last = takewhile(lambda message: isinstance(message, UserMessage), reversed(messages))
    return cast("tuple[UserMessage, ...]", tuple(last)[::-1])
