"""What a user says of the tool to be tested: the tool, arguments that work, and how to look at its effect.

Nothing here runs a tool. A case is made anew, in a fresh place, for every scenario, so scenarios never see each other's effects. The invariant: an effect is a
value that can be kept and compared; looking at it twice while nothing happens gives equal values.
"""

import copy
import hashlib
import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, TypeAlias, cast

import msgspec

from checkrein.ports.tool import Tool
from checkrein.testing.tool_report import Unusable, broken

__all__ = ["PATIENCE_SECONDS", "MakeCase", "ToolCase", "effect_of", "files_below", "put_files"]

PATIENCE_SECONDS: Final = 5.0


class ToolCase(msgspec.Struct, frozen=True):
    """A tool in a world of its own.

    Attributes:
        tool: the tool.
        arguments: arguments with which a call succeeds.
        effect: looks at what the tool does to the world and returns it as a value that can be compared: the number of rows, the payments as a list, a digest. Plain or
            async; takes nothing, or the run's folder. Leave out what differs from one world to the next (ids, times). None looks at the files in the run's folder.
        inputs: the task's inputs by name, for tools that read them.
        files: files that lie in the run's folder before the call, by relative path.
        hold: returns a context in which the body cannot get on, because its service does not answer or its table is locked. With it a plain function's time limit can be
            tested; without, only bodies with an `await` can be stopped halfway.
        patience_seconds: how long, in real time, a body may take to end, and to end once it was told to stop.
    """

    tool: Tool
    arguments: Mapping[str, object] = {}
    effect: Callable[[], object] | Callable[[Path], object] | None = None
    inputs: Mapping[str, Path] = {}
    files: Mapping[str, str | bytes] = {}
    hold: Callable[[], AbstractContextManager[object]] | None = None
    patience_seconds: float = PATIENCE_SECONDS


MakeCase: TypeAlias = Callable[[Path], ToolCase]
"""Makes a case whose world lies in the folder given: fresh, empty, and its own."""


async def effect_of(case: ToolCase, folder: Path) -> object:
    """Return the effect as it is now.

    Args:
        case: how to look.
        folder: the run's folder.

    Raises:
        Unusable: what the case returns cannot be kept.
    """
    if case.effect is None:
        return files_below(folder)
    value = cast("Callable[..., object]", case.effect)(*[folder] * _takes_folder(case.effect))
    if inspect.isawaitable(value):
        value = await value
    try:
        # Kept apart from the world: a list that goes on growing would always be equal to itself.
        return copy.deepcopy(value)
    except TypeError as error:
        change = "return plain values: numbers, text, lists, tuples, dicts"
        raise Unusable(broken("effect", f"what effect() returns cannot be kept: {error}", change)) from error


def _takes_folder(effect: Callable[..., object]) -> bool:
    needed = [item for item in inspect.signature(effect).parameters.values() if item.default is item.empty]
    return any(item.kind in {item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD} for item in needed)


def files_below(folder: Path) -> dict[str, str]:
    """Return the beginning of each file's SHA-256 by its path below a folder; a folder that is not there has none."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def put_files(files: Mapping[str, str | bytes], folder: Path) -> None:
    """Write a case's files into a run's folder, and make folders on the way."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
