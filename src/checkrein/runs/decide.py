"""What a worker must do next for a run, decided from the log alone; what its session must do next is the session's own machine to say.

`next_action` is pure. It assumes that no body of ours is running, so a granted call without outcome belongs to a worker that is gone: the start after a crash is the same
code as the first start.
"""

from typing import Final, Literal, TypeAlias

import msgspec

from checkrein.kernel.budget import BudgetState
from checkrein.kernel.session_next import PauseForBudget
from checkrein.kernel.state import Call, Phase, RunState

__all__ = ["Action", "AskCaller", "DriveSession", "Poll", "Resolve", "Rest", "StartWork", "Verify", "next_action"]


class Rest(msgspec.Struct, frozen=True):
    """Nothing can be done without a new fact: the run ended, or waits for a person."""


class Resolve(msgspec.Struct, frozen=True):
    """Find out what became of a call, by its tool's declaration.

    Attributes:
        call: the call without outcome.
        how: `rerun` it under the next attempt, ask its `probe`, or `block` until a person says.
    """

    call: Call
    how: Literal["rerun", "probe", "block"]


class Poll(msgspec.Struct, frozen=True):
    """Ask what became of an accepted job."""

    call: Call


class AskCaller(msgspec.Struct, frozen=True):
    """Say that a caller must bring the result of a call."""

    call: Call


class StartWork(msgspec.Struct, frozen=True):
    """Say that work may be granted."""


class Verify(msgspec.Struct, frozen=True):
    """Measure the artifacts."""


class DriveSession(msgspec.Struct, frozen=True):
    """Do what the session's machine says."""


Action: TypeAlias = Rest | Resolve | Poll | AskCaller | StartWork | Verify | DriveSession | PauseForBudget

_REST: Final = Rest()


def next_action(state: RunState, budget: BudgetState) -> Action:
    """Return what is to be done at this version, with the budget as it is at this moment."""
    if state.phase.is_terminal:
        return _REST
    for call in state.open_calls:
        action = _of_open_call(state, budget, call)
        if not isinstance(action, Rest):
            return action
    if state.phase is Phase.BLOCKED or state.open_calls:
        return _REST
    if state.phase is Phase.VERIFYING:
        return Verify()
    if state.phase is Phase.PLANNED:
        return StartWork()
    return DriveSession()


def _of_open_call(state: RunState, budget: BudgetState, call: Call) -> Action:
    is_blocked = state.phase is Phase.BLOCKED
    if call.is_pull:
        return _REST if any(cause.call_id == call.call_id for cause in state.causes) else AskCaller(call)
    if call.status == "accepted":
        return _REST if state.asks_person(call) else Poll(call)
    if (
        call.tool.has_probe
        and not call.probed
        and not (call.tool.idempotent and state.cancel is None and not is_blocked)
    ):
        return Resolve(call, "probe")
    if is_blocked:
        return _REST
    if call.tool.idempotent and state.cancel is None:
        reached = budget.first_reached("tool_calls", "wall_seconds")
        return Resolve(call, "rerun") if reached is None else PauseForBudget(reached)
    return Resolve(call, "block")
