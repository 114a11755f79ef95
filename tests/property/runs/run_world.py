"""A durable run in a world that misbehaves by a tape: planner, tools, hooks, policy, store and people all do what its numbers say.

The driver is the real one, on a store in memory. The world only keeps what it was asked to do, and what run and session were at every moment somebody outside was called,
so that a test can hold all of it against the log afterwards.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from checkrein.clock import SystemIds
from checkrein.codec.wire import decode_events
from checkrein.errors import Conflict, LeaseHeld, Rejected, ResumeError, StoreError, TransientToolError
from checkrein.harness.hooks import SKIP, TOPICS, HookAbort, HookAnswer, Hooks, Pause, Topic
from checkrein.harness.permission import Decision
from checkrein.harness.planners import LastError, Note, Plan, PlannerAnswer, Step, StepRecord
from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import Event
from checkrein.kernel.session_next import OnFailure
from checkrein.kernel.session_state import SessionState
from checkrein.kernel.state import RunState, is_claimable
from checkrein.ports.store import RunStore
from checkrein.ports.tool import Accepted, ToolContext, ToolOutput
from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.runs.calls import CallRunner
from checkrein.runs.children import Children
from checkrein.runs.commands import Commands, Reconciled
from checkrein.runs.driver import drive
from checkrein.runs.held import HeldRun, LeaseLost
from checkrein.runs.journal import Journal
from checkrein.runs.lease import LeaseKeeper, claim, our_identity
from checkrein.runs.task import Task
from checkrein.runs.workspace import prepare_folder
from checkrein.store import MemoryStore
from checkrein.testing import CrashPoint, ManualClock
from checkrein.tools.function import FunctionTool, tool
from checkrein.tools.outcomes import RetryPolicy
from checkrein.values import JsonData, JsonObject
from tests.property.harness.session_world import Tape

__all__ = ["RunWorld"]

T = TypeVar("T")
LEASE_SECONDS = 5.0
MOST_ROUNDS = 30
MOST_TICKS = 4_000
IDS: tuple[str | int, ...] = (1, 2, "a", "b")
LIMITS: tuple[int | None, ...] = (1, 3, 6, 12, None, None)
POLICIES: tuple[OnFailure, ...] = ("replan", "replan", "skip", "abort")
STORE_CALLS = tuple(
    f"{when} {what}" for when in ("before", "after") for what in ("append", "claim", "read", "release", "get")
)


class Reported:
    """A check of what was written last, which must not be a one."""

    kind = "reported"
    version = "1"
    subject = "report"
    title = "the report is right"

    async def measure(self, context: CheckContext) -> Measurement:
        text = (context.folder / "report").read_text(encoding="utf-8")
        return Measurement(passed=text != "1", text=text, code="is_one")


class RunWorld:
    """Everything around one run.

    Attributes:
        run_id: the run.
        seen: version, session and state at every moment something outside was called.
        bodies: how often a tool's body ran, by tool, call id and attempt.
    """

    def __init__(self, numbers: Sequence[int], folder: Path) -> None:
        self.tape = Tape(numbers)
        self.clock = ManualClock()
        self.store: RunStore = MemoryStore(clock=self.clock)
        self.run_id = ""
        self.seen: list[tuple[int, SessionState, RunState]] = []
        self.bodies: Counter[tuple[str, str, int]] = Counter()
        self._held: HeldRun | None = None
        self._folder = folder
        self._counts = [self.tape.number(3) for _ in TOPICS]
        self._pauses_on_failure = self.tape.number(4) == 1
        self._task = self._made()

    def _made(self) -> Task:
        tape = self.tape
        return Task(
            name="world",
            goal="a report",
            planner=self.plan,
            tools=self._tools(),
            checks=[Reported()],
            budget=Budget(
                turns=LIMITS[-1 - tape.number(6)],
                tool_calls=LIMITS[-1 - tape.number(6)],
                steps=LIMITS[-1 - tape.number(6)],
                replans=LIMITS[-1 - tape.number(6)],
                wall_seconds=(None, 4)[tape.number(2)],
                repairs=tape.number(3),
            ),
            workspace=self._folder,
            policy=self.permit,
            hooks=self._install,
            on_failure=POLICIES[tape.number(4)],
        )

    def look(self) -> None:
        """Keep what run and session are now."""
        if self._held is not None:
            self.seen.append((self._held.state.version, self._held.session, self._held.state))

    # The planner.

    async def plan(
        self, _goal: str, _history: tuple[StepRecord | Note, ...], _last_error: LastError | None
    ) -> PlannerAnswer:
        """Answer with a plan, with nothing, with something that is no plan, or fail."""
        self.look()
        match self.tape.name("empty", *["plan", "report", "open"] * 4, "raise", "twice"):
            case "empty":
                return []
            case "raise":
                raise RuntimeError(str(self.tape.number(3)))
            case "twice":
                return [Step(id=1, description="x"), Step(id=1, description="x")]
            case "open":
                return Plan(self._steps(), final=False)
            case "report":
                return [*self._steps(), self._report()]
            case _:
                return self._steps()

    def _steps(self) -> list[Step]:
        return [self._step(step_id) for step_id in IDS[: self.tape.number(5)]]

    def _report(self) -> Step:
        text = str(self.tape.number(3))
        return Step(id="report", description="write", tool_name="report", arguments={"text": text})

    def _step(self, step_id: str | int) -> Step:
        return Step(
            id=step_id,
            description="step",
            tool_name=(None, "look", "look", "send", "send", "probe", "order", "nobody")[self.tape.number(8)],
            arguments={"key": self.tape.number(3)} if self.tape.number(9) else {"wrong": 1},
            batch=(None, "x", "x", "y")[self.tape.number(4)],
        )

    # Tools and policy.

    def _tools(self) -> tuple[FunctionTool, ...]:
        """Return tools that may be made again, must not, can be asked about, and only accept."""

        async def body(name: str, context: ToolContext) -> int:
            self.look()
            self.bodies[name, context.call_id, context.attempt] += 1
            match self.tape.name("done", "done", "done", "error", "later", "slow"):
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
            return key + await body("look", context)

        @tool(sequential=True)
        async def send(key: int, context: ToolContext) -> int:
            return key + await body("send", context)

        @tool(reconcile=self._reconcile)
        async def probe(key: int, context: ToolContext) -> int:
            return key + await body("probe", context)

        @tool(poll=self._poll, reconcile=self._reconcile)
        async def order(key: int, context: ToolContext) -> Accepted:
            await body("order", context)
            return Accepted(f"job-{key}", interval_seconds=0.5)

        @tool(idempotent=True, inline=True)
        def report(text: str, context: ToolContext) -> ToolOutput:
            self.look()
            (context.folder() / "report").write_text(text, encoding="utf-8")
            return ToolOutput(text, artifacts=("report",))

        return look, send, probe, order, report

    def _poll(self, handle: str) -> str | None:
        return handle if self.tape.number(3) or self.tape.is_over else None

    def _reconcile(self) -> str:
        return self.tape.name("done", "failed", "unknown")

    def permit(self, _name: str, _arguments: JsonObject) -> Decision:
        """Allow mostly."""
        self.look()
        decisions: tuple[Decision, ...] = ("allow", "allow", "allow", "allow", "ask", "ask", "deny")
        return decisions[self.tape.number(7)]

    # Hooks.

    def _install(self, hooks: Hooks) -> None:
        hooks.pauses_on_failure = self._pauses_on_failure
        for topic, count in zip(TOPICS, self._counts, strict=True):
            for _ in range(count):
                hooks.on(topic, self._hook(topic))

    def _hook(self, topic: Topic) -> Callable[[dict[str, object]], Awaitable[HookAnswer]]:
        async def hook(payload: dict[str, object]) -> HookAnswer:
            self.look()
            if self.tape.number(12) == 1:
                await self._say()
            if topic == "on_pause" and self.tape.number(3):
                payload["resume"] = self._answer(())
                return None
            if topic == "after_plan" and self.tape.number(4) == 1:
                payload["steps"] = [*self._steps(), self._report()]
            if topic == "before_tool_call" and self.tape.number(6) == 1:
                payload["call"] = {"arguments": {"key": 1}}
            if topic == "after_tool_call" and self.tape.number(4) == 1:
                payload["result"] = self.tape.number(9)
            return self._deed()

        return hook

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

    # People.

    def _commands(self) -> Commands:
        return Commands(self.store, clock=self.clock, ids=SystemIds(), actor="user:world")

    async def _say(self) -> None:
        """Say something to the run from outside, whatever it does."""
        commands = self._commands()
        with suppress(Rejected):
            match self.tape.name("steer", "steer", "follow up", "follow up", "extend", "cancel"):
                case "steer":
                    await commands.steer(self.run_id, "a message")
                case "follow up":
                    await commands.follow_up(self.run_id, "another message")
                case "extend":
                    await commands.extend(self.run_id, Amounts(turns=1, tool_calls=1))
                case _:
                    await commands.cancel(self.run_id)

    def _answer(self, calls: Sequence[str]) -> Mapping[str, object]:
        call: dict[str, object] = {"call_id": calls[self.tape.number(len(calls))]} if calls else {}
        count = self.tape.number(4)
        answers: dict[str, dict[str, object]] = {
            "decision": {"decision": "go", **call},
            "deny": {"decision": ("deny", {"deny": "no"})[count % 2], **call},
            "result": {"result": count, **call},
            "error": {"error": "broken", **call},
            "extend": {"extend": {"turns": count, "steps": count, "tool_calls": count}},
            "more": {"extend": {"replans": count, "wall_seconds": count}},
            "unjson": {"result": float("nan"), **call},
            "nothing": {},
            "unknown": {"decision": "go", "call_id": "9.9"},
            "close": {"close": "enough"},
        }
        often = ("result", "decision", "extend") * 5
        return answers[self.tape.name(*often, "more", "error", "deny", "unjson", "nothing", "unknown", "close")]

    async def _answered(self, state: RunState) -> None:
        """Answer one thing, rightly or not; what is refused changes nothing."""
        commands = self._commands()
        version = state.version
        cause = state.causes[self.tape.number(len(state.causes))]
        try:
            if cause.kind == "reconcile":
                found = Reconciled(("done", "failed", "unknown")[self.tape.number(3)], JsonData(3))
                await commands.unblock(self.run_id, cause.id, reconciled=found)
            elif self.tape.number(5) == 1:
                await commands.unblock(self.run_id, cause.id, answer=JsonData(("allow", "deny")[self.tape.number(2)]))
            else:
                await commands.respond(
                    self.run_id, self._answer([item.call_id for item in state.causes if item.call_id])
                )
        except (ResumeError, Rejected):
            assert (await self.store.get(self.run_id)).version == version

    # The run.

    async def live(self) -> None:
        """Bring the run to its end; people who have had enough cancel it and give every call up."""
        self.run_id = await self._commands().submit(self._task)
        for _ in range(MOST_ROUNDS):
            state = await self.state()
            if state.phase.is_terminal or self.tape.is_over:
                break
            if is_claimable(state):
                await self._during(self._advance())
            else:
                await self._answered(state)
        await self._give_up()

    async def _give_up(self) -> None:
        commands = self._commands()
        state = await self.state()
        if not state.phase.is_terminal:
            state = await commands.cancel(self.run_id)
        for call in state.open_calls:
            await commands.unblock(self.run_id, f"reconcile:{call.call_id}", reconciled=Reconciled("unknown"))

    async def _advance(self) -> None:
        """Advance the run by a new worker, whose store fails at the call that the tape says."""
        number = self.tape.number(40)
        store = CrashPoint(number if self.tape.number(2) else 0, among=STORE_CALLS, deed=_fail).store(self.store)
        try:
            await self._held_once(store)
        except (StoreError, LeaseLost, LeaseHeld, Conflict):
            await self.clock.advance(LEASE_SECONDS + 1)
        finally:
            self._held = None

    async def _held_once(self, store: RunStore) -> None:
        ids = SystemIds()
        journal = await Journal.open(store, self.run_id, clock=self.clock, ids=ids)
        claimed_at = self.clock.monotonic()
        epoch = await claim(journal, owner=our_identity("world", ids.new_id()), seconds=LEASE_SECONDS)
        keeper = LeaseKeeper(journal, epoch=epoch, seconds=LEASE_SECONDS, clock=self.clock, claimed_at=claimed_at)
        try:
            folder = await prepare_folder(self._task.workspace, journal.state)
            held = self._held = HeldRun(
                journal, task=self._task, keeper=keeper, folder=folder, actor="worker:world", clock=self.clock
            )
            children = Children(held, commands=self._commands(), lend=lambda _row: None)
            await drive(
                held, CallRunner(held, children=children, retry=RetryPolicy(attempts=2)), must_stop=lambda: False
            )
        finally:
            keeper.stop()
        await keeper.release()

    async def _during(self, work: Coroutine[object, object, T]) -> T:
        """Wait while the clock goes on."""
        task = self.clock.spawn(work, name="worker")
        for _ in range(MOST_TICKS):
            if task.done():
                return await task
            await self.clock.advance(0.25)
        task.cancel()
        msg = f"the run never rests: {[event.type for event in (await self.log())[-40:]]}"
        raise AssertionError(msg)

    async def log(self) -> list[Event]:
        """Return the run's events."""
        return decode_events(await self.store.read(self.run_id), run_id=self.run_id)

    async def state(self) -> RunState:
        """Return the run's state as the store has it."""
        journal = await Journal.open(self.store, self.run_id, clock=self.clock, ids=SystemIds())
        return journal.state


def _fail(name: str) -> None:
    msg = f"{name} failed on purpose"
    raise StoreError(msg)
