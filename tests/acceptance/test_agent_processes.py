"""An agent and its process: interrupts from tools, loops that are closed with a run active, threads that outlive the loop. Each story is a program of its own.

A program runs in development mode with every warning an error, so a coroutine that nobody awaited or a task that was destroyed shows in what it prints.
"""

import os
import subprocess
import sys
import textwrap
import time

import pytest

HEAD = """
import asyncio, threading, time
from checkrein.agent.agent import Agent, AgentOptions
from checkrein.messages import ToolCall, validate_transcript
from checkrein.testing.scripted import ScriptedModel, reply
from checkrein.tools.function import tool

def call(name, number=1):
    return ToolCall(f"c{number}", name, {})

def again(agent, script):
    agent_model.append_response(reply("again"))
    async def main():
        return await agent.prompt("again")
    assert not agent.is_running
    assert validate_transcript(agent.messages) == ()
    print("then", asyncio.run(main()).status)
"""
SECONDS_AT_MOST = 20


def run(program: str) -> tuple[int, list[str], str]:
    """Run a program; return its exit code, the lines it printed, and what it complained of."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", HEAD + textwrap.dedent(program)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS_AT_MOST, check=False, env=environment
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


TOOLS = {
    "async": "@tool\nasync def bad() -> str:\n    await asyncio.sleep(0)\n    raise ERROR",
    "timed": "@tool(timeout_seconds=30)\nasync def bad() -> str:\n    await asyncio.sleep(0)\n    raise ERROR",
    "inline": "@tool(inline=True)\ndef bad() -> str:\n    raise ERROR",
    "thread": "@tool\ndef bad() -> str:\n    raise ERROR",
}


def with_bad_tool(kind: str, execution: str, error: str) -> tuple[int, list[str], str]:
    """Run a program whose tools raise; it says whether it was interrupted, and how the run ended."""
    return run(
        TOOLS[kind].replace("ERROR", error)
        + f"""
agent_model = ScriptedModel([reply(call("bad", 1), call("bad", 2)), reply("done")])
agent = Agent(model=agent_model, tools=[bad], options=AgentOptions(tool_execution="{execution}"))
streams = []

async def main():
    streams.append(agent.prompt("go"))
    await streams[0]

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
stream, = streams
print(stream.is_done, [event.type for event in stream].count("run.finished"), stream[-1].type)
again(agent, agent_model)
"""
    )


@pytest.mark.parametrize("execution", ["sequential", "parallel"])
@pytest.mark.parametrize("kind", TOOLS)
def test_an_interrupt_in_a_tool_reaches_the_program_and_the_run_has_one_end(kind: str, execution: str) -> None:
    code, lines, complaints = with_bad_tool(kind, execution, "KeyboardInterrupt")
    assert (code, lines, complaints) == (0, ["interrupted", "True 1 run.finished", "then completed"], "")


@pytest.mark.parametrize("execution", ["sequential", "parallel"])
@pytest.mark.parametrize("kind", TOOLS)
def test_a_tool_that_asks_the_process_to_end_is_not_heard(kind: str, execution: str) -> None:
    code, lines, complaints = with_bad_tool(kind, execution, "SystemExit(3)")
    assert (code, lines, complaints) == (0, ["True 1 run.finished", "then completed"], "")


MOMENTS = {
    "before the first step": "streams.append(agent.prompt('go')); asyncio.all_tasks()",
    "after one step": "streams.append(agent.prompt('go')); await asyncio.sleep(0)",
    "in the model": "streams.append(agent.prompt('hold')); await begun.wait()",
    "in a tool": "streams.append(agent.prompt('tool')); await begun.wait()",
    "in a thread": "streams.append(agent.prompt('thread')); await begun.wait()",
    "in parallel": "streams.append(agent.prompt('both')); await begun.wait()",
    "being cancelled": "streams.append(agent.prompt('tool')); await begun.wait(); agent.cancel()",
}
STAGE = """
begun = None
release = threading.Event()

@tool
async def waits() -> str:
    begun.set()
    await asyncio.Event().wait()
    return "never"

@tool
def blocks() -> str:
    loop.call_soon_threadsafe(begun.set)
    release.wait(10)
    return "late"

async def answer(request, signal):
    said = request.messages[-1].content
    if said == "hold":
        begun.set()
        await asyncio.Event().wait()
    calls = {"tool": [call("waits")], "thread": [call("blocks")], "both": [call("waits", 1), call("blocks", 2)]}.get(said)
    yield reply(*calls) if calls else reply("done")

async def hear(event, signal):
    await asyncio.sleep(0)

