"""The tool calls of one response: order, overlap, and what is said of calls that gave no result."""

import asyncio
import threading

import pytest

from checkrein.errors import FatalToolError
from checkrein.loop.batch import MAX_CHARACTERS, MAX_OVERLAP, MAX_PROGRESS_CHARACTERS
from checkrein.loop.events import ToolFinished, ToolProgress, ToolStarted
from checkrein.loop.options import AgentHooks, LoopOptions
from checkrein.messages import Text
from checkrein.ports.tool import Accepted, CancelSignal, Tool, ToolContext, ToolOutput
from checkrein.testing.manual_clock import ManualClock
from checkrein.testing.scripted import reply
from checkrein.tools.function import tool
from tests.unit.loop.scene import (
    Gate,
    add,
    call,
    cancelled,
    completed,
    failed,
    gated,
    limited,
    of,
    results,
    start,
    states,
    turns,
)

PARALLEL = LoopOptions(tool_execution="parallel")


class Meeting:
    """A tool whose calls end only when all of them are there."""

    def __init__(self, size: int, *, sequential: bool = False) -> None:
        self.size = size
        self.inside: list[str] = []
        self.all_there = asyncio.Event()
        self.most = 0
        self.now = 0

        @tool(sequential=sequential)
        async def meet(name: str) -> str:
            self.now += 1
            self.most = max(self.most, self.now)
            self.inside.append(name)
            if len(self.inside) == self.size:
                self.all_there.set()
            if not sequential:
                await self.all_there.wait()
            self.now -= 1
            return name

        self.tool: Tool = meet

    def calls(self) -> list[object]:
        return [call(f"c{number}", "meet", {"name": str(number)}) for number in range(self.size)]


async def test_parallel_calls_overlap_and_their_results_enter_in_call_order() -> None:
    first, second = Gate(), Gate()
    tools = [gated("first", first.wait), gated("second", second.wait)]
    stream = start(
        [reply(call("c1", "first", {}), call("c2", "second", {})), reply("done")], tools=tools, options=PARALLEL
    )
    await first.begun.wait()
    await second.begun.wait()
    second.release.set()
    await turns()
    first.release.set()
    result = await completed(stream)
    assert [event.call_id for event in of(stream, ToolFinished)] == ["c2", "c1"]
    assert [item[0] for item in results(result.messages)] == ["c1", "c2"]


async def test_sequential_calls_never_overlap() -> None:
    gate = Gate()
    stream = start([reply(call("c1", "waits", {}), call("c2")), reply("done")], tools=[gated("waits", gate.wait), add])
    await gate.begun.wait()
    await turns()
    assert [event.call_id for event in of(stream, ToolStarted)] == ["c1"]
    gate.release.set()
    await completed(stream)


async def test_a_tool_declared_sequential_makes_its_whole_batch_sequential() -> None:
    order: list[str] = []

    @tool
    async def other() -> str:
        order.append("other begins")
        await turns()
        order.append("other ends")
        return ""

    @tool(sequential=True)
    async def alone() -> str:
        order.append("alone")
        return ""

    calls = (call("c1", "other", {}), call("c2", "alone", {}), call("c3", "other", {}))
    await completed(start([reply(*calls), reply("done")], tools=[other, alone], options=PARALLEL))
    assert order == ["other begins", "other ends", "alone", "other begins", "other ends"]


async def test_as_many_calls_as_are_allowed_overlap_and_the_rest_wait() -> None:
    begun: list[str] = []
    release = asyncio.Event()

    @tool
    async def waits(name: str) -> str:
        begun.append(name)
        await release.wait()
        return name

    calls = [call(f"c{number}", "waits", {"name": str(number)}) for number in range(MAX_OVERLAP + 5)]
    stream = start([reply(*calls), reply("done")], tools=[waits], options=PARALLEL)
    await turns(20)
    assert len(begun) == MAX_OVERLAP
    release.set()
    result = await completed(stream)
    assert len(results(result.messages)) == MAX_OVERLAP + 5


