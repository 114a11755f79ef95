"""`ToolConformance`: what a tool declares, held to it by crashes, duplicates, time limits, cancellations and a second worker.

Subclass it in a test file and say how the tool is made in a fresh folder; pytest finds the tests by the class's name::

    class TestPay(ToolConformance):
        def make(self, place):
            ledger = Ledger(place / "ledger.db")
            return ToolCase(pay_into(ledger), {"to": "Ann", "cents": 1200}, effect=ledger.payments)

Each test runs one scenario on the real dispatcher, workers and store, and fails with the promise that is broken, what happened, and what to change. `conform` runs all
of them and returns a report. The tests need no plug-in and no fixture: each runs an event loop of its own. The invariant: a tool that keeps what it declares passes,
whatever it declares; declaring less is never a failure.
"""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from checkrein.clock import run_bounded
from checkrein.testing import tool_calls, tool_crashes, tool_questions, tool_stops
from checkrein.testing.tool_bench import Bench
from checkrein.testing.tool_case import MakeCase, ToolCase
from checkrein.testing.tool_report import Finding, ToolReport, Unusable, declared
from checkrein.tools.threads import run_in_thread

__all__ = ["SCENARIOS", "ToolConformance", "conform"]

Scenario: TypeAlias = Callable[[Bench], AsyncIterator[Finding]]

SCENARIOS: Final[tuple[Scenario, ...]] = (
    tool_calls.arguments,
    tool_calls.result,
    tool_calls.duplicates,
    tool_calls.overlap,
    tool_calls.twice,
    tool_crashes.crashes,
    tool_questions.probes,
    tool_crashes.two_workers,
    tool_questions.jobs,
    tool_stops.cancellation,
    tool_stops.time_limit,
)
"""All scenarios, in the order of the report."""
_LEAVE_SECONDS: Final = 1.0


async def conform(make: MakeCase) -> ToolReport:
    """Hold a tool to all that it declares, and report every promise.

    It works in a thread and an event loop of its own, so that a body that cannot be stopped holds up nobody.

    Args:
        make: makes the case in a fresh folder; called for every scenario anew.
    """
    return await run_in_thread(lambda: _report(make, SCENARIOS), name="tool conformance")


def _report(make: MakeCase, scenarios: Sequence[Scenario]) -> ToolReport:
    return run_bounded(_conform(make, scenarios), seconds=_LEAVE_SECONDS)


async def _conform(make: MakeCase, scenarios: Sequence[Scenario]) -> ToolReport:
    with tempfile.TemporaryDirectory(prefix="tool-conformance-", ignore_cleanup_errors=True) as root:
        bench = Bench(make, Path(root))
        case, _ = bench.new_world()
        findings: list[Finding] = []
        for scenario in scenarios:
            findings += [item for item in await _found(scenario, bench) if item not in findings]
        return ToolReport(case.tool.name, declared(case.tool.traits), tuple(findings))


async def _found(scenario: Scenario, bench: Bench) -> list[Finding]:
    try:
        return [item async for item in scenario(bench)]
    except Unusable as error:
        return [error.finding]


class ToolConformance(ABC):
    """What every tool must keep of what it declares; subclass it and say how the tool is made."""

    @abstractmethod
    def make(self, place: Path) -> ToolCase:
        """Return the tool in a world of its own.

        Args:
            place: a fresh, empty folder; whatever the tool changes outside of the run's folder is made below it.
        """

    def report(self) -> ToolReport:
        """Run all scenarios and return what was found."""
        return _report(self.make, SCENARIOS)

    def test_arguments_have_types_and_wrong_ones_are_refused_before_the_body(self) -> None:
        """A model is told what to give, and what is wrong never reaches the body."""
        self._hold_to(tool_calls.arguments)

    def test_the_result_is_recorded_whole_and_its_artifacts_exist(self) -> None:
        """What is returned is JSON within the limit; files that are named are there; inputs stay as they are."""
        self._hold_to(tool_calls.result)

    def test_duplicates_at_one_time_share_one_execution(self) -> None:
        """Two calls under one idempotency key are one body and one effect."""
        self._hold_to(tool_calls.duplicates)

    def test_calls_may_overlap_unless_declared_sequential(self) -> None:
        """Two calls at the same time leave what two calls one after the other leave."""
        self._hold_to(tool_calls.overlap)

    def test_twice_under_one_key_is_once_if_declared_idempotent(self) -> None:
        """A second execution adds nothing and returns the same."""
        self._hold_to(tool_calls.twice)

    def test_after_a_crash_the_declaration_decides_and_the_effect_happens_once(self) -> None:
        """Made again, asked about, or left to a person: at every point where a worker may die."""
        self._hold_to(tool_crashes.crashes)

    def test_reconcile_tells_the_truth_and_changes_nothing(self) -> None:
        """The probe knows this very call, whether it happened or not."""
        self._hold_to(tool_questions.probes)

    def test_a_worker_that_comes_back_too_late_does_no_harm(self) -> None:
        """Its outcome is refused, and an idempotent effect still happens once."""
        self._hold_to(tool_crashes.two_workers)

    def test_a_job_is_found_by_its_handle_alone(self) -> None:
        """After a crash the job is asked about and not started again."""
        self._hold_to(tool_questions.jobs)

    def test_a_cancelled_call_leaves_nothing_or_the_whole(self) -> None:
        """A cancellable body stops at any await; any other finishes, and its outcome counts."""
        self._hold_to(tool_stops.cancellation)

    def test_a_time_limit_stops_the_body(self) -> None:
        """At its limit the body ends, and what it leaves agrees with what is recorded."""
        self._hold_to(tool_stops.time_limit)

    def _hold_to(self, scenario: Scenario) -> None:
        report = _report(self.make, [scenario])
        if not report.is_kept:
            raise AssertionError(report.text(report.broken))
