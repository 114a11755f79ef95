"""The ten topics of hooks, and the one table of what the hooks of each may do.

A session is not known here, nor how a hook is called: these are the facts that the registry obeys and the documentation prints.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args

import msgspec

__all__ = ["POWERS", "TOPICS", "Powers", "Topic", "powers_table"]

Topic: TypeAlias = Literal[
    "before_plan",
    "after_plan",
    "before_step",
    "before_tool_call",
    "after_tool_call",
    "after_step",
    "on_error",
    "on_pause",
    "on_budget_exceeded",
    "on_complete",
]
TOPICS: Final[tuple[Topic, ...]] = get_args(Topic)
"""The topics, in the order of the documentation."""


class Powers(msgspec.Struct, frozen=True):
    """What the hooks of one topic may do.

    Attributes:
        abort: raise `HookAbort(text)`.
        skip: return `SKIP`.
        pause: return `Pause(reason)`.
        changes: the parts of the payload whose change has an effect; `arguments` are those of its `call`.
        when: when the topic is fired, relative to the session's events.
    """

    abort: bool
    skip: bool
    pause: bool
    changes: tuple[str, ...]
    when: str


def _may(*powers: Literal["abort", "skip", "pause"], when: str, changes: tuple[str, ...] = ()) -> Powers:
    return Powers(abort="abort" in powers, skip="skip" in powers, pause="pause" in powers, changes=changes, when=when)


POWERS: Final[Mapping[Topic, Powers]] = MappingProxyType(
    {
        "before_plan": _may("abort", "pause", when="after `turn.start`, before the planner is asked"),
        "after_plan": _may("abort", "pause", when="after `plan.draft`, before `plan.commit`", changes=("steps",)),
        "before_step": _may("abort", "skip", "pause", when="before `step.start`"),
        "before_tool_call": _may(
            "abort",
            "skip",
            "pause",
            when="after `step.start`, before the call is counted and granted",
            changes=("arguments",),
        ),
        "after_tool_call": _may(
            "abort", "pause", when="after `tool.result` or `tool.error`", changes=("result", "error")
        ),
        "after_step": _may("abort", "skip", "pause", when="after `step.end`"),
        "on_error": _may("pause", when="after each `tool.error`, and after each failure of a planner or a hook"),
        "on_pause": _may(when="after `session.pause`", changes=("resume",)),
        "on_budget_exceeded": _may(when="before `budget.warn`"),
        "on_complete": _may(when="before `session.complete`"),
    }
)
"""The one table of what each topic accepts."""


def powers_table() -> str:
    """Return `POWERS` as a Markdown table."""
    head = "| topic | when | may change | `raise HookAbort(text)` | `return SKIP` | `return Pause(reason)` |"
    return "\n".join([head, "|---|---|---|---|---|---|", *(_row(topic) for topic in TOPICS)])


def _row(topic: Topic) -> str:
    powers = POWERS[topic]
    changes = ", ".join(f"`{name}`" for name in powers.changes) or "–"
    marks = ("yes" if has_power else "–" for has_power in (powers.abort, powers.skip, powers.pause))
    return f"| `{topic}` | {powers.when} | {changes} | {' | '.join(marks)} |"
