"""The project's files and syntax trees, read once for all architecture tests."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "checkrein"
# Folders and files that are the project; anything else beside them is somebody's own.
PARTS = ("src", "tests", "benchmarks", "tools", "docs", "examples", ".ci")


@dataclass(frozen=True)
class Module:
    """One Python file."""

    path: Path

    @property
    def place(self) -> str:
        """The path from the project's root."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def name(self) -> str:
        """The dotted name of a module of the package."""
        parts = self.path.relative_to(PACKAGE.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def text(self) -> str:
        """The source."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text, self.place)

    def at(self, node: ast.AST) -> str:
        """Return `file:line` of a node."""
        return f"{self.place}:{getattr(node, 'lineno', 1)}"


def files() -> Iterator[Path]:
    """Yield every file of the project that a person wrote."""
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*")):
            generated = {"__pycache__", "out", "node_modules"} & set(path.relative_to(ROOT).parts)
            if path.is_file() and not generated:
                yield path
    yield from (path for path in sorted(ROOT.iterdir()) if path.is_file() and not _is_left_behind(path))


def _is_left_behind(path: Path) -> bool:
    return path.name in {"uv.lock", ".venv.lock", ".git"} or path.suffix in {".db", ".log"}


@lru_cache(maxsize=1)
def all_modules() -> tuple[Module, ...]:
    """Return every Python file of the project."""
    return tuple(Module(path) for path in files() if path.suffix == ".py")


@lru_cache(maxsize=1)
def package_modules() -> tuple[Module, ...]:
    """Return the modules of the package."""
    return tuple(module for module in all_modules() if module.path.is_relative_to(PACKAGE))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function and method, nested ones too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` for a chain of names, and the part that is names otherwise."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def imports(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each import with the full dotted name it brings; `from a import b` brings `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node, f"{node.module or ''}.{alias.name}"
