"""The port of verification: something other than the model measures an artifact, and returns evidence or findings.

A verifier sees the artifact, the inputs and the log position; it cannot see what a model or a tool said about them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from checkrein.values import JsonObject

__all__ = ["CheckContext", "Measurement", "Verifier"]


class CheckContext(msgspec.Struct, frozen=True):
    """What a verifier may look at.

    Attributes:
        folder: the run's folder; artifacts are below it. Read-only for verifiers.
        inputs: the task's inputs by name, read-only.
        timeout_seconds: how long the measurement may take.
    """

    folder: Path
    inputs: Mapping[str, Path]
    timeout_seconds: float = 60.0


class Measurement(msgspec.Struct, frozen=True):
    """What one verifier found.

    Attributes:
        passed: whether the check is met.
        text: the measurement in words (`2328.60 equals the source's 2328.60 within 0.005`), for people and for a repair.
        code: one word for programs when it is not met (`empty`, `missing_section`, `wrong_sum` …); `""` when it is.
        data: figures behind the text.
    """

    passed: bool
    text: str
    code: str = ""
    data: JsonObject = JsonObject()


class Verifier(Protocol):
    """One required check of a task, ready to measure."""

    @property
    def kind(self) -> str:
        """Return the kind of check, as named in a task file."""
        ...

    @property
    def version(self) -> str:
        """Return the verifier's own version; it changes when the same bytes could be judged differently."""
        ...

    @property
    def subject(self) -> str:
        """Return the path of the artifact it is about, `answer`, or `""` for the run itself."""
        ...

    @property
    def title(self) -> str:
        """Return what it proves, in words (`report.md has its four sections`)."""
        ...

    async def measure(self, context: CheckContext) -> Measurement:
        """Measure the artifact as it is now.

        Raises:
            VerifierFailed: the verifier itself could not run (a missing program, a time-out, an unreadable input), so nothing is known.
        """
        ...
