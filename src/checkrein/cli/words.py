"""Every event in one line for people.

The texts hold what tools, models and people wrote, so whoever prints them passes them through `shown` first. A new event without words fails a test.
"""

import json
from collections.abc import Mapping
from functools import singledispatch
from typing import cast

from checkrein.cli.figures import counted
from checkrein.kernel import events as facts
from checkrein.kernel.budget import LIMITS, Amounts
from checkrein.kernel.state import PULL
from checkrein.values import JsonData, JsonObject, as_data, as_object, shorten

__all__ = ["amounts_in_words", "owner_in_words", "words"]

_DATA = 100


@singledispatch
def words(data: object) -> str:
    """Return what an event's payload says.

    Raises:
        TypeError: it is no payload.
    """
    msg = f"no words for {type(data).__name__}"
    raise TypeError(msg)


def amounts_in_words(amounts: Amounts) -> str:
    """Return `5 tool calls, 60 wall seconds`."""
    given = ((name, getattr(amounts, name)) for name in LIMITS)
    return ", ".join(f"{value:g} {name.replace('_', ' ')}" for name, value in given if value) or "nothing"


def owner_in_words(owner: str) -> str:
    """Return who holds a lease: its name and process; what is no identity of ours is returned as it is."""
    try:
        identity = json.loads(owner)
        return f"{identity['name']} (process {identity['pid']})"
    except (ValueError, TypeError, KeyError):
        return owner


def _short(value: JsonData | JsonObject) -> str:
    return shorten(value.encoded.decode(), _DATA)


def _with(text: str, more: str) -> str:
    return f"{text}: {more}" if more else text


def _attempt(number: int) -> str:
    return f", attempt {number}" if number > 1 else ""


@words.register
def _received(data: facts.Received) -> str:
    text = f"received: task {data.task.name}, version {data.task.version}, {counted(len(data.task.checks), 'check')} to pass"
    model = data.task.data.get("model")
    if isinstance(model, Mapping):
        text += f", planned by {cast('Mapping[str, object]', model).get('name', 'a model')}"
    return (
        f"{text}; a fork of run {data.fork_of}, whose first {data.fork_at} events these are" if data.fork_of else text
    )


@words.register
def _lease_taken(data: facts.LeaseTaken) -> str:
    how = "taken over" if data.takeover else "taken"
    return f"lease {data.lease} {how} by {owner_in_words(data.owner)}"


@words.register
def _budget_extended(data: facts.BudgetExtended) -> str:
    return f"budget extended by {amounts_in_words(data.extra)}"


@words.register
def _budget_reserved(data: facts.BudgetReserved) -> str:
    return f"reserved for {data.child}: {amounts_in_words(data.amounts)}"


@words.register
def _budget_settled(data: facts.BudgetSettled) -> str:
    return f"settled with {data.child}: {amounts_in_words(data.used)}"


@words.register
def _steer_queued(data: facts.SteerQueued) -> str:
    return f"told to steer: {data.text}"


@words.register
def _follow_up_queued(data: facts.FollowUpQueued) -> str:
    return f"told for later: {data.text}"


@words.register
def _code_accepted(data: facts.CodeAccepted) -> str:
    return f"other code accepted: {data.code_hash[:12]}"


@words.register
def _plan_accepted(data: facts.PlanAccepted) -> str:
    return f"plan of {counted(data.steps, 'step')}" + ("" if data.reason == "first" else f" ({data.reason})")


@words.register
def _work_started(_data: facts.WorkStarted) -> str:
    return "work started"


@words.register
def _turn_granted(data: facts.TurnGranted) -> str:
    return _with(f"{data.purpose} granted (turn {data.turn}{_attempt(data.attempt)})", data.previous)


@words.register
def _turn_finished(data: facts.TurnFinished) -> str:
    tokens = f", {data.usage.total_tokens} tokens" if data.usage.total_tokens else ""
    return _with(f"turn {data.turn} {'failed' if data.error else 'finished'}{tokens}", data.error)


@words.register
def _transcript_compacted(data: facts.TranscriptCompacted) -> str:
    return f"transcript up to turn {data.through_turn} summarised"


@words.register
def _tool_granted(data: facts.ToolGranted) -> str:
    return _with(
        f"call {data.call_id} of {data.tool.name} granted{_attempt(data.attempt)}", _short(as_object(data.arguments))
    )


@words.register
def _tool_accepted(data: facts.ToolAccepted) -> str:
    if data.handle == PULL:
        return f"call {data.call_id} waits for its result from outside"
    return f"call {data.call_id} accepted as job {data.handle}: no result yet"


@words.register
def _tool_done(data: facts.ToolDone) -> str:
    files = f", wrote {', '.join(item.path for item in data.artifacts)}" if data.artifacts else ""
    return f"call {data.call_id} done{files}: {'no data' if data.empty else _short(as_data(data.result))}"


