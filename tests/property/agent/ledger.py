"""What an agent's queues and its capacity are, in as few words as possible: the yardstick of the tests that drive a real one.

Every message that was ever issued is in exactly one place: queued, in the transcript, or handed back. Nothing here is shared with the agent's code.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from checkrein.messages import AssistantMessage, Message, ToolResult, UserMessage

Queue = Literal["steering", "follow_up"]


@dataclass(frozen=True)
class Caps:
    """How much fits."""

    messages: int = 4096
    queued: int = 256
    blocks: int = 1024


@dataclass
class Ledger:
    """Who is where."""

    caps: Caps = field(default_factory=Caps)
    transcript: tuple[Message, ...] = ()
    steering: list[UserMessage] = field(default_factory=list[UserMessage])
    follow_up: list[UserMessage] = field(default_factory=list[UserMessage])
    issued: set[str] = field(default_factory=set[str])

    @property
    def tail_is_assistant(self) -> bool:
        return bool(self.transcript) and isinstance(self.transcript[-1], AssistantMessage)

    @property
    def queued(self) -> int:
        return len(self.steering) + len(self.follow_up)

    def fits_prompt(self) -> bool:
        extra = 1 if not self.steering else 0
        return len(self.transcript) + 1 + 2 * self.queued + extra <= self.caps.messages

    def fits_continue(self) -> bool:
        extra = 1 if not self.tail_is_assistant and not self.steering else 0
        return len(self.transcript) + 2 * self.queued + extra <= self.caps.messages

    def fits_queue(self, queue: Queue, *, is_active: bool) -> bool:
        n, q = len(self.transcript), self.queued + 1
        s = len(self.steering) + (1 if queue == "steering" else 0)
        if q > self.caps.queued:
            return False
        if is_active:
            return n + 1 + self.caps.blocks + q <= self.caps.messages
        extra = 0
        if not n:
            extra = 1 if s else 2
        elif not self.tail_is_assistant and not s:
            extra = 1
        return n + 2 * q + extra <= self.caps.messages

    def can_continue(self) -> bool:
        return bool(self.queued) or (bool(self.transcript) and not self.tail_is_assistant)

    def push(self, queue: Queue, message: UserMessage) -> None:
        """Queue a message; its id never came before."""
        assert message.id not in self.issued, f"{message.id} was issued twice"
        self.issued.add(message.id)
        self.of(queue).append(message)

    def of(self, queue: Queue) -> list[UserMessage]:
        return self.steering if queue == "steering" else self.follow_up

    def clear(self) -> tuple[tuple[UserMessage, ...], tuple[UserMessage, ...]]:
        removed = tuple(self.steering), tuple(self.follow_up)
        self.steering.clear()
        self.follow_up.clear()
        return removed

    def follow(self, transcript: tuple[Message, ...]) -> list[tuple[Queue | Literal["prompt"], UserMessage]]:
        """Go on to a longer transcript, and say where each new user message came from; each leaves its queue by its head."""
        known = len(self.transcript)
        assert transcript[:known] == self.transcript, "the transcript changed behind its end"
        came: list[tuple[Queue | Literal["prompt"], UserMessage]] = []
        for position in range(known, len(transcript)):
            message = transcript[position]
            if isinstance(message, UserMessage):
                came.append((self._accepted(message, transcript[:position]), message))
        self.transcript = transcript
        return came

    def _accepted(self, message: UserMessage, before: Sequence[Message]) -> "Queue | Literal['prompt']":
        if self.steering and message == self.steering[0]:
            del self.steering[0]
            return "steering"
        if self.follow_up and message == self.follow_up[0]:
            assert not self.steering, "a follow-up was accepted before the steering that waits"
            tail = before[-1] if before else None
            assert not isinstance(tail, ToolResult), "a follow-up where the run would not have ended"
            del self.follow_up[0]
            return "follow_up"
        assert message.id not in self.issued, f"{message.id} entered the transcript twice, or before its turn"
        self.issued.add(message.id)
        return "prompt"
