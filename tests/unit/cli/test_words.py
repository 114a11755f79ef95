"""Every event has a line for people, and every exit has its code."""

from typing import get_args

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
from checkrein.kernel.events import EventData
from checkrein.runs.lease import is_gone


@pytest.mark.parametrize("kind", get_args(EventData), ids=lambda kind: kind.type)
def test_every_event_has_words(kind: type) -> None:
    assert words.dispatch(kind) is not words.dispatch(object)


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
