"""`list`: the runs of a store, newest change first."""

import msgspec

from checkrein.cli.exits import Exit, Usage
from checkrein.cli.figures import is_held, local_time
from checkrein.cli.invocation import Invocation
from checkrein.cli.screen import shown
from checkrein.cli.shapes import row_record
from checkrein.kernel.state import Phase
from checkrein.ports.store import RunQuery, RunRow

__all__ = ["ListOptions", "list_runs"]


class ListOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for.

    Attributes:
        phases: only runs in one of these phases, in upper or lower case.
        tasks: only runs of one of these tasks.
        limit: at most so many.
    """

    phases: tuple[str, ...]
    tasks: tuple[str, ...]
    limit: int


async def list_runs(invocation: Invocation, options: ListOptions) -> Exit:
    """List runs.

    Raises:
        Usage: there is no such phase.
        StoreError: the store cannot be read.
    """
    phases = tuple(_phase(name) for name in options.phases)
    screen = invocation.screen
    if not invocation.path.exists():
        screen.line(f"no runs yet; there is no store at {shown(invocation.path)}")
        screen.next_command("run", "PATH")
        return Exit.SUCCEEDED
    async with invocation.store() as store:
        rows = await store.list_runs(RunQuery(phases=phases, tasks=options.tasks, limit=options.limit))
    for row in rows:
        screen.record(row_record(row))
    if not rows:
        screen.line("no runs" if phases or options.tasks else "no runs yet")
        screen.next_command("run", "PATH")
        return Exit.SUCCEEDED
    screen.table([_cells(row) for row in rows], indent=0)
    screen.next_command("show", rows[0].run_id)
    return Exit.SUCCEEDED


def _phase(name: str) -> str:
    if name.upper() not in Phase.__members__:
        msg = f"there is no phase {name!r}; phases are {', '.join(Phase)}"
        raise Usage(msg)
    return name.upper()


def _cells(row: RunRow) -> tuple[str, ...]:
    held = "  (held)" if is_held(row.lease) and not row.head.is_terminal else ""
    return (
        row.run_id,
        row.head.phase,
        local_time(row.head.updated_at),
        shown(row.head.task),
        f"{shown(row.head.goal, limit=200)}{held}",
    )
