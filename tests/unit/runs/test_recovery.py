"""Recovery is the normal start: after a crash anywhere the declaration of a tool decides what becomes of its call."""

from functools import partial

import pytest
from msgspec.structs import replace

from checkrein.errors import Rejected
from checkrein.harness.permission import Decision, Policy
from checkrein.harness.planners import LastError, Note, Step, StepRecord
from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import ToolGranted, ToolInDoubt, ToolReconciled
from checkrein.kernel.state import Phase
from checkrein.runs.commands import Reconciled
from checkrein.runs.task import Task
from checkrein.testing import CrashPoint
from checkrein.testing.crash import EFFECTS
from checkrein.tools.function import FunctionTool, tool
from checkrein.values import JsonData, JsonObject
from tests.unit.runs.scene import Scene, Script, step, write


class World:
    """What happened outside, and tools that make it happen; `says` is what a probe answers, None to look."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.says: str | None = None

    def probe(self) -> str:
        return self.says or ("done" if self.charged else "failed")

    def charge(self, name: str = "charge", *, idempotent: bool = False, has_probe: bool = False) -> FunctionTool:
        def body() -> str:
            self.charged.append("charged")
            return "charged"

        if has_probe:
            return tool(name=name, idempotent=idempotent, inline=True, reconcile=self.probe)(body)
        return tool(name=name, idempotent=idempotent, inline=True)(body)


async def test_an_idempotent_call_in_doubt_is_made_again_as_the_next_attempt_of_the_same_call(scene: Scene) -> None:
    world = World()
    task = scene.task(Script([step("charge"), write()]), world.charge(idempotent=True))
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "after body charge")
    assert (await scene.worker(task).advance(run_id)).phase is Phase.SUCCEEDED
    grants = [event.data for event in await scene.log(run_id) if isinstance(event.data, ToolGranted)]
    assert [(item.call_id, item.attempt, item.previous) for item in grants] == [
        ("1.0", 1, ""),
        ("1.0", 2, "in_doubt"),
        ("1.1", 1, ""),
    ]
    assert len(world.charged) == 2


async def test_an_outcome_that_was_recorded_is_not_made_again(scene: Scene) -> None:
    world = World()
    task = scene.task(Script([step("charge"), write()]), world.charge(idempotent=True))
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "after append tool.result tool_done")
    assert (await scene.worker(task).advance(run_id)).phase is Phase.SUCCEEDED
    assert len(world.charged) == 1


@pytest.mark.parametrize(("at", "outcome"), [("after body charge", "done"), ("before body charge", "failed")])
async def test_a_probe_says_whether_a_call_in_doubt_happened(scene: Scene, at: str, outcome: str) -> None:
    world = World()
    script = Script([step("charge"), write()], [step("charge"), write()])
    task = scene.task(script, world.charge(has_probe=True))
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, at)
    assert (await scene.worker(task).advance(run_id)).phase is Phase.SUCCEEDED
    facts = [event.data for event in await scene.log(run_id) if isinstance(event.data, ToolReconciled)]
    assert [(fact.call_id, fact.outcome, fact.by) for fact in facts] == [("1.0", outcome, "probe")]
    assert world.charged == ["charged"]
    await scene.check_log(run_id)


async def test_a_probe_that_cannot_tell_leaves_the_question_to_a_person_and_is_asked_once(scene: Scene) -> None:
    world = World()
    world.says = "unknown"
    task = scene.task(Script([step("charge"), write()]), world.charge(has_probe=True))
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "after body charge")
    worker = scene.worker(task)
    state = await worker.advance(run_id)
    assert [cause.id for cause in state.causes] == ["reconcile:1.0"]
    doubts = [event.data for event in await scene.log(run_id) if isinstance(event.data, ToolInDoubt)]
    assert [doubt.probed for doubt in doubts] == [True]
    assert (await worker.advance(run_id)).version == state.version
    with pytest.raises(Rejected, match="needs its outcome"):
        await worker.unblock(run_id, "reconcile:1.0")
    await worker.unblock(run_id, "reconcile:1.0", reconciled=Reconciled("done", result=JsonData("the bank says so")))
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    assert world.charged == ["charged"]
    await scene.check_log(run_id)


@pytest.mark.parametrize("outcome", ["done", "failed", "unknown"])
async def test_a_call_without_probe_is_never_silently_run_again(scene: Scene, outcome: str) -> None:
    world = World()
    script = Script([step("charge"), write()], [write()])
    task = scene.task(script, world.charge())
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "after body charge")
    worker = scene.worker(task)
    state = await worker.advance(run_id)
    assert (state.phase, [cause.id for cause in state.causes]) == (Phase.BLOCKED, ["reconcile:1.0"])
    assert (await scene.store.get(run_id)).lease.is_released
    found = Reconciled("done") if outcome == "done" else Reconciled("failed" if outcome == "failed" else "unknown")
    await worker.unblock(run_id, "reconcile:1.0", reconciled=found)
    state = await worker.advance(run_id)
    assert (state.phase, world.charged) == (Phase.SUCCEEDED, ["charged"])
    assert [call.status for call in state.effects] == [outcome, "done"]
    # A step whose call is not known to be done has failed, and the planner is asked what now.
    assert len(script.asked) == (1 if outcome == "done" else 2)
    await scene.check_log(run_id)


async def test_a_call_in_doubt_of_a_run_that_is_blocked_for_another_reason_is_still_probed(scene: Scene) -> None:
    world = World()
    task = scene.task(
        Script([step("charge"), write()]), world.charge(idempotent=True, has_probe=True), budget=Budget(tool_calls=1)
    )
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "after body charge")
    worker = scene.worker(task)
    state = await worker.advance(run_id)
    # No budget to run it again, but a question costs nothing: the call is done, and the run waits for budget for the rest.
    assert [cause.id for cause in state.causes] == ["budget:tool_calls"]
    assert [call.status for call in state.effects] == ["done"]
    await worker.extend(run_id, Amounts(tool_calls=1))
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    assert world.charged == ["charged"]


@pytest.mark.parametrize("first", ["extend", "reconcile"])
async def test_a_pause_ends_with_its_own_last_cause_whatever_else_blocks_the_run(scene: Scene, first: str) -> None:
    world = World()
    world.says = "unknown"
    task = scene.task(
        Script([step("charge"), write()]), world.charge(idempotent=True, has_probe=True), budget=Budget(tool_calls=1)
    )
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "after body charge")
    worker = scene.worker(task)
    state = await worker.advance(run_id)
    assert [cause.kind for cause in state.causes] == ["budget", "reconcile"]
    answers = [
        partial(worker.extend, run_id, Amounts(tool_calls=1)),
        partial(worker.unblock, run_id, "reconcile:1.0", reconciled=Reconciled("done")),
    ]
    for answer in answers if first == "extend" else reversed(answers):
        await answer()
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    types = await scene.types(run_id)
    assert types.count("session.pause") == types.count("session.resume") == 1
    assert types[types.index("budget_extended") :][1:3] == ["unblocked", "session.resume"]


def _about_charge(decision: Decision) -> Policy:
    def policy(name: str, _arguments: JsonObject) -> Decision:
        return decision if name == "charge" else "allow"

    return policy


async def test_a_call_is_not_made_again_when_it_is_not_permitted_any_more(scene: Scene) -> None:
    world = World()
    task = scene.task(Script([step("charge"), write()]), world.charge(idempotent=True))
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "after body charge")
    stricter = replace(task, policy=_about_charge("deny"))
    state = await scene.worker(stricter).advance(run_id)
    assert ([cause.id for cause in state.causes], len(world.charged)) == (["reconcile:1.0"], 1)


async def test_a_call_that_is_made_again_is_asked_about_first_when_the_policy_says_so(scene: Scene) -> None:
    world = World()
    task = scene.task(Script([step("charge"), write()]), world.charge(idempotent=True))
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "after body charge")
    careful = replace(task, policy=_about_charge("ask"))
    worker = scene.worker(careful)
    state = await worker.advance(run_id)
    assert ([cause.id for cause in state.causes], len(world.charged)) == (["permission:1.0"], 1)
    await worker.unblock(run_id, "permission:1.0", answer=JsonData("allow"))
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    assert len(world.charged) == 2
    await scene.check_log(run_id)


async def test_a_crash_at_any_point_of_a_run_leaves_one_that_goes_on_to_its_end(scene: Scene) -> None:
    """Every point of a clean run, with one tool of each kind: once begun, nothing is done twice that must not be."""
    points = await _points_of_a_clean_run(scene)
    assert len(points) > 30
    for number in range(1, len(points) + 1):
        world, probed = World(), World()
        task = _all_kinds(scene, world, probed)
        run_id = await scene.worker().submit(task)
        await scene.crash(task, run_id, *EFFECTS, at=number)
        worker = scene.worker(task)
        state = await worker.advance(run_id)
        while state.phase is Phase.BLOCKED:
            (cause,) = state.causes
            happened = Reconciled("done") if world.charged else Reconciled("failed")
            await worker.unblock(run_id, cause.id, reconciled=happened)
            state = await worker.advance(run_id)
        assert state.phase is Phase.SUCCEEDED, points[number - 1]
        assert (world.charged, probed.charged) == (["charged"], ["charged"]), points[number - 1]
        await scene.check_log(run_id)


def _all_kinds(scene: Scene, world: World, probed: World) -> Task:
    """Return a task with an idempotent tool, one with a probe and one without, whose planner repeats what is not done."""

    async def plan(_goal: str, history: tuple[StepRecord | Note, ...], _error: LastError | None) -> list[Step]:
        done = {item.step.id for item in history if isinstance(item, StepRecord) and item.status == "done"}
        return [item for item in (step("charge"), step("pay"), write()) if item.id not in done]

    return scene.task(plan, world.charge(), probed.charge(name="pay", has_probe=True))


async def _points_of_a_clean_run(scene: Scene) -> list[str]:
    point = CrashPoint()
    task = point.task(_all_kinds(scene, World(), World()))
    worker = scene.worker(task, store=point.store(scene.store))
    run_id = await worker.submit(task)
    assert (await worker.advance(run_id)).phase is Phase.SUCCEEDED
    return point.passed
