"""Loading a task's own code from the bytes that were hashed.

Each task folder is a package of its own under a name made of its hash and place; `from . import helpers` finds other files of the folder, and nothing else is found there.
Neither `sys.path` nor the folder is looked at again, and no bytecode is read or written. The invariant: a byte that is run is a byte that was hashed.
"""

import hashlib
import importlib
import importlib.abc
import importlib.machinery
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Final

from checkrein.cli.trust import TaskFolder
from checkrein.errors import TaskError

__all__ = ["attribute_of", "is_code_name"]

_PREFIX: Final = "checkrein_task_"
_REFERENCE: Final = re.compile(r"(?P<file>[^:]+\.py):(?P<name>[A-Za-z_]\w*)\Z")
_PLAIN: Final = re.compile(r"(?:[A-Za-z_][\w-]*/)*[A-Za-z_][\w-]*\.py\Z")


def is_code_name(name: str) -> bool:
    """Tell whether a name in a task file means the task's own code: `file.py:attr`."""
    return ":" in name


def attribute_of(folder: TaskFolder, reference: str) -> object:
    """Return what `file.py:attr` names, importing the file if that has not happened.

    Raises:
        LookupError: it is no such reference, the file is not among those hashed, or has no such name.
        TaskError: the file cannot be imported.
        ModuleNotFoundError: the file imports something that is not installed.
    """
    found = _REFERENCE.match(reference)
    if found is None or not _PLAIN.match(found["file"]):
        msg = f"{reference!r} is no reference to code; write `file.py:name`, relative to the task file"
        raise LookupError(msg)
    file, name = found["file"], found["name"]
    if file not in folder.files:
        msg = f"there is no file {file!r} in the task's folder (inputs and the workspace hold no code)"
        raise LookupError(msg)
    module = _imported(folder, file)
    if not hasattr(module, name):
        msg = f"{file} has no {name!r}"
        raise LookupError(msg)
    return getattr(module, name)


def _imported(folder: TaskFolder, file: str) -> ModuleType:
    package = _FINDER.package_of(folder)
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    try:
        return importlib.import_module(f"{package}.{module}")
    except ModuleNotFoundError as error:
        sibling = f"{(error.name or '').partition('.')[0]}.py"
        if sibling in folder.files:
            problem = f"{file} imports {error.name!r}, and no such module is installed"
            fix = f"write `from . import {error.name}` for a file of the task"
            raise TaskError(str(folder.file), "", problem, fix) from error
        raise
    except (Exception, SystemExit) as error:
        problem = f"{file} cannot be imported: {type(error).__name__}: {error}{_line_of(error, folder)}"
        raise TaskError(str(folder.file), "", problem, "correct that file") from error


def _line_of(error: BaseException, folder: TaskFolder) -> str:
    """Return where in the task's own code an error was raised, `""` when its text says so, or it was elsewhere."""
    places = [(Path(frame.f_code.co_filename), line) for frame, line in walk_tb(error.__traceback__)]
    own = [(path, line) for path, line in places if path.is_relative_to(folder.folder)]
    return f" ({own[-1][0].name}, line {own[-1][1]})" if own else ""


class _Source(importlib.abc.SourceLoader):
    """Loads the modules of one task folder from memory."""

    def __init__(self, folder: TaskFolder) -> None:
        self._folder = folder

    def get_filename(self, fullname: str) -> str:
        """Return the path that tracebacks show.

        Raises:
            ImportError: the folder has no such module.
        """
        file = self.file_of(fullname)
        if file is None:
            raise ImportError(name=fullname)
        return str(self._folder.folder / file)

    def get_data(self, path: str) -> bytes:
        """Return the bytes that were hashed.

        Raises:
            OSError: the file was not among them (compiled code never is).
        """
        try:
            return self._folder.files[Path(path).relative_to(self._folder.folder).as_posix()]
        except (KeyError, ValueError) as error:
            msg = f"{path} is not covered by the hash"
            raise OSError(msg) from error

    def file_of(self, fullname: str) -> str | None:
        """Return the file of a module, None when there is none."""
        path = "/".join(fullname.split(".")[1:])
        candidates = (f"{path}.py", f"{path}/__init__.py") if path else ("__init__.py",)
        return next((name for name in candidates if name in self._folder.files), None)

    def has_folder(self, fullname: str) -> bool:
        """Tell whether a module's name is that of a folder with hashed files."""
        prefix = "".join(f"{part}/" for part in fullname.split(".")[1:])
        return any(name.startswith(prefix) for name in self._folder.files)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of task folders, and no others."""

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}

    def package_of(self, folder: TaskFolder) -> str:
        """Return the name of a folder's package, making it importable."""
        key = hashlib.sha256(f"{folder.code_hash} {folder.file}".encode("utf-8", "surrogateescape")).hexdigest()
        package = f"{_PREFIX}{key[:16]}"
        self._sources.setdefault(package, _Source(folder))
        if self not in sys.meta_path:
            sys.meta_path.append(self)
        return package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return where a module of a task folder comes from; None for every other module."""
        del path, target
        source = self._sources.get(fullname.partition(".")[0])
        if source is None:
            return None
        file = source.file_of(fullname)
        if file is not None:
            is_package = file.endswith("__init__.py")
            spec = importlib.machinery.ModuleSpec(
                fullname, source, origin=source.get_filename(fullname), is_package=is_package
            )
            spec.has_location = True
            return spec
        if source.has_folder(fullname):
            return importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        return None


_FINDER: Final = _Finder()
