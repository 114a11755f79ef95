"""The lifecycle's table to the letter, against a copy that was written independently of it."""

from collections.abc import Iterator

import pytest

from checkrein.errors import Rejected
from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import (
    RUN_EVENT_TYPES,
    SESSION_EVENT_TYPES,
    Blocked,
    BudgetExtended,
    BudgetReserved,
    BudgetSettled,
    BudgetWarn,
    CancelRequested,
    CodeAccepted,
    EventData,
    Failed,
    FollowUpQueued,
    LeaseTaken,
    PlanAccepted,
    PlanCommit,
    PlanDraft,
    SessionComplete,
    SessionPause,
    SessionResume,
    SessionStart,
    SteerQueued,
    StepEnd,
    StepStart,
    ToolAccepted,
    ToolCallGiven,
    ToolErrorGiven,
    ToolFailed,
    ToolInDoubt,
    ToolReconciled,
    ToolResultGiven,
    TranscriptCompacted,
    TurnFinished,
    TurnGranted,
    TurnStart,
    Unblocked,
    WorkDone,
    WorkStarted,
)
from checkrein.kernel.run import RUN_MACHINE, TABLE, transition
from checkrein.kernel.state import Phase
from checkrein.kernel.table import legal_in
from checkrein.values import JsonObject
from tests.unit.kernel.story import FOUND, Story, cause, done, grant, in_phase, proof

PHASES = ("RECEIVED", "PLANNED", "RUNNING", "VERIFYING", "BLOCKED")
ANYWHERE = "= | = | = | = | ="
# `=` stays, `–` is illegal, `!` is refused because the right was withdrawn; several words are several possible ends of the edge.
CONTRACT = f"""
lease_taken          | {ANYWHERE}
budget_extended      | {ANYWHERE}
steer_queued         | {ANYWHERE}
follow_up_queued     | {ANYWHERE}
code_accepted        | {ANYWHERE}
budget_reserved      | = | = | = | = | !
budget_settled       | {ANYWHERE}
plan_accepted        | PLANNED | – | = | – | –
work_started         | – | RUNNING | – | – | –
turn_granted         | = | = | = | – | !
turn_finished        | = | = | = | – | =
transcript_compacted | = | = | = | – | =
tool_granted         | – | – | = | – | !
tool_accepted        | – | – | = | – | =
tool_done            | – | – | = VERIFYING FAILED | – | = FAILED
tool_failed          | – | – | = FAILED | – | = FAILED
tool_in_doubt        | – | – | = | – | =
tool_reconciled      | – | – | = VERIFYING FAILED | – | = FAILED
work_done            | – | – | VERIFYING | – | –
check_passed         | – | – | – | SUCCEEDED | –
check_failed         | – | – | – | RUNNING FAILED | –
blocked              | BLOCKED | BLOCKED | BLOCKED | BLOCKED | =
unblocked            | – | – | – | – | = RECEIVED PLANNED RUNNING VERIFYING
cancel_requested     | FAILED | FAILED | FAILED = | FAILED | FAILED =
failed               | FAILED | FAILED | FAILED | FAILED | FAILED
""" + "\n".join(f"{kind} | {ANYWHERE}" for kind in SESSION_EVENT_TYPES)

CELLS = {
    (kind.strip(), phase): cell.split()
    for kind, *cells in (line.split("|") for line in CONTRACT.strip().splitlines())
    for phase, cell in zip(PHASES, cells, strict=True)
}

PAYLOADS: tuple[EventData, ...] = (
    BudgetExtended(Amounts(turns=1)),
    SteerQueued("n1", "look at 2013"),
    FollowUpQueued("n2", "and translate it"),
    CodeAccepted("code2"),
    BudgetReserved("child2", Amounts(tool_calls=1)),
    BudgetSettled("child", Amounts(tool_calls=1)),
    PlanAccepted(1),
    PlanAccepted(1, "replan"),
    WorkStarted(),
    TurnGranted(1),
    TurnGranted(1, 2, previous="in_doubt"),
    TurnFinished(1),
    TranscriptCompacted(1, "so far so good"),
    grant("2.0"),
    ToolAccepted("1.1", "job 7"),
    done("1.1"),
    done("1.1", completes=True),
    ToolFailed("1.1", "internal", "no"),
    ToolInDoubt("1.1", "its worker is gone"),
    ToolReconciled("1.1", "unknown"),
    ToolReconciled("1.1", "done", completes=True),
    WorkDone(),
    FOUND,
    Blocked(cause("another")),
    Unblocked("question"),
    CancelRequested("enough"),
    Failed("error", "it broke"),
    SessionStart("report"),
    TurnStart(1),
    PlanDraft(1, ()),
    PlanCommit(1, ()),
    StepStart("s1"),
    StepEnd("s1", "done"),
    ToolCallGiven("s1", "1.0", "send_mail", JsonObject()),
    ToolResultGiven("s1", "1.0"),
    ToolErrorGiven("s1", "1.0", "internal", "no"),
    BudgetWarn("turns", 1.0, 1.0),
    SessionPause("review:x", "PLANNING"),
    SessionResume(),
    SessionComplete("goal_met"),
)


