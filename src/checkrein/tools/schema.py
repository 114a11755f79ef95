"""Arguments against a JSON Schema 2020-12, by jsonschema-rs: strict, linear in time, and without any retrieval.

Nothing is coerced and nothing is fetched: a `$ref` to an address or a file makes the schema invalid. Every issue says where (RFC 6901 JSON Pointer)
and what was expected there, so that a model can correct itself in one round trip. This module loads jsonschema-rs; import it at the first schema's use.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NoReturn, Protocol, cast

import jsonschema_rs

from checkrein.errors import DataError
from checkrein.values import JsonObject, clean_text, shorten

__all__ = ["ArgumentSchema", "Issues", "compiled", "pointer"]

Issues = tuple[tuple[str, str], ...]
"""Pairs of JSON Pointer and what was expected there."""

MAX_ISSUES = 20
_ECHO = 80
_NAMES = {"object": "an object", "array": "an array", "integer": "an integer"}


def pointer(parts: Iterable[str | int]) -> str:
    """Return the JSON Pointer (RFC 6901) of a path, `""` for the whole value."""
    return "".join(f"/{clean_text(str(part)).replace('~', '~0').replace('/', '~1')}" for part in parts)


def _deny(uri: str) -> NoReturn:
    msg = f"a schema may not refer to {shorten(uri, 200)}"
    raise ValueError(msg)


class ArgumentSchema:
    """A tool's schema, compiled.

    Attributes:
        is_valid: tells whether arguments, as plain values, are valid; cheaper than an empty list of issues.

    Raises:
        DataError: on creation, when it is no valid JSON Schema 2020-12, refers outside itself, or has a pattern that cannot be matched in
            linear time (look-around, back references).
    """

    def __init__(self, schema: JsonObject) -> None:
        try:
            self._validator = jsonschema_rs.Draft202012Validator(
                schema.decoded(), retriever=_deny, pattern_options=jsonschema_rs.RegexOptions()
            )
            self.is_valid = self._validator.is_valid
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            reason = getattr(error, "message", "") or str(error)
            msg = f"the schema is invalid: {shorten(clean_text(reason), 500)}"
            raise DataError(msg) from error

    def issues(self, arguments: JsonObject) -> Issues:
        """Return what is wrong with `arguments`, at most 20 issues; nothing when they are valid."""
        found: list[tuple[str, str]] = []
        for error in self._validator.iter_errors(arguments.decoded()):
            found.extend(_explained(error))
            if len(found) >= MAX_ISSUES:
                break
        return tuple(dict.fromkeys(found))[:MAX_ISSUES]


@lru_cache(maxsize=256)
def compiled(schema: JsonObject) -> ArgumentSchema:
    """Return a schema, compiled once for all who use an equal one.

    Raises:
        DataError: as `ArgumentSchema`.
    """
    return ArgumentSchema(schema)


def _explained(error: jsonschema_rs.ValidationError) -> list[tuple[str, str]]:
    kind = error.kind
    path = error.instance_path
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        return [(pointer([*path, kind.property]), "is required and missing")]
    if isinstance(
        kind,
        (
            jsonschema_rs.ValidationErrorKind.AdditionalProperties,
            jsonschema_rs.ValidationErrorKind.UnevaluatedProperties,
        ),
    ):
        return [(pointer([*path, shorten(name, _ECHO)]), "is not known here") for name in kind.unexpected]
    return [(pointer(path), _expected(error))]


def _expected(error: jsonschema_rs.ValidationError) -> str:
    kind = error.kind
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Type):
        return f"expected {_either(map(_named, kind.types))}, got {_shape(error.instance)}"
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Enum):
        return shorten(f"expected one of {_listed(kind.options)}", 400)
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Constant):
        return f"expected {_listed([kind.expected_value])}"
    if isinstance(kind, (jsonschema_rs.ValidationErrorKind.AnyOf, jsonschema_rs.ValidationErrorKind.OneOfNotValid)):
        return _branches(error, kind.context)
    limit = _LIMITS.get(type(kind))
    if limit is not None:
        return limit(cast("_HasLimit", kind))
    # Every other keyword: the library's words, with the value masked, because it may be long or hostile.
    return shorten(f"does not fit {kind.name!r} of the schema: {clean_text(error.message)}", 300)


class _HasLimit(Protocol):
    @property
    def limit(self) -> int | float: ...
    @property
    def pattern(self) -> str: ...


_K = jsonschema_rs.ValidationErrorKind
_LIMITS: dict[type, Callable[[_HasLimit], str]] = {
    _K.Minimum: lambda kind: f"expected at least {kind.limit}",
    _K.Maximum: lambda kind: f"expected at most {kind.limit}",
    _K.ExclusiveMinimum: lambda kind: f"expected more than {kind.limit}",
    _K.ExclusiveMaximum: lambda kind: f"expected less than {kind.limit}",
    _K.MinLength: lambda kind: f"expected at least {kind.limit} characters",
    _K.MaxLength: lambda kind: f"expected at most {kind.limit} characters",
    _K.MinItems: lambda kind: f"expected at least {kind.limit} items",
    _K.MaxItems: lambda kind: f"expected at most {kind.limit} items",
    _K.Pattern: lambda kind: f"expected a text that matches {shorten(kind.pattern, 200)}",
}


def _branches(error: jsonschema_rs.ValidationError, branches: Sequence[Sequence[jsonschema_rs.ValidationError]]) -> str:
    """Return what a union expected: its types when the value has none of them, else what each branch missed."""
    flat = [branch[0] for branch in branches if branch]
    here = len(error.instance_path)
    if all(isinstance(item.kind, _K.Type) and len(item.instance_path) == here for item in flat):
        types = dict.fromkeys(_named(name) for item in flat for name in cast("_HasTypes", item.kind).types)
        return f"expected {_either(types)}, got {_shape(error.instance)}"
    missed = dict.fromkeys(_branch(item) for item in flat)
    return shorten(f"expected one of several forms: {' | '.join(missed)}", 600)


class _HasTypes(Protocol):
    @property
    def types(self) -> list[str]: ...


def _branch(error: jsonschema_rs.ValidationError) -> str:
    where, what = _explained(error)[0]
    return f"{where} {what}" if where else what


def _named(type_name: str) -> str:
    return _NAMES.get(type_name, "null" if type_name == "null" else f"a {type_name}")


def _either(names: Iterable[str]) -> str:
    return " or ".join(names)


def _listed(values: Iterable[object]) -> str:
    return ", ".join(
        shorten(clean_text(repr(value) if not isinstance(value, str) else f'"{value}"'), _ECHO) for value in values
    )


def _shape(value: object) -> str:
    """Return what a value is, in a model's words, without repeating a long one."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return f"the number {shorten(repr(value), _ECHO)}"
    if isinstance(value, str):
        return f'the text "{shorten(clean_text(value), _ECHO)}"'
    return "an array" if isinstance(value, list) else "an object"
