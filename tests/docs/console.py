"""Runs `console` blocks as a reader would type them, and compares what they print.

In the expected output `…` stands for anything on its line, and a line of only `…` for any lines; figures with a unit of
time and clock times match any others. An id (eight or more hex digits) matches any id, but the same one always the same;
a later command that names it is run with the id that was really printed.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs.pages import ROOT, Block

ID = r"\b(?=[0-9a-f-]*\d)[0-9a-f]{8,}(?:-[0-9a-f]+)*\b"
TIME = r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?|\b\d\d:\d\d:\d\d(?:\.\d+)?\b"
DURATION = r"\b\d+(?:\.\d+)? ?(?:µs|ms|s|min)\b"
VARYING = re.compile(f"(?P<id>{ID})|(?P<time>{TIME})|(?P<duration>{DURATION})|(?P<any>…)")
COMMAND_SECONDS = 100


@dataclass(frozen=True)
class Command:
    """A line to type and the output that must follow."""

    text: str
    output: tuple[str, ...]


@dataclass
class Terminal:
    """A folder with the examples and `./dev`, and the ids that were seen in it."""

    folder: Path
    ids: dict[str, str] = field(default_factory=dict[str, str])
    code: int = 0

    def __post_init__(self) -> None:
        """Lay out what a clone has and a reader's commands need."""
        if (ROOT / "examples").is_dir():
            shutil.copytree(
                ROOT / "examples", self.folder / "examples", ignore=shutil.ignore_patterns("out", "__pycache__")
            )
        script = self.folder / "dev"
        script.write_text(f'#!/bin/sh\nexec "{ROOT}/dev" "$@"\n', encoding="utf-8")
        script.chmod(0o755)

    def run(self, command: Command) -> str:
        """Run a command and return what it printed; its exit code is kept for a following `echo $?`."""
        text = re.sub(ID, lambda found: self.ids.get(found.group(), found.group()), command.text)
        done = subprocess.run(
            ["bash", "-c", f"(exit {self.code})\n{text}"],  # noqa: S607 - the reader's shell
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        self.code = done.returncode
        return done.stdout

    def compare(self, command: Command, printed: str) -> None:
        """Compare with the documented output and learn the ids; AssertionError shows both."""
        names: dict[str, str] = {}
        found = re.fullmatch(pattern(command.output, names), "".join(f"{line}\n" for line in _stripped(printed)))
        documented = "\n".join(command.output)
        assert found, f"$ {command.text}\n--- documented\n{documented}\n--- printed\n{printed}"
        self.ids.update({written: found[name] for written, name in names.items()})

    def _environment(self) -> dict[str, str]:
        home = self.folder / ".home"
        state = {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("STATE", "CONFIG", "DATA", "CACHE")}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return {**os.environ, "PATH": path, "HOME": str(home), "NO_COLOR": "1", "COLUMNS": "120", **state}


def commands(block: Block) -> Iterator[Command]:
    """Yield the commands of a block; `>` continues a command on the next line."""
    text, output = "", list[str]()
    for line in block.text.splitlines():
        if line.startswith("$ "):
            if text:
                yield Command(text, tuple(_stripped("\n".join(output))))
            text, output = line[2:], []
        elif (line == ">" or line.startswith("> ")) and not output:
            text = f"{text}\n{line[2:]}"
        else:
            output.append(line)
    if text:
        yield Command(text, tuple(_stripped("\n".join(output))))


def pattern(lines: tuple[str, ...], names: dict[str, str]) -> str:
    """Return a regular expression for documented lines; `names` receives the group of each id."""
    return "".join(r"(?:.*\n)*?" if line.strip() == "…" else _line_pattern(line, names) + r"\n" for line in lines)


def _line_pattern(line: str, names: dict[str, str]) -> str:
    expression, end = "", 0
    for found in VARYING.finditer(line):
        expression += re.escape(line[end : found.start()]) + _varying(found, names)
        end = found.end()
    return expression + re.escape(line[end:])


def _varying(found: re.Match[str], names: dict[str, str]) -> str:
    text = found.group()
    if found["any"]:
        return ".*"
    if found["time"] or found["duration"]:
        return f"(?:{TIME if found['time'] else DURATION})"
    if text in names:
        return f"(?P={names[text]})"
    names[text] = f"id{len(names)}"
    return f"(?P<{names[text]}>{ID})"


def _stripped(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]
