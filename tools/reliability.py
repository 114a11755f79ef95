"""Write RELIABILITY.md: run every test that counts, and say how often what was tried, how often it passed, and with which seed.

Nothing on the page is typed by hand: a number is there because a test has just measured it at the commit that is named.

Usage: ./dev reliability
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "RELIABILITY.md"
APART = "local_model"
"""The folder of tests that need a model of their own, and are run by `./dev test-local-model` alone."""
HEAD = """# Reliability, in counts

Every number here was measured by a test at commit `{commit}`, on {processors} processors, amount × {amount}. `./dev reliability` measures them again;
`CHECKREIN_SEED=N` makes a run of its random parts repeatable, `CHECKREIN_AMOUNT=10` does ten times as much.

| what was tried | times | as promised | seed | more |
|---|---:|---:|---:|---|
"""
TAIL = """
*As promised* means: the outcome was the one documented for that case, nothing acknowledged was lost, nothing happened twice without a record that it might have.
A line in which the two counts differ is a defect.
"""


def counting_tests() -> list[str]:
    """Return the test files that report counts, as far as `./dev test` runs them."""
    return sorted(
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if "counts" in path.read_text(encoding="utf-8") and APART not in path.parts
    )


def measured() -> tuple[int, list[Mapping[str, object]]]:
    """Run the counting tests; return pytest's exit code and what they reported."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder, "counts.jsonl")
        command = [sys.executable, "-m", "pytest", "-q", *counting_tests()]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, "CHECKREIN_COUNTS": str(counts)}, check=False)
        lines = counts.read_text(encoding="utf-8").splitlines() if counts.exists() else []
    return done.returncode, [json.loads(line) for line in lines]


def rows(counts: list[Mapping[str, object]]) -> Iterator[str]:
    """Yield a table row for each count, in order of name."""
    known = {"name", "count", "passed", "seed"}
    for item in sorted(counts, key=lambda count: str(count["name"])):
        more = ", ".join(
            f"{name.replace('_', ' ')} {_shown(value)}" for name, value in item.items() if name not in known
        )
        seed = "" if item.get("seed") is None else item["seed"]
        yield f"| {item['name']} | {_shown(item['count'])} | {_shown(item['passed'])} | {seed} | {more} |"


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def main() -> int:
    """Measure and write the page; the exit code is that of the tests."""
    code, counts = measured()
    git = ["git", "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    head = HEAD.format(
        commit=commit.stdout.strip() or "unknown",
        processors=os.cpu_count(),
        amount=os.environ.get("CHECKREIN_AMOUNT", "1"),
    )
    PAGE.write_text(head + "\n".join(rows(counts)) + "\n" + TAIL, encoding="utf-8")
    print(f"{PAGE.name}: {len(counts)} counts")
    return code


if __name__ == "__main__":
    sys.exit(main())
