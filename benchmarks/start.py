"""How long do `import checkrein` and `checkrein --help` take over a bare Python?

The floor is `python -c pass`, measured in the same run and interleaved with what it is compared to, so that a busy
machine slows both. Each figure is the smallest of the repetitions: the least disturbed one. Targets: the import at most
0.1 s over the floor, the help at most 0.3 s. The script reports; it exits 1 only when something could not be run.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

REPETITIONS = 15
COMMAND = Path(sys.executable).with_name("checkrein")

CASES = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import checkrein": [sys.executable, "-c", "import checkrein"],
    "checkrein --help": [str(COMMAND), "--help"],
}
FLOOR = "python -c pass"
TARGET_SECONDS_OVER_FLOOR = {"import checkrein": 0.1, "checkrein --help": 0.3}


def seconds(command: list[str]) -> float:
    """Return how long a command takes; CalledProcessError if it fails."""
    begun = time.perf_counter()
    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return time.perf_counter() - begun


def measure() -> dict[str, float]:
    """Return the smallest time of each case in seconds."""
    for command in CASES.values():
        seconds(command)
    rounds = [{name: seconds(command) for name, command in CASES.items()} for _ in range(REPETITIONS)]
    return {name: min(once[name] for once in rounds) for name in CASES}


def main() -> None:
    """Print a table and one line of JSON."""
    best = measure()
    floor = best[FLOOR]
    print(f"{'start':<20}{'seconds':>9}{'over floor':>12}{'ratio':>8}{'target':>9}")
    rows: list[dict[str, object]] = []
    for name, value in best.items():
        target = TARGET_SECONDS_OVER_FLOOR.get(name)
        met = target is None or value - floor <= target
        shown = "" if target is None else f"{target:>8.1f} {'met' if met else 'MISSED'}"
        print(f"{name:<20}{value:>9.3f}{value - floor:>12.3f}{value / floor:>8.1f} {shown}")
        rows.append({"case": name, "seconds": value, "over_floor": value - floor, "ratio": value / floor, "met": met})
    print(json.dumps({"benchmark": "start", "floor": FLOOR, "repetitions": REPETITIONS, "rows": rows}))


if __name__ == "__main__":
    main()