agent_model = ScriptedModel([answer])
agent = Agent(model=agent_model, tools=[waits, blocks], options=AgentOptions(tool_execution="parallel"))
agent.subscribe(hear)
streams = []
"""


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_loop_that_ends_with_a_run_active_ends_the_run_and_the_agent_works_in_the_next(moment: str) -> None:
    code, lines, complaints = run(
        STAGE
        + f"""
async def main():
    global begun, loop
    begun, loop = asyncio.Event(), asyncio.get_running_loop()
    {MOMENTS[moment]}

asyncio.run(main())
stream, = streams
print(stream.is_done, [event.type for event in stream].count("run.finished"), stream[-1].result.status)
again(agent, agent_model)
release.set()
"""
    )
    assert complaints == ""
    assert lines[0] in {"True 1 cancelled", "True 1 completed"}
    assert lines[1:] == ["then completed"]
    assert code == 0


@pytest.mark.parametrize("moment", [moment for moment in MOMENTS if moment != "being cancelled"])
def test_a_loop_that_is_closed_under_a_run_leaves_an_agent_that_works_in_another(moment: str) -> None:
    code, lines, _ = run(
        STAGE
        + f"""
async def main():
    global begun, loop
    begun, loop = asyncio.Event(), asyncio.get_running_loop()
    {MOMENTS[moment]}
    waiters.append(asyncio.create_task(wait()))
    await asyncio.sleep(0)

async def wait():
    await streams[0]

waiters = []
first = asyncio.new_event_loop()
first.run_until_complete(main())
first.close()
stream, = streams
print(agent.is_running, agent.cancel(), stream.is_done, [event.type for event in stream].count("run.finished"))
again(agent, agent_model)
release.set()
"""
    )
    assert lines == ["False False True 1", "then completed"]
    assert code == 0


def test_a_plain_tool_that_never_ends_does_not_keep_the_process() -> None:
    before = time.perf_counter()
    code, lines, complaints = run(
        """
@tool
def forever() -> str:
    loop.call_soon_threadsafe(begun.set)
    threading.Event().wait()
    return "never"

agent = Agent(model=ScriptedModel([reply(call("forever"))]), tools=[forever], options=AgentOptions(grace_seconds=0.1))

async def main():
    global begun, loop
    begun, loop = asyncio.Event(), asyncio.get_running_loop()
    stream = agent.prompt("go")
    await begun.wait()
    agent.cancel()
    result = await stream
    print(result.status, [item.state for item in result.unadopted_calls])

asyncio.run(main())
"""
    )
    assert (code, lines, complaints) == (0, ["cancelled ['outcome_unknown']"], "")
    assert time.perf_counter() - before < SECONDS_AT_MOST


@pytest.mark.parametrize("kind", ["deaf", "thread"])
def test_run_sync_leaves_behind_what_ignores_its_cancellation(kind: str) -> None:
    code, lines, _ = run(
        f"""
@tool
async def deaf() -> str:
    agent.cancel()
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue

@tool(name="thread")
def in_thread() -> str:
    loop.call_soon_threadsafe(agent.cancel)
    threading.Event().wait()
    return "never"

async def answer(request, signal):
    global loop
    loop = asyncio.get_running_loop()
    yield reply(call("{kind}"))

agent_model = ScriptedModel([answer])
agent = Agent(model=agent_model, tools=[deaf, in_thread], options=AgentOptions(grace_seconds=0.1))
result = agent.run_sync("go")
print(result.status, [item.state for item in result.unadopted_calls], agent.is_running)
agent_model.append_response(reply("again"))
print(agent.run_sync("again").status)
"""
    )
    assert lines == ["cancelled ['outcome_unknown'] False", "completed"]
    assert code == 0


def test_a_thread_that_returns_after_its_loop_was_closed_is_heard_by_nobody_and_breaks_nothing() -> None:
    code, lines, complaints = run(
        """
release, ended = threading.Event(), threading.Event()

@tool
def slow() -> str:
    loop.call_soon_threadsafe(begun.set)
    release.wait(10)
    ended.set()
    return "late"

agent_model = ScriptedModel([reply(call("slow"))])
agent = Agent(model=agent_model, tools=[slow])

async def main():
    global begun, loop, stream
    begun, loop = asyncio.Event(), asyncio.get_running_loop()
    stream = agent.prompt("go")
    await begun.wait()

asyncio.run(main())
events, messages = len(stream), agent.messages
release.set()
ended.wait(10)
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        thread.join(10)
print(len(stream) == events, agent.messages == messages, stream[-1].result.status)
again(agent, agent_model)
"""
    )
    assert (code, lines, complaints) == (0, ["True True cancelled", "then completed"], "")
