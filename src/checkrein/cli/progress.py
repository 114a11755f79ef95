"""Progress of one run, as lines: for people whose output is no terminal, and for programs.

A reporter is told every event once, in order, with the view that includes it. `live.py` holds the moving picture.
"""

from typing import Protocol

from checkrein.cli.figures import CheckView, checks_of
from checkrein.cli.screen import Screen, shown
from checkrein.cli.shapes import event_record
from checkrein.cli.view import RunView, step_name
from checkrein.cli.words import words
from checkrein.kernel.events import (
    Blocked,
    BudgetExtended,
    CancelRequested,
    CheckFailed,
    CheckPassed,
    Event,
    FollowUpQueued,
    LeaseTaken,
    PlanAccepted,
    PlanDraft,
    SteerQueued,
    StepEnd,
    ToolAccepted,
    ToolGranted,
    ToolInDoubt,
    ToolReconciled,
    TurnFinished,
    Unblocked,
    WorkDone,
)
from checkrein.kernel.session_state import EndedStep

__all__ = ["MARKS", "JsonReporter", "PlainReporter", "Reporter", "check_line", "print_check"]

MARKS: dict[str, tuple[str, str]] = {
    "done": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("–", "yellow"),
    "started": ("▸", "cyan"),
    "open": (" ", ""),
}
"""Mark and style by the status of a step or check."""

_NOTEWORTHY = (
    BudgetExtended, CancelRequested, FollowUpQueued, PlanAccepted, SteerQueued, ToolAccepted, ToolInDoubt, ToolReconciled,
    Unblocked, WorkDone,
)  # fmt: skip


class Reporter(Protocol):
    """Shows how a run goes on."""

    def begin(self, view: RunView) -> None:
        """Show where the run stands before anything happens."""
        ...

    def event(self, event: Event, view: RunView) -> None:
        """Show one more event, which `view` includes."""
        ...

    def progress(self, call_id: str, text: str) -> None:
        """Show what a running tool says; called from any thread."""
        ...

    def end(self) -> None:
        """Show the last state and stop; safe to call again."""
        ...


class JsonReporter:
    """Prints each event as one JSON line."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def begin(self, view: RunView) -> None:
        """Print nothing: what happened before is in the log."""

    def event(self, event: Event, view: RunView) -> None:
        """Print the event."""
        self._screen.record(event_record(event, view.state))

    def progress(self, call_id: str, text: str) -> None:
        """Print nothing: progress is no event."""

    def end(self) -> None:
        """Print nothing."""


class PlainReporter:
    """Prints a line for each step that ended and for whatever a person should notice."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def begin(self, view: RunView) -> None:
        """Print what the run is about, and what is done already."""
        state = view.state
        if state is None:
            return
        self._screen.line((shown(state.task.name), "bold"), f" · run {view.run_id}")
        self._screen.line(shown(state.task.goal))
        done = sum(1 for _, status in view.steps() if status == "done")
        if view.session.steps:
            self._screen.line(f"goes on at {state.phase}: {done} of {len(view.steps())} steps are done")

    def event(self, event: Event, view: RunView) -> None:
        """Print what is worth a line."""
        data = event.data
        if isinstance(data, StepEnd):
            self._step(data, view)
        elif isinstance(data, CheckPassed | CheckFailed):
            for check in checks_of(view.state) if view.state is not None else ():
                print_check(self._screen, check)
        elif isinstance(data, Blocked):
            # What it waits for, and how that is answered, follows when the run rests.
            self._screen.line(f"blocked by {shown(data.cause.id)}")
        elif self._is_noteworthy(event):
            self._screen.line(shown(words(data)))

    @staticmethod
    def _is_noteworthy(event: Event) -> bool:
        data = event.data
        return (
            isinstance(data, _NOTEWORTHY)
            or (isinstance(data, ToolGranted) and data.attempt > 1)
            or (isinstance(data, LeaseTaken) and data.takeover)
            or (isinstance(data, TurnFinished) and bool(data.error))
            or (isinstance(data, PlanDraft) and bool(data.dropped))
        )

    def _step(self, data: StepEnd, view: RunView) -> None:
        steps = view.steps()
        # The steps of a batch have their answers before any of them ends, so only those that ended count.
        number = sum(1 for item in view.session.history if isinstance(item, EndedStep))
        name = shown(step_name(steps[number - 1][0]))
        error = f": {shown(data.error)}" if data.error else ""
        self._screen.line(MARKS[data.status], f" {number}/{len(steps)} {name}{error}")

    def progress(self, call_id: str, text: str) -> None:
        """Print what the tool says."""
        self._screen.line((f"{shown(call_id)}: {shown(text)}", "dim"), indent=2)

    def end(self) -> None:
        """Print nothing: the end line follows."""


def check_line(check: CheckView) -> tuple[tuple[str, str], str, tuple[str, str]]:
    """Return the parts of a check's one line: mark, title, and what was found."""
    text = shown(check.text, limit=600)
    return _mark(check), f" {shown(check.title)}", (f" — {text}" if text else "", "dim" if check.passed else "red")


def _mark(check: CheckView) -> tuple[str, str]:
    return ("·", "dim") if check.passed is None else MARKS["done" if check.passed else "failed"]


def print_check(screen: Screen, check: CheckView, *, indent: int = 0) -> None:
    """Print a check, and why it is not met."""
    screen.line(_mark(check), f" {shown(check.title)}", indent=indent)
    if check.passed is False:
        screen.line((shown(check.text), "red"), indent=indent + 2, hang=0)
