"""`replay`: fold a stored log again, without planner, model or tool, and compare it with what was recorded."""

from checkrein.cli.exits import Exit
from checkrein.cli.invocation import Invocation
from checkrein.cli.screen import shown
from checkrein.runs.replay import replay_run

__all__ = ["replay"]


async def replay(invocation: Invocation, run: str) -> Exit:
    """Replay a run; the code is 0 when its log gives the recorded state.

    Raises:
        RunNotFound: there is no such run.
        StoreError: the store cannot be read.
    """
    screen = invocation.screen
    async with invocation.store() as store:
        run_id = await invocation.find(store, run)
        found = await replay_run(store, run_id)
    divergence = found.divergence
    screen.record({
        "run_id": run_id,
        "events": len(found.events),
        "model_calls": 0,
        "tool_calls": 0,
        "equal": found.is_equal,
        "divergence": None if divergence is None else {"offset": divergence.offset, "reason": divergence.reason},
    })  # fmt: skip
    if found.state is not None:
        screen.line(f"run {run_id} · version {found.state.version} · {found.state.phase}")
    counted = f"replayed {len(found.events)} events: 0 model calls, 0 tool calls, "
    if divergence is None:
        screen.line(counted, ("state equal", "green"))
        return Exit.SUCCEEDED
    screen.line(counted, (f"diverges at offset {divergence.offset}: {shown(divergence.reason)}", "red"))
    screen.next_command("verify", run_id)
    return Exit.FAILED
