"""A run of three turns and six calls, cancelled or broken at each of its awaits: one end, a valid transcript, a true report, and the next prompt works."""

import asyncio
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from checkrein.loop.events import Cancelled, Failed, RunResult, UnadoptedCall
from checkrein.messages import UserMessage, validate_transcript
from tests.acceptance.agent_scene import CALLS, GRACE_SECONDS, Execution, Scene
from tests.counts import report

WHOLE_TURNS = (1, 5, 9, 10, 11, 12)
"""How long a transcript of whole turns is: the prompt, two turns with their results, an answer, the follow-up, an answer."""
WAYS: tuple[tuple[Execution, bool], ...] = (
    ("sequential", False),
    ("parallel", False),
    ("sequential", True),
    ("parallel", True),
)
"""How the calls run, and whether tasks begin at once."""


class OddError(BaseException):
    """Nobody expects it."""


@contextmanager
def named(*what: object) -> Generator[None]:
    """Say of a failure where it was."""
    try:
        yield
    except AssertionError as error:
        error.add_note(" ".join(str(part) for part in what))
        raise


def whole(execution: Execution, is_eager: bool) -> Scene:  # noqa: FBT001  one of the ways
    """Play the story undisturbed, to know how many awaits and steps it has."""
    scene = Scene(execution, is_eager)
    result = scene.play()
    assert result.status == "completed"
    assert len(result.messages) == WHOLE_TURNS[-1]
    assert {*scene.places} == {"model", "tool", "before", "after", "transform", "prepare", "stop", "listener"}
    scene.loop.close()
    return scene


def hold(scene: Scene, result: RunResult) -> None:
    """Hold what every end promises."""
    agent = scene.agent
    assert validate_transcript(agent.messages) == ()
    assert tuple(result.messages) == agent.messages
    assert len(agent.messages) in WHOLE_TURNS
    assert not agent.is_running
    assert not scene.told
    kept = [message.id for message in agent.messages if isinstance(message, UserMessage) and message.content == "kept"]
    assert len(kept) + len(agent.queued) == 1
    assert asyncio.all_tasks(scene.loop) == set()
    if isinstance(result, (Cancelled, Failed)):
        for call in result.unadopted_calls:
            assert (call.result is not None) == (call.state in {"finished", "failed"})


def hold_report(scene: Scene, calls: tuple[UnadoptedCall, ...]) -> None:
    """Hold that the report says of each call of the dropped turn what its body did."""
    assert tuple(call.call for call in calls) in {(), *CALLS}
    for call in calls:
        body = scene.bodies.get(call.call.id, "never began")
        allowed = {"never began": "not_started", "began": "outcome_unknown", "returned": "finished"}
        assert call.state == allowed[body], (call.call.id, body)


def hold_next(scene: Scene) -> None:
    """Hold that the next prompt is answered."""
    before = len(scene.agent.messages)
    result = scene.again()
    assert result.status == "completed"
    assert validate_transcript(scene.agent.messages) == ()
    assert len(scene.agent.messages) >= before + 2
    assert not len(scene.agent.queued)
    scene.loop.close()


def cancelled_at_step(execution: Execution, is_eager: bool, step: int) -> Counter[int]:  # noqa: FBT001  one of the ways
    """Cancel between two steps of the event loop; return how many calls of the dropped turn had finished, once per cancelled run."""
    scene = Scene(execution, is_eager, action_step=step)
    said: list[bool] = []
    scene.action = lambda: said.append(scene.agent.cancel("stop"))
    result = scene.play()
    hold(scene, result)
    assert isinstance(result, Cancelled) == (said == [True])
    finished = Counter[int]()
    if isinstance(result, Cancelled):
        assert result.reason == "stop"
        assert scene.loop.now == 0.0, "nobody had to be left behind"
        hold_report(scene, result.unadopted_calls)
        states = [call.state for call in result.unadopted_calls]
        finished[states.count("finished") if states else -1] += 1
    hold_next(scene)
    return finished


def test_a_run_cancelled_between_any_two_steps_has_one_end_and_a_true_report() -> None:
    tried = 0
    for way in WAYS:
        finished = Counter[int]()
        steps = whole(*way).steps
        for step in range(steps + 1):
            with named(*way, "step", step):
                finished += cancelled_at_step(*way, step)
        assert {0, 1, len(CALLS[0])} <= set(finished)
        assert sum(finished.values()) > steps / 2
        tried += steps + 1
    report("agent run cancelled at every step", tried, passed=tried)


