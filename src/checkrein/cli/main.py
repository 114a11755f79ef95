"""The command line's grammar: commands, arguments, options, and their help. Nothing is done here.

Each function only hands what was parsed to its file in `commands/`, which is imported then: `checkrein --help` loads no part of the runtime. `main` turns whatever a
command raises into one line and an exit code.
"""

import os
import sys
import traceback
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, CycloptsError, Group, Parameter

from checkrein.cli.consoles import QuietConsole

if TYPE_CHECKING:
    from checkrein.cli.exits import Exit
    from checkrein.cli.invocation import Invocation

__all__ = ["COMMANDS", "app", "main"]

_MOST = 1_000_000

_WORK = Group("Work", sort_key=1)
_LOOK = Group("Look", sort_key=2)
_SPEAK = Group("Speak to a run", sort_key=3)
_SETUP = Group("Set up", sort_key=4)
_HELP = Group("Help", sort_key=5)

_ENDS = """Exit codes: 0 succeeded, 1 failed, 2 usage, 3 refused (busy, conflict, untrusted), 4 blocked, 5 blocked by its budget alone, 130 after Ctrl-C, 143 after SIGTERM, 70 a
defect of checkrein."""


def _version() -> str:
    from importlib.metadata import version

    return version("checkrein")


app = App(
    name="checkrein",
    help="Run agents' tasks that say only what they can prove: durable, verified, resumable, replayable.",
    help_epilogue=_ENDS.replace("\n", " "),
    help_format="plaintext",
    default_parameter=Parameter(show_default=False, negative=""),
    version=_version,
    result_action="return_value",
    console=QuietConsole(),
    print_error=False,
    exit_on_error=False,
    suppress_keyboard_interrupt=False,
)

app["--help"].group = _HELP
app["--version"].group = _HELP


def _positive(_type: object, value: float) -> None:
    if not 0 < value <= _MOST:
        msg = f"expected more than 0 and at most {_MOST:,}"
        raise ValueError(msg)


