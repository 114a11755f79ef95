"""CSV that people and programs write is read exactly; anything else is an error."""

import csv
import io
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings, strategies as st

from checkrein.errors import ToolError
from checkrein.toolkit.tables import Source, Table, load

CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n"), max_size=8) | st.sampled_from(
    [
        "1",
        "007",
        "1.10",
        "-0",
        "0",
        "1e5",
        "9007199254740993",
        "",
        "NaN",
        '"',
        ",",
        ";",
        "\t",
        " 1",
        "1.0000000000000001",
    ]
)
NUMBERS = st.integers(-(2**60), 2**60).map(str) | st.decimals(allow_nan=False, allow_infinity=False).map(str)


def table(content: bytes) -> Table:
    with TemporaryDirectory() as name:
        (Path(name) / "t.csv").write_bytes(content)
        return load(Source("t", "t.csv", Path(name)))


def written(rows: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    return text.getvalue().encode()


@settings(max_examples=400)
@given(
    rows=st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=6))
)
def test_cells_come_back_as_they_were_written_or_as_the_same_number(rows: list[list[str]]) -> None:
    width = len(rows[0]) if rows else 1
    read = list(table(written([[f"c{index}" for index in range(width)], *rows])).rows())
    assert len(read) == len(rows)
    for cells, values in zip(rows, read, strict=True):
        for cell, value in zip(cells, values, strict=True):
            assert (value is None) == (cell == "")
            if isinstance(value, str):
                assert value == cell
            elif value is not None:
                assert Decimal(repr(value)) == Decimal(cell)
                assert not cell.lstrip("-").startswith(("00", "01", "07"))


@settings(max_examples=300)
@given(cells=st.lists(NUMBERS, min_size=1, max_size=5))
def test_a_number_is_never_changed(cells: list[str]) -> None:
    for cell, (value,) in zip(cells, table(written([["n"], *([cell] for cell in cells)])).rows(), strict=True):
        assert Decimal(str(value)) == Decimal(cell)


@settings(max_examples=400)
@given(content=st.binary(max_size=200) | st.text('a,;\t"\n\r1 é', max_size=60).map(str.encode))
def test_any_bytes_are_a_table_or_an_error(content: bytes) -> None:
    try:
        made = table(content)
    except ToolError:
        return
    assert all(len(row) == len(made.columns) for row in made.rows())
    assert len({column.name.lower() for column in made.columns}) >= 1
