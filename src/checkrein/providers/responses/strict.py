"""Which JSON Schemas OpenAI can hold a model to.

Pure. With `strict` the API promises arguments or answers that match, and refuses every schema with a keyword it cannot enforce. The invariant: a schema is called strict only
when the API takes it as such; any other is sent all the same, and our own validation has the last word either way.
"""

from collections.abc import Mapping
from typing import Final

from checkrein.values import JsonObject, JsonValue

__all__ = ["is_strict"]

_PLAIN: Final = frozenset(
    {
        "$ref",
        "const",
        "description",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "multipleOf",
        "pattern",
        "title",
        "type",
    }
)
"""Keywords the API enforces or ignores whose values hold no schemas."""
_SHAPE: Final = frozenset({"additionalProperties", "required"})
_DEEPEST: Final = 10
"""The API takes no deeper nesting."""


def is_strict(schema: JsonObject) -> bool:
    """Tell whether a schema keeps the rules: an object at its root, every object closed with all its properties required, and no keyword the API does not know."""
    root = schema.decoded()
    return root.get("type") == "object" and "anyOf" not in root and _keeps(root, _DEEPEST)


def _keeps(schema: JsonValue, depth: int) -> bool:
    if not isinstance(schema, dict) or depth < 0:
        return False
    if not _is_closed(schema):
        return False
    return all(_keeps_keyword(name, value, depth - 1) for name, value in schema.items())


def _is_closed(schema: Mapping[str, JsonValue]) -> bool:
    kinds = schema.get("type")
    is_object = kinds == "object" or (isinstance(kinds, list) and "object" in kinds)
    if not is_object and "properties" not in schema:
        return True
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        return False
    return schema.get("additionalProperties") is False and {*map(str, required)} == {*properties}


def _keeps_keyword(name: str, value: JsonValue, depth: int) -> bool:
    if name in _PLAIN or name in _SHAPE:
        return True
    if name == "items":
        return _keeps(value, depth)
    if name in {"properties", "$defs"}:
        return isinstance(value, dict) and all(_keeps(item, depth) for item in value.values())
    return name == "anyOf" and isinstance(value, list) and all(_keeps(item, depth) for item in value)
