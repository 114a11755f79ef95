"""What the report says: its text, the contents of its charts, and its figures as an export for programs.

All of it is a function of the figures and of the notes that people sent, so the same figures give the same bytes. Words that came from outside are shown as they
are and never read as Markdown.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import pairwise

from .figures import Figures, Year

SUMMARY = "summary.json"
YEARS_CHART, COUNTRIES_CHART = "charts/sales-by-year.png", "charts/sales-by-country.png"
TOP_COUNTRIES = 5
TOP_GENRES = 4
CHARTED_COUNTRIES = 10


def years_chart(figures: Figures) -> Mapping[str, object]:
    """Return what the chart of years shows."""
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


def countries_chart(figures: Figures) -> Mapping[str, object]:
    """Return what the chart of countries shows: the largest, and the others together."""
    whole = figures.totals.cents
    largest, rest = figures.countries[:CHARTED_COUNTRIES], figures.countries[CHARTED_COUNTRIES:]
    bars = [_bar(country.country, country.cents, whole) for country in largest]
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
    return _top([country.cents for country in figures.countries], TOP_COUNTRIES, "country", "countries")


def _top(cents: Sequence[int], top: int, one: str, many: str) -> str:
    if len(cents) <= top:
        return f"All sales come from {_counted(len(cents), one, many)}"
    return f"The top {top} of {len(cents)} {many} bring {_share(sum(cents[:top]), sum(cents))} of sales"


def report(figures: Figures, notes: Sequence[str]) -> str:
    """Return the report as Markdown."""
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
        f"**Total sales: {_usd(totals.cents)}** from {_counted(totals.invoices, 'invoice')} for {_counted(totals.items, 'item')}, "
        f"sold in {_counted(totals.countries, 'country', 'countries')} "
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
    top = ", ".join(
        f"{_text(country.country)} {_share(country.cents, totals.cents)}" for country in countries[:TOP_COUNTRIES]
    )
    yield f"**Markets:** {_countries_headline(figures)}: {top}."
    leaders = ", ".join(f"{_text(genre.genre)} {_share(genre.cents, totals.cents)}" for genre in genres[:TOP_GENRES])
    yield f"**Catalogue:** {_top([genre.cents for genre in genres], TOP_GENRES, 'genre', 'genres')}: {leaders}."
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
        yield from (f"> “{_text(note)}”" for note in notes)


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


def summary(figures: Figures) -> Mapping[str, object]:
    """Return the figures as the export holds them."""
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
    """Return words that came from outside on one line and so that they are shown as they are: nothing in them is a mark of Markdown."""
    return re.sub(r"([\\`*_\[\]<>|#~!]|&(?=#?\w+;))", r"\\\1", " ".join(text.split()))


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


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
