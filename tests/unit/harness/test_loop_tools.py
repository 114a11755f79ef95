"""Sessions with tools: errors a planner can act on, time limits, attempts that are counted, and who shares what."""

import asyncio

import pytest

from checkrein.errors import TransientToolError
from checkrein.harness.planners import Plan
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import ToolCallGiven, ToolErrorGiven
from checkrein.kernel.session_state import EndedStep
from checkrein.ports.tool import Accepted, PollResult, ToolContext
from checkrein.tools.function import FunctionTool, tool
from tests.unit.harness.loop_scene import Scene, Setting, called, ended, is_sound, paused, plain, results_of, tooled


def _errors(scene: Scene) -> list[tuple[str, str]]:
    return [
        (event.data.kind, event.data.message)
        for event in scene.events("tool.error")
        if isinstance(event.data, ToolErrorGiven)
    ]


@tool(inline=True)
def add(first: int, second: int = 1) -> int:
    """Add."""
    return first + second


async def test_a_session_with_tools_needs_no_caller() -> None:
    scene = Scene(
        [tooled(1, name="add", arguments={"first": 2}), tooled(2, name="add", arguments={"first": 3, "second": 4})],
        setting=Setting(tools=(add,)),
    )
    assert ended(await scene.run()).result == 7
    assert results_of(scene) == [3, 7]


async def test_wrong_arguments_come_back_with_pointers_and_the_planner_corrects_itself_in_one_round() -> None:
    scene = Scene(
        [tooled(1, name="add", arguments={"first": "two", "third": 3})],
        [tooled(1, name="add", arguments={"first": 2})],
        setting=Setting(tools=(add,)),
    )
    result = ended(await scene.run())
    ((kind, message),) = _errors(scene)
    assert kind == "schema"
    assert "/first" in message
    assert "integer" in message
    assert "third" in message
    told = scene.script.told[1].last_error
    assert told is not None
    assert (told.kind, "/first" in told.message) == ("step", True)
    assert (result.result, result.budget.used.tool_calls, result.budget.used.replans) == (3, 1, 1)


async def test_an_unknown_tool_comes_back_as_an_error_and_is_never_granted() -> None:
    scene = Scene(
        [tooled(1, name="subtract")], [tooled(1, name="add", arguments={"first": 2})], setting=Setting(tools=(add,))
    )
    ended(await scene.run())
    assert [kind for kind, _ in _errors(scene)] == ["not_found"]
    assert len(scene.events("tool.call")) == 1


def _shaky(failures: int, contexts: list[ToolContext], *, is_idempotent: bool = True) -> FunctionTool:
    @tool(inline=True, idempotent=is_idempotent)
    def look_up(context: ToolContext) -> str:
        contexts.append(context)
        if len(contexts) <= failures:
            raise TransientToolError("busy")
        return "found"

    return look_up


async def _run(scene: Scene, seconds: float = 200) -> object:
    """Run while the clock goes on."""
    work = scene.clock.spawn(scene.run(), name="driver")
    await scene.clock.advance(seconds)
    return await work


async def test_a_transient_failure_of_an_idempotent_tool_is_tried_again_counted_and_under_one_key() -> None:
    contexts: list[ToolContext] = []
    scene = Scene([tooled(1)], setting=Setting(tools=(_shaky(2, contexts),)))
    await _run(scene)
    assert results_of(scene) == ["found"]
    calls = [event.data for event in scene.events("tool.call") if isinstance(event.data, ToolCallGiven)]
    assert [(call.call_id, call.attempt) for call in calls] == [("1.0", 1), ("1.0", 2), ("1.0", 3)]
    assert [context.attempt for context in contexts] == [1, 2, 3]
    assert len({context.idempotency_key for context in contexts}) == 1
    assert scene.loop.budget.used.tool_calls == 3
    assert is_sound(scene.loop)


async def test_a_transient_failure_of_another_tool_is_not_tried_again() -> None:
    contexts: list[ToolContext] = []
    scene = Scene([tooled(1)], [], setting=Setting(tools=(_shaky(2, contexts, is_idempotent=False),)))
    await _run(scene)
    assert (len(contexts), [kind for kind, _ in _errors(scene)]) == (1, ["transient"])


@pytest.mark.parametrize("allowed", [1, 2])
async def test_an_attempt_that_the_budget_does_not_allow_is_not_made(allowed: int) -> None:
    contexts: list[ToolContext] = []
    shaky = _shaky(5, contexts)
    scene = Scene([tooled(1)], [], setting=Setting(tools=(shaky,), budget=Budget(tool_calls=allowed)))
    await _run(scene)
    assert (len(contexts), scene.loop.budget.used.tool_calls) == (allowed, allowed)
    assert [kind for kind, _ in _errors(scene)] == ["transient"]


async def test_a_tool_that_takes_too_long_fails_its_call() -> None:
    @tool(timeout_seconds=2)
    async def look_up() -> None:
        await asyncio.Event().wait()

    scene = Scene([tooled(1)], [], setting=Setting(tools=(look_up,)))
    await _run(scene)
    ((_, message),) = _errors(scene)
    assert "2 s" in message
    assert "whether it took effect is unknown" in message
    assert len(scene.events("tool.call")) == 1


