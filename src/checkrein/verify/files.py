"""The check `file`: an artifact exists, is not empty, really parses as its format, and has the headings, keys or columns it must have."""

import io
from collections.abc import Callable
from typing import ClassVar, Final, Literal, TypeAlias

from checkrein.errors import MissingExtra
from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.values import JsonObject
from checkrein.verify.artifacts import Unmet, read_artifact, read_text
from checkrein.verify.base import ArtifactCheck, refuse
from checkrein.verify.delimited import BadRows, read_rows
from checkrein.verify.json_values import has_key, pointer_problem, read_json
from checkrein.verify.pages import MAX_PAGE_CHARACTERS, read_page

__all__ = ["FileCheck", "FileFormat"]

FileFormat: TypeAlias = Literal["", "markdown", "json", "csv", "html", "text", "png", "jpeg", "xml", "pdf", "xlsx"]


class FileCheck(ArtifactCheck, frozen=True, kw_only=True):
    """A file exists, is not empty and parses.

    Attributes:
        format: what it must parse as; nothing is parsed when it is not given.
        sections: headings that a Markdown file must have, each with something under it.
        keys: keys that a JSON file must have; JSON Pointers when they begin with `/`.
        columns: columns that a CSV file must have.
        min_bytes: how large it must be.
    """

    name: ClassVar[str] = "file"
    revision: ClassVar[str] = "1"
    format: FileFormat = ""
    sections: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    min_bytes: int = 1

    def validated(self) -> None:
        """Refuse requirements that the format cannot meet.

        Raises:
            TaskError: they are.
            MissingExtra: the format needs an extra that is not installed.
        """
        for key, wanted, format_ in (
            ("sections", self.sections, "markdown"),
            ("keys", self.keys, "json"),
            ("columns", self.columns, "csv"),
        ):
            if wanted and self.format != format_:
                refuse(key, f"needs the format {format_}", f'give format = "{format_}"')
            if any(not name.strip() for name in wanted):
                refuse(key, "has an empty name", "give names, or leave it out")
        for key in self.keys:
            if key.startswith("/") and pointer_problem(key):
                refuse("keys", pointer_problem(key), "write a JSON Pointer as in `/totals/sales`")
        if self.min_bytes < 1:
            refuse("min_bytes", f"is {self.min_bytes}", "give 1 or more: an empty file proves nothing")
        if self.format in _DOCUMENTS:
            _require_documents(self.format)

    def in_words(self) -> str:
        """Return the title."""
        wanted = {"section": self.sections, "key": self.keys, "column": self.columns}
        parts = [f"its {len(names)} {word}{'s' if len(names) > 1 else ''}" for word, names in wanted.items() if names]
        what = f"is {_NAMES.get(self.format, self.format.upper())}" if self.format else "exists and is not empty"
        return f"{self.path} {what}" + (f" with {parts[0]}" if parts else "")

    def look(self, context: CheckContext) -> Measurement:
        """Read the file, weigh it, parse it."""
        content = read_artifact(context.folder, self.path)
        if not content.strip(_NOTHING) or len(content) < self.min_bytes:
            code = "too_small" if content.strip(_NOTHING) else "empty"
            raise Unmet(
                code,
                f"{self.path} {'is empty' if code == 'empty' else 'is too small'}: {len(content)} bytes, at least {self.min_bytes} are required",
                {"bytes": len(content)},
            )
        parse = _PARSERS.get(self.format)
        found = f"; {parse(self, content)}" if parse else ""
        return Measurement(
            passed=True, text=f"{self.path} has {len(content):,} bytes{found}", data=JsonObject({"bytes": len(content)})
        )


