"""Plans the store report, without a model: first the queries, then, from their results, the charts, the report and the export.

A planner is asked again whenever something happened: the queries are done, a person sent a note, a step failed, a check found a fault. So it keeps no state of
its own: it says what the files should be, given the history, and plans those that are not so yet. The id of a step that makes a file is the file's path.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import pairwise
from typing import TypeVar

import msgspec

from checkrein import Plan, Step
from checkrein.harness.planners import LastError, Note, StepRecord

T = TypeVar("T")

REPORT, SUMMARY = "report.md", "summary.json"
YEARS_CHART, COUNTRIES_CHART = "charts/sales-by-year.png", "charts/sales-by-country.png"
TOP = 5
CHARTED = 10
TRIES = 2

# Money is added up in whole cents: a sum of binary fractions of a dollar would be off by a little.
QUERIES = {
    "totals": """
        SELECT count(*) AS invoices, count(DISTINCT country) AS countries, min(date) AS first_day, max(date) AS last_day,
               CAST(sum(round(100 * total)) AS INTEGER) AS cents, (SELECT sum(quantity) FROM lines) AS items
        FROM invoices""",
    "sales by year": """
        SELECT CAST(substr(date, 1, 4) AS INTEGER) AS year, count(*) AS invoices, CAST(sum(round(100 * total)) AS INTEGER) AS cents
        FROM invoices GROUP BY year ORDER BY year""",
    "sales by country": """
        WITH span AS (SELECT CAST(max(substr(date, 1, 4)) AS INTEGER) AS last FROM invoices),
             sales AS (SELECT country, CAST(substr(date, 1, 4) AS INTEGER) AS year, round(100 * total) AS cents FROM invoices)
        SELECT country, count(*) AS invoices, CAST(sum(cents) AS INTEGER) AS cents,
               CAST(sum(cents * (year = last - 1)) AS INTEGER) AS cents_before, CAST(sum(cents * (year = last)) AS INTEGER) AS cents_last
        FROM sales, span GROUP BY country ORDER BY cents DESC, country""",
    "sales by genre": """
        SELECT genre, sum(quantity) AS items, CAST(sum(round(100 * unit_price) * quantity) AS INTEGER) AS cents
        FROM lines GROUP BY genre ORDER BY cents DESC, genre""",
}


class Totals(msgspec.Struct):
    """The whole business."""

    invoices: int
    countries: int
    first_day: date
    last_day: date
    cents: int
    items: int


class Year(msgspec.Struct):
    """One year."""

    year: int
    invoices: int
    cents: int


class Country(msgspec.Struct):
    """One country, and how it did in the last year and in the one before."""

    country: str
    invoices: int
    cents: int
    cents_before: int
    cents_last: int

    @property
    def gain(self) -> int:
        """Cents more in the last year than in the one before."""
        return self.cents_last - self.cents_before


class Genre(msgspec.Struct):
    """One genre."""

    genre: str
    items: int
    cents: int


class Figures(msgspec.Struct):
    """All that the report says is made of these."""

    totals: Totals
    years: list[Year]
    countries: list[Country]
    genres: list[Genre]


class _Table(msgspec.Struct):
    """What `sql_query` returns."""

    columns: list[str]
    rows: list[list[object]]


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
    figures = _figures(done)
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


def _figures(done: Mapping[str, StepRecord]) -> Figures:
    return Figures(
        totals=_rows(done["totals"], Totals)[0],
        years=_rows(done["sales by year"], Year),
        countries=_rows(done["sales by country"], Country),
        genres=_rows(done["sales by genre"], Genre),
    )


def _rows(record: StepRecord, kind: type[T]) -> list[T]:
    table = msgspec.convert(record.result, _Table)
    return msgspec.convert([dict(zip(table.columns, row, strict=True)) for row in table.rows], list[kind])


def _files(figures: Figures, notes: Sequence[str]) -> list[Step]:
    return [
        _chart_step(YEARS_CHART, _years_chart(figures)),
        _chart_step(COUNTRIES_CHART, _countries_chart(figures)),
        _write_step(REPORT, "Write the report", _report(figures, notes)),
        _write_step(SUMMARY, "Export the figures", json.dumps(_summary(figures), indent=2, ensure_ascii=False) + "\n"),
    ]


def _chart_step(path: str, chart: Mapping[str, object]) -> Step:
    name = path.removeprefix("charts/").removesuffix(".png")
    return Step(
        id=path, description=f"Draw {name}", tool_name="draw_chart", arguments={"chart": {"name": name, **chart}}
    )


def _write_step(path: str, description: str, content: str) -> Step:
    return Step(id=path, description=description, tool_name="write_file", arguments={"path": path, "content": content})


# Charts


def _years_chart(figures: Figures) -> Mapping[str, object]:
    years = figures.years
    changes = ["", *(f"\n{_change(after.cents, before.cents)}" for before, after in pairwise(years))]
    return {
        "title": _years_headline(years),
        "subtitle": "Invoiced sales per calendar year in US dollars, and the change from the year before",
        "direction": "up",
        "labels_axis": "Year",
        "values_axis": "Sales (USD)",
        "bars": [
            {"label": str(year.year), "value": year.cents / 100, "text": f"{_usd(year.cents)}{change}"}
            for year, change in zip(years, changes, strict=True)
        ],
    }


def _countries_chart(figures: Figures) -> Mapping[str, object]:
    whole, shown, rest = figures.totals.cents, figures.countries[:CHARTED], figures.countries[CHARTED:]
    bars: list[dict[str, object]] = [_bar(country.country, country.cents, whole) for country in shown]
    if rest:
        bars.append({**_bar(f"{len(rest)} others", sum(country.cents for country in rest), whole), "strong": False})
    return {
        "title": _countries_headline(figures),
        "subtitle": f"Invoiced sales per country in US dollars, {_span(figures)}, and the share of all sales",
        "direction": "right",
        "labels_axis": "Country",
        "values_axis": "Sales (USD)",
        "bars": bars,
    }


def _bar(label: str, cents: int, whole: int) -> dict[str, object]:
    return {"label": label[:40], "value": cents / 100, "text": f"{_usd(cents)} · {_share(cents, whole)}"}


def _years_headline(years: Sequence[Year]) -> str:
    best, last = max(years, key=lambda year: year.cents), years[-1]
    if best is last:
        return f"{last.year} was the best year so far"
    way = "rose" if last.cents >= years[-2].cents else "fell"
    return f"Sales peaked in {best.year} and {way} by {_share(abs(last.cents - years[-2].cents), years[-2].cents)} in {last.year}"


def _countries_headline(figures: Figures) -> str:
    top = sum(country.cents for country in figures.countries[:TOP])
    return f"{min(TOP, len(figures.countries))} of {figures.totals.countries} countries bring {_share(top, figures.totals.cents)} of sales"


# The report


def _report(figures: Figures, notes: Sequence[str]) -> str:
    parts = [
        f"# Store report {_span(figures)}",
        "## Summary",
        _opening(figures),
        "\n".join(f"- {insight}" for insight in _insights(figures)),
        "## Sales by year",
        f"![{_years_headline(figures.years)}]({YEARS_CHART})",
        _years_table(figures),
        *_years_caveat(figures),
        "## Sales by country",
        f"![{_countries_headline(figures)}]({COUNTRIES_CHART})",
        _countries_table(figures),
        "## Genres",
        _genres_table(figures),
        *_notes_section(notes),
        "## About the figures",
        f"Sales are the invoiced totals in US dollars; genres are added up from the invoices' lines. The same figures for programs: [{SUMMARY}]({SUMMARY}).",
    ]
    return "\n\n".join(parts) + "\n"


def _opening(figures: Figures) -> str:
    totals = figures.totals
    return (
        f"**Total sales: {_usd(totals.cents)}** from {totals.invoices:,} invoices for {totals.items:,} items, sold in {totals.countries} countries "
        f"between {_day(totals.first_day)} and {_day(totals.last_day)}."
    )


def _insights(figures: Figures) -> Iterator[str]:
    """Yield what a manager should know, the most pressing first."""
    totals, years, countries, genres = figures.totals, figures.years, figures.countries, figures.genres
    last = years[-1]
    if len(years) > 1:
        before, best = years[-2], max(years, key=lambda year: year.cents)
        word = "more" if last.cents >= before.cents else "less"
        yield (
            f"**{last.year} against {before.year}:** {_usd(last.cents)}, which is {_usd(abs(last.cents - before.cents))} "
            f"({_share(abs(last.cents - before.cents), before.cents)}) {word}. The best year was {best.year} with {_usd(best.cents)}."
        )
        fell, rose = min(countries, key=lambda country: country.gain), max(countries, key=lambda country: country.gain)
        yield (
            f"**Largest moves:** {_text(fell.country)} from {_usd(fell.cents_before)} to {_usd(fell.cents_last)} ({_signed(fell.gain)} USD), "
            f"{_text(rose.country)} from {_usd(rose.cents_before)} to {_usd(rose.cents_last)} ({_signed(rose.gain)} USD)."
        )
    top = ", ".join(f"{_text(country.country)} {_share(country.cents, totals.cents)}" for country in countries[:TOP])
    yield f"**Markets:** {_countries_headline(figures)}: {top}."
    leaders = ", ".join(f"{_text(genre.genre)} {_share(genre.cents, totals.cents)}" for genre in genres[:4])
    together = _share(sum(genre.cents for genre in genres[:4]), totals.cents)
    yield f"**Catalogue:** {min(4, len(genres))} of {len(genres)} genres bring {together} of sales: {leaders}."
    averages = sorted(years, key=lambda year: year.cents / year.invoices)
    yield (
        f"**Average invoice:** {_usd(totals.cents / totals.invoices)}, from {_usd(averages[0].cents / averages[0].invoices)} in {averages[0].year} "
        f"to {_usd(averages[-1].cents / averages[-1].invoices)} in {averages[-1].year}."
    )


def _years_table(figures: Figures) -> str:
    totals, years = figures.totals, figures.years
    changes = ["–", *(_change(after.cents, before.cents) for before, after in pairwise(years))]
    rows = [
        (
            str(year.year),
            f"{year.invoices:,}",
            _plain(year.cents),
            change,
            _share(year.cents, totals.cents),
            _plain(year.cents / year.invoices),
        )
        for year, change in zip(years, changes, strict=True)
    ]
    total = (
        "Total",
        f"{totals.invoices:,}",
        _plain(totals.cents),
        "",
        "100.0%",
        _plain(totals.cents / totals.invoices),
    )
    return _table(("Year", "Invoices", "Sales (USD)", "Change", "Share", "Average invoice (USD)"), [*rows, total])


def _years_caveat(figures: Figures) -> Iterator[str]:
    last_day = figures.totals.last_day
    if (last_day.month, last_day.day) != (12, 31):
        yield f"The last invoice is of {_day(last_day)}, so {last_day.year} may not be complete."


def _countries_table(figures: Figures) -> str:
    whole, last = figures.totals.cents, figures.years[-1].year
    rows = [
        (
            _text(country.country),
            f"{country.invoices:,}",
            _plain(country.cents),
            _share(country.cents, whole),
            _plain(country.cents_before),
            _plain(country.cents_last),
            _signed(country.gain),
        )
        for country in figures.countries
    ]
    before, after = sum(country.cents_before for country in figures.countries), figures.years[-1].cents
    total = (
        "Total",
        f"{figures.totals.invoices:,}",
        _plain(whole),
        "100.0%",
        _plain(before),
        _plain(after),
        _signed(after - before),
    )
    header = ("Country", "Invoices", "Sales (USD)", "Share", f"{last - 1} (USD)", f"{last} (USD)", "Change (USD)")
    return _table(header, [*rows, total])


def _genres_table(figures: Figures) -> str:
    whole = figures.totals.cents
    rows = [
        (
            _text(genre.genre),
            f"{genre.items:,}",
            _plain(genre.cents),
            _share(genre.cents, whole),
            _plain(genre.cents / genre.items),
        )
        for genre in figures.genres
    ]
    total = ("Total", f"{figures.totals.items:,}", _plain(whole), "100.0%", _plain(whole / figures.totals.items))
    return _table(("Genre", "Items", "Sales (USD)", "Share", "Average price (USD)"), [*rows, total])


def _notes_section(notes: Sequence[str]) -> Iterator[str]:
    if notes:
        yield "## Notes"
        yield "Asked for while the report was being made:"
        yield from ("\n".join(f"> {_text(line)}" for line in note.splitlines() or [""]) for note in notes)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table that is in line also as plain text: the first column to the left, the figures to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    ruler = [f":{'-' * (widths[0] - 1)}", *(f"{'-' * (width - 1)}:" for width in widths[1:])]
    lines = [_cells(header, widths), f"| {' | '.join(ruler)} |", *(_cells(row, widths) for row in rows)]
    return "\n".join(lines)


def _cells(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cells[0].ljust(widths[0]),
        *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)),
    ]
    return f"| {' | '.join(padded)} |"


def _summary(figures: Figures) -> Mapping[str, object]:
    totals = figures.totals
    return {
        "currency": "USD",
        "first_day": str(totals.first_day),
        "last_day": str(totals.last_day),
        "total_sales": totals.cents / 100,
        "invoices": totals.invoices,
        "items": totals.items,
        "years": [{"year": year.year, "invoices": year.invoices, "sales": year.cents / 100} for year in figures.years],
        "countries": [
            {"country": country.country, "invoices": country.invoices, "sales": country.cents / 100}
            for country in figures.countries
        ],
        "genres": [
            {"genre": genre.genre, "items": genre.items, "sales": genre.cents / 100} for genre in figures.genres
        ],
    }


def _text(text: str) -> str:
    """Return words that came from outside so that they are shown as they are: nothing in them is a mark of Markdown."""
    return re.sub(r"([\\`*_\[\]<>|#~!])", r"\\\1", text)


def _usd(cents: float) -> str:
    return f"${_plain(cents)}"


def _plain(cents: float) -> str:
    return f"{cents / 100:,.2f}"


def _signed(cents: int) -> str:
    return f"{'−' if cents < 0 else '+' if cents > 0 else '±'}{_plain(abs(cents))}"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def _change(after: int, before: int) -> str:
    return f"{'−' if after < before else '+'}{_share(abs(after - before), before)}" if before else "–"


def _day(day: date) -> str:
    return f"{day.day} {day:%B} {day.year}"


def _span(figures: Figures) -> str:
    first, last = figures.totals.first_day.year, figures.totals.last_day.year
    return str(last) if first == last else f"{first}–{last}"
