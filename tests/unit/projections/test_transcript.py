"""What a model is told of a session is folded from its log."""

from collections.abc import Iterable

from checkrein.codec.wire import decode_events, encode_event, skim_events
from checkrein.kernel.events import (
    CheckFailed,
    Event,
    EventData,
    Finding,
    FollowUpQueued,
    LeaseTaken,
    PlanCommit,
    PlanDraft,
    SessionPause,
    SessionStart,
    SteerQueued,
    StepEnd,
    StepSpec,
    StepStart,
    TranscriptCompacted,
    TurnFinished,
    TurnStart,
)
from checkrein.messages import AssistantMessage, Message, Text, ToolCall, ToolResult, UserMessage, validate_transcript
from checkrein.projections.transcript import TranscriptView, fold_transcript
from checkrein.values import JsonData

GOAL = UserMessage("goal", "ship it")


def log(facts: Iterable[EventData]) -> list[Event]:
    return [
        Event(run_id="r", event_id=f"e{offset}", expected_version=offset, at=0.0, actor="session", data=fact)
        for offset, fact in enumerate(facts)
    ]


def told(*facts: EventData) -> tuple[Message, ...]:
    return tuple(fold_transcript(log(facts)).messages)


def said(*calls: str, turn: int = 1) -> AssistantMessage:
    return AssistantMessage(f"m{turn}", (Text("so"), *(ToolCall(name, "put", {}) for name in calls)))


def steps(*names: str | int, turn: int = 1) -> tuple[StepSpec, ...]:
    return tuple(StepSpec(id=name, description="", tool_name="put", batch=f"turn-{turn}") for name in names)


def response(*calls: str, turn: int = 1) -> tuple[EventData, ...]:
    """A turn in which a model asks for calls, up to its plan."""
    plan = steps(*calls, turn=turn)
    return (
        TurnStart(turn=turn),
        PlanDraft(turn=turn, steps=plan, final=False),
        TurnFinished(turn=turn, messages=(said(*calls, turn=turn),)),
        PlanCommit(turn=turn, steps=plan, final=False),
    )


def ended(step_id: str | int, result: object = None, *, error: str = "") -> StepEnd:
    return StepEnd(step_id=step_id, status="failed" if error else "done", result=JsonData(result), error=error)


START = SessionStart(goal="ship it")


def test_an_empty_log_tells_nothing() -> None:
    assert told() == ()
    assert told(LeaseTaken(lease=1, owner="w")) == ()


def test_the_goal_is_the_first_message() -> None:
    assert told(START) == (GOAL,)


def test_messages_of_people_enter_in_the_order_they_were_sent_when_a_planning_accepts_them() -> None:
    facts = (
        START,
        SteerQueued(note="n1", text="first"),
        FollowUpQueued(note="n2", text="later"),
        SteerQueued(note="n3", text="second"),
    )
    assert told(*facts) == (GOAL,)
    taken = (*facts, TurnStart(turn=1, notes=("n3", "n1")))
    assert told(*taken)[1:] == (UserMessage("n1", "first"), UserMessage("n3", "second"))
    assert told(*taken, TurnStart(turn=2, notes=("n2",)))[3:] == (UserMessage("n2", "later"),)


def test_results_stand_in_the_order_of_the_calls_whatever_ended_first() -> None:
    facts = (START, *response("a", "b"), ended("b", {"x": 1}), ended("a", "text"), TurnStart(turn=2))
    assert told(*facts)[1:] == (
        said("a", "b"),
        ToolResult("result-1.0", "a", "put", "text"),
        ToolResult("result-1.1", "b", "put", '{"x":1}'),
    )


def test_a_result_without_data_is_shown_as_empty() -> None:
    empty: tuple[object, ...] = (None, "", [], {})
    for nothing in empty:
        facts = (START, *response("a"), ended("a", nothing), TurnStart(turn=2))
        assert told(*facts)[-1] == ToolResult("result-1.0", "a", "put", "empty")
    assert told(START, *response("a"), ended("a", 0), TurnStart(turn=2))[-1] == ToolResult(
        "result-1.0", "a", "put", "0"
    )


