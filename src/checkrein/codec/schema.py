"""Versions of stored payloads, and how an older one becomes the current one.

Every stored event carries the version `v` its payload was written in. A payload's shape is changed only by raising its version here, with one line that
says what changed and an upcaster from the version before; logs of every released version stay readable. What is newer than this program is refused.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from checkrein.errors import DataError
from checkrein.kernel.events import RUN_EVENT_TYPES, SESSION_EVENT_TYPES
from checkrein.values import JsonValue

__all__ = ["CURRENT", "SUMMARIES", "UPCASTERS", "Upcaster", "upcast"]

Upcaster: TypeAlias = Callable[[dict[str, JsonValue]], dict[str, JsonValue]]

SUMMARIES: Final[Mapping[int, str]] = {1: "first release"}
"""What each schema version brought, for people."""

CURRENT: Final[Mapping[str, int]] = dict.fromkeys((*RUN_EVENT_TYPES, *SESSION_EVENT_TYPES), 1)
"""The version in which each payload is written today."""

UPCASTERS: Final[Mapping[tuple[str, int], Upcaster]] = {}
"""`(type, version) → payload of that version to payload of the next`."""


def upcast(
    payload: dict[str, JsonValue],
    version: int,
    *,
    current: Mapping[str, int] = CURRENT,
    upcasters: Mapping[tuple[str, int], Upcaster] = UPCASTERS,
) -> dict[str, JsonValue]:
    """Return a payload in its current version.

    Args:
        payload: the decoded payload with its `type`.
        version: the version it was written in.
        current: the current version by type.
        upcasters: the steps from each version to the next.

    Raises:
        DataError: the type is unknown, the version is newer than this program, or a step is missing.
    """
    kind = payload.get("type")
    if not isinstance(kind, str) or kind not in current:
        msg = f"unknown event type {kind!r}; it may come from a newer checkrein"
        raise DataError(msg)
    if not 1 <= version <= current[kind]:
        msg = f"{kind} is in schema version {version}; this program knows 1 to {current[kind]}"
        raise DataError(msg)
    for step in range(version, current[kind]):
        if (kind, step) not in upcasters:
            msg = f"no way from version {step} of {kind} to the next"
            raise DataError(msg)
        payload = upcasters[kind, step](payload)
    return payload
