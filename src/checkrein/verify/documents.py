"""Parses PDF, XLSX and XML: the formats of the extra `documents`, whose libraries are loaded when the first such file is read.

Archives and XML are bombs until shown otherwise: what an archive unpacks to is bounded before it is unpacked, and no XML that declares entities is read. XML is
streamed, never held as a tree.
"""

import io
import zipfile
import zlib
from typing import Final
from xml.sax import SAXException
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl

from checkrein.verify.artifacts import Unmet

__all__ = ["is_installed", "read_document"]

MAX_UNPACKED_BYTES: Final = 128 * 1024 * 1024
MAX_MEMBERS: Final = 10_000
MAX_PAGES: Final = 5_000
MAX_CELLS: Final = 5_000_000

# What the libraries let through for damaged files besides their own errors.
_FOREIGN: Final = (
    ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, OSError, RuntimeError, TypeError, ValueError, zlib.error,
)  # fmt: skip


def is_installed(format_: str) -> bool:
    """Tell whether the libraries for `xml`, `pdf` or `xlsx` can be loaded."""
    try:
        _load(format_)
    except ImportError:
        return False
    return True


def _load(format_: str) -> tuple[object, ...]:
    if format_ == "pdf":
        from pypdf import PdfReader

        return (PdfReader,)
    from defusedxml import DefusedXmlException

    if format_ == "xlsx":
        from openpyxl import load_workbook

        return (DefusedXmlException, load_workbook)
    return (DefusedXmlException,)


def read_document(content: bytes, path: str, format_: str) -> str:
    """Parse a document to its end and return in words what it holds.

    Raises:
        Unmet: `not_xml`, `not_pdf`, `not_xlsx` when it does not parse, `empty` when nothing is in it, `too_large` when it unpacks to more than is read.
    """
    if format_ == "pdf":
        return _read_pdf(content, path)
    return _read_xlsx(content, path) if format_ == "xlsx" else _read_xml(content, path)


def _read_xml(content: bytes, path: str) -> str:
    from defusedxml import DefusedXmlException
    from defusedxml.sax import parseString

    counter = _Counter()
    try:
        # A document type may name its definition elsewhere, as every SVG does; the parser passes over it without fetching.
        parseString(content, counter, forbid_external=False)
    except (SAXException, DefusedXmlException, ValueError, LookupError) as error:
        raise Unmet("not_xml", f"{path} is not XML: {error}") from error
    return f"XML with {counter.elements:,} elements, the outermost <{counter.root}>"


class _Counter(ContentHandler):
    """Counts elements and keeps nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0
        self.root = ""

    def startElement(self, name: str, attrs: AttributesImpl) -> None:  # noqa: N802, ARG002  the parser calls it so
        """Count one."""
        self.root = self.root or name
        self.elements += 1


def _read_pdf(content: bytes, path: str) -> str:
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    shown = 0
    try:
        reader = PdfReader(io.BytesIO(content), strict=True)
        count = len(reader.pages)
        if count > MAX_PAGES:
            raise Unmet("too_large", f"{path} has {count:,} pages, more than the {MAX_PAGES:,} that are read")
        for page in reader.pages:
            contents = page.get_contents()
            shown += bool(contents is not None and contents.get_data().strip())
    except (PyPdfError, *_FOREIGN) as error:
        raise Unmet("not_pdf", f"{path} is not PDF: {error}") from error
    if not shown:
        raise Unmet("empty", f"{path} has {count} pages with nothing on them")
    return f"PDF with {count:,} pages, {shown:,} of them with content"


def _read_xlsx(content: bytes, path: str) -> str:
    from defusedxml import DefusedXmlException
    from openpyxl import load_workbook
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        _refuse_bomb(content, path)
        book = load_workbook(io.BytesIO(content), read_only=True, data_only=True)
        try:
            filled = 0
            for sheet in book.worksheets:
                for row in sheet.iter_rows(values_only=True):
                    filled += sum(1 for value in row if value is not None)
                    if filled > MAX_CELLS:
                        raise Unmet("too_large", f"{path} has more than {MAX_CELLS:,} cells")
            count = len(book.worksheets)
        finally:
            book.close()
    except (zipfile.BadZipFile, InvalidFileException, DefusedXmlException, SyntaxError, *_FOREIGN) as error:
        raise Unmet("not_xlsx", f"{path} is not XLSX: {error}") from error
    if not filled:
        raise Unmet("empty", f"{path} has no filled cell")
    return f"XLSX with {count:,} sheets and {filled:,} filled cells"


def _refuse_bomb(content: bytes, path: str) -> None:
    """Refuse an archive that unpacks to too much, and one whose checksums are wrong; a member never unpacks to more than it announces."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        unpacked = sum(member.file_size for member in members)
        if unpacked > MAX_UNPACKED_BYTES or len(members) > MAX_MEMBERS:
            raise Unmet(
                "too_large", f"{path} unpacks to {unpacked:,} bytes in {len(members):,} parts, more than is read"
            )
        damaged = archive.testzip()
    if damaged is not None:
        raise Unmet("not_xlsx", f"{path} is damaged: the checksum of {damaged!r} is wrong")
