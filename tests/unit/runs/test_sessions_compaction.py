"""Runs whose model cannot read everything: each summary is granted before it is asked for, is an event of the log, and is asked for again after a crash."""

from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from checkrein.errors import ModelError, TransientModelError
from checkrein.harness.model_planner import ModelPlanner
from checkrein.kernel.budget import Budget
from checkrein.kernel.events import TranscriptCompacted, TurnFinished, TurnGranted
from checkrein.kernel.run import fold_run
from checkrein.kernel.session_budget import spent
from checkrein.kernel.state import Phase, RunState
from checkrein.loop.compaction import Compaction
from checkrein.messages import ToolCall, Usage, validate_transcript
from checkrein.ports.model import Chunk, ModelRequest, ModelResponse
from checkrein.ports.tool import CancelSignal
from checkrein.projections.transcript import fold_transcript
from checkrein.runs.cuts import legal_cuts
from checkrein.runs.task import Task
from checkrein.testing.scripted import ScriptedModel, ScriptItem, reply
from checkrein.tools.function import tool
from tests.unit.runs.scene import Exists, Scene
from tests.unit.runs.sessions import restarted

SMALL = Compaction(window=1_000, keep_turns=1, summary_tokens=100)
BUSY = TransientModelError("slow down", code="MODEL_RATE_LIMIT")
OVERFLOW = ModelError("prompt is too long", code="MODEL_CONTEXT")
USELESS = reply("cut of", stop_reason="length", usage=Usage(10, 1))


@tool(idempotent=True, inline=True)
def look(size: int = 900) -> str:
    return "x" * size


def looks(count: int) -> list[ModelResponse]:
    """Return responses that look, each bringing about 300 tokens."""
    return [reply(ToolCall("c1", "look", {})) for _ in range(count)]


class Desk:
    """A task planned by a model with a small window."""

    def __init__(
        self,
        scene: Scene,
        script: Iterable[ScriptItem],
        compaction: Compaction = SMALL,
        *,
        budget: Budget | None = None,
    ) -> None:
        self.scene = scene
        self.model = ScriptedModel(script)
        self.compaction = compaction
        self.budget = budget
        self.run_id = ""

    def task(self) -> Task:
        """Return the task as a new process would load it."""
        plain = self.scene.task([], look, checks=[Exists("answer")], budget=self.budget)
        planner = ModelPlanner(self.model, compaction=self.compaction)
        return Task(
            name=plain.name, goal=plain.goal, checks=plain.checks, planner=planner, tools=plain.tools, budget=plain.budget, workspace=plain.workspace
        )  # fmt: skip

    async def submit(self) -> None:
        self.run_id = await self.scene.worker().submit(self.task())

    async def advance(self) -> RunState:
        """Advance the run by a worker of a new process, while time passes."""
        advancing = self.scene.spawn(self.scene.worker(self.task()).advance(self.run_id))
        while not advancing.done():
            await self.scene.clock.advance(1.0)
        return await advancing

    async def run(self) -> RunState:
        await self.submit()
        return await self.advance()

    async def grants(self) -> list[tuple[int, int, str]]:
        log = await self.scene.log(self.run_id)
        return [(item.turn, item.attempt, item.purpose) for event in log if isinstance(item := event.data, TurnGranted)]

    async def compacted(self) -> list[TranscriptCompacted]:
        return [
            event.data for event in await self.scene.log(self.run_id) if isinstance(event.data, TranscriptCompacted)
        ]

    async def check(self) -> None:
        """Hold the log to what every log must be, and both counts of the budget against each other."""
        await self.scene.check_log(self.run_id)
        log = await self.scene.log(self.run_id)
        state = fold_run(log)
        budget = state.budget
        for event in log:
            budget = spent(budget, event) if event is not log[0] else spent(type(budget)(), event)
        assert (budget.used.turns, budget.used.tokens) == (state.budget.used.turns, state.budget.used.tokens)
        for request in self.model.requests:
            assert validate_transcript(request.messages) == ()


async def test_a_summary_is_granted_as_an_attempt_of_the_turn_and_replayed_without_a_model(scene: Scene) -> None:
    desk = Desk(scene, [*looks(3), reply("seen: x", usage=Usage(40, 4)), reply("all seen", usage=Usage(50, 5))])
    state = await desk.run()
    assert (state.phase, desk.model.remaining, state.budget.used.turns, state.budget.used.tokens) == (
        Phase.SUCCEEDED,
        0,
        5,
        99,
    )
    assert (await desk.grants())[3:] == [(4, 1, "compaction"), (4, 2, "planning")]
    (fact,) = await desk.compacted()
    assert (fact.through_turn, fact.usage, fact.summary[-7:]) == (2, Usage(40, 4), "seen: x")
    log = await scene.log(desk.run_id)
    assert tuple(fold_transcript(log).messages)[:4] == tuple(desk.model.requests[4].messages)
    calls = desk.model.call_count
    await desk.check()
    assert desk.model.call_count == calls


async def test_a_model_that_refuses_the_transcript_is_asked_again_in_the_turn_with_a_summary(scene: Scene) -> None:
    desk = Desk(
        scene, [*looks(3), OVERFLOW, reply("short"), reply("all seen")], Compaction(window=100_000, keep_turns=1)
    )
    assert (await desk.run()).phase is Phase.SUCCEEDED
    assert (await desk.grants())[3:] == [(4, 1, "planning"), (4, 2, "compaction"), (4, 3, "planning")]
    log = await scene.log(desk.run_id)
    finished = [(event.data.turn, event.data.attempt) for event in log if isinstance(event.data, TurnFinished)]
    assert finished == [(1, 1), (2, 1), (3, 1), (4, 3)]
    await desk.check()


