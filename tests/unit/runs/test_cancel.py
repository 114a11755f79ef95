"""Cancellation: the right to start anything is gone at once, and what was begun is reported as far as it is known."""

import asyncio

import pytest

from checkrein.errors import Rejected, TransientToolError
from checkrein.harness.planners import Plan
from checkrein.kernel.state import Phase, RunState
from checkrein.ports.tool import ToolContext, ToolOutput
from checkrein.runs.commands import Reconciled
from checkrein.tools.function import tool
from tests.unit.runs.scene import Exists, Gate, Scene, Script, gate, hang, step, write


def _end(state: RunState) -> tuple[Phase, str, list[str]]:
    assert state.outcome is not None, state.phase
    return state.phase, state.outcome.code, [call.status for call in state.effects]


async def test_a_run_that_nobody_advances_is_cancelled_at_once_and_starts_nothing(scene: Scene) -> None:
    script = Script([write()])
    task = scene.task(script)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    assert _end(await worker.cancel(run_id)) == (Phase.FAILED, "cancelled", [])
    assert _end(await worker.advance(run_id)) == (Phase.FAILED, "cancelled", [])
    assert script.asked == []
    with pytest.raises(Rejected, match="terminal"):
        await worker.cancel(run_id)


async def test_a_cancellable_body_is_told_and_the_run_ends_when_it_stopped(scene: Scene) -> None:
    held, handle = gate(cancellable=True)
    script = Script([step("held"), write()])
    task = scene.task(script, held)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await handle.entered.wait()
    await scene.worker().cancel(run_id, "enough")
    assert _end(await advancing) == (Phase.FAILED, "cancelled", ["failed"])
    assert handle.ended == 0
    assert len(script.asked) == 1
    await scene.check_log(run_id)


async def test_a_result_after_the_cancel_request_is_recorded_and_its_files_are_not_adopted(scene: Scene) -> None:
    handle = Gate()

    @tool(cancellable=False)
    async def report(context: ToolContext) -> ToolOutput:
        await handle.body(context, cancellable=False)
        (context.folder() / "report.txt").write_text("done", encoding="utf-8")
        return ToolOutput("written", artifacts=("report.txt",))

    task = scene.task([step("report")], report)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await handle.entered.wait()
    waiting = await scene.worker().cancel(run_id)
    assert (waiting.phase, waiting.cancel) == (Phase.RUNNING, "cancelled by request")
    handle.release.set()
    state = await advancing
    assert _end(state) == (Phase.FAILED, "cancelled", ["done"])
    assert state.artifacts == ()
    await scene.check_log(run_id)


async def test_a_body_that_ignores_the_cancel_is_given_up_after_the_grace_and_its_late_return_changes_nothing(
    scene: Scene,
) -> None:
    held, handle = gate(cancellable=False)
    task = scene.task([step("held")], held)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await handle.entered.wait()
    await scene.worker().cancel(run_id)
    await scene.clock.advance(5.0)
    state = await advancing
    assert (state.phase, state.cancel is not None) == (Phase.BLOCKED, True)
    assert [call.status for call in state.open_calls] == ["in_doubt"]
    version = state.version
    handle.release.set()
    while not handle.ended:
        await scene.clock.advance(1.0)
    assert (await worker.state(run_id)).version == version
    (cause,) = state.causes
    assert _end(await worker.unblock(run_id, cause.id, reconciled=Reconciled("unknown"))) == (
        Phase.FAILED,
        "cancelled",
        ["unknown"],
    )
    await scene.check_log(run_id)


async def test_a_call_in_doubt_of_a_cancelled_run_is_asked_by_its_probe_and_never_run_again(scene: Scene) -> None:
    bodies: list[str] = []

    @tool(idempotent=True, reconcile=lambda: ("done", "it had happened"))
    async def charge() -> str:
        bodies.append("charge")
        return "charged"

    task = scene.task([step("charge"), write()], charge)
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "after body charge")
    await scene.worker().cancel(run_id)
    assert _end(await scene.worker(task).advance(run_id)) == (Phase.FAILED, "cancelled", ["done"])
    assert bodies == ["charge"]
    await scene.check_log(run_id)