async def test_plain_functions_run_in_threads_and_inline_ones_on_the_loop() -> None:
    where: dict[str, bool] = {}
    here = threading.get_ident()

    @tool
    def plain() -> str:
        where["plain"] = threading.get_ident() == here
        return ""

    @tool(inline=True)
    def quick() -> str:
        where["quick"] = threading.get_ident() == here
        return ""

    await completed(start([reply(call("c1", "plain", {}), call("c2", "quick", {})), reply("x")], tools=[plain, quick]))
    assert where == {"plain": False, "quick": True}


@pytest.mark.parametrize("execution", ["sequential", "parallel"])
async def test_a_run_makes_no_task_but_its_own_and_one_per_parallel_body(execution: str) -> None:
    most = 0

    @tool
    async def look() -> str:
        nonlocal most
        await turns(2)
        most = max(most, len(asyncio.all_tasks()))
        return ""

    before = len(asyncio.all_tasks())
    options = PARALLEL if execution == "parallel" else LoopOptions()
    calls = [call(f"c{number}", "look", {}) for number in range(3)]
    await completed(start([reply(*calls), reply("done")], tools=[look], options=options))
    assert most - before == (1 if execution == "sequential" else 4)


# What a body is given.


async def test_a_body_is_told_its_call_its_attempt_its_key_and_its_signal() -> None:
    seen: list[ToolContext] = []

    @tool
    async def look(context: ToolContext) -> str:
        seen.append(context)
        return ""

    items = [reply(call("c1", "look", {})), reply(call("c1", "look", {})), reply("done")]
    result = await completed(start(items, tools=[look]))
    assert [(item.call_id, item.attempt, item.signal.is_cancelled) for item in seen] == [("c1", 1, False)] * 2
    assert [item.idempotency_key for item in seen] == [f"{result.run_id}/1/c1", f"{result.run_id}/2/c1"]


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_progress_is_told_while_the_call_is_made_and_dropped_afterwards(kind: str) -> None:
    kept: list[ToolContext] = []

    @tool
    async def on_loop(context: ToolContext) -> str:
        kept.append(context)
        context.progress("half")
        return ""

    @tool
    def in_thread(context: ToolContext) -> str:
        kept.append(context)
        context.progress("half")
        return ""

    made = on_loop if kind == "async" else in_thread
    stream = start([reply(call("c1", made.name, {})), reply("done")], tools=[made])
    async for event in stream:
        if isinstance(event, ToolFinished):
            kept[0].progress("too late")
    await turns()
    assert [(event.call_id, event.text) for event in of(stream, ToolProgress)] == [("c1", "half")]


async def test_progress_is_clean_bounded_text() -> None:
    @tool
    async def tells(context: ToolContext) -> str:
        context.progress("\ud800")
        context.progress("x" * (MAX_PROGRESS_CHARACTERS + 10))
        return ""

    stream = start([reply(call("c1", "tells", {})), reply("done")], tools=[tells])
    await completed(stream)
    first, second = (event.text for event in of(stream, ToolProgress))
    assert first == "\ufffd"
    assert second.startswith("x" * MAX_PROGRESS_CHARACTERS + "… (cut: ")


# What a model is told.


async def test_a_result_is_text_as_it_is_and_anything_else_as_canonical_json() -> None:
    @tool
    async def gives(kind: str) -> object:
        return {"text": "as \u00e9 is", "number": 7, "object": {"b": [1], "a": None}, "nothing": None}[kind]

    kinds = ("text", "number", "object", "nothing")
    calls = [call(kind, "gives", {"kind": kind}) for kind in kinds]
    result = await completed(start([reply(*calls), reply("done")], tools=[gives]))
    assert [item[1] for item in results(result.messages)] == ["as é is", "7", '{"a":null,"b":[1]}', "empty"]


async def test_content_that_a_tool_made_for_the_model_is_what_the_model_gets() -> None:
    @tool
    async def gives() -> ToolOutput:
        return ToolOutput({"rows": 3}, content=(Text("three rows"),))

    result = await completed(start([reply(call("c1", "gives", {})), reply("done")], tools=[gives]))
    assert results(result.messages) == [("c1", (Text("three rows"),), False)]


