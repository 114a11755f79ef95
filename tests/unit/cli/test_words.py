"""Every event has a line for people, and every exit has its code."""

from typing import get_args

import msgspec
import pytest

from checkrein.cli.exits import Exit, Refused, Usage, exit_of_error
from checkrein.cli.words import amounts_in_words, owner_in_words, words
from checkrein.errors import (
    AmbiguousRun,
    DamagedLog,
    DamagedStore,
    DataError,
    InvalidJson,
    LeaseHeld,
    MissingExtra,
    Rejected,
    RunNotFound,
    StoreBusy,
    TaskError,
    UntrustedTask,
)
from checkrein.kernel.budget import Amounts
from checkrein.kernel.events import (
    EventData,
    PlanDraft,
    SessionPause,
    SessionResume,
    StepEnd,
    ToolAccepted,
    ToolErrorGiven,
    Unblocked,
)
from checkrein.kernel.session_events import HeldCall
from checkrein.kernel.state import PULL
from checkrein.runs.lease import is_gone
from checkrein.values import JsonData, JsonObject

ASKED = HeldCall("x", "1.0", "pay", JsonObject(), asks="policy")


@pytest.mark.parametrize("kind", get_args(EventData), ids=lambda kind: kind.type)
def test_every_event_has_words(kind: type) -> None:
    assert words.dispatch(kind) is not words.dispatch(object)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (Unblocked("permission:1.0", JsonData("allow")), "call 1.0 allowed"),
        (Unblocked("review:1.0", JsonData({"deny": "no"})), "call 1.0 denied: no"),
        (Unblocked("review:turn:2", JsonData("deny")), "turn 2 denied"),
        (Unblocked("review:step:x", JsonData([1])), "step x answered: [1]"),
        (Unblocked("planner:2"), "the planner is asked again (turn 2)"),
        (Unblocked("answer:1.0"), "call 1.0 is answered"),
        (Unblocked("reconcile:1.0", JsonData("done")), 'reconcile:1.0 answered: "done"'),
        (Unblocked("budget:turns"), "budget:turns answered"),
        (ToolAccepted("1.0", PULL), "call 1.0 waits for its result from outside"),
        (ToolAccepted("1.0", "job-7"), "call 1.0 accepted as job job-7: no result yet"),
        (PlanDraft(1, (), dropped="too long"), "draft dropped: too long"),
        (PlanDraft(1, ()), "the planner returned 0 steps"),
        (StepEnd("x", "skipped"), "step x skipped"),
        (ToolErrorGiven("x", "", "denied", "no"), "step x makes no call (denied): no"),
        (ToolErrorGiven("x", "1.0", "internal", "no"), "step x has an error (internal): no"),
        (SessionPause("planner_failed", "PLANNING", message="no idea"), "paused: planner_failed: no idea"),
        (
            SessionPause("review:permission", "EXECUTING", calls=(ASKED, msgspec.structs.replace(ASKED, asks=""))),
            "paused: review:permission; may be called? pay (1.0)",
        ),
        (SessionResume("before_tool_call", "1.0", JsonData("allow")), "resumed: call 1.0 allowed"),
        (SessionResume("after_plan", "turn:1", JsonData({"deny": "no"})), "resumed: turn 1 denied: no"),
        (SessionResume("budget", "tool_calls"), "resumed: tool calls extended"),
        (SessionResume("", "turn:1", extra=Amounts(turns=2)), "resumed with 2 turns more"),
    ],
)
def test_questions_and_their_answers_are_said_in_words(data: EventData, said: str) -> None:
    assert words(data) == said


def test_what_is_no_event_has_none() -> None:
    with pytest.raises(TypeError, match="no words for int"):
        words(3)


def test_amounts_are_said_with_their_units() -> None:
    assert amounts_in_words(Amounts(tool_calls=5, wall_seconds=1.5)) == "5 tool calls, 1.5 wall seconds"
    assert amounts_in_words(Amounts()) == "nothing"


@pytest.mark.parametrize("owner", ["", "no json", "[]", '{"name": "x"}'])
def test_an_owner_that_is_no_identity_of_ours_is_shown_as_it_is(owner: str) -> None:
    assert owner_in_words(owner) == owner
    assert not is_gone(owner)


def test_an_owner_is_named_with_its_process() -> None:
    assert owner_in_words('{"name": "run", "pid": 12}') == "run (process 12)"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Usage("x"), Exit.USAGE),
        (RunNotFound("x"), Exit.USAGE),
        (AmbiguousRun("x", ("a", "b")), Exit.USAGE),
        (TaskError("f", "k", "p", "x"), Exit.USAGE),
        (MissingExtra("f", "k", "e"), Exit.USAGE),
        (DataError("x"), Exit.USAGE),
        (InvalidJson("x"), Exit.USAGE),
        (Refused("x"), Exit.REFUSED),
        (UntrustedTask("f", "h", "x"), Exit.REFUSED),
        (Rejected("terminal", "x", {}), Exit.REFUSED),
        (LeaseHeld("r", "o", 1.0), Exit.REFUSED),
        (StoreBusy("x"), Exit.REFUSED),
        (DamagedStore("f", "x"), Exit.REFUSED),
        (DamagedLog("r", 1, "x"), Exit.REFUSED),
        (PermissionError(13, "x"), Exit.REFUSED),
        (ZeroDivisionError("x"), Exit.DEFECT),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_error_has_its_code(error: Exception, code: Exit) -> None:
    assert exit_of_error(error) is code
