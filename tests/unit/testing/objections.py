"""What the kit for tools says against a tool, for the tests that expect it to object."""

from pathlib import Path

import pytest
from typing_extensions import override

from checkrein.testing import ToolCase, ToolConformance, conform
from checkrein.testing.tool_case import MakeCase

ARGUMENTS = "test_arguments_have_types_and_wrong_ones_are_refused_before_the_body"
RESULT = "test_the_result_is_recorded_whole_and_its_artifacts_exist"
DUPLICATES = "test_duplicates_at_one_time_share_one_execution"
OVERLAP = "test_calls_may_overlap_unless_declared_sequential"
TWICE = "test_twice_under_one_key_is_once_if_declared_idempotent"
CRASH = "test_after_a_crash_the_declaration_decides_and_the_effect_happens_once"
PROBE = "test_reconcile_tells_the_truth_and_changes_nothing"
WORKERS = "test_a_worker_that_comes_back_too_late_does_no_harm"
JOB = "test_a_job_is_found_by_its_handle_alone"
CANCEL = "test_a_cancelled_call_leaves_nothing_or_the_whole"
LIMIT = "test_a_time_limit_stops_the_body"

PATIENCE_SECONDS = 0.3


def objection(make: MakeCase, test: str) -> str:
    """Return what a test of the kit says against a tool, on one line."""

    class Case(ToolConformance):
        @override
        def make(self, place: Path) -> ToolCase:
            return make(place)

    with pytest.raises(AssertionError) as caught:
        getattr(Case(), test)()
    return " ".join(str(caught.value).split())


async def advised(make: MakeCase, promise: str) -> str:
    """Return all advice about one promise, on one line."""
    found = [item for item in (await conform(make)).findings if item.verdict == "advice" and item.promise == promise]
    return " ".join(str(item) for item in found).replace("\n", " ")


def has(text: str, *parts: str) -> None:
    """Hold a text to its parts, in their order, whatever the spaces between them."""
    at, plain = 0, " ".join(text.split())
    for part in parts:
        found = plain.find(part, at)
        assert found >= 0, f"{part!r} is not in {plain!r}"
        at = found + len(part)