async def test_an_idempotent_tool_that_takes_too_long_is_tried_again() -> None:
    @tool(timeout_seconds=2, idempotent=True)
    async def look_up(context: ToolContext) -> str:
        if context.attempt == 1:
            await asyncio.Event().wait()
        return "found"

    scene = Scene([tooled(1)], setting=Setting(tools=(look_up,)))
    await _run(scene)
    assert results_of(scene) == ["found"]
    assert len(scene.events("tool.call")) == 2


async def test_calls_of_a_batch_run_side_by_side_and_their_results_are_stored_by_call() -> None:
    begun: list[int] = []
    all_begun = asyncio.Event()

    @tool
    async def look_up(key: int) -> int:
        begun.append(key)
        if len(begun) == 3:
            all_begun.set()
        await all_begun.wait()
        return key * 10

    scene = Scene(
        [tooled(number, "b", arguments={"key": number}) for number in (1, 2, 3)], setting=Setting(tools=(look_up,))
    )
    ended(await scene.run())
    ends = [(item.step.id, item.result.value) for item in scene.loop.session.history if isinstance(item, EndedStep)]
    assert ends == [(1, 10), (2, 20), (3, 30)]


async def test_a_tool_that_wants_to_be_alone_never_overlaps_with_its_batch() -> None:
    running, most = 0, 0

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1

    @tool(sequential=True)
    async def write() -> None:
        await work()

    @tool
    async def read() -> None:
        await work()

    batch = [tooled(1, "b", name="read"), tooled(2, "b", name="write"), tooled(3, "b", name="read")]
    scene = Scene(batch, setting=Setting(tools=(write, read)))
    ended(await scene.run())
    assert most == 1


async def test_at_most_eight_bodies_run_at_once() -> None:
    running, most = 0, 0

    @tool
    async def look_up() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1

    scene = Scene([tooled(number, "b") for number in range(20)], setting=Setting(tools=(look_up,)))
    ended(await scene.run())
    assert most == 8


async def test_a_result_of_nothing_is_a_result() -> None:
    @tool(inline=True)
    def look_up() -> None:
        return None

    scene = Scene([tooled(1)], setting=Setting(tools=(look_up,)))
    assert ended(await scene.run()).result is None
    assert results_of(scene) == [None]


async def test_a_job_that_nobody_can_be_asked_about_fails_its_call() -> None:
    @tool(inline=True)
    def look_up() -> Accepted:
        return Accepted("job-7")

    scene = Scene([tooled(1)], [], setting=Setting(tools=(look_up,)))
    ended(await scene.run(), "gave_up")
    ((kind, message),) = _errors(scene)
    assert (kind, "job-7" in message) == ("internal", True)


async def test_a_job_that_was_accepted_is_asked_about_until_it_is_over() -> None:
    asked: list[str] = []

    def ask(handle: str) -> PollResult:
        asked.append(handle)
        return PollResult(is_finished=len(asked) == 3)

    @tool(inline=True)
    def look_up() -> Accepted:
        return Accepted("job-7", poll=ask)

    scene = Scene([tooled(1)], setting=Setting(tools=(look_up,)))
    await _run(scene)
    assert asked == ["job-7"] * 3
    assert len(scene.events("tool.result")) == 1


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(3), asyncio.CancelledError(), GeneratorExit()], ids=repr
)
async def test_whatever_a_tool_raises_is_its_calls_error(error: BaseException) -> None:
    @tool
    async def look_up() -> None:
        raise error

    scene = Scene([tooled(1)], [], setting=Setting(tools=(look_up,)))
    ended(await scene.run(), "gave_up")
    assert len(_errors(scene)) == 1
    assert is_sound(scene.loop)


async def test_a_session_whose_driver_was_cancelled_in_a_tool_asks_the_caller_for_the_outcome() -> None:
    @tool
    async def look_up() -> None:
        await asyncio.Event().wait()

    scene = Scene(Plan([tooled(1)]), setting=Setting(tools=(look_up,)))
    work = scene.clock.spawn(scene.run(), name="driver")
    await scene.clock.advance(1)
    work.cancel()
    await scene.clock.advance(10)
    assert work.cancelled()
    called(await scene.loop.continue_(), "1.0")
    ended(await scene.answer({"result": "it was done"}))


async def test_time_that_ran_out_in_a_tool_pauses_after_its_result() -> None:
    @tool
    async def look_up(context: ToolContext) -> str:
        del context
        await scene.clock.sleep(9)
        return "found"

    scene = Scene([tooled(1), plain(2)], setting=Setting(tools=(look_up,), budget=Budget(wall_seconds=5)))
    work = scene.clock.spawn(scene.run(), name="driver")
    await scene.clock.advance(20)
    paused(await work, "budget_exceeded:wall_seconds")
    assert results_of(scene) == ["found"]
    ended(await scene.answer({"extend": {"wall_seconds": 20}}))
