"""Tools by name."""

from typing import Any, cast

import pytest

from checkrein.errors import DataError
from checkrein.ports.tool import Tool
from checkrein.tools.function import tool
from checkrein.tools.registry import ToolRegistry


@tool
def first() -> None: ...


@tool
def second() -> None: ...


def test_tools_keep_the_order_of_their_registration() -> None:
    registry = ToolRegistry([second, first])
    assert [item.name for item in registry] == list(registry.snapshot()) == ["second", "first"]
    assert len(registry) == 2
    assert "first" in registry


def test_a_known_name_is_refused_unless_it_is_meant() -> None:
    registry = ToolRegistry([first])
    other = tool(name="first")(lambda: None)
    with pytest.raises(DataError, match="there is a tool 'first' already"):
        registry.register(other)
    registry.register(other, override=True)
    assert registry.snapshot()["first"] is other


def test_a_snapshot_never_changes() -> None:
    registry = ToolRegistry([first])
    taken = registry.snapshot()
    registry.register(second)
    assert list(taken) == ["first"]
    with pytest.raises(TypeError):
        cast("dict[str, Tool]", taken)["second"] = second


def test_a_bare_function_is_no_tool() -> None:
    def bare() -> None: ...

    with pytest.raises(DataError, match="decorate the function with @tool"):
        ToolRegistry([cast("Any", bare)])