@words.register
def _tool_failed(data: facts.ToolFailed) -> str:
    tries = f" after {counted(data.attempts, 'attempt')}" if data.attempts > 1 else ""
    return f"call {data.call_id} failed{tries} ({data.kind}): {data.message}"


@words.register
def _tool_in_doubt(data: facts.ToolInDoubt) -> str:
    return f"call {data.call_id} in doubt: {data.reason}"


@words.register
def _tool_reconciled(data: facts.ToolReconciled) -> str:
    return _with(f"call {data.call_id} reconciled by a {data.by}: {data.outcome}", data.message)


@words.register
def _work_done(_data: facts.WorkDone) -> str:
    return "work done; the artifacts are checked"


@words.register
def _check_passed(_data: facts.CheckPassed) -> str:
    return "all checks passed, each with evidence"


@words.register
def _check_failed(data: facts.CheckFailed) -> str:
    return "not proved: " + "; ".join(f"{item.check}: {item.message}" for item in data.findings)


@words.register
def _blocked(data: facts.Blocked) -> str:
    return f"blocked by {data.cause.id}: {data.cause.message}"


@words.register
def _unblocked(data: facts.Unblocked) -> str:
    kind, _, subject = data.cause_id.partition(":")
    if kind == "answer":
        return f"call {subject} is answered"
    if kind in {"permission", "review"}:
        return f"{_asked_about(subject)} {_decision(data.answer)}"
    if kind == "planner":
        return f"the planner is asked again (turn {subject})"
    answer = "" if data.answer.value is None else _short(data.answer)
    return _with(f"{data.cause_id} answered", answer)


def _asked_about(subject: str) -> str:
    """Return what a decision is about, in words; ids of calls begin with a digit."""
    return f"call {subject}" if subject[:1].isdigit() else subject.replace(":", " ", 1)


def _decision(answer: JsonData) -> str:
    value = answer.value
    if value == "deny":
        return "denied"
    if isinstance(value, dict) and set(value) == {"deny"}:
        return f"denied: {value['deny']}"
    return "allowed" if value is None or value == "allow" else f"answered: {_short(answer)}"


@words.register
def _cancel_requested(data: facts.CancelRequested) -> str:
    return f"cancel requested: {data.reason}"


@words.register
def _failed(data: facts.Failed) -> str:
    return f"failed ({data.code}): {data.message}"


@words.register
def _session_start(data: facts.SessionStart) -> str:
    return f"goal: {data.goal}"


@words.register
def _turn_start(data: facts.TurnStart) -> str:
    notes = f", takes {counted(len(data.notes), 'message')}" if data.notes else ""
    return f"planning begins (turn {data.turn}{_attempt(data.attempt)}{notes})"


@words.register
def _plan_draft(data: facts.PlanDraft) -> str:
    if data.dropped:
        return f"draft dropped: {data.dropped}"
    return f"the planner returned {counted(len(data.steps), 'step')}"


@words.register
def _plan_commit(data: facts.PlanCommit) -> str:
    return "plan: " + "; ".join(step.description for step in data.steps)


@words.register
def _step_start(data: facts.StepStart) -> str:
    return f"step {data.step_id} started"


@words.register
def _step_end(data: facts.StepEnd) -> str:
    return _with(f"step {data.step_id} {data.status}", data.error)


@words.register
def _tool_call(data: facts.ToolCallGiven) -> str:
    return f"step {data.step_id} calls {data.name}{_attempt(data.attempt)}"


@words.register
def _tool_result(data: facts.ToolResultGiven) -> str:
    return f"step {data.step_id} has its result"


@words.register
def _tool_error(data: facts.ToolErrorGiven) -> str:
    what = "has an error" if data.call_id else "makes no call"
    return f"step {data.step_id} {what} ({data.kind}): {data.message}"


@words.register
def _budget_warn(data: facts.BudgetWarn) -> str:
    return f"limit reached: {data.used:g} of {data.allowed:g} {data.limit.replace('_', ' ')}"


@words.register
def _session_pause(data: facts.SessionPause) -> str:
    asked = ", ".join(f"{call.name} ({call.call_id})" for call in data.calls if call.asks)
    return _with(f"paused: {data.reason}" + (f"; may be called? {asked}" if asked else ""), data.message)


@words.register
def _session_resume(data: facts.SessionResume) -> str:
    if data.extra is not None:
        return f"resumed with {amounts_in_words(data.extra)} more"
    if data.topic == "budget":
        return f"resumed: {data.subject.replace('_', ' ')} extended"
    return f"resumed: {_asked_about(data.subject)} {_decision(data.decision)}" if data.subject else "resumed"


@words.register
def _session_complete(data: facts.SessionComplete) -> str:
    unread = f"; {counted(len(data.unread), 'message')} never read" if data.unread else ""
    return f"session over: {data.reason}{unread}"
