"""What can be imported is said in `__all__`, sorted, complete and small."""

import ast
import importlib
from collections.abc import Iterator

import checkrein
from tests.architecture.tree import Module, package_modules

PUBLIC_NAMES = 40


def test_the_package_offers_at_most_40_sorted_names() -> None:
    assert list(checkrein.__all__) == sorted(set(checkrein.__all__))
    assert len(checkrein.__all__) <= PUBLIC_NAMES


def test_every_public_name_resolves() -> None:
    missing = [name for name in checkrein.__all__ if getattr(checkrein, name, None) is None]
    assert missing == []


def test_dir_shows_every_public_name() -> None:
    assert set(checkrein.__all__) <= set(dir(checkrein))


def test_every_module_lists_its_public_names_sorted_and_they_exist() -> None:
    wrong = [fault for module in package_modules() for fault in _faults(module)]
    assert wrong == []


def _faults(module: Module) -> Iterator[str]:
    listed = _listed(module)
    if listed is None:
        return
    if listed != sorted(set(listed)):
        yield f"{module.name}: __all__ is not sorted"
    loaded = importlib.import_module(module.name)
    yield from (f"{module.name}.{name} does not exist" for name in listed if not hasattr(loaded, name))


def _listed(module: Module) -> list[str] | None:
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == "__all__" for to in node.targets):
            return list(ast.literal_eval(node.value))
    return None
