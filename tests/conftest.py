"""What every test gets: a home of its own and Hypothesis without deadlines. What every run of the tests shows: its counts, and no task left behind.

Nothing here fakes a part of checkrein. A fixture for one room lives beside that room's tests.
"""

import asyncio
import gc
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


@pytest.fixture(autouse=True, scope="session")
def _silence_at_the_end() -> Iterator[None]:
    """Let no task be left whose loop would speak of it.

    A task that still waits when the interpreter ends is destroyed there, after the part of asyncio that knows how to show it. A loop that shows it in its
    exception handler then takes the process down with SIGSEGV, when all tests have passed.
    """
    yield
    gc.collect()
    left = [item for item in gc.get_objects() if issubclass(type(item), asyncio.Task) and not item.done()]
    speaking = [repr(task) for task in left if task.get_loop().get_exception_handler() is None]
    for task in left:
        task.get_loop().set_exception_handler(_say_nothing)
    assert speaking == [], "a test that leaves a task waiting must have told its loop to keep silent"


def _say_nothing(_loop: asyncio.AbstractEventLoop, _context: object) -> None:
    """Keep what a loop has to say."""


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
