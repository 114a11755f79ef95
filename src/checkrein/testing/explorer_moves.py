"""What two workers and a user may do in the explored world, at any time and in any order.

A worker folds the log, decides on one event by its own copy, and appends it in a later move, so everything can happen in between; then its version is
behind, and after a takeover its epoch too, without its knowing. It may crash between any two moves: after a grant and before the body, after the
body and before the outcome, after an append whose answer it never saw. It does not check itself: it tries rash events too (a second grant of
one call, success without evidence or with an older one, work done with an open call) and relies on the lifecycle to refuse them.
"""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from checkrein.kernel.budget import Amounts
from checkrein.kernel.events import (
    Artifact,
    Blocked,
    BudgetExtended,
    BudgetReserved,
    BudgetSettled,
    CancelRequested,
    Cause,
    CheckFailed,
    EventData,
    Failed,
    Finding,
    LeaseTaken,
    PlanAccepted,
    SteerQueued,
    StepStart,
    ToolAccepted,
    ToolDone,
    ToolFailed,
    ToolGranted,
    ToolInDoubt,
    ToolReconciled,
    TurnFinished,
    TurnGranted,
    Unblocked,
    WorkDone,
    WorkStarted,
)
from checkrein.kernel.state import PULL, Call, Phase, RunState
from checkrein.testing.explorer_ghosts import Deed
from checkrein.testing.explorer_model import (
    CLAIMANT,
    PATH,
    USER,
    Act,
    Lifecycle,
    Proof,
    Reply,
    Scenario,
    Sender,
    describe,
)
from checkrein.values import JsonObject

__all__ = ["CLAIM", "IDLE", "Mode", "Move", "Moves"]

CHILD: Final = "child"
DIGESTS: Final = ("a" * 64, "b" * 64)
"""What a body writes: its call's number decides which."""


class Mode(NamedTuple):
    """What one worker is about to do.

    Attributes:
        doing: `idle` holds nothing (never started, crashed, stopped); `ready` believes that it holds the lease; `intends` has decided on `act`; `body` and
            `model` hold an accepted grant whose execution has not begun; `measured` holds what a verifier read.
        act: the event it decided on, or the grant it holds.
        proof: what was measured.
        behind: the version has moved since it decided.
        sent: the event is in the log already, but the answer was lost.
    """

    doing: Literal["idle", "ready", "intends", "body", "model", "measured"]
    act: Act | None = None
    proof: Proof | None = None
    behind: bool = False
    sent: bool = False

    def after_append(self, *, restarts: bool) -> "Mode":
        """Return what the worker is about to do once somebody else appended an event."""
        mode = self if self.doing != "intends" or self.behind else self._replace(behind=True)
        if not restarts:
            return mode
        if mode.proof is not None:
            return mode._replace(proof=mode.proof._replace(is_fresh=False))
        if mode.act is not None and isinstance(mode.act.data, Proof) and mode.act.data.measured:
            return mode._replace(act=mode.act._replace(data=mode.act.data._replace(is_fresh=False)))
        return mode


IDLE: Final = Mode("idle")
READY: Final = Mode("ready")
CLAIM: Final = Act(LeaseTaken(0, ""))


class Move(NamedTuple):
    """One move of one actor.

    Attributes:
        text: what the actor does, without its name.
        node: the canonical state afterwards.
        mode: what the worker is about to do afterwards (of a user's move: nothing).
        disk: digest of the artifact's bytes afterwards.
        deed: what the ghosts are told.
        appends: an event was appended, so that everybody else is behind.
        restarts: it also began a verification.
        releases: the lease was given back.
        refused: the lifecycle refused an event.
        broken: the invariant it breaks.
    """

    text: str
    node: int
    mode: Mode
    disk: str
    deed: Deed | None = None
    appends: bool = False
    restarts: bool = False
    releases: bool = False
    refused: bool = False
    broken: str | None = None


