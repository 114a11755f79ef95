"""Whether a call is permitted: what a policy is, and how its answer is read.

The invariant: a policy that raises, or answers something else than it may, denies.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

from checkrein.tools.results import describe_error
from checkrein.values import JsonObject, clean_text

__all__ = ["Decision", "Policy", "allow_listed", "ask_policy"]

Decision: TypeAlias = Literal["allow", "deny", "ask"]
Policy: TypeAlias = Callable[[str, JsonObject], Decision]
"""Says of a tool's name and its validated arguments whether the call is permitted; must be quick and pure, and is asked once per call."""


def allow_listed(_tool: str, _arguments: JsonObject) -> Decision:
    """Allow every tool that is listed; the default policy."""
    return "allow"


def ask_policy(policy: Policy, tool: str, arguments: JsonObject) -> tuple[Decision, str]:
    """Return a policy's answer with the reason of a denial."""
    try:
        decision = policy(tool, arguments)
    except (Exception, SystemExit) as error:  # noqa: BLE001  a policy is the user's code; what it cannot decide is not permitted
        return "deny", clean_text(f"the policy failed: {describe_error(error)}")
    return decision if decision in ("allow", "ask") else "deny", "the policy denies it"
