"""A command at a pseudo-terminal of its own, for tests that press keys and read what a person would see."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path

from tests.unit.cli.folders import Shell

__all__ = ["CONTROL", "Terminal"]

SECONDS = 30
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, shell: Shell, *words: str | Path, module: str = "checkrein") -> None:
        self._ours, theirs = pty.openpty()
        self._seen = 0
        self.mode_before = self.mode
        environment = {
            name: value for name, value in shell.environment().items() if name not in {"NO_COLOR", "COLUMNS"}
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, words)],
            cwd=shell.home,
            env={"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40", **environment, **shell.env},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509  no thread of ours is running
        )
        os.close(theirs)
        self.text = ""

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    def see(self, wanted: str) -> None:
        """Read until `wanted` was printed."""
        while wanted not in self.text:
            assert self._read(), f"{wanted!r} never came: {self.text!r}"

    @property
    def mode(self) -> list[object]:
        """The terminal's mode."""
        return list(termios.tcgetattr(self._ours))

    @property
    def plain(self) -> str:
        """What was printed, without colours and movements."""
        return CONTROL.sub("", self.text)

    def next(self, wanted: str) -> None:
        """Read until `wanted` was printed after what the last call waited for."""
        while (found := self.plain.find(wanted, self._seen)) < 0:
            assert self._read(), (
                f"{wanted!r} never came after {self.plain[: self._seen]!r}: {self.plain[self._seen :]!r}"
            )
        self._seen = found + len(wanted)

    def end(self) -> int:
        """Read to the end and return the exit code."""
        while self._read():
            continue
        return self.process.wait(SECONDS)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._ours], [], [], SECONDS)
        assert ready, f"nothing came for {SECONDS} s after {self.text!r}"
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # Linux says so when the last process closed its side
            return False
        self.text += data.decode(errors="replace")
        return bool(data)

    def hang_up(self) -> None:
        """Take the terminal away, as when its window is closed."""
        os.close(self._ours)
        self._ours = -1

    def close(self) -> None:
        """Leave no process and no descriptor behind; safe to call again."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._ours >= 0:
            self.hang_up()


def _take_terminal() -> None:
    # Whoever runs the tests in the background ignores Ctrl-C, and all their children do.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.close(os.open(os.ttyname(0), os.O_RDWR))  # the first terminal that a session opens is its own
