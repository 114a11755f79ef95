"""What a run is at one version: the value that the fold of its log gives.

Only values and questions about them live here; what may change them is in `run.py`. All fields are immutable, so a state can be kept, compared and
shared; two states are equal exactly when the same facts led to them.
"""

from enum import StrEnum
from typing import Final, Literal, TypeAlias

import msgspec

from checkrein.kernel.budget import Amounts, BudgetState
from checkrein.kernel.events import Artifact, Cause, Evidence, FailureCode, Finding, TaskRecord, ToolSpec
from checkrein.values import JsonObject, Shared

__all__ = [
    "CHILD",
    "PULL",
    "Call",
    "CallStatus",
    "Effect",
    "Outcome",
    "Phase",
    "Reservation",
    "RunState",
    "call_order",
    "is_claimable",
]


PULL: Final = "pull"
"""The handle of an accepted call whose result a caller brings."""
CHILD: Final = "child:"
"""The handle of an accepted call whose result a child run brings begins so; the child's run id follows."""


class Phase(StrEnum):
    """The seven phases of a run; each has a meaning that can be checked."""

    RECEIVED = "RECEIVED"
    PLANNED = "PLANNED"
    RUNNING = "RUNNING"
    VERIFYING = "VERIFYING"
    BLOCKED = "BLOCKED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    __hash__ = str.__hash__  # a phase is looked up for every event, and an enumeration's own hash is written in Python

    @property
    def is_terminal(self) -> bool:
        """Whether nothing may follow."""
        return self in {Phase.SUCCEEDED, Phase.FAILED}


CallStatus: TypeAlias = Literal["granted", "accepted", "in_doubt", "done", "failed", "unknown"]