def test_a_failed_or_skipped_call_is_an_error_that_says_so() -> None:
    facts = (
        START,
        *response("a", "b", "c"),
        ended("a", error="denied: no"),
        StepEnd(step_id="b", status="skipped"),
        StepEnd(step_id="c", status="skipped", error="too late"),
        TurnStart(turn=2),
    )
    texts = [(result.content, result.is_error) for result in told(*facts) if isinstance(result, ToolResult)]
    assert texts == [("denied: no", True), ("skipped, not done", True), ("skipped: too late", True)]


def test_a_call_that_was_never_started_has_a_result_all_the_same() -> None:
    facts = (START, *response("a", "b"), ended("a", 1), TurnStart(turn=2))
    assert told(*facts)[-1] == ToolResult("result-1.1", "b", "put", "not started", is_error=True)


def test_the_rest_of_a_plan_that_was_given_up_says_why() -> None:
    facts = (START, *response("a", "b"), ended("a", 1), PlanDraft(turn=1, steps=(), dropped="stop"), TurnStart(turn=2))
    text = "the rest of the plan was given up: stop"
    assert told(*facts)[-2:] == (
        ToolResult("result-1.1", "b", "put", f"not started: {text}", is_error=True),
        UserMessage("news-2.1", text),
    )


def test_between_plannings_the_results_so_far_are_there() -> None:
    facts = (START, *response("a", "b"), ended("b", 2))
    assert told(*facts) == (GOAL, said("a", "b"), ToolResult("result-1.1", "b", "put", "2"))


def test_a_call_id_that_comes_again_belongs_to_its_own_turn() -> None:
    first = (START, *response("a"), ended("a", 1))
    facts = (*first, *response("a", turn=2), ended("a", 2), TurnStart(turn=3))
    messages = told(*facts)
    assert validate_transcript(messages) == ()
    assert [result.content for result in messages if isinstance(result, ToolResult)] == ["1", "2"]


def test_steps_that_no_model_asked_for_are_told_as_news() -> None:
    plan = (StepSpec(id=1, description="look", tool_name="put"), StepSpec(id=2, description=""))
    facts = (
        START,
        TurnStart(turn=1),
        PlanDraft(turn=1, steps=plan),
        TurnFinished(turn=1),
        PlanCommit(turn=1, steps=plan),
        StepStart(step_id=1),
        ended(1, {"rows": 3}),
        StepEnd(step_id=2, status="skipped"),
        TurnStart(turn=2),
    )
    text = '- step 1 (look), put with {}, is done: {"rows":3}\n- step 2 was left out: skipped, not done'
    assert told(*facts) == (GOAL, UserMessage("news-2.1", text))


def test_a_step_of_a_later_plan_under_the_id_of_an_old_call_is_no_result_of_it() -> None:
    facts = (
        START,
        *response("a"),
        TurnStart(turn=2),
        PlanCommit(turn=2, steps=steps("a", turn=2)),
        ended("a", 7),
        TurnStart(turn=3),
    )
    messages = told(*facts)
    assert [result.content for result in messages if isinstance(result, ToolResult)] == ["not started"]
    assert messages[-1] == UserMessage("news-3.1", "step a, put with {}, is done: 7")


def test_what_a_step_without_tool_ends_with_is_not_told_to_the_model_that_said_it() -> None:
    answer = StepSpec(id="answer-1", description="answer", answer="done")
    reply = AssistantMessage("m1", (Text("done"),))
    facts = (
        START,
        TurnStart(turn=1),
        TurnFinished(turn=1, messages=(reply,)),
        PlanCommit(turn=1, steps=(answer,)),
        ended("answer-1", "done"),
    )
    assert told(*facts, TurnStart(turn=2)) == (GOAL, reply)


