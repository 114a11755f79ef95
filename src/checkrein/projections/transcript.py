"""The transcript of a session: what a model is told and what it said, folded from the log.

Whoever planned, the log tells the same story: the goal, each response with the results of its calls, the messages that people sent, and, as messages of their own, what a
model must know and no result says. The invariant: at every planning the transcript is valid, each call having exactly one result in the order of the calls; and except
for a compaction it only ever grows at its end. Nothing here asks a model.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, cast

import msgspec
from msgspec.structs import replace

from checkrein.kernel.events import (
    CheckFailed,
    Event,
    FollowUpQueued,
    PlanCommit,
    PlanDraft,
    SessionPause,
    SessionStart,
    SteerQueued,
    StepEnd,
    StepSpec,
    TranscriptCompacted,
    TurnFinished,
    TurnStart,
    narrowed,
)
from checkrein.messages import AssistantMessage, Message, ToolCall, ToolResult, UserMessage
from checkrein.values import JsonData, Shared, as_data, shorten

__all__ = ["OpenResponse", "TranscriptView", "begun", "fold_transcript"]

_SHOWN_CHARACTERS: Final = 4_000
"""Characters of the result of a step that the model did not ask for."""
_SHOWN_ARGUMENTS: Final = 500
_UNCOUNTED: Final = (0, 0)
_TAKEN_OUT: Final = "not started: it was taken out of the plan"
_EMPTY: Final = frozenset({b"null", b'""', b"[]", b"{}"})


class OpenResponse(msgspec.Struct, frozen=True):
    """A response whose turn is not over: results may still come.

    Attributes:
        turn: its turn.
        message: what the model said.
        results: the results so far, by the model's id of the call.
        reason: why the calls without result are not made, once that is known.
    """

    turn: int
    message: AssistantMessage
    results: Mapping[str, ToolResult] = {}
    reason: str = ""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls, in order."""
        return tuple(block for block in self.message.content if isinstance(block, ToolCall))

    def result_of(self, step_id: str | int, text: str, *, is_error: bool) -> ToolResult | None:
        """Return the result of the call that became a step, None when none did."""
        for position, call in enumerate(self.calls):
            if call.id == step_id:
                return ToolResult(f"result-{self.turn}.{position}", call.id, call.name, text, is_error)
        return None

    def settled(self) -> tuple[Message, ...]:
        """Return the whole turn: what has no result by now was never started."""
        text = f"not started: {self.reason}" if self.reason else "not started"
        missing = (self.results.get(call.id) or self.result_of(call.id, text, is_error=True) for call in self.calls)
        return (self.message, *(result for result in missing if result is not None))


class TranscriptView(msgspec.Struct, frozen=True):
    """The transcript at one version.

    Attributes:
        settled: the messages of the turns that are over, and at a planning all messages.
        response: the last response, while its turn is not over.
        plan_turn: the turn that made the plan.
        steps: the steps of the plan, by id.
        queued: messages of people that no planning accepted yet.
        news: what the next planning must be told and no result says.
        starts: per turn its number, and how many messages stand before it.
        counted: how many of the first messages the model has counted, and the tokens that it came to; zeros where it did not say, or more than one request was counted.
    """

    settled: Shared[Message] = Shared()
    response: OpenResponse | None = None
    plan_turn: int = 0
    steps: Mapping[str | int, StepSpec] = {}
    queued: Shared[UserMessage] = Shared()
    news: Shared[str] = Shared()
    starts: Shared[tuple[int, int]] = Shared()
    counted: tuple[int, int] = _UNCOUNTED

    @property
    def messages(self) -> Sequence[Message]:
        """All messages: at a planning a valid transcript, in between perhaps without the results that are still to come."""
        response = self.response
        if response is None:
            return self.settled
        there = (response.results.get(call.id) for call in response.calls)
        return self.settled.extended((response.message, *(result for result in there if result is not None)))


def fold_transcript(events: Iterable[Event], view: TranscriptView | None = None) -> TranscriptView:
    """Return the transcript that a log gives, from its start or from `view` on; events that say nothing to a model change nothing."""
    view = TranscriptView() if view is None else view
    for event in events:
        handler = _HANDLERS.get(event.data.type)
        if handler is not None:
            view = handler(view, event)
    return view


def _session_start(view: TranscriptView, data: SessionStart) -> TranscriptView:
    return replace(view, settled=view.settled.appended(UserMessage("goal", data.goal)))


def _queued(view: TranscriptView, data: SteerQueued | FollowUpQueued) -> TranscriptView:
    return replace(view, queued=view.queued.appended(UserMessage(data.note, data.text)))


def begun(view: TranscriptView, data: TurnStart) -> TranscriptView:
    """Return the transcript as the planning of a turn sees it."""
    settled, response = view.settled, view.response
    # A response of this very turn never became a draft: the turn is asked again.
    if response is not None and response.turn != data.turn:
        settled = settled.extended(response.settled())
    starts = view.starts
    if not starts or starts[-1][0] != data.turn:
        starts = starts.appended((data.turn, len(settled)))
    if view.news:
        text = view.news[0] if len(view.news) == 1 else "\n".join(f"- {item}" for item in view.news)
        settled = settled.appended(UserMessage(f"news-{data.turn}.{data.attempt}", text))
    queued = view.queued
    if data.notes:
        settled = settled.extended(note for note in queued if note.id in data.notes)
        queued = Shared(note for note in queued if note.id not in data.notes)
    return replace(view, settled=settled, response=None, queued=queued, news=Shared(), starts=starts)