def _opened(
    story: Story, *, block: bool = False, cancel: bool = False, causes: int = 1, has_child: bool = True
) -> Story:
    """Let work be open: a turn, or a call beside a settled one; and a child run."""
    story.worker(*((BudgetReserved("child", Amounts(tool_calls=1)),) if has_child else ()))
    if story.state.phase is Phase.RUNNING:
        story.worker(grant("1.0"), done("1.0"), grant("1.1"))
    elif story.state.phase is not Phase.VERIFYING:
        story.worker(TurnGranted(1))
    if block:
        story.worker(*(Blocked(cause(name)) for name in ("question", "other")[:causes]))
    if cancel:
        story.user(CancelRequested("enough"))
    return story


def stories(phase: Phase) -> Iterator[Story]:
    """Yield runs that stand in `phase` for different reasons."""
    yield in_phase(phase)
    origins = (Phase.RECEIVED, Phase.PLANNED, Phase.RUNNING, Phase.VERIFYING)
    if phase is Phase.BLOCKED:
        yield from (_opened(in_phase(origin), block=True) for origin in origins)
        yield _opened(in_phase(Phase.RUNNING), block=True, causes=2)
        yield _opened(in_phase(Phase.RUNNING), block=True, cancel=True)
        asked = in_phase(Phase.RUNNING)
        asked.worker(TurnGranted(1), Blocked(cause()))
        yield asked
        return
    yield _opened(in_phase(phase))
    if phase is Phase.RUNNING:
        yield _opened(in_phase(phase), has_child=False)
        yield _opened(in_phase(phase), cancel=True)
        asked = in_phase(phase)
        asked.worker(TurnGranted(1))
        yield asked
    if phase is Phase.VERIFYING:
        last = Story(Budget(repairs=0))
        last.lease()
        last.worker(PlanAccepted(1), WorkStarted(), WorkDone())
        yield last


def answers(kind: str, phase: Phase) -> set[str]:
    """Return every next phase, and every refusal in brackets, that an event of that type meets in that phase."""
    found: set[str] = set()
    for story in stories(phase):
        for data in (*PAYLOADS, proof(story.state), LeaseTaken(story.state.epoch + 1, "w2")):
            if data.type != kind:
                continue
            epoch = story.state.epoch + (data.type == "lease_taken")
            try:
                found.add(str(transition(story.state, story.event(data, epoch=epoch)).phase))
            except Rejected as refusal:
                found.add(f"({refusal.code})")
    return found


def test_the_copy_and_the_table_know_the_same_events() -> None:
    known = {kind for kind, _ in CELLS}
    assert known == set(TABLE) == set(RUN_MACHINE.handlers)
    assert known | {"received"} == {*RUN_EVENT_TYPES, *SESSION_EVENT_TYPES}
    assert {data.type for data in PAYLOADS} | {"lease_taken", "check_passed"} == known


@pytest.mark.parametrize(("kind", "phase"), CELLS)
def test_every_cell_behaves_as_the_contract_says(kind: str, phase: str) -> None:
    cell = CELLS[kind, phase]
    found = answers(kind, Phase(phase))
    if cell == ["–"]:
        assert found == {"(illegal_in_phase)"}
    elif cell == ["!"]:
        assert found == {"(rights_revoked)"}
    else:
        reached = {phase if word == "=" else word for word in cell}
        assert {answer for answer in found if not answer.startswith("(")} == reached


@pytest.mark.parametrize(("kind", "phase"), CELLS)
def test_the_table_draws_no_edge_that_the_contract_lacks(kind: str, phase: str) -> None:
    drawn = {str(target) for target in TABLE[kind].get(Phase(phase), ())}
    cell = CELLS[kind, phase]
    if cell == ["–"]:
        assert drawn == set()
    elif kind in {"tool_accepted", "tool_failed", "tool_in_doubt"}:
        assert drawn == {phase, "FAILED", *(["VERIFYING"] if phase == "RUNNING" else [])}
    elif cell == ["!"]:
        assert drawn == ({phase} if kind == "budget_reserved" else set())
    else:
        assert drawn == {phase if word == "=" else word for word in cell}


def test_the_table_obeys_the_laws_of_tables() -> None:
    assert RUN_MACHINE.broken_laws() == ()
    assert set(RUN_MACHINE.edges) == set(Phase)
    assert {phase for phase in Phase if phase.is_terminal} == RUN_MACHINE.ends
    assert all(RUN_MACHINE.edges[phase] == {} for phase in RUN_MACHINE.ends)


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_nothing_is_accepted_after_the_end(phase: Phase) -> None:
    story = in_phase(phase)
    for data in (*PAYLOADS, proof(story.state)):
        assert story.refused(data) == "terminal"
    assert legal_in(phase) == ()


def test_what_is_legal_in_a_phase_is_listed_sorted() -> None:
    legal = legal_in(Phase.PLANNED)
    assert list(legal) == sorted(legal)
    assert set(legal) == {kind for (kind, phase), cell in CELLS.items() if phase == "PLANNED" and cell != ["–"]}
