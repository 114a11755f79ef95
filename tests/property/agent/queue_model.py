"""What an agent does, in as few words as possible: who owns the transcript, what is accepted when, and what a run tells.

Messages are tuples: `("user", text)`, `("assistant", calls)`, `("result", call, is_error)`. Nothing here is shared with the agent's code.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Mode = Literal["one-at-a-time", "all"]
Spoken = tuple[str, object, object]


@dataclass
class Turn:
    """The turn in progress: nothing yet, or the calls with what came of each."""

    calls: tuple[str, ...] = ()
    outcomes: dict[str, bool] = field(default_factory=dict[str, bool])

    def open(self, *, is_parallel: bool) -> tuple[str, ...]:
        """Return the calls whose bodies run now."""
        waiting = tuple(call for call in self.calls if call not in self.outcomes)
        return waiting if is_parallel else waiting[:1]


@dataclass
class QueueModel:
    """An agent."""

    max_steps: int
    steering_mode: Mode
    follow_up_mode: Mode
    is_parallel: bool
    transcript: list[Spoken] = field(default_factory=list[Spoken])
    steering: list[str] = field(default_factory=list[str])
    follow_up: list[str] = field(default_factory=list[str])
    is_running: bool = False
    steps_left: int = 0
    turn: Turn = field(default_factory=Turn)
    events: list[str] = field(default_factory=list[str])
    end: str = ""
    unadopted: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def tail_is_assistant(self) -> bool:
        return bool(self.transcript) and self.transcript[-1][0] == "assistant"

    def prompt(self, text: str) -> str:
        if self.is_running:
            return "AGENT_BUSY"
        return self._begin([text, *self._take(self.steering, self.steering_mode)])

    def continue_(self) -> str:
        if self.is_running:
            return "AGENT_BUSY"
        needs = self.tail_is_assistant or not self.transcript
        if self.steering:
            return self._begin(self._take(self.steering, self.steering_mode))
        if not needs:
            return self._begin([])
        if not self.follow_up:
            return "AGENT_NOTHING_TO_CONTINUE"
        return self._begin(self._take(self.follow_up, self.follow_up_mode))

    def _begin(self, texts: Sequence[str]) -> str:
        self.is_running, self.steps_left, self.end = True, self.max_steps, ""
        self.turn, self.events, self.unadopted = Turn(), [], {}
        self._accept(texts)
        return "ok"

    @staticmethod
    def _take(queue: list[str], mode: Mode) -> list[str]:
        count = len(queue) if mode == "all" else 1
        taken = queue[:count]
        del queue[:count]
        return taken

    def _accept(self, texts: Sequence[str]) -> None:
        self.transcript += [("user", text, None) for text in texts]
        self.events += ["message.accepted"] * len(texts)

    def chunk(self) -> None:
        self.events.append("model.chunk")

    def respond(self, calls: tuple[str, ...]) -> None:
        """The model is done: with calls the bodies begin, without any the run would stop."""
        self.turn = Turn(calls)
        if calls:
            begun = len(self.turn.open(is_parallel=self.is_parallel))
            self.events += ["tool.started"] * begun
            return
        self.steps_left -= 1
        self.transcript.append(("assistant", (), None))
        self._boundary(would_stop=True)

    def finish_call(self, call: str, *, is_error: bool) -> None:
        self.turn.outcomes[call] = is_error
        self.events.append("tool.finished")
        if len(self.turn.outcomes) < len(self.turn.calls):
            if not self.is_parallel:
                self.events.append("tool.started")
            return
        self.steps_left -= 1
        self.transcript.append(("assistant", self.turn.calls, None))
        self.transcript += [("result", call, self.turn.outcomes[call]) for call in self.turn.calls]
        self._boundary(would_stop=False)

    def _boundary(self, *, would_stop: bool) -> None:
        self.turn = Turn()
        if self.steps_left and self.steering:
            self._accept(self._take(self.steering, self.steering_mode))
        elif self.steps_left and would_stop and self.follow_up:
            self._accept(self._take(self.follow_up, self.follow_up_mode))
        elif would_stop:
            self._finish("completed")
        elif not self.steps_left:
            self._finish("max_steps")

    def fail(self) -> None:
        """The model's stream breaks."""
        self._finish("MODEL_STREAM_FAILED")

    def cancel(self) -> bool:
        if not self.is_running:
            return False
        begun = self.turn.open(is_parallel=self.is_parallel)
        for call in self.turn.calls:
            done = self.turn.outcomes.get(call)
            unknown = "outcome_unknown" if call in begun else "not_started"
            self.unadopted[call] = unknown if done is None else "failed" if done else "finished"
        self._finish("cancelled")
        return True

    def _finish(self, end: str) -> None:
        self.is_running, self.end, self.turn = False, end, Turn()
        self.events.append("run.finished")

    def clear(self) -> tuple[list[str], list[str]]:
        removed = list(self.steering), list(self.follow_up)
        self.steering.clear()
        self.follow_up.clear()
        return removed
