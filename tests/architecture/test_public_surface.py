"""What can be imported is said in `__all__`, sorted, complete and small."""

import ast
import importlib
from collections.abc import Iterator

import checkrein
from tests.architecture.tree import Module, package_modules

PUBLIC_NAMES = 40


def test_the_package_offers_at_most_40_sorted_names() -> None:
    in_order = sorted(set(checkrein.__all__), key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert list(checkrein.__all__) == in_order, "constants, then classes, then functions, each by name"
    assert len(checkrein.__all__) <= PUBLIC_NAMES


def test_every_public_name_resolves() -> None:
    missing = [name for name in checkrein.__all__ if getattr(checkrein, name, None) is None]
    assert missing == []


def test_dir_shows_every_public_name() -> None:
    assert set(checkrein.__all__) <= set(dir(checkrein))


def test_every_name_that_a_module_lists_exists() -> None:
    assert [name for module in package_modules() for name in _missing(module)] == []


def _missing(module: Module) -> Iterator[str]:
    loaded = importlib.import_module(module.name)
    return (f"{module.name}.{name}" for name in _listed(module) if not hasattr(loaded, name))


def _listed(module: Module) -> list[str]:
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == "__all__" for to in node.targets):
            return list(ast.literal_eval(node.value))
    return []
