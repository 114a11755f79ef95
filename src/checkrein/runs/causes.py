"""Why a run is blocked, as people and programs see it: each cause with its id, and the command that answers it where the question does not say that by itself.

The commands say `RUN` where the run's id belongs; who shows a cause puts it in. Several calls may be asked about at once, so a question is one line.
"""

from checkrein.kernel.events import Cause, SessionPause
from checkrein.kernel.session_events import BudgetWarn, HeldCall
from checkrein.kernel.state import Call

__all__ = ["call_cause", "pause_causes", "planner_cause", "pull_cause", "reconcile_cause"]


def pause_causes(pause: SessionPause, warn: BudgetWarn | None = None) -> list[Cause]:
    """Return what blocks a run while its session is paused: the limit, each call that waits for a decision, or the review itself."""
    asking = [call for call in pause.calls if call.asks]
    if warn is not None:
        return [_budget_cause(warn)]
    if asking:
        return [call_cause(call) for call in asking]
    subject = pause.subject or pause.topic or "hook"
    text = (
        f"{pause.reason}{f' ({pause.message})' if pause.message else ''}: look at it, then `checkrein approve RUN review:{subject}`, "
        f"or `checkrein deny RUN review:{subject}`"
    )
    return [Cause(id=f"review:{subject}", kind="answer", detail=pause.reason, message=text)]


def _budget_cause(warn: BudgetWarn) -> Cause:
    text = f"{round(warn.used, 2):g} of {warn.allowed:g} {warn.limit.replace('_', ' ')} used"
    return Cause(id=f"budget:{warn.limit}", kind="budget", detail=warn.limit, message=text)


def call_cause(call: HeldCall) -> Cause:
    """Return the question whether a call may be made."""
    arguments = call.arguments.encoded.decode()
    asked = "" if call.asks == "policy" else f" ({call.reason})"
    text = f"may {call.name} be called with {arguments}{asked}?"
    kind = "permission" if call.asks == "policy" else "review"
    return Cause(
        id=f"{kind}:{call.call_id}",
        kind="permission" if call.asks == "policy" else "answer",
        detail=call.reason,
        message=text,
        call_id=call.call_id,
    )


def planner_cause(turn: int, message: str) -> Cause:
    """Return what a planner that failed waits for."""
    text = f"the planner failed: {message}; correct it and let it be asked again with `checkrein approve RUN planner:{turn}`"
    return Cause(id=f"planner:{turn}", kind="answer", detail="planner_failed", message=text)


def pull_cause(call_id: str, name: str) -> Cause:
    """Return what a call waits for whose result a caller brings."""
    text = (
        f"call {call_id} of {name} waits for its result, because the task has no tool of that name; see it with `checkrein pull RUN`, "
        f"bring the result with `checkrein answer RUN {call_id} JSON`"
    )
    return Cause(id=f"answer:{call_id}", kind="answer", message=text, call_id=call_id)


def reconcile_cause(call: Call, reason: str) -> Cause:
    """Return the question what became of a call in doubt."""
    cause_id = f"reconcile:{call.call_id}"
    text = (
        f"call {call.call_id} of {call.tool.name} has no known outcome: {reason}; look whether it happened, then "
        f"`checkrein unblock RUN {cause_id} --outcome done|failed|unknown`"
    )
    return Cause(id=cause_id, kind="reconcile", message=text, call_id=call.call_id)
