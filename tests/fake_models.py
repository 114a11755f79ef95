"""A scripted model in a process of its own, behind a real socket of this machine; it outlives the commands that are killed."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 60

NOTE = """\
[[reply]]
thinking = "A note is wanted."
text = "I write the note."
[[reply.call]]
tool = "write_file"
arguments = { path = "note.txt", content = "x" }

[[reply]]
text = "The note is in note.txt."
"""
"""Writes the note that the task folders of the command line's tests want, and says so."""


@contextmanager
def fake_model(script: Path) -> Generator[str]:
    """Play a script until the end of the `with`; give the address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "checkrein.testing.fake_model", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS)
