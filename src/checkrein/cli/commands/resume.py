"""`resume`: advance a run that was left, from where its log ends.

Nothing is appended unless somebody may go on: not when the run rests, not when its task's code is another one, not while another worker lives.
"""

import contextlib
from pathlib import Path

import msgspec

from checkrein.cli.asking import can_ask, say_how_to_answer
from checkrein.cli.driving import Driving, DrivingOptions
from checkrein.cli.endings import print_end
from checkrein.cli.exits import Exit, Refused
from checkrein.cli.figures import is_held
from checkrein.cli.invocation import Invocation
from checkrein.cli.models import ModelChoice, Models, stored_choice
from checkrein.cli.questions import questions_of
from checkrein.cli.tasks import compose, demand_trust, home_of, read_folder, refuse_other_code
from checkrein.cli.view import RunView
from checkrein.cli.words import owner_in_words
from checkrein.errors import LeaseHeld
from checkrein.kernel.state import RunState, is_claimable
from checkrein.ports.store import RunStore
from checkrein.runs.task import Task

__all__ = ["ResumeOptions", "resume"]


class ResumeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for.

    Attributes:
        run: the run's id, or its beginning.
        task: where the task is now; None for where it was when the run was stored.
        trust: trust the folder's code as it is now, and let the run go on with it.
        lease_seconds: how long the run stays ours without a renewal.
        asks: ask the person at the terminal for what the run waits for.
        model: which model plans it from here on; none for that of the run.
    """

    run: str
    task: Path | None
    trust: bool
    lease_seconds: float
    asks: bool = False
    model: ModelChoice = ModelChoice()


async def resume(invocation: Invocation, options: ResumeOptions) -> Exit:
    """Advance a run.

    Raises:
        Refused: the task's code is another one and was not accepted; nothing was appended.
        UntrustedTask: nobody has trusted the code; nothing was imported.
        Usage: the task is not where it was, or the model cannot be made.
        TaskError: the model's key is missing; nothing was appended.
        CheckreinError: as `Driving.drive`.
        OSError: likewise.
    """
    screen = invocation.screen
    async with invocation.store() as store, contextlib.AsyncExitStack() as stack:
        run_id = await invocation.find(store, options.run)
        view = RunView(run_id)
        view.take_all(await store.read(run_id))
        state = view.state
        if state is None or (_rests(state, trust=options.trust) and not _asks(invocation, options, view)):
            return print_end(screen, state or await invocation.state(store, run_id))
        folder = read_folder(options.task or home_of(state))
        if not options.trust:
            refuse_other_code(state, folder.code_hash, folder.folder, screen)
        demand_trust(folder, screen, trust=options.trust, command=("resume", run_id, "--trust"))
        models = Models(options.model.over(stored_choice(state.task)))
        stack.push_async_callback(models.aclose)
        whole = compose(folder, models)
        task = _named(whole, state)
        task = task if task is whole else models.planning(task)
        await _accept_code(invocation, store, state=state, task=task)
        how = DrivingOptions("resume", options.lease_seconds, options.asks)
        return await Driving(invocation, store, view=view, task=task, options=how).drive()


def _named(task: Task, state: RunState) -> Task:
    """Return the task of a run: the one of its folder, or one of its children."""
    return next((member for member in task.family() if member.name == state.task.name), task)


def _rests(state: RunState, *, trust: bool) -> bool:
    """Tell whether nobody may go on with the run; accepting changed code is a way to go on."""
    if state.phase.is_terminal:
        return True
    return not is_claimable(state) and not (trust and any(cause.kind == "code_changed" for cause in state.causes))


def _asks(invocation: Invocation, options: ResumeOptions, view: RunView) -> bool:
    """Tell whether the person is to be asked what the run waits for; say how else it is answered when nobody can be asked."""
    if not options.asks or not questions_of(view.folded, view.session):
        return False
    if not can_ask(invocation.screen):
        say_how_to_answer(invocation.screen, view.folded)
        return False
    return True


async def _accept_code(invocation: Invocation, store: RunStore, *, state: RunState, task: Task) -> None:
    """Let the run go on with the task as it is, if it was stored with another one.

    Raises:
        Refused: it is a task of another name.
        LeaseHeld: another worker goes on with the code as it was.
        CheckreinError: the store or the lifecycle refused it.
    """
    if task.name != state.task.name:
        msg = f"run {state.run_id} is of task {state.task.name!r}, and {task.source} is task {task.name!r}; name the right one with --task"
        raise Refused(msg)
    is_same = (task.code_hash, task.version) == (state.code_hash, state.task.version)
    if is_same and all(cause.kind != "code_changed" for cause in state.causes):
        return
    lease = (await store.get(state.run_id)).lease
    if is_held(lease):
        raise LeaseHeld(state.run_id, owner_in_words(lease.owner), lease.expires_in)
    await invocation.commands(store).accept_code(state.run_id, task)
    invocation.screen.note(f"the run goes on with code {task.code_hash[:12]}")
