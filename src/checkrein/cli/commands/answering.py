"""What the commands that only say something to a run have in common: the confirmation, and the command that comes next."""

from checkrein.cli.endings import print_causes
from checkrein.cli.exits import Exit
from checkrein.cli.figures import is_held
from checkrein.cli.invocation import Invocation
from checkrein.cli.screen import shown
from checkrein.cli.shapes import end_record
from checkrein.kernel.state import Phase, RunState, is_claimable
from checkrein.ports.store import RunStore

__all__ = ["answered"]


async def answered(invocation: Invocation, store: RunStore, state: RunState, said: str) -> Exit:
    """Say that it is recorded, how the run stands, and what comes next; the code is 0, because what was asked for is done.

    Raises:
        StoreError: the store cannot be read.
    """
    screen = invocation.screen
    screen.record(end_record(state))
    screen.line(("✓ ", "green"), f"{shown(said)} · {state.phase} · run {state.run_id}")
    held = is_held((await store.get(state.run_id)).lease)
    if state.phase is Phase.BLOCKED and not is_claimable(state):
        print_causes(screen, state)
    elif state.phase.is_terminal:
        screen.next_command("show", state.run_id)
    elif held:
        screen.next_command("events", state.run_id, "--follow")
    else:
        screen.next_command("resume", state.run_id)
    return Exit.SUCCEEDED
