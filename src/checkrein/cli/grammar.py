"""What all commands of the command line share: the application, the groups of its help, and the options that every command takes."""

from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Group, Parameter

from checkrein.cli.consoles import QuietConsole

if TYPE_CHECKING:
    from checkrein.cli.exits import Exit
    from checkrein.cli.invocation import Invocation
    from checkrein.cli.models import ModelChoice

__all__ = [
    "ANY_MODEL",
    "COMMON",
    "DRIVE",
    "LOOK",
    "SETUP",
    "SPEAK",
    "WORK",
    "Common",
    "Count",
    "DriveWords",
    "Lease",
    "ModelWords",
    "app",
    "perform",
]

_MOST = 1_000_000

WORK = Group("Work", sort_key=1)
LOOK = Group("Look", sort_key=2)
SPEAK = Group("Speak to a run", sort_key=3)
SETUP = Group("Set up", sort_key=4)
HELP = Group("Help", sort_key=5)

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

app["--help"].group = HELP
app["--version"].group = HELP


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


COMMON = Common()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelWords:
    """Which model is asked, with what settings, and where what it says is kept."""

    model: Annotated[str, Parameter(help="The model that decides, as PROVIDER/MODEL; see checkrein models.")] = ""
    config: Annotated[
        tuple[str, ...],
        Parameter(
            name=["--config", "-c"],
            help="A setting of the model, as key=value; may be given several times. Keys of accounts are read from the environment alone.",
        ),
    ] = ()
    record: Annotated[
        Path | None,
        Parameter(
            help="A new file for everything that goes over the wire, without secrets; --model replay/FILE plays it."
        ),
    ] = None

    def choice(self, *, goes_on: bool = False) -> "ModelChoice":
        """Return what is asked for.

        Raises:
            Usage: a setting is none, or holds a secret.
        """
        from msgspec.structs import replace

        from checkrein.cli.models import read_choice

        return replace(read_choice(self.model, self.config, self.record), goes_on=goes_on)


ANY_MODEL = ModelWords()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DriveWords:
    """How a run is driven."""

    approve: Annotated[
        Literal["ask", "never"],
        Parameter(
            show_default=True,
            help="Whether to ask at this terminal, by a key press, for what the run waits for; it is answered from another process otherwise.",
        ),
    ] = "never"
    lease: Annotated[
        float,
        Parameter(
            show_default=True, validator=_positive, help="Seconds that the run stays ours without a sign of life."
        ),
    ] = 5.0

    @property
    def asks(self) -> bool:
        """Whether to ask."""
        return self.approve == "ask"


DRIVE = DriveWords()


def perform(work: "Coroutine[object, object, Exit]") -> int:
    """Do a command's work on an event loop of its own, and return its exit code."""
    from checkrein.cli.loop import perform as performed

    return performed(work)
