"""How does one agent turn compare with the same turn in other agent runtimes?

Each peer is installed into an environment of its own below a cache folder (`$XDG_CACHE_HOME/checkrein/peers`, by default in `~/.cache`), so that none of them is a dependency
of checkrein, and does the work of `work.py` there. The floor, a hand-written loop, and checkrein run in this environment, in the same run. The peers come from the package
registry that pip is configured for; this is the one script here that needs a network, and it is no part of CI or of `./dev bench`.

Usage: .venv/bin/python benchmarks/peers/run.py [PEER…]
"""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "checkrein" / "peers"
INSTALL_SECONDS = 300
RUN_SECONDS = 300
OURS = ("floor", "checkrein")
PEERS: Mapping[str, Sequence[str]] = {
    "agent_framework": ("agent-framework-core",),
    "langgraph": ("langgraph", "langchain-core"),
    "openai_agents": ("openai-agents",),
    "pydantic_ai": ("pydantic-ai-slim",),
}
"""What is installed for each peer."""


@dataclass(frozen=True)
class Row:
    """What one peer came to: microseconds per turn by the number of turns, or why there is nothing."""

    name: str
    version: str = ""
    us_per_turn: Mapping[str, float] = field(default_factory=dict[str, float])
    problem: str = ""


def environment(name: str) -> Path:
    """Return the interpreter of a peer's own environment, making it when it is missing.

    Raises:
        subprocess.CalledProcessError: a package cannot be installed.
        subprocess.TimeoutExpired: that took too long.
    """
    folder = CACHE / f"{name}-{sys.version_info.major}.{sys.version_info.minor}"
    python, done = folder / "bin" / "python", folder / ".installed"
    if not done.exists():
        print(f"installing {' '.join(PEERS[name])} into {folder}", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PEERS[name]]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        done.touch()
    return python


def measured(name: str) -> Row:
    """Run one peer's script."""
    try:
        python = Path(sys.executable) if name in OURS else environment(name)
        command = [python, HERE / f"peer_{name}.py"]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired as error:
        return Row(name, problem=f"not done after {error.timeout:.0f} s")
    except subprocess.CalledProcessError as error:
        return Row(name, problem=str(error.stderr).strip().rpartition("\n")[2] or f"exit code {error.returncode}")
    found = cast("dict[str, object]", json.loads(done.stdout.splitlines()[-1]))
    return Row(name, str(found["version"]), cast("dict[str, float]", found["us_per_turn"]))


def print_table(rows: Sequence[Row]) -> None:
    """Print a row for each peer, with its ratio to the floor of the same number of turns."""
    floor = next(row.us_per_turn for row in rows if row.name == "floor")
    columns = "".join(f"{f'µs/turn at {turns}':>18}{'ratio':>9}" for turns in floor)
    print(f"{'peer':<18}{'version':<12}{columns}")
    for row in rows:
        figures = "".join(
            f"{row.us_per_turn[turns]:>18,.1f}{row.us_per_turn[turns] / floor[turns]:>9,.1f}"
            for turns in floor
            if row.us_per_turn
        )
        print(f"{row.name:<18}{row.version:<12}{figures}{row.problem}")


def main(names: Sequence[str]) -> int:
    """Measure the floor, checkrein and the peers named, all when none is; 1 if one could not be measured."""
    unknown = sorted(set(names) - set(PEERS))
    if unknown:
        print(f"no peer {', '.join(unknown)}; there are {', '.join(PEERS)}", file=sys.stderr)
        return 2
    rows = [measured(name) for name in (*OURS, *(names or PEERS))]
    if rows[0].problem:
        print(f"the floor could not be measured: {rows[0].problem}", file=sys.stderr)
        return 1
    print_table(rows)
    print(json.dumps({"benchmark": "peers", "floor": "floor", "rows": [vars(row) for row in rows]}))
    return 1 if any(row.problem for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
