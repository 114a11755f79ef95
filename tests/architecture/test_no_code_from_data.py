"""Data never becomes code: no pickle, no eval, no import by a name that a log, a model or a file supplied."""

import ast
from collections.abc import Iterator

from tests.architecture.tree import Module, dotted, imports, package_modules

MODULES = {"pickle", "cPickle", "dill", "marshal", "shelve", "yaml", "runpy", "imp", "code", "codeop"}
CALLS = {"eval", "exec", "compile", "__import__"}
LOADERS = {"importlib"}

# Modules that may use importlib, and why the names they import are not data.
IMPORTLIB: dict[str, str] = {
    "checkrein": "loads a public name by a constant table of our own modules",
    "checkrein.testing": "loads a public name by a constant table of our own modules",
    "checkrein.cli.loader": "loads the code of a trusted task folder from the very bytes that were hashed",
    "checkrein.verify.kinds": "loads a shipped kind of check by a constant table of our own modules",
}


def test_no_module_can_turn_data_into_code() -> None:
    assert [use for module in package_modules() for use in _uses(module)] == []


def test_importlib_is_used_only_where_the_reason_stands_here() -> None:
    found = {module.name for module in package_modules() if _loads(module)}
    assert found == set(IMPORTLIB)


def _uses(module: Module) -> Iterator[str]:
    for node, name in imports(module.tree):
        if name.partition(".")[0] in MODULES:
            yield f"{module.at(node)} import {name}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            yield f"{module.at(node)} {node.func.id}()"
        if isinstance(node, ast.Call) and dotted(node.func) in {f"builtins.{name}" for name in CALLS}:
            yield f"{module.at(node)} {dotted(node.func)}()"


def _loads(module: Module) -> bool:
    return any(name.partition(".")[0] in LOADERS and not _only_reads(name) for _, name in imports(module.tree))


def _only_reads(name: str) -> bool:
    return name.startswith(("importlib.metadata", "importlib.resources", "importlib.util.find_spec"))
