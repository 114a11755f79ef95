"""What the tests of sessions that a model plans share: tools, a script, and time that passes by itself."""

from collections.abc import Coroutine, Iterable, Mapping
from typing import TypeVar

from checkrein.harness.loop import HarnessLoop
from checkrein.harness.model_planner import ModelPlanner
from checkrein.harness.permission import Policy, allow_listed
from checkrein.harness.pulls import PullRequest, SessionResult
from checkrein.kernel.budget import Budget
from checkrein.messages import Message, ToolCall, ToolResult, UserMessage, validate_transcript
from checkrein.ports.tool import Tool
from checkrein.testing.manual_clock import ManualClock
from checkrein.testing.scripted import ScriptedModel, ScriptItem
from checkrein.tools.function import tool

T = TypeVar("T")
GOAL = "add it up"


@tool
async def add(a: int, b: int) -> int:
    return a + b


@tool
async def fail(text: str = "no") -> str:
    raise ValueError(text)


def call(call_id: str = "c1", name: str = "add", arguments: Mapping[str, object] | None = None) -> ToolCall:
    return ToolCall(call_id, name, {"a": 1, "b": 2} if arguments is None and name == "add" else arguments or {})


class Scene:
    """One session with a scripted model, driven until it rests; waiting costs no time."""

    def __init__(
        self,
        script: Iterable[ScriptItem],
        *,
        tools: Iterable[Tool] | None = (add, fail),
        budget: Budget | None = None,
        policy: Policy = allow_listed,
    ) -> None:
        self.model = ScriptedModel(script)
        self.clock = ManualClock()
        self.loop = HarnessLoop(
            planner=ModelPlanner(self.model), budget=budget, tools=tools, clock=self.clock, policy=policy
        )

    async def within(self, work: Coroutine[object, object, T]) -> T:
        """Let time pass until the work is done."""
        task = self.clock.spawn(work, name="driving")
        for _ in range(500):
            if task.done():
                break
            await self.clock.advance(1.0)
        return await task

    async def run(self) -> PullRequest | SessionResult:
        return await self.within(self.loop.run(GOAL))

    async def resume(self, answer: Mapping[str, object]) -> PullRequest | SessionResult:
        return await self.within(self.loop.resume(answer))

    def asked(self, number: int) -> tuple[Message, ...]:
        """Return the transcript of a request, which is valid."""
        messages = tuple(self.model.requests[number].messages)
        assert validate_transcript(messages) == ()
        return messages

    def results(self, number: int) -> list[tuple[str, str, bool]]:
        """Return what a request says of calls: id, text, and whether it is an error."""
        found = [message for message in self.asked(number) if isinstance(message, ToolResult)]
        return [(result.tool_call_id, str(result.content), result.is_error) for result in found]

    def said(self, number: int) -> list[str]:
        """Return the user messages of a request."""
        return [str(message.content) for message in self.asked(number) if isinstance(message, UserMessage)]

    def types(self) -> list[str]:
        return [event.type for event in self.loop.events]


def done(out: PullRequest | SessionResult) -> SessionResult:
    assert isinstance(out, SessionResult), out
    return out


def pulled(out: PullRequest | SessionResult, reason: str) -> PullRequest:
    assert isinstance(out, PullRequest), out
    assert out.reason == reason
    return out
