"""Queued user messages: a message is in its queue until the moment it is in the transcript, and nowhere twice."""

from collections import deque
from collections.abc import Iterator
from typing import Literal

import msgspec

from checkrein.kernel.agent import QueueName
from checkrein.messages import UserMessage

__all__ = ["Inbox", "QueueMode", "Queued"]

QueueMode = Literal["one-at-a-time", "all"]


class Queued(msgspec.Struct, frozen=True):
    """What waits: each queue in the order of acceptance, and as a sequence all of it, steering first."""

    steering: tuple[UserMessage, ...] = ()
    follow_up: tuple[UserMessage, ...] = ()

    def __len__(self) -> int:
        """Return how many messages wait."""
        return len(self.steering) + len(self.follow_up)

    def __iter__(self) -> Iterator[UserMessage]:
        """Iterate over all that wait, steering first."""
        return iter(self.steering + self.follow_up)

    def __getitem__(self, index: int) -> UserMessage:
        """Return one of all that wait, steering first.

        Raises:
            IndexError: fewer wait.
        """
        return (self.steering + self.follow_up)[index]


class Inbox:
    """The two queues of one agent.

    Args:
        steering: how many steering messages one boundary accepts.
        follow_up: how many follow-ups one boundary accepts.
    """

    def __init__(self, *, steering: QueueMode, follow_up: QueueMode) -> None:
        self._modes: dict[QueueName, QueueMode] = {"steering": steering, "follow_up": follow_up}
        self._queues: dict[QueueName, deque[UserMessage]] = {"steering": deque(), "follow_up": deque()}

    def push(self, queue: QueueName, message: UserMessage) -> None:
        """Put a message at the end of a queue."""
        self._queues[queue].append(message)

    def take(self, queue: QueueName) -> tuple[UserMessage, ...]:
        """Remove and return what one boundary accepts: the first message, or all of them; empty when nothing waits."""
        waiting = self._queues[queue]
        count = len(waiting) if self._modes[queue] == "all" else min(1, len(waiting))
        return tuple(waiting.popleft() for _ in range(count))

    def snapshot(self) -> Queued:
        """Return what waits."""
        return Queued(tuple(self._queues["steering"]), tuple(self._queues["follow_up"]))

    def clear(self) -> Queued:
        """Remove everything and return it."""
        removed = self.snapshot()
        for waiting in self._queues.values():
            waiting.clear()
        return removed
