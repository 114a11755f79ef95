"""A runtime for AI agents that can be trusted to work alone.

The public names, and nothing else: each is loaded when it is first used, so `import checkrein` costs next to nothing and has no side effect. Adapters (stores,
verifiers, shipped tools) are imported from their own rooms. The invariant: `_HOMES` and `__all__` name the same things, and every name is a constant of this file.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from checkrein.errors import CheckreinError, FatalToolError, IllegalTransition, Rejected
    from checkrein.harness.planners import Plan, Step
    from checkrein.kernel.budget import Budget
    from checkrein.kernel.state import Phase, RunState
    from checkrein.messages import AssistantMessage, Text, ToolCall, ToolResult, UserMessage
    from checkrein.ports.tool import Accepted, CancelSignal, ToolContext
    from checkrein.runs.task import Task
    from checkrein.runs.worker import Worker
    from checkrein.tools.function import tool
    from checkrein.tools.registry import ToolRegistry

__all__ = [
    "Accepted",
    "AssistantMessage",
    "Budget",
    "CancelSignal",
    "CheckreinError",
    "FatalToolError",
    "IllegalTransition",
    "Phase",
    "Plan",
    "Rejected",
    "RunState",
    "Step",
    "Task",
    "Text",
    "ToolCall",
    "ToolContext",
    "ToolRegistry",
    "ToolResult",
    "UserMessage",
    "Worker",
    "tool",
]

_HOMES: Final = {
    "Accepted": "checkrein.ports.tool",
    "AssistantMessage": "checkrein.messages",
    "Budget": "checkrein.kernel.budget",
    "CancelSignal": "checkrein.ports.tool",
    "CheckreinError": "checkrein.errors",
    "FatalToolError": "checkrein.errors",
    "IllegalTransition": "checkrein.errors",
    "Phase": "checkrein.kernel.state",
    "Plan": "checkrein.harness.planners",
    "Rejected": "checkrein.errors",
    "RunState": "checkrein.kernel.state",
    "Step": "checkrein.harness.planners",
    "Task": "checkrein.runs.task",
    "Text": "checkrein.messages",
    "ToolCall": "checkrein.messages",
    "ToolContext": "checkrein.ports.tool",
    "ToolRegistry": "checkrein.tools.registry",
    "ToolResult": "checkrein.messages",
    "UserMessage": "checkrein.messages",
    "Worker": "checkrein.runs.worker",
    "tool": "checkrein.tools.function",
}


def __getattr__(name: str) -> object:
    """Load a public name on its first use.

    Raises:
        AttributeError: there is no such public name.
    """
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names and what is loaded already."""
    return sorted({*globals(), *__all__})
