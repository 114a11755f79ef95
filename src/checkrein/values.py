"""Canonical JSON, the immutable `JsonObject`, size caps, and the sanitising of text at the door.

Everything that enters a log or a transcript passes `canonical_json` or `clean_text` once. The invariant: bytes made here are the only form of a
value (sorted keys, no whitespace, no NaN or Infinity, integers within ±(2^53-1), depth ≤ 128, keys unique, no lone surrogates), so equality of
bytes is equality of values; what a decoder left as it was stored gets that form before anybody sees it. What cannot be encoded is an `InvalidJson`, never a fallback. No I/O, no clock, no import of the rest of the house.

Sources of the rules: RFC 8259 (JSON), RFC 7493 (I-JSON: integer range, unique keys, no surrogates), RFC 6901 (JSON Pointer).
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Generic, NoReturn, Self, TypeAlias, TypeVar, cast, overload

import msgspec
from msgspec import Raw

from checkrein.errors import InvalidJson

__all__ = [
    "MAX_DEPTH",
    "MAX_INTEGER",
    "MAX_JSON_BYTES",
    "NULL",
    "JsonData",
    "JsonObject",
    "JsonValue",
    "Shared",
    "StoredData",
    "StoredObject",
    "as_data",
    "as_object",
    "canonical_json",
    "check_object",
    "clean_text",
    "parse_json",
    "shorten",
    "visible_text",
]

T = TypeVar("T")
JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

MAX_DEPTH = 128
"""Containers inside containers, at most."""
MAX_INTEGER = 2**53 - 1
"""Largest integer magnitude every JSON reader agrees on (RFC 7493 §2.2)."""
MAX_JSON_BYTES = 16 * 1024 * 1024
"""Largest single value in bytes of canonical JSON."""

_SURROGATES = re.compile("[\ud800-\udfff]")
_ENCODER = msgspec.json.Encoder(order="sorted")
_DECODER = msgspec.json.Decoder()
_OPENING_BRACE = ord("{")
_new, _set_attribute = object.__new__, object.__setattr__

# Control characters (C0 without tab and newline, DEL, C1), bidirectional controls, zero-width and other invisible format
# characters, line and paragraph separators, tag characters, variation-independent fillers: all can change what a reader believes is there.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def clean_text(text: str) -> str:
    """Return `text` as a plain `str` in which each lone surrogate is U+FFFD and a surrogate pair is its one character.

    Args:
        text: any `str` or subclass; `surrogateescape` file names are the usual carriers of lone surrogates.

    Raises:
        TypeError: it is none.
    """
    plain = text if type(text) is str else _plain_text(text)
    if plain.isascii() or not _SURROGATES.search(plain):
        return plain
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _plain_text(text: object) -> str:
    if isinstance(text, str):
        # What a subclass makes of itself is not asked.
        return str.__str__(text)
    msg = f"{type(text).__name__} is no text"
    raise TypeError(msg)


def visible_text(text: str, *, keep_newlines: bool = True) -> str:
    """Return `text` with every character a terminal or a reader's eye could be deceived by written as an escape.

    The escapes are those of Python literals (x, u and U with hexadecimal digits). Tabs stay; newlines stay unless `keep_newlines` is False. Escape sequences (CSI, OSC, DCS) lose their ESC and become plain text.
    """
    shown = _INVISIBLE.sub(lambda match: _escape(match.group()), clean_text(text))
    return shown if keep_newlines else shown.replace("\n", "\\n")


def _escape(character: str) -> str:
    return ascii(character)[1:-1]


def shorten(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text`; a cut is marked with an ellipsis and the number of characters left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit} more characters)"


def canonical_json(value: object, *, max_bytes: int = MAX_JSON_BYTES, max_depth: int = MAX_DEPTH) -> bytes:
    """Encode `value` as canonical JSON.

    Args:
        value: None, bool, int, float, str, and lists, tuples and string-keyed mappings of these, or a `JsonObject`.
        max_bytes: largest result in bytes.
        max_depth: containers inside containers, at most.

    Raises:
        InvalidJson: a value of another type, NaN or an infinity, an integer outside ±(2^53-1), a key that is not a string, keys that
            are the same after cleaning, nesting deeper than `max_depth`, or a result larger than `max_bytes`.
    """
    encoded = _ENCODER.encode(_plain(value, "", max_depth))
    if len(encoded) > max_bytes:
        msg = f"{len(encoded):,} bytes, more than the {max_bytes:,} allowed"
        raise InvalidJson(msg)
    return encoded


def _plain(value: object, pointer: str, depth: int) -> JsonValue:
    """Return `value` built of exact built-in types, or raise `InvalidJson`."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, int):
        return _plain_integer(value, pointer)
    if isinstance(value, float):
        return _plain_float(value, pointer)
    if depth <= 0:
        msg = "nested too deeply"
        raise InvalidJson(msg, pointer[:200])
    if isinstance(value, (list, tuple)):
        items = cast("list[object] | tuple[object, ...]", value)
        return [_plain(item, f"{pointer}/{index}", depth - 1) for index, item in enumerate(items)]
    if isinstance(value, Mapping):
        return _plain_mapping(cast("Mapping[object, object]", value), pointer, depth)
    msg = f"{type(value).__name__} has no JSON form"
    raise InvalidJson(msg, pointer)