class Moves:
    """All moves of a scenario's actors."""

    def __init__(self, scenario: Scenario, lifecycle: Lifecycle, *, known_ids: bool = True) -> None:
        self._scenario = scenario
        self._lifecycle = lifecycle
        self._known_ids = known_ids

    def of_worker(self, node: int, mode: Mode, disk: str, sender: Sender) -> Iterator[Move]:
        """Yield the moves of a worker that is not idle."""
        yield Move("crashes", node, IDLE, disk)
        if mode.doing == "ready":
            yield from self._decides(node, disk, sender)
        elif mode.doing == "measured" and mode.proof is not None:
            proof = mode.proof._replace(reread=disk)
            yield Move("reads the artifact again", node, Mode("intends", Act(proof, keeps=True)), disk)
            yield Move("finds a check not met", node, Mode("intends", Act(CheckFailed((_FINDING,)))), disk)
        elif mode.act is not None:
            yield from self._goes_on(node, mode, disk, sender)

    def _goes_on(self, node: int, mode: Mode, disk: str, sender: Sender) -> Iterator[Move]:
        data = mode.act.data if mode.act is not None else None
        if mode.doing == "intends":
            yield from self._appends(node, mode, disk, sender)
        elif isinstance(data, TurnGranted):
            reply = Act(TurnFinished(data.turn, data.attempt), keeps=True)
            deed = Deed("model", (f"turn {data.turn}", data.attempt))
            yield Move("asks the model", node, Mode("intends", reply), disk, deed)
        elif isinstance(data, ToolGranted):
            yield from self._executes(node, data, disk)

    def of_claimant(self, node: int, disk: str) -> Move | None:
        """Return the takeover of a free lease, or None when the run is not to be claimed."""
        reply = self._lifecycle.send(node, CLAIM, CLAIMANT)
        return None if reply.code else _accepted("claims the lease", reply, READY, disk)

    def of_user(self, node: int, disk: str, *, extended: bool) -> Iterator[Move]:
        """Yield the user's moves; each is appended at once, because a user's append is repeated while the version moves."""
        state = self._lifecycle.states[node]
        for data in _wishes(state):
            reply = self._lifecycle.send(node, Act(data), USER)
            yield self._answered(describe(data), reply, disk)
        for data in _results(state) if self._scenario.pulls else ():
            yield self._answered(f"brings {describe(data)}", self._lifecycle.send(node, Act(data), USER), disk)
        if self._scenario.extension.tool_calls or self._scenario.extension.turns:
            yield self._extends(node, disk, again=extended)

    def _extends(self, node: int, disk: str, *, again: bool) -> Move:
        text = "sends the same extension again" if again else "extends the budget"
        if again and self._known_ids:
            return Move(f"{text}: known, nothing is appended", node, IDLE, disk)
        reply = self._lifecycle.send(node, Act(BudgetExtended(self._scenario.extension)), USER)
        if again and reply.deed is not None:
            reply = reply._replace(deed=reply.deed._replace(is_new=False))
        return self._answered(text, reply, disk)

    @staticmethod
    def _answered(text: str, reply: Reply, disk: str) -> Move:
        if reply.code:
            return Move(f"{text}: refused, {reply.code}", reply.node, IDLE, disk, refused=True)
        return _accepted(text, reply, IDLE, disk)

    def _decides(self, node: int, disk: str, sender: Sender) -> Iterator[Move]:
        state = self._lifecycle.states[node]
        for act in self._ideas(state):
            reply = self._lifecycle.send(node, act, sender)
            text = describe(act.data)
            if not reply.code:
                yield Move(f"decides on {text}", node, Mode("intends", act), disk)
            elif reply.code in {"terminal", "lease_lost"}:
                yield Move(f"tries {text}: {reply.code}, stops", node, IDLE, disk, refused=True)
            else:
                yield Move(f"tries {text}: {reply.code}", node, READY, disk, refused=True)
        if state.phase is Phase.VERIFYING and disk:
            yield Move("measures the artifact", node, Mode("measured", proof=Proof(disk)), disk)
        yield Move("gives the lease back", node, IDLE, disk, releases=True)

    def _appends(self, node: int, mode: Mode, disk: str, sender: Sender) -> Iterator[Move]:
        act = mode.act
        if act is None:
            return
        text = describe(act.data)
        if mode.sent and self._known_ids:
            yield Move(f"repeats {text}: known", node, _after(act), disk)
            return
        reply = self._lifecycle.send(node, act, sender, behind=mode.behind)
        if not reply.code:
            ended = self._lifecycle.states[reply.node].phase.is_terminal
            yield _accepted(f"appends {text}", reply, IDLE if ended else _after(act), disk)
            if self._scenario.loses_answers and not ended:
                lost = Mode("intends", act, behind=True, sent=True)
                yield _accepted(f"appends {text}, and the answer is lost", reply, lost, disk)
        elif reply.code in {"terminal", "lease_lost"}:
            yield Move(f"appends {text}: {reply.code}, stops", node, IDLE, disk, refused=True)
        elif reply.code == "stale_version" and act.keeps:
            yield Move(f"appends {text}: stale_version, reads again", node, Mode("intends", act), disk, refused=True)
        else:
            yield Move(f"appends {text}: {reply.code}, decides again", node, READY, disk, refused=True)

    def _executes(self, node: int, grant: ToolGranted, disk: str) -> Iterator[Move]:
        """Run the body once; it writes and ends well, or fails, or leaves nobody knowing."""
        deed = Deed("body", (grant.call_id, grant.attempt))
        written = _digest(grant.call_id)
        artifacts = (Artifact(PATH, written),)
        outcomes: list[tuple[str, EventData]] = [
            (written, ToolDone(grant.call_id, artifacts=artifacts)),
            (written, ToolDone(grant.call_id, artifacts=artifacts, completes=True)),
            (written, ToolInDoubt(grant.call_id, "timed out")),
            (disk, ToolFailed(grant.call_id, "internal", "failed")),
        ]
        if self._scenario.accepts:
            outcomes.append((written, ToolAccepted(grant.call_id, "job")))
        if self._scenario.pulls:
            outcomes.append((disk, ToolAccepted(grant.call_id, PULL)))
        for after, outcome in outcomes:
            yield Move(
                f"runs the body of {grant.call_id}, attempt {grant.attempt}",
                node,
                Mode("intends", Act(outcome, keeps=True)),
                after,
                deed,
            )
        if self._scenario.tool.idempotent:
            retry = Act(_grant(self._scenario, grant.call_id, grant.attempt + 1))
            yield Move(
                f"runs the body of {grant.call_id}, attempt {grant.attempt}, which fails",
                node,
                Mode("intends", retry),
                disk,
                deed,
            )

    def _ideas(self, state: RunState) -> Iterator[Act]:
        """Yield every event a worker may think of, sensible or rash; by its own copy it keeps what the lifecycle would accept."""
        for data in (*self._of_turns(state), *self._of_calls(state), *self._of_ends(state)):
            yield Act(data)
        for call in state.open_calls:
            if call.status == "accepted" and not call.is_pull:
                yield Act(ToolDone(call.call_id, artifacts=(Artifact(PATH, _digest(call.call_id)),)), keeps=True)
                yield Act(ToolFailed(call.call_id, "internal", "the job failed"), keeps=True)
        for proof in (Proof(), *(Proof(digest, digest, is_fresh=False) for digest in DIGESTS)):
            yield Act(proof)

    def _of_turns(self, state: RunState) -> Iterator[EventData]:
        yield TurnGranted(state.turns_started + 1)
        if state.open_turn is not None:
            yield TurnGranted(state.open_turn.turn, state.open_turn.attempt + 1, previous="in_doubt")
        yield PlanAccepted(1, "first" if state.phase is Phase.RECEIVED else "repair")
        yield WorkStarted()

    def _of_calls(self, state: RunState) -> Iterator[EventData]:
        turn, index = state.last_call
        following = f"{turn}.{index + 1}" if turn == state.turns_started else f"{state.turns_started}.0"
        yield _grant(self._scenario, following, 1)
        for call in state.open_calls:
            yield _grant(self._scenario, call.call_id, call.attempt)
            yield _grant(self._scenario, call.call_id, call.attempt + 1)
            yield ToolInDoubt(call.call_id, "its worker is gone")
            if call.status == "in_doubt" and call.tool.has_probe:
                yield ToolInDoubt(call.call_id, "the probe cannot tell", probed=True)
                yield ToolReconciled(call.call_id, "done", "probe", artifacts=(Artifact(PATH, _digest(call.call_id)),))
                yield ToolReconciled(call.call_id, "failed", "probe")
        for call in state.settled_calls[-1:]:
            yield _grant(self._scenario, call.call_id, 1)
            yield ToolDone(call.call_id)

    def _of_ends(self, state: RunState) -> Iterator[EventData]:
        yield WorkDone()
        yield CheckFailed((_FINDING,))
        yield Failed("gave_up", "no plan helps")
        if self._scenario.counts_steps:
            yield StepStart("step")
        if self._scenario.lends:
            yield from self._of_children(state)
        if self._scenario.asks:
            yield Blocked(Cause("question", "answer", "somebody must decide"))
        yield from (Blocked(_reconcile(call)) for call in state.open_calls if call.status == "in_doubt")
        yield from (Blocked(_wanted(call)) for call in state.open_calls if call.is_pull)

    @staticmethod
    def _of_children(state: RunState) -> Iterator[EventData]:
        """Set a share aside, for one child and rashly for it again, and settle it with what it used."""
        yield BudgetReserved(CHILD, Amounts(tool_calls=1))
        yield BudgetSettled(CHILD, Amounts())
        if state.reservations:
            yield BudgetSettled(CHILD, Amounts(tool_calls=1))


