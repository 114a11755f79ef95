"""What goes to the terminal: lines for people, JSON lines for programs.

The invariant: text that did not come from checkrein's own source passes `shown` before it is printed, so no escape sequence, bidirectional control or invisible
character of a goal, a result, a file name or an error reaches a terminal; and rich never reads markup in any text. A reader that went away (`| head`) is no error:
printing stops, work does not.
"""

import io
import json
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from checkrein.cli.consoles import QuietConsole, send_nowhere
from checkrein.cli.places import program_name
from checkrein.values import shorten, visible_text

__all__ = ["Screen", "columns", "shown"]

_LINE = 2_000
_HANG = 2
_NARROWEST = 20
_COMMAND = re.compile(r"`checkrein (\w+) RUN\b([^`]*)`")


def shown(text: object, *, limit: int = _LINE) -> str:
    """Return text of unknown origin on one line, made harmless, at most about `limit` characters."""
    return visible_text(shorten(str(text), limit), keep_newlines=False)


def columns(text: str, width: int) -> str:
    """Return `text` filled with blanks to `width` columns of a terminal; wider text is left whole."""
    return text + " " * max(0, width - cell_len(text))


class Screen:
    """One command's output.

    Args:
        json_lines: print JSON lines on stdout and nothing else there.
        store: the store to name in printed commands; None when the default one is used.

    Attributes:
        json_lines: whether this is for a program.
        is_gone: nobody reads stdout any more.
    """

    def __init__(self, *, json_lines: bool = False, store: Path | None = None) -> None:
        self.json_lines = json_lines
        self.is_gone = False
        self._store = store
        self._program = program_name()
        self._out = _stream("stdout")
        self.console = QuietConsole(file=self._out, markup=False, highlight=False, emoji=False)
        self._errors = QuietConsole(file=_stream("stderr"), markup=False, highlight=False, emoji=False)

    @property
    def is_live(self) -> bool:
        """Whether a moving picture can be shown."""
        return self.console.is_terminal and not self.console.is_dumb_terminal and not self.json_lines

    @property
    def can_ask(self) -> bool:
        """Whether there is a person to ask."""
        return sys.stdin is not None and sys.stdin.isatty() and self._errors.is_terminal  # pyright: ignore[reportUnnecessaryComparison]  None when it is closed

    def line(self, *parts: str | tuple[str, str], indent: int = 0, hang: int = _HANG) -> None:
        """Print a line for people: texts, or pairs of text and style; on a terminal its further lines hang."""
        if not self.json_lines:
            self._print(self.console, Text.assemble(*parts), (indent, hang))

    def copyable(self, *parts: str | tuple[str, str], indent: int = 0) -> None:
        """Print a line for people whose end may be copied: the terminal itself wraps it."""
        if not self.json_lines:
            self._print(self.console, Text.assemble(*parts), (indent, None))

    def note(self, *parts: str | tuple[str, str]) -> None:
        """Print what is beside the matter: on stderr when stdout is for a program."""
        self._print(self._errors if self.json_lines else self.console, Text.assemble(*parts), (0, None))

    def error(self, message: str, hint: str = "") -> None:
        """Print an error on stderr, and what to do about it."""
        self._print(self._errors, Text.assemble(("checkrein: ", "bold red"), shown(message)), (0, _HANG))
        if hint:
            self._print(self._errors, Text(shown(hint)), (_HANG, _HANG))

    def record(self, value: Mapping[str, object]) -> None:
        """Print one JSON object on a line of its own, when this is for a program."""
        if self.json_lines:
            # ASCII only: what is escaped in JSON is harmless on a terminal too. JSON leaves DEL alone.
            self._write(json.dumps(value, separators=(",", ":")).replace("\x7f", "\\u007f") + "\n")

    def command(self, *words: str) -> str:
        """Return a command line of checkrein as it can be typed here."""
        named = () if self._store is None else ("--store", str(self._store))
        return shlex.join([self._program, *words, *named])

    def with_commands(self, message: str, run_id: str) -> str:
        """Return a message of the log with its `checkrein … RUN` made what can be typed here."""
        named = "" if self._store is None else f" --store {shlex.quote(str(self._store))}"
        program = shlex.quote(self._program)
        return _COMMAND.sub(lambda found: f"`{program} {found[1]} {run_id}{found[2]}{named}`", message)

    def next_command(self, *words: str) -> None:
        """Print the next useful command."""
        self.copyable(("next: ", "dim"), shown(self.command(*words)))

    def _print(self, console: Console, text: Text, margins: tuple[int, int | None]) -> None:
        """Print a text under an indentation; on a terminal further lines hang, unless the terminal is to wrap them."""
        if console is self.console and self.is_gone:
            return
        try:
            for line in _wrapped(console, text, *margins):
                console.print(line, soft_wrap=True)
        except OSError:
            self._lost(console)

    def _write(self, text: str) -> None:
        if self.is_gone:
            return
        try:
            self._out.write(text)
            self._out.flush()
        except OSError:
            self._lost(self.console)

    def _lost(self, console: Console) -> None:
        self.is_gone = self.is_gone or console is self.console
        send_nowhere(console)

    def ask(self, question: str) -> bool:
        """Ask a person yes or no; anything but yes is no."""
        try:
            self._errors.print(Text(f"{question} [y/N] "), end="")
            return sys.stdin.readline().strip().lower() in {"y", "yes"}
        except (OSError, ValueError):
            return False

    def table(self, rows: Sequence[Sequence[str]], *, indent: int = 2) -> None:
        """Print rows of harmless text in aligned columns; the last column may wrap."""
        widths = [max(cell_len(row[index]) for row in rows) for index in range(len(rows[0]) - 1)] if rows else []
        for row in rows:
            head = "  ".join(columns(cell, width) for cell, width in zip(row, widths, strict=False))
            hang = cell_len(head) + 2
            hang = hang if indent + hang <= self.console.width // 2 else _HANG
            self.line(f"{head}  {row[-1]}".rstrip() if head else row[-1], indent=indent, hang=hang)


def _wrapped(console: Console, text: Text, indent: int, hang: int | None) -> Iterable[Text]:
    margin = Text(" " * indent)
    if hang is None or not console.is_terminal or indent + cell_len(text.plain) <= console.width:
        return (margin.append_text(text),)
    first = text.wrap(console, max(_NARROWEST, console.width - indent))[0].plain.rstrip()
    rest = text[len(first) :]
    rest = rest[len(rest.plain) - len(rest.plain.lstrip()) :]
    others = rest.wrap(console, max(_NARROWEST, console.width - indent - hang))
    return (margin.append_text(text[: len(first)]), *(Text(" " * (indent + hang)).append_text(line) for line in others))


def _stream(name: str) -> TextIO:
    """Return a standard stream that can print any character; what is closed goes nowhere."""
    stream: TextIO | None = getattr(sys, name)
    if stream is None:
        return io.StringIO()
    reconfigure = getattr(stream, "reconfigure", None)
    if callable(reconfigure):
        reconfigure(errors="backslashreplace")
    return stream
