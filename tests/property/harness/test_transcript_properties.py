"""Whatever planners, tools, hooks, policies, people and budgets do: each request to a model carries a valid transcript, which is the fold of the log."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import given, settings, strategies as st

from checkrein.codec.wire import decode_events, encode_event
from checkrein.errors import TransientModelError
from checkrein.harness.hooks import SKIP, HookAbort, HookAnswer, Pause
from checkrein.harness.loop import HarnessLoop
from checkrein.harness.model_planner import ModelPlanner
from checkrein.harness.permission import Decision
from checkrein.harness.planners import Plan, Step
from checkrein.harness.pulls import PullRequest
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import Event, TurnStart
from checkrein.messages import Message, ToolCall, validate_transcript
from checkrein.projections.transcript import TranscriptView, fold_transcript
from checkrein.testing.manual_clock import ManualClock
from checkrein.testing.scripted import ScriptedModel, reply
from checkrein.tools.function import tool
from checkrein.values import JsonObject

TOPICS = ("before_plan", "after_plan", "before_step", "before_tool_call", "after_tool_call", "after_step")
IDS = ("a", "b", "c", "answer-1", "1")
PULLS = 25


class Hasty(ManualClock):
    """A clock on which waiting costs one turn of the event loop."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(min(0.0, seconds))


@tool
async def put(value: int = 0) -> int:
    return value


@tool
async def fail() -> str:
    raise ValueError("no")


def made(call_id: str, kind: str) -> ToolCall:
    if kind == "malformed":
        return ToolCall.parsed(call_id, "put", "[1")
    return ToolCall(call_id, kind, {"value": "wrong"} if kind == "invalid" else {})


@dataclass(frozen=True)
class Turn:
    """What one planning brings: calls of a model, a text, a failure, or the steps of a function."""

    kind: str
    calls: tuple[tuple[str, str], ...]
    is_final: bool


CALLS = st.lists(
    st.tuples(st.sampled_from(IDS), st.sampled_from(("put", "put", "fail", "unknown", "malformed"))),
    min_size=1,
    max_size=3,
    unique_by=lambda item: item[0],
)
TURNS = st.lists(
    st.builds(
        Turn,
        st.sampled_from(("calls", "calls", "calls", "text", "function", "function", "busy", "empty", "cut", "broken")),
        CALLS.map(tuple),
        st.booleans(),
    ),
    max_size=6,
)
DEEDS = st.lists(st.sampled_from(("go", "go", "go", "abort", "skip", "pause", "raise", "change")), max_size=30)
ANSWERS = st.lists(st.sampled_from(("allow", "deny", "result", "error")), min_size=1, max_size=5)


