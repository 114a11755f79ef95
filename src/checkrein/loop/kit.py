"""What a turn works with: a model's method, tools and settings. Made once, and shared by all turns and runs that use the same."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from checkrein.loop.options import TurnSettings
from checkrein.ports.model import ModelRequest, ModelStream, ToolSchema
from checkrein.ports.tool import CancelSignal, Tool
from checkrein.tools.prepare import Preparer
from checkrein.tools.registry import ToolRegistry
from checkrein.values import JsonObject

__all__ = ["Kit", "StreamOf"]

StreamOf: TypeAlias = Callable[[ModelRequest, CancelSignal], ModelStream]


class Kit:
    """A model's method, tools and settings.

    Args:
        stream_of: the model's method.
        tools: what the model may call, by name.
        settings: the provider's settings for each request.

    Attributes:
        stream_of: as given.
        settings: as given.
        preparer: checks calls of the tools.
        schemas: the tools as the model sees them.

    Raises:
        TypeError: on creation: a tool's function has no schema.
    """

    def __init__(self, stream_of: StreamOf, tools: Mapping[str, Tool], settings: JsonObject) -> None:
        self.stream_of = stream_of
        self.settings = settings
        self.preparer = Preparer(tools)
        self.schemas = tuple(ToolSchema(tool.name, tool.description, tool.schema) for tool in tools.values())
        self._last: tuple[object, Kit] | None = None

    def changed(self, chosen: object) -> "Kit":
        """Return the kit of a turn that uses something else; the same one when the same is chosen again.

        Raises:
            TypeError: that is no `TurnSettings`, or a tool's function has no schema.
            AttributeError: the model is none.
            DataError: a tool is none, two have one name, or the settings have no JSON form.
        """
        if not isinstance(chosen, TurnSettings):
            msg = f"it returned a {type(chosen).__name__}, no TurnSettings"
            raise TypeError(msg)
        tools = None if chosen.tools is None else tuple(chosen.tools)
        settings = self.settings if chosen.settings is None else JsonObject(chosen.settings)
        choice = (chosen.model, tools, settings)
        if self._last is None or self._last[0] != choice:
            stream_of = self.stream_of if chosen.model is None else chosen.model.stream
            known = self.preparer.tools if tools is None else ToolRegistry(tools).snapshot()
            self._last = (choice, Kit(stream_of, known, settings))
        return self._last[1]
