"""The ends of a run, made of what the run has at that moment."""

from collections.abc import Sequence
from typing import Literal

from checkrein.loop.engine import Engine
from checkrein.loop.events import Cancelled, Completed, ErrorCode, Failed, MaxSteps, RunError
from checkrein.messages import Message
from checkrein.tools.results import describe_error

__all__ = ["Ends"]


class Ends:
    """Makes results for one run.

    Args:
        engine: the run's machinery.
        max_steps: the run's limit on model requests.
    """

    __slots__ = ("_engine", "_max_steps")

    def __init__(self, engine: Engine, max_steps: int) -> None:
        self._engine = engine
        self._max_steps = max_steps

    def completed(self, messages: Sequence[Message], text: str) -> Completed:
        """Return the end of a run whose model had nothing more to do."""
        return Completed(messages=messages, run_id=self._engine.run_id, usage=self._engine.usage, final_text=text)

    def limited(
        self, messages: Sequence[Message], limit: Literal["max_steps", "repeated_call", "should_stop"] = "max_steps"
    ) -> MaxSteps:
        """Return the end of a run that came to a limit."""
        return MaxSteps(
            messages=messages,
            run_id=self._engine.run_id,
            usage=self._engine.usage,
            max_steps=self._max_steps,
            limit=limit,
        )

    def cancelled(self, messages: Sequence[Message]) -> Cancelled:
        """Return the end of a cancelled run; the turn in progress is dropped and its calls are listed."""
        return Cancelled(
            messages=messages,
            run_id=self._engine.run_id,
            usage=self._engine.usage,
            reason=self._engine.signal.reason or "the run's task was cancelled",
            unadopted_calls=self._engine.unadopted(),
        )

    def failed(self, messages: Sequence[Message], code: ErrorCode, message: str) -> Failed:
        """Return the end of a failed run; the turn in progress is dropped and its calls are listed."""
        return Failed(
            messages=messages,
            run_id=self._engine.run_id,
            usage=self._engine.usage,
            error=RunError(code, message),
            unadopted_calls=self._engine.unadopted(),
        )

    def broken(self, messages: Sequence[Message], error: BaseException) -> Failed:
        """Return the end of a run in which something of ours went wrong."""
        return self.failed(messages, "AGENT_STATE_FAILED", describe_error(error))
