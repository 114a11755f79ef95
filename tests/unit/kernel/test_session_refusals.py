"""Events whose edge exists but which are about a turn, a step or a call that is not open: refused, and nothing moves."""

from collections.abc import Callable

import pytest

from checkrein.errors import IllegalTransition
from checkrein.kernel.events import (
    EventData,
    PlanCommit,
    PlanDraft,
    SessionComplete,
    SessionPause,
    SessionResume,
    SessionStart,
    StepEnd,
    StepStart,
    TurnStart,
)
from checkrein.kernel.session import evolve_session, fold_session
from tests.unit.kernel.session_story import RUN, SessionStory, call, error, plain, result, tooled

Refused = tuple[Callable[[], SessionStory], EventData, str]


def _started() -> SessionStory:
    return SessionStory().started()


def _pair() -> SessionStory:
    """EXECUTING: both steps of a batch are started, none has a call."""
    story = _started().committed(tooled(1, "b"), tooled(2, "b"), plain(3))
    return story.send(StepStart(1), StepStart(2))


def _answered() -> SessionStory:
    """REFLECTING: the call is answered, its step not ended."""
    return _started().awaiting().send(result(1, "1.0"))


REFUSED: dict[str, Refused] = {
    "a second session.start after a pause": (lambda: _started().paused(), SessionStart("again"), "second time"),
    "session.complete before session.start": (SessionStory, SessionComplete("closed:x"), "before session.start"),
    "a turn that is not the next": (_started, TurnStart(2), "turn 2 attempt 1"),
    "a turn that begins with attempt 2": (_started, TurnStart(1, 2), "turn 1 attempt 2"),
    "the next turn while one is asked": (lambda: _started().asked(), TurnStart(2), "turn 2"),
    "the same attempt once more": (lambda: _started().asked(), TurnStart(1, 1), "attempt 1"),
    "an attempt left out": (lambda: _started().asked(), TurnStart(1, 3), "attempt 3"),
    "a turn beside an open draft": (lambda: _started().drafted(plain(1)), TurnStart(2), "turn 2"),
    "a turn while an answered step has not ended": (_answered, TurnStart(2), "turn 2"),
    "a draft that nobody asked for": (_started, PlanDraft(1, ()), "not asked"),
    "a draft of another turn": (lambda: _started().asked(), PlanDraft(2, ()), "not asked"),
    "a second draft of one turn": (lambda: _started().drafted(), PlanDraft(1, ()), "not asked"),
    "a draft while reflecting": (lambda: _started().reflecting(), PlanDraft(1, ()), "not asked"),
    "dropping a draft that is not there": (
        lambda: _started().asked(),
        PlanDraft(1, (), dropped="no"),
        "there is none",
    ),
    "a commit without a draft": (lambda: _started().asked(), PlanCommit(1, ()), "has no draft"),
    "a commit of another turn": (lambda: _started().drafted(), PlanCommit(2, ()), "has no draft"),
    "a step that is not the next": (
        lambda: _started().committed(plain(1), plain(2)),
        StepStart(2),
        "not the next step",
    ),
    "a step that is not in the plan": (lambda: _started().committed(plain(1)), StepStart("x"), "not the next step"),
    "a step started twice": (lambda: _started().committed(tooled(1)).send(StepStart(1)), StepStart(1), "not the next"),
    "the next step while one is open": (
        lambda: _started().committed(tooled(1), tooled(2)).send(StepStart(1)),
        StepStart(2),
        "another step is open",
    ),
    "a step after the batch that is open": (_pair, StepStart(3), "another step is open"),
    "the next step before an answered one ended": (
        lambda: _started().committed(tooled(1), plain(2)).send(StepStart(1), call(1, "1.0"), result(1, "1.0")),
        StepStart(2),
        "another step is open",
    ),
    "the end of a step that is not started": (
        lambda: _started().committed(plain(1)),
        StepEnd(1, "done"),
        "not started",
    ),
    "the end of a step whose call is open": (
        lambda: _pair().send(call(1, "1.0")),
        StepEnd(1, "done"),
        "call is open",
    ),
    "the second end of a step": (lambda: _started().reflecting(), StepEnd("first", "done"), "not started"),
    "a call of a step that is not started": (_pair, call(3, "1.2"), "tool.call 1.2"),
    "a first call as attempt 2": (_pair, call(1, "1.0", 2), "attempt 2"),
    "the same attempt of a call again": (lambda: _pair().send(call(1, "1.0")), call(1, "1.0"), "attempt 1"),
    "a call after its answer": (
        lambda: _pair().send(call(1, "1.0"), result(1, "1.0")),
        call(1, "1.0", 2),
        "attempt 2",
    ),
    "a result of an unknown call": (lambda: _pair().send(call(1, "1.0")), result(2, "1.1"), "'1.1'"),
    "a result without a call": (lambda: _pair().send(call(1, "1.0")), result(2, ""), "''"),
    "a second result": (lambda: _pair().send(call(1, "1.0"), result(1, "1.0")), result(1, "1.0"), "'1.0'"),
    "an error after a result": (lambda: _pair().send(call(1, "1.0"), result(1, "1.0")), error(1, "1.0"), "'1.0'"),
    "a refusal of a call that was made": (lambda: _pair().send(call(1, "1.0")), error(1, ""), "1"),
    "a refusal of a step that is not started": (_pair, error(3, ""), "3"),
    "a second refusal": (lambda: _pair().send(error(1, "")), error(1, ""), "1"),
    "a result while paused without a call": (lambda: _started().paused(), result(1, "1.0"), "'1.0'"),
    "a pause that returns elsewhere": (_started, SessionPause("review:x", "EXECUTING"), "EXECUTING"),
    "a resume before the start": (SessionStory, SessionResume(), "without a pause"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_machine_refuses(name: str) -> None:
    make, fact, words = REFUSED[name]
    story = make()
    before = fold_session(story.log)
    with pytest.raises(IllegalTransition) as caught:
        evolve_session(story.state, story.event(fact))
    assert words in caught.value.event
    assert caught.value.phase == before.phase
    assert caught.value.subject == (RUN if before.is_started else "")
    assert story.state == before


@pytest.mark.parametrize("name", REFUSED)
def test_a_log_with_a_refused_event_does_not_fold(name: str) -> None:
    make, fact, _ = REFUSED[name]
    story = make()
    with pytest.raises(IllegalTransition):
        fold_session([*story.log, story.event(fact)])
