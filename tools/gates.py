"""The gates of `./dev lint`, `check` and `bench`: which commands they are, in which order, and how they are reported.

Each gate is one command and gets one line with its seconds. A gate's own output is shown when it failed or when its
numbers are the point. The tests come last and stream, and pytest's closing line is the last line of all.
A gate that failed says with which exit code: tests that all pass may still end in a crash of the process they ran in.
What a gate demands is configured where its tool looks for it, never here.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
CLOSING = re.compile(r"=+ .* in [\d.]+s\b.* =+\n?")
"""What pytest prints last, when it prints in full."""


@dataclass(frozen=True)
class Gate:
    """One command that must exit 0; `prints` means that its output is worth reading although it passed."""

    name: str
    command: Sequence[str | Path]
    prints: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a gate came to; a negative code is the signal that ended it."""

    name: str
    code: int
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether it exited 0."""
        return self.code == 0

    @property
    def reason(self) -> str:
        """Why it failed, for the end of a line: its exit code as a shell has it, with the signal's name; nothing if it passed."""
        if self.passed:
            return ""
        return f" (exit {self.code})" if self.code > 0 else f" (exit {128 - self.code}: {_signal(-self.code)})"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _environment() -> dict[str, str]:
    """Return the environment of a gate, in which a Python that crashes says where."""
    return {"PYTHONFAULTHANDLER": "1", **os.environ}


LINT = (
    Gate("format", (BIN / "ruff", "format", "--check", "--quiet", ".")),
    Gate("lint", (BIN / "ruff", "check", "--quiet", ".")),
    Gate("types", (BIN / "pyright", "--warnings")),
    Gate("imports", (BIN / "lint-imports", "--no-logo", "--no-cache")),
)
DOCS = Gate("generated docs", (sys.executable, "docs/generate.py", "--check"))
# Two processes, each with whole files: most tests keep one core busy, and those that measure are bounded by amounts, not by time.
TESTS = Gate("tests", ("./dev", "test", "-n", "2", "--dist", "loadfile", "--durations", "15"), prints=True)


def benchmarks(names: Iterable[str] = (), *options: str) -> tuple[Gate, ...]:
    """Return a gate for each script of benchmarks/, or for the named ones."""
    scripts = [ROOT / "benchmarks" / f"{name}.py" for name in names] or sorted((ROOT / "benchmarks").glob("[!_]*.py"))
    return tuple(Gate(f"bench {script.stem}", (sys.executable, script, *options), prints=True) for script in scripts)


def set_up() -> Outcome:
    """Return what making the environment took, as `./dev` measured it."""
    return Outcome("set-up", code=0, seconds=float(os.environ.get("DEV_SETUP_SECONDS", "0")))


def run(gate: Gate) -> Outcome:
    """Run a gate to its end and print its line."""
    begun = time.perf_counter()
    done = subprocess.run(
        gate.command,
        cwd=ROOT,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    outcome = Outcome(gate.name, done.returncode, time.perf_counter() - begun)
    if gate.prints or not outcome.passed:
        print(done.stdout.rstrip())
    print(
        f"{'ok    ' if outcome.passed else 'FAILED'} {outcome.seconds:7.1f} s  {gate.name}{outcome.reason}", flush=True
    )
    return outcome


def run_last(gate: Gate, before: Sequence[Outcome]) -> Outcome:
    """Run the last gate with its output streaming.

    Pytest's closing line is kept for the end: after the shares of all, and after what a process had to say that crashed when its tests were over.
    """
    begun = time.perf_counter()
    held = ""
    with subprocess.Popen(
        gate.command,
        cwd=ROOT,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            shown = line
            if CLOSING.fullmatch(line):
                shown, held = held, line
            print(shown, end="", flush=True)
        code = process.wait()
    outcome = Outcome(gate.name, code, time.perf_counter() - begun)
    print_shares([*before, outcome])
    print(held, end="", flush=True)
    return outcome


def print_shares(outcomes: Sequence[Outcome]) -> None:
    """Print what part of the whole each gate took."""
    total = sum(outcome.seconds for outcome in outcomes)
    print(f"\n{'gate':<20}{'seconds':>9}{'share':>8}")
    for outcome in outcomes:
        failed = "" if outcome.passed else f"  FAILED{outcome.reason}"
        print(f"{outcome.name:<20}{outcome.seconds:>9.1f}{outcome.seconds / total:>8.0%}{failed}")
    print(f"{'all':<20}{total:>9.1f}", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run the gates of a task and return the exit code: 0 if every gate passed."""
    task, *names = arguments
    if task == "lint":
        outcomes = [run(gate) for gate in LINT]
    elif task == "bench":
        outcomes = [run(gate) for gate in benchmarks(names)]
    else:
        outcomes = [set_up(), *(run(gate) for gate in (*LINT, DOCS, *benchmarks((), "--quick")))]
        outcomes.append(run_last(TESTS, outcomes))
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
