"""`fork`: start a new run from the first events of another one, say what was kept and what may be done again, and advance the new run."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from checkrein.cli.driving import Driving, DrivingOptions
from checkrein.cli.endings import print_end
from checkrein.cli.exits import Exit, Usage
from checkrein.cli.figures import counted
from checkrein.cli.invocation import Invocation
from checkrein.cli.models import ModelChoice, Models, stored_choice
from checkrein.cli.places import user_name
from checkrein.cli.screen import Screen, shown
from checkrein.cli.shapes import cut_record, fork_record
from checkrein.cli.tasks import compose, demand_trust, home_of, read_folder, refuse_other_code
from checkrein.cli.view import RunView
from checkrein.cli.words import words
from checkrein.kernel.events import CodeAccepted, Event
from checkrein.kernel.state import Phase
from checkrein.ports.store import RunStore
from checkrein.runs.fork import ForkResult, Forks
from checkrein.runs.task import Task

__all__ = ["ForkOptions", "fork"]


class ForkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for.

    Attributes:
        run: the run's id, or its beginning.
        at: how many events to keep; None to list what is possible.
        message: what the fork's next planning is told; `""` for nothing.
        task: the task to go on with; None for the run's own.
        trust: trust the task's code as it is now, and let the fork go on with it.
        request_id: the same id gives the same fork; `""` for a new one.
        lease_seconds: how long the fork stays ours without a renewal.
        asks: ask the person at the terminal for what the fork waits for.
        model: which model plans the fork; none for that of the run, or the task's own planner.
    """

    run: str
    at: int | None
    message: str
    task: Path | None
    trust: bool
    request_id: str
    lease_seconds: float
    asks: bool = False
    model: ModelChoice = ModelChoice()


async def fork(invocation: Invocation, options: ForkOptions) -> Exit:
    """Fork a run.

    Raises:
        Usage: something is to be different and no offset is given, or the task is not where it was.
        ForkRefused: the run cannot be forked there; nothing was stored.
        Refused: the task's code is another one and was not accepted; nothing was stored.
        UntrustedTask: nobody has trusted the code; nothing was imported.
        TaskError: the task is invalid; nothing was stored.
        CheckreinError: as `Driving.drive`.
        OSError: likewise.
    """
    if options.at is None and (options.message or options.task or options.request_id or options.trust):
        msg = "say with --at how many events to keep; without any other option the offsets that are possible are listed"
        raise Usage(msg)
    async with invocation.store() as store, contextlib.AsyncExitStack() as stack:
        run_id = await invocation.find(store, options.run)
        forks = Forks(store, clock=invocation.clock, ids=invocation.ids, actor=f"user:{user_name()}")
        if options.at is None:
            return await _list(invocation.screen, forks, run_id)
        models = Models(options.model.over(stored_choice((await invocation.state(store, run_id)).task)))
        stack.push_async_callback(models.aclose)
        task = await _task_for(invocation, store, run_id, options, models)
        made = await forks.fork(
            run_id, task, at=options.at, message=options.message, request_id=options.request_id
        )  # fmt: skip
        _print_made(invocation.screen, made, options)
        return await _go_on(invocation, store, made=made, task=task, options=options)


async def _list(screen: Screen, forks: Forks, run_id: str) -> Exit:
    cuts = await forks.cuts(run_id)
    for cut in cuts:
        text = words(cut.last)
        screen.record(cut_record(cut, text))
        screen.line((f"{cut.at:>5}  ", "bold"), (f"{cut.state.phase:<10}  ", "dim"), f"after {shown(text, limit=200)}")
    screen.next_command("fork", run_id, "--at", str(cuts[-1].at))
    return Exit.SUCCEEDED


async def _task_for(invocation: Invocation, store: RunStore, run_id: str, options: ForkOptions, models: Models) -> Task:
    """Return the task that the fork goes on with, once it may run: a named one like any task, the run's own only with code that the run has had, unless it is trusted now."""
    screen = invocation.screen
    view = RunView(run_id)
    events = [view.take(body) for body in await store.read(run_id)]
    again = _typed(run_id, options)
    folder = read_folder(options.task or home_of(view.folded))
    if options.task is None and not options.trust and folder.code_hash not in _hashes(view, events):
        refuse_other_code(view.folded, folder.code_hash, folder.folder, screen, again)
    demand_trust(folder, screen, trust=options.trust, command=again)
    return compose(folder, models)


def _hashes(view: RunView, events: Sequence[Event]) -> set[str]:
    """Return every code that was a run's at some time."""
    accepted = {event.data.code_hash for event in events if isinstance(event.data, CodeAccepted)}
    return {view.folded.task.code_hash, *accepted}


def _typed(run_id: str, options: ForkOptions) -> tuple[str, ...]:
    """Return what to type to do the same and trust the code."""
    named = (("--message", options.message), ("--task", str(options.task or "")), ("--request-id", options.request_id))
    given = (word for name, value in named if value for word in (name, value))
    return ("fork", run_id, "--at", str(options.at), *given, "--trust")


def _print_made(screen: Screen, made: ForkResult, options: ForkOptions) -> None:
    """Say what the fork is made of, and what a person should know before it works."""
    screen.record(fork_record(made))
    kept = f"{counted(made.fork_at, 'event')} kept, {counted(made.calls_kept, 'call')} not made again"
    again = "; the fork was there already" if made.is_known else ""
    screen.line(f"forked from {made.fork_of} at {made.fork_at}: {kept}{again}")
    if made.made_after:
        screen.line((f"run {made.fork_of} did this afterwards, and the fork may do it again:", "yellow"))
        screen.table([
            (effect.call_id, shown(effect.tool), effect.status.replace("_", " ")) for effect in made.made_after
        ])  # fmt: skip
    for artifact in made.missing:
        text = f"{shown(artifact.path)} was not copied: its bytes are not those that were recorded any more"
        screen.line((text, "yellow"))
    if options.message and Phase.VERIFYING in {made.state.phase, made.state.blocked_from}:
        screen.line(("the work was done at this offset: the message is read only if a check fails", "yellow"))


async def _go_on(
    invocation: Invocation, store: RunStore, *, made: ForkResult, task: Task, options: ForkOptions
) -> Exit:
    """Advance the fork; what it has from the other run is not shown again.

    Raises:
        Refused: it was there already, with other code.
    """
    view = RunView(made.run_id)
    view.take_all(await store.read(made.run_id))
    state = view.folded
    if state.phase.is_terminal:
        return print_end(invocation.screen, state)
    refuse_other_code(state, task.code_hash, Path(task.source).parent, invocation.screen)
    how = DrivingOptions("fork", options.lease_seconds, options.asks)
    return await Driving(invocation, store, view=view, task=task, options=how).drive()
