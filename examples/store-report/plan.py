"""Plans the store report, without a model: first the queries, then, from their results, the charts, the report and the export.

A planner is asked again whenever something happened: the queries are done, a person sent a note, a step failed, a check found a fault. So it keeps no state of
its own: it says what the files should be, given the history, and plans those that are not so yet. The id of a step that makes a file is the file's path.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from checkrein import Plan, Step
from checkrein.harness.planners import LastError, Note, StepRecord

from .figures import QUERIES, Figures, figures_of
from .report import COUNTRIES_CHART, SUMMARY, YEARS_CHART, countries_chart, report, summary, years_chart

REPORT = "report.md"
TRIES = 2


class _Finding(msgspec.Struct):
    """What a check found."""

    subject: str


def plan(_goal: str, history: tuple[StepRecord | Note, ...], last_error: LastError | None) -> Plan:
    """Return the steps that are still to be done; none when the same step failed too often, which gives up."""
    records = [item for item in history if isinstance(item, StepRecord)]
    failures = Counter(record.step.id for record in records if record.status == "failed")
    if any(times >= TRIES for times in failures.values()):
        return Plan(())
    done = {str(record.step.id): record for record in records if record.status == "done"}
    queries = [_query(name) for name in QUERIES if name not in done]
    if queries:
        return Plan(queries, final=False)
    figures = figures_of(done)
    notes = [item.text for item in history if isinstance(item, Note)]
    faulty = _faulty(last_error)
    return Plan([step for step in _files(figures, notes) if step.id in faulty or not _is_done(step, done)])


def _query(name: str) -> Step:
    arguments = {"query": " ".join(QUERIES[name].split())}
    return Step(id=name, description=f"Query {name}", tool_name="sql_query", arguments=arguments)


def _faulty(last_error: LastError | None) -> set[str]:
    """Return the files that checks found fault with: they are made anew."""
    if last_error is None or last_error.kind != "check":
        return set()
    return {finding.subject for finding in msgspec.convert(last_error.data, list[_Finding])}


def _is_done(step: Step, done: Mapping[str, StepRecord]) -> bool:
    """Say whether this very step is done: a note changes what the report must be, and so makes its step a new one."""
    record = done.get(str(step.id))
    return record is not None and record.step.arguments == step.arguments


def _files(figures: Figures, notes: Sequence[str]) -> list[Step]:
    return [
        _chart_step(YEARS_CHART, years_chart(figures)),
        _chart_step(COUNTRIES_CHART, countries_chart(figures)),
        _write_step(REPORT, "Write the report", report(figures, notes)),
        _write_step(SUMMARY, "Export the figures", json.dumps(summary(figures), indent=2, ensure_ascii=False) + "\n"),
    ]


def _chart_step(path: str, chart: Mapping[str, object]) -> Step:
    name = path.removeprefix("charts/").removesuffix(".png")
    return Step(
        id=path, description=f"Draw {name}", tool_name="draw_chart", arguments={"chart": {"name": name, **chart}}
    )


def _write_step(path: str, description: str, content: str) -> Step:
    return Step(id=path, description=description, tool_name="write_file", arguments={"path": path, "content": content})
