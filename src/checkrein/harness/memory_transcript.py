"""The transcript of a session in memory: read from its log as far as it has grown, and made shorter when its planner says that it is too long."""

from collections.abc import Callable, Sequence
from typing import Protocol

from checkrein.harness.asking import SessionPlanner
from checkrein.harness.cuts import SessionCut, compacting, session_cut, summarised
from checkrein.harness.pulls import SessionResult
from checkrein.kernel.events import Event, EventData, TranscriptCompacted, TurnStart
from checkrein.loop.summary import Summary
from checkrein.messages import Message
from checkrein.ports.model import ToolSchema
from checkrein.ports.tool import CancelSignal
from checkrein.projections.transcript import TranscriptView, begun, fold_transcript
from checkrein.streams import StreamLog

__all__ = ["MemoryTranscript"]


class _Place(Protocol):
    """What is needed of the place of the session."""

    planner: SessionPlanner
    log: StreamLog[Event, SessionResult]

    def append(self, *facts: EventData) -> None:
        """Append facts."""
        ...


class MemoryTranscript:
    """The transcript of one session.

    Args:
        place: whose log it is folded from.
        read_tools: returns the tools of the session.
    """

    def __init__(self, place: _Place, read_tools: Callable[[], tuple[ToolSchema, ...]]) -> None:
        self._place = place
        self._read_tools = read_tools
        self._view = TranscriptView()
        self._folded = 0

    async def read(self) -> Sequence[Message]:
        """Return the messages; costs what is new."""
        events = self._place.log.events
        self._view, self._folded = fold_transcript(events[self._folded :], self._view), len(events)
        return self._view.messages

    async def overlong(self, start: TurnStart, *, is_forced: bool) -> SessionCut | None:
        """Return what must be summarised before a planning; a planner that writes no summaries costs nothing."""
        if compacting(self._place.planner) is None:
            return None
        await self.read()
        return session_cut(self._place.planner, begun(self._view, start), self._read_tools, is_forced=is_forced)

    async def summarise(self, cut: SessionCut, start: TurnStart, *, tried: int) -> Summary:
        """Ask the planner for a summary."""
        return await summarised(self._place.planner, cut, start, CancelSignal(), tried=tried)

    async def compact(self, fact: TranscriptCompacted) -> None:
        """Record that a summary stands for old turns."""
        self._place.append(fact)
