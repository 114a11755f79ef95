"""Which turns of a session a summary may stand for, by their numbers, and asking the planner for that summary.

Only a planner that is a model reads a transcript, and only one that was told how large its window is has it made shorter. Nothing here appends.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import msgspec

from checkrein.errors import ModelError
from checkrein.kernel.events import TurnStart
from checkrein.loop.compaction import Compaction, Cut, choose_cut
from checkrein.loop.summary import Summary, SummaryAsked
from checkrein.ports.model import ToolSchema
from checkrein.ports.tool import CancelSignal
from checkrein.projections.transcript import TranscriptView
from checkrein.tools.results import describe_error

__all__ = ["CompactingPlanner", "SessionCut", "compacting", "session_cut", "summarised"]


@runtime_checkable
class CompactingPlanner(Protocol):
    """A planner that can make the transcript it is given shorter."""

    @property
    def compaction(self) -> Compaction | None:
        """When and how; None never."""
        ...

    def offered(self, tools: tuple[ToolSchema, ...]) -> tuple[ToolSchema, ...]:
        """Return the tools that are sent with the transcript, in a session that has these."""
        ...

    async def summarise(self, asked: SummaryAsked, signal: CancelSignal) -> Summary:
        """Ask once for a summary.

        Raises:
            asyncio.CancelledError: it is not wanted any more.
        """
        ...


class SessionCut(msgspec.Struct, frozen=True):
    """Which turns a summary is to stand for.

    Attributes:
        through_turn: the last of them.
        cut: their messages.
        compaction: the settings.
    """

    through_turn: int
    cut: Cut
    compaction: Compaction


def compacting(planner: object) -> CompactingPlanner | None:
    """Return the planner if it makes transcripts shorter."""
    return planner if isinstance(planner, CompactingPlanner) and planner.compaction is not None else None


def session_cut(
    planner: object, view: TranscriptView, read_tools: Callable[[], tuple[ToolSchema, ...]], *, is_forced: bool
) -> SessionCut | None:
    """Return what must be summarised before a planning; None when nothing must, or nothing would be gained.

    Args:
        planner: who plans.
        view: the transcript as the planning sees it.
        read_tools: returns the tools of the session.
        is_forced: the model refused the transcript as too long.
    """
    able = compacting(planner)
    if able is None or able.compaction is None:
        return None
    compaction, messages = able.compaction, view.messages
    if not is_forced and compaction.size_of(messages, able.offered(read_tools()), view.counted) <= compaction.limit:
        return None
    turns = {place: turn for turn, place in view.starts}
    cut = choose_cut(messages, sorted(turns), compaction, first=1, is_forced=is_forced)
    return None if cut is None else SessionCut(turns[cut.at] - 1, cut, compaction)


async def summarised(
    planner: object, cut: SessionCut, start: TurnStart, signal: CancelSignal, *, tried: int
) -> Summary:
    """Ask the planner for a summary; whatever it raises is an answer too.

    Raises:
        asyncio.CancelledError: it is not wanted any more.
    """
    able = compacting(planner)
    if able is None:
        return Summary(
            error=ModelError("the planner was replaced by one that writes no summaries", code="MODEL_REQUEST")
        )
    name = f"request-{start.turn:03}-summary-{start.attempt}"
    try:
        return await able.summarise(
            SummaryAsked(name, f"summary-{cut.through_turn}", cut.cut, cut.compaction, tried), signal
        )
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if signal.is_cancelled or (task is not None and task.cancelling()):
            raise
        return Summary(error=ModelError(f"the summary was cancelled from within: {error}"))
    except (Exception, SystemExit) as error:  # noqa: BLE001  a planner is anybody's code
        return Summary(error=ModelError(f"the summary failed: {describe_error(error)}"))
