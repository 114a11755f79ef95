"""The session's table to the letter, against a copy that was written independently of it, and every edge of it taken."""

from collections.abc import Callable, Mapping

import pytest

from checkrein.errors import IllegalTransition
from checkrein.kernel.events import (
    BudgetWarn,
    CheckFailed,
    EventData,
    Finding,
    FollowUpQueued,
    LeaseTaken,
    PlanCommit,
    PlanDraft,
    SessionComplete,
    SessionPause,
    SessionResume,
    SessionStart,
    SteerQueued,
    StepEnd,
    StepStart,
    TurnStart,
    Unblocked,
)
from checkrein.kernel.session import SESSION_MACHINE, SESSION_TABLE, evolve_session, fold_session
from checkrein.kernel.session_state import SessionPhase, SessionState
from checkrein.values import JsonData
from tests.unit.kernel.session_story import (
    RUN,
    SessionStory,
    approvals,
    call,
    decide,
    error,
    plain,
    result,
    steer,
    tooled,
)

PHASES = ("IDLE", "PLANNING", "EXECUTING", "AWAITING_TOOL", "REFLECTING")
SHORT = {"I": "IDLE", "P": "PLANNING", "E": "EXECUTING", "A": "AWAITING_TOOL", "R": "REFLECTING", "D": "DONE"}
# Columns as in PHASES, `–` is illegal; several letters are the possible ends of the edge.
CONTRACT = """
session.start    | P | – | – | – | –
turn.start       | – | P | – | – | P
plan.draft       | – | P | – | – | R
plan.commit      | – | E R | – | – | –
step.start       | – | – | E | – | E
step.end         | – | – | E R | A R | R
tool.call        | – | – | A | A | –
tool.result      | I | – | – | A R | –
tool.error       | I | – | E R | A R | –
budget.warn      | – | P | E | A | R
session.pause    | – | I | I | I | I
session.resume   | I P E A R | – | – | – | –
session.complete | D | D | D | D | D
steer_queued     | I | P | E | A | R
follow_up_queued | I | P | E | A | R
unblocked        | I | P | E | A | R
check_failed     | – | – | – | – | R
"""
OF_THE_RUN = ("steer_queued", "follow_up_queued", "unblocked", "check_failed")
Edge = tuple[str, str, str]
Witness = tuple[SessionStory, EventData]


def _contract() -> dict[str, dict[str, tuple[str, ...]]]:
    rows: dict[str, dict[str, tuple[str, ...]]] = {}
    for line in CONTRACT.strip().splitlines():
        kind, *cells = (part.strip() for part in line.split("|"))
        assert len(cells) == len(PHASES)
        rows[kind] = {
            phase: tuple(SHORT[letter] for letter in cell.split())
            for phase, cell in zip(PHASES, cells, strict=True)
            if cell != "–"
        }
    return rows


EDGES = frozenset(
    (phase, kind, target) for kind, row in _contract().items() for phase, ends in row.items() for target in ends
)


def _new() -> SessionStory:
    return SessionStory()


def _started() -> SessionStory:
    return SessionStory().started()


def _executing(*more: str) -> SessionStory:
    """Every story's step 1 has a tool, and is started."""
    batch = tuple(tooled(name, "b") for name in (1, *more))
    return _started().committed(*batch).send(*(StepStart(step.id) for step in batch))


def _at(phase: str) -> SessionStory:
    """A session in a phase; IDLE is paused in the middle of a step."""
    match phase:
        case "IDLE":
            return _executing().paused()
        case "PLANNING":
            return _started()
        case "EXECUTING":
            return _executing()
        case "AWAITING_TOOL":
            return _started().awaiting()
        case "REFLECTING":
            return _started().reflecting(tooled(2))
        case _:
            return _started().done()


def _call_paused() -> SessionStory:
    return _started().awaiting().paused("budget_exceeded:wall_seconds", subject="wall_seconds")


def _pair_in_the_middle() -> SessionStory:
    """AWAITING_TOOL: of a batch of two the first call is answered, the second was not granted yet."""
    return _executing("2").send(call(1, "1.0"), result(1, "1.0"))


FINDINGS = CheckFailed((Finding("sum", "", "differs", "12 expected"),))
STEPS = (plain("a"),)

