"""The command line's grammar: commands, arguments, options, and their help. Nothing is done here.

Each function only hands what was parsed to its file in `commands/`, which is imported then: `checkrein --help` loads no part of the runtime. `main` turns whatever a
command raises into one line and an exit code.
"""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import CycloptsError, Parameter

from checkrein.cli.grammar import (
    ANY_MODEL,
    COMMON,
    DRIVE,
    LOOK,
    SETUP,
    SPEAK,
    WORK,
    Common,
    Count,
    DriveWords,
    Lease,
    ModelWords,
    app,
    perform,
)
from checkrein.cli.speaking import SPEAKING, USAGES

__all__ = ["COMMANDS", "app", "main"]


@app.command(group=WORK, sort_key=1)
def run(
    path: Path,
    /,
    *,
    trust: bool = False,
    request_id: str = "",
    model: ModelWords = ANY_MODEL,
    drive: DriveWords = DRIVE,
    common: Common = COMMON,
) -> int:
    """Run a task to its end, or to where it waits for a person.

    Ctrl-C cancels the run and waits for open calls; a second Ctrl-C leaves at once. SIGTERM hands the run back.

    Args:
        path: The task file, or a folder that holds task.toml.
        trust: Trust the folder's code as it is now, without asking.
        request_id: The same id gives the same run.
        model: Which model decides, in place of the task's planner.
        drive: How the run is driven.
        common: Store and output.
    """
    from checkrein.cli.commands.run import RunOptions, run as command

    options = RunOptions(
        path=path, trust=trust, request_id=request_id, lease_seconds=drive.lease, asks=drive.asks, model=model.choice()
    )
    return perform(command(common.invocation(), options))


@app.command(group=WORK, sort_key=2)
def resume(
    run: str,
    /,
    *,
    trust: bool = False,
    task: Path | None = None,
    model: ModelWords = ANY_MODEL,
    drive: DriveWords = DRIVE,
    common: Common = COMMON,
) -> int:
    """Go on with a run that was left: killed, handed back, or answered.

    A live worker is waited for until its lease ends. A run that waits for a person is not touched: what it waits for is printed, or asked for with --approve ask.

    Args:
        run: The run's id, or its beginning.
        trust: Trust the task's code as it is now, and let the run go on with it.
        task: Where the task file is now.
        model: Which model decides from here on; without it the one that the run was stored with, or the task's planner.
        drive: How the run is driven.
        common: Store and output.
    """
    from checkrein.cli.commands.resume import ResumeOptions, resume as command

    choice = model.choice(goes_on=True)
    options = ResumeOptions(run=run, task=task, trust=trust, lease_seconds=drive.lease, asks=drive.asks, model=choice)
    return perform(command(common.invocation(), options))


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Fork:
    """Where a run is forked, and what is different from there on."""

    at: Annotated[
        int | None, Parameter(help="How many events to keep; without it the offsets that are possible are listed.")
    ] = None
    message: Annotated[str, Parameter(help="What the fork's next planning is told.")] = ""
    task: Annotated[
        Path | None,
        Parameter(help="The task file, or its folder, that the fork goes on with; by default the run's own."),
    ] = None
    request_id: Annotated[str, Parameter(help="The same id gives the same fork.")] = ""


@app.command(group=WORK, sort_key=2.5)
def fork(
    run: str,
    /,
    *,
    how: Fork = Fork(),
    trust: bool = False,
    model: ModelWords = ANY_MODEL,
    drive: DriveWords = DRIVE,
    common: Common = COMMON,
) -> int:
    """Start a new run from the first events of another one, and go on with it: what they did is kept and not done again.

    The other run is not changed. Without --at it is only listed where it can be forked.

    Args:
        run: The run's id, or its beginning.
        how: Where, and what is different.
        trust: Trust the task's code as it is now, and let the fork go on with it.
        model: Which model decides in the fork; without it the one that the run was stored with, or the task's planner.
        drive: How the fork is driven.
        common: Store and output.
    """
    from dataclasses import asdict

    from checkrein.cli.commands.fork import ForkOptions, fork as command

    options = ForkOptions(
        run=run, **asdict(how), trust=trust, lease_seconds=drive.lease, asks=drive.asks, model=model.choice()
    )
    return perform(command(common.invocation(), options))


@app.command(group=WORK, sort_key=3)
def worker(
    path: Path,
    /,
    *more: Path,
    once: bool = False,
    trust: bool = False,
    lease: Lease = 5.0,
    model: ModelWords = ANY_MODEL,
    common: Common = COMMON,
) -> int:
    """Advance every run of some tasks until Ctrl-C or SIGTERM, which end it cleanly.

    Args:
        path: A task file, or its folder.
        more: Further ones.
        once: End when no run is left to advance.
        trust: Trust the folders' code as it is now, without asking.
        lease: Seconds that a run stays ours without a sign of life.
        model: Which model decides; without it the one that each run was stored with, or its task's planner.
        common: Store and output.
    """
    from checkrein.cli.commands.worker import WorkOptions, work

    options = WorkOptions(paths=(path, *more), once=once, trust=trust, lease_seconds=lease, model=model.choice())
    return perform(work(common.invocation(), options))


