"""What tests of runs, stores and tools are made with; ships with the package so that users can hold their own to the same.

Names resolve on first use, so importing this package loads none of them.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from checkrein.testing.conformance import DurableStoreConformance, RunStoreConformance
    from checkrein.testing.crash import CrashPoint
    from checkrein.testing.manual_clock import ManualClock
    from checkrein.testing.scripted import ScriptedModel, reply

__all__ = ["CrashPoint", "DurableStoreConformance", "ManualClock", "RunStoreConformance", "ScriptedModel", "reply"]

_HOMES: Final = {
    "CrashPoint": "checkrein.testing.crash",
    "DurableStoreConformance": "checkrein.testing.conformance",
    "ManualClock": "checkrein.testing.manual_clock",
    "RunStoreConformance": "checkrein.testing.conformance",
    "ScriptedModel": "checkrein.testing.scripted",
    "reply": "checkrein.testing.scripted",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