def _parse_markdown(check: FileCheck, content: bytes) -> str:
    from checkrein.verify.markdown import folded, read_markdown

    document = read_markdown(read_text(content, check.path), check.path)
    if not document.has_content:
        raise Unmet("empty", f"{check.path} has headings only" if document.headings else f"{check.path} has no content")
    present = {folded(heading.text): heading.has_content for heading in reversed(document.headings)}
    missing = [name for name in check.sections if folded(name) not in present]
    if missing:
        found = ", ".join(f"“{heading.text}”" for heading in document.headings[:20]) or "none"
        raise Unmet(
            "missing_section",
            f"{check.path} lacks the section {_listed(missing)}; its headings: {found}",
            {"missing": missing},
        )
    hollow = [name for name in check.sections if not present[folded(name)]]
    if hollow:
        raise Unmet("empty_section", f"{check.path} has nothing under the heading {_listed(hollow)}", {"empty": hollow})
    count = len(document.headings)
    return f"Markdown with {count} heading{'' if count == 1 else 's'}" + (
        f", among them {_listed(check.sections)}" if check.sections else ""
    )


def _parse_json(check: FileCheck, content: bytes) -> str:
    value = read_json(content, check.path)
    missing = [key for key in check.keys if not has_key(value, key, check.path)]
    if missing:
        found = f"its keys: {', '.join(list(value)[:20]) or 'none'}" if isinstance(value, dict) else "it is no object"
        raise Unmet("missing_key", f"{check.path} lacks the key {_listed(missing)}; {found}", {"missing": missing})
    return "JSON" + (f" with the keys {', '.join(check.keys)}" if check.keys else "")


def _parse_csv(check: FileCheck, content: bytes) -> str:
    try:
        rows = read_rows(io.StringIO(read_text(content, check.path), newline=""))
        header, count = next(rows), sum(1 for _ in rows)
    except BadRows as error:
        raise Unmet("not_csv", f"{check.path} is not CSV: {error}") from error
    names = [name.strip() for name in header.cells]
    missing = [name for name in check.columns if name not in names]
    if missing:
        raise Unmet(
            "missing_column",
            f"{check.path} lacks the column {_listed(missing)}; it has: {', '.join(names[:20])}",
            {"missing": missing},
        )
    if not count:
        raise Unmet("no_rows", f"{check.path} has a header and no rows")
    return f"CSV with {len(names)} columns and {count:,} rows"


def _parse_html(check: FileCheck, content: bytes) -> str:
    text = read_text(content, check.path)
    if len(text) > MAX_PAGE_CHARACTERS:
        raise Unmet(
            "too_large",
            f"{check.path} has {len(text):,} characters, more than the {MAX_PAGE_CHARACTERS:,} that are read as HTML",
        )
    page = read_page(text)
    if page.problems:
        raise Unmet(
            "not_html", f"{check.path} is not sound HTML: {'; '.join(page.problems[:5])}", {"problems": page.problems}
        )
    if not page.elements:
        raise Unmet("not_html", f"{check.path} is not HTML: it has no element")
    if not page.has_content:
        raise Unmet("empty", f"{check.path} shows neither text nor an image")
    return f"HTML with {page.elements:,} elements, all closed"


def _parse_text(check: FileCheck, content: bytes) -> str:
    return f"text of {len(read_text(content, check.path).splitlines()):,} lines"


def _parse_image(check: FileCheck, content: bytes) -> str:
    from checkrein.verify.images import decode_image

    picture = decode_image(content, check.path, "png" if check.format == "png" else "jpeg")
    return f"{picture.format}, {picture.width} × {picture.height} pixels"


def _parse_document(check: FileCheck, content: bytes) -> str:
    from checkrein.verify.documents import read_document

    return read_document(content, check.path, check.format)


def _require_documents(format_: str) -> None:
    from checkrein.verify.documents import is_installed

    if not is_installed(format_):
        raise MissingExtra("task", "format", "documents")


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"“{name}”" for name in names)


# White space, NUL and the bytes of a byte order mark: a file of these alone says nothing.
_NOTHING: Final = b" \t\r\n\0\xef\xbb\xbf"
_DOCUMENTS: Final = frozenset({"xml", "pdf", "xlsx"})
_NAMES: Final = {"markdown": "Markdown", "text": "text"}
_PARSERS: Final[dict[str, Callable[[FileCheck, bytes], str]]] = {
    "markdown": _parse_markdown,
    "json": _parse_json,
    "csv": _parse_csv,
    "html": _parse_html,
    "text": _parse_text,
    "png": _parse_image,
    "jpeg": _parse_image,
    **dict.fromkeys(_DOCUMENTS, _parse_document),
}
