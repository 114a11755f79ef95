"""Logs that together hold every event type; the golden files are their bytes as the first release wrote them.

`python -m tests.golden.scenarios` writes the files anew: only right after a schema version was raised, never to make a test pass.
"""

from pathlib import Path

from checkrein.codec.wire import encode_event
from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import (
    Artifact,
    Blocked,
    BudgetExtended,
    BudgetReserved,
    BudgetSettled,
    BudgetWarn,
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
    HeldCall,
    LeaseTaken,
    PlanAccepted,
    PlanCommit,
    PlanDraft,
    Received,
    SessionComplete,
    SessionPause,
    SessionResume,
    SessionStart,
    SteerQueued,
    StepEnd,
    StepSpec,
    StepStart,
    TaskRecord,
    ToolAccepted,
    ToolCallGiven,
    ToolDone,
    ToolErrorGiven,
    ToolFailed,
    ToolGranted,
    ToolInDoubt,
    ToolReconciled,
    ToolResultGiven,
    ToolSpec,
    TranscriptCompacted,
    TurnFinished,
    TurnGranted,
    TurnStart,
    Unblocked,
    WorkDone,
    WorkStarted,
)
from checkrein.messages import AssistantMessage, Text, Thinking, ToolCall, ToolResult, Usage, UserMessage
from checkrein.values import JsonData, JsonObject

FOLDER = Path(__file__).parent
RUN = "0123456789abcdef"
DIGEST = "a" * 64
WRITE = ToolSpec(name="write_file", idempotent=True)
PAY = ToolSpec(name="pay", has_probe=True)
JOB = ToolSpec(name="export", cancellable=True)
ARGUMENTS = JsonObject({"path": "report.md", "content": "grüße\n\u0001", "deep": [{"a": 1, "b": [1.5, None, True]}]})
STEP = StepSpec(
    id="write",
    description="Write the report",
    tool_name="write_file",
    arguments=ARGUMENTS,
    expected_outcome="a file",
    batch=1,
)
PAY_STEP = StepSpec(id="pay", description="Pay", tool_name="pay", arguments=JsonObject({"sum": 2}))
JOB_STEP = StepSpec(id=3, description="Export", tool_name="export")
STEPS = (STEP, PAY_STEP, JOB_STEP)
ASKED = HeldCall(
    step_id="pay",
    call_id="1.1",
    name="pay",
    arguments=JsonObject({"sum": 2}),
    position=1,
    asks="policy",
    reason="permission",
)
TASK = TaskRecord(
    name="golden",
    version=3,
    goal="Write a report",
    code_hash="c" * 64,
    checks=(
        CheckSpec(id="file:report.md", kind="file", subject="report.md", title="report.md is there"),
        CheckSpec(id="command", kind="command"),
    ),
    tools=(WRITE, PAY, JOB),
    data=JsonObject({"inputs": {}, "workspace": "out"}),
)
EVIDENCE = tuple(
    Evidence(
        check=check.id,
        verifier=check.kind,
        verifier_version="1",
        run_id=RUN,
        subject=check.subject,
        sha256=DIGEST if check.subject else "",
        measurement="as it should be",
        at=1_700_000_000.5,
        position=position,
    )
    for check, position in zip(TASK.checks, (0, 0), strict=True)
)
MESSAGES = (
    UserMessage(id="u1", content="Write it"),
    AssistantMessage(
        id="a1",
        content=(
            Thinking(text="hm", signature="s"),
            Text(text="I will"),
            ToolCall(id="m1", name="pay", arguments={"sum": 2}),
        ),
    ),
    ToolResult(id="r1", tool_call_id="m1", tool_name="pay", content="paid"),
    ToolResult(id="r2", tool_call_id="m2", tool_name="pay", content=(Text(text="no"),), is_error=True),
)


def _log(data: tuple[tuple[EventData, int | None], ...]) -> tuple[Event, ...]:
    return tuple(
        Event(
            run_id=RUN,
            event_id=f"e{offset:04}",
            expected_version=offset,
            at=1_700_000_000.0 + offset,
            actor="user:alice" if epoch is None else "worker:one",
            data=item,
            epoch=epoch,
            elapsed=0.25 * offset if epoch is not None else 0.0,
        )
        for offset, (item, epoch) in enumerate(data)
    )