class Call(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One tool call from its first grant to its outcome.

    Attributes:
        call_id: ours.
        tool: the declaration at the time of the grant.
        arguments: what the tool was given.
        attempt: executions granted so far.
        status: open while `granted`, `accepted` or `in_doubt`.
        handle: the job number of an accepted call.
        interval_seconds: how long to wait between two questions about it.
        probed: its probe was asked and could not tell.
        granted_at: offset of the last grant.
    """

    call_id: str
    tool: ToolSpec
    arguments: JsonObject
    attempt: int
    status: CallStatus
    granted_at: int
    handle: str = ""
    interval_seconds: float = 1.0
    probed: bool = False

    @property
    def is_pull(self) -> bool:
        """Whether a caller, not a tool of ours, brings the result."""
        return self.status == "accepted" and self.handle == PULL

    @property
    def child(self) -> str:
        """The id of the child run that brings the result; `""` when none does."""
        is_child = self.status == "accepted" and self.handle.startswith(CHILD)
        return self.handle.removeprefix(CHILD) if is_child else ""


def call_order(call_id: str) -> tuple[int, int] | None:
    """Return `(turn, index)` of a call id `<turn>.<index>`, or None when it is not one of ours."""
    turn, _, index = call_id.partition(".")
    if not (turn.isdecimal() and index.isdecimal()):
        return None
    order = (int(turn), int(index))
    return order if f"{order[0]}.{order[1]}" == call_id else None


class Effect(msgspec.Struct, frozen=True):
    """What became of one call, as listed at the end of a run."""

    call_id: str
    tool: str
    status: CallStatus
    attempts: int


class Outcome(msgspec.Struct, frozen=True):
    """How a run ended.

    Attributes:
        code: `goal_met` for success, else a failure code.
        message: for people.
        causes: what was still open when somebody closed a BLOCKED run.
    """

    code: FailureCode | Literal["goal_met"]
    message: str
    causes: tuple[Cause, ...] = ()


class Reservation(msgspec.Struct, frozen=True):
    """A child run's share of the budget.

    Attributes:
        child: the child's run id.
        amounts: its share.
        call_id: the call that starts it, or started it.
        task: the name of the child's task.
    """

    child: str
    amounts: Amounts
    call_id: str = ""
    task: str = ""


class OpenTurn(msgspec.Struct, frozen=True):
    """A planner or model request without an answer yet."""

    turn: int
    attempt: int


class RunState(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One run at one version.

    Attributes:
        run_id: the run.
        phase: where it stands.
        version: number of events in its log.
        epoch: the last lease's epoch, 0 before the first.
        task: the task's facts.
        budget: limits and use.
        code_hash: the hash of the task's code that may run; changes only by `code_accepted`.
        folder: name of the folder it works in, below the task's workspace.
        folders: every folder it was given, oldest first.
        open_calls: calls without an outcome, in order of their grants.
        settled_calls: calls with an outcome, in order of their outcomes.
        last_call_id: the newest call id, so that none comes twice.
        open_turn: a turn without an answer.
        turns_started: number of the newest turn.
        artifacts: what accepted outcomes named, newest digest per path.
        causes: why it is BLOCKED.
        blocked_from: the phase it returns to.
        cancel: the reason given when cancellation was requested.
        verifying_since: version at which the current verification began.
        evidence: measurements of the last verification.
        findings: findings of the last failed verification, until the next one.
        reservations: shares of child runs that have not ended.
        outcome: how it ended.
        parent: the run whose tool started this one; `""` for none.
    """

    run_id: str
    phase: Phase
    version: int
    task: TaskRecord
    budget: BudgetState
    epoch: int = 0
    code_hash: str = ""
    folder: str = ""
    folders: tuple[str, ...] = ()
    open_calls: tuple[Call, ...] = ()
    settled_calls: Shared[Call] = Shared()
    last_call_id: str = ""
    open_turn: OpenTurn | None = None
    turns_started: int = 0
    artifacts: tuple[Artifact, ...] = ()
    causes: tuple[Cause, ...] = ()
    blocked_from: Phase | None = None
    cancel: str | None = None
    verifying_since: int = -1
    evidence: tuple[Evidence, ...] = ()
    findings: tuple[Finding, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    outcome: Outcome | None = None
    parent: str = ""

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Every call whose body was granted, with what became of it: settled ones first, then open ones."""
        return tuple(
            Effect(call.call_id, call.tool.name, call.status, call.attempt)
            for call in (*self.settled_calls, *self.open_calls)
        )

    @property
    def last_call(self) -> tuple[int, int]:
        """Turn and index of the newest call id; before the first it is one that every id comes after."""
        return call_order(self.last_call_id) or (0, -1)

    def open_call(self, call_id: str) -> Call | None:
        """Return the open call of that id."""
        for call in self.open_calls:
            if call.call_id == call_id:
                return call
        return None

    def reservation(self, child: str) -> Reservation | None:
        """Return the share that is set aside for a child run."""
        return next((item for item in self.reservations if item.child == child), None)

    @property
    def loose_children(self) -> tuple[Reservation, ...]:
        """The shares whose children no open call looks after: the call that started them has its outcome."""
        return tuple(item for item in self.reservations if self.open_call(item.call_id) is None)

    def artifact(self, path: str) -> Artifact | None:
        """Return the newest recorded artifact at that path."""
        return next((artifact for artifact in self.artifacts if artifact.path == path), None)

    def asks_person(self, call: Call) -> bool:
        """Tell whether a cause asks a person what became of the call."""
        return any(cause.kind == "reconcile" and cause.call_id == call.call_id for cause in self.causes)

    def cause(self, cause_id: str) -> Cause | None:
        """Return the open cause of that id."""
        return next((cause for cause in self.causes if cause.id == cause_id), None)


def is_claimable(state: RunState) -> bool:
    """Tell whether a worker may take the run when nobody holds a live lease on it.

    A BLOCKED run is claimable only while an accepted call of a tool of ours must be polled, or a call in doubt (a granted one is in doubt once its
    worker is gone) has a probe that was not asked. A call about which a person is asked already is left to that person.
    """
    if state.phase.is_terminal:
        return False
    if state.phase is not Phase.BLOCKED:
        return True
    return any(
        (call.status == "accepted" and not call.is_pull and not state.asks_person(call))
        or (call.status in {"granted", "in_doubt"} and call.tool.has_probe and not call.probed)
        for call in state.open_calls
    )
