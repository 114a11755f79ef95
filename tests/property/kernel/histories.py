"""Generated events for the kernel: such as fit the state, and such as nobody sensible would send.

Ids, digests, attempts and versions come from small pools, so that generated events meet each other: the same call twice, an old epoch, an answered cause.
"""

from collections.abc import Iterator

from hypothesis import strategies as st
from msgspec.structs import replace

from checkrein.errors import Rejected
from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import (
    Artifact,
    Blocked,
    BudgetExtended,
    BudgetReserved,
    BudgetSettled,
    CancelRequested,
    Cause,
    CheckFailed,
    CheckPassed,
    CheckSpec,
    CodeAccepted,
    Event,
    EventData,
    Evidence,
    Failed,
    Finding,
    FollowUpQueued,
    LeaseTaken,
    PlanAccepted,
    Received,
    SessionComplete,
    SteerQueued,
    StepStart,
    TaskRecord,
    ToolAccepted,
    ToolDone,
    ToolFailed,
    ToolGranted,
    ToolInDoubt,
    ToolReconciled,
    ToolSpec,
    TranscriptCompacted,
    TurnFinished,
    TurnGranted,
    Unblocked,
    WorkDone,
    WorkStarted,
)
from checkrein.kernel.guards import is_users_event
from checkrein.kernel.run import create, transition
from checkrein.kernel.state import Phase, RunState
from checkrein.messages import Usage
from checkrein.values import JsonObject

PATHS = ("report.md", "chart.png")
DIGESTS = ("a" * 64, "b" * 64)
CHECKS = (CheckSpec("file", "exists", PATHS[0]), CheckSpec("total", "sql"))
TOOLS = (ToolSpec("send_mail"), ToolSpec("book_room", has_probe=True), ToolSpec("write_file", idempotent=True))

limits = st.sampled_from((None, 9, 4, 2, 1, 0))
budgets = st.builds(
    Budget,
    turns=limits,
    tool_calls=limits,
    wall_seconds=st.sampled_from((None, None, None, 20.0, 0.0)),
    tokens=st.sampled_from((None, None, None, 100, 0)),
    cost=st.sampled_from((None, None, None, 2.0, 0.0)),
    steps=limits,
    replans=limits,
    repairs=limits,
)
amounts = st.builds(
    Amounts,
    turns=st.integers(0, 2),
    tool_calls=st.integers(0, 2),
    wall_seconds=st.one_of(st.floats(0, 5), st.just(float(2**53 - 1))),
    cost=st.floats(0, 1),
)
usages = st.builds(Usage, st.integers(-5, 50), st.integers(0, 50), cost=st.one_of(st.none(), st.floats()))
calls = st.sampled_from(("0.0", "1.0", "1.1", "2.0", "x", ""))
tools = st.sampled_from(TOOLS)
artifacts = st.lists(st.builds(Artifact, st.sampled_from(PATHS), st.sampled_from(DIGESTS)), max_size=2).map(tuple)
causes = st.builds(
    Cause, st.sampled_from(("a", "b")), st.sampled_from(("answer", "budget", "reconcile")), st.just("why")
)
evidence = st.builds(
    Evidence,
    check=st.sampled_from(("file", "total", "other")),
    verifier=st.sampled_from(("exists", "")),
    verifier_version=st.just("1"),
    run_id=st.sampled_from(("run", "other")),
    subject=st.sampled_from((*PATHS, "")),
    sha256=st.sampled_from((*DIGESTS, "")),
    measurement=st.just("as it is"),
    at=st.just(0.0),
    position=st.integers(-1, 40),
    passed=st.booleans(),
)
anything: st.SearchStrategy[EventData] = st.one_of(
    st.builds(Received, st.just(TaskRecord("t", 1, "g", "", CHECKS)), budgets),
    st.builds(BudgetExtended, amounts),
    st.builds(BudgetReserved, st.sampled_from(("c1", "c2")), amounts),
    st.builds(BudgetSettled, st.sampled_from(("c1", "c2")), amounts),
    st.builds(SteerQueued, st.just("n"), st.just("text")),
    st.builds(FollowUpQueued, st.just("n"), st.just("text")),
    st.builds(CodeAccepted, st.just("hash"), st.integers(0, 2)),
    st.builds(PlanAccepted, st.just(1), st.sampled_from(("first", "replan", "repair", "continuation"))),
    st.builds(WorkStarted),
    st.builds(TurnGranted, st.integers(-1, 3), st.integers(0, 3)),
    st.builds(TurnFinished, st.integers(0, 3), st.integers(0, 3), usage=usages),
    st.builds(TranscriptCompacted, st.just(1), st.just("so far"), usages),
    st.builds(ToolGranted, calls, tools, st.just(JsonObject()), st.integers(0, 3)),
    st.builds(ToolAccepted, calls, st.sampled_from(("job", "pull"))),
    st.builds(ToolDone, calls, artifacts=artifacts, completes=st.booleans()),
    st.builds(ToolFailed, calls, st.just("internal"), st.just("no")),
    st.builds(ToolInDoubt, calls, st.just("lost"), st.booleans()),
    st.builds(
        ToolReconciled,
        calls,
        st.sampled_from(("done", "failed", "unknown")),
        st.sampled_from(("probe", "person")),
        artifacts=artifacts,
        completes=st.booleans(),
    ),
    st.builds(WorkDone),
    st.builds(CheckPassed, st.lists(evidence, max_size=3).map(tuple), artifacts),
    st.builds(
        CheckFailed,
        st.lists(st.builds(Finding, st.just("file"), st.just(""), st.just("x"), st.just("y")), max_size=1).map(tuple),
    ),
    st.builds(Blocked, causes),
    st.builds(Unblocked, st.sampled_from(("a", "b", "c"))),
    st.builds(CancelRequested, st.just("enough")),
    st.builds(Failed, st.sampled_from(("cancelled", "closed", "error", "gave_up")), st.just("m")),
    st.builds(StepStart, st.just("s")),
    st.builds(SessionComplete, st.just("goal_met")),
)


