"""The explored lifecycle: the real `transition`, asked once for every canonical state, event and sender.

Two states are the same for the exploration when everything that a guard or a handler reads is the same; versions and epochs stand in it as differences
only (is the sender's version the newest, is its epoch the newest, was evidence measured in this verification), so the state space closes without a
bound on the length of a history. Each canonical state keeps the shortest real log that led to it, with real versions and epochs: every event is tried on
that log's state, and the fold of that log is compared with it.
"""

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, TypeAlias

from checkrein.errors import IllegalTransition, Rejected
from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import (
    Artifact,
    CheckPassed,
    CheckSpec,
    Event,
    EventData,
    Evidence,
    LeaseTaken,
    Received,
    TaskRecord,
    ToolSpec,
)
from checkrein.kernel.run import evolve
from checkrein.kernel.state import PULL, Phase, RunState
from checkrein.testing.explorer_ghosts import Deed, Limits, broken_by_event, broken_by_fold

__all__ = [
    "CLAIMANT",
    "HOLDER",
    "LOSER",
    "USER",
    "Act",
    "Lifecycle",
    "Proof",
    "Reply",
    "Scenario",
    "Sender",
    "Transition",
    "canonical",
    "describe",
]

Transition: TypeAlias = Callable[[RunState | None, Event], RunState]
Sender: TypeAlias = Literal["user", "holder", "loser", "claimant"]
USER: Final[Sender] = "user"
HOLDER: Final[Sender] = "holder"
LOSER: Final[Sender] = "loser"
CLAIMANT: Final[Sender] = "claimant"
PATH: Final = "report.md"
CHECKS: Final = (CheckSpec("file", "exists", PATH), CheckSpec("total", "sql"))


class Scenario(NamedTuple):
    """What is explored.

    Attributes:
        name: for the report.
        tool: the one tool of the run; its declaration decides what recovery may do.
        budget: the limits at the start.
        extension: what the user may add, once.
        accepts: the tool may answer with a job number, which is then polled.
        asks: a worker may block the run with a question to the user, in any phase.
        loses_answers: an append may be accepted without its sender learning so; the sender repeats it under the same event id.
        pulls: a call may wait for a caller, who brings its result without a lease, once.
        lends: a share of the budget may be set aside for a child run, and is settled when that ends.
        counts_steps: steps are started, as far as the budget allows.
    """

    name: str
    tool: ToolSpec
    budget: Budget
    extension: Amounts = Amounts()
    accepts: bool = False
    asks: bool = False
    loses_answers: bool = False
    pulls: bool = False
    lends: bool = False
    counts_steps: bool = False


class Proof(NamedTuple):
    """A `check_passed` that is still to be built for the version at which it is sent.

    Attributes:
        measured: digest of the artifact as the verifier read it; `""` claims success without any evidence.
        reread: its digest after the last verifier ended.
        is_fresh: measured in the verification that goes on now.
    """

    measured: str = ""
    reread: str = ""
    is_fresh: bool = True


class Act(NamedTuple):
    """An event that somebody decided to append.

    Attributes:
        data: what it says.
        keeps: it tells what has happened, so it is sent again after a newer version was met; otherwise the sender decides anew.
    """

    data: EventData | Proof
    keeps: bool = False


class Reply(NamedTuple):
    """What became of an event.

    Attributes:
        code: `""` when it was accepted, else the code of the refusal.
        node: the canonical state afterwards.
        deed: what the ghosts are told when it was accepted.
        restarts: a verification began, so evidence that somebody holds is of an older one.
        broken: the invariant that the accepted event breaks.
    """

    code: str
    node: int
    deed: Deed | None = None
    restarts: bool = False
    broken: str | None = None


def describe(data: EventData | Proof) -> str:
    """Name an event with what tells it from its like."""
    if isinstance(data, Proof):
        age = "" if data.is_fresh else ", of an older verification"
        return (
            f"check_passed(measured {data.measured[:1] or 'nothing'}, read again {data.reread[:1] or 'nothing'}{age})"
        )
    names = ("turn", "call_id", "attempt", "outcome", "by", "probed", "completes", "reason", "cause_id", "code")
    told = [f"{name}={value}" for name in names if (value := getattr(data, name, None))]
    if data.type == "blocked":
        told.append(data.cause.id)
    return f"{data.type}({', '.join(told)})" if told else data.type


