"""Figures and facts about a run that several commands show, folded from its state; no text here is made harmless yet."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from checkrein.kernel.budget import COUNTED, LIMITS, Limit
from checkrein.kernel.events import CheckSpec
from checkrein.kernel.state import RunState
from checkrein.ports.store import Lease
from checkrein.runs.lease import is_gone
from checkrein.runs.workspace import folder_of

__all__ = [
    "BudgetRow",
    "CheckView",
    "budget_rows",
    "checks_of",
    "counted",
    "effects_in_words",
    "is_held",
    "local_time",
    "run_folder",
    "spent",
    "workspace_of",
]


class CheckView(msgspec.Struct, frozen=True):
    """A required check and what the last verification found.

    Attributes:
        spec: the check.
        passed: whether it is met; None when it was not measured.
        text: the measurement, or why it is not met.
    """

    spec: CheckSpec
    passed: bool | None
    text: str

    @property
    def title(self) -> str:
        """What it proves, in words."""
        return self.spec.title or self.spec.id


def checks_of(state: RunState) -> tuple[CheckView, ...]:
    """Return every required check, in the task's order."""
    findings = {item.check: item for item in state.findings}
    evidence = {item.check: item for item in state.evidence}
    views: list[CheckView] = []
    for spec in state.task.checks:
        if spec.id in findings:
            views.append(CheckView(spec, passed=False, text=findings[spec.id].message))
        elif spec.id in evidence:
            views.append(CheckView(spec, passed=evidence[spec.id].passed, text=evidence[spec.id].measurement))
        else:
            views.append(CheckView(spec, passed=None, text=""))
    return tuple(views)


class BudgetRow(msgspec.Struct, frozen=True):
    """One limit.

    Attributes:
        limit: its name.
        used: what is used or reserved.
        allowed: the limit; None is unlimited.
    """

    limit: Limit
    used: float
    allowed: float | None

    @property
    def label(self) -> str:
        """The name for people."""
        return self.limit.replace("_", " ")

    @property
    def figure(self) -> str:
        """`7 of 12`, or `7` without a limit."""
        used = f"{self.used:g}" if self.limit in COUNTED or self.limit == "tokens" else f"{self.used:.2f}"
        return used if self.allowed is None else f"{used} of {self.allowed:g}"


def budget_rows(state: RunState) -> tuple[BudgetRow, ...]:
    """Return every limit that exists or was used."""
    rows = (BudgetRow(name, state.budget.taken(name), state.budget.limits.limit(name)) for name in LIMITS)
    return tuple(row for row in rows if row.allowed is not None or row.used)


def spent(state: RunState) -> str:
    """Return `7 of 12 tool calls`."""
    return (
        f"{BudgetRow('tool_calls', state.budget.taken('tool_calls'), state.budget.limits.tool_calls).figure} tool calls"
    )


def counted(number: int, noun: str) -> str:
    """Return `1 step`, `2 steps`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def effects_in_words(state: RunState) -> str:
    """Return what tools were made to do: `3 × sql_query, 1 × send_mail (in doubt)`; empty when nothing."""
    counted = Counter((effect.tool, effect.status) for effect in state.effects)
    parts = [
        f"{number} × {name}" + ("" if status == "done" else f" ({status.replace('_', ' ')})")
        for (name, status), number in counted.items()
    ]
    return ", ".join(parts)


def is_held(lease: Lease) -> bool:
    """Tell whether somebody holds a run now, as far as this machine can tell."""
    return lease.is_live and not is_gone(lease.owner)


def workspace_of(state: RunState) -> Path | None:
    """Return the task's workspace as it was when the run was stored; None when it is not known."""
    workspace = state.task.data.get("workspace")
    return Path(workspace) if isinstance(workspace, str) and workspace else None


def run_folder(state: RunState) -> Path | None:
    """Return the folder that counts; None before the first lease, or when the workspace is not known."""
    workspace = workspace_of(state)
    return folder_of(workspace, state) if workspace is not None and state.folder else None


def local_time(at: float) -> str:
    """Return a moment as a person writes it, in the machine's time zone."""
    try:
        return datetime.fromtimestamp(at, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return f"{at:g} s after 1970"
