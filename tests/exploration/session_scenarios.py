"""The closed worlds in which sessions are explored: which plans there are, which hooks listen, and how little budget there is."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from checkrein.harness.hooks import Topic
from checkrein.harness.planners import Plan, Step
from checkrein.kernel.budget import Budget
from checkrein.kernel.session_next import OnFailure

GO, ABORT, SKIPS, PAUSES, FAILS = "go", "abort", "skip", "pause", "fail"
DECIDES, DENIES, EXTENDS = "decide", "deny", "extend"
"""What a hook of `on_pause` may answer at once."""
EMPTY, BREAKS, CRASHES = "empty", "breaks", "crashes"
ALLOWED, ASKED, DENIED = "allow", "ask", "deny"


class Scenario(NamedTuple):
    """One closed world.

    Attributes:
        name: for people.
        plans: what the planner may answer, besides nothing, breaking and crashing.
        hooks: what the one hook of each topic may do.
        limits: the budget; what it does not name is unlimited.
        on_failure: what follows a failed step.
        policy: what the policy may say about a call.
        answers: what the planner may do besides giving a plan.
        messages: whether a person sends messages.
        has_clock: whether the time may run out.
    """

    name: str
    plans: tuple[Plan, ...]
    hooks: Mapping[Topic, tuple[str, ...]]
    limits: Mapping[str, int] = {}
    on_failure: OnFailure = "replan"
    policy: tuple[str, ...] = (ALLOWED,)
    answers: tuple[str, ...] = (EMPTY, BREAKS)
    messages: bool = False
    has_clock: bool = False

    @property
    def budget(self) -> Budget:
        """The limits of a new session."""
        unlimited = dict.fromkeys(Budget.__struct_fields__)
        return Budget(**{**unlimited, **self.limits, **({"wall_seconds": 1} if self.has_clock else {})})


def _plain(step_id: str | int, batch: str | None = None) -> Step:
    return Step(id=step_id, description="note", batch=batch)


def _tooled(step_id: str | int, batch: str | None = None) -> Step:
    return Step(id=step_id, description="look", tool_name="look", batch=batch)


ONE: Final = Plan((_tooled(1),))
OPEN: Final = Plan((_tooled(1),), final=False)
PAIR: Final = Plan((_tooled(1, "b"), _tooled(2, "b")))
MIXED: Final = Plan((_plain(1), _tooled(2)))
THREE: Final = Plan((_tooled(1, "b"), _plain(2, "b"), _tooled(3)))
SAME: Final = Plan((_plain(1), _plain(2)))

SCENARIOS: Final = (
    Scenario(
        "a planning with every answer of its hooks",
        (ONE,),
        {
            "before_plan": (GO, ABORT, PAUSES, FAILS),
            "after_plan": (GO, ABORT, PAUSES, FAILS),
            "on_error": (GO, PAUSES),
            "on_pause": (GO, DECIDES, DENIES),
        },
        {"turns": 2},
        answers=(EMPTY, BREAKS, CRASHES),
    ),
    Scenario(
        "steps with every answer of their hooks",
        (SAME,),
        {
            "before_step": (GO, ABORT, SKIPS, PAUSES),
            "after_step": (GO, ABORT, SKIPS, PAUSES, FAILS),
            "on_error": (GO, PAUSES),
        },
        {"steps": 2, "replans": 1},
    ),
    Scenario(
        "a call with every answer of its hooks",
        (ONE,),
        {
            "before_tool_call": (GO, ABORT, SKIPS, PAUSES, FAILS),
            "after_tool_call": (GO, ABORT, PAUSES, FAILS),
            "on_error": (GO, PAUSES, FAILS),
        },
        {"tool_calls": 1, "replans": 1},
        policy=(ALLOWED, ASKED, DENIED),
        messages=True,
    ),
    Scenario(
        "a batch of two calls with approvals",
        (PAIR,),
        {
            "before_step": (GO, SKIPS),
            "before_tool_call": (GO, ABORT, SKIPS, PAUSES, FAILS),
            "after_tool_call": (GO, PAUSES),
            "on_error": (GO, PAUSES),
        },
        {"tool_calls": 2, "replans": 1},
        policy=(ALLOWED, ASKED, DENIED),
    ),
    Scenario(
        "a batch and what is shown after it",
        (THREE,),
        {"after_tool_call": (GO, ABORT, PAUSES), "after_step": (GO, ABORT, SKIPS, PAUSES)},
        {"tool_calls": 1, "replans": 1},
    ),
    Scenario(
        "plans that are not final, messages, and time that runs out",
        (OPEN, MIXED),
        {"on_budget_exceeded": (GO, FAILS), "on_pause": (GO, FAILS, EXTENDS), "on_complete": (GO, FAILS)},
        {"turns": 2, "tool_calls": 1, "steps": 1, "replans": 1},
        messages=True,
        has_clock=True,
    ),
    Scenario(
        "failed steps are passed over",
        (PAIR, MIXED),
        {"before_step": (GO, ABORT, PAUSES), "after_step": (GO, SKIPS)},
        {"turns": 1, "steps": 2, "tool_calls": 1},
        on_failure="skip",
    ),
    Scenario(
        "failed steps end the session",
        (THREE, OPEN),
        {"before_step": (GO, ABORT), "after_step": (GO, ABORT, PAUSES)},
        {"turns": 1, "tool_calls": 1},
        on_failure="abort",
    ),
)
"""What every push explores; each closes by itself."""
SOAK_SCENARIOS: Final = (
    SCENARIOS[0]._replace(name="a planning with every answer of its hooks, and messages", messages=True),
    SCENARIOS[1]._replace(name="steps of two plans with every answer of their hooks", plans=(SAME, MIXED)),
    SCENARIOS[4]._replace(name="two batches and what is shown after them", plans=(PAIR, THREE)),
    SCENARIOS[6]._replace(name="failed steps are passed over, and messages", messages=True),
    SCENARIOS[7]._replace(name="failed steps end the session, or the time does", has_clock=True),
)
"""What a long test explores besides."""
