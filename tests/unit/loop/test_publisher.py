from checkrein.loop.events import (
    AgentEvent,
    Completed,
    MessageAccepted,
    ModelChunk,
    RunFinished,
    RunWarned,
    ToolProgress,
)
from checkrein.loop.publisher import Publisher
from checkrein.messages import Usage, UserMessage
from checkrein.ports.model import TextDelta

CHUNK = TextDelta("request-001", "x")
MESSAGE = UserMessage("u1", "hello")
END = Completed(messages=(), run_id="run", usage=Usage(), final_text="")


def publisher(max_deltas: int, told: list[AgentEvent] | None = None) -> Publisher:
    audience = [] if told is None else ["somebody"]
    return Publisher("run", max_deltas=max_deltas, audience=audience, tell=None if told is None else told.append)


def nothing() -> None:
    """Do nothing between the last event and the result."""


def shape(events: list[AgentEvent]) -> list[tuple[str, int]]:
    return [(event.type, event.sequence) for event in events]


def test_updates_beyond_the_bound_are_left_out_and_one_marker_stands_for_them() -> None:
    made = publisher(2)
    for _ in range(4):
        made.chunk("request-001", CHUNK)
    made.progress("c1", "half")
    made.publish(MessageAccepted, MESSAGE)
    made.publish(MessageAccepted, MESSAGE)
    events = made.log.events
    assert shape(events) == [
        ("model.chunk", 0),
        ("model.chunk", 1),
        ("run.warned", 2),
        ("message.accepted", 3),
        ("message.accepted", 4),
    ]
    assert events[2] == RunWarned(
        2, "run", "deltas_dropped", "3 updates were left out of the log, which keeps 2", dropped=3
    )


def test_updates_of_both_kinds_count_together_and_a_marker_may_come_again() -> None:
    made = publisher(1)
    made.progress("c1", "half")
    made.chunk("request-001", CHUNK)
    made.publish(MessageAccepted, MESSAGE)
    made.chunk("request-001", CHUNK)
    made.finish(END, before_result=nothing)
    assert shape(made.log.events) == [
        ("tool.progress", 0),
        ("run.warned", 1),
        ("message.accepted", 2),
        ("run.warned", 3),
        ("run.finished", 4),
    ]


def test_the_audience_still_gets_every_update() -> None:
    told: list[AgentEvent] = []
    made = publisher(1, told)
    made.chunk("request-001", CHUNK)
    made.chunk("request-001", CHUNK)
    made.progress("c1", "half")
    assert told == [
        ModelChunk(0, "run", "request-001", CHUNK),
        ModelChunk(-1, "run", "request-001", CHUNK),
        ToolProgress(-1, "run", "c1", "half"),
    ]
    assert made.log.events == told[:1]


def test_the_end_is_published_before_the_transcript_is_given_up_and_that_before_the_result() -> None:
    made = publisher(1)
    seen: list[object] = []

    def between() -> None:
        seen.append((made.log.events[-1].type, made.log.result))

    made.finish(END, before_result=between)
    assert seen == [("run.finished", None)]
    assert made.log.result == (END,)


def test_after_the_end_nothing_is_published_and_there_is_no_second_end() -> None:
    told: list[AgentEvent] = []
    made = publisher(1, told)
    made.finish(END, before_result=nothing)
    made.publish(MessageAccepted, MESSAGE)
    made.chunk("request-001", CHUNK)
    made.progress("c1", "late")
    made.finish(END, before_result=nothing)
    assert made.log.events == told == [RunFinished(0, "run", END)]
