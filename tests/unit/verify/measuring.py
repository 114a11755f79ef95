"""Makes checks as a task file does and measures folders with them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from checkrein.errors import TaskError
from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.verify import make_check

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "examples" / "store-report" / "data"
INPUTS: Mapping[str, Path] = {"invoices": DATA / "invoices.csv", "lines": DATA / "lines.csv"}
SECONDS = 30.0


def context(folder: Path, inputs: Mapping[str, Path] = INPUTS, seconds: float = SECONDS) -> CheckContext:
    """Return what a verifier may look at."""
    return CheckContext(folder=folder, inputs=inputs, timeout_seconds=seconds)


async def measure(
    kind: str, options: Mapping[str, object], folder: Path, inputs: Mapping[str, Path] = INPUTS
) -> Measurement:
    """Make a check from a task's options and measure `folder` with it."""
    made = make_check(kind, options, source="task.toml", base=folder, inputs=inputs)
    return await made.measure(context(folder, inputs))


def refused(kind: str, options: Mapping[str, object], base: Path = ROOT) -> TaskError:
    """Return the error with which a check is refused."""
    with pytest.raises(TaskError) as caught:
        make_check(kind, options, source="task.toml", base=base)
    return caught.value


def write(folder: Path, name: str, content: str | bytes) -> None:
    """Write an artifact."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
