"""The one place where a run's events get their numbers, enter its log and reach listeners.

The invariant: numbers are gap-free from 0 in the order of publishing, and after the end nothing is published, whoever still tries (a body or a stream that was left
behind). The log keeps a bounded number of updates; those beyond it reach listeners only, and one marker stands for them.
"""

from collections.abc import Callable, Sized
from typing import TypeVarTuple

from checkrein.loop.events import AgentEvent, ModelChunk, RunFinished, RunResult, RunWarned, ToolProgress
from checkrein.ports.model import Chunk
from checkrein.streams import StreamLog

__all__ = ["Publisher"]

Ts = TypeVarTuple("Ts")


class Publisher:
    """Publishes the events of one run.

    Args:
        run_id: the run.
        max_deltas: updates that the log keeps.
        audience: who listens; while it is empty, nobody is told.
        tell: told each event for the audience.

    Attributes:
        run_id: the run.
        log: where the events are kept.
        is_closed: the end was published; everything else is dropped from then on.
    """

    __slots__ = ("_deltas_left", "_dropped", "_events", "_max_deltas", "is_closed", "log", "run_id")

    def __init__(
        self,
        run_id: str,
        *,
        max_deltas: int,
        audience: Sized = (),
        tell: Callable[[AgentEvent], object] | None = None,
    ) -> None:
        self.run_id = run_id
        self.log: StreamLog[AgentEvent, RunResult] = StreamLog(audience, tell)
        self.is_closed = False
        self._events = self.log.events
        self._max_deltas = self._deltas_left = max_deltas
        self._dropped = 0

    def publish(self, kind: Callable[[int, str, *Ts], AgentEvent], *fields: *Ts) -> None:
        """Publish an event of that kind: its number, the run's id and `fields`."""
        if self.is_closed:
            return
        if self._dropped:
            self._mark_dropped()
        self.log.append(kind(len(self._events), self.run_id, *fields))

    def chunk(self, request_id: str, chunk: Chunk) -> None:
        """Publish what a model said."""
        if self._deltas_left > 0 and not self.is_closed:
            self._deltas_left -= 1
            self.log.append(ModelChunk(len(self._events), self.run_id, request_id, chunk))
        else:
            self._drop(ModelChunk(-1, self.run_id, request_id, chunk))

    def progress(self, call_id: str, text: str) -> None:
        """Publish what a tool reports."""
        if self._deltas_left > 0 and not self.is_closed:
            self._deltas_left -= 1
            self.log.append(ToolProgress(len(self._events), self.run_id, call_id, text))
        else:
            self._drop(ToolProgress(-1, self.run_id, call_id, text))

    def _drop(self, update: ModelChunk | ToolProgress) -> None:
        """Keep an update out of the log, which is full of them; the audience is told all the same."""
        if not self.is_closed:
            self._dropped += 1
            self.log.tell(update)

    def _mark_dropped(self) -> None:
        dropped, self._dropped = self._dropped, 0
        text = f"{dropped} updates were left out of the log, which keeps {self._max_deltas}"
        self.log.append(RunWarned(len(self._events), self.run_id, "deltas_dropped", text, dropped))

    def finish(self, result: RunResult, *, before_result: Callable[[], None]) -> None:
        """Publish the end, then call `before_result`, then give the result to who waits; does nothing when the end was published before."""
        if self.is_closed:
            return
        if self._dropped:
            self._mark_dropped()
        self.is_closed = True
        self.log.append(RunFinished(len(self._events), self.run_id, result))
        before_result()
        self.log.finish(result)
