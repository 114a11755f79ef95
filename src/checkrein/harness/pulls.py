"""Pull points: how a session gives control back, and which answers it takes where.

A pull is a value that is returned, never an exception; a caller looks at it, fetches or decides, and answers with a mapping. Here is the whole table of what is taken,
refused, or leads to the same pull again. Pure: an answer becomes the facts that a host appends.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, TypeAlias, cast

import msgspec

from checkrein.errors import DataError, ResumeError
from checkrein.kernel.budget import LIMITS, Amounts, BudgetState, Limit
from checkrein.kernel.events import SessionComplete, SessionData, SessionResume, ToolErrorGiven, ToolResultGiven
from checkrein.kernel.session_state import Paused, SessionPhase, SessionState, StepWork, Waiting
from checkrein.values import JsonData, JsonValue, as_object, clean_text, shorten

__all__ = ["PullRequest", "SessionResult", "answer_facts", "pull_of", "used_up"]

_KEYS: Final = frozenset({"result", "error", "extend", "decision", "close"})
_MAX_TEXT: Final = 4_000

Answer: TypeAlias = tuple[str, object, str | None]


class PullRequest(msgspec.Struct, frozen=True):
    """Control is back with the caller.

    Attributes:
        kind: `tool` when a result is needed, `pause` when a limit or a hook stopped the session.
        reason: `tool_result`, or the reason of the pause.
        state: AWAITING_TOOL, or IDLE.
        payload: for a tool `step_id`, `call_id`, `name`, `arguments` (of the first open call) and `calls` (all of them); for a pause `topic`, `subject`,
            `message`, `used`, `limits`, and for approvals `calls`.
    """

    kind: Literal["tool", "pause"]
    reason: str
    state: SessionPhase
    payload: Mapping[str, JsonValue]


class SessionResult(msgspec.Struct, frozen=True):
    """How a session ended.

    Attributes:
        state: DONE.
        reason: `goal_met`, `no_plan`, `gave_up`, `step_failed` or `closed:<text>`.
        message: for people; `""` when the goal was met.
        result: what the last step that was done returned.
        unread: texts of the messages that no planning accepted.
        budget: limits and use at the end.
    """

    state: SessionPhase
    reason: str
    message: str
    result: JsonValue
    unread: tuple[str, ...]
    budget: BudgetState


def pull_of(state: SessionState, budget: BudgetState, *, only: Collection[str] | None = None) -> PullRequest | None:
    """Return the pull that a session stands at, None when it stands at none.

    Args:
        state: the session.
        budget: limits and use at this moment.
        only: ids of the calls whose results a caller brings; all open ones when None.
    """
    if state.paused is not None:
        return PullRequest("pause", state.paused.reason, state.phase, _pause_payload(state, state.paused, budget))
    works = [work for work in _open(state) if only is None or work.call_id in only]
    if state.phase is not SessionPhase.AWAITING_TOOL or not works:
        return None
    calls = [_call(work) for work in works]
    return PullRequest("tool", "tool_result", state.phase, {**calls[0], "calls": cast("JsonValue", calls)})


def used_up(paused: Paused, budget: BudgetState) -> bool:
    """Tell whether the limit of a budget pause is still reached."""
    return any(name == paused.subject and budget.is_reached(name) for name in LIMITS)


def answer_facts(
    state: SessionState, budget: BudgetState, answer: object, *, is_running: bool = False
) -> tuple[SessionData, ...]:
    """Return the facts that an answer comes to; empty for the same pull again.

    Args:
        state: the session.
        budget: limits and use at this moment.
        answer: what the caller gave to `resume`.
        is_running: whether somebody drives the session at this moment.

    Raises:
        ResumeError: it is refused.
    """
    _demand_open(state, is_running=is_running)
    paused = state.paused
    try:
        key, value, call_id = _read(answer)
        if key == "close":
            return _closing(state, _text("close", value))
        if paused is None:
            return (_of_tool(state, key, value, call_id),)
        return _of_pause(paused, budget, (key, value, call_id))
    except ResumeError as error:
        if paused is not None and paused.is_budget and error.code in {"empty", "both", "unknown_key", "unknown_call"}:
            return ()
        raise


def _demand_open(state: SessionState, *, is_running: bool) -> None:
    if is_running:
        raise ResumeError("running", "the session is being driven; wait until control is back")
    if not state.is_started:
        raise ResumeError("not_started", "call run(goal) first")
    if state.phase is SessionPhase.DONE:
        raise ResumeError("done", f"the session is over: {state.outcome}")
    if state.paused is None and state.phase is not SessionPhase.AWAITING_TOOL:
        raise ResumeError("nothing_open", f"the session is {state.phase} and asks for nothing; call continue_()")


def _read(answer: object) -> Answer:
    """Return key, value and call id of an answer."""
    if answer is None:
        raise ResumeError("empty", f"give one of {', '.join(sorted(_KEYS))}")
    if not isinstance(answer, Mapping):
        raise ResumeError("bad_value", f"an answer is a mapping, not {type(answer).__name__}")
    given = cast("Mapping[object, object]", answer)
    unknown = [key for key in given if key not in _KEYS and key != "call_id"]
    if unknown:
        raise ResumeError("unknown_key", f"{shorten(repr(unknown[0]), 80)}; give one of {', '.join(sorted(_KEYS))}")
    keys = [key for key in given if key != "call_id"]
    if not keys:
        raise ResumeError("empty", f"give one of {', '.join(sorted(_KEYS))}")
    if len(keys) > 1:
        raise ResumeError("both", f"give one of {', '.join(sorted(str(key) for key in keys))}, not both")
    call_id = given.get("call_id")
    if call_id is not None and not isinstance(call_id, str):
        raise ResumeError("unknown_call", f"a call id is a text, not {type(call_id).__name__}")
    return str(keys[0]), given[keys[0]], call_id


def _open(state: SessionState) -> tuple[StepWork, ...]:
    return tuple(work for work in state.work if work.is_open)


def _of_tool(state: SessionState, key: str, value: object, call_id: str | None) -> SessionData:
    if key not in {"result", "error"}:
        raise ResumeError("not_taken_here", f"a call waits for its result; {key} is not taken, give result or error")
    work = _chosen(_open(state), call_id)
    if key == "error":
        return _error(work, "internal", _text("error", value))
    try:
        return ToolResultGiven(step_id=work.step.id, call_id=work.call_id, result=JsonData(value))
    except DataError as error:
        return _error(work, "internal", f"the result is not JSON: {error}")


def _error(work: StepWork, kind: str, message: str) -> ToolErrorGiven:
    return ToolErrorGiven(
        step_id=work.step.id, call_id=work.call_id, kind=kind, message=shorten(clean_text(message), _MAX_TEXT)
    )


def _chosen(works: Sequence[StepWork], call_id: str | None) -> StepWork:
    known = ", ".join(work.call_id for work in works)
    if call_id is None and len(works) != 1:
        raise ResumeError("which_call", f"several calls are open, name one by call_id: {known}")
    work = next((item for item in works if call_id in {None, item.call_id}), None)
    if work is None:
        raise ResumeError("unknown_call", f"{shorten(repr(call_id), 80)} is not open; open: {known}")
    return work


def _of_pause(paused: Paused, budget: BudgetState, given: Answer) -> tuple[SessionData, ...]:
    key, value, call_id = given
    if key in {"result", "error"}:
        raise ResumeError("not_taken_here", f"the session is paused ({paused.reason}); {key} is not taken")
    if key == "extend":
        return _extending(paused, budget, _amounts(value))
    if paused.is_budget:
        return ()
    try:
        decision = JsonData(value)
    except DataError as error:
        raise ResumeError("bad_value", f"a decision is a JSON value: {error}") from error
    if not paused.open_calls:
        if call_id not in {None, paused.subject}:
            raise ResumeError("unknown_call", f"{shorten(repr(call_id), 80)} is not what is asked about")
        return (SessionResume(topic=paused.topic, subject=paused.subject, decision=decision),)
    known = ", ".join(paused.open_calls)
    first, *others = paused.open_calls
    if call_id is None and others:
        raise ResumeError("which_call", f"several calls wait for a decision, name one by call_id: {known}")
    subject = call_id or first
    if subject not in paused.open_calls:
        raise ResumeError("unknown_call", f"{shorten(repr(subject), 80)} waits for no decision; open: {known}")
    return (SessionResume(topic=paused.topic, subject=subject, decision=decision),)


def _extending(paused: Paused, budget: BudgetState, extra: Amounts) -> tuple[SessionData, ...]:
    if paused.is_budget and used_up(paused, budget.extended(extra)):
        return ()
    return (SessionResume(topic=paused.topic, subject=paused.subject, extra=extra),)


def _amounts(value: object) -> Amounts:
    if not isinstance(value, Mapping):
        raise ResumeError("bad_value", f"extend takes a mapping of limits to numbers, not {type(value).__name__}")
    given = cast("Mapping[str, float]", value)
    unknown = [name for name in given if name not in LIMITS]
    if unknown:
        raise ResumeError("bad_value", f"{shorten(repr(unknown[0]), 80)} is no limit; there are: {', '.join(LIMITS)}")
    if not given:
        raise ResumeError("bad_value", f"extend names no limit; there are: {', '.join(LIMITS)}")
    try:
        return msgspec.convert(dict(given), Amounts).checked()
    except (DataError, msgspec.ValidationError) as error:
        raise ResumeError("bad_value", str(error)) from error


def _closing(state: SessionState, text: str) -> tuple[SessionData, ...]:
    errors = tuple(_error(work, "closed", text) for work in _open(state))
    unread = tuple(note.id for note in state.queued)
    return (*errors, SessionComplete(reason=f"closed:{text}", unread=unread))


def _text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise ResumeError("bad_value", f"{key} takes a text, not {type(value).__name__}")
    return shorten(clean_text(value), _MAX_TEXT)


def _call(work: StepWork) -> dict[str, JsonValue]:
    return {
        "step_id": work.step.id,
        "call_id": work.call_id,
        "name": work.name,
        "arguments": cast("JsonValue", work.arguments.decoded()),
    }


def _pause_payload(state: SessionState, paused: Paused, budget: BudgetState) -> dict[str, JsonValue]:
    payload: dict[str, JsonValue] = {
        "topic": paused.topic,
        "subject": paused.subject,
        "message": paused.message,
        "used": cast("JsonValue", _numbers(budget, of_limits=False)),
        "limits": cast("JsonValue", _numbers(budget, of_limits=True)),
    }
    if paused.open_calls:
        calls = [_approval(state.waiting[call_id]) for call_id in paused.open_calls]
        payload["calls"] = cast("JsonValue", calls)
    return payload


def _numbers(budget: BudgetState, *, of_limits: bool) -> dict[Limit, float | None]:
    return {name: budget.limits.limit(name) if of_limits else budget.taken(name) for name in LIMITS}


def _approval(waiting: Waiting) -> dict[str, JsonValue]:
    call = waiting.call
    return {
        "step_id": call.step_id,
        "call_id": call.call_id,
        "name": call.name,
        "arguments": cast("JsonValue", as_object(call.arguments).decoded()),
        "reason": call.reason,
    }
