"""What may go wrong with the outcome of a call, and what the log says then."""

from checkrein.harness.planners import Step
from checkrein.kernel.state import Phase
from tests.unit.runs.scene import Scene

REPORT = Step(id="report", description="write", tool_name="put", arguments={"path": "report.txt", "text": "all well"})


async def test_a_plain_run_succeeds_and_replays(scene: Scene) -> None:
    task = scene.task([REPORT])
    worker = scene.worker(task)
    run_id = await worker.submit(task)
    state = await worker.advance(run_id)
    assert state.phase is Phase.SUCCEEDED, await scene.types(run_id)
    await scene.check_log(run_id)
    assert (await scene.store.get(run_id)).lease.is_released
