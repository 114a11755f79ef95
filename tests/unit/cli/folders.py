"""Task folders and command lines for the tests of the command line.

Each folder is a real one, with code of its own that is trusted by its hash; nothing of checkrein is replaced.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from checkrein.cli.main import main

SECONDS = 60

TASK = """\
[task]
name = "{name}"
version = 1
goal = {goal}
planner = "plan.py:plan"
tools = [{tools}]
workspace = "out"
{extra}
[budget]
tool_calls = {tool_calls}
repairs = 0
[[check]]
kind = "file"
path = "note.txt"
"""

WRITE = """\
from checkrein import Step


def plan(goal, history, last_error):
    return [
        Step(id=number, description=f"Write {number}", tool_name="write_file", arguments={"path": "note.txt", "content": "x" * number})
        for number in (1, 2)
    ]
"""

# The tool waits for a file beside its own, so that a test decides when it goes on; each body that began leaves a line.
WAIT = """\
import threading
from pathlib import Path

from checkrein import Step, ToolContext, tool

HERE = Path(__file__).parent


def plan(goal, history, last_error):
    return [
        Step(id="wait", description="Wait for a sign", tool_name="wait"),
        Step(id="write", description="Write", tool_name="write_file", arguments={"path": "note.txt", "content": "x"}),
    ]


@tool
def wait(context: ToolContext) -> str:
    \"\"\"Wait until somebody makes the file `go`.\"\"\"
    with (HERE / "out" / "began").open("a") as file:
        file.write(f"{context.call_id}\\n")
    while not (HERE / "out" / "go").exists():
        threading.Event().wait(0.01)
    return "went on"
"""

# Two steps of one batch, so that both of their calls are asked about at once, by whatever is appended to it.
BATCH = """\
from checkrein import HookAbort, Pause, Step


def plan(goal, history, last_error):
    if last_error:
        return []
    return [
        Step(id=name, description=f"Write {name}", tool_name="write_file", arguments={"path": f"{name}.txt", "content": "x"}, batch="b")
        for name in ("note", "copy")
    ]
"""

POLICY = """

def policy(tool, arguments):
    return "ask"
"""

# The task has no tool `look_up`, so a caller brings what it returns.
PULL = """\
from checkrein import Step


def plan(goal, history, last_error):
    if last_error:
        return []
    return [
        Step(id="look", description="Look up the price", tool_name="look_up", arguments={"what": "price"}),
        Step(id="write", description="Write", tool_name="write_file", arguments={"path": "note.txt", "content": "x"}),
    ]
"""


@dataclass
class Printed:
    """What a command printed and returned."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of stdout."""
        return self.out.splitlines()

    @property
    def records(self) -> list[dict[str, object]]:
        """The JSON objects of stdout, one per line."""
        return [json.loads(line) for line in self.lines]


def toml_text(text: str) -> str:
    """Return any text as a TOML string."""
    return '"' + "".join(mark if mark.isalnum() or mark in " -_." else f"\\U{ord(mark):08x}" for mark in text) + '"'


def task_folder(
    folder: Path,
    *,
    plan: str = WRITE,
    tools: Sequence[str] = ("write_file",),
    extra: str = "",
    tool_calls: int = 10,
    goal: str = "Write a note",
) -> Path:
    """Make a task folder and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    named = ", ".join(f'"{name}"' for name in tools)
    text = TASK.format(name=folder.name, goal=toml_text(goal), tools=named, extra=extra, tool_calls=tool_calls)
    (folder / "task.toml").write_text(text, encoding="utf-8")
    (folder / "plan.py").write_text(plan, encoding="utf-8")
    return folder


def waiting_folder(folder: Path, *, extra: str = "") -> Path:
    """Make a task folder whose first call waits for the file `out/go`."""
    made = task_folder(folder, plan=WAIT, tools=("plan.py:wait", "write_file"), extra=extra)
    (made / "out").mkdir()
    return made


def asking_folder(folder: Path, *, plan: str = BATCH) -> Path:
    """Make a task folder whose policy asks about every call; two calls are open at once."""
    return task_folder(folder, plan=plan + POLICY, extra='policy = "plan.py:policy"')


@dataclass
class Shell:
    """Command lines with a store and a state folder of their own."""

    home: Path
    env: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def store(self) -> Path:
        """The store that commands use."""
        return self.home / "state" / "checkrein" / "runs.db"

    def environment(self) -> dict[str, str]:
        """The environment of a command in a process of its own."""
        return {**os.environ, "XDG_STATE_HOME": str(self.home / "state"), **self.env}

    def start(self, *words: str | Path) -> "subprocess.Popen[str]":
        """Start a command in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "checkrein", *map(str, words)],
            cwd=self.home,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def spawn(self, *words: str | Path) -> Printed:
        """Run a command in a process of its own."""
        return ended(self.start(*words))


def ended(process: "subprocess.Popen[str]") -> Printed:
    """Wait for a process."""
    out, err = process.communicate(timeout=SECONDS)
    return Printed(process.returncode, out, err)


def call(*words: str | Path) -> int:
    """Run a command in this process."""
    return main([str(word) for word in words])


def keys(record: Mapping[str, object]) -> set[str]:
    """Return the keys of a JSON line."""
    return set(record)
