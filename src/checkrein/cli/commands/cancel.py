"""`cancel`: take a run's right to start anything."""

from checkrein.cli.commands.answering import answered
from checkrein.cli.exits import Exit
from checkrein.cli.invocation import Invocation

__all__ = ["cancel"]


async def cancel(invocation: Invocation, run: str, reason: str) -> Exit:
    """Cancel a run.

    Raises:
        Rejected: the run has ended.
        RunNotFound: there is no such run.
        StoreError: the store cannot be written.
    """
    async with invocation.store() as store:
        run_id = await invocation.find(store, run)
        state = await invocation.commands(store).cancel(run_id, reason)
        calls = ", ".join(f"{call.call_id} of {call.tool.name}" for call in state.open_calls)
        said = f"cancel requested; the run ends when these calls have their outcomes: {calls}" if calls else "cancelled"
        return await answered(invocation, store, state, said)
