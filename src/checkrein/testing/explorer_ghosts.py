"""What an explored history has done, kept beside the run and never told by it: the yardstick for the lifecycle's invariants.

The ghost variables are written from the moves of the explored world alone. No state of the run is believed here; its counters are compared with what really
happened. A broken invariant is a sentence that begins with the invariant's number in `INVARIANTS`.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from checkrein.kernel.budget import COUNTED, LIMITS
from checkrein.kernel.events import Event
from checkrein.kernel.run import fold_run
from checkrein.kernel.state import Phase, RunState

__all__ = ["INVARIANTS", "Deed", "Ghost", "Limits", "broken_by_event", "broken_by_fold"]

INVARIANTS: Final[Mapping[int, str]] = {
    0: "every phase means what it says",
    1: "at most one terminal event is ever accepted, and nothing after it",
    2: "every SUCCEEDED has complete, fresh evidence",
    3: "no effect starts, no event of the holder is appended and no artifact is adopted after the right was withdrawn",
    4: "granted calls and turns never exceed the budget, on the durable counters",
    5: "the fold of the log is the live state, at every offset",
    6: "a tool's body runs at most once per call and attempt, and attempt > 1 only for idempotent tools",
    7: "from every reachable state an end is reachable",
}
"""What is checked in every state and on every transition; 0 is the meaning of the phases, 1 to 7 are promised in docs/lifecycle.md."""


class Limits(NamedTuple):
    """Numbers of tool calls and turns: allowed, granted or counted."""

    tool_calls: int
    turns: int

    def __str__(self) -> str:
        """Show both in words."""
        return f"{self.tool_calls} tool calls and {self.turns} turns"


class Deed(NamedTuple):
    """One thing that happened in the explored world, as the ghosts need it.

    Attributes:
        kind: an accepted event's type; `body` or `model` when an execution began.
        subject: `(call id or turn, attempt)` of a grant or an execution; of a child's share the child and its tool calls, set aside or made.
        used: the run's own counters after the event.
        limits: the run's own limits after the event.
        end: the outcome's code when the event ended the run.
        is_new: False when an actor's message was taken in a second time.
    """

    kind: str
    subject: tuple[str, int] = ("", 0)
    used: Limits = Limits(0, 0)
    limits: Limits = Limits(0, 0)
    end: str = ""
    is_new: bool = True


class Ghost(NamedTuple):
    """What has really happened so far.

    Attributes:
        allowed: the budget as the actors gave it.
        cancelled: a cancel was accepted.
        ended: a terminal event was accepted.
        extended: the user's extension was accepted.
        granted: accepted grants of tool calls and turns, those that children made and that were settled among them.
        lent: tool calls that a child may still make.
        executed: bodies and model requests that ran, by call (or turn) and attempt.
    """

    allowed: Limits
    cancelled: bool = False
    ended: bool = False
    extended: bool = False
    granted: Limits = Limits(0, 0)
    lent: int = 0
    executed: frozenset[tuple[str, int]] = frozenset()

    def after(self, deed: Deed, extension: Limits) -> "tuple[Ghost, str | None]":
        """Return the ghosts after a deed, and which invariant it breaks, if any."""
        if deed.kind in {"body", "model"}:
            return self._after_execution(deed)
        if self.ended:
            return self, f"1: {deed.kind} was accepted after the end"
        calls, turns = self.granted
        is_grant = deed.kind in {"tool_granted", "turn_granted"}
        if is_grant:
            calls, turns = calls + (deed.kind == "tool_granted"), turns + (deed.kind == "turn_granted")
        lent = self.lent + deed.subject[1] if deed.kind == "budget_reserved" else self.lent
        if deed.kind == "budget_settled":
            calls, lent = calls + deed.subject[1], 0
        if deed.end:
            # Nobody settles after the end: what a child may still do counts as done.
            calls, lent = calls + lent, 0
        allowed = self.allowed
        if deed.kind == "budget_extended" and deed.is_new:
            allowed = Limits(allowed.tool_calls + extension.tool_calls, allowed.turns + extension.turns)
        ghost = self._replace(
            allowed=allowed,
            cancelled=self.cancelled or deed.kind == "cancel_requested",
            ended=bool(deed.end),
            extended=self.extended or deed.kind == "budget_extended",
            granted=Limits(calls, turns),
            lent=lent,
        )
        return ghost, self._broken_right(deed, is_grant=is_grant) or _broken_budget(ghost, deed)

    def _after_execution(self, deed: Deed) -> "tuple[Ghost, str | None]":
        if deed.subject in self.executed:
            return self, f"6: {deed.kind} of {deed.subject[0]} ran a second time in attempt {deed.subject[1]}"
        return self._replace(executed=self.executed | {deed.subject}), None

    def _broken_right(self, deed: Deed, *, is_grant: bool) -> str | None:
        if self.cancelled and is_grant:
            return f"3: {deed.kind} was accepted after the cancel"
        if self.cancelled and deed.end not in {"", "cancelled"}:
            return f"3: the run ended {deed.end} after the cancel was accepted"
        return None


def _broken_budget(ghost: Ghost, deed: Deed) -> str | None:
    granted, allowed = ghost.granted, ghost.allowed
    if granted.tool_calls > allowed.tool_calls or granted.turns > allowed.turns:
        return f"4: {deed.kind} makes {granted} granted of {allowed} allowed"
    if deed.limits != allowed:
        return f"4: {deed.kind} leaves limits of {deed.limits}, the actors allowed {allowed}"
    return None if deed.used == granted else f"4: {deed.kind} leaves {deed.used} counted, {granted} were granted"


def broken_by_event(before: RunState, event: Event, after: RunState, *, is_owner: bool) -> str | None:
    """Return which invariant an accepted event breaks by itself, or None.

    Args:
        before: the state that accepted it.
        event: the event.
        after: the next state.
        is_owner: False when the event comes from a worker whose lease another one has taken.
    """
    data = event.data
    if not is_owner:
        return f"3: {data.type} of a worker whose lease was taken over was accepted"
    if before.cancel is not None and after.artifacts != before.artifacts:
        return f"3: {data.type} adopted an artifact after the cancel was accepted"
    if data.type == "tool_granted" and data.attempt > 1 and not data.tool.idempotent:
        return f"6: attempt {data.attempt} of {data.call_id} was granted, and {data.tool.name} is not idempotent"
    return _broken_meaning(after) or _broken_shares(after)


def _broken_shares(state: RunState) -> str | None:
    """Return which limit is exceeded by what is used and what children may still use, or None."""
    budget = state.budget
    over = [name for name in LIMITS if name in COUNTED and budget.is_reached(name, wanted=0)]
    return f"4: more {', '.join(sorted(over))} used and set aside than the budget allows" if over else None


def _broken_meaning(state: RunState) -> str | None:
    phase = state.phase
    if state.open_calls and (phase is Phase.VERIFYING or phase.is_terminal):
        return f"0: {phase} with an open call"
    if (phase is Phase.BLOCKED) is not bool(state.causes):
        return f"0: {phase} with {len(state.causes)} causes"
    if len({cause.id for cause in state.causes}) != len(state.causes):
        return f"0: {phase} for one cause twice"
    if phase.is_terminal is not (state.outcome is not None):
        return f"0: {phase} with the outcome {state.outcome}"
    if state.cancel is not None and not state.open_calls and not phase.is_terminal:
        return f"0: {phase} although the run is cancelled and no call is open"
    return None


def broken_by_fold(log: tuple[Event, ...], live: RunState) -> str | None:
    """Return how the fold of a log differs from the state that `transition` gave, or None when it does not."""
    folded = fold_run(log)
    if folded == live:
        return None
    names = [name for name in live.__struct_fields__ if getattr(folded, name) != getattr(live, name)]
    return f"5: the fold of {len(log)} events differs in {', '.join(names)}"
