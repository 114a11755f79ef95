"""One run of an agent: turns and boundaries, until there is an end.

It behaves as if the stateless loop were called one step at a time; both share the step coroutine and what drives it.
"""

from collections.abc import Callable
from contextvars import ContextVar

from checkrein.agent.conversation import Conversation
from checkrein.errors import AgentStateError
from checkrein.kernel.agent import AgentPhase, CancelAccepted, Ended, LoopEnded, Settled, goes_on_after
from checkrein.loop.driver import Run
from checkrein.loop.engine import Engine, Step
from checkrein.loop.events import RunResult
from checkrein.messages import Transcript

__all__ = ["AgentRun", "outside", "refuse_inside"]

_inside: ContextVar["AgentRun | None"] = ContextVar("checkrein_agent_run", default=None)


def outside(call: Callable[[], None]) -> None:
    """Call something that does not count as part of a run, though it is called while one publishes."""
    token = _inside.set(None)
    try:
        call()
    finally:
        _inside.reset(token)


def refuse_inside(run: "AgentRun") -> None:
    """Refuse to wait for a run from within.

    Raises:
        AgentStateError: `AGENT_WAITS_FOR_ITSELF`: called from a tool or hook of the very run.
    """
    if _inside.get() is run:
        raise AgentStateError("AGENT_WAITS_FOR_ITSELF", "a tool or hook cannot wait for the end of its own run")


class AgentRun(Run):
    """A run that owns a conversation.

    Args:
        engine: its machinery.
        conversation: what it owns.
        max_steps: model requests at most.
        on_release: called once the conversation has no owner any more.
    """

    def __init__(
        self, engine: Engine, conversation: Conversation, *, max_steps: int, on_release: Callable[[], None]
    ) -> None:
        super().__init__(engine, max_steps)
        self._conversation = conversation
        self._on_release = on_release

    @property
    def messages(self) -> Transcript:
        """The transcript up to the last whole turn."""
        return self._conversation.messages

    async def turns(self) -> RunResult:
        """Take turns until there is an end.

        Raises:
            StepFailed: the end is a failure.
            asyncio.CancelledError: the end is a cancellation.
        """
        _inside.set(self)
        conversation = self._conversation
        while True:
            step = await self.engine.step(conversation.messages, conversation.state.turn_room)
            end = self._end_after(step)
            if end is not None:
                return end
            accepted = conversation.adopt(step)
            if accepted:
                self.announce(accepted)

    def _end_after(self, step: Step) -> RunResult | None:
        """Adopt the last turn and return the end, or None when the run goes on."""
        if not step.stop and goes_on_after(self._conversation.state, had_calls=step.had_calls):
            return None
        kind = "max_steps" if step.had_calls else "completed"
        self._conversation.finish(step, Ended(kind, step.added, step.had_calls))
        if step.had_calls:
            return self.ends.limited(self.messages, step.stop or "max_steps")
        return self.ends.completed(self.messages, step.text)

    def accept_cancel(self) -> None:
        """Take note that cancellation is the end that was chosen."""
        self._conversation.evolve(CancelAccepted())

    def choose_end(self, result: RunResult, *, grace_is_over: bool) -> None:
        """Take note of the end, unless the last turn did."""
        conversation = self._conversation
        if conversation.state.is_open and result.status == "cancelled":
            # The run's task was cancelled, by a closing event loop for example.
            conversation.evolve(CancelAccepted())
        if conversation.state.is_open:
            conversation.evolve(Ended("failed"))
        elif conversation.state.phase is AgentPhase.CANCELLING:
            conversation.evolve(LoopEnded("grace_over" if grace_is_over else "loop_ended"))

    def release(self) -> None:
        """Give up the conversation, between the last event and the result."""
        self._conversation.evolve(Settled())
        self._on_release()