@app.command(group=WORK, sort_key=4)
def chat(
    *,
    model: ModelWords = ANY_MODEL,
    script: Path | None = None,
    json_lines: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Hold a conversation with an agent that can be steered and cancelled.

    At a terminal Enter sends, and steers while the agent works; Alt+Enter follows up; Esc cancels and gives queued text back; Ctrl-D leaves. Elsewhere each line of input is a prompt.

    Args:
        model: Which model answers.
        script: A file of scripted replies, which needs no model.
        json_lines: Print the events as JSON objects, one per line, and nothing else on stdout.
    """
    from checkrein.cli.commands.chat import ChatOptions, chat as command

    return perform(command(ChatOptions(model=model.choice(), script=script, json_lines=json_lines)))


@app.command(name="list", group=LOOK, sort_key=5)
def list_(
    *, phase: tuple[str, ...] = (), task: tuple[str, ...] = (), limit: Count = 20, common: Common = COMMON
) -> int:
    """List runs, newest change first.

    Args:
        phase: Only runs in this phase; may be given several times.
        task: Only runs of this task; may be given several times.
        limit: At most so many.
        common: Store and output.
    """
    from checkrein.cli.commands.list import ListOptions, list_runs

    return perform(list_runs(common.invocation(), ListOptions(phases=phase, tasks=task, limit=limit)))


@app.command(group=LOOK, sort_key=6)
def show(run: str, /, *, common: Common = COMMON) -> int:
    """Explain a run: what happened, what proves it, what it cost, what comes next.

    Args:
        run: The run's id, or its beginning.
        common: Store and output.
    """
    from checkrein.cli.commands.show import show as command

    return perform(command(common.invocation(), run))


@app.command(group=LOOK, sort_key=7)
def events(
    run: str,
    /,
    *,
    follow: bool = False,
    begin: Annotated[int, Parameter(name="--from", show_default=True)] = 0,
    common: Common = COMMON,
) -> int:
    """Print a run's log, one event per line.

    Args:
        run: The run's id, or its beginning.
        follow: Go on with new events until the run ends.
        begin: Offset of the first event to print.
        common: Store and output.
    """
    from checkrein.cli.commands.events import EventsOptions, events as command

    return perform(command(common.invocation(), EventsOptions(run=run, follow=follow, begin=begin)))


@app.command(group=LOOK, sort_key=8)
def replay(run: str, /, *, common: Common = COMMON) -> int:
    """Fold a run's log again, without any planner, model or tool, and compare: 0 when equal, 1 when not.

    Args:
        run: The run's id, or its beginning.
        common: Store and output.
    """
    from checkrein.cli.commands.replay import replay as command

    return perform(command(common.invocation(), run))


@app.command(group=LOOK, sort_key=9)
def verify(*runs: str, common: Common = COMMON) -> int:
    """Check logs, artifacts and evidence again: 0 when all is as it was recorded, 1 when not.

    Args:
        runs: Ids of runs, or their beginnings; all runs when none is given.
        common: Store and output.
    """
    from checkrein.cli.commands.verify import verify as command

    return perform(command(common.invocation(), runs))


for _place, (_name, _command) in enumerate(SPEAKING.items()):
    app.command(_command, name=_name, group=SPEAK, sort_key=_place, usage=USAGES.get(_name))


@app.command(group=SETUP, sort_key=14)
def trust(path: Path, /, *, common: Common = COMMON) -> int:
    """Trust a task folder's code as it is now; one changed byte asks again.

    Args:
        path: The task file, or a folder that holds task.toml.
        common: Store and output.
    """
    from checkrein.cli.commands.trust import trust as command

    return command(common.invocation(), path)


@app.command(group=SETUP, sort_key=15)
def models(provider: str = "", /, *, common: Common = COMMON) -> int:
    """List who serves models, what each needs, and whether it is there; with PROVIDER the models whose price is known.

    Args:
        provider: One of those that are listed without it.
        common: Store and output.
    """
    from checkrein.cli.commands.models import models as command

    return perform(command(common.invocation(), provider))


@app.command(group=SETUP, sort_key=16)
def doctor(path: Path | None = None, /, *, online: bool = False, common: Common = COMMON) -> int:
    """Say what this installation has, what is wrong with it, and what mends that.

    Args:
        path: A task whose workspace is looked at too.
        online: Ask the providers whose key is set whether they take it; costs nothing.
        common: Store and output.
    """
    from checkrein.cli.commands.doctor import doctor as command

    return perform(command(common.invocation(), path, online=online))


COMMANDS: dict[str, Callable[..., object]] = {
    "run": run,
    "resume": resume,
    "fork": fork,
    "worker": worker,
    "chat": chat,
    "list": list_,
    "show": show,
    "events": events,
    "replay": replay,
    "verify": verify,
    **SPEAKING,
    "trust": trust,
    "models": models,
    "doctor": doctor,
}
"""Every command by name, in the order of the help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what a command line says.

    Args:
        arguments: the words after `checkrein`; those of this process when not given.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result: object = app(words)
    except CycloptsError as error:
        return _report(str(error), 2, _help_for(words))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0
    except Exception as error:  # noqa: BLE001  the last door: nothing leaves as a traceback
        return _failed(error)
    if not isinstance(result, int):
        return 0
    from checkrein.cli.loop import leave

    return leave(int(result))


def _help_for(words: Sequence[str]) -> str:
    known = words[0] if words and words[0] in COMMANDS else ""
    return f"see checkrein {known} --help" if known else "see checkrein --help"


def _failed(error: Exception) -> int:
    from checkrein.cli.exits import Exit, exit_of_error
    from checkrein.cli.loop import leave

    if os.environ.get("CHECKREIN_DEBUG"):
        traceback.print_exception(error)
    code = exit_of_error(error)
    if code is not Exit.DEFECT:
        return leave(_report(str(error), code))
    hint = "this is a defect of checkrein; CHECKREIN_DEBUG=1 shows where"
    return leave(_report(f"{type(error).__name__}: {error}", code, hint))


def _report(message: str, code: int, hint: str = "") -> int:
    from checkrein.cli.screen import Screen

    Screen().error(message, hint)
    return code