async def test_summaries_of_no_use_block_the_run_with_a_code_and_a_decision_asks_again(scene: Scene) -> None:
    desk = Desk(scene, [*looks(3), USELESS, USELESS, USELESS, reply("good"), reply("all seen")])
    state = await desk.run()
    (cause,) = state.causes
    assert (state.phase, cause.id, state.budget.used.tokens) == (Phase.BLOCKED, "planner:4", 33)
    assert "MODEL_CONTEXT: " in cause.message
    assert [purpose for _, _, purpose in (await desk.grants())[3:]] == ["compaction"] * 3
    await scene.commands().respond(desk.run_id, {"decision": "again"})
    assert (await desk.advance()).phase is Phase.SUCCEEDED
    await desk.check()


async def test_a_provider_that_stays_busy_while_it_summarises_is_named(scene: Scene) -> None:
    desk = Desk(scene, [*looks(3), BUSY, BUSY, BUSY])
    (cause,) = (await desk.run()).causes
    assert "MODEL_RATE_LIMIT: slow down" in cause.message
    assert (await desk.grants())[3:] == [(4, 1, "compaction"), (4, 2, "compaction"), (4, 3, "compaction")]
    await desk.check()


@pytest.mark.parametrize("turns", [3, 4, 5])
async def test_no_summary_is_granted_that_the_budget_does_not_allow(scene: Scene, turns: int) -> None:
    desk = Desk(scene, [*looks(3), reply("good"), reply("all seen")], budget=Budget(turns=turns))
    state = await desk.run()
    while state.phase is Phase.BLOCKED:
        assert [cause.id for cause in state.causes] == ["budget:turns"]
        assert desk.model.call_count == state.budget.used.turns == state.budget.limits.turns
        await scene.commands().respond(desk.run_id, {"extend": {"turns": 1}})
        state = await desk.advance()
    assert (state.phase, desk.model.call_count, state.budget.limits.turns) == (Phase.SUCCEEDED, 5, 5)
    await desk.check()


POINTS = {
    "before append turn.start": [(4, 1, "compaction"), (4, 2, "planning")],
    "after append turn.start": [(4, 1, "compaction"), (4, 2, "compaction"), (4, 3, "planning")],
    "before summary": [(4, 1, "compaction"), (4, 2, "compaction"), (4, 3, "planning")],
    "after summary": [(4, 1, "compaction"), (4, 2, "compaction"), (4, 3, "planning")],
    "before append transcript_compacted": [(4, 1, "compaction"), (4, 2, "compaction"), (4, 3, "planning")],
    "after append transcript_compacted": [(4, 1, "compaction"), (4, 2, "planning")],
    "before plan": [(4, 1, "compaction"), (4, 2, "planning"), (4, 3, "planning")],
}


@pytest.mark.parametrize("point", POINTS)
async def test_after_a_crash_a_summary_is_asked_for_once_more_within_its_count_unless_it_is_recorded(
    scene: Scene, tmp_path: Path, point: str
) -> None:
    await restarted(scene, tmp_path)
    is_asked_twice = point in {"after summary", "before append transcript_compacted"}
    desk = Desk(scene, [*looks(3), *([reply("lost")] if is_asked_twice else []), reply("good"), reply("all seen")])
    await desk.submit()
    await scene.crash(desk.task(), desk.run_id, point, at=4 if "turn.start" in point or "plan" in point else 1)
    await restarted(scene, tmp_path)
    state = await desk.advance()
    assert (state.phase, desk.model.remaining) == (Phase.SUCCEEDED, 0)
    assert (await desk.grants())[3:] == POINTS[point]
    assert [fact.summary[-4:] for fact in await desk.compacted()] == ["good"]
    await desk.check()


async def test_a_run_that_is_cancelled_while_a_summary_is_written_ends_without_it(scene: Scene) -> None:
    async def cancelled(_request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        await scene.commands().cancel(desk.run_id, "enough")
        yield reply("too late")

    desk = Desk(scene, [*looks(3), cancelled])
    state = await desk.run()
    assert (state.phase, await desk.compacted(), desk.model.remaining) == (Phase.FAILED, [], 0)
    await desk.check()


async def test_a_message_that_comes_while_a_summary_is_written_costs_no_second_one(scene: Scene) -> None:
    async def steered(_request: ModelRequest, _signal: CancelSignal) -> AsyncIterator[Chunk | ModelResponse]:
        await scene.worker().steer(desk.run_id, "be brief")
        yield reply("good")

    desk = Desk(scene, [*looks(3), steered, reply("seen"), reply("all seen")])
    assert (await desk.run()).phase is Phase.SUCCEEDED
    assert [purpose for _, _, purpose in await desk.grants()].count("compaction") == 1
    assert any("be brief" in str(message.content) for message in desk.model.requests[-1].messages)
    await desk.check()


async def test_a_log_with_a_summary_may_be_cut_where_any_may(scene: Scene) -> None:
    desk = Desk(scene, [*looks(3), reply("good"), reply("all seen")])
    await desk.run()
    cuts = {cut.last.type for cut in legal_cuts(await scene.log(desk.run_id))}
    assert {"turn_granted", "transcript_compacted"} <= cuts
