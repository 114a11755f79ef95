"""Figures, CSV and Markdown read back what was written, and any text at all is read or refused, never a crash."""

import csv
import io
from decimal import Decimal

from hypothesis import assume, example, given, strategies as st

from checkrein.verify.delimited import BadRows, read_rows
from checkrein.verify.figures import exact, find_figure, parse_decimal, parse_figure
from checkrein.verify.markdown import read_markdown
from checkrein.verify.pages import read_page

figures = st.decimals(min_value=-(10**15), max_value=10**15, allow_nan=False, allow_infinity=False, places=2)
signs = st.sampled_from(["", "$", "€", "USD ", "CHF", "US$"])
# What a cell of a Markdown table may hold and still be one cell of plain text.
words = st.text(st.characters(codec="utf-8", categories=("L", "N", "Zs"), exclude_characters="\u0085"), max_size=12)
markup = st.text(st.sampled_from("#|-*_`<>[]()!\\\n\t &;:=+~\"'aé0"), max_size=300)


@given(figures, signs, st.sampled_from([",", "", "\u202f", "’"]))
def test_a_figure_with_a_point_reads_back(value: Decimal, sign: str, separator: str) -> None:
    digits = f"{abs(value):,.2f}".replace(",", separator)
    written = f"{'-' if value < 0 else ''}{sign}{digits}"
    assert parse_figure(written) == value


@given(figures, st.sampled_from([".", "", "\u00a0"]))
def test_a_figure_with_a_decimal_comma_reads_back(value: Decimal, separator: str) -> None:
    whole, _, decimals = f"{abs(value):,.2f}".partition(".")
    written = f"{'−' if value < 0 else ''}{whole.replace(',', separator)},{decimals} €"
    assert parse_figure(written) == value


@given(figures, st.text(st.characters(categories=("L", "Zs", "Po"), exclude_characters=".,'’"), max_size=30))
def test_a_figure_is_found_behind_any_words(value: Decimal, before: str) -> None:
    found = find_figure(f"{before} ${abs(value):,.2f} and 7 more", 0)
    assert found is not None
    assert found.value == abs(value)


@given(st.text() | st.from_regex(r"[-$0-9.,' ]{0,200}"))
def test_any_text_is_a_bounded_figure_or_none(text: str) -> None:
    found = find_figure(text, 0)
    for value in (parse_figure(text), parse_decimal(text), found.value if found else None):
        assert value is None or (value.is_finite() and len(format(value, "f")) <= 310)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**90), max_value=10**90))
def test_a_machines_figure_reads_back(value: Decimal) -> None:
    assume(-99 <= int(value.as_tuple().exponent) <= 99)
    assert parse_decimal(str(value)) == value


@given(st.lists(st.decimals(-(10**50), 10**50, allow_nan=False, places=20), max_size=20))
def test_a_sum_does_not_depend_on_the_order(values: list[Decimal]) -> None:
    with exact():
        assert sum(values) == sum(reversed(values)) == sum(sorted(values))


names = st.lists(words.filter(str.strip), min_size=1, max_size=5, unique_by=str.strip)


@given(st.data(), names)
def test_csv_reads_back(data: st.DataObject, header: list[str]) -> None:
    cell = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=10)
    rows = data.draw(st.lists(st.lists(cell, min_size=len(header), max_size=len(header)), max_size=8))
    file = io.StringIO(newline="")
    writer = csv.writer(file, quoting=csv.QUOTE_ALL)
    writer.writerows([header, *rows])
    found = [list(row.cells) for row in read_rows(io.StringIO(file.getvalue(), newline=""))]
    assert found == [header, *rows]


@given(st.text() | st.text(st.sampled_from('a,"\n\r;'), max_size=100))
@example('"' * 1_000)
def test_any_text_is_rows_of_one_width_or_refused(text: str) -> None:
    try:
        rows = list(read_rows(io.StringIO(text, newline="")))
    except BadRows:
        return
    assert len({len(row.cells) for row in rows}) == 1


@given(st.data(), st.integers(1, 4))
def test_a_markdown_table_reads_back(data: st.DataObject, width: int) -> None:
    cells = st.lists(words.map(lambda text: " ".join(text.split())), min_size=width, max_size=width)
    # A row without a letter may look like the line under the header.
    header = [f"h{cell}" for cell in data.draw(cells)]
    rows = [[f"c{cell}" for cell in row] for row in data.draw(st.lists(cells, max_size=6))]
    lines = [" | ".join(["", *row, ""]).strip() for row in [header, ["---"] * width, *rows]]
    document = read_markdown("# Sales\n\n" + "\n".join(lines) + "\n", "report.md")
    (table,) = document.tables
    assert table.under == ("Sales",)
    assert list(table.header.cells) == header
    assert [list(row.cells) for row in table.rows] == rows


@given(st.lists(st.tuples(st.integers(1, 6), words.filter(str.strip)), min_size=1, max_size=8))
def test_headings_read_back_in_order_with_their_anchors(headings: list[tuple[int, str]]) -> None:
    text = "\n\n".join(f"{'#' * level} h{' '.join(name.split())}" for level, name in headings)
    document = read_markdown(text, "report.md")
    assert [(item.level, item.text) for item in document.headings] == [
        (level, f"h{' '.join(name.split())}") for level, name in headings
    ]
    assert len(document.anchors) == len(headings)
    assert not any(item.has_content for item in document.headings)


@given(st.text() | markup)
@example("[" * 2_000)
@example("*a **a " * 2_000)
@example("> " * 2_000)
@example("|" + "a|" * 200 + "\n|" + "-|" * 200 + "\n" + "|\n" * 200)
def test_any_text_is_a_markdown_document(text: str) -> None:
    document = read_markdown(text, "report.md")
    assert all(len(row.cells) == len(table.header.cells) for table in document.tables for row in table.rows)
    assert all(1 <= heading.level <= 6 for heading in document.headings)


@given(st.text() | st.text(st.sampled_from("<>/!-?='\" abdivp&#;[]"), max_size=300))
@example("<?><![\x01")
@example("<!--" * 50_000)
@example('<a b="' * 50_000)
@example("<![CDATA[" * 50_000)
@example("<a" + " x='" * 50_000)
@example("<div>" * 20_000 + "</p>" * 20_000)
def test_any_text_is_a_page_that_is_sound_or_says_why_not(text: str) -> None:
    page = read_page(text)
    assert all(problem.startswith("line ") for problem in page.problems)
    assert page.elements >= len(page.links)
