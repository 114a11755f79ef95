"""The stateful agent's machine: who owns the transcript, which boundary it stands at, and what still fits.

Theory of operation. The state holds numbers only: how many messages the transcript has, how many are queued of each kind, how many steps are left. Every decision
that the agent takes about ownership, boundaries and capacity is a function of them, so all of it is explored in tests without a model. The agent feeds in what
happened; a message that is not accepted here is not in its queue or transcript.

Capacity is reserved ahead: what is queued must fit even after the largest turn that may be in progress. With q queued messages in all, s of them steering,
n the transcript's length, and b the largest number of messages a turn may add to, each sum below must stay within `MAX_MESSAGES`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from checkrein.kernel.machine import Machine

__all__ = [
    "AGENT_MACHINE",
    "MAX_CONTENT_BLOCKS",
    "MAX_MESSAGES",
    "MAX_QUEUED",
    "AgentPhase",
    "AgentState",
    "Boundary",
    "CallRefused",
    "CancelAccepted",
    "Cleared",
    "Continued",
    "Ended",
    "LoopEnded",
    "MessageAccepted",
    "MessageQueued",
    "Prompted",
    "QueueName",
    "Settled",
    "SubscriberFailed",
    "TurnFinished",
    "boundary_after",
    "fits_continue",
    "fits_prompt",
    "fits_queue",
    "has_room_for_turn",
]

MAX_MESSAGES: Final = 4096
"""Messages in a transcript."""
MAX_QUEUED: Final = 256
"""Messages in both queues together."""
MAX_CONTENT_BLOCKS: Final = 1024
"""Content blocks of one response, and so the most messages that one turn may need beside its own."""

QueueName: TypeAlias = Literal["steering", "follow_up"]


class AgentPhase(StrEnum):
    """Who owns the transcript and what happens next."""

    IDLE = "Idle"
    RUNNING = "Running"
    STEERING_BOUNDARY = "SteeringBoundary"
    FOLLOW_UP_BOUNDARY = "FollowUpBoundary"
    CANCELLING = "Cancelling"
    SETTLING = "Settling"


class AgentState(msgspec.Struct, frozen=True):
    """Numbers that decide.

    Attributes:
        phase: where the agent stands.
        length: messages in the transcript.
        tail_is_assistant: whether the last of them is an assistant's.
        steering: queued steering messages.
        follow_ups: queued follow-up messages.
        steps_left: model requests that the run may still begin; 0 while idle.
        has_ended: the end of the run is chosen.
    """

    phase: AgentPhase = AgentPhase.IDLE
    length: int = 0
    tail_is_assistant: bool = False
    steering: int = 0
    follow_ups: int = 0
    steps_left: int = 0
    has_ended: bool = False

    @property
    def queued(self) -> int:
        """Messages in both queues."""
        return self.steering + self.follow_ups


class Prompted(msgspec.Struct, frozen=True, gc=False):
    """A run began with a new user message, and with the queued messages that joined it."""

    type: ClassVar[Literal["prompt"]] = "prompt"
    max_steps: int
    joined: tuple[QueueName, ...] = ()


class Continued(msgspec.Struct, frozen=True, gc=False):
    """A run began from the transcript as it is, with the queued messages that joined it."""

    type: ClassVar[Literal["continue"]] = "continue"
    max_steps: int
    joined: tuple[QueueName, ...] = ()


class MessageQueued(msgspec.Struct, frozen=True, gc=False):
    """A message waits."""

    type: ClassVar[Literal["queued"]] = "queued"
    queue: QueueName


class Cleared(msgspec.Struct, frozen=True, gc=False):
    """Both queues were emptied and handed back."""

    type: ClassVar[Literal["cleared"]] = "cleared"


class MessageAccepted(msgspec.Struct, frozen=True, gc=False):
    """Queued messages of one kind entered the transcript: one, or all of that kind where the caller chose so."""

    type: ClassVar[Literal["message_accepted"]] = "message_accepted"
    queue: QueueName
    count: int = 1


class TurnFinished(msgspec.Struct, frozen=True, gc=False):
    """A turn was adopted: `messages` of it, with or without tool calls."""

    type: ClassVar[Literal["turn_finished"]] = "turn_finished"
    messages: int
    had_calls: bool


class SubscriberFailed(msgspec.Struct, frozen=True, gc=False):
    """A listener raised; the run goes on."""

    type: ClassVar[Literal["subscriber_failed"]] = "subscriber_failed"


class CancelAccepted(msgspec.Struct, frozen=True, gc=False):
    """Cancellation is the end that was chosen."""

    type: ClassVar[Literal["cancel"]] = "cancel"


class Ended(msgspec.Struct, frozen=True, gc=False):
    """The run completed, came to its limit, or failed."""

    type: ClassVar[Literal["ended"]] = "ended"


class LoopEnded(msgspec.Struct, frozen=True, gc=False):
    """What was in progress when the run was cancelled ended, or its grace is over."""

    type: ClassVar[Literal["loop_ended"]] = "loop_ended"


class Settled(msgspec.Struct, frozen=True, gc=False):
    """The one `run.finished` was emitted and the transcript has no owner."""

    type: ClassVar[Literal["settled"]] = "settled"


class CallRefused(msgspec.Struct, frozen=True, gc=False):
    """`prompt` or `continue_` was called while a run owns the transcript."""

    type: ClassVar[Literal["refused"]] = "refused"


AgentEvent: TypeAlias = (
    Prompted
    | Continued
    | MessageQueued
    | Cleared
    | MessageAccepted
    | TurnFinished
    | SubscriberFailed
    | CancelAccepted
    | Ended
    | LoopEnded
    | Settled
    | CallRefused
)

Boundary: TypeAlias = Literal["steering", "follow_up", "none"]


def boundary_after(state: AgentState, *, had_calls: bool) -> Boundary:
    """Return which queue is looked at after a turn; a message is accepted only if a step is left for it.

    Steering enters after every turn. A follow-up enters only where a response without tool calls would end the run, and after steering.
    """
    if state.steps_left <= 0:
        return "none"
    if state.steering:
        return "steering"
    return "follow_up" if state.follow_ups and not had_calls else "none"


def fits_prompt(state: AgentState) -> bool:
    """Tell whether a new prompt and everything queued fit: `n + 1 + 2q + (1 if s == 0)`."""
    return state.length + 1 + 2 * state.queued + (1 if state.steering == 0 else 0) <= MAX_MESSAGES


def fits_continue(state: AgentState) -> bool:
    """Tell whether going on fits: `n + 2q`, plus 1 for an answer to a tail that no steering will follow."""
    return state.length + 2 * state.queued + _answer(state) <= MAX_MESSAGES


def fits_queue(state: AgentState, queue: QueueName) -> bool:
    """Tell whether one more queued message fits, itself counted: into the queues, and later into the transcript."""
    after = _with_queued(state, queue, 1)
    if after.queued > MAX_QUEUED:
        return False
    if state.phase is not AgentPhase.IDLE and not state.has_ended:
        return after.length + 1 + MAX_CONTENT_BLOCKS + after.queued <= MAX_MESSAGES
    extra = 0
    if after.length == 0:
        extra = 2 if after.steering == 0 else 1
    elif not after.tail_is_assistant and after.steering == 0:
        extra = 1
    return after.length + 2 * after.queued + extra <= MAX_MESSAGES


def has_room_for_turn(state: AgentState, messages: int) -> bool:
    """Tell whether a turn of that many messages fits into the transcript."""
    return state.length + messages <= MAX_MESSAGES


def _answer(state: AgentState) -> int:
    return 1 if not state.tail_is_assistant and state.steering == 0 else 0


def _with_queued(state: AgentState, queue: QueueName, change: int) -> AgentState:
    if queue == "steering":
        return replace(state, steering=state.steering + change)
    return replace(state, follow_ups=state.follow_ups + change)


def _begun(state: AgentState, event: AgentEvent) -> AgentState:
    if not isinstance(event, (Prompted, Continued)):
        return state
    added = len(event.joined) + (1 if isinstance(event, Prompted) else 0)
    return replace(
        state,
        phase=AgentPhase.RUNNING,
        length=state.length + added,
        tail_is_assistant=state.tail_is_assistant and not added,
        steering=state.steering - event.joined.count("steering"),
        follow_ups=state.follow_ups - event.joined.count("follow_up"),
        steps_left=event.max_steps,
        has_ended=False,
    )


def _queued(state: AgentState, event: AgentEvent) -> AgentState:
    return _with_queued(state, event.queue, 1) if isinstance(event, MessageQueued) else state


def _cleared(state: AgentState, _event: AgentEvent) -> AgentState:
    return replace(state, steering=0, follow_ups=0)


def _accepted(state: AgentState, event: AgentEvent) -> AgentState:
    if not isinstance(event, MessageAccepted):
        return state
    fewer = _with_queued(state, event.queue, -event.count)
    return replace(fewer, phase=AgentPhase.RUNNING, length=state.length + event.count, tail_is_assistant=False)


def _turn_finished(state: AgentState, event: AgentEvent) -> AgentState:
    if not isinstance(event, TurnFinished):
        return state
    after = replace(
        state,
        length=state.length + event.messages,
        tail_is_assistant=not event.had_calls,
        steps_left=state.steps_left - 1,
    )
    boundary = boundary_after(after, had_calls=event.had_calls)
    if boundary == "none":
        return after
    return replace(
        after, phase=AgentPhase.STEERING_BOUNDARY if boundary == "steering" else AgentPhase.FOLLOW_UP_BOUNDARY
    )


def _stays(state: AgentState, _event: AgentEvent) -> AgentState:
    return state


def _cancelling(state: AgentState, _event: AgentEvent) -> AgentState:
    return replace(state, phase=AgentPhase.CANCELLING, has_ended=True)


def _settling(state: AgentState, _event: AgentEvent) -> AgentState:
    return replace(state, phase=AgentPhase.SETTLING, has_ended=True)


def _idle(state: AgentState, _event: AgentEvent) -> AgentState:
    return replace(state, phase=AgentPhase.IDLE, steps_left=0)


def _type_of(event: AgentEvent) -> str:
    return event.type


def _subject_of(_state: AgentState) -> str:
    return ""


_I, _W, _S, _U = AgentPhase.IDLE, AgentPhase.RUNNING, AgentPhase.STEERING_BOUNDARY, AgentPhase.FOLLOW_UP_BOUNDARY
_C, _E = AgentPhase.CANCELLING, AgentPhase.SETTLING
_ENDS: Final[Mapping[str, tuple[AgentPhase, ...]]] = {"cancel": (_C,), "ended": (_E,)}


def _row(phase: AgentPhase, edges: Mapping[str, tuple[AgentPhase, ...]]) -> Mapping[str, tuple[AgentPhase, ...]]:
    """Add what every phase allows: queueing, clearing, a failing listener, and refusing an overlapping call."""
    own = (
        ("queued", "cleared", "subscriber_failed")
        if phase is _I
        else ("queued", "cleared", "subscriber_failed", "refused")
    )
    return {**edges, **dict.fromkeys(own, (phase,))}


AGENT_MACHINE: Final[Machine[AgentState, AgentEvent]] = Machine(
    name="agent",
    initial=(_I,),
    ends=frozenset(),
    edges={
        _I: _row(_I, {"prompt": (_W,), "continue": (_W,)}),
        _W: _row(_W, {"turn_finished": (_W, _S, _U), **_ENDS}),
        _S: _row(_S, {"message_accepted": (_W,), **_ENDS}),
        _U: _row(_U, {"message_accepted": (_W,), **_ENDS}),
        _C: _row(_C, {"loop_ended": (_E,)}),
        _E: _row(_E, {"settled": (_I,)}),
    },
    handlers={
        "prompt": _begun,
        "continue": _begun,
        "queued": _queued,
        "cleared": _cleared,
        "message_accepted": _accepted,
        "turn_finished": _turn_finished,
        "subscriber_failed": _stays,
        "cancel": _cancelling,
        "ended": _settling,
        "loop_ended": _settling,
        "settled": _idle,
        "refused": _stays,
    },
    type_of=_type_of,
    subject_of=_subject_of,
)
