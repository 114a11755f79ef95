"""One logical run from its first event to its one end, whoever owns the transcript.

The invariant: a run ends exactly once, on every way out: its turns came to an end, it was cancelled, its grace is over, its task was cancelled before its first step, or its
event loop was closed. Nothing of it happens before the call that started it has returned.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

from checkrein.loop.ends import Ends
from checkrein.loop.engine import Engine, StepFailed
from checkrein.loop.events import AgentEvent, Cancelled, MessageAccepted, RunResult
from checkrein.messages import Transcript, UserMessage
from checkrein.ports.clock import TimerHandle
from checkrein.streams import EventStream

__all__ = ["Run"]


class Run(ABC):
    """A run in progress; subclasses say what its transcript is and what its turns are.

    Args:
        engine: its machinery.
        max_steps: model requests at most.

    Attributes:
        first: user messages that it begins with, announced by its first events.
    """

    def __init__(self, engine: Engine, max_steps: int) -> None:
        self.engine = engine
        self.ends = Ends(engine, max_steps)
        self.first: tuple[UserMessage, ...] = ()
        self._loop = asyncio.get_running_loop()
        self._has_ended = False
        self._timer: TimerHandle | None = None
        self._forget: Callable[[], None] = _nothing

    @property
    @abstractmethod
    def messages(self) -> Transcript:
        """The transcript up to the last whole turn."""

    @abstractmethod
    async def turns(self) -> RunResult:
        """Take turns until there is an end.

        Raises:
            StepFailed: the end is a failure.
            asyncio.CancelledError: the end is a cancellation.
        """

    @abstractmethod
    def accept_cancel(self) -> None:
        """Take note that cancellation is the end that was chosen."""

    @abstractmethod
    def choose_end(self, result: RunResult, *, grace_is_over: bool) -> None:
        """Take note of the end, just before it is published."""

    @abstractmethod
    def release(self) -> None:
        """Give up the transcript, between the last event and the result."""

    @property
    def stream(self) -> EventStream[AgentEvent, RunResult]:
        """The events so far, and the result."""
        return self.engine.publisher.log.stream

    @property
    def is_lost(self) -> bool:
        """Whether its event loop was closed, so that it cannot end by itself."""
        return not self._has_ended and self._loop.is_closed()

    def start(self) -> EventStream[AgentEvent, RunResult]:
        """Start the run's one task."""
        self.engine.set_deadline = self._set_deadline
        self._forget = self.engine.signal.subscribe(self._on_cancel)
        task = self.engine.options.clock.spawn(self._work(), name=f"run-{self.engine.run_id}")
        # A task that is cancelled before its first step never runs at all; its run ends all the same.
        task.add_done_callback(self._on_task_done)
        return self.stream

    def _on_task_done(self, _task: "asyncio.Task[None]") -> None:
        if not self._has_ended:
            self.end(self.ends.cancelled(self.messages))

    async def _work(self) -> None:
        result: RunResult | None = None
        try:
            # Also a task factory that starts tasks at once must run nothing before the caller has its stream.
            await self.engine.options.clock.sleep(0)
            self.engine.task = asyncio.current_task()
            self._announce_first()
            result = await self.turns()
        except StepFailed as error:
            result = self.ends.failed(self.messages, error.code, str(error))
        except asyncio.CancelledError:
            result = self.ends.cancelled(self.messages)
        except Exception as error:  # noqa: BLE001  the end of a run is a value, whatever went wrong inside
            result = self.ends.broken(self.messages, error)
        finally:
            self.end(result or self.ends.failed(self.messages, "AGENT_STATE_FAILED", "the run was torn down"))

    def announce(self, accepted: tuple[UserMessage, ...]) -> None:
        """Publish that user messages entered the transcript."""
        for message in accepted:
            self.engine.publisher.publish(MessageAccepted, message)

    def _announce_first(self) -> None:
        first, self.first = self.first, ()
        self.announce(first)

    def _on_cancel(self, reason: str) -> None:
        """Cancel at once what can be cancelled, and end the run anyway when the grace is over."""
        self.accept_cancel()
        self._set_timer(self._on_grace_over)
        self.engine.interrupt(reason)

    def _on_grace_over(self) -> None:
        self.end(self.ends.cancelled(self.messages), grace_is_over=True)

    def _set_deadline(self, error: StepFailed | None) -> None:
        """Let the run fail with `error` if it is stuck until the grace is over, or take that back; a cancellation has its own timer."""
        if self.engine.signal.is_cancelled or self._has_ended:
            return
        self._set_timer(
            None if error is None else lambda: self.end(self.ends.failed(self.messages, error.code, str(error)))
        )

    def _set_timer(self, callback: Callable[[], None] | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        options = self.engine.options
        self._timer = None if callback is None else options.clock.call_later(options.grace_seconds, callback)

    def end(self, result: RunResult, *, grace_is_over: bool = False) -> None:
        """End the run, once: choose the end, publish it, give up the transcript, and give the result to who waits."""
        if self._has_ended:
            return
        self._has_ended = True
        self._set_timer(None)
        self._forget()
        if self.engine.signal.is_cancelled and not isinstance(result, Cancelled):
            # The end was chosen when the cancellation was accepted, whatever still came of the turn.
            result = self.ends.cancelled(self.messages)
        self.choose_end(result, grace_is_over=grace_is_over)
        self._announce_first()
        self.engine.publisher.finish(result, before_result=self.release)


def _nothing() -> None:
    """Forget nothing: there is no subscription yet."""