WITNESSES: Mapping[Edge, Callable[[], Witness]] = {
    ("IDLE", "session.start", "PLANNING"): lambda: (_new(), SessionStart("goal")),
    ("PLANNING", "turn.start", "PLANNING"): lambda: (_started(), TurnStart(1)),
    ("REFLECTING", "turn.start", "PLANNING"): lambda: (_started().reflecting(), TurnStart(2, reason="replan")),
    ("PLANNING", "plan.draft", "PLANNING"): lambda: (_started().asked(), PlanDraft(1, STEPS)),
    ("REFLECTING", "plan.draft", "REFLECTING"): lambda: (
        _started().reflecting(),
        PlanDraft(1, (), dropped="not like this"),
    ),
    ("PLANNING", "plan.commit", "EXECUTING"): lambda: (_started().drafted(*STEPS), PlanCommit(1, STEPS)),
    ("PLANNING", "plan.commit", "REFLECTING"): lambda: (
        _started().reflecting().drafted(reason="replan"),
        PlanCommit(2, (), reason="replan"),
    ),
    ("EXECUTING", "step.start", "EXECUTING"): lambda: (_started().committed(*STEPS), StepStart("a")),
    ("REFLECTING", "step.start", "EXECUTING"): lambda: (_started().reflecting(tooled(2)), StepStart(2)),
    ("EXECUTING", "step.end", "EXECUTING"): lambda: (_executing("2"), StepEnd(1, "skipped")),
    ("EXECUTING", "step.end", "REFLECTING"): lambda: (_executing(), StepEnd(1, "skipped")),
    ("AWAITING_TOOL", "step.end", "AWAITING_TOOL"): lambda: (
        _executing("2").send(call(1, "1.0")),
        StepEnd("2", "skipped"),
    ),
    ("AWAITING_TOOL", "step.end", "REFLECTING"): lambda: (_pair_in_the_middle(), StepEnd("2", "skipped")),
    ("REFLECTING", "step.end", "REFLECTING"): lambda: (
        _started().awaiting().send(result(1, "1.0")),
        StepEnd(1, "done", JsonData(5)),
    ),
    ("EXECUTING", "tool.call", "AWAITING_TOOL"): lambda: (_executing(), call(1, "1.0")),
    ("AWAITING_TOOL", "tool.call", "AWAITING_TOOL"): lambda: (_started().awaiting(), call(1, "1.0", 2)),
    ("AWAITING_TOOL", "tool.result", "AWAITING_TOOL"): lambda: (
        _started().awaiting(tooled(1, "b"), tooled(2, "b")),
        result(2, "1.1"),
    ),
    ("AWAITING_TOOL", "tool.result", "REFLECTING"): lambda: (_started().awaiting(), result(1, "1.0")),
    ("IDLE", "tool.result", "IDLE"): lambda: (_call_paused(), result(1, "1.0")),
    ("AWAITING_TOOL", "tool.error", "AWAITING_TOOL"): lambda: (
        _started().awaiting(tooled(1, "b"), tooled(2, "b")),
        error(2, "1.1"),
    ),
    ("AWAITING_TOOL", "tool.error", "REFLECTING"): lambda: (_started().awaiting(), error(1, "1.0")),
    ("IDLE", "tool.error", "IDLE"): lambda: (_call_paused(), error(1, "1.0")),
    ("EXECUTING", "tool.error", "EXECUTING"): lambda: (_executing("2"), error(1, "")),
    ("EXECUTING", "tool.error", "REFLECTING"): lambda: (_executing(), error(1, "")),
    ("IDLE", "session.resume", "IDLE"): lambda: (approvals("hook", "hook"), decide("1.0")),
    ("REFLECTING", "check_failed", "REFLECTING"): lambda: (_started().reflecting(), FINDINGS),
    **{
        ("IDLE", "session.resume", phase): lambda phase=phase: (_at(phase).paused(), SessionResume())
        for phase in PHASES[1:]
    },
    **{
        (phase, "session.pause", "IDLE"): lambda phase=phase: (_at(phase), SessionPause("review:look", phase))
        for phase in PHASES[1:]
    },
    **{
        (phase, "budget.warn", phase): lambda phase=phase: (_at(phase), BudgetWarn("turns", 1, 1))
        for phase in PHASES[1:]
    },
    **{
        (phase, "session.complete", "DONE"): lambda phase=phase: (_at(phase), SessionComplete("closed:enough"))
        for phase in PHASES
    },
    **{
        (phase, fact.type, phase): lambda phase=phase, fact=fact: (_at(phase), fact)
        for phase in PHASES
        for fact in (SteerQueued("n", "stop"), FollowUpQueued("n", "and"), Unblocked("permission:1.0"))
    },
}
SAMPLES: Mapping[str, EventData] = {
    fact.type: fact
    for fact in (
        SessionStart("goal"),
        TurnStart(1),
        PlanDraft(1, STEPS),
        PlanCommit(1, STEPS),
        StepStart(1),
        StepEnd(1, "done"),
        call(1, "1.0"),
        result(1, "1.0"),
        error(1, "1.0"),
        BudgetWarn("turns", 1, 1),
        SessionPause("review:look", "IDLE"),
        SessionResume(),
        SessionComplete("goal_met"),
        FINDINGS,
    )
}


