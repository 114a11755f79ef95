"""The gates of `./dev lint`, `check` and `bench`: which commands they are, in which order, and how they are reported.

Each gate is one command and gets one line with its seconds. A gate's own output is shown when it failed or when its
numbers are the point. The tests come last and stream, so that pytest's closing line is the last line of all.
What a gate demands is configured where its tool looks for it, never here.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Gate:
    """One command that must exit 0; `prints` means that its output is worth reading although it passed."""

    name: str
    command: Sequence[str | Path]
    prints: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a gate came to."""

    name: str
    passed: bool
    seconds: float


LINT = (
    Gate("format", (BIN / "ruff", "format", "--check", "--quiet", ".")),
    Gate("lint", (BIN / "ruff", "check", "--quiet", ".")),
    Gate("types", (BIN / "pyright", "--warnings")),
    Gate("imports", (BIN / "lint-imports", "--no-logo", "--no-cache")),
)
DOCS = Gate("generated docs", (sys.executable, "docs/generate.py", "--check"))
TESTS = Gate("tests", ("./dev", "test"), prints=True)


def benchmarks(names: Iterable[str] = (), *options: str) -> tuple[Gate, ...]:
    """Return a gate for each script of benchmarks/, or for the named ones."""
    scripts = [ROOT / "benchmarks" / f"{name}.py" for name in names] or sorted((ROOT / "benchmarks").glob("[!_]*.py"))
    return tuple(Gate(f"bench {script.stem}", (sys.executable, script, *options), prints=True) for script in scripts)


def set_up() -> Outcome:
    """Return what making the environment took, as `./dev` measured it."""
    return Outcome("set-up", passed=True, seconds=float(os.environ.get("DEV_SETUP_SECONDS", "0")))


def run(gate: Gate) -> Outcome:
    """Run a gate to its end and print its line."""
    begun = time.perf_counter()
    done = subprocess.run(
        gate.command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    outcome = Outcome(gate.name, done.returncode == 0, time.perf_counter() - begun)
    if gate.prints or not outcome.passed:
        print(done.stdout.rstrip())
    print(f"{'ok    ' if outcome.passed else 'FAILED'} {outcome.seconds:7.1f} s  {gate.name}", flush=True)
    return outcome


def run_last(gate: Gate, before: Sequence[Outcome]) -> Outcome:
    """Run the last gate with its output streaming, and put the shares of all before its closing line."""
    begun = time.perf_counter()
    held = ""
    with subprocess.Popen(
        gate.command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            print(held, end="", flush=True)
            held = line
        code = process.wait()
    outcome = Outcome(gate.name, code == 0, time.perf_counter() - begun)
    print_shares([*before, outcome])
    print(held, end="", flush=True)
    return outcome


def print_shares(outcomes: Sequence[Outcome]) -> None:
    """Print what part of the whole each gate took."""
    total = sum(outcome.seconds for outcome in outcomes)
    print(f"\n{'gate':<20}{'seconds':>9}{'share':>8}")
    for outcome in outcomes:
        failed = "" if outcome.passed else "  FAILED"
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
