"""Cancelling a family: children are told before their parents, from any process, and a parent that waits for a child ends after it."""

import asyncio
from functools import partial
from itertools import pairwise

import pytest
from msgspec.structs import replace

from checkrein.clock import SystemIds
from checkrein.errors import FatalToolError, Rejected
from checkrein.kernel.budget import Amounts
from checkrein.kernel.events import BudgetReserved, BudgetSettled, CancelRequested
from checkrein.kernel.state import Phase, RunState
from checkrein.ports.tool import ChildRun, ToolContext
from checkrein.runs.children import child_id
from checkrein.runs.commands import MAX_DEPTH, Commands, Reconciled
from checkrein.runs.journal import Journal
from checkrein.runs.lease import claim, our_identity
from checkrein.runs.worker import Worker
from checkrein.testing import CrashPoint
from checkrein.tools.function import tool
from tests.unit.runs.family import SHARE, always, ask_to_send, child_task, delegate, facts, parent_task
from tests.unit.runs.scene import Scene, gate, hang, step, write


def _end(state: RunState) -> tuple[Phase, str]:
    assert state.outcome is not None, state.phase
    return state.phase, state.outcome.code


CANCELLED = (Phase.FAILED, "cancelled")


async def _stop_at(reached: asyncio.Event, _name: str) -> None:
    reached.set()
    await hang()


class Family:
    """A parent whose child stands in the body of its tool."""

    def __init__(self, scene: Scene, *, cancellable: bool = True) -> None:
        held, self.gate = gate(cancellable=cancellable)
        self.scene = scene
        self.task = parent_task(
            scene,
            always(step("delegate"), write()),
            delegate(),
            child=child_task(scene, always(step("held"), write()), held),
        )
        self.worker: Worker = scene.worker(self.task)
        self.parent = self.child = ""
        self.advancing: asyncio.Task[RunState]

    async def begin(self) -> "Family":
        self.parent = await self.worker.submit(self.task)
        self.child = child_id(self.parent, "1.0", "")
        self.advancing = self.scene.spawn(self.worker.advance(self.parent))
        await self.gate.entered.wait()
        return self

    async def state(self, run_id: str) -> RunState:
        return await self.worker.state(run_id)


async def test_a_parent_whose_child_is_in_a_tool_is_cancelled_after_it_and_the_next_run_is_accepted(
    scene: Scene,
) -> None:
    family = await Family(scene, cancellable=False).begin()
    waiting = await scene.worker().cancel(family.parent, "enough")
    assert (waiting.phase, waiting.cancel) == (Phase.RUNNING, "enough")
    told = await family.state(family.child)
    assert (told.phase, told.cancel) == (Phase.RUNNING, f"its parent {family.parent} ends")
    family.gate.release.set()
    assert _end(await family.advancing) == CANCELLED
    assert _end(await family.state(family.child)) == CANCELLED
    types = await scene.types(family.parent)
    assert types[-5:] == ["cancel_requested", "budget_settled", "tool.error", "session.complete", "tool_failed"]
    await scene.check_log(family.child)
    again = await family.worker.submit(family.task)
    assert (await family.worker.advance(again)).phase is Phase.SUCCEEDED


async def test_a_child_is_told_before_its_parent(scene: Scene) -> None:
    family = await Family(scene, cancellable=False).begin()
    for at, expected in (("before append", (False, False)), ("after append", (True, False))):
        reached = asyncio.Event()
        point = CrashPoint(at=1, among=(f"{at} cancel_requested",), deed=partial(_stop_at, reached))
        commands = Commands(point.store(scene.store), clock=scene.clock, ids=SystemIds(), actor="user:gone")
        cancelling = scene.spawn(commands.cancel(family.parent))
        await reached.wait()
        cancelling.cancel()
        child, parent = await family.state(family.child), await family.state(family.parent)
        assert (child.cancel is not None, parent.cancel is not None) == expected
    await scene.commands().cancel(family.parent)
    family.gate.release.set()
    assert _end(await family.advancing) == CANCELLED
    # It was told once, although cancelling it was begun three times.
    assert len(await facts(scene, family.child, CancelRequested)) == 1


async def test_who_dies_between_child_and_parent_has_cancelled_the_child_alone(scene: Scene) -> None:
    family = await Family(scene).begin()
    point = CrashPoint(at=1, among=("after append session.complete", "after append cancel_requested"), deed=hang)
    commands = Commands(point.store(scene.store), clock=scene.clock, ids=SystemIds(), actor="user:gone")
    scene.spawn(commands.cancel(family.parent))
    assert _end(await scene.until(family.child, lambda state: state.phase.is_terminal)) == CANCELLED
    family.gate.release.set()
    state = await family.advancing
    # The planner gave its plan again: the child of that call is another one.
    assert (state.phase, state.cancel) == (Phase.SUCCEEDED, None)


async def test_a_whole_line_is_cancelled_from_its_end(scene: Scene) -> None:
    held, handle = gate()
    grandchild = replace(child_task(scene, always(step("held")), held), name="grandchild")
    deeper = delegate({"turns": 1, "tool_calls": 1, "steps": 1}, name="deeper", child="grandchild")
    child = replace(child_task(scene, always(step("deeper")), deeper), children=(grandchild,))
    task = parent_task(scene, always(step("delegate")), delegate({"turns": 4, "tool_calls": 4}), child=child)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await handle.entered.wait()
    await scene.worker().cancel(run_id)
    assert _end(await advancing) == CANCELLED
    middle = child_id(run_id, "1.0", "")
    assert _end(await worker.state(middle)) == CANCELLED
    assert _end(await worker.state(child_id(middle, "1.0", ""))) == CANCELLED


