"""What the commands that only say something to a run have in common: what they look at, the confirmation, and the command that comes next."""

import sys

from checkrein.cli.endings import print_causes
from checkrein.cli.exits import Exit, Usage
from checkrein.cli.figures import is_held
from checkrein.cli.invocation import Invocation
from checkrein.cli.screen import shown
from checkrein.cli.shapes import end_record
from checkrein.cli.view import RunView
from checkrein.errors import InvalidJson
from checkrein.kernel.session_state import SessionState
from checkrein.kernel.state import Phase, RunState, is_claimable
from checkrein.ports.store import RunStore
from checkrein.values import JsonValue, parse_json

__all__ = ["answered", "given_json", "seen"]


async def seen(store: RunStore, run_id: str, request_id: str = "") -> tuple[RunState, SessionState]:
    """Return the run that a command is about: as it is now, or as it was when the same command was given before.

    Raises:
        RunNotFound: there is no such run.
        DamagedLog: its log is not what it must be.
        StoreError: the store cannot be read.
    """
    view = RunView(run_id)
    before = await store.find_event(run_id, request_id) if request_id else None
    bodies = await store.read(run_id)
    view.take_all(bodies if before is None else bodies[: max(1, before[0])])
    return view.folded, view.session


def given_json(text: str, what: str) -> JsonValue:
    """Return the value that a person gave as JSON; `-` reads it from standard input.

    Raises:
        Usage: it is no JSON.
    """
    try:
        return parse_json(sys.stdin.read() if text == "-" else text)
    except InvalidJson as error:
        msg = f"{what} is no JSON: {error.reason}"
        raise Usage(msg) from error


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
