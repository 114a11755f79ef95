"""`run`: store a run of a task and advance it, and no other run, to where it rests."""

import contextlib
from pathlib import Path

import msgspec

from checkrein.cli.driving import Driving, DrivingOptions
from checkrein.cli.endings import print_end
from checkrein.cli.exits import Exit
from checkrein.cli.invocation import Invocation
from checkrein.cli.models import ModelChoice, Models
from checkrein.cli.tasks import load_trusted, refuse_other_code
from checkrein.cli.view import RunView

__all__ = ["RunOptions", "run"]


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for.

    Attributes:
        path: the task file, or its folder.
        trust: trust the folder's code as it is now.
        request_id: the same id gives the same run; `""` for a new one.
        lease_seconds: how long the run stays ours without a renewal.
        asks: ask the person at the terminal for what the run waits for.
        model: which model plans it; none for the task's own planner.
    """

    path: Path
    trust: bool
    request_id: str
    lease_seconds: float
    asks: bool = False
    model: ModelChoice = ModelChoice()


async def run(invocation: Invocation, options: RunOptions) -> Exit:
    """Run a task.

    Raises:
        UntrustedTask: it brings code that nobody has trusted; nothing was imported or stored.
        TaskError: the task is invalid, or the model's key is missing; nothing was stored.
        Usage: the model cannot be made; nothing was stored.
        Refused: the request id names a run that was stored with other code; nothing was appended.
        CheckreinError: as `Driving.drive`.
        OSError: likewise.
    """
    models = Models(options.model)
    task = load_trusted(options.path, invocation.screen, trust=options.trust, models=models)
    async with contextlib.aclosing(models), invocation.store(must_exist=False) as store:
        run_id = await invocation.commands(store).submit(task, request_id=options.request_id)
        state = await invocation.state(store, run_id)
        if state.phase.is_terminal:
            return print_end(invocation.screen, state)
        refuse_other_code(state, task.code_hash, Path(task.source).parent, invocation.screen)
        driving = Driving(
            invocation,
            store,
            view=RunView(run_id),
            task=task,
            options=DrivingOptions("run", options.lease_seconds, options.asks),
        )
        return await driving.drive()
