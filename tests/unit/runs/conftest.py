"""The scene of each test of runs."""

from pathlib import Path

import pytest

from tests.unit.runs.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)
