"""The agent in tens of thousands of drawn orders of events: whatever happens when, its promises hold.

A failure prints the seed of its story; `CHECKREIN_SEED=<seed> CHECKREIN_AMOUNT=0.00001` tells that one again, and nothing else.
"""

import asyncio
import gc
import time
from collections.abc import Callable

import pytest

from checkrein.agent import conversation as conversation_module
from checkrein.agent.agent import Agent
from checkrein.agent.conversation import Conversation
from checkrein.agent.inbox import Inbox
from checkrein.kernel.agent import AgentState, QueueName
from checkrein.loop.engine import Engine
from checkrein.loop.events import AgentEvent, RunFinished, RunResult, ToolStarted
from checkrein.messages import UserMessage
from checkrein.streams import StreamLog
from tests.counts import amount, report, seed
from tests.exploration.agent_stories import seeds, tell, tell_all
from tests.exploration.drawn_loop import DrawnLoop

SCHEDULES = 50_000
ENDS = (
    "completed",
    "cancelled",
    "max_steps",
    "should_stop",
    "repeated_call",
    "MODEL_STREAM_FAILED",
    "MODEL_EMPTY",
    "TOOL_EXECUTION_FAILED",
    "TOOL_ARGUMENTS_LOOP",
    "AGENT_STATE_FAILED",
    "AGENT_MESSAGE_LIMIT",
)


@pytest.mark.timeout(3600)
def test_every_promise_of_the_agent_holds_in_every_drawn_schedule() -> None:
    begun, wanted = time.perf_counter(), amount(SCHEDULES)
    told = tell_all(seeds(seed(), wanted))
    seconds = round(time.perf_counter() - begun, 1)
    detail = {
        "distinct": len(told.stories),
        "steps": told.steps,
        **dict(sorted(told.counts.items())),
        "seconds": seconds,
    }
    report("agent schedules", wanted, passed=wanted, seed=seed(), detail=detail)
    assert len(told.stories) > 0.9 * wanted
    if wanted >= SCHEDULES:
        assert min(told.counts[end] for end in ENDS) > 0, "an end that no story came to"


def test_the_same_seed_tells_the_same_story() -> None:
    gc.disable()
    try:
        told = [list(tell(story_seed).log) for story_seed in (*seeds(7, 200), *seeds(7, 200))]
    finally:
        gc.enable()
    assert told[:200] == told[200:]


def _nothing(_self: object) -> None:
    """Do nothing."""


def _loses_the_queue_on_cancel(patch: pytest.MonkeyPatch) -> None:
    cancel = Agent.cancel

    def losing(agent: Agent, reason: str = "") -> bool:
        agent._conversation._inbox.clear()  # pyright: ignore[reportPrivateUsage]  breaking it on purpose
        return cancel(agent, reason)

    patch.setattr(Agent, "cancel", losing)


def _accepts_the_newest_first(patch: pytest.MonkeyPatch) -> None:
    def take(inbox: Inbox, queue: QueueName) -> tuple[UserMessage, ...]:
        waiting = inbox._queues[queue]  # pyright: ignore[reportPrivateUsage]  breaking it on purpose
        return (waiting.pop(),) if waiting else ()

    patch.setattr(Inbox, "take", take)


def _accepts_without_taking(patch: pytest.MonkeyPatch) -> None:
    def take(inbox: Inbox, queue: QueueName) -> tuple[UserMessage, ...]:
        waiting = inbox._queues[queue]  # pyright: ignore[reportPrivateUsage]  breaking it on purpose
        return (waiting[0],) if waiting else ()

    patch.setattr(Inbox, "take", take)


_Log = StreamLog[AgentEvent, RunResult]


def _appended(patch: pytest.MonkeyPatch, change: Callable[[_Log, AgentEvent], None]) -> None:
    append = _Log.append

    def changed(log: _Log, event: AgentEvent) -> None:
        append(log, event)
        change(log, event)

    patch.setattr(StreamLog, "append", changed)


def _ends_twice(patch: pytest.MonkeyPatch) -> None:
    def again(log: _Log, event: AgentEvent) -> None:
        if isinstance(event, RunFinished):
            log.events.append(event)

    _appended(patch, again)


def _numbers_two_alike(patch: pytest.MonkeyPatch) -> None:
    def again(log: _Log, event: AgentEvent) -> None:
        if isinstance(event, ToolStarted):
            log.events.append(event)

    _appended(patch, again)


def _goes_on_after_the_cancellation(patch: pytest.MonkeyPatch) -> None:
    def check(_engine: Engine, _room: int) -> None:
        """Check nothing."""

    patch.setattr(Engine, "_check_start", check)


def _takes_what_does_not_fit(patch: pytest.MonkeyPatch) -> None:
    def always(_state: AgentState, _queue: QueueName) -> bool:
        return True

    patch.setattr(conversation_module, "fits_queue", always)


def _starts_beside_a_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Conversation, "_refuse_overlap", _nothing)


def _forgets_the_grace(patch: pytest.MonkeyPatch) -> None:
    cancel = Agent.cancel

    def endless(agent: Agent, reason: str = "") -> bool:
        done = cancel(agent, reason)
        run = agent._run  # pyright: ignore[reportPrivateUsage]  breaking it on purpose
        if run is not None and run._timer is not None:  # pyright: ignore[reportPrivateUsage]
            run._timer.cancel()  # pyright: ignore[reportPrivateUsage]
        return done

    patch.setattr(Agent, "cancel", endless)


def _tell_many(count: int) -> None:
    for story_seed in seeds(1, count):
        tell(story_seed)


def _left_waiting() -> list[str]:
    """Return the tasks of all stories that are not done; the clock holds them as long as that."""
    tasks = [item for item in gc.get_objects() if issubclass(type(item), asyncio.Task)]
    return [task.get_name() for task in tasks if isinstance(task.get_loop(), DrawnLoop) and not task.done()]


@pytest.mark.parametrize(
    "sabotage",
    [
        _loses_the_queue_on_cancel,
        _accepts_the_newest_first,
        _accepts_without_taking,
        _ends_twice,
        _numbers_two_alike,
        _goes_on_after_the_cancellation,
        _takes_what_does_not_fit,
        _starts_beside_a_run,
        _forgets_the_grace,
    ],
)
def test_an_agent_broken_on_purpose_is_noticed(
    sabotage: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    with pytest.raises(AssertionError, match="CHECKREIN_SEED="):
        _tell_many(500)
    assert _left_waiting() == [], "the story that failed outlives its test"
