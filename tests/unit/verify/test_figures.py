"""Figures are read as people write them, exactly, and nothing else is taken for one."""

from decimal import Decimal

import pytest

from checkrein.verify.figures import exact, find_figure, parse_decimal, parse_figure, shown


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2328.60", "2328.60"),
        ("$2,328.60", "2328.60"),
        ("2.328,60 €", "2328.60"),
        ("2 328,60", "2328.60"),
        ("2\u202f328,60 €", "2328.60"),
        ("1'234.50", "1234.50"),
        ("1,234", "1234"),
        ("1,234,567.89", "1234567.89"),
        ("1.234.567", "1234567"),
        ("1.234", "1.234"),
        ("0,123", "0.123"),
        ("2328,60", "2328.60"),
        ("US$5", "5"),
        ("USD2,328.60", "2328.60"),
        ("2328.60 USD", "2328.60"),
        ("12 %", "12"),
        (".5", "0.5"),
        ("-5", "-5"),
        ("−5", "-5"),
        ("-$5.00", "-5.00"),
        ("$-5", "-5"),
        ("+7", "7"),
    ],
)
def test_a_cell_is_read_as_people_write_figures(text: str, value: str) -> None:
    assert parse_figure(text) == Decimal(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "abc",
        "Q1",
        "12k",
        "2nd",
        "1.2.3",
        "2,32,1",
        "2,328,60",
        "1,234.56.7",
        "1-2",
        "5 apples",
        "NaN",
        "9" * 61,
        "١٢",
    ],
)
def test_what_is_not_one_figure_is_none(text: str) -> None:
    assert parse_figure(text) is None


@pytest.mark.parametrize(
    ("text", "value", "line"),
    [
        ("**Total sales:** $2,328.60 in all", "2328.60", 1),
        ("Total sales - 2,328.60.", "2328.60", 1),
        ("Total sales:-5", "-5", 1),
        ("Total sales | 2,328.60 |", "2328.60", 1),
        ("Total sales _2,328.60_", "2328.60", 1),
        ("## Total sales\n\n2,328.60 USD", "2328.60", 3),
        ("in Q1 the 2nd of v1.2.3 in file_2 was 7", "7", 1),
        ("24 412", "24", 1),
        ("in 2021, 300 were sold", "2021", 1),
    ],
)
def test_the_first_figure_of_running_text_is_found(text: str, value: str, line: int) -> None:
    found = find_figure(text, 0)
    assert found is not None
    assert (found.value, found.line) == (Decimal(value), line)


def test_a_text_without_a_figure_has_none() -> None:
    assert find_figure("no figure, only Q1 and 2nd", 0) is None


@pytest.mark.parametrize(
    ("text", "value"), [("1.98", "1.98"), (" -2 ", "-2"), ("1e3", "1000"), ("+.5", "0.5"), ("5.", "5")]
)
def test_a_machines_cell_is_a_plain_decimal(text: str, value: str) -> None:
    assert parse_decimal(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "1,000", "$1", "NaN", "Infinity", "1e999999999", "0x10", "1_000", "9" * 101, "٣"])
def test_a_machines_cell_is_nothing_else(text: str) -> None:
    assert parse_decimal(text) is None


def test_sums_are_exact_even_between_the_largest_and_the_smallest_figure() -> None:
    large, small = Decimal("9" * 100 + "e99"), Decimal("." + "0" * 99 + "1e-99")
    with exact():
        assert (large * large + small * small) - large * large == small * small


def test_a_figure_is_shown_with_its_decimals_and_never_wider_than_a_column() -> None:
    assert shown(Decimal("2328.60")) == "2328.60"
    assert len(shown(Decimal("1e99"))) <= 40
