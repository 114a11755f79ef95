"""The fenced blocks of README.md, CONTRIBUTING.md and docs/, and what their info strings ask for.

A block runs unless its info string says why not: ```` ```python not run: needs a key of yours ````. Further words:
`continued` joins a block to the one of the same language before it; a fence `output` right after a `python` block is
what the block must print, and those after joined blocks are joined too.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
NOT_RUN = re.compile(r"\bnot run: (?P<reason>.+)")
REASON_CHARACTERS = 10


@dataclass(frozen=True)
class Block:
    """One fenced block; `output` is the text of an `output` fence that follows it."""

    page: str
    line: int
    language: str
    options: str
    text: str
    output: str | None = None

    @property
    def place(self) -> str:
        """Where the block begins, as `page:line`."""
        return f"{self.page}:{self.line}"

    @property
    def reason_not_to_run(self) -> str:
        """The reason given in the info string, or an empty text."""
        found = NOT_RUN.search(self.options)
        return found["reason"].strip() if found else ""


def pages() -> list[Path]:
    """Return all pages with blocks that must be true."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fences of a page in order, continued ones joined, outputs attached."""
    waiting: Block | None = None
    for found in _fences(page):
        if found.language == "output" and waiting:
            waiting = replace(waiting, output=(waiting.output or "") + found.text)
        elif "continued" in found.options.split() and waiting and waiting.language == found.language:
            waiting = replace(waiting, text=waiting.text + found.text)
        else:
            if waiting:
                yield waiting
            waiting = found
    if waiting:
        yield waiting


def _fences(page: Path) -> Iterator[Block]:
    place = page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "fence":
            language, _, options = token.info.strip().partition(" ")
            line = token.map[0] + 1 if token.map else 1
            yield Block(place, line, language, options, token.content)


def blocks_in(language: str) -> list[Block]:
    """Return every block of a language that runs."""
    found = (block for page in pages() for block in blocks(page))
    return [block for block in found if block.language == language and not block.reason_not_to_run]
