"""One drawn story of an agent: who speaks, waits, fails, cancels and comes back, in an order that a seed decides.

The world plays everybody around a real agent: the caller, the model, the tools, the hooks, the listeners. It draws every step of the event loop, and after each it holds
the agent against a ledger of its own. What user code sees wrong is kept as a fault, because an agent isolates what its callers raise.
"""

import asyncio
import random  # noqa: TID251  seeded, so that a story can be told again
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from checkrein.agent.agent import Agent, AgentOptions
from checkrein.errors import AgentBusyError, AgentMessageLimitError, AgentStateError
from checkrein.loop.events import AgentEvent, Cancelled, Completed, Failed, MaxSteps, MessageAccepted, RunResult
from checkrein.loop.options import ModelLimits, Retry
from checkrein.messages import AssistantMessage, UserMessage, validate_transcript
from checkrein.streams import EventStream
from checkrein.testing.scripted import ScriptedModel
from tests.eager import eager_task_factory
from tests.exploration.agent_company import GRACE_SECONDS, RUN, Company, Ear
from tests.exploration.drawn_loop import DrawnClock, DrawnLoop
from tests.property.agent.ledger import Caps, Ledger, Queue

if TYPE_CHECKING:
    from checkrein.agent.inbox import QueueMode

STEPS_AT_MOST = 20_000


class Ids:
    """Run ids in order, so that a story has the same names again."""

    def __init__(self) -> None:
        self._number = 0

    def new_id(self) -> str:
        self._number += 1
        return f"run{self._number}"


@dataclass
class Run:
    """What the world knows of one run."""

    stream: EventStream[AgentEvent, RunResult]
    began_with: int
    is_cancelled: bool = False
    is_finishing: bool = False
    is_over: bool = False
    cancelled_at: float = 0.0
    read: int = 0
    requests: list[str] = field(default_factory=list[str])
    came: list[UserMessage] = field(default_factory=list[UserMessage])
    came_before_request: int = 0
    bodies: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def may_begin(self) -> bool:
        """Whether anything of this run may still begin."""
        return not (self.is_cancelled or self.is_finishing or self.stream.is_done)


