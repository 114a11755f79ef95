"""The whole table of what `resume` takes: where the session stands, what it is given, and what that appends."""

from collections.abc import Awaitable, Callable, Mapping

import pytest

from checkrein.errors import ResumeError
from checkrein.harness.hooks import Pause, Topic
from checkrein.harness.pulls import PullRequest, SessionResult
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import SessionComplete, SessionResume, ToolErrorGiven, ToolResultGiven
from checkrein.kernel.session_state import EndedStep
from tests.unit.harness.loop_scene import (
    Scene,
    Setting,
    called,
    calls_of,
    ended,
    is_sound,
    paused,
    plain,
    results_of,
    tooled,
)

Place = Callable[[], Awaitable[tuple[Scene, PullRequest | SessionResult | None]]]


async def _not_started() -> tuple[Scene, None]:
    return Scene([plain(1)]), None


async def _over() -> tuple[Scene, SessionResult]:
    scene = Scene([plain(1)])
    return scene, ended(await scene.run())


async def _one_call() -> tuple[Scene, PullRequest]:
    scene = Scene([tooled(1)])
    return scene, called(await scene.run(), "1.0")


async def _two_calls() -> tuple[Scene, PullRequest]:
    scene = Scene([tooled(1, "b"), tooled(2, "b")])
    return scene, called(await scene.run(), "1.0", "1.1")


async def _turns_used_up() -> tuple[Scene, PullRequest]:
    scene = Scene([plain(1)], setting=Setting(budget=Budget(turns=0)))
    return scene, paused(await scene.run(), "budget_exceeded:turns")


async def _steps_used_up() -> tuple[Scene, PullRequest]:
    scene = Scene([plain(1)], setting=Setting(budget=Budget(steps=0)))
    return scene, paused(await scene.run(), "step_budget")


async def _reviewed(topic: Topic) -> tuple[Scene, PullRequest]:
    scene = Scene([plain(1)])
    scene.on(topic, Pause("look"))
    return scene, paused(await scene.run(), "review:look")


async def _planner_failed() -> tuple[Scene, PullRequest]:
    scene = Scene(RuntimeError("no"), [plain(1)])
    return scene, paused(await scene.run(), "planner_failed")


async def _approvals(*steps: int) -> tuple[Scene, PullRequest]:
    scene = Scene([tooled(number, "b") for number in steps])
    scene.on("before_tool_call", *[Pause("may I?") for _ in steps])
    return scene, paused(await scene.run(), "review:may I?")


PLACES: dict[str, Place] = {
    "not started": _not_started,
    "over": _over,
    "one call": _one_call,
    "two calls": _two_calls,
    "turns used up": _turns_used_up,
    "steps used up": _steps_used_up,
    "before_plan review": lambda: _reviewed("before_plan"),
    "after_step review": lambda: _reviewed("after_step"),
    "planner failed": _planner_failed,
    "one approval": lambda: _approvals(1),
    "two approvals": lambda: _approvals(1, 2),
}
ANSWERS: dict[str, Mapping[str, object] | None] = {
    "result": {"result": None},
    "result of 1.0": {"result": 1, "call_id": "1.0"},
    "error": {"error": "it broke"},
    "extend": {"extend": {"turns": 2, "steps": 2}},
    "extend too little": {"extend": {"turns": 0, "tool_calls": 5}},
    "decision": {"decision": "go"},
    "decision of 1.0": {"decision": "go", "call_id": "1.0"},
    "close": {"close": "enough"},
    "None": None,
    "{}": {},
    "only an id": {"call_id": "1.0"},
    "both": {"result": 1, "error": "x"},
    "two keys": {"decision": 1, "close": "x"},
    "unknown key": {"cancel": "x"},
    "unknown id": {"decision": 1, "call_id": "9.9"},
    "result of an unknown id": {"result": 1, "call_id": "9.9"},
}
# What each cell comes to: a code it is refused with, `same` for an equal pull and nothing appended, `added` for raised limits and the same pull,
# `one` for one of several taken, `go` for going on, `end` for the end.
TABLE = """
                        | not started | over | one call       | two calls      | used up        | review         | one approval   | two approvals
result                  | not_started | done | go             | which_call     | not_taken_here | not_taken_here | not_taken_here | not_taken_here
result of 1.0           | not_started | done | go             | one            | not_taken_here | not_taken_here | not_taken_here | not_taken_here
error                   | not_started | done | go             | which_call     | not_taken_here | not_taken_here | not_taken_here | not_taken_here
extend                  | not_started | done | not_taken_here | not_taken_here | go             | added          | added          | added
extend too little       | not_started | done | not_taken_here | not_taken_here | same           | added          | added          | added
decision                | not_started | done | not_taken_here | not_taken_here | same           | go             | go             | which_call
decision of 1.0         | not_started | done | not_taken_here | not_taken_here | same           | unknown_call   | go             | one
close                   | not_started | done | end            | end            | end            | end            | end            | end
None                    | not_started | done | empty          | empty          | same           | empty          | empty          | empty
{}                      | not_started | done | empty          | empty          | same           | empty          | empty          | empty
only an id              | not_started | done | empty          | empty          | same           | empty          | empty          | empty
both                    | not_started | done | both           | both           | same           | both           | both           | both
two keys                | not_started | done | both           | both           | same           | both           | both           | both
unknown key             | not_started | done | unknown_key    | unknown_key    | same           | unknown_key    | unknown_key    | unknown_key
unknown id              | not_started | done | not_taken_here | not_taken_here | same           | unknown_call   | unknown_call   | unknown_call
result of an unknown id | not_started | done | unknown_call   | unknown_call   | not_taken_here | not_taken_here | not_taken_here | not_taken_here
"""
COLUMNS = {
    "turns used up": "used up",
    "steps used up": "used up",
    "before_plan review": "review",
    "after_step review": "review",
    "planner failed": "review",
}


