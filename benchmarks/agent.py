"""What does an agent's contract cost, over the loop that one would write by hand?

One turn is one response and its tool calls: text in four pieces and one call, streamed, and an async tool of one line whose argument and result change each turn. The model
is the same for both sides: an async generator over a prepared script. The floor is measured in the same process, in turns with the agent: an async-generator model, a dict of
tools, a list for the transcript, one frozen record per event. Targets: a turn at most 3.5 times the floor, at most 15 % dearer after 200 turns than after 10 and on 4,000
messages than on 10; 200 agents on one loop make 40,000 turns a second; 1,000 idle agents take at most 20 MB more than one; 1,000 runs on one agent leave nothing behind but
their messages. `--quick` does a part of it, once.

Processor time is measured, not the wall's, and the smallest of the repetitions counts: a shared machine disturbs the others. The script reports; it exits 1 only when something
could not be run.
"""

import argparse
import asyncio
import gc
import json
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec

from checkrein import Agent, AssistantMessage, CancelSignal, ModelResponse, Text, TextDelta, ToolCall, UserMessage, tool
from checkrein.messages import Message
from checkrein.ports.model import Chunk, ModelRequest, ToolCallDelta

PIECES = ("I add ", "the next ", "two ", "numbers.")
TURNS = 200
SHORT = 10
LONG_TRANSCRIPT = 4_000
AGENTS = 200
AGENT_TURNS = 20
IDLE = 1_000
RUNS = 1_000

TARGET_RATIO = 3.5
TARGET_GROWTH = 1.15
TARGET_TURNS_PER_SECOND = 40_000
TARGET_IDLE_BYTES = 20_000_000
"""What 1,000 idle agents may take over one."""
TARGET_RUN_GROWTH = 1.5
"""What 1,000 runs may leave behind, over their messages alone."""


class Figure(msgspec.Struct, frozen=True):
    """One line of the table."""

    case: str
    value: float
    unit: str
    floor: float | None = None
    ratio: float | None = None
    target: str = ""
    is_met: bool | None = None


# The floor.


@dataclass(frozen=True)
class Piece:
    """A part of a response as it comes."""

    request_id: str
    delta: str


@dataclass(frozen=True)
class Call:
    """What the model asks for."""

    id: str
    name: str
    arguments: dict[str, int]


@dataclass(frozen=True)
class Said:
    """One message of the transcript."""

    role: str
    content: object


@dataclass(frozen=True)
class Event:
    """Something that happened."""

    sequence: int
    type: str
    data: object


async def floor_model(messages: list[Said], request_id: str, call: Call | None) -> AsyncIterator[Piece | Call | Said]:
    """Stream one response."""
    del messages
    for piece in PIECES:
        yield Piece(request_id, piece)
    if call is not None:
        yield call
    yield Said("assistant", (PIECES, call))