class Story:
    """A session driven through everything that was drawn; what is not drawn goes well."""

    def __init__(
        self, turns: list[Turn], deeds: list[str], answers: list[str], *, has_tools: bool, notes: set[int]
    ) -> None:
        self.turns = list(turns)
        self.deeds = list(deeds)
        self.answers = answers
        self.notes = notes
        self.model = ScriptedModel()
        self.asked: list[tuple[int, tuple[Message, ...]]] = []
        self.loop = HarnessLoop(
            planner=self.function,
            budget=Budget(turns=4, steps=6, replans=2, tool_calls=5),
            tools=[put, fail] if has_tools else None,
            clock=Hasty(),
            policy=self.policy,
        )
        self.current = Turn("text", (), is_final=True)
        self.loop.hooks.on("before_plan", self.prepare)
        for topic in TOPICS:
            self.loop.hooks.on(topic, self.hook)

    def prepare(self, _payload: object) -> None:
        """Choose who plans next, and put into the script what the model says."""
        turn = self.current = self.turns.pop(0) if self.turns else Turn("text", (), is_final=True)
        self.loop.planner = self.function if turn.kind == "function" else ModelPlanner(self.model)
        match turn.kind:
            case "calls":
                self.model.append_response(reply("so", *(made(*item) for item in turn.calls)))
            case "busy":
                self.model.append_response(TransientModelError("busy"))
                self.model.append_response(reply(*(made(*item) for item in turn.calls)))
            case "empty":
                for _ in range(3):
                    self.model.append_response(reply())
            case "cut":
                self.model.append_response(reply("cut", stop_reason="length"))
            case "broken":
                self.model.append_response(ValueError("broken"))
            case _:
                self.model.append_response(reply("the end"))

    def function(self, _goal: str, _history: object, _last_error: object) -> Plan:
        steps = [Step(id=name, description="do", tool_name=made("x", kind).name) for name, kind in self.current.calls]
        return Plan([*steps, Step(id="plain", description="", answer="told")], final=self.current.is_final)

    def hook(self, payload: dict[str, object]) -> HookAnswer:
        deed = self.deeds.pop() if self.deeds else "go"
        if len(self.deeds) in self.notes:
            self.loop.steer(f"note {len(self.deeds)}")
        if deed == "abort":
            raise HookAbort("no")
        if deed == "raise":
            raise ValueError(deed)
        if deed == "change":
            self.change(payload)
        return SKIP if deed == "skip" else Pause("look") if deed == "pause" else None

    def change(self, payload: dict[str, object]) -> None:
        if "result" in payload:
            payload["result"] = "changed"
        steps = payload.get("steps")
        if isinstance(steps, list):
            payload["steps"] = [*steps[1:], Step(id="more", description="put in", tool_name="put")]

    def policy(self, _name: str, _arguments: JsonObject) -> Decision:
        return "ask" if len(self.deeds) % 5 == 4 else "deny" if len(self.deeds) % 7 == 6 else "allow"

    def answer(self, pull: PullRequest, number: int) -> Mapping[str, object]:
        wanted = self.answers[number % len(self.answers)]
        calls = pull.payload.get("calls")
        first = calls[0] if isinstance(calls, list) and calls else None
        named = {"call_id": first["call_id"]} if isinstance(first, dict) else {}
        if pull.kind == "tool":
            return {**named, "error": "lost"} if wanted == "error" else {**named, "result": {"number": number}}
        if pull.reason in {"step_budget", "replan_budget"} or pull.reason.startswith("budget_exceeded"):
            return {"extend": {str(pull.payload["subject"]): 2}}
        return {**named, "decision": "deny" if wanted == "deny" else "allow"}

    async def drive(self) -> None:
        """Answer every pull, and close in the end."""
        out = await self.loop.run("the goal")
        for number in range(PULLS):
            if not isinstance(out, PullRequest):
                return
            out = await self.loop.resume(self.answer(out, number))
        if isinstance(out, PullRequest):
            await self.loop.resume({"close": "enough"})


def views(events: tuple[Event, ...]) -> list[TranscriptView]:
    """Return the transcript after each event."""
    found: list[TranscriptView] = []
    view = TranscriptView()
    for event in events:
        view = fold_transcript((event,), view)
        found.append(view)
    return found


@settings(max_examples=300, deadline=None)
@given(
    turns=TURNS,
    deeds=DEEDS,
    answers=ANSWERS,
    has_tools=st.booleans(),
    notes=st.sets(st.integers(0, 29), max_size=3),
)
def test_every_request_carries_a_valid_transcript_that_the_log_gives_and_that_only_grew(
    turns: list[Turn],
    deeds: list[str],
    answers: list[str],
    has_tools: bool,  # noqa: FBT001  drawn by name
    notes: set[int],
) -> None:
    story = Story(turns, deeds, answers, has_tools=has_tools, notes=notes)
    asyncio.run(story.drive())
    events = tuple(story.loop.events)
    at_plannings: list[tuple[Message, ...]] = []
    before: tuple[Message, ...] = ()
    for event, view in zip(events, views(events), strict=True):
        messages = tuple(view.messages)
        faults = {issue.code for issue in validate_transcript(messages)}
        assert faults <= {"missing_result"}
        assert tuple(view.settled)[: len(before)] == before
        before = tuple(view.settled)
        if isinstance(event.data, TurnStart):
            assert faults == set()
            assert len({message.id for message in messages if message.role != "assistant"}) == sum(
                message.role != "assistant" for message in messages
            )
            accepted = event.data.notes
            assert tuple(message.id for message in messages[len(messages) - len(accepted) :]) == accepted
            at_plannings.append(messages)
    remaining = iter(at_plannings)
    for request in story.model.requests:
        assert any(tuple(request.messages) == messages for messages in remaining)
    stored = decode_events([encode_event(event) for event in events], run_id=events[0].run_id)
    assert tuple(fold_transcript(stored).messages) == tuple(views(events)[-1].messages)
    assert HarnessLoop.replay(stored).session == story.loop.session
