"""What the Responses wire must get back as it came: reasoning items, and the phase that a model gave its text.

Pure. Both are kept in the signature of a `Thinking` block. The invariant: what `sealed_reasoning` took, `reasoning_of` gives back, but for fields that the API gives and does
not take.
"""

import json
from collections.abc import Mapping
from typing import Final, cast

from checkrein.errors import InvalidJson
from checkrein.messages import Thinking
from checkrein.providers.signature import opened, sealed
from checkrein.values import JsonValue, parse_json

__all__ = ["phase_of", "reasoning_of", "sealed_phase", "sealed_reasoning"]

_KEPT: Final = ("id", "encrypted_content", "content")
"""Fields that go back when they say something; `status` is refused by the API, and `summary` is demanded even when it is empty."""
_PHASE: Final = "phase"


def sealed_reasoning(item: Mapping[str, object]) -> str:
    """Return the signature for a reasoning item; `""` for one that says nothing and so need not go back."""
    kept = {name: item[name] for name in _KEPT if item.get(name)}
    given = item.get("summary")
    summary = cast("list[object]", given) if isinstance(given, list) else []
    if not summary and kept.keys() <= {"id"}:
        return ""
    return sealed("responses", json.dumps({"type": "reasoning", "summary": summary, **kept}, ensure_ascii=False))


def reasoning_of(block: Thinking) -> Mapping[str, JsonValue] | None:
    """Return the item that goes back for a block; None when it came over another wire."""
    item = _opened(block)
    return item if item is not None and item.get("type") == "reasoning" else None


def sealed_phase(phase: str) -> str:
    """Return the signature of an empty block that says which phase the text right before it belongs to."""
    return sealed("responses", json.dumps({_PHASE: phase}, ensure_ascii=False))


def phase_of(block: Thinking) -> str:
    """Return the phase of the text before a block; `""` when the block says none."""
    item = _opened(block)
    phase = None if item is None else item.get(_PHASE)
    return phase if isinstance(phase, str) else ""


def _opened(block: Thinking) -> Mapping[str, JsonValue] | None:
    payload = opened("responses", block.signature)
    if payload is None:
        return None
    try:
        item = parse_json(payload)
    except InvalidJson:
        return None
    return item if isinstance(item, dict) else None