def _cells() -> list[tuple[str, str, str]]:
    head, *rows = TABLE.strip("\n").splitlines()
    columns = [name.strip() for name in head.split("|")][1:]
    table: dict[tuple[str, str], str] = {}
    for row in rows:
        answer, *cells = (part.strip() for part in row.split("|"))
        table |= {(column, answer): cell for column, cell in zip(columns, cells, strict=True)}
    return [(place, answer, table[COLUMNS.get(place, place), answer]) for place in PLACES for answer in ANSWERS]


@pytest.mark.parametrize(("place", "answer", "expected"), _cells(), ids=str)
async def test_each_answer_is_taken_refused_or_changes_nothing(place: str, answer: str, expected: str) -> None:
    scene, pull = await PLACES[place]()
    hooks = scene.payloads
    scene.watch()
    before = len(scene.loop.events)
    state = scene.loop.session
    if expected.islower() and expected not in {"go", "one", "same", "added", "end"}:
        with pytest.raises(ResumeError) as caught:
            await scene.answer(ANSWERS[answer])
        assert (caught.value.code, scene.types(before), scene.loop.session) == (expected, [], state)
        assert hooks == []
        return
    after = await scene.answer(ANSWERS[answer])
    appended = scene.types(before)
    match expected:
        case "same":
            assert (after, appended, scene.loop.session, hooks) == (pull, [], state, [])
        case "added":
            assert appended == ["session.resume"]
            assert (_but_limits(after), scene.loop.session, hooks) == (_but_limits(pull), state, [])
            assert scene.loop.budget.limits != Budget()
        case "one":
            assert len(appended) == 1
            assert isinstance(after, PullRequest)
            assert [item["call_id"] for item in calls_of(after)] == ["1.1"]
        case "go":
            assert appended[0] in {"session.resume", "tool.result", "tool.error"}
            assert len(appended) > 1
        case _:
            ended(after, "closed:enough")
            assert appended == [*["tool.error"] * _open_calls(pull), "session.complete"]
            assert [name for name, _ in hooks] == ["on_complete"]
    assert is_sound(scene.loop)


def _but_limits(pull: PullRequest | SessionResult | None) -> object:
    assert isinstance(pull, PullRequest)
    return pull.reason, {name: value for name, value in pull.payload.items() if name != "limits"}


def _open_calls(pull: PullRequest | SessionResult | None) -> int:
    return len(calls_of(pull)) if isinstance(pull, PullRequest) and pull.kind == "tool" else 0


BAD_VALUES: dict[str, tuple[str, object]] = {
    "an answer that is no mapping": ("one call", ["result"]),
    "an error that is no text": ("one call", {"error": 5}),
    "a close that is no text": ("one call", {"close": None}),
    "a limit that is none": ("before_plan review", {"extend": {"patience": 1}}),
    "no limit at all": ("before_plan review", {"extend": {}}),
    "an extension that is no mapping": ("before_plan review", {"extend": 5}),
    "a negative extension": ("before_plan review", {"extend": {"turns": -1}}),
    "half a turn": ("before_plan review", {"extend": {"turns": 0.5}}),
    "no number": ("turns used up", {"extend": {"turns": float("nan")}}),
    "a decision that is no JSON": ("before_plan review", {"decision": {1, 2}}),
}


@pytest.mark.parametrize("name", BAD_VALUES)
async def test_a_bad_value_is_refused_with_words_and_appends_nothing(name: str) -> None:
    place, answer = BAD_VALUES[name]
    scene, _ = await PLACES[place]()
    before = len(scene.loop.events)
    with pytest.raises(ResumeError) as caught:
        await scene.loop.resume(answer)  # pyright: ignore[reportArgumentType]  callers may give anything
    assert caught.value.code == "bad_value"
    assert str(caught.value)
    assert len(scene.loop.events) == before


async def test_an_id_that_is_no_text_is_no_id() -> None:
    scene, _ = await _one_call()
    with pytest.raises(ResumeError) as caught:
        await scene.answer({"result": 1, "call_id": 1.0})
    assert caught.value.code == "unknown_call"