async def add_numbers(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


FLOOR_TOOLS: dict[str, Callable[..., Awaitable[int]]] = {"add": add_numbers}


async def floor_run(script: Sequence[Call | None]) -> int:
    """Run the loop that one would write by hand; return how many events there were."""
    messages = [Said("user", "count")]
    events = [Event(0, "message.accepted", messages[0])]
    for turn, planned in enumerate(script, start=1):
        calls: list[Call] = []
        async for item in floor_model(messages, f"request-{turn}", planned):
            if isinstance(item, Said):
                messages.append(item)
                continue
            if isinstance(item, Call):
                calls.append(item)
            events.append(Event(len(events), "model.chunk", item))
        for call in calls:
            events.append(Event(len(events), "tool.started", call))
            try:
                result = Said("tool", (call.id, str(await FLOOR_TOOLS[call.name](**call.arguments))))
            except Exception as error:  # noqa: BLE001  as one would write it by hand
                result = Said("tool", (call.id, repr(error)))
            messages.append(result)
            events.append(Event(len(events), "tool.finished", result))
    events.append(Event(len(events), "run.finished", messages[-1]))
    return len(events)


def floor_seconds(turns: int) -> float:
    """Return the processor time of one run by hand."""
    script = [Call(f"call-{turn}", "add", {"a": turn, "b": 1}) for turn in range(1, turns)]
    return asyncio.run(timed(lambda: floor_run([*script, None]), expected=7 * turns - 1))


# The agent.


class Script:
    """A model that plays a prepared script: text in pieces and one call per turn, none in the last."""

    def __init__(self, turns: int) -> None:
        text = tuple(Text(piece) for piece in PIECES)
        calls = [ToolCall(f"call-{turn}", "add", {"a": turn, "b": 1}) for turn in range(1, turns)]
        messages = [AssistantMessage(f"message-{call.id}", (*text, call)) for call in calls]
        self._messages = iter([*messages, AssistantMessage("message-last", text)])

    async def stream(self, request: ModelRequest, signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        """Stream one response."""
        del signal
        message = next(self._messages)
        for piece in PIECES:
            yield TextDelta(request.id, piece)
        call = message.content[-1]
        if isinstance(call, ToolCall):
            yield ToolCallDelta(request.id, call)
        yield ModelResponse("response", request.id, message, "tool_call" if isinstance(call, ToolCall) else "stop")


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent_of(turns: int, messages: Sequence[Message] = ()) -> Agent:
    """Return an agent with a script of so many turns."""
    return Agent(model=Script(turns), tools=[add], max_steps=turns, messages=messages)


async def prompted(agent: Agent) -> int:
    """Run an agent to its end; return how many events there were."""
    stream = agent.prompt("count")
    result = await stream
    if result.status != "completed":
        raise AssertionError(result)
    return len(stream)


def agent_seconds(turns: int, messages: Sequence[Message] = ()) -> float:
    """Return the processor time per turn of runs of so many turns, on agents that were made before."""
    agents = [agent_of(turns, messages) for _ in range(TURNS // turns)]

    async def run() -> int:
        return sum([await prompted(agent) for agent in agents])

    return asyncio.run(timed(run, expected=len(agents) * (7 * turns - 1))) / TURNS


async def timed(work: Callable[[], Awaitable[int]], *, expected: int) -> float:
    """Return the processor time of some work, which must have made that many events."""
    begun = time.process_time()
    events = await work()
    seconds = time.process_time() - begun
    if events != expected:
        msg = f"{events} events instead of {expected}"
        raise AssertionError(msg)
    return seconds


def best(measures: Sequence[Callable[[], float]], repetitions: int) -> list[float]:
    """Return the smallest of each measure, taken in turns so that a busy machine disturbs all alike."""
    rounds = [[measure() for measure in measures] for _ in range(repetitions)]
    return [min(once[index] for once in rounds) for index in range(len(measures))]


def turn_figures(repetitions: int) -> list[Figure]:
    """Return what a turn costs, in short and long runs and on a long transcript."""
    history = [UserMessage(f"old-{number}", "said before") for number in range(LONG_TRANSCRIPT - SHORT * 2)]
    floor, long, short, full = best(
        (
            lambda: floor_seconds(TURNS) / TURNS,
            lambda: agent_seconds(TURNS),
            lambda: agent_seconds(SHORT),
            lambda: agent_seconds(SHORT, history),
        ),
        repetitions,
    )
    return [
        against("turn", long * 1e6, "µs", floor * 1e6, TARGET_RATIO),
        against(f"turn of {TURNS}, to one of {SHORT}", long * 1e6, "µs", short * 1e6, TARGET_GROWTH),
        against(f"turn at {LONG_TRANSCRIPT:,} messages, to {SHORT}", full * 1e6, "µs", short * 1e6, TARGET_GROWTH),
    ]


def against(case: str, value: float, unit: str, floor: float, target: float) -> Figure:
    """Return a figure that is held to a part of another one."""
    return Figure(case, value, unit, floor, value / floor, f"≤ {target:g} ×", is_met=value / floor <= target)


# Many agents.


async def crowd() -> float:
    """Return how many turns a second of processor time many agents make together on one loop."""
    agents = [agent_of(AGENT_TURNS) for _ in range(AGENTS)]
    begun = time.process_time()
    await asyncio.gather(*map(prompted, agents))
    return AGENTS * AGENT_TURNS / (time.process_time() - begun)


def crowd_figure(repetitions: int) -> Figure:
    """Return the turns a second of many agents on one loop."""
    most = max(asyncio.run(crowd()) for _ in range(repetitions))
    target = f"≥ {TARGET_TURNS_PER_SECOND:,}/s"
    return Figure(
        f"{AGENTS} agents × {AGENT_TURNS} turns", most, "turns/s", target=target, is_met=most >= TARGET_TURNS_PER_SECOND
    )


# Memory.


def held() -> int:
    """Return the bytes that are in use and not garbage."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def idle_figure() -> Figure:
    """Return what many idle agents take over one."""
    kept = [agent_of(1)]
    before = held()
    kept += [agent_of(1) for _ in range(IDLE)]
    grown = held() - before
    target = f"≤ {TARGET_IDLE_BYTES / 1e6:g} MB"
    return Figure(f"{IDLE:,} idle agents", grown / 1e6, "MB", target=target, is_met=grown <= TARGET_IDLE_BYTES)


async def runs_figure(runs: int) -> Figure:
    """Return what many runs on one agent leave behind, against their messages alone."""
    agent = Agent(model=Echo(), max_steps=1)
    for _ in range(runs // 10):
        await prompted(agent)
    begun = len(agent.messages)
    before = held()
    for _ in range(runs):
        unsubscribe = agent.subscribe(ignore)
        await prompted(agent)
        unsubscribe()
    grown = held() - before
    before = held()
    copies = [
        UserMessage(str(message.id + " "), str(message.content))
        if message.role == "user"
        else AssistantMessage(message.id + " ", (Text("o" * 2),))
        for message in agent.messages[begun:]
    ]
    floor = held() - before
    del copies
    return against(f"{runs:,} runs on one agent", grown / 1e3, "kB", floor / 1e3, TARGET_RUN_GROWTH)


class Echo:
    """A model that says one word."""

    async def stream(self, request: ModelRequest, signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        """Stream one response."""
        del signal
        yield TextDelta(request.id, "ok")
        message = AssistantMessage(f"message-{len(request.messages)}", (Text("o" + "k"),))
        yield ModelResponse("response", request.id, message, "stop")


def ignore(_event: object, _signal: object) -> None:
    """Listen to nothing."""


def memory_figures(runs: int) -> list[Figure]:
    """Return what agents and runs hold in memory."""
    tracemalloc.start()
    try:
        return [idle_figure(), asyncio.run(runs_figure(runs))]
    finally:
        tracemalloc.stop()


def main() -> None:
    """Print a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    is_quick = parser.parse_args().quick
    figures = turn_figures(5 if is_quick else 40)
    figures.append(crowd_figure(1 if is_quick else 5))
    figures += memory_figures(RUNS // 10 if is_quick else RUNS)
    print(f"{'agent':<34}{'value':>12} {'unit':<8}{'floor':>12}{'ratio':>8}   target")
    for figure in figures:
        floor = "" if figure.floor is None else f"{figure.floor:,.2f}"
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        verdict = "met" if figure.is_met else "MISSED"
        print(
            f"{figure.case:<34}{figure.value:>12,.2f} {figure.unit:<8}{floor:>12}{ratio:>8}   {figure.target} {verdict}"
        )
    rows = [msgspec.structs.asdict(figure) for figure in figures]
    print(json.dumps({"benchmark": "agent", "quick": is_quick, "rows": rows}))


if __name__ == "__main__":
    main()
