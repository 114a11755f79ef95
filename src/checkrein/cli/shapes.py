"""The JSON lines that programs read: one function per shape, and nothing else decides a key."""

from typing import cast

import msgspec

from checkrein.cli.figures import checks_of
from checkrein.codec.wire import encode_value
from checkrein.kernel.budget import LIMITS
from checkrein.kernel.events import RUN_EVENT_TYPES, Event
from checkrein.kernel.state import RunState
from checkrein.ports.store import RunRow
from checkrein.runs.commands import RunPull
from checkrein.runs.cuts import Cut
from checkrein.runs.fork import ForkResult

__all__ = ["cut_record", "end_record", "event_record", "fork_record", "pull_record", "pushed_record", "row_record"]

_LIFECYCLE = frozenset(RUN_EVENT_TYPES)


def event_record(event: Event, after: RunState | None) -> dict[str, object]:
    """Return an event; those of the lifecycle also say the phase after them."""
    data = cast("dict[str, object]", msgspec.json.decode(encode_value(event.data)))
    kind = data.pop("type")
    record: dict[str, object] = {
        "offset": event.expected_version,
        "type": kind,
        "at": event.at,
        "run_id": event.run_id,
        "epoch": event.epoch,
        "data": data,
    }
    if kind in _LIFECYCLE and after is not None:
        record["phase"] = str(after.phase)
    return record


def end_record(state: RunState) -> dict[str, object]:
    """Return how a run stands: its code is null until it ended; a check that was not measured has null for `passed`."""
    budget = {name: {"used": state.budget.taken(name), "limit": state.budget.limits.limit(name)} for name in LIMITS}
    return {
        "run_id": state.run_id,
        "phase": str(state.phase),
        "code": state.outcome.code if state.outcome is not None else None,
        "checks": [{"id": check.spec.id, "passed": check.passed, "message": check.text} for check in checks_of(state)],
        "budget": budget,
    }


def pull_record(found: RunPull) -> dict[str, object]:
    """Return what a run waits for from a caller; null for what is not there when nothing is asked."""
    pull = found.pull
    return {
        **pushed_record(found),
        "kind": None if pull is None else pull.kind,
        "reason": None if pull is None else pull.reason,
        "state": None if pull is None else str(pull.state),
        "payload": None if pull is None else dict(pull.payload),
    }


def pushed_record(state: RunState | RunPull) -> dict[str, object]:
    """Return where a run stands after an answer."""
    return {"run_id": state.run_id, "version": state.version, "phase": str(state.phase)}


def cut_record(cut: Cut, text: str) -> dict[str, object]:
    """Return a place where a run can be forked, with what its last event says."""
    return {"at": cut.at, "phase": str(cut.state.phase), "type": cut.last.type, "text": text}


def fork_record(made: ForkResult) -> dict[str, object]:
    """Return a fork that was made."""
    return {
        "run_id": made.run_id,
        "fork_of": made.fork_of,
        "fork_at": made.fork_at,
        "calls_kept": made.calls_kept,
        "made_after": [
            {"call_id": effect.call_id, "tool": effect.tool, "status": effect.status, "attempts": effect.attempts}
            for effect in made.made_after
        ],
        "copied": [artifact.path for artifact in made.copied],
        "missing": [artifact.path for artifact in made.missing],
    }


def row_record(row: RunRow) -> dict[str, object]:
    """Return a run of a list."""
    return {
        "run_id": row.run_id,
        "phase": row.head.phase,
        "goal": row.head.goal,
        "version": row.version,
        "updated_at": row.head.updated_at,
    }
