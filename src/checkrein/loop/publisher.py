"""The one place where a run's events get their numbers, enter its log and reach listeners.

The invariant: numbers are gap-free from 0 in the order of publishing, and after the end nothing is published, whoever still tries (a body or a stream that was left
behind). The log keeps a bounded number of updates; those beyond it reach listeners only, and one marker stands for them.
"""

from collections.abc import Callable
from typing import Protocol

from checkrein.loop.events import AgentEvent, ModelChunk, RunFinished, RunResult, RunWarned, ToolProgress
from checkrein.ports.model import Chunk
from checkrein.streams import StreamLog

__all__ = ["Publisher"]


class _Numbered(Protocol):
    def __call__(self, sequence: int, run_id: str, /) -> AgentEvent: ...


class Publisher:
    """Publishes the events of one run.

    Attributes:
        run_id: the run.
        log: where the events are kept.
        is_closed: the end was published; everything else is dropped from then on.
    """

    __slots__ = ("_deltas", "_dropped", "_max_deltas", "_notify", "_sequence", "is_closed", "log", "run_id")

    def __init__(self, run_id: str, *, max_deltas: int, notify: Callable[[AgentEvent], None] | None = None) -> None:
        self.run_id = run_id
        self.log: StreamLog[AgentEvent, RunResult] = StreamLog()
        self.is_closed = False
        self._notify = notify
        self._max_deltas = max_deltas
        self._deltas = 0
        self._dropped = 0
        self._sequence = 0

    def publish(self, make: _Numbered) -> None:
        """Number an event and publish it."""
        if self.is_closed:
            return
        if self._dropped:
            self._mark_dropped()
        self._append(make(self._sequence, self.run_id))

    def _append(self, event: AgentEvent) -> None:
        self._sequence += 1
        self.log.append(event)
        if self._notify is not None:
            self._notify(event)

    def chunk(self, request_id: str, chunk: Chunk) -> None:
        """Publish what a model said."""
        if self.is_closed:
            return
        if self._deltas < self._max_deltas:
            self._deltas += 1
            self._append(ModelChunk(self._sequence, self.run_id, request_id, chunk))
        else:
            self._drop(ModelChunk(-1, self.run_id, request_id, chunk))

    def progress(self, call_id: str, text: str) -> None:
        """Publish what a tool reports."""
        if self.is_closed:
            return
        if self._deltas < self._max_deltas:
            self._deltas += 1
            self._append(ToolProgress(self._sequence, self.run_id, call_id, text))
        else:
            self._drop(ToolProgress(-1, self.run_id, call_id, text))

    def _drop(self, event: AgentEvent) -> None:
        self._dropped += 1
        if self._notify is not None:
            self._notify(event)

    def _mark_dropped(self) -> None:
        dropped, self._dropped = self._dropped, 0
        text = f"{dropped} updates were left out of the log, which keeps {self._max_deltas}"
        self._append(RunWarned(self._sequence, self.run_id, "deltas_dropped", text, dropped))

    def finish(self, result: RunResult, *, before_result: Callable[[], None]) -> bool:
        """Publish the end, then call `before_result`, then give the result to who waits; False when the end was published before."""
        if self.is_closed:
            return False
        if self._dropped:
            self._mark_dropped()
        self.is_closed = True
        self._append(RunFinished(self._sequence, self.run_id, result))
        before_result()
        self.log.finish(result)
        return True
