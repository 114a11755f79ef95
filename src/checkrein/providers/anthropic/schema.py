"""JSON Schemas as the Messages API takes them.

Pure. An answer's schema may use a part of JSON Schema only: every object is closed, and sizes cannot be limited. What the API has no word for is said in the description, where
the model reads it; whoever asked for the schema checks the answer against the whole of it. The invariant: what the API would refuse is gone, and nothing is gone unsaid.
"""

from collections.abc import Mapping
from typing import Final

from checkrein.values import JsonObject, JsonValue, canonical_json

__all__ = ["answer_schema", "input_schema"]

_UNKNOWN: Final = frozenset({
    "contains", "dependentRequired", "dependentSchemas", "exclusiveMaximum", "exclusiveMinimum", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum",
    "minContains", "minLength", "minProperties", "minimum", "multipleOf", "patternProperties", "propertyNames", "unevaluatedProperties", "uniqueItems",
})  # fmt: skip
"""Keywords that an answer's schema must not hold."""
_LITERAL: Final = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose value is no schema."""
_NAMED: Final = frozenset({"$defs", "definitions", "properties"})
"""Keywords whose value is schemas by name."""
_MAX_MIN_ITEMS: Final = 1


def input_schema(schema: JsonObject) -> JsonValue:
    """Return a tool's parameters; the API demands that they are said to be an object."""
    plain = schema.decoded()
    return plain if "type" in plain else {"type": "object", **plain}


def answer_schema(schema: JsonObject) -> JsonValue:
    """Return the schema of an answer's text."""
    return _closed(schema.decoded())


def _closed(schema: JsonValue) -> JsonValue:
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _value(name, value) for name, value in schema.items() if not _is_unknown(name, value)}
    unsaid = {name: value for name, value in schema.items() if _is_unknown(name, value)}
    if made.get("type") == "object" or "properties" in made:
        made.setdefault("additionalProperties", False)
    if unsaid:
        said = canonical_json(unsaid).decode()
        given = made.get("description")
        made["description"] = f"{given}\n\n{said}" if given else said
    return made


def _is_unknown(name: str, value: JsonValue) -> bool:
    if name == "minItems":
        return not isinstance(value, int) or value > _MAX_MIN_ITEMS
    return name in _UNKNOWN


def _value(name: str, value: JsonValue) -> JsonValue:
    if name in _LITERAL:
        return value
    if name in _NAMED and isinstance(value, Mapping):
        return {key: _closed(item) for key, item in value.items()}
    return _closed(value)
