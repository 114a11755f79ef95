"""What a run asks of people right now: decisions, results of calls, and more budget, each with the names by which it may be answered.

Folded from the log like everything that is shown, so a prompt at a terminal, a command in another one and a program see the same questions. The invariant: an answer names
the question it was given to, so it can never be taken for another one that was asked since.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from checkrein.cli.exits import Refused, Usage
from checkrein.kernel.events import Cause
from checkrein.kernel.session_state import Paused, SessionState
from checkrein.kernel.state import RunState
from checkrein.values import JsonObject, as_object, shorten

__all__ = ["PLANNER_FAILED", "Question", "chosen", "questions_of"]

PLANNER_FAILED = "planner_failed"


class Question(msgspec.Struct, frozen=True):
    """One thing that is asked.

    Attributes:
        kind: `decision` takes yes or no, `result` what a call returned, `budget` more of a limit.
        subject: the call's id, what a review is about, or the limit; an answer names it.
        reason: why it is asked.
        message: what went wrong, when that is why.
        cause: id of the cause that blocks the run.
        step_id: the step of a call; None when it is about no call.
        tool: what is to be called; `""` when it is about no call.
        arguments: what the tool is given.
    """

    kind: Literal["decision", "result", "budget"]
    subject: str
    reason: str
    message: str = ""
    cause: str = ""
    step_id: str | int | None = None
    tool: str = ""
    arguments: JsonObject = JsonObject()

    @property
    def can_be_denied(self) -> bool:
        """Whether no is an answer; a planner that failed can only be asked again."""
        return self.kind == "decision" and self.reason != PLANNER_FAILED

    def is_named(self, name: str) -> bool:
        """Tell whether a person means this one."""
        return name in {self.subject, self.cause}

    def decided(self, *, allows: bool) -> str:
        """Return what a decision about it means, in words."""
        if not self.can_be_denied:
            return "the planner is asked again"
        what = f"call {self.subject} of {self.tool}" if self.tool else self.subject
        return f"{what} is {'allowed' if allows else 'denied'}"

    def answer(self, key: str, value: object) -> dict[str, object]:
        """Return an answer to this question as a pull point takes it."""
        return {key: value} if self.kind == "budget" else {key: value, "call_id": self.subject}


def questions_of(state: RunState, session: SessionState) -> tuple[Question, ...]:
    """Return what a run asks of people, in the order in which it is asked."""
    if state.phase.is_terminal:
        return ()
    if session.paused is not None:
        return tuple(_of_pause(state, session, session.paused))
    return tuple(_of_calls(state, session))


def _of_pause(state: RunState, session: SessionState, paused: Paused) -> Iterator[Question]:
    if paused.is_budget:
        yield Question("budget", paused.subject, paused.reason, paused.message, cause=f"budget:{paused.subject}")
        return
    for call_id in paused.open_calls:
        call = session.waiting[call_id].call
        yield Question(
            "decision",
            call_id,
            call.reason,
            cause=next((cause.id for cause in state.causes if cause.call_id == call_id), ""),
            step_id=call.step_id,
            tool=call.name,
            arguments=as_object(call.arguments),
        )
    if not paused.open_calls:
        yield Question("decision", paused.subject, paused.reason, paused.message, cause=_cause_of(state.causes))


def _cause_of(causes: Sequence[Cause]) -> str:
    return next((cause.id for cause in causes if cause.kind == "answer" and not cause.call_id), "")


def _of_calls(state: RunState, session: SessionState) -> Iterator[Question]:
    """Yield the calls whose results a caller brings."""
    brought = {call.call_id for call in state.open_calls if call.is_pull}
    for work in session.work:
        if work.is_open and work.call_id in brought:
            yield Question(
                "result",
                work.call_id,
                "tool_result",
                cause=f"answer:{work.call_id}",
                step_id=work.step.id,
                tool=work.name,
                arguments=work.arguments,
            )


def chosen(
    state: RunState, session: SessionState, name: str, *, wanted: Literal["decision", "result"], does: str
) -> Question:
    """Return the question that a person means; the only one when they name none.

    Args:
        state: the run.
        session: its session.
        name: a call's id, a review's subject or a cause's id; `""` for the only one.
        wanted: what kind of question.
        does: what is wanted of it, in words for an error: `waits for a decision`.

    Raises:
        Refused: there is no such question, or none at all.
        Usage: there are several and none is named.
    """
    if state.phase.is_terminal:
        msg = f"run {state.run_id} has ended ({state.phase}); nothing may follow"
        raise Refused(msg)
    open_ones = [question for question in questions_of(state, session) if question.kind == wanted]
    listed = ", ".join(f"{item.subject} ({item.tool})" if item.tool else item.subject for item in open_ones)
    if not open_ones:
        waits = ", ".join(cause.id for cause in state.causes)
        msg = f"nothing in run {state.run_id} {does}" + (f"; it waits for {waits}" if waits else "")
        raise Refused(msg)
    found = [question for question in open_ones if not name or question.is_named(name)]
    if not found:
        msg = f"{shorten(repr(name), 80)} in run {state.run_id} is not open; open: {listed}"
        raise Refused(msg)
    if len(found) > 1:
        msg = f"several are open, name one: {listed}"
        raise Usage(msg)
    return found[0]
