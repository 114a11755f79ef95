"""A session in a world that misbehaves by a tape: planner, tools, hooks, policy and the caller all do what its numbers say.

The loop is the real one. The world only keeps what it was asked to do, and what the session was at every moment somebody outside was called, so that a test can hold
both against the log afterwards.
"""

from collections import Counter
from collections.abc import Coroutine, Sequence

from checkrein.errors import ResumeError, TransientToolError
from checkrein.harness.hooks import SKIP, TOPICS, HookAbort, HookAnswer, Pause, Topic
from checkrein.harness.loop import HarnessLoop
from checkrein.harness.permission import Decision
from checkrein.harness.planners import LastError, Note, Plan, PlannerAnswer, Step, StepRecord
from checkrein.harness.pulls import PullRequest, SessionResult
from checkrein.kernel.budget import Budget, BudgetState
from checkrein.kernel.events import Event
from checkrein.kernel.session_next import OnFailure
from checkrein.kernel.session_state import SessionState
from checkrein.ports.tool import ToolContext
from checkrein.testing.manual_clock import ManualClock
from checkrein.tools.function import FunctionTool, tool
from checkrein.values import JsonObject

MOST_ANSWERS = 40
IDS: tuple[str | int, ...] = (1, 2, 3, "1", "a")
LIMITS: tuple[int | None, ...] = (0, 1, 3, 6, 12, None, None, None)
POLICIES: tuple[OnFailure, ...] = ("replan", "skip", "abort")


