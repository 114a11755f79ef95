"""docs/tools.md knows every option of a tool and every shipped tool with its arguments."""

from importlib.metadata import entry_points
from typing import get_args

from checkrein.ports.tool import Tool
from checkrein.tools.function import ToolOptions
from checkrein.tools.outcomes import ErrorKind
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")


def test_every_option_of_a_tool_is_in_the_table_of_promises() -> None:
    assert [name for name in ToolOptions.__annotations__ if f"\n| `{name}` |" not in PAGE] == []


def test_every_kind_of_error_is_named() -> None:
    assert [kind for kind in get_args(ErrorKind) if f"`{kind}`" not in PAGE] == []


def test_every_shipped_tool_has_a_section_that_names_its_arguments() -> None:
    shipped: list[Tool] = [entry.load() for entry in entry_points(group="checkrein.tools")]
    assert len(shipped) >= 3
    for tool in shipped:
        section = PAGE.partition(f"\n### {tool.name}\n")[2].partition("\n### ")[0]
        assert section, tool.name
        properties = tool.schema["properties"]
        assert isinstance(properties, dict)
        assert [name for name in properties if name not in section] == [], tool.name