def received(budget: Budget) -> Event:
    """Return the first event of a run."""
    return Event("run", "e0", 0, 0.0, "user:u", Received(TaskRecord("t", 1, "g", "", CHECKS, TOOLS), budget))


def proof(state: RunState) -> CheckPassed:
    """Return evidence such as an honest verifier would give now."""
    found = {check.id: state.artifact(check.subject) for check in state.task.checks if check.subject}
    items = tuple(
        Evidence(
            check=check.id,
            verifier="v",
            verifier_version="1",
            run_id=state.run_id,
            subject=check.subject,
            sha256=artifact.sha256 if (artifact := found.get(check.id)) else "",
            measurement="as it should be",
            at=0.0,
            position=state.version,
        )
        for check in state.task.checks
    )
    return CheckPassed(items, state.artifacts)


def fitting(state: RunState) -> st.SearchStrategy[EventData]:
    """Return events that a driver might well send in that state."""
    turn, index = state.last_call
    following = f"{turn}.{index + 1}" if turn == state.turns_started else f"{state.turns_started}.0"
    sensible: list[st.SearchStrategy[EventData]] = [
        st.just(PlanAccepted(1, "first" if state.phase is Phase.RECEIVED else "replan")),
        st.just(WorkStarted()),
        st.just(TurnGranted(state.turns_started + 1)),
        tools.map(lambda tool: ToolGranted(following, tool, JsonObject())),
        st.just(WorkDone()),
        st.just(proof(state)),
        st.just(CheckFailed((Finding("file", PATHS[0], "empty", "it is empty"),))),
    ]
    if state.open_turn is not None:
        current = state.open_turn
        sensible.append(st.builds(TurnFinished, st.just(current.turn), st.just(current.attempt), usage=usages))
        sensible.append(st.just(TurnGranted(current.turn, current.attempt + 1, previous="in_doubt")))
    for call in state.open_calls:
        sensible.append(st.builds(ToolDone, st.just(call.call_id), artifacts=artifacts, completes=st.booleans()))
        sensible.append(st.just(ToolGranted(call.call_id, call.tool, JsonObject(), call.attempt + 1, "in_doubt")))
        sensible.append(st.just(ToolInDoubt(call.call_id, "lost")))
        sensible.append(st.builds(ToolAccepted, st.just(call.call_id), st.sampled_from(("job", "pull"))))
    sensible.extend(st.just(Unblocked(cause.id)) for cause in state.causes)
    return st.one_of(sensible)


def sound(state: RunState, data: EventData, *, elapsed: float = 0.0) -> Event:
    """Wrap a payload as its proper sender would."""
    is_lease = isinstance(data, LeaseTaken)
    event = Event("run", f"e{state.version}", state.version, 0.0, "somebody", data, state.epoch + is_lease, elapsed)
    return replace(event, epoch=None) if is_users_event(state, event) else event


@st.composite
def envelopes(draw: st.DrawFn, state: RunState, data: EventData) -> Event:
    """Wrap a payload: mostly as its sender should, sometimes with an old version, epoch or run, or an absurd clock."""
    if draw(st.integers(0, 7)):
        return sound(state, data, elapsed=draw(st.sampled_from((0.0, 0.0, 0.0, 5.0, 30.0))))
    return Event(
        run_id=draw(st.sampled_from(("run", "run", "other"))),
        event_id=f"e{state.version}",
        expected_version=draw(st.sampled_from((state.version, state.version - 1, state.version + 1, -1))),
        at=0.0,
        actor="somebody",
        data=data,
        epoch=draw(st.one_of(st.none(), st.integers(-1, state.epoch + 1))),
        elapsed=draw(st.floats()),
    )


@st.composite
def events(draw: st.DrawFn, state: RunState) -> Event:
    """Draw one event for a state."""
    choice = draw(st.integers(0, 9))
    if choice == 0 or (state.epoch == 0 and choice < 7):
        return draw(envelopes(state, LeaseTaken(state.epoch + 1, "w")))
    return draw(envelopes(state, draw(anything if choice in {1, 2} else fitting(state))))


def openings(budget: Budget) -> Iterator[list[Event]]:
    """Yield the beginnings of a run that the budget allows: received, at work, with calls open, being verified."""
    log = [received(budget)]
    state = create(log[0])
    steps: tuple[EventData, ...] = (
        LeaseTaken(1, "w"),
        PlanAccepted(1),
        WorkStarted(),
        ToolGranted("0.0", TOOLS[2], JsonObject()),
        ToolGranted("0.1", TOOLS[1], JsonObject()),
        ToolDone("0.1", artifacts=(Artifact(PATHS[0], DIGESTS[0]),)),
        ToolDone("0.0", completes=True),
    )
    for data in steps:
        yield list(log)
        event = sound(state, data)
        try:
            state = transition(state, event)
        except Rejected:
            return
        log.append(event)
    yield log