def test_the_table_obeys_the_laws_of_tables() -> None:
    assert SESSION_MACHINE.broken_laws() == ()


def test_the_table_is_the_contract() -> None:
    actual = {kind: {str(phase): ends for phase, ends in row.items()} for kind, row in SESSION_TABLE.items()}
    assert actual == _contract()


def test_idle_is_the_only_entry_and_done_the_only_exit() -> None:
    assert SESSION_MACHINE.initial == (SessionPhase.IDLE,)
    assert SESSION_MACHINE.ends == {SessionPhase.DONE}
    assert SESSION_MACHINE.edges[SessionPhase.DONE] == {}


def test_every_edge_of_the_table_has_a_witness() -> None:
    assert set(WITNESSES) == EDGES


@pytest.mark.parametrize("edge", sorted(WITNESSES), ids=" ".join)
def test_an_event_takes_each_edge(edge: Edge) -> None:
    phase, kind, target = edge
    story, fact = WITNESSES[edge]()
    assert (story.state.phase, fact.type) == (phase, kind)
    story.send(fact)
    assert story.state.phase == target


MISSING = sorted((phase, kind) for kind, row in _contract().items() for phase in PHASES if phase not in row)
ENDED = sorted(("DONE", kind) for kind in _contract() if kind not in OF_THE_RUN)


@pytest.mark.parametrize(("phase", "kind"), [*MISSING, *ENDED], ids=str)
def test_a_missing_cell_is_a_refusal_that_changes_nothing(phase: str, kind: str) -> None:
    story = _at(phase)
    before = fold_session(story.log)
    with pytest.raises(IllegalTransition) as caught:
        evolve_session(story.state, story.event(SAMPLES[kind]))
    refused = caught.value
    assert (refused.machine, refused.phase, refused.subject) == ("session", phase, RUN)
    assert refused.event.startswith(kind)
    assert all(word in str(refused) for word in (phase, kind, RUN))
    assert story.state == before


@pytest.mark.parametrize("kind", [kind for kind in _contract() if kind != "session.start"])
def test_before_the_start_only_messages_are_taken(kind: str) -> None:
    story = SessionStory()
    fact = {
        **SAMPLES,
        "steer_queued": steer(),
        "follow_up_queued": FollowUpQueued("n", "and"),
        "unblocked": Unblocked("review:x"),
    }[kind]
    if kind in OF_THE_RUN and kind != "check_failed":
        assert story.send(fact).state.phase == "IDLE"
        return
    with pytest.raises(IllegalTransition):
        evolve_session(story.state, story.event(fact))
    assert story.state == SessionState()


@pytest.mark.parametrize(
    "fact", [steer(), FollowUpQueued("n", "and"), Unblocked("review:x"), FINDINGS], ids=lambda fact: fact.type
)
def test_nothing_that_a_run_still_says_moves_a_session_that_is_over(fact: EventData) -> None:
    story = SessionStory().started().done()
    before = story.state
    assert story.send(fact).state == before


@pytest.mark.parametrize("phase", [*PHASES, "DONE"])
def test_other_events_of_the_run_leave_the_session_as_it_is(phase: str) -> None:
    story = _at(phase)
    before = story.state
    assert story.send(LeaseTaken(1, "w1")).state == before