async def test_a_child_that_waits_for_a_person_ends_with_its_parent(scene: Scene) -> None:
    child = child_task(scene, always(step("send")), tool(name="send", inline=True)(lambda: "sent"))
    child = replace(child, policy=ask_to_send)
    task = parent_task(scene, always(step("delegate")), delegate(), child=child)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await scene.until(run_id, lambda state: any(call.child for call in state.open_calls))
    await scene.until(child_id(run_id, "1.0", ""), lambda state: state.phase is Phase.BLOCKED)
    await scene.worker().cancel(run_id)
    assert _end(await advancing) == CANCELLED
    assert _end(await worker.state(child_id(run_id, "1.0", ""))) == CANCELLED


async def test_a_child_that_is_created_while_its_parent_is_cancelled_is_cancelled_too(scene: Scene) -> None:
    let_go, reached = asyncio.Event(), asyncio.Event()

    async def pause(_name: str) -> None:
        reached.set()
        await let_go.wait()

    @tool(idempotent=True, cancellable=False)
    async def stubborn(context: ToolContext) -> ChildRun:
        return await context.runs.start("child", share=SHARE)

    point = CrashPoint(at=1, among=("before create",), deed=pause)
    task = parent_task(scene, always(step("stubborn")), stubborn, child=child_task(scene))
    run_id = await scene.worker().submit(task)
    worker = scene.worker(task, store=point.store(scene.store))
    advancing = scene.spawn(worker.advance(run_id))
    await reached.wait()
    await scene.worker().cancel(run_id)
    let_go.set()
    assert _end(await advancing) == CANCELLED
    child = await worker.state(child_id(run_id, "1.0", ""))
    assert (_end(child), child.budget.used) == (CANCELLED, Amounts())
    assert [item.used for item in await facts(scene, run_id, BudgetSettled)] == [Amounts()]


async def test_a_call_in_doubt_leaves_no_child_running_after_the_cancel(scene: Scene) -> None:
    held, handle = gate()

    @tool
    async def once(context: ToolContext) -> str:
        run = await context.runs.start("child", share=SHARE)
        return (await run.result()).code

    child = child_task(scene, always(step("held")), held)
    task = parent_task(scene, always(step("once")), once, child=child)
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "after create")
    worker = scene.worker(task)
    assert (await worker.advance(run_id)).phase is Phase.BLOCKED
    await worker.cancel(run_id)
    assert _end(await worker.state(child_id(run_id, "1.0", ""))) == CANCELLED
    ended = await worker.unblock(run_id, "reconcile:1.0", reconciled=Reconciled("unknown"))
    assert _end(ended) == CANCELLED
    assert handle.attempts == []


@pytest.mark.parametrize("how", ["close", "respond"])
async def test_closing_a_blocked_parent_cancels_its_children_first(scene: Scene, how: str) -> None:
    held, handle = gate(cancellable=False)

    @tool(idempotent=True)
    async def scatter(context: ToolContext) -> str:
        run = await context.runs.start("child", share=SHARE)
        scene.spawn(worker.advance(run.run_id))
        await handle.entered.wait()
        return run.run_id

    send = tool(name="send", inline=True)(lambda: "sent")
    child = child_task(scene, always(step("held")), held)
    task = parent_task(scene, always(step("scatter"), step("send")), scatter, send, child=child)
    task = replace(task, policy=ask_to_send)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    assert (await worker.advance(run_id)).phase is Phase.BLOCKED
    if how == "close":
        state = await scene.commands().close(run_id, "no")
    else:
        state = await scene.commands().respond(run_id, {"close": "no"})
    assert _end(state) == (Phase.FAILED, "closed")
    assert (await worker.state(child_id(run_id, "1.0", ""))).cancel is not None
    # Nobody settles after the end, so the whole share is charged.
    assert (state.budget.used.turns, state.reservations) == (1 + 2, ())
    handle.release.set()


async def test_a_call_that_ends_the_run_cancels_its_children(scene: Scene) -> None:
    held, handle = gate(cancellable=False)

    @tool
    async def fatal(context: ToolContext) -> str:
        run = await context.runs.start("child", share=SHARE)
        scene.spawn(worker.advance(run.run_id))
        await handle.entered.wait()
        msg = "this cannot go on"
        raise FatalToolError(msg)

    task = parent_task(scene, always(step("fatal")), fatal, child=child_task(scene, always(step("held")), held))
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    assert _end(await worker.advance(run_id)) == (Phase.FAILED, "step_failed")
    assert (await worker.state(child_id(run_id, "1.0", ""))).cancel is not None
    handle.release.set()


async def test_what_is_nested_too_deep_is_refused_by_name(scene: Scene) -> None:
    # Nothing of ours nests so deep; a log that another program wrote may.
    task = child_task(scene)
    runs = [await scene.worker().submit(task) for _ in range(MAX_DEPTH + 2)]
    for parent, child in pairwise(runs):
        await _adopt(scene, parent, child)
    with pytest.raises(Rejected, match="nested more than 8 deep") as refused:
        await scene.worker().cancel(runs[0])
    assert refused.value.run_id == runs[-1]
    assert (await scene.worker().state(runs[0])).cancel is None


async def _adopt(scene: Scene, parent: str, child: str) -> None:
    journal = await Journal.open(scene.store, parent, clock=scene.clock, ids=SystemIds())
    epoch = await claim(journal, owner=our_identity("other", "1"), seconds=1.0)
    await journal.append([BudgetReserved(child, Amounts())], actor="worker:other", epoch=epoch)
