"""The one place where a run's events get their numbers, enter its log and reach listeners.

The invariant: numbers are gap-free from 0 in the order of publishing, and after the end nothing is published, whoever still tries (a body or a stream that was left
behind). The log keeps a bounded number of updates; those beyond it reach listeners only, and one marker stands for them.
"""

from collections.abc import Callable
from typing import TypeVarTuple

from checkrein.loop.events import AgentEvent, ModelChunk, RunFinished, RunResult, RunWarned, ToolProgress
from checkrein.ports.model import Chunk
from checkrein.streams import StreamLog

__all__ = ["Publisher"]

Ts = TypeVarTuple("Ts")


class Publisher:
    """Publishes the events of one run.

    Attributes:
        run_id: the run.
        log: where the events are kept.
        is_closed: the end was published; everything else is dropped from then on.
    """

    __slots__ = ("_deltas_left", "_dropped", "_max_deltas", "_notify", "is_closed", "log", "run_id")

    def __init__(self, run_id: str, *, max_deltas: int, notify: Callable[[AgentEvent], None] | None = None) -> None:
        self.run_id = run_id
        self.log: StreamLog[AgentEvent, RunResult] = StreamLog()
        self.is_closed = False
        self._notify = notify
        self._max_deltas = self._deltas_left = max_deltas
        self._dropped = 0

    def publish(self, kind: Callable[[int, str, *Ts], AgentEvent], *fields: *Ts) -> None:
        """Publish an event of that kind: its number, the run's id and `fields`."""
        if self.is_closed:
            return
        if self._dropped:
            self._mark_dropped()
        self._append(kind(len(self.log.events), self.run_id, *fields))

    def _append(self, event: AgentEvent) -> None:
        self.log.append(event)
        if self._notify is not None:
            self._notify(event)

    def chunk(self, request_id: str, chunk: Chunk) -> None:
        """Publish what a model said."""
        if self._takes_delta():
            self._append(ModelChunk(len(self.log.events), self.run_id, request_id, chunk))
        elif self._notify is not None and not self.is_closed:
            self._notify(ModelChunk(-1, self.run_id, request_id, chunk))

    def progress(self, call_id: str, text: str) -> None:
        """Publish what a tool reports."""
        if self._takes_delta():
            self._append(ToolProgress(len(self.log.events), self.run_id, call_id, text))
        elif self._notify is not None and not self.is_closed:
            self._notify(ToolProgress(-1, self.run_id, call_id, text))

    def _takes_delta(self) -> bool:
        """Tell whether the log takes one more update, and count it either way."""
        if self.is_closed:
            return False
        if self._deltas_left > 0:
            self._deltas_left -= 1
            return True
        self._dropped += 1
        return False

    def _mark_dropped(self) -> None:
        dropped, self._dropped = self._dropped, 0
        text = f"{dropped} updates were left out of the log, which keeps {self._max_deltas}"
        self._append(RunWarned(len(self.log.events), self.run_id, "deltas_dropped", text, dropped))

    def finish(self, result: RunResult, *, before_result: Callable[[], None]) -> None:
        """Publish the end, then call `before_result`, then give the result to who waits; does nothing when the end was published before."""
        if self.is_closed:
            return
        if self._dropped:
            self._mark_dropped()
        self.is_closed = True
        self._append(RunFinished(len(self.log.events), self.run_id, result))
        before_result()
        self.log.finish(result)