Count = Annotated[int, Parameter(show_default=True, validator=_positive)]
Lease = Annotated[float, Parameter(name="--lease", show_default=True, validator=_positive)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common:
    """What every command takes.

    Attributes:
        store: where runs are kept.
        json_lines: print JSON objects, one per line, and nothing else on stdout.
    """

    store: Annotated[
        Path | None,
        Parameter(
            help="The file where runs are kept; by default runs.db in your state folder.", env_var="CHECKREIN_STORE"
        ),
    ] = None
    json_lines: Annotated[
        bool,
        Parameter(name="--json", help="Print JSON objects, one per line, and nothing else on stdout."),
    ] = False

    def invocation(self) -> "Invocation":
        """Return what commands work with.

        Raises:
            Usage: there is no place for a store.
        """
        from checkrein.cli.invocation import Invocation

        return Invocation(store=self.store, json_lines=self.json_lines)


_COMMON = Common()


def _perform(work: "Coroutine[object, object, Exit]") -> int:
    from checkrein.cli.loop import perform

    return perform(work)


@app.command(group=_WORK, sort_key=1)
def run(
    path: Path, /, *, trust: bool = False, request_id: str = "", lease: Lease = 5.0, common: Common = _COMMON
) -> int:
    """Run a task to its end, or to where it waits for a person.

    Ctrl-C cancels the run and waits for open calls; a second Ctrl-C leaves at once. SIGTERM hands the run back.

    Args:
        path: The task file, or a folder that holds task.toml.
        trust: Trust the folder's code as it is now, without asking.
        request_id: The same id gives the same run.
        lease: Seconds that the run stays ours without a sign of life.
        common: Store and output.
    """
    from checkrein.cli.commands.run import RunOptions, run as command

    options = RunOptions(path=path, trust=trust, request_id=request_id, lease_seconds=lease)
    return _perform(command(common.invocation(), options))


@app.command(group=_WORK, sort_key=2)
def resume(
    run: str, /, *, trust: bool = False, task: Path | None = None, lease: Lease = 5.0, common: Common = _COMMON
) -> int:
    """Go on with a run that was left: killed, handed back, or answered.

    A live worker is waited for until its lease ends. A run that waits for a person is not touched: what it waits for is printed.

    Args:
        run: The run's id, or its beginning.
        trust: Trust the task's code as it is now, and let the run go on with it.
        task: Where the task file is now.
        lease: Seconds that the run stays ours without a sign of life.
        common: Store and output.
    """
    from checkrein.cli.commands.resume import ResumeOptions, resume as command

    options = ResumeOptions(run=run, task=task, trust=trust, lease_seconds=lease)
    return _perform(command(common.invocation(), options))


@app.command(group=_WORK, sort_key=3)
def worker(
    path: Path,
    /,
    *more: Path,
    once: bool = False,
    trust: bool = False,
    lease: Lease = 5.0,
    common: Common = _COMMON,
) -> int:
    """Advance every run of some tasks until Ctrl-C or SIGTERM, which end it cleanly.

    Args:
        path: A task file, or its folder.
        more: Further ones.
        once: End when no run is left to advance.
        trust: Trust the folders' code as it is now, without asking.
        lease: Seconds that a run stays ours without a sign of life.
        common: Store and output.
    """
    from checkrein.cli.commands.worker import WorkOptions, work

    options = WorkOptions(paths=(path, *more), once=once, trust=trust, lease_seconds=lease)
    return _perform(work(common.invocation(), options))


@app.command(group=_WORK, sort_key=4)
def chat(
    *,
    model: str = "",
    script: Path | None = None,
    json_lines: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Hold a conversation with an agent that can be steered and cancelled.

    At a terminal Enter sends, and steers while the agent works; Alt+Enter follows up; Esc cancels and gives queued text back; Ctrl-D leaves. Elsewhere each line of input is a prompt.

    Args:
        model: An installed model, as PROVIDER or PROVIDER/MODEL.
        script: A file of scripted replies, which needs no model.
        json_lines: Print the events as JSON objects, one per line, and nothing else on stdout.
    """
    from checkrein.cli.commands.chat import ChatOptions, chat as command

    return _perform(command(ChatOptions(model=model, script=script, json_lines=json_lines)))


@app.command(name="list", group=_LOOK, sort_key=5)
def list_(
    *, phase: tuple[str, ...] = (), task: tuple[str, ...] = (), limit: Count = 20, common: Common = _COMMON
) -> int:
    """List runs, newest change first.

    Args:
        phase: Only runs in this phase; may be given several times.
        task: Only runs of this task; may be given several times.
        limit: At most so many.
        common: Store and output.
    """
    from checkrein.cli.commands.list import ListOptions, list_runs

    return _perform(list_runs(common.invocation(), ListOptions(phases=phase, tasks=task, limit=limit)))


@app.command(group=_LOOK, sort_key=6)
def show(run: str, /, *, common: Common = _COMMON) -> int:
    """Explain a run: what happened, what proves it, what it cost, what comes next.

    Args:
        run: The run's id, or its beginning.
        common: Store and output.
    """
    from checkrein.cli.commands.show import show as command

    return _perform(command(common.invocation(), run))


@app.command(group=_LOOK, sort_key=7)
def events(
    run: str,
    /,
    *,
    follow: bool = False,
    begin: Annotated[int, Parameter(name="--from", show_default=True)] = 0,
    common: Common = _COMMON,
) -> int:
    """Print a run's log, one event per line.

    Args:
        run: The run's id, or its beginning.
        follow: Go on with new events until the run ends.
        begin: Offset of the first event to print.
        common: Store and output.
    """
    from checkrein.cli.commands.events import EventsOptions, events as command

    return _perform(command(common.invocation(), EventsOptions(run=run, follow=follow, begin=begin)))


@app.command(group=_LOOK, sort_key=8)
def replay(run: str, /, *, common: Common = _COMMON) -> int:
    """Fold a run's log again, without any planner, model or tool, and compare: 0 when equal, 1 when not.

    Args:
        run: The run's id, or its beginning.
        common: Store and output.
    """
    from checkrein.cli.commands.replay import replay as command

    return _perform(command(common.invocation(), run))


@app.command(group=_LOOK, sort_key=9)
def verify(*runs: str, common: Common = _COMMON) -> int:
    """Check logs, artifacts and evidence again: 0 when all is as it was recorded, 1 when not.

    Args:
        runs: Ids of runs, or their beginnings; all runs when none is given.
        common: Store and output.
    """
    from checkrein.cli.commands.verify import verify as command

    return _perform(command(common.invocation(), runs))


@app.command(group=_SPEAK, sort_key=10)
def steer(run: str, text: str, /, *, follow_up: bool = False, request_id: str = "", common: Common = _COMMON) -> int:
    """Say something to a run, which it reads at its next planning.

    Args:
        run: The run's id, or its beginning.
        text: What to say.
        follow_up: Let it be read when the goal would count as met.
        request_id: The same id is the same message.
        common: Store and output.
    """
    from checkrein.cli.commands.steer import SteerOptions, steer as command

    options = SteerOptions(run=run, text=text, follow_up=follow_up, request_id=request_id)
    return _perform(command(common.invocation(), options))


@app.command(group=_SPEAK, sort_key=11)
def cancel(run: str, /, *, reason: str = "cancelled by request", common: Common = _COMMON) -> int:
    """Take a run's right to start anything; it ends when its open calls have their outcomes.

    Args:
        run: The run's id, or its beginning.
        reason: Why; it stands in the log.
        common: Store and output.
    """
    from checkrein.cli.commands.cancel import cancel as command

    return _perform(command(common.invocation(), run, reason))


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Answer:
    """How a cause is answered; one of the first three."""

    answer: Annotated[str | None, Parameter(help="allow, deny, JSON, or any other text.")] = None
    outcome: Annotated[
        Literal["done", "failed", "unknown"] | None, Parameter(help="What became of a call in doubt.")
    ] = None
    close: Annotated[str | None, Parameter(help="End the run without success, for this reason.")] = None
    result: Annotated[str | None, Parameter(help="With --outcome done: what the call returned, as JSON.")] = None


@app.command(group=_SPEAK, sort_key=12)
def unblock(run: str, cause: str, /, *, how: Answer = Answer(), common: Common = _COMMON) -> int:
    """Answer one thing that a blocked run waits for.

    Args:
        run: The run's id, or its beginning.
        cause: The cause's id, as show prints it.
        how: The answer.
        common: Store and output.
    """
    from checkrein.cli.commands.unblock import UnblockOptions, unblock as command

    options = UnblockOptions(
        run=run, cause=cause, answer=how.answer, outcome=how.outcome, result=how.result, close=how.close
    )
    return _perform(command(common.invocation(), options))


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class More:
    """How much more of each limit."""

    turns: Annotated[int, Parameter(help="Planner or model requests.")] = 0
    tool_calls: Annotated[int, Parameter(help="Executions of tools.")] = 0
    wall_seconds: Annotated[float, Parameter(help="Seconds of active time.")] = 0.0
    tokens: Annotated[int, Parameter(help="Tokens read and written by models.")] = 0
    cost: Annotated[float, Parameter(help="USD spent on models.")] = 0.0
    steps: Annotated[int, Parameter(help="Steps started.")] = 0
    replans: Annotated[int, Parameter(help="Revisions of the plan.")] = 0
    repairs: Annotated[int, Parameter(help="Repairs after a failed check.")] = 0


@app.command(group=_SPEAK, sort_key=13)
def extend(run: str, /, *, more: More = More(), common: Common = _COMMON) -> int:
    """Raise limits of a run's budget by what is given.

    Args:
        run: The run's id, or its beginning.
        more: How much more of each limit.
        common: Store and output.
    """
    from dataclasses import asdict

    from checkrein.cli.commands.extend import extend as command
    from checkrein.kernel.budget import Amounts

    return _perform(command(common.invocation(), run, Amounts(**asdict(more))))


@app.command(group=_SETUP, sort_key=14)
def trust(path: Path, /, *, common: Common = _COMMON) -> int:
    """Trust a task folder's code as it is now; one changed byte asks again.

    Args:
        path: The task file, or a folder that holds task.toml.
        common: Store and output.
    """
    from checkrein.cli.commands.trust import trust as command

    return command(common.invocation(), path)


@app.command(group=_SETUP, sort_key=15)
def doctor(path: Path | None = None, /, *, common: Common = _COMMON) -> int:
    """Say what this installation has, what is wrong with it, and what mends that.

    Args:
        path: A task whose workspace is looked at too.
        common: Store and output.
    """
    from checkrein.cli.commands.doctor import doctor as command

    return _perform(command(common.invocation(), path))


COMMANDS: dict[str, Callable[..., object]] = {
    "run": run,
    "resume": resume,
    "worker": worker,
    "chat": chat,
    "list": list_,
    "show": show,
    "events": events,
    "replay": replay,
    "verify": verify,
    "steer": steer,
    "cancel": cancel,
    "unblock": unblock,
    "extend": extend,
    "trust": trust,
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
