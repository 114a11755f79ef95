"""One transcript, its queues, and the machine that says who may change them.

Every change of the three is one method here, so that they never disagree: a message leaves its queue in the moment it enters the transcript, and what the machine refuses
has changed nothing. Nothing here knows a model, a task or a listener.
"""

import re
from collections.abc import Iterable

from checkrein.agent.inbox import Inbox, Queued
from checkrein.agent.options import AgentOptions
from checkrein.errors import AgentBusyError, AgentMessageLimitError, AgentStateError
from checkrein.kernel.agent import (
    AGENT_MACHINE,
    AgentEvent,
    AgentLimits,
    AgentPhase,
    AgentState,
    CallRefused,
    Continued,
    Ended,
    MessageAccepted,
    Prompted,
    QueueName,
    TurnFinished,
    fits_continue,
    fits_prompt,
    fits_queue,
    with_cleared,
    with_queued,
)
from checkrein.loop.engine import Step
from checkrein.messages import AssistantMessage, Message, Transcript, UserMessage
from checkrein.values import clean_text

__all__ = ["Conversation"]

_USER_ID = re.compile(r"agent-user-([0-9]{1,18})\Z")


class Conversation:
    """What one agent owns.

    Args:
        messages: the transcript to begin with.
        options: how the queues are emptied, and how many blocks a response may have.
        max_steps: model requests of one run at most.

    Attributes:
        messages: the transcript.
        state: the numbers that decide.

    Raises:
        ValueError: on creation: `messages` is no valid transcript, or is too long.
    """

    def __init__(self, messages: Iterable[Message], *, options: AgentOptions, max_steps: int) -> None:
        self.messages = _initial(messages)
        self._max_steps = max_steps
        self._inbox = Inbox(steering=options.steering_mode, follow_up=options.follow_up_mode)
        limits = AgentLimits(blocks=options.limits.content_blocks)
        if len(self.messages) > limits.messages:
            msg = f"{len(self.messages)} initial messages, more than {limits.messages}"
            raise ValueError(msg)
        tail = self.messages[-1] if self.messages else None
        self.state = AgentState(
            length=len(self.messages), tail_is_assistant=isinstance(tail, AssistantMessage), limits=limits
        )
        numbers = (_USER_ID.match(message.id) for message in self.messages)
        self._last_user = max((int(found[1]) for found in numbers if found), default=0)

    @property
    def queued(self) -> Queued:
        """What waits in the queues."""
        return self._inbox.snapshot()

    def evolve(self, event: AgentEvent) -> None:
        """Move the machine.

        Raises:
            IllegalTransition: it has no such edge.
        """
        self.state = AGENT_MACHINE.evolve(self.state, event)

    def check_begin(self) -> None:
        """Refuse a run with a new message that cannot begin now.

        Raises:
            AgentBusyError: a run owns the transcript.
            AgentMessageLimitError: the message and what is queued would not fit.
        """
        self._refuse_overlap()
        self._check_room(is_free=fits_prompt(self.state), what="a prompt")

    def begin(self, text: str) -> tuple[UserMessage, ...]:
        """Begin a run that `check_begin` allows: with a new message, followed by steering that waited; return what entered the transcript.

        Raises:
            TypeError: `text` is none.
        """
        message = self._user_message(text)
        joined = self._inbox.take("steering")
        self.evolve(Prompted(self._max_steps, len(joined)))
        return self._accepted((message, *joined))

    def check_resume(self) -> None:
        """Refuse a run from the transcript as it is that cannot begin now.

        Raises:
            AgentBusyError: a run owns the transcript.
            AgentStateError: `AGENT_NOTHING_TO_CONTINUE`: the model has nothing to answer.
            AgentMessageLimitError: going on would not fit.
        """
        self._refuse_overlap()
        if self._needs_message and not self.state.queued:
            what = "from an assistant message" if self.state.length else "an empty transcript"
            raise AgentStateError("AGENT_NOTHING_TO_CONTINUE", f"Cannot continue {what} without queued work")
        self._check_room(is_free=fits_continue(self.state), what="going on")

    def resume(self) -> tuple[UserMessage, ...]:
        """Begin a run that `check_resume` allows, with what waited; return what entered the transcript."""
        has_steering = self.state.steering > 0
        queue: QueueName = "steering" if has_steering else "follow_up"
        joined = self._inbox.take(queue) if has_steering or self._needs_message else ()
        self.evolve(Continued(self._max_steps, queue, len(joined)))
        return self._accepted(joined)

    @property
    def _needs_message(self) -> bool:
        return self.state.tail_is_assistant or not self.state.length

    def _refuse_overlap(self) -> None:
        if self.state.phase is not AgentPhase.IDLE:
            self.evolve(CallRefused())
            raise AgentBusyError

    def push(self, queue: QueueName, text: str) -> UserMessage:
        """Queue a message.

        Raises:
            AgentMessageLimitError: it would not fit.
            TypeError: `text` is none.
        """
        self._check_room(is_free=fits_queue(self.state, queue), what="the message")
        message = self._user_message(text)
        self._inbox.push(queue, message)
        self.state = with_queued(self.state, queue)
        return message

    def clear(self) -> Queued:
        """Empty the queues and return what was in them."""
        self.state = with_cleared(self.state)
        return self._inbox.clear()

    def adopt(self, step: Step) -> tuple[UserMessage, ...]:
        """Adopt a turn after which the run goes on; return the queued messages that the boundary after it accepts."""
        self.messages = step.transcript
        event = TurnFinished(step.added, step.had_calls)
        self.state = AGENT_MACHINE.take(self.state, event.type, event)
        if self.state.phase is AgentPhase.RUNNING:
            return ()
        queue: QueueName = "steering" if self.state.phase is AgentPhase.STEERING_BOUNDARY else "follow_up"
        accepted = self._inbox.take(queue)
        self.evolve(MessageAccepted(queue, len(accepted)))
        return self._accepted(accepted)

    def finish(self, step: Step, end: Ended) -> None:
        """Adopt the last turn together with the end of the run."""
        self.messages = step.transcript
        self.evolve(end)

    def _accepted(self, messages: tuple[UserMessage, ...]) -> tuple[UserMessage, ...]:
        if messages:
            self.messages = self.messages.extended(messages)
        return messages

    def _check_room(self, *, is_free: bool, what: str) -> None:
        if not is_free:
            state = self.state
            raise AgentMessageLimitError(
                f"{what} does not fit: {state.length} messages of at most {state.limits.messages}, {state.queued} queued of at most {state.limits.queued}"
            )

    def _user_message(self, text: str) -> UserMessage:
        content = clean_text(text)
        self._last_user += 1
        return UserMessage(f"agent-user-{self._last_user:06}", content)


def _initial(messages: Iterable[Message]) -> Transcript:
    if isinstance(messages, Transcript):
        return messages
    try:
        return Transcript.checked(messages)
    except ValueError as error:
        msg = f"the initial messages are no valid transcript: {error}"
        raise ValueError(msg) from error
