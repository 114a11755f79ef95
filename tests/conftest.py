"""What every test gets: a home of its own and Hypothesis without deadlines. What every run of the tests shows: its counts.

Nothing here fakes a part of checkrein. A fixture for one room lives beside that room's tests.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests import counts

# A deadline measures the machine, and a shared machine is slow now and then; amounts are bounded by max_examples.
hypothesis.settings.register_profile("checkrein", deadline=None, print_blob=True)
hypothesis.settings.load_profile("checkrein")


@pytest.fixture(autouse=True, scope="session")
def _private_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep stores, trust and settings of the person who runs the tests out of reach, also in child processes."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        for kind in ("STATE", "CONFIG", "DATA", "CACHE"):
            patch.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
        for name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
            patch.delenv(name, raising=False)
        patch.setenv("NO_COLOR", "1")
        patch.setenv("COLUMNS", "120")
        yield


def pytest_configure(config: pytest.Config) -> None:
    """Collect the counts of this run in a file, unless somebody already does; with pytest-xdist the workers inherit it."""
    if counts.FILE not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="checkrein-counts-")
        config.add_cleanup(folder.cleanup)
        patch = pytest.MonkeyPatch()
        patch.setenv(counts.FILE, str(Path(folder.name, "counts.jsonl")))
        config.add_cleanup(patch.undo)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give a test that does ten times as much ten times as long."""
    factor = max(1, counts.amount(1))
    for item in items if factor > 1 else ():
        marked = item.get_closest_marker("timeout")
        seconds = float(marked.args[0] if marked else config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(seconds * factor), append=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the counts: pytest shows what a test prints only if it fails, and these are the point."""
    file = Path(os.environ[counts.FILE])
    if file.exists():
        terminalreporter.section("counts")
        for line in file.read_text(encoding="utf-8").splitlines():
            terminalreporter.write_line(_sentence(json.loads(line)))


def _sentence(count: dict[str, object]) -> str:
    fixed = {"name", "count", "passed"}
    more = ", ".join(f"{name}={_shown(value)}" for name, value in count.items() if name not in fixed)
    return f"{count['name']}: {_shown(count['passed'])} of {_shown(count['count'])} as promised; {more}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int | float) else str(value)