def cancelled_at_await(execution: Execution, is_eager: bool, wanted: int) -> None:  # noqa: FBT001  one of the ways
    scene = Scene(execution, is_eager)
    said: list[bool] = []

    def at(number: int, _place: str) -> None:
        if number == wanted:
            said.append(scene.agent.cancel("stop"))

    scene.at = at
    result = scene.play()
    hold(scene, result)
    assert isinstance(result, Cancelled) == (said == [True])
    if isinstance(result, Cancelled):
        hold_report(scene, result.unadopted_calls)
    hold_next(scene)


def test_a_run_cancelled_from_within_at_any_await_has_one_end_and_a_true_report() -> None:
    tried = 0
    for way in WAYS:
        for wanted in range(whole(*way).awaits):
            with named(*way, "await", wanted):
                cancelled_at_await(*way, wanted)
            tried += 1
    report("agent run cancelled from within at every await", tried, passed=tried)


ENDS = {
    "model": "MODEL_STREAM_FAILED",
    "tool": "completed",
    "before": "completed",
    "after": "completed",
    "transform": "AGENT_STATE_FAILED",
    "prepare": "AGENT_STATE_FAILED",
    "stop": "AGENT_STATE_FAILED",
    "listener": "completed",
}
"""How a run ends when user code raises at a place."""
HOOKS = {"transform": "transform_context", "prepare": "prepare_turn", "stop": "should_stop"}


def broken_at_await(execution: Execution, is_eager: bool, wanted: int, error: BaseException) -> None:  # noqa: FBT001
    scene = Scene(execution, is_eager)

    def at(number: int, _place: str) -> None:
        if number == wanted:
            raise error

    scene.at = at
    result = scene.play()
    hold(scene, result)
    place = scene.places[wanted]
    assert (result.error.code if isinstance(result, Failed) else result.status) == ENDS[place], place
    assert len(scene.agent.subscriber_errors) == (place == "listener")
    if isinstance(result, Failed) and place in HOOKS:
        assert HOOKS[place] in result.error.message
    hold_next(scene)


@pytest.mark.parametrize("error", [ValueError("no"), asyncio.CancelledError("by itself"), OddError("odd")], ids=type)
def test_an_error_at_any_await_is_an_outcome_of_its_place_and_never_another_end(error: BaseException) -> None:
    tried = 0
    for way in WAYS:
        for wanted in range(whole(*way).awaits):
            with named(*way, "await", wanted):
                broken_at_await(*way, wanted, error)
            tried += 1
    report(f"agent run with {type(error).__name__} at every await", tried, passed=tried)


def closed_at_step(execution: Execution, is_eager: bool, step: int) -> None:  # noqa: FBT001  one of the ways
    scene = Scene(execution, is_eager, action_step=step)

    def close() -> None:
        for task in asyncio.all_tasks(scene.loop):
            task.cancel()

    scene.action = close
    result = scene.play()
    hold(scene, result)
    assert result.status in {"cancelled", "completed"}
    hold_next(scene)


def test_a_run_whose_tasks_are_cancelled_from_outside_at_any_step_ends_and_has_no_owner() -> None:
    tried = 0
    for way in WAYS:
        for step in range(1, whole(*way).steps + 1):
            with named(*way, "step", step):
                closed_at_step(*way, step)
            tried += 1
    report("agent run with all tasks cancelled at every step", tried, passed=tried)


def deaf_at_await(execution: Execution, is_eager: bool, wanted: int) -> bool:  # noqa: FBT001  one of the ways
    """Cancel at an await that ignores it; return whether it had to be left behind."""
    scene = Scene(execution, is_eager, deaf_at=wanted)

    def at(number: int, _place: str) -> None:
        if number == wanted:
            scene.loop.call_soon(scene.agent.cancel, "stop")

    scene.at = at
    result = scene.play()
    stream = scene.streams[-1]
    events, messages, had_to_wait = len(stream), scene.agent.messages, scene.loop.now == GRACE_SECONDS
    assert scene.loop.now <= GRACE_SECONDS
    assert not scene.agent.is_running
    assert isinstance(result, Cancelled) or not had_to_wait
    if isinstance(result, Cancelled):
        begun = {call.call.id: call.state for call in result.unadopted_calls if call.call.id in scene.bodies}
        assert "not_started" not in begun.values()
    scene.release()
    assert (len(stream), scene.agent.messages) == (events, messages)
    assert result == scene.result()
    hold(scene, result)
    hold_next(scene)
    return had_to_wait


def test_a_deaf_await_anywhere_is_left_behind_after_the_grace_and_changes_nothing_when_it_comes_back() -> None:
    tried = left = 0
    for way in WAYS:
        for wanted in range(whole(*way).awaits):
            with named(*way, "await", wanted):
                left += deaf_at_await(*way, wanted)
            tried += 1
    report("agent run cancelled at every await, which ignores it", tried, passed=tried, detail={"left_behind": left})
    assert left > tried / 4
