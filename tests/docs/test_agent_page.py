"""docs/agent.md knows every event, end, code and option of an agent, and its table of moments says what `cancel` does."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import get_args

import pytest

from checkrein import Agent, AgentHooks, AgentOptions, ToolCall, tool
from checkrein.errors import TransientModelError
from checkrein.loop.events import (
    AgentEvent,
    Cancelled,
    Completed,
    ErrorCode,
    Failed,
    MaxSteps,
    RunResult,
    UnadoptedCall,
)
from checkrein.loop.options import ModelLimits, Retry
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse, TextDelta
from checkrein.ports.tool import CancelSignal, Tool, ToolContext
from checkrein.testing import ManualClock, ScriptedModel, reply
from checkrein.testing.scripted import ScriptItem
from tests.architecture.tree import PACKAGE
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "agent.md").read_text(encoding="utf-8")
RAISED = re.compile(r'"(AGENT_[A-Z_]+)"')
CALL = reply(ToolCall("c1", "act", {}))


def section(title: str) -> str:
    found = PAGE.partition(f"\n## {title}\n")[2]
    assert found, title
    return found.partition("\n## ")[0]


def rows(title: str) -> dict[str, list[str]]:
    """The rows of a section's tables, by the text of their first cell; of two with one text the first."""
    lines = [line for line in section(title).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {row[0].strip("`"): row[1:] for row in reversed(cells)}


def test_every_event_is_listed_with_all_that_it_brings() -> None:
    table = rows("Events")
    for event in get_args(AgentEvent):
        brought = " ".join(table[event.type])
        fields = [name for name in event.__struct_fields__ if name not in {"sequence", "run_id"}]
        assert [name for name in fields if f"`{name}`" not in brought] == [], event.type
    tree = section("Events").partition("```text")[2].partition("```")[0]
    assert [event.type for event in get_args(AgentEvent) if event.type not in tree] == ["run.warned"]


def test_every_end_is_listed_with_all_that_it_has() -> None:
    table = rows("How a run ends")
    common = {"messages", "run_id", "usage"}
    for end in (Completed, Cancelled, MaxSteps, Failed):
        fields = [name for name in end.__struct_fields__ if name not in common]
        assert [name for name in fields if f"`{name}" not in table[end.status][0]] == []
    states = get_args(UnadoptedCall.__annotations__["state"])
    assert {*states} <= {*table}


def test_every_code_of_a_failed_run_is_listed() -> None:
    assert [code for code in get_args(ErrorCode) if code not in rows("Errors")] == []


def test_every_code_that_an_agent_raises_is_listed() -> None:
    sources = [PACKAGE / "errors.py", *sorted((PACKAGE / "agent").rglob("*.py"))]
    found = {code for source in sources for code in RAISED.findall(source.read_text(encoding="utf-8"))}
    assert len(found) >= 4
    assert found <= {*rows("Errors")}


def test_every_listed_code_exists() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    codes = [code for code in rows("Errors") if code.isupper()]
    assert len(codes) >= 13
    assert [code for code in codes if f'"{code}"' not in source] == []


def test_every_option_and_hook_is_listed() -> None:
    text = section("Options")
    for struct in (AgentOptions, AgentHooks, ModelLimits, Retry):
        assert [name for name in struct.__struct_fields__ if f"`{name}" not in text and f"({name}=" not in text] == []


@dataclass
class Moment:
    """A run that is cancelled in one moment: what is called there, and what came of it."""

    items: list[ScriptItem]
    tools: list[Tool] = field(default_factory=list[Tool])
    hooks: AgentHooks = field(default_factory=AgentHooks)
    retry: Retry = field(default_factory=Retry)
    on_event: str = ""
    at: asyncio.Event = field(default_factory=asyncio.Event)
    after: Callable[[], None] = lambda: None

    async def play(self) -> tuple[bool, RunResult]:
        """Run to the moment, cancel, and return what `cancel` and the run gave."""
        clock = ManualClock()
        options = AgentOptions(clock=clock, retry=self.retry, hooks=self.hooks)
        agent = Agent(model=ScriptedModel(self.items), tools=self.tools, options=options)
        said: list[bool] = []
        if self.on_event:
            agent.subscribe(lambda event, _: said.append(agent.cancel()) if event.type == self.on_event else None)
        stream = agent.prompt("go")
        if not self.on_event:
            await self.at.wait()
            said.append(agent.cancel())
        while not stream.is_done:
            await clock.advance(1.0)
        self.after()
        return said[0], await stream


def held(at: asyncio.Event, *first: str) -> ScriptItem:
    """A response that says something and then nothing."""

    async def stream(request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        for text in first:
            yield TextDelta(request.id, text)
        at.set()
        await asyncio.Event().wait()
        yield reply("never")

    return stream


def acting(act: Callable[[], Awaitable[str]]) -> Tool:
    """An async tool that does that."""

    @tool(name="act")
    async def body() -> str:
        return await act()

    return body


def before_first_chunk() -> Moment:
    at = asyncio.Event()
    return Moment([held(at)], at=at)


def mid_stream() -> Moment:
    at = asyncio.Event()
    return Moment([held(at, "Well, ")], at=at)


def before_tool() -> Moment:
    return Moment([CALL], [acting(never)], on_event="tool.started")


async def never() -> str:
    await asyncio.Event().wait()
    return "never"


def in_tool() -> Moment:
    at = asyncio.Event()

    async def act() -> str:
        at.set()
        return await never()

    return Moment([CALL], [acting(act)], at=at)


def in_tool_that_returns() -> Moment:
    at = asyncio.Event()

    async def act() -> str:
        at.set()
        try:
            return await never()
        except asyncio.CancelledError:
            return "done all the same"

    return Moment([CALL], [acting(act)], at=at)


def in_thread(*, heeds: bool) -> Moment:
    loop, at, go = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    @tool(name="act")
    def body(context: ToolContext) -> str:
        loop.call_soon_threadsafe(at.set)
        while not go.is_set() and not (heeds and context.signal.is_cancelled):
            threading.Event().wait(0.001)
        return "went on"

    return Moment([CALL], [body], at=at, after=go.set)


def in_hook(name: str) -> Moment:
    at = asyncio.Event()

    async def hook(*_: object) -> None:
        at.set()
        await never()

    async def quick() -> str:
        return "done"

    return Moment([CALL], [acting(quick)], hooks=AgentHooks(**{name: hook}), at=at)  # type: ignore[arg-type]  # the name decides


def in_retry() -> Moment:
    return Moment([TransientModelError("busy")], retry=Retry(2), on_event="model.retried")


def at_end() -> Moment:
    return Moment([reply("done")], on_event="run.finished")


MOMENTS: dict[str, list[Callable[[], Moment]]] = {
    "before the first chunk": [before_first_chunk],
    "in the middle of a response": [mid_stream],
    "between the call and the start of its tool": [before_tool],
    "in a tool that can be cancelled": [in_tool, in_tool_that_returns],
    "in a tool that runs in a thread": [lambda: in_thread(heeds=True), lambda: in_thread(heeds=False)],
    "in the hook before a call": [lambda: in_hook("before_tool_call")],
    "in the hook after a call": [lambda: in_hook("after_tool_call")],
    "in another hook": [
        lambda: in_hook("prepare_turn"),
        lambda: in_hook("transform_context"),
        lambda: in_hook("should_stop"),
    ],
    "while a retry is waited for": [in_retry],
    "after the end was chosen": [at_end],
}


@pytest.mark.parametrize("when", MOMENTS)
async def test_cancel_does_what_the_table_says(when: str) -> None:
    returns, _, reported = rows("What `cancel` does")[when]
    states: set[str] = set()
    for make in MOMENTS[when]:
        said, result = await make().play()
        assert f"`{said}`" == returns
        assert (result.status == "cancelled") == said
        calls = result.unadopted_calls if isinstance(result, Cancelled) else ()
        states |= {call.state for call in calls} or {"no calls"}
    if returns == "`True`":
        assert [state for state in states if state not in reported.replace("`", "")] == []
        assert ("no calls" in states) == ("no calls" in reported)


async def test_cancel_does_nothing_while_nothing_runs_or_it_is_being_cancelled() -> None:
    table = rows("What `cancel` does")
    assert table["nothing runs"][0] == table["it is being cancelled"][0] == "`False`"
    at = asyncio.Event()
    agent = Agent(model=ScriptedModel([held(at)]))
    assert agent.cancel() is False
    stream = agent.prompt("go")
    await at.wait()
    assert [agent.cancel(), agent.cancel()] == [True, False]
    assert (await stream).status == "cancelled"


def test_the_table_has_no_moment_that_is_not_tried() -> None:
    assert {*rows("What `cancel` does")} - {"when", "---"} == {*MOMENTS, "nothing runs", "it is being cancelled"}
