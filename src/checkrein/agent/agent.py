"""The stateful agent: one transcript, one owner at a time, one ordered stream with one end per run.

This is the door that programs use. What decides (ownership, boundaries, capacity) is the pure machine of `kernel/agent.py`, reached through the conversation; what happens is
the run. Nothing runs before `prompt` or `continue_` has returned, and the owner is cleared on every way out.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeAlias

from msgspec.structs import replace

from checkrein.agent.conversation import Conversation
from checkrein.agent.inbox import Queued
from checkrein.agent.listeners import Listener, Listeners, SubscriberError
from checkrein.agent.options import AgentOptions
from checkrein.agent.run import AgentRun, outside, refuse_inside
from checkrein.clock import run_bounded
from checkrein.kernel.agent import AgentPhase, SubscriberFailed
from checkrein.loop.engine import Engine
from checkrein.loop.events import AgentEvent, RunResult
from checkrein.loop.options import AgentHooks, check_whole
from checkrein.loop.publisher import Publisher
from checkrein.loop.run import kit_of
from checkrein.messages import Message, UserMessage
from checkrein.ports.model import Model
from checkrein.ports.tool import CancelSignal, Tool
from checkrein.streams import EventStream
from checkrein.tools.registry import ToolRegistry
from checkrein.values import clean_text

__all__ = ["Agent", "AgentOptions"]

MAX_REQUEST_IDS: Final = 256
"""Request ids that are remembered."""
Stream: TypeAlias = EventStream[AgentEvent, RunResult]


class Agent:
    """A conversation held in memory.

    Everything is captured on creation: the model's method, the tools, the initial messages. One event loop at a time uses an agent; any number of its tasks may. Code that
    blocks the event loop cannot be bounded by anything here.

    Args:
        model: answers the requests.
        tools: what the model may call.
        max_steps: model requests of one run at most; 1 or more.
        messages: the transcript to begin with.
        hooks: where the caller steps in; by default those of `options`.
        options: further settings.

    Raises:
        ValueError: on creation: `messages` is no valid transcript, is too long, or `max_steps` is no positive whole number.
        DataError: on creation: a tool is none, or two have one name.
        TypeError: on creation: a tool's function has no schema.
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
        check_whole("max_steps", max_steps)
        self._max_steps = max_steps
        self._options = options if hooks is None else replace(options, hooks=hooks)
        self._kit = kit_of(model, tools, options)
        self._conversation = Conversation(messages, options=options, max_steps=max_steps)
        self._listeners = Listeners(options.clock, self._on_listener_failed)
        self._run: AgentRun | None = None
        self._requests: OrderedDict[str, tuple[str, Stream]] = OrderedDict()

    @property
    def messages(self) -> tuple[Message, ...]:
        """The transcript, as a fresh tuple."""
        return tuple(self._conversation.messages)

    @property
    def is_running(self) -> bool:
        """Whether a run owns the transcript."""
        return self._owner() is not None

    @property
    def queued(self) -> Queued:
        """What waits in the queues."""
        return self._conversation.queued

    @property
    def subscriber_errors(self) -> tuple[SubscriberError, ...]:
        """The last failures of listeners, oldest first."""
        return self._listeners.errors

    def prompt(self, text: str, *, request_id: str | None = None) -> Stream:
        """Start a run with a new user message and return its stream at once.

        Args:
            text: what the user says.
            request_id: the caller's id of this request; the same id with the same text returns the same stream, also after the run's end.

        Raises:
            AgentBusyError: a run owns the transcript.
            AgentMessageLimitError: the message and what is queued would not fit.
            ValueError: `request_id` was used with another text.
            TypeError: `text` is none.
            RuntimeError: no event loop is running.
        """
        known = None if request_id is None else self._requests.get(request_id)
        if known is not None:
            if known[0] != text:
                msg = f"request id {request_id!r} was used with another text"
                raise ValueError(msg)
            return known[1]
        run = self._new_run(self._conversation.check_begin)
        run.first = self._conversation.begin(text)
        stream = self._start(run)
        if request_id is not None:
            self._requests[request_id] = (text, stream)
            if len(self._requests) > MAX_REQUEST_IDS:
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
        run = self._new_run(self._conversation.check_resume)
        run.first = self._conversation.resume()
        return self._start(run)

    def run_sync(self, text: str, *, request_id: str | None = None) -> RunResult:
        """Prompt on an event loop of its own and return the result, for programs that have none.

        The loop is closed within the grace: a tool or model that ignores being cancelled is left behind and cannot keep the process.

        Args:
            text: what the user says.
            request_id: as for `prompt`.

        Raises:
            AgentBusyError: a run owns the transcript.
            AgentMessageLimitError: the message and what is queued would not fit.
            ValueError: `request_id` was used with another text.
            RuntimeError: an event loop is running in this thread.
            KeyboardInterrupt: the program was interrupted; the run was cancelled.
        """
        return run_bounded(self._prompted(text, request_id), seconds=self._options.grace_seconds)

    async def _prompted(self, text: str, request_id: str | None) -> RunResult:
        stream = self.prompt(text, request_id=request_id)
        try:
            return await stream
        except asyncio.CancelledError:
            await self.aclose()
            raise

    def steer(self, text: str) -> UserMessage:
        """Queue a message for the next boundary of a finished turn, and return it as it will enter the transcript.

        Raises:
            AgentMessageLimitError: it would not fit.
            TypeError: `text` is none.
        """
        self._owner()
        return self._conversation.push("steering", text)

    def follow_up(self, text: str) -> UserMessage:
        """Queue a message for when the run would end, and return it as it will enter the transcript.

        Raises:
            AgentMessageLimitError: it would not fit.
            TypeError: `text` is none.
        """
        self._owner()
        return self._conversation.push("follow_up", text)

    def clear_queue(self) -> Queued:
        """Empty both queues and return what was in them."""
        return self._conversation.clear()

    def cancel(self, reason: str = "Agent run cancelled") -> bool:
        """Cancel the run: its turn in progress is dropped, the queues are kept.

        Returns:
            False when nothing runs, the run is being cancelled already, or its end is chosen; otherwise True, and it ends `cancelled`.

        Raises:
            RuntimeError: a run is in progress and no event loop is running here.
        """
        run = self._owner()
        if run is None or not self._conversation.state.is_open:
            return False
        asyncio.get_running_loop()
        return run.engine.signal.cancel(clean_text(reason))

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(event, signal)` for every event from now on, and return what ends that.

        A listener that raises, whatever it raises, is recorded in `subscriber_errors` and changes nothing else. What it returns is awaited beside the run, not by it.
        """
        return self._listeners.subscribe(listener)

    async def wait_idle(self) -> None:
        """Return once no run owns the transcript.

        Raises:
            AgentStateError: `AGENT_WAITS_FOR_ITSELF`: called from a tool or hook of the very run.
        """
        while (run := self._owner()) is not None:
            refuse_inside(run)
            await run.stream

    async def aclose(self) -> None:
        """Cancel a run that is in progress and wait until it settled; safe to call again.

        Raises:
            AgentStateError: `AGENT_WAITS_FOR_ITSELF`: called from a tool or hook of the very run.
        """
        run = self._owner()
        if run is not None:
            refuse_inside(run)
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

    def _owner(self) -> AgentRun | None:
        """Return the run in progress; one whose event loop was closed cannot end by itself, and is ended here."""
        run = self._run
        if run is not None and run.is_lost:
            run.end(run.ends.failed(run.messages, "AGENT_STATE_FAILED", "the run's event loop was closed"))
        return self._run

    def _new_run(self, check: Callable[[], None]) -> AgentRun:
        """Make a run if it may begin; whatever raises here has changed nothing.

        Raises:
            AgentError: `check` refuses it.
            RuntimeError: no event loop is running.
        """
        self._owner()
        check()
        asyncio.get_running_loop()
        options, signal = self._options, CancelSignal()
        publisher = Publisher(
            options.ids.new_id(),
            max_deltas=options.max_buffered_deltas,
            audience=self._listeners.members,
            tell=partial(self._tell, signal),
        )
        engine = Engine(self._kit, options=options, publisher=publisher, signal=signal)
        return AgentRun(engine, self._conversation, max_steps=self._max_steps, on_release=self._release)

    def _start(self, run: AgentRun) -> Stream:
        self._run = run
        return run.start()

    def _release(self) -> None:
        self._run = None

    def _tell(self, signal: CancelSignal, event: AgentEvent) -> None:
        outside(lambda: self._listeners.tell(event, signal))

    def _on_listener_failed(self) -> None:
        if self._conversation.state.phase is AgentPhase.RUNNING:
            self._conversation.evolve(SubscriberFailed())
