"""A runtime for AI agents that can be trusted to work alone.

The public names, and nothing else: each is loaded when it is first used, so `import checkrein` costs next to nothing and has no side effect. Adapters (stores,
verifiers, shipped tools) are imported from their own rooms. The invariant: `_HOMES` and `__all__` name the same things, and every name is a constant of this file.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from checkrein.agent.agent import Agent
    from checkrein.agent.options import AgentOptions
    from checkrein.errors import (
        AgentBusyError,
        AgentMessageLimitError,
        AgentStateError,
        CheckreinError,
        FatalToolError,
        IllegalTransition,
        Rejected,
    )
    from checkrein.harness.hooks import SKIP, HookAbort, Pause
    from checkrein.harness.loop import HarnessLoop
    from checkrein.harness.planners import Plan, Step
    from checkrein.harness.pulls import PullRequest, SessionResult
    from checkrein.kernel.budget import Budget
    from checkrein.kernel.state import Phase, RunState
    from checkrein.loop.events import AgentEvent, RunResult
    from checkrein.loop.options import AgentHooks
    from checkrein.loop.run import run_agent_loop
    from checkrein.messages import AssistantMessage, Text, ToolCall, ToolResult, UserMessage, validate_transcript
    from checkrein.ports.model import ModelResponse, TextDelta
    from checkrein.ports.tool import Accepted, CancelSignal, ToolContext
    from checkrein.runs.task import Task
    from checkrein.runs.worker import Worker
    from checkrein.streams import EventStream
    from checkrein.tools.function import tool
    from checkrein.tools.registry import ToolRegistry

__all__ = [
    "SKIP",
    "Accepted",
    "Agent",
    "AgentBusyError",
    "AgentEvent",
    "AgentHooks",
    "AgentMessageLimitError",
    "AgentOptions",
    "AgentStateError",
    "AssistantMessage",
    "Budget",
    "CancelSignal",
    "CheckreinError",
    "EventStream",
    "FatalToolError",
    "HarnessLoop",
    "HookAbort",
    "IllegalTransition",
    "ModelResponse",
    "Pause",
    "Phase",
    "Plan",
    "PullRequest",
    "Rejected",
    "RunResult",
    "RunState",
    "SessionResult",
    "Step",
    "Task",
    "Text",
    "TextDelta",
    "ToolCall",
    "ToolContext",
    "ToolRegistry",
    "ToolResult",
    "UserMessage",
    "Worker",
    "run_agent_loop",
    "tool",
    "validate_transcript",
]

_HOMES: Final = {
    "SKIP": "checkrein.harness.hooks",
    "Accepted": "checkrein.ports.tool",
    "Agent": "checkrein.agent.agent",
    "AgentBusyError": "checkrein.errors",
    "AgentEvent": "checkrein.loop.events",
    "AgentHooks": "checkrein.loop.options",
    "AgentMessageLimitError": "checkrein.errors",
    "AgentOptions": "checkrein.agent.options",
    "AgentStateError": "checkrein.errors",
    "AssistantMessage": "checkrein.messages",
    "Budget": "checkrein.kernel.budget",
    "CancelSignal": "checkrein.ports.tool",
    "CheckreinError": "checkrein.errors",
    "EventStream": "checkrein.streams",
    "FatalToolError": "checkrein.errors",
    "HarnessLoop": "checkrein.harness.loop",
    "HookAbort": "checkrein.errors",
    "IllegalTransition": "checkrein.errors",
    "ModelResponse": "checkrein.ports.model",
    "Pause": "checkrein.harness.hooks",
    "Phase": "checkrein.kernel.state",
    "Plan": "checkrein.harness.planners",
    "PullRequest": "checkrein.harness.pulls",
    "Rejected": "checkrein.errors",
    "RunResult": "checkrein.loop.events",
    "RunState": "checkrein.kernel.state",
    "SessionResult": "checkrein.harness.pulls",
    "Step": "checkrein.harness.planners",
    "Task": "checkrein.runs.task",
    "Text": "checkrein.messages",
    "TextDelta": "checkrein.ports.model",
    "ToolCall": "checkrein.messages",
    "ToolContext": "checkrein.ports.tool",
    "ToolRegistry": "checkrein.tools.registry",
    "ToolResult": "checkrein.messages",
    "UserMessage": "checkrein.messages",
    "Worker": "checkrein.runs.worker",
    "run_agent_loop": "checkrein.loop.run",
    "tool": "checkrein.tools.function",
    "validate_transcript": "checkrein.messages",
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
