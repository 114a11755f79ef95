"""Whether a call can be made at all: its tool is known, its arguments are an object, and they are what the tool asks for.

Nothing of a tool's body runs here. What is refused is a `FailedCall` that counts no attempt and tells a model enough to do better.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from checkrein.errors import InvalidArguments
from checkrein.ports.tool import Tool
from checkrein.tools.outcomes import FailedCall
from checkrein.tools.results import describe_error
from checkrein.values import JsonObject, clean_text, shorten

if TYPE_CHECKING:
    from checkrein.tools.schema import ArgumentSchema

__all__ = ["PreparedCall", "Preparer"]

_ECHO_CHARACTERS = 200
_TEXT_CHARACTERS = 2_000


class PreparedCall(msgspec.Struct, frozen=True):
    """A call that can be made: its tool is known and its arguments are valid.

    Attributes:
        tool: the tool.
        arguments: valid arguments.
    """

    tool: Tool
    arguments: JsonObject

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.tool.name


class Preparer:
    """Checks calls of some tools; their schemas are compiled at their first call.

    Args:
        tools: tools by name, as `ToolRegistry.snapshot()` gives them.

    Attributes:
        tools: as given.
    """

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self.tools = tools
        self._schemas: dict[str, ArgumentSchema] = {}

    def prepare(self, name: str, arguments: JsonObject, *, malformed: str = "") -> PreparedCall | FailedCall:
        """Decide whether a call can be made; runs nothing of the tool's body.

        Args:
            name: the tool's name.
            arguments: the arguments.
            malformed: the text of arguments that were no JSON object, if a model sent such.

        Returns:
            The call, or why it cannot be made: `not_found`, `schema` (every place that is wrong, with what was expected), or
            `internal` (the tool's own schema is invalid). No attempt is counted.
        """
        tool = self.tools.get(name)
        if tool is None:
            return self._unknown(name)
        try:
            schema = self._schemas.get(name) or self._compiled(tool)
            if malformed:
                return _malformed(tool, malformed)
            if not schema.is_valid(arguments.decoded()):
                return _refused(InvalidArguments(name, schema.issues(arguments)))
            tool.check(arguments)
        except InvalidArguments as error:
            return _refused(error)
        except Exception as error:  # noqa: BLE001  a schema is made by a tool's author; it must not take the driver down
            return FailedCall("internal", f"tool {name} cannot be called: {describe_error(error)}", attempts=0)
        return PreparedCall(tool, arguments)

    def _compiled(self, tool: Tool) -> "ArgumentSchema":
        """Compile a tool's schema.

        Raises:
            DataError: it is invalid.
        """
        from checkrein.tools.schema import compiled

        schema = self._schemas[tool.name] = compiled(tool.schema)
        return schema

    def _unknown(self, name: str) -> FailedCall:
        known = ", ".join(sorted(self.tools)) or "none"
        text = f"there is no tool {shorten(clean_text(name), _ECHO_CHARACTERS)!r}; there are: {known}"
        return FailedCall("not_found", shorten(text, _TEXT_CHARACTERS), attempts=0)


def _refused(error: InvalidArguments) -> FailedCall:
    return FailedCall("schema", describe_error(error), attempts=0, issues=error.issues)


def _malformed(tool: Tool, text: str) -> FailedCall:
    """Return the failure of arguments that are no JSON object: a short echo, and the schema to follow."""
    echo = shorten(clean_text(text), _ECHO_CHARACTERS)
    schema = shorten(tool.schema.encoded.decode(), _TEXT_CHARACTERS)
    issues = (("", "expected a JSON object"),)
    return FailedCall(
        "schema",
        f"the arguments of {tool.name} are no JSON object: {echo}\nschema: {schema}",
        attempts=0,
        issues=issues,
    )
