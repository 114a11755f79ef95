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
    from checkrein.testing.tool_case import ToolCase
    from checkrein.testing.tool_conformance import ToolConformance, conform
    from checkrein.testing.tool_report import ToolReport

__all__ = [
    "CrashPoint",
    "DurableStoreConformance",
    "ManualClock",
    "RunStoreConformance",
    "ScriptedModel",
    "ToolCase",
    "ToolConformance",
    "ToolReport",
    "conform",
    "reply",
]

_HOMES: Final = {
    "CrashPoint": "checkrein.testing.crash",
    "DurableStoreConformance": "checkrein.testing.conformance",
    "ManualClock": "checkrein.testing.manual_clock",
    "RunStoreConformance": "checkrein.testing.conformance",
    "ScriptedModel": "checkrein.testing.scripted",
    "ToolCase": "checkrein.testing.tool_case",
    "ToolConformance": "checkrein.testing.tool_conformance",
    "ToolReport": "checkrein.testing.tool_report",
    "conform": "checkrein.testing.tool_conformance",
    "reply": "checkrein.testing.scripted",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
