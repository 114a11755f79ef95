"""What the tests of the harness loop share: a planner that follows a script, a record of who was called when, and short words for steps.

Nothing here fakes a part of checkrein: the loop, its hooks and its log are the real ones, and the clock is the testing clock.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from checkrein.harness.hooks import TOPICS, HookAnswer, Topic
from checkrein.harness.loop import HarnessLoop
from checkrein.harness.permission import Policy, allow_listed
from checkrein.harness.planners import LastError, Note, PlannerAnswer, Step, StepRecord
from checkrein.harness.pulls import PullRequest, SessionResult
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import Event, ToolResultGiven
from checkrein.kernel.session import fold_session
from checkrein.kernel.session_next import OnFailure
from checkrein.testing.manual_clock import ManualClock
from checkrein.tools.function import FunctionTool
from checkrein.values import as_data

NONE: Mapping[str, object] = {}
Answer = PlannerAnswer | Exception | Callable[[], PlannerAnswer]


def plain(step_id: str | int, batch: str | None = None) -> Step:
    """A step without tool."""
    return Step(id=step_id, description="note it", batch=batch)


def tooled(
    step_id: str | int, batch: str | None = None, *, name: str = "look_up", arguments: Mapping[str, object] = NONE
) -> Step:
    """A step with a tool."""
    return Step(id=step_id, description="look it up", tool_name=name, arguments=arguments, batch=batch)


class Told(msgspec.Struct, frozen=True):
    """What a planner was told once."""

    goal: str
    history: tuple[StepRecord | Note, ...]
    last_error: LastError | None


class Script:
    """A planner that gives one answer after another, the last one for ever, and keeps what it was told."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = answers
        self.told: list[Told] = []

    async def __call__(
        self, goal: str, history: tuple[StepRecord | Note, ...], last_error: LastError | None
    ) -> PlannerAnswer:
        answer = self._answers[min(len(self.told), len(self._answers) - 1)]
        self.told.append(Told(goal, history, last_error))
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a loop may be given, with the defaults of these tests."""

    budget: Budget | None = None
    tools: tuple[FunctionTool, ...] | None = None
    policy: Policy = allow_listed
    on_failure: OnFailure = "replan"


DEFAULT = Setting()


class Scene:
    """A loop with its clock, its planner and the record of what happened."""

    def __init__(self, *answers: Answer, setting: Setting = DEFAULT) -> None:
        self.clock = ManualClock()
        self.script = Script(*answers)
        self.loop = HarnessLoop(
            planner=self.script,
            budget=setting.budget,
            tools=setting.tools,
            clock=self.clock,
            policy=setting.policy,
            on_failure=setting.on_failure,
        )
        self.trace: list[str] = []
        self.payloads: list[tuple[str, dict[str, object]]] = []
        self._seen = 0

    def on(self, topic: Topic, *answers: HookAnswer | Exception) -> list[dict[str, object]]:
        """Register a hook that answers so in turn, and then nothing; return the list of the payloads it gets."""
        left = list(answers)
        payloads: list[dict[str, object]] = []

        def hook(payload: dict[str, object]) -> HookAnswer:
            payloads.append(dict(payload))
            answer = left.pop(0) if left else None
            if isinstance(answer, Exception):
                raise answer
            return answer

        self.loop.hooks.on(topic, hook)
        return payloads

    def watch(self, *topics: Topic) -> None:
        """Record firings, in capitals, between the events."""
        for topic in topics or TOPICS:
            self.loop.hooks.on(topic, self._noting(topic))

    def _noting(self, topic: Topic) -> Callable[[dict[str, object]], None]:
        def note(payload: dict[str, object]) -> None:
            self._catch_up()
            self.trace.append(topic.upper())
            self.payloads.append((topic, dict(payload)))

        return note

    def _catch_up(self) -> None:
        self.trace.extend(event.type for event in self.loop.events.read(self._seen))
        self._seen = len(self.loop.events)

    def traced(self) -> list[str]:
        """Return the record so far and begin a new one."""
        self._catch_up()
        trace, self.trace = self.trace, []
        return trace

    async def run(self) -> PullRequest | SessionResult:
        """Begin."""
        return await self.loop.run("find the sum")

    async def answer(self, answer: Mapping[str, object] | None) -> PullRequest | SessionResult:
        """Answer the pull."""
        return await self.loop.resume(answer)

    def events(self, *types: str) -> tuple[Event, ...]:
        """Return the events of these types, in order."""
        return tuple(event for event in self.loop.events if event.type in types)

    def types(self, offset: int = 0) -> list[str]:
        """Return the types of the events from an offset on."""
        return [event.type for event in self.loop.events.read(offset)]


def paused(pull: PullRequest | SessionResult, reason: str) -> PullRequest:
    """Return the pull, which must be a pause for that reason."""
    assert isinstance(pull, PullRequest), pull
    assert (pull.kind, pull.reason, pull.state) == ("pause", reason, "IDLE")
    return pull


def called(pull: PullRequest | SessionResult, *call_ids: str) -> PullRequest:
    """Return the pull, which must wait for the results of exactly these calls."""
    assert isinstance(pull, PullRequest), pull
    assert (pull.kind, pull.reason, pull.state) == ("tool", "tool_result", "AWAITING_TOOL")
    assert tuple(call["call_id"] for call in calls_of(pull)) == call_ids
    return pull


def calls_of(pull: PullRequest) -> list[dict[str, object]]:
    """Return the calls that a pull names."""
    return msgspec.convert(pull.payload.get("calls", []), list[dict[str, object]])


def ended(result: PullRequest | SessionResult, reason: str = "goal_met") -> SessionResult:
    """Return the result of a session that ended so."""
    assert isinstance(result, SessionResult), result
    assert (result.state, result.reason) == ("DONE", reason)
    return result


def results_of(scene: Scene) -> list[object]:
    """Return what came back for calls, in order."""
    return [
        as_data(event.data.result).value
        for event in scene.events("tool.result")
        if isinstance(event.data, ToolResultGiven)
    ]


def is_sound(loop: HarnessLoop) -> Literal[True]:
    """Check what holds of every log: no gap, one start, one end at most, and a fold that is the session."""
    log = list(loop.events)
    assert [event.offset for event in log] == list(range(len(log)))
    types = [event.type for event in log]
    assert types.count("session.start") == 1
    assert types.count("session.complete") == (1 if loop.state == "DONE" else 0)
    assert "session.complete" not in types[:-1]
    assert fold_session(log) == loop.session
    return True