async def test_a_call_in_doubt_without_probe_of_a_cancelled_run_is_a_persons_question(scene: Scene) -> None:
    bodies: list[str] = []

    @tool(idempotent=True)
    async def charge() -> str:
        bodies.append("charge")
        return "charged"

    task = scene.task([step("charge"), write()], charge)
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "after body charge")
    await scene.worker().cancel(run_id)
    worker = scene.worker(task)
    state = await worker.advance(run_id)
    assert (state.phase, [cause.id for cause in state.causes]) == (Phase.BLOCKED, ["reconcile:1.0"])
    ended = await worker.unblock(run_id, "reconcile:1.0", reconciled=Reconciled("failed", message="the bank says no"))
    assert _end(ended) == (Phase.FAILED, "cancelled", ["failed"])
    assert bodies == ["charge"]


async def test_a_lost_run_is_cancelled_without_anybody_who_advances_it(scene: Scene) -> None:
    held, handle = gate()
    task = scene.task([step("held")], held)
    run_id = await scene.worker().submit(task)
    await scene.crash(task, run_id, "before body held")
    state = await scene.worker().cancel(run_id)
    assert (state.phase, state.cancel is not None) == (Phase.RUNNING, True)
    worker = scene.worker(task)
    blocked = await worker.advance(run_id)
    assert [cause.kind for cause in blocked.causes] == ["reconcile"]
    ended = await worker.unblock(run_id, blocked.causes[0].id, reconciled=Reconciled("failed"))
    assert _end(ended) == (Phase.FAILED, "cancelled", ["failed"])
    assert handle.attempts == []


async def test_a_planner_is_not_waited_for_after_a_cancel(scene: Scene) -> None:
    entered = asyncio.Event()

    async def never(_goal: str, _history: object, _error: object) -> Plan:
        entered.set()
        await hang()
        return Plan([])

    task = scene.task(never)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await entered.wait()
    await scene.worker().cancel(run_id)
    assert _end(await advancing) == (Phase.FAILED, "cancelled", [])
    await scene.check_log(run_id)


async def test_nothing_is_verified_after_a_cancel(scene: Scene) -> None:
    entered = asyncio.Event()

    async def never(_context: object) -> None:
        entered.set()
        await hang()

    task = scene.task([write()], checks=[Exists(before=never)])
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await entered.wait()
    await scene.worker().cancel(run_id)
    state = await advancing
    assert _end(state) == (Phase.FAILED, "cancelled", ["done"])
    assert state.evidence == ()


async def test_no_attempt_follows_after_a_cancel(scene: Scene) -> None:
    bodies: list[str] = []

    @tool(idempotent=True)
    async def flaky() -> str:
        bodies.append("flaky")
        raise TransientToolError("line busy")

    task = scene.task([step("flaky")], flaky)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await scene.until(run_id, lambda state: bool(state.open_calls))
    while not bodies:
        await scene.clock.advance(0)
    await scene.worker().cancel(run_id)
    assert _end(await advancing) == (Phase.FAILED, "cancelled", ["failed"])
    assert bodies == ["flaky"]


async def test_a_blocked_run_is_cancelled_at_once(scene: Scene) -> None:
    task = scene.task([write()], policy=lambda _tool, _arguments: "ask")
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    assert (await worker.advance(run_id)).phase is Phase.BLOCKED
    assert _end(await worker.cancel(run_id)) == (Phase.FAILED, "cancelled", [])
    await scene.check_log(run_id)


async def test_a_second_cancel_while_the_outcome_is_awaited_keeps_the_first_reason(scene: Scene) -> None:
    held, handle = gate(cancellable=False)
    task = scene.task([step("held")], held)
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    advancing = scene.spawn(worker.advance(run_id))
    await handle.entered.wait()
    await scene.worker().cancel(run_id, "first")
    await scene.worker().cancel(run_id, "second")
    handle.release.set()
    state = await advancing
    assert state.outcome is not None
    assert (state.outcome.code, state.outcome.message) == ("cancelled", "first")
