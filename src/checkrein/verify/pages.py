"""Reads HTML: whether every element that is opened is closed, and what it links to.

`html.parser` is lenient and, when it meets markup without an end, tries again at every `<`, which takes quadratic time on a hostile page. So a page is fed once, never
closed, and what then remains unread is the finding: markup without an end.
"""

from html.parser import HTMLParser
from typing import Final

import msgspec

__all__ = ["MAX_PAGE_CHARACTERS", "Page", "read_page"]

MAX_PAGE_CHARACTERS: Final = 4 * 1024 * 1024

# HTML Living Standard 13.1.2: elements without content, and elements whose end tag may be left out.
_VOID: Final = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"}
)
_MAY_STAY_OPEN: Final = frozenset({
    "html", "head", "body", "p", "li", "dt", "dd", "tr", "td", "th", "thead", "tbody", "tfoot", "caption", "colgroup",
    "option", "optgroup", "rt", "rp",
})  # fmt: skip
_MAX_PROBLEMS: Final = 20


class Page(msgspec.Struct, frozen=True):
    """What a page holds.

    Attributes:
        links: pairs of target and line of each `href` of `<a>` and `src` of `<img>`; images are marked.
        anchors: every `id`, and every `name` of an `<a>`.
        problems: elements that are not closed or not opened, in words.
        elements: number of elements.
        has_content: there is text to read, or an image.
    """

    links: tuple[tuple[str, bool, int], ...]
    anchors: frozenset[str]
    problems: tuple[str, ...]
    elements: int
    has_content: bool


def read_page(text: str) -> Page:
    """Read a page, or a fragment of one."""
    reader = _Reader()
    try:
        reader.feed(text)
    except AssertionError as error:
        # How the parser says that a declaration (`<![…`) makes no sense.
        reader.stop(str(error))
    return reader.page()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[tuple[str, int]] = []
        self._links: list[tuple[str, bool, int]] = []
        self._anchors: set[str] = set()
        self._problems: list[str] = []
        self._elements = 0
        self._has_content = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in _VOID:
            self._open.append((tag, self.getpos()[0]))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._elements += 1
        self._has_content = self._has_content or tag == "img"
        for name, value in attrs:
            if (tag, name) in {("a", "href"), ("img", "src")}:
                self._links.append((value or "", tag == "img", self.getpos()[0]))
            elif value and (name == "id" or (tag, name) == ("a", "name")):
                self._anchors.add(value)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open[-1][0] != tag and self._open[-1][0] in _MAY_STAY_OPEN:
            self._open.pop()
        if self._open and self._open[-1][0] == tag:
            self._open.pop()
        elif tag not in _VOID and tag != "p":
            # `</p>` alone is an empty paragraph by the standard.
            inside = f" inside <{self._open[-1][0]}> of line {self._open[-1][1]}" if self._open else ""
            self._object(f"line {self.getpos()[0]}: </{tag}> closes nothing{inside}")

    def handle_data(self, data: str) -> None:
        self._has_content = self._has_content or bool(data.strip())

    def _object(self, problem: str) -> None:
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(problem)

    def stop(self, problem: str) -> None:
        """Give up on what is left to read."""
        self._object(f"line {self.getpos()[0]}: {problem}")
        self.rawdata = ""

    def page(self) -> Page:
        """Return what was read."""
        if self.rawdata.startswith("<"):
            self._object(f"line {self.getpos()[0]}: markup without an end: {self.rawdata[:40]!r}")
        elif self.rawdata.strip():
            self.handle_data(self.rawdata)
        for tag, line in self._open:
            if tag not in _MAY_STAY_OPEN:
                self._object(f"line {line}: <{tag}> is not closed")
        return Page(
            tuple(self._links), frozenset(self._anchors), tuple(self._problems), self._elements, self._has_content
        )
