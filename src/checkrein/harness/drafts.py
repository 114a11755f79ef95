"""Steps on their way between planners, hooks and the log: how each sees them, and what a revision changed.

Pure conversions. The log keeps `StepSpec`s; planners and hooks speak of `Step`s, which anybody can make; a pause keeps what hooks made of a draft as plain data.
"""

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from checkrein.errors import DataError
from checkrein.harness.planners import PlannerFailed, Step, checked_steps, record_of, step_of
from checkrein.kernel.events import PlanCommit, PlanDraft, PlanReason, StepSpec
from checkrein.kernel.session_state import SessionState
from checkrein.values import JsonData, JsonObject

__all__ = ["arguments_of", "changed_steps", "record_of", "revision", "step_of", "steps_from_data", "steps_to_data"]


def steps_to_data(steps: Sequence[StepSpec]) -> JsonData:
    """Return steps as plain data, for a pause to keep."""
    return JsonData(
        [
            {
                "id": step.id,
                "description": step.description,
                "tool_name": step.tool_name,
                "arguments": step.arguments.decoded(),
                "expected_outcome": step.expected_outcome,
                "batch": step.batch,
                "answer": step.answer,
                "malformed": step.malformed,
            }
            for step in steps
        ]
    )


def steps_from_data(data: JsonData) -> list[Step]:
    """Return the steps that `steps_to_data` made data of.

    Raises:
        PlannerFailed: the data are no steps.
    """
    try:
        return msgspec.convert(data.value, list[Step])
    except msgspec.ValidationError as error:
        msg = f"what a pause kept is no list of steps: {error}"
        raise PlannerFailed(msg) from error


def changed_steps(steps: object) -> tuple[StepSpec, ...]:
    """Return what hooks made of a draft's steps.

    Raises:
        PlannerFailed: it is no sequence of steps.
    """
    return checked_steps(steps)


def revision(state: SessionState, draft: PlanDraft, steps: tuple[StepSpec, ...], reason: PlanReason) -> PlanCommit:
    """Return the commit of a draft's steps with the ids that it removed from what remained, added to it and revised."""
    before = {step.id: step for step in state.steps}
    remaining = {step.id for step in state.remaining}
    offered = {step.id: step for step in steps}
    if not state.is_planned:
        return PlanCommit(turn=draft.turn, steps=steps, final=draft.final or not steps, reason=reason)
    return PlanCommit(
        turn=draft.turn,
        steps=steps,
        final=draft.final or not steps,
        reason=reason,
        removed=tuple(step.id for step in state.steps if step.id in remaining and step.id not in offered),
        added=tuple(name for name in offered if name not in before),
        revised=tuple(name for name, step in offered.items() if name in before and before[name] != step),
    )


def arguments_of(value: object) -> JsonObject:
    """Return what hooks made of a call's arguments.

    Raises:
        DataError: it is no object with a JSON form.
    """
    if not isinstance(value, Mapping):
        msg = f"they are {type(value).__name__}"
        raise DataError(msg)
    return JsonObject(cast("Mapping[str, object]", value))
