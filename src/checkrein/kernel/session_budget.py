"""What each event of a session uses up: the counters of a session that has no run, and the same numbers for one that has.

In a run the lifecycle keeps the counters; here they are folded from what the session's own events say, so that a session alone has a budget too, and so that a test
can hold both folds against each other.
"""

from typing import Final

from checkrein.kernel.budget import BudgetState, Limit
from checkrein.kernel.events import (
    BudgetExtended,
    CheckFailed,
    Event,
    PlanCommit,
    Received,
    SessionResume,
    SessionStart,
    TranscriptCompacted,
    TurnFinished,
)

__all__ = ["spent"]

_CHARGES: Final[dict[str, Limit]] = {"turn.start": "turns", "tool.call": "tool_calls", "step.start": "steps"}


def spent(budget: BudgetState, event: Event) -> BudgetState:
    """Return the budget after an event of a session's log; shares of child runs are the run's affair and are not looked at."""
    after = budget.with_elapsed(event.elapsed)
    charge = _CHARGES.get(event.data.type)
    return _measured(after, event) if charge is None else after.charged(charge)


def _measured(budget: BudgetState, event: Event) -> BudgetState:
    match event.data:
        case SessionStart(budget=limits) | Received(budget=limits) if limits is not None:
            return BudgetState(limits=limits, used=budget.used)
        case PlanCommit(reason="replan"):
            return budget.charged("replans")
        case CheckFailed() if not budget.is_reached("repairs"):
            return budget.charged("repairs")
        case TurnFinished(usage=usage) | TranscriptCompacted(usage=usage):
            return budget.with_usage(usage)
        case BudgetExtended(extra=extra) | SessionResume(extra=extra) if extra is not None:
            return budget.extended(extra)
        case _:
            return budget