async def test_a_pull_for_a_tool_names_the_first_open_call_and_all_of_them() -> None:
    _, pull = await _two_calls()
    assert pull.payload == {
        "step_id": 1,
        "call_id": "1.0",
        "name": "look_up",
        "arguments": {},
        "calls": [
            {"step_id": 1, "call_id": "1.0", "name": "look_up", "arguments": {}},
            {"step_id": 2, "call_id": "1.1", "name": "look_up", "arguments": {}},
        ],
    }


async def test_a_pull_for_a_pause_shows_what_is_asked_and_every_limit() -> None:
    _, pull = await _approvals(1, 2)
    assert (pull.payload["topic"], pull.payload["subject"]) == ("before_tool_call", "")
    assert [(item["call_id"], item["step_id"], item["reason"]) for item in calls_of(pull)] == [
        ("1.0", 1, "may I?"),
        ("1.1", 2, "may I?"),
    ]
    used, limits = pull.payload["used"], pull.payload["limits"]
    assert isinstance(used, dict)
    assert isinstance(limits, dict)
    assert (used["turns"], used["steps"], used["tool_calls"], limits["turns"], limits["tokens"]) == (1, 2, 0, 64, None)


async def test_a_result_of_null_is_a_result() -> None:
    scene, _ = await _one_call()
    result = ended(await scene.answer({"result": None}))
    assert (result.result, results_of(scene), scene.events("tool.error")) == (None, [None], ())


async def test_calls_of_a_batch_are_answered_in_any_order_each_once() -> None:
    scene, _ = await _two_calls()
    called(await scene.answer({"error": "no", "call_id": "1.1"}), "1.0")
    with pytest.raises(ResumeError) as caught:
        await scene.answer({"result": 3, "call_id": "1.1"})
    assert caught.value.code == "unknown_call"
    await scene.answer({"result": 4})
    assert results_of(scene) == [4]


async def test_an_approval_is_answered_once() -> None:
    scene, _ = await _approvals(1, 2)
    paused(await scene.answer({"decision": "go", "call_id": "1.1"}), "review:may I?")
    with pytest.raises(ResumeError) as caught:
        await scene.answer({"decision": "deny", "call_id": "1.1"})
    assert caught.value.code == "unknown_call"
    called(await scene.answer({"decision": "go"}), "1.0", "1.1")
    answers = [event.data for event in scene.events("session.resume") if isinstance(event.data, SessionResume)]
    assert [(item.topic, item.subject, item.decision.value) for item in answers] == [
        ("before_tool_call", "1.1", "go"),
        ("before_tool_call", "1.0", "go"),
    ]


async def test_each_answer_is_one_event() -> None:
    scene, _ = await _reviewed("before_plan")
    before = len(scene.loop.events)
    await scene.answer({"decision": {"note": "fine"}})
    (answer,) = scene.events("session.resume")
    assert answer.offset == before
    assert isinstance(answer.data, SessionResume)
    assert (answer.data.topic, answer.data.subject) == ("before_plan", "turn:1")
    assert answer.data.decision.value == {"note": "fine"}


async def test_closing_answers_each_open_call_and_says_so_at_the_end() -> None:
    scene, _ = await _two_calls()
    scene.loop.follow_up("and then?")
    await scene.answer({"result": 1, "call_id": "1.0"})
    result = ended(await scene.answer({"close": "enough"}), "closed:enough")
    (failed,) = scene.events("tool.error")
    assert isinstance(failed.data, ToolErrorGiven)
    assert (failed.data.call_id, failed.data.kind, failed.data.message) == ("1.1", "closed", "enough")
    assert result.unread == ("and then?",)
    assert scene.types()[-2:] == ["tool.error", "session.complete"]


async def test_a_message_that_comes_while_hooks_hear_of_the_end_is_unread() -> None:
    scene, _ = await _one_call()

    async def late(_payload: dict[str, object]) -> None:
        scene.loop.steer("wait!")

    scene.loop.hooks.on("on_complete", late)
    assert ended(await scene.answer({"close": ""}), "closed:").unread == ("wait!",)
    (end,) = scene.events("session.complete")
    assert isinstance(end.data, SessionComplete)
    assert len(end.data.unread) == 1


async def test_a_limit_reached_when_an_answer_arrives_lets_the_answer_in_first() -> None:
    scene = Scene([tooled(1), plain(2)], setting=Setting(budget=Budget(wall_seconds=5)))
    called(await scene.run(), "1.0")
    await scene.clock.advance(6)
    paused(await scene.answer({"result": 8}), "budget_exceeded:wall_seconds")
    assert results_of(scene) == [8]
    assert scene.loop.session.paused is not None
    assert scene.loop.session.paused.state == "REFLECTING"
    assert ended(await scene.answer({"extend": {"wall_seconds": 5}})).result is None


async def test_the_order_of_results_is_the_order_of_answers() -> None:
    scene, _ = await _two_calls()
    await scene.answer({"result": "b", "call_id": "1.1"})
    await scene.answer({"result": "a"})
    given = [event.data for event in scene.events("tool.result") if isinstance(event.data, ToolResultGiven)]
    assert [item.call_id for item in given] == ["1.1", "1.0"]
    ends = [item.step.id for item in scene.loop.session.history if isinstance(item, EndedStep)]
    assert ends == [1, 2]
