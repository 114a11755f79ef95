"""Reads JSON artifacts, and finds values in them by JSON Pointer (RFC 6901)."""

from typing import Final

from checkrein.errors import InvalidJson
from checkrein.values import MAX_JSON_BYTES, JsonValue, parse_json
from checkrein.verify.artifacts import Unmet, read_text

__all__ = ["at_pointer", "has_key", "pointer_problem", "read_json"]

MAX_DEPTH: Final = 128


def read_json(content: bytes, path: str) -> JsonValue:
    """Parse strictly: RFC 8259 with the rules of I-JSON (RFC 7493): no key twice, integers within ±(2^53-1); at most 128 levels and 16 MiB.

    Raises:
        Unmet: `not_text`, `too_large`, or `not_json` with the rule that is broken.
    """
    if len(content) > MAX_JSON_BYTES:
        raise Unmet(
            "too_large", f"{path} has {len(content):,} bytes, more than the {MAX_JSON_BYTES:,} that are read as JSON"
        )
    try:
        return parse_json(read_text(content, path), max_depth=MAX_DEPTH)
    except InvalidJson as error:
        raise Unmet("not_json", f"{path} is not JSON: {error}") from error


def pointer_problem(pointer: str) -> str:
    """Return in words why `pointer` is no JSON Pointer, `""` when it is one."""
    if not pointer.startswith("/"):
        return f"{pointer!r} does not begin with `/`"
    escapes = pointer.replace("~0", "").replace("~1", "")
    return f"{pointer!r} has a `~` that is neither `~0` nor `~1`" if "~" in escapes else ""


def at_pointer(value: JsonValue, pointer: str, path: str) -> JsonValue:
    """Return the value at `pointer`.

    Raises:
        Unmet: `missing_key` when there is none.
    """
    here = value
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict) and name in here:
            here = here[name]
        elif isinstance(here, list) and name.isascii() and name.isdecimal() and int(name[:9]) < len(here):
            here = here[int(name[:9])]
        else:
            raise Unmet("missing_key", f"{path} has nothing at {pointer}")
    return here


def has_key(value: JsonValue, key: str, path: str) -> bool:
    """Tell whether a JSON value has `key`: a name at the top, or a JSON Pointer when it begins with `/`."""
    if not key.startswith("/"):
        return isinstance(value, dict) and key in value
    try:
        at_pointer(value, key, path)
    except Unmet:
        return False
    return True
