"""docs/checks.md tells everything: every kind, option and code, and every example holds."""

import csv
import json
import re
import tomllib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.inspect import StructType, Type, UnionType, type_info
from PIL import Image, ImageDraw

from checkrein.verify import KINDS, make_check
from checkrein.verify.sources import Amounts, Counted, Groups, Selection
from tests.docs.pages import Block, blocks
from tests.unit.verify.measuring import INPUTS, ROOT, context, write

PAGE = ROOT / "docs" / "checks.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = [block for block in blocks(PAGE) if block.language == "toml"]
IN_CODE = re.compile(r"[\w/]+\.py:\w+")
CODE = re.compile(r'(?:Unmet|finding|_Broken|_object)\(\s*"(\w+)"')


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task's folder with a right run in it."""
    task = tmp_path_factory.mktemp("task")
    run = task / "run"
    years: dict[str, Decimal] = {}
    countries: dict[str, Decimal] = {}
    with INPUTS["invoices"].open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            years[row["date"][:4]] = years.get(row["date"][:4], Decimal(0)) + Decimal(row["total"])
            countries[row["country"]] = countries.get(row["country"], Decimal(0)) + Decimal(row["total"])
    with INPUTS["lines"].open(encoding="utf-8", newline="") as file:
        lines = [row for row in csv.DictReader(file) if row["genre"] in {"Rock", "Metal"}]
    rock = sum(Decimal(row["unit_price"]) * int(row["quantity"]) for row in lines)
    rows = "".join(f"| {year} | ${figure} |\n" for year, figure in years.items())
    write(
        run,
        "report.md",
        f"# Report\n\n## Summary\n\nTotal sales: ${sum(years.values()):,}\n\n![chart](charts/sales-by-year.png)\n\n"
        f"## Sales by year\n\n| Year | Sales |\n|---|---|\n{rows}| Total | ${sum(years.values()):,} |\n",
    )
    summary = {"total": 2328.60, "rock_and_metal": float(rock), "by_year": {"2021": float(years["2021"])}}
    write(run, "summary.json", json.dumps(summary))
    write(
        run, "by_country.csv", "country,sales\n" + "".join(f"{name},{figure}\n" for name, figure in countries.items())
    )
    write(run, "answer", "Sales rose.")
    picture = Image.new("RGB", (400, 300), "white")
    ImageDraw.Draw(picture).line((0, 300, 400, 0), fill="blue")
    (run / "charts").mkdir()
    picture.save(run / "charts" / "sales-by-year.png")
    write(task, "summary.schema.json", '{"type": "object", "required": ["total", "by_year"]}')
    write(
        task,
        "check_report.py",
        "import os, sys\nassert os.environ['STRICT'] == '1' and all(map(os.path.isfile, sys.argv[1:]))\n",
    )
    return task


@pytest.mark.parametrize("block", EXAMPLES, ids=lambda block: block.place)
async def test_every_example_holds_on_a_right_run(block: Block, sample: Path) -> None:
    declared = tomllib.loads(block.text)["check"]
    assert declared
    for options in declared:
        kind = options.pop("kind")
        if not IN_CODE.fullmatch(kind):
            made = make_check(kind, options, source=block.place, base=sample, inputs=INPUTS)
            measured = await made.measure(context(sample / "run"))
            assert measured.passed, measured.text


def test_every_kind_has_an_example() -> None:
    shown = {options["kind"] for block in EXAMPLES for options in tomllib.loads(block.text)["check"]}
    assert set(KINDS) <= shown


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_option_of_a_kind_is_documented_and_no_other(kind: str) -> None:
    struct = type_info(KINDS[kind])
    assert isinstance(struct, StructType)
    assert set(_options(struct)) - {"title"} == _rows(f"`{kind}`")


def test_every_option_of_a_source_is_documented_and_no_other() -> None:
    fields = {name for struct in (Amounts, Groups, Counted) for name in struct.__struct_fields__}
    assert fields == _rows("Sources")


def test_every_code_of_a_finding_is_documented_and_no_other() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src/checkrein/verify").glob("*.py")))
    chosen = {"broken_link", "too_small"}  # by a condition, so not right behind the bracket
    used = set(CODE.findall(source)) | chosen
    documented = {code for line in _section("Codes of findings") for code in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert documented == used


def _options(struct: StructType, prefix: str = "") -> Iterator[str]:
    for field in struct.fields:
        inner = _struct_in(field.type)
        if inner is not None and not issubclass(inner.cls, Selection):
            yield from _options(inner, f"{prefix}{field.encode_name}.")
        else:
            yield f"{prefix}{field.encode_name}"


def _struct_in(type_: Type) -> StructType | None:
    candidates = type_.types if isinstance(type_, UnionType) else (type_,)
    return next((candidate for candidate in candidates if isinstance(candidate, StructType)), None)


def _section(heading: str) -> list[str]:
    """Return the lines of the first table under a heading."""
    text = re.split(rf"^## {re.escape(heading)}$", TEXT, flags=re.MULTILINE)[1].split("\n## ")[0]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table
    return table.group().splitlines()[2:]


def _rows(heading: str) -> set[str]:
    return {line.split("|")[1].strip().strip("`") for line in _section(heading)}
