"""Plans one step, the tool that claims everything, and repeats it with the findings when checks object."""

import msgspec

from checkrein import Step
from checkrein.harness.planners import LastError, Note, StepRecord


class _Finding(msgspec.Struct):
    """What a check found."""

    message: str


def plan(_goal: str, _history: tuple[StepRecord | Note, ...], last_error: LastError | None) -> list[Step]:
    """Return the one step; a repair hands the findings to the tool."""
    found = msgspec.convert(last_error.data, list[_Finding]) if last_error and last_error.kind == "check" else []
    arguments = {"corrections": [finding.message for finding in found]}
    return [Step(id="report", description="Have the report made", tool_name="make_report", arguments=arguments)]