def _turn_finished(view: TranscriptView, data: TurnFinished) -> TranscriptView:
    said = next((message for message in data.messages if isinstance(message, AssistantMessage)), None)
    if said is None:
        return view
    # With several attempts the usage may be the sum of several requests, and says nothing of the last.
    tokens = data.usage.total_tokens if data.attempt == 1 else 0
    counted = (len(view.settled) + 1, tokens) if tokens else _UNCOUNTED
    return replace(view, response=OpenResponse(data.turn, said), counted=counted)


def _plan_draft(view: TranscriptView, data: PlanDraft) -> TranscriptView:
    if not data.dropped:
        return view
    if data.turn == view.plan_turn:
        text = f"the rest of the plan was given up: {data.dropped}"
    else:
        text = f"the plan was not accepted, and nothing of it was done: {data.dropped}"
    response = None if view.response is None else replace(view.response, reason=text)
    return replace(view, response=response, news=view.news.appended(text))


def _plan_commit(view: TranscriptView, data: PlanCommit) -> TranscriptView:
    steps: dict[str | int, StepSpec] = {step.id: step for step in data.steps}
    response = view.response
    if response is not None and response.turn == data.turn and any(call.id not in steps for call in response.calls):
        gone = (
            response.result_of(call.id, _TAKEN_OUT, is_error=True) for call in response.calls if call.id not in steps
        )
        results = {result.tool_call_id: result for result in gone if result is not None}
        response = replace(response, results=results)
    return replace(view, plan_turn=data.turn, steps=steps, response=response)


def _step_end(view: TranscriptView, data: StepEnd) -> TranscriptView:
    response, step = view.response, view.steps.get(data.step_id)
    if response is not None and response.turn == view.plan_turn:
        result = response.result_of(data.step_id, _outcome(data), is_error=data.status != "done")
        if result is not None:
            results = {**response.results, result.tool_call_id: result}
            return replace(view, response=replace(response, results=results))
        # What a step without tool ends with is what the model itself said.
        if step is not None and step.tool_name is None and data.status == "done":
            return view
    if step is None:
        return view
    said = {"done": "is done", "failed": "failed", "skipped": "was left out"}[data.status]
    text = f"{_named(step)} {said}: {shorten(_outcome(data), _SHOWN_CHARACTERS)}"
    return replace(view, news=view.news.appended(text))


def _named(step: StepSpec) -> str:
    name = f"step {step.id} ({step.description})" if step.description else f"step {step.id}"
    if step.tool_name is None:
        return name
    return f"{name}, {step.tool_name} with {shorten(step.arguments.encoded.decode(), _SHOWN_ARGUMENTS)},"


def _outcome(data: StepEnd) -> str:
    """Return what a step came to, in words for a model."""
    if data.status == "failed":
        return data.error
    if data.status == "skipped":
        return f"skipped: {data.error}" if data.error else "skipped, not done"
    return _text(as_data(data.result))


def _text(result: JsonData) -> str:
    encoded = result.encoded
    if encoded in _EMPTY:
        return "empty"
    return cast("str", result.value) if encoded.startswith(b'"') else encoded.decode()


def _session_pause(view: TranscriptView, data: SessionPause) -> TranscriptView:
    if data.reason != "planner_failed":
        return view
    return replace(view, news=view.news.appended(f"the last planning failed: {data.message}"))


def _check_failed(view: TranscriptView, data: CheckFailed) -> TranscriptView:
    findings = "".join(
        f"\n  {item.check}{f' of {item.subject}' if item.subject else ''}: {item.message}" for item in data.findings
    )
    return replace(view, news=view.news.appended(f"the work was checked, and this is not as it must be:{findings}"))


def _transcript_compacted(view: TranscriptView, data: TranscriptCompacted) -> TranscriptView:
    """Put a summary in the place of the turns that are over; of a turn that is not, everything is kept beside it."""
    cut = next((position for turn, position in reversed(view.starts) if turn <= data.through_turn + 1), 0)
    if cut <= 1:
        return view
    goal, kept = view.settled[0], view.settled[cut:]
    summary = UserMessage(f"summary-{data.through_turn}", data.summary)
    starts = Shared((turn, position - cut + 2) for turn, position in view.starts if position >= cut)
    return replace(view, settled=Shared((goal, summary, *kept)), starts=starts, counted=_UNCOUNTED)


_HANDLERS: Final[Mapping[str, Callable[[TranscriptView, Event], TranscriptView]]] = {
    SessionStart.type: narrowed(SessionStart, _session_start),
    SteerQueued.type: narrowed(SteerQueued, _queued),
    FollowUpQueued.type: narrowed(FollowUpQueued, _queued),
    TurnStart.type: narrowed(TurnStart, begun),
    TurnFinished.type: narrowed(TurnFinished, _turn_finished),
    PlanDraft.type: narrowed(PlanDraft, _plan_draft),
    PlanCommit.type: narrowed(PlanCommit, _plan_commit),
    StepEnd.type: narrowed(StepEnd, _step_end),
    SessionPause.type: narrowed(SessionPause, _session_pause),
    CheckFailed.type: narrowed(CheckFailed, _check_failed),
    TranscriptCompacted.type: narrowed(TranscriptCompacted, _transcript_compacted),
}