def test_findings_are_told_with_check_and_subject() -> None:
    findings = (Finding("rows", "report.md", "missing", "no table"), Finding("exit", "", "status", "exit 1"))
    text = "the work was checked, and this is not as it must be:\n  rows of report.md: no table\n  exit: exit 1"
    assert told(START, CheckFailed(findings=findings), TurnStart(turn=2))[1:] == (UserMessage("news-2.1", text),)


def test_a_planning_that_failed_is_told_once_and_other_pauses_are_not() -> None:
    facts = (
        START,
        TurnStart(turn=1),
        TurnFinished(turn=1, error="busy"),
        SessionPause(reason="planner_failed", state="PLANNING", message="busy"),
        TurnStart(turn=2),
        SessionPause(reason="budget_exceeded:turns", state="PLANNING", message="used up"),
        TurnStart(turn=3),
    )
    assert told(*facts) == (GOAL, UserMessage("news-2.1", "the last planning failed: busy"))


def test_a_response_whose_turn_is_asked_again_never_was() -> None:
    facts = (START, TurnStart(turn=1), TurnFinished(turn=1, messages=(said("a"),)), TurnStart(turn=1, attempt=2))
    assert told(*facts) == (GOAL,)


def test_a_summary_takes_the_place_of_the_turns_that_are_over() -> None:
    first = (START, *response("a"), ended("a", 1), *response("b", turn=2), ended("b", 2))
    facts = (*first, SteerQueued(note="n", text="go"), TurnStart(turn=3, notes=("n",)))
    summary = UserMessage("summary-1", "a was put")
    assert told(*facts, TranscriptCompacted(through_turn=1, summary="a was put")) == (
        GOAL,
        summary,
        said("b", turn=2),
        ToolResult("result-2.0", "b", "put", "2"),
        UserMessage("n", "go"),
    )
    both = (*facts, TranscriptCompacted(1, "a was put"), TranscriptCompacted(through_turn=2, summary="a and b"))
    assert told(*both) == (GOAL, UserMessage("summary-2", "a and b"), UserMessage("n", "go"))


def test_a_summary_of_a_turn_that_is_not_over_leaves_that_turn_beside_it() -> None:
    facts = (START, *response("a"), ended("a", 1), *response("b", turn=2))
    view = fold_transcript(log((*facts, TranscriptCompacted(through_turn=2, summary="all"), ended("b", 2))))
    assert tuple(view.messages) == (
        GOAL,
        UserMessage("summary-2", "all"),
        said("b", turn=2),
        ToolResult("result-2.0", "b", "put", "2"),
    )


def test_nothing_is_compacted_where_no_turn_is_over() -> None:
    facts = (START, TurnStart(turn=1))
    assert told(*facts, TranscriptCompacted(through_turn=0, summary="nothing")) == (GOAL,)
    assert told(TranscriptCompacted(through_turn=3, summary="nothing")) == ()


def test_a_transcript_is_the_same_from_stored_bytes_and_in_two_halves() -> None:
    events = log((START, *response("a", "b"), ended("a", {"x": [1]}), ended("b", error="no"), TurnStart(turn=2)))
    bodies = [encode_event(event) for event in events]
    whole = fold_transcript(events)
    assert fold_transcript(decode_events(bodies, run_id="r")) == whole
    assert fold_transcript(skim_events(bodies, run_id="r")) == whole
    for cut in range(len(events)):
        assert fold_transcript(events[cut:], fold_transcript(events[:cut])) == whole


def test_an_answer_and_a_malformed_text_survive_the_log() -> None:
    plan = (
        StepSpec(id="answer-1", description="", answer="done"),
        StepSpec(id="c", description="", tool_name="put", malformed="[1]"),
    )
    (event,) = log((PlanCommit(turn=1, steps=plan),))
    assert decode_events([encode_event(event)], run_id="r") == [event]


def test_a_view_that_was_given_away_does_not_change() -> None:
    events = log((START, *response("a"), ended("a", 1), TurnStart(turn=2)))
    early = fold_transcript(events[:5])
    before = tuple(early.messages)
    fold_transcript(events[5:], early)
    assert tuple(early.messages) == before
    assert tuple(TranscriptView().messages) == ()
