"""The check `file`: what does not parse, is empty, or lacks a part is found, in every format."""

import io
from pathlib import Path

import pytest
from PIL import Image

from tests.unit.verify.measuring import measure, refused, write

REPORT = """# Report

## Summary

All is well.

## Sales by year

### Detail

| Year | Sales |
|---|---|
| 2021 | 5 |
"""


def _png(size: tuple[int, int] = (8, 8)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, "red").save(file, "PNG")
    return file.getvalue()


SOUND: list[tuple[str, str | bytes, dict[str, object]]] = [
    ("report.md", REPORT, {"format": "markdown", "sections": ["Summary", "sales  by year"]}),
    ("data.json", '{"a": {"b/c": [1]}}', {"format": "json", "keys": ["a", "/a/b~1c/0"]}),
    ("data.csv", 'a,b\n1,"x\ny"\n\n', {"format": "csv", "columns": ["b"]}),
    ("page.html", "<!doctype html><p>one<ul><li>x<li>y</ul><img src=a.png><br>", {"format": "html"}),
    ("note.txt", "caf\u00e9", {"format": "text"}),
    ("answer", "Sales rose.", {"format": "text", "min_bytes": 11}),
    ("chart.png", _png(), {"format": "png"}),
    ("anything", b"\x00\x01", {}),
]

UNSOUND: list[tuple[str, str | bytes, dict[str, object]]] = [
    ("empty", "", {}),
    ("empty", " \n\t", {}),
    ("empty", b"\0" * 100, {}),
    ("empty", b"\xef\xbb\xbf\n", {"format": "text"}),
    ("too_small", "x", {"min_bytes": 2}),
    ("not_text", b"\xff\xfe", {"format": "markdown"}),
    ("empty", "# Title\n\n## Summary\n", {"format": "markdown"}),
    ("empty", "<!-- nothing to see -->\n", {"format": "markdown"}),
    ("missing_section", "# Title\n\ntext\n", {"format": "markdown", "sections": ["Summary"]}),
    ("missing_section", "text\n\n```\n# Summary\n```\n", {"format": "markdown", "sections": ["Summary"]}),
    ("empty_section", "# Summary\n\n# Other\n\ntext\n", {"format": "markdown", "sections": ["Summary"]}),
    ("empty_section", "text\n\n# Summary\n\n## Detail\n", {"format": "markdown", "sections": ["Summary"]}),
    ("not_json", "{", {"format": "json"}),
    ("not_json", "NaN", {"format": "json"}),
    ("not_json", '{"a": 1, "a": 2}', {"format": "json"}),
    ("not_json", "[" * 100_000, {"format": "json"}),
    ("not_json", "1" * 100_000, {"format": "json"}),
    ("missing_key", '{"a": 1}', {"format": "json", "keys": ["b"]}),
    ("missing_key", "[1]", {"format": "json", "keys": ["/1"]}),
    ("missing_key", "[1]", {"format": "json", "keys": ["a"]}),
    ("not_csv", "a,b\n1\n", {"format": "csv"}),
    ("not_csv", "a,a\n1,2\n", {"format": "csv"}),
    ("not_csv", 'a,b\n"1,2\n', {"format": "csv"}),
    ("not_csv", "a,\n1,2\n", {"format": "csv"}),
    ("not_csv", "a\n" + "x" * 200_000, {"format": "csv"}),
    ("no_rows", "a,b\n", {"format": "csv"}),
    ("missing_column", "a,b\n1,2\n", {"format": "csv", "columns": ["c"]}),
    ("not_html", "just text", {"format": "html"}),
    ("not_html", "<div><b>x</div>", {"format": "html"}),
    ("not_html", "<p>x</p></section>", {"format": "html"}),
    ("not_html", "<p>x <!-- no end", {"format": "html"}),
    ("not_html", "<p>x</p><![\x01 x ]>", {"format": "html"}),
    ("empty", "<html><body></body></html>", {"format": "html"}),
    ("not_text", b"a\0b", {"format": "text"}),
    ("not_image", _png()[:-20], {"format": "png"}),
    ("not_image", b"<svg/>", {"format": "png"}),
    ("not_image", _png(), {"format": "jpeg"}),
]


@pytest.mark.parametrize(("name", "content", "options"), SOUND)
async def test_a_sound_file_passes_and_the_text_says_what_was_measured(
    name: str, content: str | bytes, options: dict[str, object], tmp_path: Path
) -> None:
    write(tmp_path, name, content)
    measured = await measure("file", {"path": name, **options}, tmp_path)
    assert measured.passed, measured.text
    assert measured.text.startswith(f"{name} has ")
    assert measured.code == ""


@pytest.mark.parametrize(("code", "content", "options"), UNSOUND)
async def test_an_unsound_file_is_found_by_its_code(
    code: str, content: str | bytes, options: dict[str, object], tmp_path: Path
) -> None:
    write(tmp_path, "artifact", content)
    measured = await measure("file", {"path": "artifact", **options}, tmp_path)
    assert (measured.passed, measured.code) == (False, code)
    assert "artifact" in measured.text


async def test_a_missing_section_is_named_with_the_headings_that_are_there(tmp_path: Path) -> None:
    write(tmp_path, "report.md", REPORT)
    options = {"path": "report.md", "format": "markdown", "sections": ["Genres"]}
    measured = await measure("file", options, tmp_path)
    assert "lacks the section “Genres”; its headings: “Report”, “Summary”" in measured.text
    assert measured.data == {"missing": ["Genres"]}


@pytest.mark.parametrize(
    ("options", "key", "words"),
    [
        ({"sections": ["A"]}, "sections", 'give format = "markdown"'),
        ({"format": "markdown", "keys": ["a"]}, "keys", 'give format = "json"'),
        ({"format": "json", "columns": ["a"]}, "columns", 'give format = "csv"'),
        ({"format": "markdown", "sections": [" "]}, "sections", "empty name"),
        ({"format": "json", "keys": ["/a~2"]}, "keys", "neither `~0` nor `~1`"),
        ({"min_bytes": 0}, "min_bytes", "1 or more"),
        ({"format": "docx"}, "format", "docx"),
    ],
)
def test_options_that_no_file_can_meet_are_refused(options: dict[str, object], key: str, words: str) -> None:
    error = refused("file", {"path": "report.md", **options})
    assert (error.source, error.key) == ("task.toml", key)
    assert words in str(error)