def _evidence_at(position: int) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            **{name: getattr(item, name) for name in item.__struct_fields__ if name != "position"}, position=position
        )
        for item in EVIDENCE
    )


_Facts = tuple[tuple[EventData, int | None], ...]


def _written() -> _Facts:
    """Return what happened up to the first step's end."""
    return (
        (Received(task=TASK, budget=Budget(cost=2.5, tokens=None), request_id="order-1", parent="parent"), None),
        (SessionStart(goal=TASK.goal), None),
        (LeaseTaken(lease=1, owner="one", folder=RUN), 1),
        (SteerQueued(note="n1", text="In euros"), None),
        (FollowUpQueued(note="n2", text="And a summary"), None),
        (CodeAccepted(code_hash="d" * 64, version=4), None),
        (TurnStart(turn=1, notes=("n1",)), 1),
        (TurnGranted(turn=1), 1),
        (PlanDraft(turn=1, steps=STEPS, final=False), 1),
        (
            TurnFinished(
                turn=1, messages=MESSAGES, usage=Usage(input_tokens=9, output_tokens=3, cached_tokens=1, cost=0.5)
            ),
            1,
        ),
        (PlanCommit(turn=1, steps=STEPS, added=("write",)), 1),
        (PlanAccepted(steps=3), 1),
        (WorkStarted(), 1),
        (TranscriptCompacted(through_turn=1, summary="short", usage=Usage(input_tokens=1)), 1),
        (StepStart(step_id="write"), 1),
        (ToolCallGiven(step_id="write", call_id="1.0", name="write_file", arguments=ARGUMENTS), 1),
        (ToolGranted(call_id="1.0", tool=WRITE, arguments=ARGUMENTS, model_call_id="m1"), 1),
        (ToolCallGiven(step_id="write", call_id="1.0", name="write_file", arguments=ARGUMENTS, attempt=2), 1),
        (ToolGranted(call_id="1.0", tool=WRITE, arguments=ARGUMENTS, attempt=2, previous="transient: no"), 1),
        (ToolResultGiven(step_id="write", call_id="1.0", result=JsonData({"bytes": 7})), 1),
        (ToolDone(call_id="1.0", result=JsonData({"bytes": 7}), artifacts=(Artifact("report.md", DIGEST),)), 1),
        (StepEnd(step_id="write", status="done", result=JsonData({"bytes": 7})), 1),
    )


def _paid() -> _Facts:
    """Return what happened then: a limit, a takeover, an approval, a doubt, a job, and a check that failed once."""
    return (
        (BudgetReserved(child="fedcba9876543210", amounts=Amounts(turns=2)), 1),
        (BudgetSettled(child="fedcba9876543210", used=Amounts(turns=1, cost=0.25)), 1),
        (BudgetWarn(limit="tool_calls", used=2, allowed=2), 1),
        (SessionPause(reason="budget_exceeded:tool_calls", state="REFLECTING", subject="tool_calls"), 1),
        (Blocked(cause=Cause(id="budget:tool_calls", kind="budget", message="extend it", detail="tool_calls")), 1),
        (BudgetExtended(extra=Amounts(tool_calls=3)), None),
        (Unblocked(cause_id="budget:tool_calls", answer=JsonData("go on")), None),
        (SessionResume(topic="budget", subject="tool_calls", extra=Amounts(tool_calls=3)), None),
        (LeaseTaken(lease=2, owner="two", folder=f"{RUN}.2", takeover=True), 2),
        (StepStart(step_id="pay"), 2),
        (
            SessionPause(
                reason="review:permission", state="EXECUTING", topic="before_tool_call", subject="1.1", calls=(ASKED,)
            ),
            2,
        ),
        (Blocked(cause=Cause(id="permission:1.1", kind="permission", message="may it?", call_id="1.1")), 2),
        (Unblocked(cause_id="permission:1.1", answer=JsonData("allow")), None),
        (SessionResume(topic="before_tool_call", subject="1.1", decision=JsonData("allow")), None),
        (ToolCallGiven(step_id="pay", call_id="1.1", name="pay", arguments=JsonObject({"sum": 2})), 2),
        (ToolGranted(call_id="1.1", tool=PAY, arguments=JsonObject({"sum": 2})), 2),
        (ToolInDoubt(call_id="1.1", reason="its worker is gone", probed=True), 2),
        (ToolErrorGiven(step_id="pay", call_id="1.1", kind="internal", message="not paid"), None),
        (ToolReconciled(call_id="1.1", outcome="failed", message="the bank says no"), None),
        (StepEnd(step_id="pay", status="failed", error="internal: not paid"), 2),
        (StepStart(step_id=3), 2),
        (ToolCallGiven(step_id=3, call_id="1.2", name="export", arguments=JsonObject({})), 2),
        (ToolGranted(call_id="1.2", tool=JOB, arguments=JsonObject({})), 2),
        (ToolAccepted(call_id="1.2", handle="job-7"), 2),
        (ToolErrorGiven(step_id=3, call_id="1.2", kind="timeout", message="too slow"), 2),
        (ToolFailed(call_id="1.2", kind="timeout", message="too slow", attempts=1), 2),
        (StepEnd(step_id=3, status="failed", error="timeout: too slow"), 2),
        (WorkDone(), 2),
        (CheckFailed(findings=(Finding("file:report.md", "report.md", "empty", "it is empty"),), evidence=EVIDENCE), 2),
        (WorkDone(), 2),
    )