class Tape:
    """Numbers that decide; a tape that is over decides for the first option."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = iter(numbers)
        self.is_over = False

    def number(self, below: int) -> int:
        """Return a number from 0 to `below` - 1."""
        value = next(self._numbers, None)
        if value is None:
            self.is_over = True
            return 0
        return value % below

    def name(self, *names: str) -> str:
        """Return one of the names."""
        return names[self.number(len(names))]


class World:
    """Everything around one session.

    Attributes:
        loop: the session.
        seen: offset, session and budget at every moment something outside was called.
        asked: how often the planner was asked.
        bodies: how often a tool's body ran, by call id.
        refusals: answers that were refused.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self.tape = Tape(numbers)
        self.clock = ManualClock()
        self.seen: list[tuple[int, SessionState, BudgetState]] = []
        self.asked = 0
        self.bodies: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        tape = self.tape
        self.has_tools = bool(tape.number(2))
        self.on_failure: OnFailure = POLICIES[tape.number(3)]
        self.loop = HarnessLoop(
            planner=self.plan,
            budget=Budget(
                turns=LIMITS[-1 - tape.number(8)],
                tool_calls=LIMITS[-1 - tape.number(8)],
                steps=LIMITS[-1 - tape.number(8)],
                replans=LIMITS[-1 - tape.number(8)],
                wall_seconds=(None, 4)[tape.number(2)],
            ),
            tools=self.tools() if self.has_tools else None,
            clock=self.clock,
            policy=self.permit,
            on_failure=self.on_failure,
        )
        self.loop.hooks.pauses_on_failure = tape.number(4) == 1
        for topic in TOPICS:
            for _ in range(tape.number(3)):
                self._register(topic)

    def look(self) -> None:
        """Keep what the session is now."""
        self.seen.append((len(self.loop.events), self.loop.session, self.loop.budget))

    # The planner.

    async def plan(
        self, _goal: str, _history: tuple[StepRecord | Note, ...], _last_error: LastError | None
    ) -> PlannerAnswer:
        """Answer with a plan, with nothing, with something that is no plan, or fail."""
        self.look()
        self.asked += 1
        match self.tape.name("empty", *["plan", "open"] * 5, "raise", "twice"):
            case "empty":
                return []
            case "raise":
                raise RuntimeError(self.asked)
            case "twice":
                return [Step(id=1, description="x"), Step(id=1, description="x")]
            case "open":
                return Plan(self._steps(), final=False)
            case _:
                return self._steps()

    def _steps(self) -> list[Step]:
        count = self.tape.number(5)
        return [self._step(step_id) for step_id in IDS[:count]]

    def _step(self, step_id: str | int) -> Step:
        return Step(
            id=step_id,
            description="step",
            tool_name=(None, "look", "look", "look", "send", "send", None, "nobody")[self.tape.number(8)],
            arguments={"key": self.tape.number(3)} if self.tape.number(9) else {"wrong": 1},
            batch=(None, "x", "x", "y")[self.tape.number(4)],
        )

    # Tools and policy.

    def tools(self) -> tuple[FunctionTool, ...]:
        """Return an idempotent tool and one that is not."""

        async def body(context: ToolContext) -> int:
            self.look()
            self.bodies[context.call_id] += 1
            match self.tape.name("done", "done", "error", "later", "slow"):
                case "error":
                    raise ValueError(context.call_id)
                case "later":
                    raise TransientToolError(context.call_id)
                case "slow":
                    await self.clock.sleep(1)
                case _:
                    pass
            return 5

        @tool(idempotent=True)
        async def look(key: int, context: ToolContext) -> int:
            return key + await body(context)

        @tool(sequential=True)
        async def send(key: int, context: ToolContext) -> int:
            return key + await body(context)

        return look, send

    def permit(self, _name: str, _arguments: JsonObject) -> Decision:
        """Allow mostly."""
        self.look()
        decisions: tuple[Decision, ...] = ("allow", "allow", "allow", "allow", "ask", "ask", "deny")
        return decisions[self.tape.number(7)]

    # Hooks.

    def _register(self, topic: Topic) -> None:
        async def hook(payload: dict[str, object]) -> HookAnswer:
            self.look()
            if self.tape.number(12) == 1:
                (self.loop.steer if self.tape.number(2) else self.loop.follow_up)("a message")
            if topic == "on_pause" and self.tape.number(3):
                payload["resume"] = self.answer(None)
                return None
            if topic == "after_plan" and self.tape.number(4) == 1:
                payload["steps"] = self._steps()
            if topic == "after_tool_call" and self.tape.number(4) == 1:
                payload["result"] = self.tape.number(9)
            return self._deed()

        self.loop.hooks.on(topic, hook)

    def _deed(self) -> HookAnswer:
        match self.tape.name(*["go"] * 20, "abort", "skip", "pause", "raise"):
            case "abort":
                raise HookAbort(str(self.tape.number(3)))
            case "skip":
                return SKIP
            case "pause":
                return Pause("look")
            case "raise":
                raise ValueError(self.tape.number(3))
            case _:
                return None

    # The caller.

    def answer(self, pull: PullRequest | None) -> dict[str, object]:
        """Return an answer, legal or not."""
        call = self._call(pull)
        amount = self.tape.number(4)
        answers: dict[str, dict[str, object]] = {
            "decision": {"decision": "go", **call},
            "deny": {"decision": ("deny", {"deny": "no"})[amount % 2], **call},
            "result": {"result": amount, **call},
            "error": {"error": "broken", **call},
            "extend": {"extend": {"turns": amount, "steps": amount, "tool_calls": amount}},
            "more": {"extend": {"replans": amount, "wall_seconds": amount}},
            "unjson": {"result": float("nan"), **call},
            "both": {"result": 1, "error": "x"},
            "nothing": {},
            "close": {"close": "enough"},
        }
        return answers[
            self.tape.name(
                *("result", "decision", "extend") * 5,
                "more",
                "more",
                "error",
                "deny",
                "unjson",
                "both",
                "nothing",
                "close",
            )
        ]

    def _call(self, pull: PullRequest | None) -> dict[str, object]:
        """Name one of the calls that are open, or one that is not."""
        if pull is None or self.tape.number(6) == 1:
            return {} if self.tape.number(2) else {"call_id": "9.9"}
        calls = pull.payload.get("calls")
        if not isinstance(calls, list) or not calls:
            return {}
        chosen = calls[self.tape.number(len(calls))]
        return {"call_id": chosen["call_id"]} if isinstance(chosen, dict) else {}

    async def live(self) -> SessionResult:
        """Run the session to its end; a caller that has had enough closes it."""
        return await self._to_the_end(await self._during(self.loop.run("goal")))

    def take_over(self, events: Sequence[Event], on_failure: OnFailure) -> None:
        """Stand where another session stood, with hooks of this world."""
        hooks, self.on_failure = self.loop.hooks, on_failure
        self.loop = HarnessLoop.replay(
            events,
            self.plan,
            tools=self.tools() if self.has_tools else None,
            clock=self.clock,
            policy=self.permit,
            on_failure=on_failure,
        )
        self.loop.hooks.pauses_on_failure = hooks.pauses_on_failure
        for topic in TOPICS:
            for _ in range(hooks.count(topic)):
                self._register(topic)

    async def go_on(self) -> SessionResult:
        """Go on from where the session stands."""
        return await self._to_the_end(await self._during(self.loop.continue_()))

    async def _to_the_end(self, pull: PullRequest | SessionResult) -> SessionResult:
        for _ in range(MOST_ANSWERS):
            self.look()
            if isinstance(pull, SessionResult):
                return pull
            if self.tape.is_over:
                break
            before = (len(self.loop.events), self.loop.session)
            try:
                pull = await self._during(self.loop.resume(self.answer(pull)))
            except ResumeError as error:
                self.refusals[error.code] += 1
                assert (len(self.loop.events), self.loop.session) == before
        if isinstance(pull, PullRequest):
            pull = await self._during(self.loop.resume({"close": "enough"}))
        assert isinstance(pull, SessionResult)
        return pull

    async def _during(
        self, work: Coroutine[object, object, PullRequest | SessionResult]
    ) -> PullRequest | SessionResult:
        """Wait for the loop while its clock goes on."""
        task = self.clock.spawn(work, name="driver")
        while not task.done():
            await self.clock.advance(0.25)
        return await task
