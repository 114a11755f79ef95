"""The stateful agent's machine: who owns the transcript, which boundary it stands at, and what still fits.

Theory of operation. The state holds numbers only: how many messages the transcript has, how many are queued of each kind, how many steps are left. Every decision
that the agent takes about ownership, boundaries and capacity is a function of them, so all of it is explored in tests without a model. The agent feeds in what
happened; a message that is not accepted here is not in the transcript. Queueing and clearing move no phase, so they are functions of the state beside the table.

A turn is adopted in one event together with what follows it: `turn_finished` when the run goes on, one of the ends when it does not. Between them nothing can happen.

Capacity is reserved ahead: what is queued must fit even after the largest turn that may be in progress. With q queued messages in all, s of them steering,
n the transcript's length, and b the most content blocks of a response, each sum below must stay within the limit on messages.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import ClassVar, Final, Literal, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from checkrein.kernel.machine import Machine

__all__ = [
    "AGENT_MACHINE",
    "MAX_CONTENT_BLOCKS",
    "MAX_MESSAGES",
    "MAX_QUEUED",
    "AgentEvent",
    "AgentLimits",
    "AgentPhase",
    "AgentState",
    "CallRefused",
    "CancelAccepted",
    "Continued",
    "Ended",
    "LoopEnded",
    "MessageAccepted",
    "Prompted",
    "QueueName",
    "Settled",
    "SubscriberFailed",
    "TurnFinished",
    "boundary_after",
    "fits_continue",
    "fits_prompt",
    "fits_queue",
    "goes_on_after",
    "with_cleared",
    "with_queued",
]

MAX_MESSAGES: Final = 4096
"""Messages in a transcript."""
MAX_QUEUED: Final = 256
"""Messages in both queues together."""
MAX_CONTENT_BLOCKS: Final = 1024
"""Content blocks of one response, and so the most results that one turn may add beside its response."""

QueueName: TypeAlias = Literal["steering", "follow_up"]


class AgentPhase(StrEnum):
    """Who owns the transcript and what happens next."""

    IDLE = "Idle"
    RUNNING = "Running"
    STEERING_BOUNDARY = "SteeringBoundary"
    FOLLOW_UP_BOUNDARY = "FollowUpBoundary"
    CANCELLING = "Cancelling"
    SETTLING = "Settling"


_I, _W, _S, _U = AgentPhase.IDLE, AgentPhase.RUNNING, AgentPhase.STEERING_BOUNDARY, AgentPhase.FOLLOW_UP_BOUNDARY
_C, _E = AgentPhase.CANCELLING, AgentPhase.SETTLING
_OPEN: Final = frozenset({_W, _S, _U})


class AgentLimits(msgspec.Struct, frozen=True):
    """How much an agent holds.

    Attributes:
        messages: messages in the transcript.
        queued: messages in both queues together.
        blocks: content blocks of one response.
    """

    messages: int = MAX_MESSAGES
    queued: int = MAX_QUEUED
    blocks: int = MAX_CONTENT_BLOCKS


class AgentState(msgspec.Struct, frozen=True):
    """Numbers that decide.

    Attributes:
        phase: who owns the transcript and what happens next.
        length: messages in the transcript.
        tail_is_assistant: the last one is a response without calls.
        steering: steering messages that wait.
        follow_ups: follow-ups that wait.
        steps_left: model requests that the run may still make; 0 while idle.
        limits: how much the agent holds.
    """

    phase: AgentPhase = AgentPhase.IDLE
    length: int = 0
    tail_is_assistant: bool = False
    steering: int = 0
    follow_ups: int = 0
    steps_left: int = 0
    limits: AgentLimits = AgentLimits()

    @property
    def queued(self) -> int:
        """Messages in both queues."""
        return self.steering + self.follow_ups

    @property
    def is_open(self) -> bool:
        """Whether a run is active and its end not chosen."""
        return self.phase in _OPEN

    @property
    def turn_room(self) -> int:
        """Messages that a turn may have: what is queued has its place already."""
        return self.limits.messages - self.length - self.steering - self.follow_ups


class Prompted(msgspec.Struct, frozen=True, gc=False):
    """A run began with a new user message, followed by `joined` steering messages that waited."""

    type: ClassVar[Literal["prompt"]] = "prompt"
    max_steps: int
    joined: int = 0


class Continued(msgspec.Struct, frozen=True, gc=False):
    """A run began from the transcript as it is, with `joined` messages of `queue`."""

    type: ClassVar[Literal["continue"]] = "continue"
    max_steps: int
    queue: QueueName = "steering"
    joined: int = 0


class MessageAccepted(msgspec.Struct, frozen=True, gc=False):
    """Queued messages of one kind entered the transcript: one, or all of that kind where the caller chose so."""

    type: ClassVar[Literal["message_accepted"]] = "message_accepted"
    queue: QueueName
    count: int = 1


class TurnFinished(msgspec.Struct, frozen=True, gc=False):
    """A turn of so many messages was adopted, and the run goes on."""

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
    """The run has an end.

    Attributes:
        type: which end.
        messages: the messages of a last turn that was adopted with it.
        had_calls: whether that turn had tool calls.
    """

    type: Literal["completed", "max_steps", "failed"]
    messages: int = 0
    had_calls: bool = False


class LoopEnded(msgspec.Struct, frozen=True, gc=False):
    """What was in progress when the run was cancelled ended, or its grace is over."""

    type: Literal["loop_ended", "grace_over"]


class Settled(msgspec.Struct, frozen=True, gc=False):
    """The one `run.finished` was emitted and the transcript has no owner."""

    type: ClassVar[Literal["settled"]] = "settled"


class CallRefused(msgspec.Struct, frozen=True, gc=False):
    """`prompt` or `continue_` was called while a run owns the transcript."""

    type: ClassVar[Literal["refused"]] = "refused"


AgentEvent: TypeAlias = (
    Prompted
    | Continued
    | MessageAccepted
    | TurnFinished
    | SubscriberFailed
    | CancelAccepted
    | Ended
    | LoopEnded
    | Settled
    | CallRefused
)


def with_queued(state: AgentState, queue: QueueName, change: int = 1) -> AgentState:
    """Return the state with so many more (or fewer) messages in a queue."""
    if queue == "steering":
        return replace(state, steering=state.steering + change)
    return replace(state, follow_ups=state.follow_ups + change)


def with_cleared(state: AgentState) -> AgentState:
    """Return the state with empty queues."""
    return replace(state, steering=0, follow_ups=0)


def goes_on_after(state: AgentState, *, had_calls: bool) -> bool:
    """Tell whether another request follows the turn in progress, if a step is left: after calls always, else when something is queued."""
    return state.steps_left > 1 and (had_calls or state.queued > 0)


def boundary_after(state: AgentState, *, had_calls: bool) -> QueueName | None:
    """Return the queue that is looked at after a turn was adopted, None for neither.

    A message is accepted only if a step is left for it. Steering enters after every turn; a follow-up only where a response without tool calls would end the run, and
    after steering.
    """
    if state.steps_left <= 0:
        return None
    if state.steering:
        return "steering"
    return "follow_up" if state.follow_ups and not had_calls else None


def fits_prompt(state: AgentState) -> bool:
    """Tell whether a new prompt and everything queued fit: `n + 1 + 2q + (1 if s == 0)`."""
    return state.length + 1 + 2 * state.queued + (1 if state.steering == 0 else 0) <= state.limits.messages


def fits_continue(state: AgentState) -> bool:
    """Tell whether going on fits: `n + 2q`, plus 1 for an answer to a tail that no steering will follow."""
    answer = 1 if not state.tail_is_assistant and state.steering == 0 else 0
    return state.length + 2 * state.queued + answer <= state.limits.messages


def fits_queue(state: AgentState, queue: QueueName) -> bool:
    """Tell whether one more queued message fits, itself counted: into the queues, and later into the transcript.

    While a run is active: `n + 1 + b + q`. While idle, or once the end is chosen: `n + 2q`, plus for an empty transcript 2 if `s == 0` else 1, plus for a tail that is no
    response 1 if `s == 0`.
    """
    after = with_queued(state, queue)
    if after.queued > state.limits.queued:
        return False
    if state.is_open:
        return after.length + 1 + state.limits.blocks + after.queued <= state.limits.messages
    extra = 0
    if after.length == 0:
        extra = 2 if after.steering == 0 else 1
    elif not after.tail_is_assistant and after.steering == 0:
        extra = 1
    return after.length + 2 * after.queued + extra <= state.limits.messages


def _prompted(state: AgentState, event: AgentEvent) -> AgentState:
    if not isinstance(event, Prompted):
        return state
    return replace(
        state,
        phase=_W,
        length=state.length + 1 + event.joined,
        tail_is_assistant=False,
        steering=state.steering - event.joined,
        steps_left=event.max_steps,
    )


def _continued(state: AgentState, event: AgentEvent) -> AgentState:
    if not isinstance(event, Continued):
        return state
    return replace(
        with_queued(state, event.queue, -event.joined),
        phase=_W,
        length=state.length + event.joined,
        tail_is_assistant=state.tail_is_assistant and not event.joined,
        steps_left=event.max_steps,
    )


def _accepted(state: AgentState, event: AgentEvent) -> AgentState:
    if not isinstance(event, MessageAccepted):
        return state
    fewer = with_queued(state, event.queue, -event.count)
    return replace(fewer, phase=_W, length=state.length + event.count, tail_is_assistant=False)


def _turn_finished(state: AgentState, event: AgentEvent) -> AgentState:
    if not isinstance(event, TurnFinished):
        return state
    after = _adopted(state, event.messages, had_calls=event.had_calls)
    match boundary_after(after, had_calls=event.had_calls):
        case "steering":
            return replace(after, phase=_S)
        case "follow_up":
            return replace(after, phase=_U)
        case None:
            return after


def _adopted(state: AgentState, messages: int, *, had_calls: bool) -> AgentState:
    return replace(
        state,
        length=state.length + messages,
        tail_is_assistant=not had_calls,
        steps_left=state.steps_left - 1,
    )


def _ended(state: AgentState, event: AgentEvent) -> AgentState:
    if isinstance(event, Ended) and event.messages:
        return replace(_adopted(state, event.messages, had_calls=event.had_calls), phase=_E)
    return replace(state, phase=_E)


def _stays(state: AgentState, _event: AgentEvent) -> AgentState:
    return state


def _cancelling(state: AgentState, _event: AgentEvent) -> AgentState:
    return replace(state, phase=_C)


def _settled(state: AgentState, _event: AgentEvent) -> AgentState:
    return replace(state, phase=_I, steps_left=0)


_type_of: Final = cast("Callable[[AgentEvent], str]", attrgetter("type"))


def _subject_of(_state: AgentState) -> str:
    return ""


_Row: TypeAlias = Mapping[str, tuple[AgentPhase, ...]]


def _owned(phase: AgentPhase, edges: _Row) -> _Row:
    """Add what every phase but Idle allows: refusing an overlapping call."""
    return {**edges, "refused": (phase,)}


_ENDS: Final[_Row] = {"cancel": (_C,), "completed": (_E,), "max_steps": (_E,), "failed": (_E,)}

AGENT_MACHINE: Final[Machine[AgentState, AgentEvent]] = Machine(
    name="agent",
    initial=(_I,),
    ends=frozenset(),
    edges={
        _I: {"prompt": (_W,), "continue": (_W,)},
        _W: _owned(_W, {"turn_finished": (_W, _S, _U), "subscriber_failed": (_W,), **_ENDS}),
        _S: _owned(_S, {"message_accepted": (_W,), **_ENDS}),
        _U: _owned(_U, {"message_accepted": (_W,), **_ENDS}),
        _C: _owned(_C, {"loop_ended": (_E,), "grace_over": (_E,)}),
        _E: _owned(_E, {"settled": (_I,)}),
    },
    handlers={
        "prompt": _prompted,
        "continue": _continued,
        "message_accepted": _accepted,
        "turn_finished": _turn_finished,
        "subscriber_failed": _stays,
        "cancel": _cancelling,
        "completed": _ended,
        "max_steps": _ended,
        "failed": _ended,
        "loop_ended": _ended,
        "grace_over": _ended,
        "settled": _settled,
        "refused": _stays,
    },
    type_of=_type_of,
    subject_of=_subject_of,
)
