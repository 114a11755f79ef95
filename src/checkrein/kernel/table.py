"""The lifecycle's table: which event is legal in which phase, and where it may lead.

Only the table lives here, so that both the guards and the machine can read it. What is missing is illegal; a cell with several phases leaves the choice to
the event's handler.
"""

from collections.abc import Mapping
from typing import Final

from checkrein.kernel.budget import Limit
from checkrein.kernel.events import SESSION_EVENT_TYPES
from checkrein.kernel.state import Phase

__all__ = ["CHARGES", "TABLE", "legal_in"]

_R, _P, _W, _V, _B = Phase.RECEIVED, Phase.PLANNED, Phase.RUNNING, Phase.VERIFYING, Phase.BLOCKED
_S, _F = Phase.SUCCEEDED, Phase.FAILED
_ACTIVE: Final = (_R, _P, _W, _V, _B)
_ANYWHERE: Final[Mapping[Phase, tuple[Phase, ...]]] = {phase: (phase,) for phase in _ACTIVE}
_TURN: Final[Mapping[Phase, tuple[Phase, ...]]] = {_R: (_R,), _P: (_P,), _W: (_W,)}
_OUTCOME: Final[Mapping[Phase, tuple[Phase, ...]]] = {_W: (_W, _V, _F), _B: (_B, _F)}

TABLE: Final[Mapping[str, Mapping[Phase, tuple[Phase, ...]]]] = {
    "lease_taken": _ANYWHERE,
    "budget_extended": _ANYWHERE,
    "steer_queued": _ANYWHERE,
    "follow_up_queued": _ANYWHERE,
    "code_accepted": _ANYWHERE,
    "budget_reserved": _ANYWHERE,
    "budget_settled": _ANYWHERE,
    "plan_accepted": {_R: (_P,), _W: (_W,)},
    "work_started": {_P: (_W,)},
    "turn_granted": _TURN,
    "turn_finished": {**_TURN, _B: (_B,)},
    "transcript_compacted": {**_TURN, _B: (_B,)},
    "tool_granted": {_W: (_W,)},
    "tool_accepted": _OUTCOME,
    "tool_done": _OUTCOME,
    "tool_failed": _OUTCOME,
    "tool_in_doubt": _OUTCOME,
    "tool_reconciled": _OUTCOME,
    "work_done": {_W: (_V,)},
    "check_passed": {_V: (_S,)},
    "check_failed": {_V: (_W, _F)},
    "blocked": dict.fromkeys(_ACTIVE, (_B,)),
    "unblocked": {_B: (_B, _R, _P, _W, _V)},
    "cancel_requested": {_R: (_F,), _P: (_F,), _W: (_W, _F), _V: (_F,), _B: (_B, _F)},
    "failed": dict.fromkeys(_ACTIVE, (_F,)),
    **dict.fromkeys(SESSION_EVENT_TYPES, _ANYWHERE),
}
"""The contract: `event type → phase → possible next phases`; what is missing is `illegal_in_phase`."""

CHARGES: Final[Mapping[str, Limit]] = {"turn_granted": "turns", "tool_granted": "tool_calls", "step.start": "steps"}
"""What each event uses up one of, wherever it is legal; replans and repairs depend on more, so their handlers charge them."""


def legal_in(phase: Phase) -> tuple[str, ...]:
    """Return the types of the events that are legal in `phase`, sorted."""
    return tuple(sorted(kind for kind, row in TABLE.items() if phase in row))
