"""The tail is gated: no module, class or function grows past what a person reads in one go."""

import ast
from collections.abc import Iterator

from tests.architecture.tree import Module, all_modules, dotted, functions

MODULE_LINES = 600
TEST_LINES = 800
FUNCTION_LINES = 60
PUBLIC_METHODS = 20
PARAMETERS = 6


def test_no_module_is_longer_than_its_limit() -> None:
    lengths = {module.place: len(module.text.splitlines()) for module in all_modules()}
    limits = {place: TEST_LINES if place.startswith("tests/") else MODULE_LINES for place in lengths}
    assert {place: lines for place, lines in lengths.items() if lines > limits[place]} == {}


def test_no_function_is_longer_than_60_lines() -> None:
    assert list(_long_functions()) == []


def test_no_class_has_more_than_20_public_methods() -> None:
    assert list(_wide_classes()) == []


def test_no_function_takes_more_than_6_parameters() -> None:
    assert list(_long_signatures()) == []


def test_only_decorators_take_kwargs() -> None:
    assert list(_untyped_signatures()) == []


def _long_functions() -> Iterator[str]:
    for module, function in _functions():
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > FUNCTION_LINES:
            yield f"{module.at(function)} {function.name}: {lines} lines"


def _wide_classes() -> Iterator[str]:
    for module in all_modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                methods = [item.name for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
                public = [name for name in methods if not name.startswith("_") and not name.startswith("test_")]
                if len(public) > PUBLIC_METHODS:
                    yield f"{module.at(node)} {node.name}: {len(public)} public methods"


def _long_signatures() -> Iterator[str]:
    for module, function in _functions():
        arguments = function.args
        named = [item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        counted = named[1:] if named[:1] in (["self"], ["cls"]) else named
        if len(counted) > PARAMETERS:
            yield f"{module.at(function)} {function.name}: {len(counted)} parameters"


def _untyped_signatures() -> Iterator[str]:
    for module, function in _functions():
        wraps = any(dotted(getattr(item, "func", item)).endswith("wraps") for item in function.decorator_list)
        kwarg = function.args.kwarg
        if kwarg and not wraps and not _is_unpacked(kwarg.annotation) and not _is_ignored(kwarg):
            yield f"{module.at(function)} {function.name}: **{kwarg.arg}"


def _is_unpacked(annotation: ast.expr | None) -> bool:
    # `**options: Unpack[SomeTypedDict]` names every option and its type.
    return isinstance(annotation, ast.Subscript) and dotted(annotation.value) == "Unpack"


def _is_ignored(kwarg: ast.arg) -> bool:
    # What an interface of somebody else passes and nobody reads: nothing travels through it.
    return kwarg.arg.startswith("_")


def _functions() -> Iterator[tuple[Module, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for module in all_modules():
        for function in functions(module.tree):
            yield module, function