def _plain_integer(value: int, pointer: str) -> int:
    plain = int.__int__(value)  # a subclass may compare and convert in its own way
    if -MAX_INTEGER <= plain <= MAX_INTEGER:
        return plain
    msg = "integer outside ±(2^53-1): write it as a string"
    raise InvalidJson(msg, pointer)


def _plain_float(value: float, pointer: str) -> float:
    plain = float.__float__(value)
    if math.isfinite(plain):
        return plain
    msg = "NaN and infinities have no JSON form"
    raise InvalidJson(msg, pointer)


def _plain_mapping(value: Mapping[object, object], pointer: str, depth: int) -> dict[str, JsonValue]:
    plain: dict[str, JsonValue] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            msg = f"key {key!r:.80} is no string"
            raise InvalidJson(msg, pointer)
        name = clean_text(key)
        inner = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
        if name in plain:
            msg = "key twice"
            raise InvalidJson(msg, inner)
        plain[name] = _plain(item, inner, depth - 1)
    return plain


def _refuse_constant(name: str) -> NoReturn:
    msg = f"{name} is no JSON"
    raise InvalidJson(msg)


def _unique_pairs(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        msg = f"key {twice!r:.80} twice"
        raise InvalidJson(msg)
    return unique


def parse_json(text: str | bytes, *, max_bytes: int = MAX_JSON_BYTES, max_depth: int = MAX_DEPTH) -> JsonValue:
    """Parse JSON from outside (a model, a tool, a file), strictly.

    Returns:
        The value, cleaned: `canonical_json` of it succeeds.

    Raises:
        InvalidJson: not JSON (RFC 8259), or a rule of `canonical_json` is broken, or a key stands twice in one object.
    """
    size = len(text)
    if size > max_bytes:
        msg = f"{size:,} characters, more than the {max_bytes:,} allowed"
        raise InvalidJson(msg)
    try:
        value = cast("JsonValue", json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_pairs))
        return _plain(value, "", max_depth)
    except InvalidJson:
        raise
    except RecursionError as error:
        msg = "nested too deeply"
        raise InvalidJson(msg) from error
    except ValueError as error:
        raise InvalidJson(shorten(f"not JSON: {error}", 300)) from error


def _object_json(value: object) -> bytes:
    if value is None:
        return b"{}"
    if isinstance(value, Mapping):
        return canonical_json(cast("Mapping[str, object]", value))
    msg = f"a JSON object is made of a mapping, not of a {type(value).__name__}"
    raise InvalidJson(msg)


class _Kept:
    """JSON that cannot be changed, kept as bytes; equality and hash are those of the canonical bytes."""

    __slots__ = ("_json",)
    _json: bytes | Raw

    def __init__(self, value: object = None) -> None:
        _set_attribute(self, "_json", value.encoded if isinstance(value, _Kept) else canonical_json(value))

    @classmethod
    def from_canonical(cls, encoded: bytes) -> Self:
        """Wrap bytes that `canonical_json` made; they are not checked again."""
        made = cls.__new__(cls)
        _set_attribute(made, "_json", encoded)
        return made

    @property
    def encoded(self) -> bytes:
        """The canonical bytes.

        Raises:
            InvalidJson: what was stored holds a number that no float can hold.
        """
        kept = self._json
        if type(kept) is bytes:
            return kept
        try:
            encoded = _ENCODER.encode(_DECODER.decode(kept))
        except (msgspec.MsgspecError, ValueError, OverflowError) as error:
            raise InvalidJson(shorten(f"not JSON: {error}", 300)) from error
        _set_attribute(self, "_json", encoded)
        return encoded

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: what is kept is immutable."""
        msg = f"{type(self).__name__} is immutable: cannot set {name}"
        raise AttributeError(msg)

    def __hash__(self) -> int:
        """Hash the canonical bytes."""
        return hash(self.encoded)

    def __copy__(self) -> Self:
        """Return the same object: it cannot change."""
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Return the same object: it cannot change."""
        return self

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        """Rebuild from the canonical bytes."""
        return (type(self).from_canonical, (self.encoded,))