class World:
    """One story.

    Args:
        seed: decides everything.
        moves: how many moves the caller makes at most; None lets the seed decide.
    """

    def __init__(self, seed: int, *, moves: int | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(seed)  # noqa: S311  a story, no secret
        self.is_small = self.rng.random() < 0.5
        drawn = self.rng.randrange(3, 26)
        self.moves = drawn if moves is None else moves
        self.faults: list[str] = []
        self.log: deque[str] = deque(maxlen=400)
        self.story = 0
        self.counts: dict[str, int] = {}
        self.loop = DrawnLoop()
        self.loop.turn = self.turn
        self.loop.set_exception_handler(lambda _loop, context: self.faults.append(f"the loop was told: {context}"))
        if self.rng.random() < 0.2:
            self.loop.set_task_factory(eager_task_factory())
        self.haste = self.rng.choice((0.05, 0.2, 0.5))
        self.order = self.rng.choice((0.0, 0.0, 0.5, 0.9))
        self.gates: list[asyncio.Future[None]] = []
        self.stubborn: list[asyncio.Future[None]] = []
        self.runs: list[Run] = []
        self.requests: dict[str, tuple[str, EventStream[AgentEvent, RunResult]]] = {}
        self.waiters: list[asyncio.Task[None]] = []
        self.is_calling = False
        self.is_calm = False
        self.steps = 0
        self.texts = 0
        self.listener_failures = 0
        self.ears: list[tuple[Ear, Callable[[], None]]] = []
        self.ledger = Ledger(self._small_caps() if self.is_small else Caps())
        self.company = Company(self)
        self.agent = self._agent()
        for _ in range(self.rng.choice((0, 0, 1, 2, 3))):
            self.subscribe()

    def _small_caps(self) -> Caps:
        """Return limits that a story comes to."""
        rng = self.rng
        return Caps(messages=rng.randrange(4, 20), queued=rng.choice((3, 9)), blocks=rng.choice((1, 3, 3, 4)))

    def _agent(self) -> Agent:
        rng = self.rng
        modes: tuple[QueueMode, ...] = ("one-at-a-time", "one-at-a-time", "all")
        self.modes: dict[Queue, QueueMode] = {"steering": rng.choice(modes), "follow_up": rng.choice(modes)}
        self.max_steps = rng.choice((1, 2, 3, 5))
        options = AgentOptions(
            steering_mode=self.modes["steering"],
            follow_up_mode=self.modes["follow_up"],
            tool_execution=rng.choice(("sequential", "parallel")),
            limits=ModelLimits(content_blocks=self.ledger.caps.blocks),
            retry=rng.choice((Retry(), Retry(attempts=3, first_seconds=4.0, max_seconds=1.0))),
            idle_timeout_seconds=rng.choice((None, None, None, 60.0)),
            grace_seconds=GRACE_SECONDS,
            repeat_limit=rng.choice((None, None, 1, 2)),
            ids=Ids(),
            clock=DrawnClock(self.loop),
            hooks=self.company.hooks(),
        )
        return Agent(
            model=ScriptedModel([self.company.answer] * 500),
            tools=self.company.tools,
            max_steps=self.max_steps,
            options=options,
        )

    # The loop's side.

    def play(self) -> None:
        """Tell the story to its end, then once more say something and be answered.

        Raises:
            AssertionError: something is not as it should be.
        """
        try:
            self.loop.run_forever()
            self.must(self.open_run() is None, "the run never ended")
            left = [task.get_name() for task in self.loop.unfinished]
            self.must(not left, f"tasks are left: {left}")
            self.is_calm = True
            self.clear_queue()
            if self.ledger.fits_prompt():
                self.loop.call_soon(self.prompt)
                self.loop.run_forever()
                self.must(self.runs[-1].stream.is_done, "a calm run never ended")
            self._check()
        finally:
            self._leave()

    def _leave(self) -> None:
        """End whatever a story that failed left waiting, and close the loop.

        A task that is still held when the interpreter ends is destroyed there, after the part of asyncio that knows how to show it: a handler that then shows it
        takes the process down with SIGSEGV, long after every test has passed.
        """
        try:
            if self.loop.unfinished:
                self.is_calm = True
                self.loop.turn = self._wind_down
                self.loop.call_soon(self.agent.cancel, "the story is over")
                self.loop.run_forever()
        finally:
            self.loop.set_exception_handler(_say_nothing)
            self.loop.close()

    def _wind_down(self) -> None:
        """Let one thing of a story that failed happen, without looking; who waits for nothing that could come is cancelled.

        Raises:
            AssertionError: somebody waits for what never comes.
        """
        loop, self.steps = self.loop, self.steps + 1
        self.gates, self.stubborn = [*self.gates, *self.stubborn], []
        if self.steps > 2 * STEPS_AT_MOST:
            msg = f"seed {self.seed}: tasks cannot be ended: {loop.unfinished}"
            raise AssertionError(msg)
        if loop.ready:
            loop.step(0)
        elif not loop.unfinished:
            loop.stop()
        elif self.open_gate():
            pass
        elif loop.has_timer:
            loop.fire()
        else:
            for task in loop.unfinished:
                task.cancel()

    def turn(self) -> None:
        """Let one thing happen, drawn, and look at everything after it."""
        loop, draw = self.loop, self.rng.random()
        self.steps += 1
        self.must(self.steps < STEPS_AT_MOST, "the story never ends")
        if self.moves > 0 and (not loop.ready or draw < self.haste):
            self.moves -= 1
            self._move()
        elif loop.ready and not (draw > 0.98 and loop.has_timer and not loop.is_due):
            index = 0 if draw < self.order else self.rng.randrange(len(loop.ready))
            self.note(loop.step(index))
        elif loop.has_timer and (draw < 0.3 or not any(not gate.done() for gate in self.gates)):
            self.note("timer")
            loop.fire()
        elif not self.open_gate() and not self._give_in():
            loop.stop()
        self._check()

    def note(self, what: str) -> None:
        """Add to the story."""
        self.story = hash((self.story, _number_of(what)))
        self.log.append(what)

    def count(self, what: str) -> None:
        """Count a kind of thing that happened."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def must(self, condition: object, text: str) -> None:
        """Keep a fault, for the next look at everything."""
        if not condition:
            self.faults.append(text)

    def open_gate(self) -> bool:
        """Let something that waits go on."""
        self.gates = [gate for gate in self.gates if not gate.done()]
        if not self.gates:
            return False
        self.note("gate")
        self.gates.pop(self.rng.randrange(len(self.gates))).set_result(None)
        return True

    def _give_in(self) -> bool:
        """Let one who ignored a cancellation go on, now that nothing else is left to happen: no run may still wait for him."""
        run = self.open_run()
        self.must(run is None or not run.is_cancelled, "a cancelled run waits for one who ignores it")
        self.gates, self.stubborn = self.stubborn, []
        return self.open_gate()

    # The caller's side.

    def _move(self) -> None:
        """Do something that a caller can do, drawn."""
        draw = self.rng.random()
        if self.open_run() is None and draw < 0.5:
            self.prompt()
        elif draw < 0.5 and self.open_gate():
            pass
        elif draw < 0.92:
            self.reenter()
        elif draw < 0.97 or not self.waiters:
            self.wait_somewhere()
        else:
            self.note("cancel waiter")
            self.waiters.pop(self.rng.randrange(len(self.waiters))).cancel()

    def reenter(self) -> None:
        """Call the agent, from wherever this is."""
        self.rng.choice(
            (
                self.steer,
                self.steer,
                self.steer,
                self.follow_up,
                self.follow_up,
                self.prompt,
                self.continue_,
                self.cancel,
                self.cancel,
                self.clear_queue,
                self.subscribe,
                self.unsubscribe,
            )
        )()

    def open_run(self) -> Run | None:
        """Return the run that owns the transcript."""
        return self.runs[-1] if self.runs and not self.runs[-1].stream.is_done else None

    def _text(self, kind: str) -> str:
        self.texts += 1
        return f"{kind}{self.texts}"

    def prompt(self) -> None:
        request_id = self.rng.choice((None, None, None, "r1", "r2"))
        known = self.requests.get(request_id or "")
        if known is not None:
            self._ask_again(request_id or "", known)
            return
        text = self._text("p")
        self._begin("prompt", self.ledger.fits_prompt, lambda: self.agent.prompt(text, request_id=request_id))
        if request_id and self.runs and self.runs[-1].stream not in [stream for _, stream in self.requests.values()]:
            last = self.runs[-1]
            if last.came and last.came[0].content == text:
                self.requests[request_id] = (text, last.stream)

    def _ask_again(self, request_id: str, known: tuple[str, EventStream[AgentEvent, RunResult]]) -> None:
        self.note("same request")
        self.must(self.agent.prompt(known[0], request_id=request_id) is known[1], "another stream for one request")
        try:
            self.agent.prompt("something else", request_id=request_id)
        except ValueError:
            return
        self.must(condition=False, text="a request id was taken for another text")

    def continue_(self) -> None:
        self._begin("continue", self.ledger.fits_continue, self.agent.continue_)

    def _begin(
        self, what: str, fits: Callable[[], bool], call: Callable[[], EventStream[AgentEvent, RunResult]]
    ) -> None:
        self.absorb()
        busy = self.open_run() is not None
        may = what == "prompt" or self.ledger.can_continue()
        will_fit = fits()
        begun, token = len(self.ledger.transcript), RUN.set(len(self.runs))
        was_calling, self.is_calling = self.is_calling, True
        try:
            stream = call()
        except AgentBusyError:
            self.note(f"{what} busy")
            self.must(busy, f"{what} found the agent busy, and nothing runs")
        except AgentStateError:
            self.must(not busy and not may, f"{what} was refused, and there is something to go on from")
        except AgentMessageLimitError:
            self.count("refused for room")
            self.must(not busy and may and not will_fit, f"{what} was refused, and there is room")
        else:
            self.note(what)
            self.must(not busy, f"{what} began beside a run")
            self.must(may and will_fit, f"{what} began, and there is nothing to go on from, or no room")
            self.must(not len(stream), f"{what} had events before it returned")
            self.runs.append(Run(stream, begun))
            self.absorb()
        finally:
            self.is_calling = was_calling
            RUN.reset(token)

    def steer(self) -> None:
        self._queue("steering", self.agent.steer)

    def follow_up(self) -> None:
        self._queue("follow_up", self.agent.follow_up)

    def _queue(self, queue: Queue, call: Callable[[str], UserMessage]) -> None:
        self.absorb()
        run = self.open_run()
        is_active = run is not None and not run.is_cancelled and not run.is_finishing
        fits = self.ledger.fits_queue(queue, is_active=is_active)
        try:
            message = call(self._text(queue))
        except AgentMessageLimitError:
            self.count("refused for room")
            self.must(not fits, f"{queue} was refused, and there is room")
        else:
            self.note(queue)
            self.must(fits, f"{queue} was taken, and there is no room")
            self.ledger.push(queue, message)

    def clear_queue(self) -> None:
        self.absorb()
        removed = self.agent.clear_queue()
        self.note("clear")
        self.must((removed.steering, removed.follow_up) == self.ledger.clear(), "another queue was handed back")

    def cancel(self) -> None:
        expected = self.expect_cancel()
        self.note("cancel")
        self.must(self.agent.cancel("drawn") == expected, f"cancel did not return {expected}")

    def expect_cancel(self) -> bool:
        """Note that a cancellation is asked for; return whether it is the one that counts."""
        run = self.open_run()
        if run is None or run.is_cancelled or run.is_finishing:
            return False
        run.is_cancelled, run.cancelled_at = True, self.loop.now
        return True

    def subscribe(self) -> None:
        ear = Ear(self)
        self.ears.append((ear, self.agent.subscribe(ear.hear)))

    def unsubscribe(self) -> None:
        if self.ears:
            ear, forget = self.ears.pop(self.rng.randrange(len(self.ears)))
            ear.is_subscribed = False
            forget()
            forget()

    def wait_somewhere(self) -> None:
        self.waiters.append(self.loop.create_task(self.company.later(), name="waiter"))

    # Looking at everything.

    def absorb(self) -> None:
        """Go on to the transcript of now."""
        messages = self.agent.messages
        if len(messages) == len(self.ledger.transcript):
            return
        issues = validate_transcript(messages)
        self.must(not issues, f"the transcript is invalid: {issues}")
        for source, message in self.ledger.follow(messages):
            self.count(f"{source} accepted")
            if self.runs:
                self.runs[-1].came.append(message)
        self.must(len(messages) <= self.ledger.caps.messages, f"{len(messages)} messages in the transcript")

    def _check(self) -> None:
        """Hold the agent against the ledger.

        Raises:
            AssertionError: they differ, or somebody saw a fault.
        """
        agent, ledger = self.agent, self.ledger
        self.absorb()
        queued = agent.queued
        self.must(
            list(queued.steering) == ledger.steering and list(queued.follow_up) == ledger.follow_up, "the queues differ"
        )
        self.must(agent.is_running == (self.open_run() is not None), f"is_running is {agent.is_running}")
        self.must(len(agent.subscriber_errors) == self.listener_failures, "failures of listeners were not counted")
        for run in self.runs[-2:]:
            self._check_run(run)
        if self.faults:
            raise AssertionError(self.faults[0])

    def _check_run(self, run: Run) -> None:
        events = run.stream.read(run.read)
        for offset, event in enumerate(events, run.read):
            self.must(event.sequence == offset, f"event {offset} has number {event.sequence}")
            self.must(event.run_id == run.stream[0].run_id, "an event of another run")
            self.must(not run.is_over, f"{event.type} after the end")
        run.read += len(events)
        if run.stream.is_done and not run.is_over:
            run.is_over = True
            self._check_end(run)

    def _check_end(self, run: Run) -> None:
        events = run.stream.read()
        ends = [event for event in events if event.type == "run.finished"]
        self.must(len(ends) == 1 and events[-1] is ends[0], f"{len(ends)} ends")
        result = ends[0].result
        self.count(_kind_of(result))
        self.must(tuple(result.messages) == self.ledger.transcript, "the result's transcript is not the agent's")
        self.must(run.is_cancelled == isinstance(result, Cancelled), f"{result.status}, cancelled: {run.is_cancelled}")
        accepted = [event.message for event in events if isinstance(event, MessageAccepted)]
        self.must(accepted == run.came, f"told of {accepted}, accepted {run.came}")
        self.must(len(set(run.requests)) <= self.max_steps, f"{len(set(run.requests))} steps of {self.max_steps}")
        if isinstance(result, Completed):
            tail = result.messages[-1]
            self.must(isinstance(tail, AssistantMessage), "completed without an answer")
        if run.is_cancelled:
            self.must(self.loop.now <= run.cancelled_at + GRACE_SECONDS, "cancelled later than its grace")
        if isinstance(result, (Cancelled, Failed)):
            self.company.check_unadopted(run, result)
        self.must(
            not isinstance(result, Failed) or result.error.code not in {"INVALID_TRANSCRIPT", "MODEL_LIMIT"},
            f"failed: {result}",
        )


def _say_nothing(_loop: asyncio.AbstractEventLoop, _context: object) -> None:
    """Keep what the loop of a story that is over has to say."""


@cache
def _number_of(what: str) -> int:
    """Return a number for a kind of step that is the same in every process, unlike a string's hash."""
    return zlib.crc32(what.encode())


def _kind_of(result: RunResult) -> str:
    if isinstance(result, Failed):
        return result.error.code
    return result.limit if isinstance(result, MaxSteps) else result.status
