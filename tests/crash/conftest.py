"""Fixtures of the tests that break things."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")  # noqa: S108  files that are written some 10,000 times need no disk of their own


@pytest.fixture
def fast_folder() -> Iterator[Path]:
    """Give a test a folder in memory, where the system has one."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name)
