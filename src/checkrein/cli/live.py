"""The moving picture of a run on a terminal: phase, plan with ticks, current call, checks, budget.

It is redrawn from the view a few times per second by rich's own thread, which only reads immutable values. Long plans are shown around the current step, so the picture
fits any terminal; its last frame stays on the screen.
"""

from collections.abc import Iterator
from typing import TypeAlias

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from checkrein.cli.figures import budget_rows, checks_of, spent
from checkrein.cli.progress import MARKS, check_line
from checkrein.cli.screen import Screen, shown
from checkrein.cli.view import RunView, step_name
from checkrein.kernel.events import CancelRequested, Event, StepSpec, StepStart, ToolGranted
from checkrein.kernel.session_state import StepStatus
from checkrein.kernel.state import Phase, RunState
from checkrein.ports.clock import Clock

__all__ = ["LiveReporter", "Picture"]

_PHASE_STYLES = {
    Phase.SUCCEEDED: "bold green",
    Phase.FAILED: "bold red",
    Phase.BLOCKED: "bold yellow",
    Phase.VERIFYING: "bold blue",
}
Steps: TypeAlias = tuple[tuple[StepSpec, StepStatus], ...]

_SHORT_MINUTE = 60
_WATCHED = {"turns", "wall_seconds", "tokens", "cost"}
_FEWEST_STEPS = 3


class Picture:
    """One frame, made anew whenever rich asks.

    Args:
        view: what is drawn.
        clock: for the time a call has taken so far.
    """

    def __init__(self, view: RunView, clock: Clock) -> None:
        self.hint = "Ctrl-C cancels the run"
        self.said: dict[str, str] = {}
        self.is_over = False
        self._view = view
        self._clock = clock
        self._spinner = Spinner("dots", style="cyan")
        self._begun = clock.monotonic()
        self._since = self._begun

    def take(self, event: Event) -> None:
        """Remember when the current step or call began, and that the run is being cancelled."""
        if isinstance(event.data, CancelRequested):
            self.hint = "cancel requested: waiting for open calls"
        if isinstance(event.data, StepStart | ToolGranted):
            self._since = self._clock.monotonic()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw."""
        state = self._view.state
        if state is None:
            return
        yield self._head(state)
        yield Text(shown(state.task.goal, limit=300), style="dim", no_wrap=True, overflow="ellipsis")
        checks = list(self._checks(state))
        steps = self._view.steps()
        if steps:
            yield Text("")
            yield self._steps(steps, max(_FEWEST_STEPS, (options.height or console.size.height) - len(checks) - 8))
        if checks:
            yield Text("")
            yield Group(*checks)
        yield Text("")
        yield self._budget(state)
        if not self.is_over:
            yield Text(self.hint, style="dim", no_wrap=True, overflow="ellipsis")

    def _head(self, state: RunState) -> RenderableType:
        grid = Table.grid(expand=True, padding=(0, 1))
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        grid.add_column(justify="right", no_wrap=True)
        phase = Text(str(state.phase), style=_PHASE_STYLES.get(state.phase, "bold"))
        seconds = self._clock.monotonic() - self._begun
        name = Text.assemble((shown(state.task.name, limit=64), "bold"), (f"  run {state.run_id}", "dim"))
        grid.add_row(name, phase.append(f"  {_duration(seconds)}", style="dim"))
        return grid

    def _steps(self, steps: Steps, most: int) -> RenderableType:
        first, last = _window([status for _, status in steps], most)
        grid = Table.grid(expand=True, padding=(0, 1))
        grid.add_column(width=1)
        grid.add_column(justify="right", no_wrap=True)
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        if first:
            grid.add_row("", "", Text(f"… {first} earlier steps", style="dim"))
        for number, (step, status) in enumerate(steps[first:last], start=first + 1):
            grid.add_row(*self._step(number, step, status))
        if last < len(steps):
            grid.add_row("", "", Text(f"… {len(steps) - last} later steps", style="dim"))
        return grid

    def _step(
        self, number: int, step: StepSpec, status: StepStatus
    ) -> tuple[RenderableType, RenderableType, RenderableType]:
        mark, style = MARKS[status]
        name = Text(shown(step_name(step), limit=300), style="dim" if status == "open" else "")
        if status != "started" or self.is_over:
            return Text(mark, style=style), Text(str(number), style="dim"), name
        said = next((text for work in self._view.session.work if (text := self.said.get(work.call_id, ""))), "")
        name.append(f"  {_duration(self._clock.monotonic() - self._since)}", style="cyan")
        name.append(f"  {shown(said, limit=200)}" if said else "", style="dim")
        return self._spinner, Text(str(number), style="dim"), name

    def _checks(self, state: RunState) -> Iterator[RenderableType]:
        if state.phase is not Phase.VERIFYING and not state.evidence and not state.findings:
            return
        for check in checks_of(state):
            yield Text.assemble(*check_line(check), no_wrap=True, overflow="ellipsis")

    def _budget(self, state: RunState) -> RenderableType:
        limit = state.budget.limits.tool_calls
        row: list[RenderableType] = []
        if limit:
            row.append(ProgressBar(total=limit, completed=state.budget.taken("tool_calls"), width=16))
        others = (item for item in budget_rows(state) if item.limit in _WATCHED)
        figures = [spent(state), *(f"{item.label} {item.figure}" for item in others)]
        row.append(Text("  ·  ".join(figures), style="dim", no_wrap=True, overflow="ellipsis"))
        grid = Table.grid(padding=(0, 1))
        for _ in row:
            grid.add_column(no_wrap=True, overflow="ellipsis")
        grid.add_row(*row)
        return grid


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < _SHORT_MINUTE else f"{int(seconds) // 60} min {int(seconds) % 60} s"


def _window(statuses: list[str], most: int) -> tuple[int, int]:
    """Return first and last of at most `most` steps around the one that is worked on."""
    if len(statuses) <= most:
        return 0, len(statuses)
    current = next((index for index, status in enumerate(statuses) if status in {"open", "started"}), len(statuses) - 1)
    first = max(0, min(current - most // 2, len(statuses) - most))
    return first, first + most


class LiveReporter:
    """Shows the picture while a run goes on."""

    def __init__(self, screen: Screen, clock: Clock) -> None:
        self._screen = screen
        self._clock = clock
        self._live: Live | None = None
        self._picture: Picture | None = None

    def begin(self, view: RunView) -> None:
        """Start drawing."""
        self._picture = Picture(view, self._clock)
        self._live = Live(self._picture, console=self._screen.console, refresh_per_second=8, transient=False)
        self._live.start()

    def event(self, event: Event, view: RunView) -> None:
        """Let the next frame show it."""
        if self._picture is not None and view.version:
            self._picture.take(event)

    def progress(self, call_id: str, text: str) -> None:
        """Show it beside the running step."""
        if self._picture is not None:
            self._picture.said[call_id] = text

    def end(self) -> None:
        """Draw the last frame and stop."""
        if self._live is not None and self._picture is not None:
            self._picture.is_over = True
            self._live.stop()
            self._live = None
