"""The attempts of one planning: the planner is asked, and asked again after a failure that may pass.

The invariant: every attempt is recorded and counted before it is made, and none is made that the budget does not allow; what failed attempts consumed is recorded with
the last one's answer or failure.
"""

from typing import Final

from msgspec.structs import replace

from checkrein.harness.asking import PlannerReply
from checkrein.harness.host import SessionHost
from checkrein.harness.planners import PlannerFailed
from checkrein.kernel.budget import BudgetState
from checkrein.kernel.events import TurnStart
from checkrein.kernel.session_next import AskPlanner
from checkrein.loop.options import Retry
from checkrein.messages import Usage

__all__ = ["RETRY", "allows", "ask_with_retries", "sum_of_known"]

RETRY: Final = Retry(attempts=3)
"""How often a request of a planning is made, whichever kind it is."""
_NOTHING_USED: Final = Usage()


async def ask_with_retries(
    host: SessionHost, effect: AskPlanner, attempt: int, *, aside: int = 0
) -> tuple[PlannerReply | PlannerFailed, int]:
    """Return what came of a planning whose attempt was begun, and the number of the last attempt.

    Args:
        host: the session's place.
        effect: what is asked.
        attempt: the attempt that was begun.
        aside: how many attempts of the turn were for something else.

    Raises:
        Exception: what the host raises to say that the log moved on, or is lost.
    """
    wasted = _NOTHING_USED
    while True:
        try:
            reply = await host.ask(effect.turn)
        except PlannerFailed as error:
            wasted = sum_of_known(wasted, error.usage)
            asked = error.retry_after
            failed = PlannerFailed(
                error.reason, is_transient=error.is_transient, usage=wasted, retry_after=asked, code=error.code
            )
        else:
            return replace(reply, usage=sum_of_known(wasted, reply.usage)), attempt
        made = attempt - aside
        if not failed.is_transient or not RETRY.allows(made, asked=asked) or not allows(host.budget(), wasted):
            return failed, attempt
        await host.sleep(RETRY.delay(made, asked=asked))
        if not allows(host.budget(), wasted):
            return failed, attempt
        attempt += 1
        again = TurnStart(turn=effect.turn, attempt=attempt, reason=effect.reason)
        await host.begin_turn(again, previous=failed.reason, is_held=False)


def allows(budget: BudgetState, wasted: Usage) -> bool:
    """Tell whether one more attempt may be made after those that consumed `wasted`, which the log does not know yet."""
    return budget.with_usage(wasted).first_reached("turns", "wall_seconds", "tokens", "cost") is None


def sum_of_known(one: Usage, other: Usage) -> Usage:
    """Return both together; a cost that is known is not given up for one that is not, for a budget counts it."""
    cost = None if one.cost is None and other.cost is None else (one.cost or 0.0) + (other.cost or 0.0)
    return one.plus(other, cost=cost)