async def test_the_results_of_a_batch_are_bounded_together_and_cuts_are_marked() -> None:
    @tool
    async def gives(size: int) -> str:
        return "x" * size

    mega = 1024 * 1024 - 200
    calls = [call(f"c{number}", "gives", {"size": mega}) for number in range(5)]
    result = await completed(start([reply(*calls), reply("done")], tools=[gives]))
    texts = [str(item[1]) for item in results(result.messages)]
    assert [len(text) for text in texts[:4]] == [mega] * 4
    assert texts[4].startswith("x" * (MAX_CHARACTERS - 4 * mega) + "… (cut: ")
    assert len(texts[4]) < 1000


async def test_a_job_that_was_accepted_is_asked_for_until_it_has_an_outcome() -> None:
    clock, asked = ManualClock(), list[str]()

    def poll(handle: str) -> str | None:
        asked.append(handle)
        return "finished" if len(asked) == 3 else None

    @tool
    async def begins() -> Accepted:
        return Accepted("job-7", poll=poll, interval_seconds=60.0)

    stream = start([reply(call("c1", "begins", {})), reply("done")], tools=[begins], options=LoopOptions(clock=clock))
    for count in (1, 2):
        while len(asked) < count or not clock.timers:
            await turns(1)
        await clock.advance(60.0)
    result = await completed(stream)
    assert (asked, results(result.messages)) == (["job-7"] * 3, [("c1", "finished", False)])


# Cancelled and failed batches.


async def test_cancellable_bodies_are_cancelled_at_once_and_others_are_waited_for() -> None:
    clock, signal, soft, hard = ManualClock(), CancelSignal(), Gate(), Gate()
    tools = [gated("soft", soft.wait), gated("hard", hard.wait, cancellable=False)]
    options = LoopOptions(tool_execution="parallel", clock=clock, grace_seconds=5.0)
    stream = start([reply(call("c1", "soft", {}), call("c2", "hard", {}))], tools=tools, options=options, signal=signal)
    await soft.begun.wait()
    await hard.begun.wait()
    signal.cancel("enough")
    await turns()
    assert (soft.was_cancelled, hard.was_cancelled, stream.is_done) == (True, False, False)
    hard.release.set()
    result = await cancelled(stream)
    assert states(result) == {"c1": "outcome_unknown", "c2": "finished"}
    assert clock.timers == 0


@pytest.mark.parametrize("execution", ["sequential", "parallel"])
@pytest.mark.parametrize("is_timed", [False, True])
async def test_what_still_runs_after_the_grace_is_left_behind_and_its_outcome_is_unknown(
    execution: str, *, is_timed: bool
) -> None:
    clock, signal, gate = ManualClock(), CancelSignal(), Gate()

    @tool(timeout_seconds=100.0 if is_timed else None)
    async def deaf() -> str:
        return await gate.wait_deaf()

    options = LoopOptions(
        tool_execution="parallel" if execution == "parallel" else "sequential", clock=clock, grace_seconds=5.0
    )
    stream = start(
        [reply(call("c1", "deaf", {}), call("c2", "deaf", {}))], tools=[deaf], options=options, signal=signal
    )
    await gate.begun.wait()
    signal.cancel("enough")
    await clock.advance(4.9)
    assert not stream.is_done
    await clock.advance(0.2)
    result = await cancelled(stream)
    second = "not_started" if execution == "sequential" else "outcome_unknown"
    assert states(result) == {"c1": "outcome_unknown", "c2": second}
    events = len(stream)
    gate.release.set()
    await turns(20)
    assert (len(stream), states(result)["c1"]) == (events, "outcome_unknown")


async def test_a_fatal_error_stops_the_other_calls_of_its_batch() -> None:
    gate, told = Gate(), list[bool]()

    @tool
    async def explodes() -> str:
        await gate.begun.wait()
        msg = "the disk is gone"
        raise FatalToolError(msg)

    @tool(cancellable=False)
    async def asks(context: ToolContext) -> str:
        await context.signal.wait()
        told.append(context.signal.is_cancelled)
        return "stopped by itself"

    tools = [explodes, asks, gated("waits", gate.wait)]
    calls = (call("c1", "waits", {}), call("c2", "asks", {}), call("c3", "explodes", {}))
    stream = start([reply(*calls)], tools=tools, options=PARALLEL)
    result = await failed(stream, "TOOL_EXECUTION_FAILED")
    assert (gate.was_cancelled, told) == (True, [True])
    assert states(result) == {"c1": "outcome_unknown", "c2": "finished", "c3": "failed"}


