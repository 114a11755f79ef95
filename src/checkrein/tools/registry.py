"""Tools by name.

A registry grows; a snapshot does not. Whoever works with tools takes a snapshot first, so that a late registration changes nothing that is under way.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from checkrein.errors import DataError
from checkrein.ports.tool import Tool
from checkrein.tools.function import NAME_PATTERN

__all__ = ["ToolRegistry"]


class ToolRegistry:
    """The tools that plans and models may use.

    Args:
        tools: registered in this order.

    Raises:
        DataError: on creation, as `register`.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for item in tools:
            self.register(item)

    def register(self, tool: Tool, *, override: bool = False) -> None:
        """Add a tool under its name.

        Args:
            tool: what to add.
            override: replace a tool of the same name, at its place.

        Raises:
            DataError: the name is taken and `override` is False; the name is not 1 to 64 of letters, digits, `_`, `-`; or it is no tool.
        """
        name = getattr(tool, "name", None)
        if not isinstance(name, str) or not callable(getattr(tool, "call", None)):
            msg = f"{tool!r:.100} is no tool; decorate the function with @tool"
            raise DataError(msg)
        if not NAME_PATTERN.match(name):
            msg = f"{name!r:.100} is no name for a tool: 1 to 64 of the letters A-Z a-z, digits, _ and -"
            raise DataError(msg)
        if name in self._tools and not override:
            msg = f"there is a tool {name!r} already; register with override=True to replace it"
            raise DataError(msg)
        self._tools[name] = tool

    def snapshot(self) -> Mapping[str, Tool]:
        """Return the tools of now by name, in order of registration; the mapping never changes."""
        return MappingProxyType(dict(self._tools))

    def __iter__(self) -> Iterator[Tool]:
        """Iterate over the tools of now in order of registration."""
        return iter(tuple(self._tools.values()))

    def __len__(self) -> int:
        """Return the number of tools."""
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        """Say whether a tool has that name."""
        return name in self._tools