def repaired() -> tuple[Event, ...]:
    """A run that is blocked, extended, in doubt, repaired, and succeeds."""
    before = _written() + _paid()
    end: _Facts = (
        (SessionComplete(reason="goal_met", unread=("n2",)), 2),
        (CheckPassed(evidence=_evidence_at(len(before)), reread=(Artifact("report.md", DIGEST),)), 2),
    )
    return _log(before + end)


def cancelled() -> tuple[Event, ...]:
    """A run that is cancelled before any work."""
    return _log((
        (Received(task=TASK, budget=Budget()), None),
        (SessionStart(goal=TASK.goal), None),
        (SessionComplete(reason="cancelled"), None),
        (CancelRequested(reason="not needed any more"), None),
    ))  # fmt: skip


def failed() -> tuple[Event, ...]:
    """A run that ends because its planner had no step."""
    return _log((
        (Received(task=TASK, budget=Budget()), None),
        (SessionStart(goal=TASK.goal), None),
        (LeaseTaken(lease=1, owner="one", folder=RUN), 1),
        (TurnStart(turn=1), 1),
        (TurnGranted(turn=1), 1),
        (TurnFinished(turn=1, error="no idea"), 1),
        (SessionPause(reason="planner_failed", state="PLANNING", subject="turn:1", message="no idea"), 1),
        (Blocked(cause=Cause(id="planner:1", kind="answer", message="it failed", detail="planner_failed")), 1),
        (Unblocked(cause_id="planner:1", answer=JsonData("again")), None),
        (SessionResume(subject="turn:1", decision=JsonData("again")), None),
        (TurnStart(turn=2), 1),
        (TurnGranted(turn=2), 1),
        (PlanDraft(turn=2, steps=(STEP,)), 1),
        (TurnFinished(turn=2), 1),
        (PlanDraft(turn=2, steps=(), dropped="not today"), 1),
        (TurnStart(turn=3), 1),
        (TurnGranted(turn=3), 1),
        (PlanDraft(turn=3, steps=()), 1),
        (TurnFinished(turn=3), 1),
        (SessionComplete(reason="gave_up"), 1),
        (Failed(code="gave_up", message="the planner had no further step"), 1),
    ))  # fmt: skip


SCENARIOS = {"repaired": repaired, "cancelled": cancelled, "failed": failed}


def main() -> None:
    """Write the golden files."""
    for name, scenario in SCENARIOS.items():
        (FOLDER / f"{name}.v1.jsonl").write_bytes(b"".join(encode_event(event) + b"\n" for event in scenario()))


if __name__ == "__main__":
    main()
