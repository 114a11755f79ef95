"""Checks that run programs of the task's folder: they run only while the folder is what was trusted.

Python code of a task is run from the bytes that were hashed. A program that a check starts is read from the disk by the system, so the folder is hashed again before and
after it: what ran is what was trusted, or nothing is known.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from checkrein.cli.trust import TaskFolder, take_folder
from checkrein.errors import TaskError, VerifierFailed
from checkrein.ports.verifier import CheckContext, Measurement, Verifier

__all__ = ["Unchanged", "names_task_folder"]

_PLACE: Final = "{task}"
_MOST_NAMED: Final = 5


def names_task_folder(options: Mapping[str, object]) -> bool:
    """Tell whether a check's options name the task's folder."""
    return any(
        _PLACE in item
        for value in options.values()
        for item in (value if isinstance(value, list) else [value])  # pyright: ignore[reportUnknownVariableType]  options are TOML
        if isinstance(item, str)
    )


class Unchanged:
    """A verifier that measures only while the task's folder is as it was trusted; it says of itself what the other says.

    Args:
        verifier: what measures.
        folder: the folder as it was trusted.
    """

    def __init__(self, verifier: Verifier, folder: TaskFolder) -> None:
        self._verifier = verifier
        self._folder = folder

    @property
    def kind(self) -> str:
        """The kind of check."""
        return self._verifier.kind

    @property
    def version(self) -> str:
        """The verifier's own version."""
        return self._verifier.version

    @property
    def subject(self) -> str:
        """The artifact it is about."""
        return self._verifier.subject

    @property
    def title(self) -> str:
        """What it proves, in words."""
        return self._verifier.title

    async def measure(self, context: CheckContext) -> Measurement:
        """Measure the artifact as it is now.

        Raises:
            VerifierFailed: the folder is not as it was trusted, before or after; or as the verifier itself.
        """
        await asyncio.to_thread(self._demand_same)
        measured = await self._verifier.measure(context)
        await asyncio.to_thread(self._demand_same)
        return measured

    def _demand_same(self) -> None:
        """Compare.

        Raises:
            VerifierFailed: the folder has other files, or files with other bytes.
        """
        try:
            files = take_folder(self._folder.file).files
        except (TaskError, OSError) as error:
            raise VerifierFailed(f"the task's folder cannot be read as it was trusted: {error}") from error
        trusted = self._folder.files
        changed = sorted(name for name in trusted.keys() | files.keys() if trusted.get(name) != files.get(name))
        if changed:
            more = f" and {len(changed) - _MOST_NAMED} more" if len(changed) > _MOST_NAMED else ""
            listed = ", ".join(changed[:_MOST_NAMED]) + more
            raise VerifierFailed(
                f"the task's folder was changed since it was trusted ({listed}): put it back as it was"
            )
