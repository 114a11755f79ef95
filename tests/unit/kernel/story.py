"""Logs for the kernel's tests, written event by event through the real `transition`.

A `Story` keeps the log beside the state, so that every test can also fold it. Nothing here decides what is legal.
"""

from collections.abc import Sequence

import pytest

from checkrein.errors import Rejected
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import (
    Artifact,
    Blocked,
    Cause,
    CauseKind,
    CheckFailed,
    CheckPassed,
    CheckSpec,
    Event,
    EventData,
    Evidence,
    Failed,
    Finding,
    LeaseTaken,
    PlanAccepted,
    Received,
    TaskRecord,
    ToolDone,
    ToolGranted,
    ToolSpec,
    WorkDone,
    WorkStarted,
)
from checkrein.kernel.run import fold_run, transition
from checkrein.kernel.state import Phase, RunState
from checkrein.values import JsonObject

PATH = "report.md"
A, B = "a" * 64, "b" * 64
CHECKS = (CheckSpec("headings", "markdown", PATH), CheckSpec("total", "sql"))
PLAIN = ToolSpec("send_mail")
PROBED = ToolSpec("book_room", has_probe=True)
AGAIN = ToolSpec("write_file", idempotent=True)
FINDING = Finding("total", PATH, "differs", "2328.60 expected")


class Story:
    """One run's log and its state, growing event by event."""

    def __init__(self, budget: Budget | None = None, checks: Sequence[CheckSpec] = CHECKS) -> None:
        task = TaskRecord("report", 1, "write the report", "code", tuple(checks), (PLAIN, PROBED, AGAIN))
        first = Event("run", "e0", 0, 1.0, "user:ann", Received(task, budget or Budget()), elapsed=0.0)
        self.log = [first]
        self.state = transition(None, first)

    def event(self, data: EventData, *, epoch: int | None, version: int | None = None, elapsed: float = 0.0) -> Event:
        """Build an event at the state's version, or another one, without sending it."""
        return Event(
            run_id=self.state.run_id,
            event_id=f"e{len(self.log)}",
            expected_version=self.state.version if version is None else version,
            at=float(len(self.log)),
            actor="user:ann" if epoch is None else "worker:w1",
            data=data,
            epoch=epoch,
            elapsed=elapsed,
        )

    def send(self, event: Event) -> RunState:
        """Let the lifecycle accept an event."""
        self.state = transition(self.state, event)
        self.log.append(event)
        return self.state

    def worker(self, *data: EventData, elapsed: float = 0.0) -> RunState:
        """Append events of the lease's holder."""
        for item in data:
            self.send(self.event(item, epoch=self.state.epoch, elapsed=elapsed))
        return self.state

    def user(self, *data: EventData) -> RunState:
        """Append events that need no lease."""
        for item in data:
            self.send(self.event(item, epoch=None))
        return self.state

    def lease(self, folder: str = "") -> RunState:
        """Append the next lease."""
        epoch = self.state.epoch + 1
        return self.send(self.event(LeaseTaken(epoch, "w", folder), epoch=epoch))

    def refusal(self, event: Event) -> Rejected:
        """Return why the lifecycle refuses an event, after making sure that the state was not touched."""
        before = (self.state, hash(self.state), repr(self.state))
        with pytest.raises(Rejected) as caught:
            transition(self.state, event)
        assert (self.state, hash(self.state), repr(self.state)) == before
        return caught.value

    def refused(self, data: EventData, *, user: bool = False) -> str:
        """Return the code with which an event of the holder (or of a user) is refused."""
        return self.refusal(self.event(data, epoch=None if user else self.state.epoch)).code

    def check_fold(self) -> None:
        """Hold the fold of the log against the live state."""
        assert fold_run(self.log) == self.state


def grant(call_id: str, tool: ToolSpec = PLAIN, attempt: int = 1) -> ToolGranted:
    return ToolGranted(call_id, tool, JsonObject(), attempt, "" if attempt == 1 else "in_doubt")


def done(call_id: str, digest: str = A, *, completes: bool = False) -> ToolDone:
    return ToolDone(call_id, artifacts=(Artifact(PATH, digest),), completes=completes)


def cause(name: str = "question", kind: CauseKind = "answer") -> Cause:
    return Cause(name, kind, "somebody must say")


def evidence(state: RunState, check: CheckSpec, digest: str = A) -> Evidence:
    return Evidence(
        check=check.id,
        verifier=check.kind,
        verifier_version="1",
        run_id=state.run_id,
        subject=check.subject,
        sha256=digest if check.subject else "",
        measurement="as it should be",
        at=5.0,
        position=state.version,
    )


def proof(state: RunState, digest: str = A) -> CheckPassed:
    """Return what a verifier that measured everything now would say."""
    items = tuple(evidence(state, check, digest) for check in state.task.checks)
    return CheckPassed(items, (Artifact(PATH, digest),))


def running(budget: Budget | None = None, *data: EventData) -> Story:
    """Return a story in RUNNING, under its first lease."""
    story = Story(budget)
    story.lease()
    story.worker(PlanAccepted(1), WorkStarted(), *data)
    return story


def in_phase(phase: Phase) -> Story:
    """Return a story in that phase; BLOCKED came from RUNNING."""
    story = Story()
    story.lease()
    ahead: dict[Phase, tuple[EventData, ...]] = {
        Phase.RECEIVED: (),
        Phase.PLANNED: (PlanAccepted(1),),
        Phase.RUNNING: (PlanAccepted(1), WorkStarted()),
        Phase.VERIFYING: (PlanAccepted(1), WorkStarted(), grant("1.0"), done("1.0"), WorkDone()),
        Phase.BLOCKED: (PlanAccepted(1), WorkStarted(), Blocked(cause())),
        Phase.FAILED: (Failed("gave_up", "no plan helps"),),
    }
    if phase is Phase.SUCCEEDED:
        story.worker(*ahead[Phase.VERIFYING])
        story.worker(proof(story.state))
    else:
        story.worker(*ahead[phase])
    assert story.state.phase is phase
    return story


FOUND = CheckFailed((FINDING,))