class JsonObject(_Kept, Mapping[str, JsonValue]):
    """An immutable JSON object kept as canonical bytes.

    Each read decodes afresh, so nothing a reader does to a value reaches the object. Equality and hash are those of the bytes.

    Raises:
        InvalidJson: on creation, when a rule of `canonical_json` is broken.
    """

    __slots__ = ()

    def __init__(self, value: Mapping[str, object] | None = None) -> None:
        _set_attribute(self, "_json", value.encoded if isinstance(value, JsonObject) else _object_json(value))

    def decoded(self) -> dict[str, JsonValue]:
        """Return a fresh dict."""
        return cast("dict[str, JsonValue]", _DECODER.decode(self.encoded))

    def __getitem__(self, key: str) -> JsonValue:
        """Return a fresh copy of one value."""
        return self.decoded()[key]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys in sorted order."""
        return iter(self.decoded())

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self.decoded())

    def __eq__(self, other: object) -> bool:
        """Compare by canonical bytes; a plain mapping is encoded first."""
        if isinstance(other, JsonObject):
            return self.encoded == other.encoded
        if isinstance(other, Mapping):
            try:
                return self.encoded == canonical_json(cast("Mapping[str, object]", other))
            except InvalidJson:
                return False
        return NotImplemented

    __hash__ = _Kept.__hash__

    def __repr__(self) -> str:
        """Show the canonical text."""
        return f"JsonObject({self.encoded.decode()})"


class JsonData(_Kept):
    """Any JSON value, immutable, kept as canonical bytes; the sibling of `JsonObject` for values that need not be objects.

    Raises:
        InvalidJson: on creation, when a rule of `canonical_json` is broken.
    """

    __slots__ = ()

    @property
    def value(self) -> JsonValue:
        """A fresh copy of the value."""
        return cast("JsonValue", _DECODER.decode(self.encoded))

    def __eq__(self, other: object) -> bool:
        """Compare by canonical bytes."""
        return self.encoded == other.encoded if isinstance(other, JsonData) else NotImplemented

    __hash__ = _Kept.__hash__

    def __repr__(self) -> str:
        """Show the canonical text."""
        return f"JsonData({shorten(self.encoded.decode(), 200)})"


NULL = JsonData()
"""JSON's null."""

if TYPE_CHECKING:
    StoredObject: TypeAlias = JsonObject | Raw
    StoredData: TypeAlias = JsonData | Raw
else:
    StoredObject = StoredData = Raw
# What a struct declares JSON as that a decoder is to leave alone, instead of building objects of it that nobody may ever look at. `as_object` and `as_data` make the
# value of it. A Raw keeps alive the bytes that it was decoded from, so these should be of one event.


def check_object(stored: StoredObject) -> None:
    """Refuse what a decoder left alone although it is no object.

    Raises:
        InvalidJson: it is no object.
    """
    if type(stored) is Raw and bytes(stored)[0] != _OPENING_BRACE:
        msg = "expected an object"
        raise InvalidJson(msg)


def as_object(stored: StoredObject) -> JsonObject:
    """Return the object of what `check_object` let through; it is brought into canonical form when somebody first looks at it."""
    if not isinstance(stored, Raw):
        return stored
    made = _new(JsonObject)
    _set_attribute(made, "_json", stored)
    return made


def as_data(stored: StoredData) -> JsonData:
    """Return the value of what a decoder left alone; it is brought into canonical form when somebody first looks at it."""
    if not isinstance(stored, Raw):
        return stored
    made = _new(JsonData)
    _set_attribute(made, "_json", stored)
    return made


class Shared(Sequence[T], Generic[T]):
    """An immutable sequence that shares its storage with the sequences it grew from.

    `appended` is O(1) amortised on the newest sequence of a family and O(n) on an older one (it copies, so that no other sequence
    changes). Taking a reference is free. Equality and hash are those of the items in order, as for a tuple. Not for use from several threads at once.
    """

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items: list[T] = list(items)
        self._length = len(self._items)

    def appended(self, item: T) -> Self:
        """Return a sequence with `item` at its end; this one stays as it is."""
        items, length = self._items, self._length
        if len(items) != length:
            items = items[:length]
        items.append(item)
        made = object.__new__(type(self))
        made._items = items
        made._length = length + 1
        return made

    def extended(self, more: Iterable[T]) -> Self:
        """Return a sequence with the items of `more` at its end; this one stays as it is."""
        items = self._items if len(self._items) == self._length else self._items[: self._length]
        items.extend(more)
        made = object.__new__(type(self))
        made._items = items
        made._length = len(items)
        return made

    def __len__(self) -> int:
        """Return the number of items."""
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        """Return one item, or a tuple for a slice.

        Raises:
            IndexError: `index` is outside the sequence.
        """
        if isinstance(index, slice):
            return tuple(self._items[position] for position in range(*index.indices(self._length)))
        if not -self._length <= index < self._length:
            msg = f"index {index} outside a sequence of {self._length}"
            raise IndexError(msg)
        return self._items[index if index >= 0 else self._length + index]

    def __iter__(self) -> Iterator[T]:
        """Iterate over the items this sequence had when it was made."""
        return islice(self._items, self._length)

    def __eq__(self, other: object) -> bool:
        """Compare item by item with another `Shared` or a tuple."""
        if isinstance(other, (Shared, tuple)):
            theirs = cast("Sequence[object]", other)
            return self._length == len(theirs) and all(mine == their for mine, their in zip(self, theirs, strict=True))
        return NotImplemented

    def __hash__(self) -> int:
        """Hash as the tuple of the items."""
        return hash(tuple(self))

    def __repr__(self) -> str:
        """Show the items."""
        return f"Shared({list(self)!r})"
