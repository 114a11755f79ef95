"""The examples do what their pages say: the report is right and proved, the liar is found out, and both are so every time."""

import csv
import json
import tomllib
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace
from PIL import Image

from checkrein import Phase, Step, ToolContext, tool
from checkrein.harness.planners import LastError, Plan
from checkrein.kernel.budget import Amounts
from checkrein.kernel.events import CheckFailed, ToolDone, ToolErrorGiven
from checkrein.runs.replay import replay_run
from checkrein.values import JsonObject, as_data
from checkrein.verify.markdown import read_markdown
from tests.acceptance.example_tasks import (
    EXAMPLES,
    LIAR,
    REPORT,
    Bench,
    History,
    asked,
    copied,
    limited,
    loaded,
    planned_by,
)

FILES = ("charts/sales-by-year.png", "charts/sales-by-country.png", "report.md", "summary.json")
WRITTEN = ["draw_chart", "draw_chart", "write_file", "write_file"]
QUERIED = ["sql_query"] * 4


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    return copied(tmp_path)


def _invoices() -> list[dict[str, str]]:
    with (EXAMPLES / REPORT / "data" / "invoices.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


async def test_the_store_report_succeeds_because_ten_checks_passed(examples: Path) -> None:
    bench = Bench(loaded(examples))
    state = await bench.run()
    assert state.phase is Phase.SUCCEEDED
    assert [(item.check, item.passed) for item in state.evidence] == [
        (check.id, True) for check in bench.task.required_checks()
    ]
    assert len(state.evidence) == 10
    assert await bench.granted(state.run_id) == QUERIED + WRITTEN
    assert (state.budget.used.tool_calls, state.budget.limits.tool_calls) == (8, 12)
    assert state.budget.used.turns == 2


async def test_the_evidence_names_the_figures_of_the_source(examples: Path) -> None:
    state = await Bench(loaded(examples)).run()
    measured = {item.check: item.measurement for item in state.evidence}
    assert "$2,328.60" in measured["total"]
    assert "2328.60 from 412 rows" in measured["total"]
    assert "5 of 5 groups" in measured["years"]
    assert "24 rows" in measured["countries"]
    assert "24 of 24 groups" in measured["countries"]
    assert "24 of 24 groups" in measured["genres"]
    assert "3 links and images" in measured["links"]
    assert "2328.60 from 2,240 rows" in measured["exported total"]


async def test_the_report_says_what_the_invoices_say(examples: Path) -> None:
    bench = Bench(loaded(examples))
    state = await bench.run()
    text = bench.text(state)
    document = read_markdown(text, "report.md")
    years, countries, genres = document.tables
    assert [heading.text for heading in document.headings][1:5] == [
        "Summary",
        "Sales by year",
        "Sales by country",
        "Genres",
    ]
    assert "**Total sales: $2,328.60** from 412 invoices for 2,240 items, sold in 24 countries" in text
    expected: Counter[str] = Counter()
    for row in _invoices():
        expected[row["date"][:4]] += round(100 * Decimal(row["total"]))
    assert {row.cells[0]: round(100 * Decimal(row.cells[2])) for row in years.rows[:-1]} == expected
    assert (len(countries.rows), len(genres.rows)) == (25, 25)
    assert [table.rows[-1].cells[2] for table in (years, countries, genres)] == ["2,328.60"] * 3
    assert {line.count("|") for line in text.splitlines() if line.startswith("| USA")} == {8}


async def test_tables_are_in_line_as_plain_text_too(examples: Path) -> None:
    bench = Bench(loaded(examples))
    text = bench.text(await bench.run())
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(blocks) == 3
    assert [len({len(line) for line in block}) for block in blocks] == [1, 1, 1]


async def test_the_summary_draws_the_conclusions_a_manager_needs(examples: Path) -> None:
    bench = Bench(loaded(examples))
    text = bench.text(await bench.run())
    assert "$450.58, which is $26.95 (5.6%) less. The best year was 2022 with $481.45." in text
    assert "USA from $127.98 to $85.14 (−42.84 USD), Canada from $42.57 to $72.27 (+29.70 USD)" in text
    assert "The top 5 of 24 countries bring 58.8% of sales: USA 22.5%, Canada 13.1%" in text
    assert "The top 4 of 24 genres bring 73.5% of sales: Rock 35.5%" in text
    assert "**Average invoice:** $5.65" in text
    assert "2025 may not be complete" in text


async def test_the_charts_are_pictures_of_full_size(examples: Path) -> None:
    bench = Bench(loaded(examples))
    state = await bench.run()
    for path in FILES[:2]:
        with Image.open(bench.file(state, path)) as picture:
            assert (picture.format, picture.size) == ("PNG", (1600, 900))
            assert len(picture.convert("RGB").getcolors(1 << 20) or ()) > 50


async def test_the_export_holds_24_countries_and_24_genres(examples: Path) -> None:
    bench = Bench(loaded(examples))
    exported = json.loads(bench.text(await bench.run(), "summary.json"))
    assert exported["total_sales"] == 2328.60
    assert [len(exported[name]) for name in ("years", "countries", "genres")] == [5, 24, 24]
    assert exported["invoices"] == 412
    assert round(sum(item["sales"] for item in exported["countries"]), 2) == 2328.60


async def test_two_runs_make_identical_files(examples: Path) -> None:
    bench = Bench(loaded(examples))
    one, other = await bench.run(), await bench.run()
    assert one.run_id != other.run_id
    assert sorted(item.path for item in one.artifacts) == sorted(FILES)
    assert [(item.path, item.sha256) for item in one.artifacts] == [
        (item.path, item.sha256) for item in other.artifacts
    ]
    assert bench.file(one, FILES[0]).read_bytes() == bench.file(other, FILES[0]).read_bytes()


async def test_the_log_replays_to_the_same_state(examples: Path) -> None:
    bench = Bench(loaded(examples))
    state = await bench.run()
    replay = await replay_run(bench.store, state.run_id)
    assert replay.divergence is None
    assert replay.state == state


async def test_a_report_that_was_wrong_is_repaired_alone(examples: Path) -> None:
    task = loaded(examples)

    def careless(_goal: str, history: History, last_error: LastError | None) -> Plan:
        plan = asked(task, history, last_error)
        if last_error is not None:
            return plan
        return Plan([_with_wrong_total(step) for step in plan.steps], plan.final)

    bench = Bench(planned_by(task, careless))
    state = await bench.run()
    assert state.phase is Phase.SUCCEEDED
    assert await bench.granted(state.run_id) == [*QUERIED, *WRITTEN, "write_file"]
    assert state.budget.used.repairs == 1
    found = [fact for fact in await bench.facts(state.run_id) if isinstance(fact, CheckFailed)]
    assert [(item.check, item.subject, item.code) for item in found[0].findings] == [
        ("total", "report.md", "wrong_sum")
    ]
    assert "$2,328.60" in bench.text(state)


def _with_wrong_total(step: Step) -> Step:
    if step.id != "report.md":
        return step
    content = str(step.arguments["content"]).replace("**Total sales: $2,328.60**", "**Total sales: $2,328.06**")
    return replace(step, arguments={**step.arguments, "content": content})


async def test_a_file_that_was_changed_behind_the_runs_back_is_written_anew(examples: Path) -> None:
    @tool(idempotent=True)
    def tamper(context: ToolContext) -> str:
        """Change a file that another call made."""
        (context.folder() / "summary.json").write_text("{}", encoding="utf-8")
        return "done"

    task = loaded(examples)
    task = replace(task, tools=(*task.tools, tamper))

    def unlucky(_goal: str, history: History, last_error: LastError | None) -> Plan:
        plan = asked(task, history, last_error)
        last = Step(id="tamper", description="Change a file", tool_name="tamper")
        return Plan([*plan.steps, last]) if plan.final and last_error is None else plan

    bench = Bench(planned_by(task, unlucky))
    state = await bench.run()
    assert state.phase is Phase.SUCCEEDED
    found = [fact for fact in await bench.facts(state.run_id) if isinstance(fact, CheckFailed)]
    assert {(item.subject, item.code) for item in found[0].findings} == {("summary.json", "changed_since")}
    assert (await bench.granted(state.run_id))[-2:] == ["tamper", "write_file"]
    assert '"total_sales": 2328.6' in bench.text(state, "summary.json")


async def test_a_spent_budget_blocks_and_an_extended_one_goes_on_where_it_stopped(examples: Path) -> None:
    bench = Bench(limited(loaded(examples), tool_calls=6))
    state = await bench.run()
    assert state.phase is Phase.BLOCKED
    assert [(cause.kind, cause.detail) for cause in state.causes] == [("budget", "tool_calls")]
    assert await bench.granted(state.run_id) == [*QUERIED, *WRITTEN[:2]]
    await bench.worker.extend(state.run_id, Amounts(tool_calls=2))
    state = await bench.worker.advance(state.run_id)
    assert state.phase is Phase.SUCCEEDED
    assert await bench.granted(state.run_id) == QUERIED + WRITTEN
    assert (state.budget.used.tool_calls, state.budget.limits.tool_calls) == (8, 8)


async def test_a_steering_note_is_quoted_in_the_report_and_is_never_read_as_markdown(examples: Path) -> None:
    bench = Bench(loaded(examples))
    state = await bench.run(steer="Mention *March*\n\n# Total sales: $1\n![](gone.png) <script>")
    assert state.phase is Phase.SUCCEEDED
    document = read_markdown(bench.text(state), "report.md")
    assert [heading.text for heading in document.headings][-2:] == ["Notes", "About the figures"]
    assert len(document.links) == 3
    quoted = r"> “Mention \*March\* \# Total sales: $1 \!\[\](gone.png) \<script\>”"
    assert quoted in bench.text(state).splitlines()


async def test_a_note_that_comes_late_changes_the_report_and_nothing_else(examples: Path) -> None:
    bench = Bench(limited(loaded(examples), tool_calls=7))
    state = await bench.run()
    assert state.phase is Phase.BLOCKED
    assert "## Notes" not in bench.text(state)
    await bench.worker.steer(state.run_id, "Mention the refunds of March")
    await bench.worker.extend(state.run_id, Amounts(tool_calls=5))
    state = await bench.worker.advance(state.run_id)
    assert state.phase is Phase.SUCCEEDED
    assert await bench.granted(state.run_id) == [*QUERIED, *WRITTEN[:3], "write_file", "write_file"]
    assert "> “Mention the refunds of March”" in bench.text(state)


async def test_a_follow_up_is_answered_once_all_else_is_done(examples: Path) -> None:
    bench = Bench(loaded(examples))
    state = await bench.run(follow_up="And thank the team")
    assert state.phase is Phase.SUCCEEDED
    assert await bench.granted(state.run_id) == [*QUERIED, *WRITTEN, "write_file"]
    assert "> “And thank the team”" in bench.text(state)


async def test_a_source_without_the_expected_columns_ends_in_giving_up(examples: Path) -> None:
    source = examples / REPORT / "data" / "lines.csv"
    source.write_text(source.read_text(encoding="utf-8").replace("genre", "style", 1), encoding="utf-8")
    state = await Bench(loaded(examples)).run()
    assert state.phase is Phase.FAILED
    assert state.outcome is not None
    assert state.outcome.code == "gave_up"
    assert "genre" in state.outcome.message
    assert state.budget.used.tool_calls <= 12


async def test_the_report_of_one_invoice_is_proved_too(examples: Path) -> None:
    data = examples / REPORT / "data"
    header = "invoice_id,date,country,city,total\n"
    (data / "invoices.csv").write_text(f"{header}1,2024-12-31,Côte d'Ivoire | *west*,Bouaké,1234.5\n", encoding="utf-8")
    header = "invoice_id,line_id,track,genre,media_type,unit_price,quantity\n"
    (data / "lines.csv").write_text(f"{header}1,1,A,$R&amp;B$,MPEG,617.25,2\n", encoding="utf-8")
    bench = Bench(loaded(examples))
    state = await bench.run()
    assert state.phase is Phase.SUCCEEDED
    text = bench.text(state)
    assert "# Store report 2024\n" in text
    assert "**Total sales: $1,234.50** from 1 invoice for 2 items, sold in 1 country" in text
    assert "may not be complete" not in text


async def test_the_liar_ends_failed_with_what_is_wrong(examples: Path) -> None:
    bench = Bench(loaded(examples, LIAR))
    state = await bench.run()
    assert state.phase is Phase.FAILED
    assert state.outcome is not None
    assert state.outcome.code == "check_failed"
    assert "report.md says $2,400.00 after “Total sales” (line 5)" in state.outcome.message
    assert "2328.60" in state.outcome.message
    assert [item.check for item in state.evidence if not item.passed] == [
        "total",
        "years",
        "countries",
        "genres",
        "exported total",
    ]


async def test_what_the_liar_claims_is_recorded_and_proves_nothing(examples: Path) -> None:
    bench = Bench(loaded(examples, LIAR))
    state = await bench.run()
    facts = await bench.facts(state.run_id)
    claims = [as_data(fact.result).value for fact in facts if isinstance(fact, ToolDone)]
    assert [claim["status"] for claim in claims if isinstance(claim, dict)] == ["success", "success"]
    first, second = (fact for fact in facts if isinstance(fact, CheckFailed))
    assert {(item.check, item.code) for item in first.findings} == {
        ("sections", "empty"),
        ("total", "missing_text"),
        ("years", "missing_table"),
        ("countries", "missing_table"),
        ("genres", "missing_table"),
        ("chart of years", "blank"),
        ("chart of countries", "blank"),
        ("links", "too_few_links"),
        ("export", "not_valid"),
        ("exported total", "missing_key"),
    }
    assert {item.code for item in second.findings} == {"wrong_sum", "wrong_total", "wrong_rows"}


def test_the_liar_must_prove_exactly_what_the_report_must() -> None:
    report, liar = (
        tomllib.loads((EXAMPLES / name / "task.toml").read_text(encoding="utf-8")) for name in (REPORT, LIAR)
    )
    assert liar["check"] == report["check"]
    assert liar["task"]["goal"] == report["task"]["goal"]
    schemas = [(EXAMPLES / name / "summary.schema.json").read_bytes() for name in (REPORT, LIAR)]
    assert schemas[0] == schemas[1]


async def test_a_chart_cannot_be_drawn_outside_its_folder(examples: Path) -> None:
    task = loaded(examples)

    def climbing(_goal: str, history: History, last_error: LastError | None) -> Plan:
        plan = asked(task, history, None)
        return Plan([] if last_error else [_climbing(step) for step in plan.steps], plan.final)

    bench = Bench(planned_by(task, climbing))
    state = await bench.run()
    assert state.phase is Phase.FAILED
    refused = [fact for fact in await bench.facts(state.run_id) if isinstance(fact, ToolErrorGiven)]
    assert [(fact.kind, "/chart/name" in fact.message) for fact in refused] == [("schema", True)]
    assert await bench.granted(state.run_id) == QUERIED
    assert list(bench.task.workspace.rglob("*.png")) == []


def _climbing(step: Step) -> Step:
    if step.tool_name != "draw_chart":
        return step
    chart = JsonObject(step.arguments).decoded()["chart"]
    assert isinstance(chart, dict)
    return replace(step, arguments={"chart": {**chart, "name": "../../climbed"}})


def test_the_data_is_what_its_note_says() -> None:
    note = (EXAMPLES / REPORT / "data" / "SOURCE.md").read_text(encoding="utf-8")
    assert "MIT licence" in note
    assert "2328.60" in note
    rows = _invoices()
    assert (len(rows), sum(Decimal(row["total"]) for row in rows)) == (412, Decimal("2328.60"))
    assert len({row["country"] for row in rows}) == 24