_FINDING: Final = Finding("file", PATH, "empty", "the file is empty")


def _after(act: Act) -> Mode:
    """Return what a worker is about to do once its event is accepted."""
    if isinstance(act.data, ToolGranted):
        return Mode("body", act)
    return Mode("model", act) if isinstance(act.data, TurnGranted) else READY


def _accepted(text: str, reply: Reply, mode: Mode, disk: str) -> Move:
    return Move(text, reply.node, mode, disk, reply.deed, appends=True, restarts=reply.restarts, broken=reply.broken)


def _wishes(state: RunState) -> Iterator[EventData]:
    yield SteerQueued("note", "look again")
    yield CancelRequested("enough")
    yield Failed("closed", "enough")
    for cause in state.causes:
        yield Unblocked(cause.id)
    for call in state.open_calls:
        yield ToolReconciled(call.call_id, "unknown")
        yield ToolReconciled(call.call_id, "done")


def _results(state: RunState) -> Iterator[EventData]:
    """Yield what a caller may bring, for calls that wait for it and rashly for others."""
    for call in (*state.open_calls, *state.settled_calls[-1:]):
        yield ToolDone(call.call_id)
        yield ToolFailed(call.call_id, "internal", "the caller says no")


def _wanted(call: Call) -> Cause:
    return Cause(f"answer:{call.call_id}", "answer", "bring the result", call_id=call.call_id)


def _grant(scenario: Scenario, call_id: str, attempt: int) -> ToolGranted:
    return ToolGranted(call_id, scenario.tool, JsonObject(), attempt, "" if attempt == 1 else "in_doubt")


def _reconcile(call: Call) -> Cause:
    return Cause(f"reconcile {call.call_id}", "reconcile", "say what became of it", call_id=call.call_id)


def _digest(call_id: str) -> str:
    return DIGESTS[sum(int(part) for part in call_id.split(".")) % 2]
