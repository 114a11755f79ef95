"""Whatever bytes and paths a tool leaves behind, a check answers with a measurement, and never reads outside the run's folder."""

import asyncio
import io
import os
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from PIL import Image

from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.verify import make_check
from checkrein.verify.artifacts import Unmet, read_artifact

KINDS: list[tuple[str, dict[str, object]]] = [
    *(
        ("file", {"format": format_})
        for format_ in ("", "markdown", "json", "csv", "html", "text", "png", "xml", "pdf", "xlsx")
    ),
    ("image", {}),
    ("json_schema", {"schema": {"type": "object", "required": ["a"]}}),
    ("links", {}),
    (
        "table",
        {
            "rows": 2,
            "total": {"column": "b"},
            "groups": {"key": "a", "column": "b", "source": {"path": "x.csv", "by": "a"}},
        },
    ),
    ("sql", {"query": "select count(*) = 1 from x"}),
    ("checksum", {"sha256": "0" * 64}),
]


def _png() -> bytes:
    file = io.BytesIO()
    Image.linear_gradient("L").resize((16, 16)).save(file, "PNG")
    return file.getvalue()


SEEDS = [
    _png(),
    b'{"a": [1, "x", null]}',
    b"a,b\n1,2\n3,4\n",
    b"# A\n\n| a | b |\n|---|---|\n| 1 | $2 |\n\n[x](y) ![z](x.csv)\n",
    b"<html><body><p>x<a href='y'>z</a></body></html>",
    b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
    b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\ntrailer\n<< /Root 1 0 R >>\n%%EOF",
    b"PK\x03\x04\x14\0\0\0\x08\0",
]
TOKENS = [
    b"\0",
    b"\xff",
    b"<",
    b">",
    b"{",
    b'"',
    b"|",
    b"\n",
    b"[",
    b"](",
    b"&",
    b"%00",
    b"../",
    b"\xef\xbb\xbf",
    b"1" * 400,
    b"[" * 500,
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A sound artifact with pieces cut out and others put in."""
    content = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.integers(0, 20)))
        content = content[:start] + draw(st.sampled_from(TOKENS) | st.binary(max_size=8)) + content[end:]
    return content


@contextmanager
def _folder(files: Mapping[str, bytes]) -> Generator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "run")
        folder.mkdir()
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        yield folder


def _measured(kind: str, options: Mapping[str, object], folder: Path) -> Measurement:
    made = make_check(kind, options, source="task.toml", base=folder)
    return asyncio.run(made.measure(CheckContext(folder=folder, inputs={}, timeout_seconds=30)))


@pytest.mark.parametrize(("kind", "options"), KINDS, ids=lambda value: str(value)[:40])
@given(content=st.binary(max_size=200) | damaged())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_any_bytes_are_measured_by_every_kind(kind: str, options: dict[str, object], content: bytes) -> None:
    with _folder({"x.csv": content}) as folder:
        found = _measured(kind, {"path": "x.csv", **options}, folder)
    assert found.passed == (found.code == "")
    assert found.text


parts = st.sampled_from(
    ["..", ".", "", "run", "inside.md", "outside.md", "sub", "link", "door", "%2e%2e", "%2F", "..%2f", "?x", "#a"]
)


@given(st.lists(parts, min_size=1, max_size=6).map("/".join))
@example("sub/../../outside.md")
@example("door/../outside.md")
def test_no_link_of_a_report_resolves_outside_the_folder(target: str) -> None:
    with _folder({"report.md": f"[x](<{target}>)".encode(), "inside.md": b"x", "sub/inside.md": b"x"}) as folder:
        (folder.parent / "outside.md").write_bytes(b"secret")
        (folder / "link").symlink_to(folder.parent / "outside.md")
        (folder / "door").symlink_to(folder.parent)
        found = _measured("links", {"path": "report.md"}, folder)
        place = unquote(target.partition("#")[0].partition("?")[0])
        lexical = os.path.normpath(folder / place) if place else str(folder / "report.md")
        if found.passed and not found.data["elsewhere"]:
            assert Path(lexical).is_file()
            assert Path(lexical).resolve().is_relative_to(folder.resolve())


@given(st.lists(parts | st.text(max_size=5), min_size=1, max_size=6).map("/".join) | st.text(max_size=40))
def test_no_path_reads_outside_the_folder(path: str) -> None:
    with _folder({"inside.md": b"inside", "sub/inside.md": b"inside"}) as folder:
        (folder.parent / "outside.md").write_bytes(b"secret")
        (folder / "link").symlink_to(folder.parent / "outside.md")
        (folder / "door").symlink_to(folder.parent)
        assert _read(folder, path) in {"inside", "escapes", "missing", "not_a_file"}


def _read(folder: Path, path: str) -> str:
    try:
        return read_artifact(folder, path).decode()
    except Unmet as unmet:
        return unmet.measurement.code


amounts = st.decimals(-9_999, 9_999, allow_nan=False, places=2)


@given(st.lists(amounts, max_size=8), amounts, st.sampled_from(["0", "0.005", "1"]))
def test_a_sum_passes_exactly_when_it_is_within_the_tolerance(
    values: list[Decimal], shift: Decimal, tolerance: str
) -> None:
    reported = sum(values, Decimal(0)) + shift
    source = "amount\n" + "".join(f"{value}\n" for value in values)
    options = {
        "source": {"path": "source.csv", "column": "amount"},
        "reported": {"path": "report.md", "after": "Total"},
        "tolerance": tolerance,
    }
    with _folder({"source.csv": source.encode(), "report.md": f"Total: {reported:,.2f}.".encode()}) as folder:
        found = _measured("sum", options, folder)
    assert found.passed == (abs(shift) <= Decimal(tolerance))


@given(
    st.data(),
    st.dictionaries(st.sampled_from("ABCDEFG"), st.lists(amounts, min_size=1, max_size=3), min_size=1),
    st.sampled_from(["0.00", "0.01"]),
)
def test_groups_pass_in_any_order_and_fail_with_one_changed_figure(
    data: st.DataObject, groups: dict[str, list[Decimal]], change: str
) -> None:
    rows = data.draw(st.permutations([f"{name},{value}\n" for name, values in groups.items() for value in values]))
    shown = {name: sum(values) for name, values in groups.items()}
    shown[min(shown)] += Decimal(change)
    table = "".join(f"| {name} | {value:,.2f} |\n" for name, value in sorted(shown.items(), reverse=True))
    source = {"path": "source.csv", "by": "name", "column": "amount"}
    options = {"path": "report.md", "groups": {"key": "Name", "column": "Sum", "source": source}}
    files = {
        "source.csv": ("name,amount\n" + "".join(rows)).encode(),
        "report.md": f"| Name | Sum |\n|---|---|\n{table}".encode(),
    }
    with _folder(files) as folder:
        found = _measured("table", options, folder)
    assert (found.passed, found.code) == ((True, "") if change == "0.00" else (False, "wrong_figure"))