async def test_a_fatal_error_does_not_wait_beyond_the_grace_for_a_deaf_sibling() -> None:
    clock, gate = ManualClock(), Gate()

    @tool
    async def explodes() -> str:
        await gate.begun.wait()
        msg = "the disk is gone"
        raise FatalToolError(msg)

    options = LoopOptions(tool_execution="parallel", clock=clock, grace_seconds=5.0)
    calls = (call("c1", "deaf", {}), call("c2", "explodes", {}))
    stream = start([reply(*calls)], tools=[gated("deaf", gate.wait_deaf), explodes], options=options)
    await gate.begun.wait()
    await clock.advance(4.9)
    assert not stream.is_done
    await clock.advance(0.2)
    result = await failed(stream, "TOOL_EXECUTION_FAILED")
    assert states(result) == {"c1": "outcome_unknown", "c2": "failed"}
    gate.release.set()
    await turns()


async def test_a_hook_in_a_parallel_call_is_cancelled_with_the_run() -> None:
    signal, gate = CancelSignal(), Gate()

    async def before(_call: object) -> None:
        await gate.wait()

    options = LoopOptions(tool_execution="parallel", hooks=AgentHooks(before_tool_call=before))
    stream = start([reply(call("c1"), call("c2"))], options=options, signal=signal)
    await gate.begun.wait()
    signal.cancel("enough")
    assert states(await cancelled(stream)) == {"c1": "not_started", "c2": "not_started"}


# Repeated calls.


async def test_a_repeated_call_is_warned_of_noted_and_then_stops_the_run_resumably() -> None:
    stream = start([reply(call()) for _ in range(4)], options=LoopOptions(repeat_limit=2))
    result = await limited(stream, "repeated_call")
    answers = [str(item[1]) for item in results(result.messages)]
    assert answers[0] == answers[2] == answers[3] == "3"
    assert answers[1].startswith("3\n\n[this is time 2 in a row that add was called")
    warned = [event for event in stream if event.type == "run.warned"]
    assert [event.code for event in warned] == ["repeated_call"]
    again = await completed(start([reply("done")], messages=result.messages))
    assert again.final_text == "done"


@pytest.mark.parametrize("what", ["result", "arguments", "tool"])
async def test_a_call_that_changes_is_no_repetition(what: str) -> None:
    count = 0

    @tool
    async def steps(_n: int = 0) -> int:
        nonlocal count
        count += what == "result"
        return count

    @tool
    async def other() -> int:
        return 0

    def made(number: int) -> object:
        name = "other" if what == "tool" and number % 2 else "steps"
        return call("c1", name, {"_n": number} if what == "arguments" else {})

    items = [*(reply(made(number)) for number in range(6)), reply("done")]  # type: ignore[arg-type]
    stream = start(items, tools=[steps, other], options=LoopOptions(repeat_limit=2))
    await completed(stream)
    assert "run.warned" not in [event.type for event in stream]


async def test_repetitions_are_not_looked_for_unless_it_is_wanted() -> None:
    await completed(start([*(reply(call()) for _ in range(20)), reply("done")]))


async def test_the_rest_of_a_batch_is_finished_when_a_repetition_stops_the_run() -> None:
    items = [reply(call("c1"), call("c2")), reply(call("c3"), call("c4"), call("c5", "add", {"a": 5, "b": 5}))]
    result = await limited(start(items, options=LoopOptions(repeat_limit=2)), "repeated_call")
    assert [item[0] for item in results(result.messages)] == ["c1", "c2", "c3", "c4", "c5"]


async def test_a_job_that_nobody_can_be_asked_about_is_an_error_result() -> None:
    @tool
    async def begins() -> Accepted:
        return Accepted("job-7")

    result = await completed(start([reply(call("c1", "begins", {})), reply("done")], tools=[begins]))
    (answer,) = results(result.messages)
    assert answer[2]
    assert "job job-7 of begins cannot be asked" in str(answer[1])
