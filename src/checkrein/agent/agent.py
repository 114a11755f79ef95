"""The stateful agent: one transcript, one owner at a time, one ordered stream with one end per run.

The agent drives the same step coroutine as the stateless loop. What decides (ownership, boundaries, capacity) is the pure machine of `kernel/agent.py`; here is what
happens around it. Nothing runs before `prompt` or `continue_` has returned, and the owner is cleared on every way out.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from checkrein.agent.inbox import Inbox, Queued, QueueMode
from checkrein.agent.listeners import Listener, Listeners, SubscriberError
from checkrein.errors import AgentBusyError, AgentMessageLimitError, AgentStateError
from checkrein.kernel.agent import (
    AGENT_MACHINE,
    MAX_MESSAGES,
    AgentEvent as MachineEvent,
    AgentPhase,
    AgentState,
    CallRefused,
    CancelAccepted,
    Cleared,
    Continued,
    Ended,
    LoopEnded,
    MessageAccepted,
    MessageQueued,
    Prompted,
    QueueName,
    Settled,
    SubscriberFailed,
    TurnFinished,
    fits_continue,
    fits_prompt,
    fits_queue,
)
from checkrein.loop.ends import Ends
from checkrein.loop.engine import Engine, Step, StepFailed
from checkrein.loop.events import AgentEvent, Cancelled, MessageAccepted as MessageAcceptedEvent, RunResult
from checkrein.loop.options import AgentHooks, LoopOptions
from checkrein.loop.publisher import Publisher
from checkrein.loop.run import check_max_steps, tools_of
from checkrein.messages import AssistantMessage, Message, UserMessage, validate_transcript
from checkrein.ports.clock import TimerHandle
from checkrein.ports.model import Model
from checkrein.ports.tool import CancelSignal, Tool
from checkrein.streams import EventStream
from checkrein.tools.registry import ToolRegistry
from checkrein.values import Shared, clean_text

__all__ = ["Agent", "AgentOptions"]

MAX_REQUEST_IDS = 256
_USER_ID = re.compile(r"agent-user-([0-9]{1,18})\Z")
_inside: ContextVar["_Run | None"] = ContextVar("checkrein_agent_run", default=None)
Stream = EventStream[AgentEvent, RunResult]


class AgentOptions(LoopOptions, frozen=True, kw_only=True):
    """Settings of an agent: those of its loop, and how its queues are emptied.

    Attributes:
        steering_mode: whether one boundary accepts one steering message or all that wait.
        follow_up_mode: the same for follow-ups.
    """

    steering_mode: QueueMode = "one-at-a-time"
    follow_up_mode: QueueMode = "one-at-a-time"


class _Run:
    """One logical run in progress."""

    __slots__ = ("ends", "engine", "first", "grace", "loop", "publisher")

    def __init__(self, engine: Engine, max_steps: int) -> None:
        self.engine = engine
        self.publisher = engine.publisher
        self.ends = Ends(engine, max_steps)
        self.first: tuple[UserMessage, ...] = ()
        self.loop = asyncio.get_running_loop()
        self.grace: TimerHandle | None = None


class Agent:
    """A conversation held in memory.

    Everything is captured on creation: the model's method, the tools, the initial messages. One event loop at a time uses an agent; any number of its tasks may.

    Args:
        model: answers the requests.
        tools: what the model may call.
        max_steps: model requests of one run at most; 1 or more.
        messages: the transcript to begin with.
        hooks: where the caller steps in.
        options: further settings.

    Raises:
        ValueError: on creation: `messages` is no valid transcript, is too long, or `max_steps` is no positive whole number.
        DataError: on creation: a tool is none, or two have one name.
    """

    def __init__(
        self,
        *,
        model: Model,
        tools: ToolRegistry | Iterable[Tool] | None = None,
        max_steps: int = 64,
        messages: Iterable[Message] = (),
        hooks: AgentHooks | None = None,
        options: AgentOptions = AgentOptions(),  # noqa: B008  a frozen value
    ) -> None:
        check_max_steps(max_steps)
        self._stream_of = model.stream
        self._tools = tools_of(tools)
        self._max_steps = max_steps
        self._messages: Shared[Message] = Shared(_valid(messages))
        self._options = options if hooks is None else replace(options, hooks=hooks)
        self._inbox = Inbox(steering=options.steering_mode, follow_up=options.follow_up_mode)
        self._listeners = Listeners(options.clock, lambda: self._evolve(SubscriberFailed()))
        tail = self._messages[-1] if self._messages else None
        self._state = AgentState(length=len(self._messages), tail_is_assistant=isinstance(tail, AssistantMessage))
        self._last_user = max(
            (int(found[1]) for item in self._messages if (found := _USER_ID.match(item.id))), default=0
        )
        self._run: _Run | None = None
        self._requests: OrderedDict[str, tuple[str, Stream]] = OrderedDict()

    @property
    def messages(self) -> tuple[Message, ...]:
        """The transcript, as a fresh tuple."""
        return tuple(self._messages)

    @property
    def is_running(self) -> bool:
        """Whether a run owns the transcript."""
        return self._owner() is not None

    @property
    def queued(self) -> Queued:
        """What waits in the queues."""
        return self._inbox.snapshot()

    @property
    def subscriber_errors(self) -> tuple[SubscriberError, ...]:
        """The last failures of listeners, oldest first."""
        return self._listeners.errors

    def _owner(self) -> _Run | None:
        """Return the run in progress; one whose event loop was closed cannot end by itself, and is ended here."""
        run = self._run
        if run is not None and run.loop.is_closed():
            self._settle(run, run.ends.failed(self._messages, "AGENT_STATE_FAILED", "the run's event loop was closed"))
        return self._run

    def _evolve(self, event: MachineEvent) -> None:
        self._state = AGENT_MACHINE.evolve(self._state, event)

    def prompt(self, text: str, *, request_id: str | None = None) -> Stream:
        """Start a run with a new user message and return its stream at once.

        Args:
            text: what the user says.
            request_id: the caller's id of this request; the same id with the same text returns the same stream, also after the run's end.

        Raises:
            AgentBusyError: a run owns the transcript.
            AgentMessageLimitError: the message and what is queued would not fit.
            ValueError: `request_id` was used with another text.
            RuntimeError: no event loop is running.
        """
        known = self._requests.get(request_id) if request_id is not None else None
        if known is not None:
            if known[0] != text:
                msg = f"request id {request_id!r} was used with another text"
                raise ValueError(msg)
            return known[1]
        self._refuse_overlap()
        if not fits_prompt(self._state):
            raise AgentMessageLimitError(
                f"a prompt does not fit: {self._state.length} messages, {self._state.queued} queued, {MAX_MESSAGES} at most"
            )
        run = self._new_run()
        message = self._user_message(text)
        joined = self._inbox.take("steering")
        self._evolve(Prompted(self._max_steps, ("steering",) * len(joined)))
        stream = self._start(run, (message, *joined))
        if request_id is not None:
            self._requests[request_id] = (text, stream)
            while len(self._requests) > MAX_REQUEST_IDS:
                self._requests.popitem(last=False)
        return stream

    def continue_(self) -> Stream:
        """Start a run from the transcript as it is: queued steering first, or a queued follow-up after an assistant's message.

        Raises:
            AgentBusyError: a run owns the transcript.
            AgentStateError: `AGENT_NOTHING_TO_CONTINUE`.
            AgentMessageLimitError: going on would not fit.
            RuntimeError: no event loop is running.
        """
        self._refuse_overlap()
        state = self._state
        needs_message = state.tail_is_assistant or not state.length
        if needs_message and not state.queued:
            what = "from an assistant message" if state.length else "an empty transcript"
            raise AgentStateError("AGENT_NOTHING_TO_CONTINUE", f"Cannot continue {what} without queued work")
        if not fits_continue(state):
            raise AgentMessageLimitError(
                f"going on does not fit: {state.length} messages, {state.queued} queued, {MAX_MESSAGES} at most"
            )
        run = self._new_run()
        queue: QueueName = "steering" if state.steering else "follow_up"
        joined = self._inbox.take(queue) if state.steering or needs_message else ()
        self._evolve(Continued(self._max_steps, (queue,) * len(joined)))
        return self._start(run, joined)

    def _refuse_overlap(self) -> None:
        if self._owner() is None:
            return
        self._evolve(CallRefused())
        raise AgentBusyError

    def _user_message(self, text: str) -> UserMessage:
        self._last_user += 1
        return UserMessage(id=f"agent-user-{self._last_user:06}", content=clean_text(text))

    def _new_run(self) -> _Run:
        """Make a run; whatever raises here has changed nothing."""
        options = self._options
        publisher = Publisher(options.ids.new_id(), max_deltas=options.max_buffered_deltas, notify=self._notify)
        engine = Engine(
            stream_of=self._stream_of, tools=self._tools, options=options, publisher=publisher, signal=CancelSignal()
        )
        return _Run(engine, self._max_steps)

    def _start(self, run: _Run, first: tuple[UserMessage, ...]) -> Stream:
        self._messages = self._messages.extended(first)
        self._run, run.first = run, first
        task = self._options.clock.spawn(self._own(run), name=f"agent-{run.engine.run_id}")
        # A task that is cancelled before its first step never runs at all; its run ends all the same.
        task.add_done_callback(lambda _: self._settle(run, run.ends.cancelled(self._messages)))
        return run.publisher.log.stream

    def _notify(self, event: AgentEvent) -> None:
        run = self._run
        if not self._listeners or run is None:
            return
        token = _inside.set(None)
        try:
            self._listeners.tell(event, run.engine.signal)
        finally:
            _inside.reset(token)

    async def _own(self, run: _Run) -> None:
        """Own the transcript from the first event to the last."""
        result: RunResult | None = None
        try:
            await asyncio.sleep(0)  # also an eager task factory must not run anything before the caller has its stream
            _inside.set(run)
            self._announce_first(run)
            result = await self._turns(run)
        except StepFailed as error:
            result = run.ends.failed(self._messages, error.code, str(error))
        except asyncio.CancelledError:
            result = run.ends.cancelled(self._messages)
        except Exception as error:  # noqa: BLE001  the end of a run is a value, whatever went wrong inside
            result = run.ends.broken(self._messages, error)
        finally:
            self._settle(run, result or run.ends.failed(self._messages, "AGENT_STATE_FAILED", "the run was torn down"))

    def _announce_first(self, run: _Run) -> None:
        first, run.first = run.first, ()
        self._announce(run, first)

    def _announce(self, run: _Run, accepted: tuple[UserMessage, ...]) -> None:
        for message in accepted:
            run.publisher.publish(
                lambda sequence, run_id, message=message: MessageAcceptedEvent(sequence, run_id, message)
            )

    async def _turns(self, run: _Run) -> RunResult:
        while True:
            # What is queued has its place already: a turn may not take it.
            room = MAX_MESSAGES - self._state.length - self._state.queued
            step = await run.engine.step(self._messages, room)
            self._adopt(step)
            end = await self._end_after(run, step)
            if end is not None:
                return end
            self._accept_queued(run)

    def _adopt(self, step: Step) -> None:
        messages = self._messages
        for message in step.messages:
            messages = messages.appended(message)
        self._messages = messages
        self._evolve(TurnFinished(len(step.messages), step.had_calls))

    async def _end_after(self, run: _Run, step: Step) -> RunResult | None:
        """Return how the run ends after a turn, or None when a boundary or the next turn follows."""
        if step.had_calls:
            if step.repeated:
                return run.ends.limited(self._messages, "repeated_call")
            should_stop = await run.engine.should_stop(self._messages)
            run.engine.raise_if_stopped()
            if should_stop:
                return run.ends.limited(self._messages, "should_stop")
        if self._state.phase in {AgentPhase.STEERING_BOUNDARY, AgentPhase.FOLLOW_UP_BOUNDARY}:
            return None
        if not step.had_calls:
            return run.ends.completed(self._messages, step.text)
        return run.ends.limited(self._messages) if self._state.steps_left <= 0 else None

    def _accept_queued(self, run: _Run) -> None:
        """Accept what the boundary allows; a message leaves its queue in the moment it enters the transcript."""
        queue: QueueName
        if self._state.phase is AgentPhase.STEERING_BOUNDARY:
            queue = "steering"
        elif self._state.phase is AgentPhase.FOLLOW_UP_BOUNDARY:
            queue = "follow_up"
        else:
            return
        accepted = self._inbox.take(queue)
        for message in accepted:
            self._messages = self._messages.appended(message)
        self._evolve(MessageAccepted(queue, len(accepted)))
        self._announce(run, accepted)

    def _settle(self, run: _Run, result: RunResult) -> None:
        """End the run once: the last event, then no owner, then the result for who waits."""
        if self._run is not run or self._state.phase is AgentPhase.SETTLING:
            return
        self._announce_first(run)
        if run.grace is not None:
            run.grace.cancel()
        is_cancelling = self._state.phase is AgentPhase.CANCELLING
        if is_cancelling and not isinstance(result, Cancelled):
            # The end was chosen when the cancellation was accepted, whatever still came of the turn.
            result = run.ends.cancelled(self._messages)
        self._evolve(LoopEnded() if is_cancelling else Ended())
        run.publisher.finish(result, before_result=self._disown)

    def _disown(self) -> None:
        self._evolve(Settled())
        self._run = None

    def steer(self, text: str) -> UserMessage:
        """Queue a message for the next boundary of a finished turn, and return it as it will enter the transcript.

        Raises:
            AgentMessageLimitError: it would not fit.
        """
        return self._queue("steering", text)

    def follow_up(self, text: str) -> UserMessage:
        """Queue a message for when the run would end, and return it as it will enter the transcript.

        Raises:
            AgentMessageLimitError: it would not fit.
        """
        return self._queue("follow_up", text)

    def _queue(self, queue: QueueName, text: str) -> UserMessage:
        if not fits_queue(self._state, queue):
            raise AgentMessageLimitError(
                f"the message does not fit: {self._state.length} messages, {self._state.queued} queued"
            )
        message = self._user_message(text)
        self._inbox.push(queue, message)
        self._evolve(MessageQueued(queue))
        return message

    def clear_queue(self) -> Queued:
        """Empty both queues and return what was in them."""
        removed = self._inbox.clear()
        self._evolve(Cleared())
        return removed

    def cancel(self, reason: str = "Agent run cancelled") -> bool:
        """Cancel the run: its turn in progress is dropped, the queues are kept.

        Returns:
            False when nothing runs, the run is being cancelled already, or its end is chosen; otherwise True, and it ends `cancelled`.

        Raises:
            RuntimeError: a run is in progress and no event loop is running here.
        """
        run = self._owner()
        if run is None or self._state.has_ended:
            return False
        reason = clean_text(reason)
        run.grace = self._options.clock.call_later(
            self._options.grace_seconds, lambda: self._settle(run, run.ends.cancelled(self._messages))
        )
        self._evolve(CancelAccepted())
        run.engine.stop(reason)
        return True

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(event, signal)` for every event from now on, and return what ends that."""
        return self._listeners.subscribe(listener)

    async def wait_idle(self) -> None:
        """Return once no run owns the transcript.

        Raises:
            AgentStateError: `AGENT_WAITS_FOR_ITSELF`: called from a tool or hook of the very run.
        """
        while (run := self._owner()) is not None:
            if _inside.get() is run:
                raise AgentStateError("AGENT_WAITS_FOR_ITSELF", "a tool or hook cannot wait for the end of its own run")
            await run.publisher.log.stream

    async def aclose(self) -> None:
        """Cancel a run that is in progress and wait until it settled; safe to call again.

        Raises:
            AgentStateError: `AGENT_WAITS_FOR_ITSELF`: called from a tool or hook of the very run.
        """
        run = self._owner()
        if run is not None and _inside.get() is run:
            raise AgentStateError("AGENT_WAITS_FOR_ITSELF", "a tool or hook cannot wait for the end of its own run")
        self.cancel()
        await self.wait_idle()

    async def __aenter__(self) -> Self:
        """Return the agent."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel and settle."""
        await self.aclose()


def _valid(messages: Iterable[Message]) -> Sequence[Message]:
    known = tuple(messages)
    issues = validate_transcript(known)
    if issues:
        first = issues[0]
        msg = (
            f"the initial messages are no valid transcript: message {first.index}: {first.code} {first.detail}".rstrip()
        )
        raise ValueError(msg)
    if len(known) > MAX_MESSAGES:
        msg = f"{len(known)} initial messages, more than {MAX_MESSAGES}"
        raise ValueError(msg)
    return known
