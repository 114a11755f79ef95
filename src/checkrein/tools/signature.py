"""A function's signature as a JSON Schema 2020-12, and JSON arguments as the values the signature asks for, both by pydantic.

The schema is strict (`additionalProperties: false`); values are converted only after the schema was satisfied, so nothing is coerced that the schema
does not allow. This module loads pydantic; import it at the first schema's use.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import cast

import msgspec
from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.json_schema import GenerateJsonSchema

from checkrein.errors import InvalidArguments, InvalidJson
from checkrein.ports.tool import ToolOutput
from checkrein.tools.calling import Callee
from checkrein.tools.docstrings import documented_arguments
from checkrein.tools.schema import MAX_ISSUES, pointer
from checkrein.values import JsonObject, clean_text, shorten

__all__ = ["Signature", "json_form", "output_of"]

_MAX_NESTING = 130
_PLAIN = frozenset({str, int, float, bool})


class Signature:
    """What a tool's function takes.

    Raises:
        TypeError: on creation, when a parameter has no annotation, or one that has no JSON form.
    """

    def __init__(self, callee: Callee) -> None:
        bare = [name for name in callee.argument_names if name not in callee.annotations]
        if bare:
            msg = f"tool {callee.owner}: parameter {bare[0]} of {callee.name} has no annotation, so it has no schema"
            raise TypeError(msg)
        self._tool = callee.owner
        try:
            self._adapter: TypeAdapter[object] = TypeAdapter(cast("type[object]", _collector(callee)))
            schema = self._adapter.json_schema(schema_generator=_Plain)
        except (PydanticSchemaGenerationError, PydanticUserError) as error:
            reason = shorten(str(error).partition("\n")[0], 500)
            msg = f"tool {callee.owner}: {callee.name} takes something that has no JSON form: {reason}"
            raise TypeError(msg) from error
        self._validate: Callable[[bytes], dict[str, object]] = self._adapter.validator.validate_json
        self.output = output_of
        self.schema = JsonObject(_described(schema, documented_arguments(inspect.getdoc(callee.function) or "")))

    def bind(self, arguments: JsonObject) -> Mapping[str, object]:
        """Return the values of all parameters, defaults included; integral numbers are `int` where an `int` is asked for.

        Raises:
            InvalidArguments: a rule that a schema cannot express is broken (a model's own validator, a number too large).
        """
        try:
            return self._validate(arguments.encoded)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)
            issues = tuple((pointer(item["loc"]), shorten(clean_text(item["msg"]), 300)) for item in found[:MAX_ISSUES])
            raise InvalidArguments(self._tool, issues) from error


class _Plain(GenerateJsonSchema):
    """Leaves out titles that only repeat a name: a model pays for them with every request."""

    def field_title_should_be_set(self, schema: object) -> bool:
        """Return False: no field gets a title made of its name."""
        del schema
        return False


def _collector(callee: Callee) -> Callable[..., object]:
    """Return a function with the callee's signature, without the context, that returns its arguments by name."""

    @wraps(callee.function)
    def collect(**given: object) -> dict[str, object]:
        return given

    parameters = callee.signature.parameters
    named = [parameters[name].replace(kind=inspect.Parameter.KEYWORD_ONLY) for name in callee.argument_names]
    collect.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]  # inspect reads it, no stub names it
    collect.__annotations__ = {name: callee.annotations[name] for name in callee.argument_names}
    return collect


def _described(schema: Mapping[str, object], descriptions: Mapping[str, str]) -> Mapping[str, object]:
    """Return the schema with the docstring's words where a parameter has no description of its own."""
    properties = cast("Mapping[str, Mapping[str, object]]", schema.get("properties", {}))
    told = {
        name: {"description": descriptions[name], **inner} if name in descriptions else inner
        for name, inner in properties.items()
    }
    return {**schema, "properties": told}


def output_of(value: object) -> ToolOutput:
    """Return what a function returned as a tool's output.

    Raises:
        InvalidJson: it is nested too deeply, or contains itself.
    """
    if value is None or type(value) in _PLAIN:
        return ToolOutput(value)
    if isinstance(value, ToolOutput):
        return ToolOutput(json_form(value.value), value.artifacts, value.content)
    return ToolOutput(json_form(value))


def json_form(value: object, nesting: int = 0) -> object:
    """Return `value` with pydantic models, dataclasses and msgspec structs in it replaced by what they are as JSON; the rest stays.

    Raises:
        InvalidJson: it is nested too deeply, or contains itself.
    """
    if nesting > _MAX_NESTING:
        msg = "nested too deeply"
        raise InvalidJson(msg)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, msgspec.Struct) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return msgspec.to_builtins(value)
    if isinstance(value, (list, tuple)):
        return [json_form(item, nesting + 1) for item in cast("list[object]", value)]
    if isinstance(value, Mapping) and not isinstance(value, JsonObject):
        return {key: json_form(item, nesting + 1) for key, item in cast("Mapping[object, object]", value).items()}
    return value
