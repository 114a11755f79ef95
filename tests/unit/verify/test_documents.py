"""PDF, XLSX and XML: sound files pass, damaged ones, empty ones and bombs are found."""

import io
import zipfile
from pathlib import Path

import pytest
from openpyxl import Workbook
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, NameObject

from tests.unit.verify.measuring import measure, write

BILLION_LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">'
    '<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]><l>&c;</l>'
)
OUTSIDE = '<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a SYSTEM "file:///etc/passwd">]><l>&a;</l>'


def _pdf(text: bytes = b"BT /F1 12 Tf (Sales) Tj ET") -> bytes:
    writer = PdfWriter()
    page = writer.add_blank_page(200, 200)
    if text:
        stream = DecodedStreamObject()
        stream.set_data(text)
        page[NameObject("/Contents")] = stream
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


def _xlsx(*rows: list[object]) -> bytes:
    book = Workbook()
    sheet = book.active
    assert sheet is not None
    for row in rows:
        sheet.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def _zip(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def _with_entities() -> bytes:
    members: dict[str, bytes] = {}
    with zipfile.ZipFile(io.BytesIO(_xlsx(["a", 1]))) as archive:
        for name in archive.namelist():
            members[name] = archive.read(name)
    members["xl/worksheets/sheet1.xml"] = BILLION_LAUGHS.encode()
    return _zip(members)


@pytest.mark.parametrize(
    ("format_", "content", "words"),
    [
        ("pdf", _pdf(), "PDF with 1 pages, 1 of them with content"),
        ("xlsx", _xlsx(["country", "sales"], ["Norway", 20.5]), "XLSX with 1 sheets and 4 filled cells"),
        ("xml", b"<?xml version='1.0'?><a><b/><b>x</b></a>", "XML with 3 elements, the outermost <a>"),
        ("xml", b"<!DOCTYPE svg PUBLIC '-//W3C//DTD SVG 1.1//EN' 'http://127.0.0.1:9/x.dtd'><svg/>", "<svg>"),
    ],
)
async def test_a_sound_document_passes(format_: str, content: bytes, words: str, tmp_path: Path) -> None:
    write(tmp_path, "report", content)
    measured = await measure("file", {"path": "report", "format": format_}, tmp_path)
    assert measured.passed, measured.text
    assert words in measured.text


@pytest.mark.parametrize(
    ("format_", "content", "code"),
    [
        pytest.param("pdf", b"%PDF-1.7\nnothing", "not_pdf", id="pdf"),
        pytest.param("pdf", _pdf()[:-200], "not_pdf", id="cut pdf"),
        pytest.param("pdf", _pdf(b""), "empty", id="blank pdf"),
        pytest.param("xlsx", b"PK\x03\x04 nothing", "not_xlsx", id="xlsx"),
        pytest.param("xlsx", _xlsx(["a"])[:-100], "not_xlsx", id="cut xlsx"),
        pytest.param("xlsx", _xlsx(), "empty", id="blank xlsx"),
        pytest.param("xlsx", _zip({"a.txt": b"x"}), "not_xlsx", id="another archive"),
        pytest.param("xlsx", _zip({"bomb": bytes(200_000_000)}), "too_large", id="archive bomb"),
        pytest.param("xlsx", _with_entities(), "not_xlsx", id="entities in xlsx"),
        pytest.param("xml", b"<a><b></a>", "not_xml", id="xml"),
        pytest.param("xml", b"plain", "not_xml", id="text"),
        pytest.param("xml", BILLION_LAUGHS.encode(), "not_xml", id="entities"),
        pytest.param("xml", OUTSIDE.encode(), "not_xml", id="a file of this machine"),
        pytest.param("xml", b"<?xml version='1.0' encoding='nonsense'?><a/>", "not_xml", id="encoding"),
    ],
)
async def test_a_damaged_empty_or_hostile_document_is_found(
    format_: str, content: bytes, code: str, tmp_path: Path
) -> None:
    write(tmp_path, "report", content)
    measured = await measure("file", {"path": "report", "format": format_}, tmp_path)
    assert (measured.passed, measured.code) == (False, code), measured.text


async def test_a_million_open_elements_are_counted_without_a_tree(tmp_path: Path) -> None:
    write(tmp_path, "deep.xml", b"<a>" * 1_000_000)
    assert (await measure("file", {"path": "deep.xml", "format": "xml"}, tmp_path)).code == "not_xml"


@pytest.mark.parametrize("content", [_pdf(), _xlsx(["a", 1], ["b", 2])], ids=["pdf", "xlsx"])
async def test_a_document_cut_or_changed_anywhere_never_raises(content: bytes, tmp_path: Path) -> None:
    format_ = "pdf" if content.startswith(b"%PDF") else "xlsx"
    step = max(1, len(content) // 150)
    for position in range(0, len(content), step):
        changed = bytearray(content)
        changed[position] ^= 0x55
        for damaged in (content[:position], bytes(changed)):
            write(tmp_path, "report", damaged)
            measured = await measure("file", {"path": "report", "format": format_}, tmp_path)
            assert measured.passed or measured.code in {"empty", "not_pdf", "not_xlsx", "too_large"}
