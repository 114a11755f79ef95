"""Reads Markdown (CommonMark with tables) into what checks ask about: headings and whether something stands under them, tables, links, anchors.

Text comes in, values go out; no file is opened here. HTML inside Markdown counts for links and anchors, as it does for readers.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from markdown_it import MarkdownIt
from markdown_it.token import Token

from checkrein.verify.artifacts import Unmet
from checkrein.verify.pages import read_page

__all__ = ["MAX_MARKDOWN_CHARACTERS", "Document", "Heading", "Link", "Table", "TableRow", "folded", "read_markdown"]

MAX_MARKDOWN_CHARACTERS: Final = 2 * 1024 * 1024
"""Longest Markdown that is parsed; a parser in Python takes some seconds for as much."""


class Heading(msgspec.Struct, frozen=True):
    """A heading.

    Attributes:
        level: 1 to 6.
        text: its text without marks.
        line: the line it stands on, from 1.
        has_content: something that is no heading stands under it or under one of its sub-headings.
    """

    level: int
    text: str
    line: int
    has_content: bool


class TableRow(msgspec.Struct, frozen=True):
    """A row of cells as text without marks, and its line, from 1."""

    line: int
    cells: tuple[str, ...]


class Table(msgspec.Struct, frozen=True):
    """A table and the headings it stands under, outermost first."""

    under: tuple[str, ...]
    header: TableRow
    rows: tuple[TableRow, ...]


class Link(msgspec.Struct, frozen=True):
    """A link or an image: its target as written, without Markdown's escapes."""

    target: str
    is_image: bool
    line: int


class Document(msgspec.Struct, frozen=True):
    """What a Markdown text holds.

    Attributes:
        headings: in order.
        tables: in order.
        links: links and images, in order.
        anchors: what `#fragment` may name: headings as GitHub spells them, and ids of HTML elements.
        has_content: there is something else than headings.
    """

    headings: tuple[Heading, ...]
    tables: tuple[Table, ...]
    links: tuple[Link, ...]
    anchors: frozenset[str]
    has_content: bool


def folded(text: str) -> str:
    """Return text for comparing headings and column names: case and runs of white space do not count, nor does a colon at the end."""
    return " ".join(text.split()).rstrip(":").casefold()


def read_markdown(text: str, path: str) -> Document:
    """Read a Markdown text.

    Raises:
        Unmet: `too_large` when it is longer than `MAX_MARKDOWN_CHARACTERS`.
    """
    if len(text) > MAX_MARKDOWN_CHARACTERS:
        raise Unmet(
            "too_large",
            f"{path} has {len(text):,} characters, more than the {MAX_MARKDOWN_CHARACTERS:,} that are read as Markdown",
        )
    reader = _Reader()
    reader.read(_parser().parse(text))
    return reader.document()


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
    # The parser drops links it holds unsafe and leaves their text; a check has to see them to object.
    parser.validateLink = lambda _url: True  # pyright: ignore[reportAttributeAccessIssue]  the documented way to replace it
    parser.normalizeLink = lambda url: url  # pyright: ignore[reportAttributeAccessIssue]  targets are compared as written
    return parser


class _OpenHeading:
    """A heading while its section is read."""

    def __init__(self, level: int, text: str, line: int) -> None:
        self.level, self.text, self.line, self.has_content = level, text, line, False


class _Reader:
    """Walks the parser's tokens once."""

    def __init__(self) -> None:
        self._headings: list[_OpenHeading] = []
        self._under: list[_OpenHeading] = []
        self._tables: list[Table] = []
        self._rows: list[TableRow] = []
        self._cells: list[str] = []
        self._links: list[Link] = []
        self._anchors: dict[str, int] = {}
        self._ids: set[str] = set()
        self._line = 1
        self._has_content = False

    def read(self, tokens: Sequence[Token]) -> None:
        """Read all tokens of a text."""
        previous = ""
        for token in tokens:
            self._line = token.map[0] + 1 if token.map else self._line
            if token.type == "inline":
                self._read_inline(token, previous)
            elif token.type in {"fence", "code_block", "html_block"}:
                self._read_block(token)
            elif token.type == "tr_close":
                self._rows.append(TableRow(self._line, tuple(self._cells)))
                self._cells = []
            elif token.type == "table_close":
                self._close_table()
            previous = f"{token.type} {token.tag}"

    def _read_inline(self, token: Token, opener: str) -> None:
        children = token.children or []
        text = _plain(children)
        self._links.extend(_links(children, self._line))
        self._read_html("".join(child.content for child in children if child.type == "html_inline"))
        if opener.startswith("heading_open"):
            self._open_heading(int(opener[-1]), text)
        elif opener.startswith(("th_open", "td_open")):
            self._cells.append(text)
            self._mark_content(text)
        else:
            self._mark_content(text or token.content)

    def _read_block(self, token: Token) -> None:
        if token.type == "html_block":
            self._read_html(token.content)
            # A comment shows nothing to a reader.
            self._mark_content(re.sub(r"<!--.*?(?:-->|\Z)", "", token.content, flags=re.DOTALL))
        else:
            self._mark_content(token.content)

    def _read_html(self, source: str) -> None:
        if source:
            page = read_page(source)
            self._links.extend(Link(target, is_image, self._line) for target, is_image, _ in page.links)
            self._ids |= page.anchors

    def _open_heading(self, level: int, text: str) -> None:
        while self._under and self._under[-1].level >= level:
            self._under.pop()
        heading = _OpenHeading(level, text, self._line)
        self._under.append(heading)
        self._headings.append(heading)
        slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        count = self._anchors.get(slug, 0)
        self._anchors[slug] = count + 1
        if count:
            self._anchors.setdefault(f"{slug}-{count}", 1)

    def _mark_content(self, text: str) -> None:
        if text.strip():
            self._has_content = True
            for heading in self._under:
                heading.has_content = True

    def _close_table(self) -> None:
        header, *rows = self._rows
        self._tables.append(Table(tuple(heading.text for heading in self._under), header, tuple(rows)))
        self._rows = []

    def document(self) -> Document:
        """Return what was read."""
        headings = tuple(Heading(item.level, item.text, item.line, item.has_content) for item in self._headings)
        return Document(
            headings,
            tuple(self._tables),
            tuple(self._links),
            frozenset(self._ids | self._anchors.keys()),
            self._has_content,
        )


def _plain(children: Sequence[Token]) -> str:
    return "".join(_plain_one(child) for child in children).strip()


def _plain_one(token: Token) -> str:
    if token.type in {"softbreak", "hardbreak"}:
        return " "
    if token.type == "image":
        return _plain(token.children or [])
    return token.content if token.type in {"text", "code_inline", "text_special"} else ""


def _links(children: Sequence[Token], line: int) -> Iterator[Link]:
    for child in children:
        if child.type == "link_open":
            yield Link(str(child.attrGet("href") or ""), is_image=False, line=line)
        elif child.type == "image":
            yield Link(str(child.attrGet("src") or ""), is_image=True, line=line)
            yield from _links(child.children or [], line)
