"""Listeners of an agent: called in order, isolated from the run and from each other.

A listener that raises is recorded and changes nothing. One that returns an awaitable has it started in order and observed, not awaited, so it cannot deadlock the run.
"""

import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from checkrein.loop.events import AgentEvent
from checkrein.ports.clock import Clock
from checkrein.ports.tool import CancelSignal
from checkrein.values import clean_text

__all__ = ["Listener", "Listeners", "SubscriberError"]

Listener: TypeAlias = Callable[[AgentEvent, CancelSignal], object]
MAX_ERRORS = 1000
"""Failures kept; older ones are forgotten first."""


class SubscriberError(msgspec.Struct, frozen=True):
    """A listener failed.

    Attributes:
        event_type: the type of the event it was told.
        listener_id: its number, from 1 in the order of subscribing.
        message: the text of what it raised.
    """

    event_type: str
    listener_id: int
    message: str


class Listeners:
    """The listeners of one agent.

    Args:
        clock: starts what listeners return.
        on_failure: told that one failed.

    Attributes:
        members: who listens now, by number.
    """

    def __init__(self, clock: Clock, on_failure: Callable[[], None]) -> None:
        self._clock = clock
        self._on_failure = on_failure
        self.members: dict[int, Listener] = {}
        self._last_id = 0
        self._errors: deque[SubscriberError] = deque(maxlen=MAX_ERRORS)

    @property
    def errors(self) -> tuple[SubscriberError, ...]:
        """The last failures, oldest first."""
        return tuple(self._errors)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener and return what removes it; calling that again does nothing."""
        self._last_id += 1
        number = self._last_id
        self.members[number] = listener

        def unsubscribe() -> None:
            self.members.pop(number, None)

        return unsubscribe

    def tell(self, event: AgentEvent, signal: CancelSignal) -> None:
        """Call those who listen now, in order."""
        for number, listener in tuple(self.members.items()):
            try:
                answer = listener(event, signal)
                if inspect.isawaitable(answer):
                    self._start(answer, event.type, number)
            except BaseException as error:  # noqa: BLE001  whatever a listener raises, it never changes the run
                self._failed(error, event.type, number)

    def _start(self, answer: Awaitable[object], event_type: str, number: int) -> None:
        work = self._observed(answer, event_type, number)
        # The loop may be closed before the task begins, or no loop may run at all; then nobody has awaited the coroutine.
        close: Callable[[], None] = answer.close if inspect.iscoroutine(answer) else _nothing
        try:
            task = self._clock.spawn(work, name=f"listener-{number}")
        except RuntimeError:
            work.close()
            close()
            raise
        task.add_done_callback(lambda _: close())

    async def _observed(self, answer: Awaitable[object], event_type: str, number: int) -> None:
        try:
            await answer
        except BaseException as error:  # noqa: BLE001  whatever a listener raises, it never changes the run
            self._failed(error, event_type, number)

    def _failed(self, error: BaseException, event_type: str, number: int) -> None:
        self._errors.append(SubscriberError(event_type, number, _text_of(error)))
        self._on_failure()


def _text_of(error: BaseException) -> str:
    try:
        return clean_text(str(error))
    except Exception:  # noqa: BLE001  an error whose text cannot be made is still an error
        return type(error).__name__


def _nothing() -> None:
    """Close nothing: an awaitable that is no coroutine needs no closing."""