class Lifecycle:
    """The canonical states of one scenario and what each event makes of them.

    Attributes:
        states: a real state for each canonical one, reached by its shortest log.
        replies: what was asked so far: canonical state, act, sender, whether its version was an older one.
    """

    def __init__(self, scenario: Scenario, transition: Transition) -> None:
        self.states: list[RunState] = []
        self._scenario = scenario
        self._transition = transition
        self._parents: list[tuple[int, Event]] = []
        self._nodes: dict[tuple[object, ...], int] = {}
        self.replies: dict[tuple[int, Act, Sender, bool], Reply] = {}
        task = TaskRecord("explored", 1, "explore", "", CHECKS, (scenario.tool,))
        received = Event("run", "e0", 0, 0.0, "user:u", Received(task, scenario.budget))
        self._intern(transition(None, received), -1, received)

    def send(self, node: int, act: Act, sender: Sender, *, behind: bool = False) -> Reply:
        """Ask the lifecycle for an event, by a sender whose version is the newest or (`behind`) an older one."""
        key = (node, act, sender, behind)
        reply = self.replies.get(key)
        if reply is None:
            reply = self.replies[key] = self._asked(node, act, sender, behind)
        return reply

    def log(self, node: int) -> tuple[Event, ...]:
        """Return the shortest log that leads to a canonical state."""
        events: list[Event] = []
        while node >= 0:
            node, event = self._parents[node]
            events.append(event)
        return tuple(reversed(events))

    def _asked(self, node: int, act: Act, sender: Sender, behind: bool) -> Reply:  # noqa: FBT001 - the memo's key, in its order
        before = self.states[node]
        event = self.event(before, act, sender, behind=behind)
        try:
            after = self._transition(before, event)
        except Rejected as refusal:
            return Reply(refusal.code, node)
        broken = _broken_proof(before, act, after) or broken_by_event(before, event, after, is_owner=sender != LOSER)
        broken = broken or _broken_step(before, event, after)
        reached = self._intern(after, node, event)
        if broken is None and self._parents[reached] == (node, event):
            broken = broken_by_fold(self.log(reached), after)
        return Reply("", reached, _deed(event, after), _restarts(before, after), broken)

    @staticmethod
    def event(state: RunState, act: Act, sender: Sender, *, behind: bool) -> Event:
        """Build the event that an act is at that state's version and epoch."""
        epochs: dict[Sender, int | None] = {
            USER: None,
            HOLDER: state.epoch,
            LOSER: state.epoch - 1,
            CLAIMANT: state.epoch + 1,
        }
        data = act.data
        if isinstance(data, Proof):
            data = _evidence(state, data)
        elif isinstance(data, LeaseTaken):
            data = LeaseTaken(state.epoch + 1, "w")
        return Event(
            run_id=state.run_id,
            event_id=f"e{state.version}",
            expected_version=state.version - behind,
            at=0.0,
            actor="user:u" if sender == USER else "worker:w",
            data=data,
            epoch=epochs[sender],
        )

    def _intern(self, state: RunState, parent: int, event: Event) -> int:
        key = canonical(state)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = len(self.states)
            self.states.append(state)
            self._parents.append((parent, event))
        return node


def canonical(state: RunState) -> tuple[object, ...]:
    """Return what guards and handlers read of a state, without versions, epochs and texts."""
    used, limits = state.budget.used, state.budget.limits
    return (
        state.phase,
        state.blocked_from,
        state.epoch > 0,
        state.cancel is not None,
        tuple((call.call_id, call.attempt, call.status, call.probed, call.is_pull) for call in state.open_calls),
        tuple(sorted((call.call_id, call.handle == PULL) for call in state.settled_calls)),
        tuple(sorted(item.child for item in state.reservations)),
        state.last_call,
        state.open_turn,
        state.turns_started,
        state.artifacts,
        tuple(sorted(cause.id for cause in state.causes)),
        (used.turns, used.tool_calls, used.repairs, used.replans, used.steps),
        (limits.turns, limits.tool_calls),
        state.outcome and state.outcome.code,
    )


def _evidence(state: RunState, proof: Proof) -> CheckPassed:
    if not proof.measured:
        return CheckPassed((), ())
    position = state.verifying_since - (not proof.is_fresh)
    evidence = tuple(
        Evidence(
            check=check.id,
            verifier=check.kind,
            verifier_version="1",
            run_id=state.run_id,
            subject=check.subject,
            sha256=proof.measured if check.subject else "",
            measurement="as it should be",
            at=0.0,
            position=position,
        )
        for check in CHECKS
    )
    return CheckPassed(evidence, (Artifact(PATH, proof.reread),))


def _broken_proof(before: RunState, act: Act, after: RunState) -> str | None:
    """Judge a success by what the verifier really did, not by what the event says of it."""
    if after.phase is not Phase.SUCCEEDED:
        return None
    proof = act.data
    if not isinstance(proof, Proof) or not proof.measured:
        return "2: SUCCEEDED without evidence for every check"
    recorded = before.artifact(PATH)
    if recorded is None or not recorded.sha256 == proof.measured == proof.reread:
        return "2: SUCCEEDED with evidence about other bytes than the recorded ones"
    return None if proof.is_fresh else "2: SUCCEEDED with evidence of an older verification"


def _broken_step(before: RunState, event: Event, after: RunState) -> str | None:
    try:
        folded = evolve(before, event)
    except IllegalTransition as refusal:
        return f"5: the fold refuses what was accepted: {refusal}"
    if folded != after or after.version != before.version + 1:
        return f"5: the fold of {event.data.type} differs from the live state"
    return None


def _restarts(before: RunState, after: RunState) -> bool:
    began = after.phase is Phase.VERIFYING and before.phase is not Phase.VERIFYING
    return began or after.artifacts != before.artifacts


def _deed(event: Event, after: RunState) -> Deed:
    data = event.data
    subject = ("", 0)
    if data.type == "tool_granted":
        subject = (data.call_id, data.attempt)
    elif data.type == "turn_granted":
        subject = (f"turn {data.turn}", data.attempt)
    elif data.type == "budget_settled":
        subject = (data.child, data.used.tool_calls)
    elif data.type == "budget_reserved":
        subject = (data.child, data.amounts.tool_calls)
    used, limits = after.budget.used, after.budget.limits
    return Deed(
        kind=data.type,
        subject=subject,
        used=Limits(used.tool_calls, used.turns),
        limits=Limits(limits.tool_calls or 0, limits.turns or 0),
        end=after.outcome.code if after.outcome else "",
    )
