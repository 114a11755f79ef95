"""CSV files as typed tables: exact or an error, never a guess."""

from pathlib import Path

import pytest

from checkrein.errors import ToolError
from checkrein.toolkit.tables import Cell, Source, find_sources, load


def source(tmp_path: Path, content: str | bytes) -> Source:
    data = content.encode() if isinstance(content, str) else content
    (tmp_path / "t.csv").write_bytes(data)
    return Source("t", "t.csv", tmp_path)


def column(tmp_path: Path, *cells: str) -> tuple[str, list[Cell]]:
    lines = "\n".join(f"x,{cell}" for cell in ("c", *cells))
    table = load(source(tmp_path, lines + "\n"))
    return table.columns[1].type, [row[1] for row in table.rows()]


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (("1", "-2", "0"), "integer", [1, -2, 0]),
        (("1", "", "3"), "integer", [1, None, 3]),
        (("9007199254740991",), "integer", [9007199254740991]),
        (("1", "2.5"), "real", [1.0, 2.5]),
        (("1e3", "-0.5E-2"), "real", [1000.0, -0.005]),
        (("0.1", "0.30000000000000004"), "real", [0.1, 0.30000000000000004]),
        (("3.90",), "real", [3.9]),
        (("007", "1"), "text", ["007", "1"]),
        (("00.5",), "text", ["00.5"]),
        (("+1",), "text", ["+1"]),
        (("1,",), "text", None),
        ((" 1",), "text", [" 1"]),
        (("9007199254740992",), "text", ["9007199254740992"]),
        (("1", "9007199254740993", "2.5"), "text", ["1", "9007199254740993", "2.5"]),
        (("5e-400",), "text", ["5e-400"]),
        (("12345678901234567890",), "text", ["12345678901234567890"]),
        (("0.12345678901234567",), "text", ["0.12345678901234567"]),
        (("1e999",), "text", ["1e999"]),
        (("nan", "inf"), "text", ["nan", "inf"]),
        (("٣",), "text", ["٣"]),
        (("2021-01-01",), "text", ["2021-01-01"]),
        (("0x10", "1_000"), "text", ["0x10", "1_000"]),
        (("true",), "text", ["true"]),
        (("", ""), "text", [None, None]),
    ],
)
def test_a_column_is_a_number_only_when_every_cell_is_one_that_comes_back(
    tmp_path: Path, cells: tuple[str, ...], kind: str, values: list[Cell] | None
) -> None:
    if values is None:
        with pytest.raises(ToolError, match="3 instead of 2 cells"):
            column(tmp_path, *cells)
        return
    assert column(tmp_path, *cells) == (kind, values)


def test_quotes_line_breaks_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    table = load(source(tmp_path, '\ufeffa,b\r\n"x ""y"", z","two\nlines"\r\n\r\n1,2'))
    assert [item.name for item in table.columns] == ["a", "b"]
    assert list(table.rows()) == [('x "y", z', "two\nlines"), ("1", "2")]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_read_off_the_header(tmp_path: Path, delimiter: str) -> None:
    table = load(source(tmp_path, f"a{delimiter}b{delimiter}c\n1{delimiter}2{delimiter}3\n"))
    assert list(table.rows()) == [(1, 2, 3)]


def test_names_are_made_different_whatever_their_case(tmp_path: Path) -> None:
    table = load(source(tmp_path, "a,A,,a_2, a ,é,É\n"))
    assert [item.name for item in table.columns] == ["a", "A_2", "column_3", "a_2_2", "a_3", "é", "É"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no header line"),
        ("\n\n", "has no header line"),
        ("a,b\n1,2\n1\n", "line 3: 1 instead of 2 cells"),
        ("a,b\n1,2,3\n", "line 2: 3 instead of 2 cells"),
        ('a,b\n1,"2\n', "line 2: unexpected end of data"),
        ('a,b\n1,"2"x\n', "line 2: ',' expected after '\"'"),
        (b"a,b\n1,\xff\n", "is no UTF-8 text"),
        ("a\n" + "x" * 200_000 + "\n", "field larger than field limit"),
        (",".join("a" * 1_001) + "\n", "1,001 columns"),
    ],
)
def test_a_table_that_cannot_be_read_exactly_is_an_error_with_its_place(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    with pytest.raises(ToolError, match="table t") as caught:
        load(source(tmp_path, content))
    assert message in str(caught.value)


def test_a_table_too_large_to_hold_is_an_error(tmp_path: Path) -> None:
    made = source(tmp_path, "a\n1\n")
    with (tmp_path / "t.csv").open("r+b") as file:
        file.truncate(64 * 1024 * 1024 + 1)
    with pytest.raises(ToolError, match="larger than 67,108,864 bytes"):
        load(made)


def test_only_inputs_that_end_like_tables_are_tables(tmp_path: Path) -> None:
    inputs = {"A": tmp_path / "a.csv", "b": tmp_path / "b.TSV", "c": tmp_path / "c.json"}
    tables, refused = find_sources(tmp_path, inputs)
    assert (sorted(tables), refused) == (["a", "b"], {})


def test_names_that_no_table_can_have_are_said(tmp_path: Path) -> None:
    (tmp_path / "sqlite_master.csv").write_text("a\n", encoding="utf-8")
    (tmp_path / ".csv").write_text("a\n", encoding="utf-8")
    tables, refused = find_sources(tmp_path, {})
    assert (tables, sorted(refused)) == ({}, ["", "sqlite_master"])
