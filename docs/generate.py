"""Regenerate the generated blocks of README.md, CONTRIBUTING.md and docs/, or check that they are current.

A block is what stands between `<!-- generated: NAME -->` and `<!-- end -->`; `BLOCKS` says who writes it. To add one,
write a function that returns Markdown, name it in `BLOCKS`, put the two comments where the text belongs and run
`./dev docs`. A block comes from code only: never from a clock, a network or the machine it runs on.

Usage: python docs/generate.py [--check]
"""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(?P<head><!-- generated: (?P<name>[\w-]+) -->\n)(?P<body>.*?)(?P<tail><!-- end -->)", re.DOTALL)


def dev_tasks() -> str:
    """Return what `./dev help` prints."""
    done = subprocess.run(["./dev", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    return f"```text\n{done.stdout.rstrip()}\n```"


def rooms() -> str:
    """Return one line for each room of the package: the first line of its docstring."""
    package = ROOT / "src" / "checkrein"
    found = (_room(path) for path in sorted(package.iterdir()))
    lines = [f"| `{name}` | {text} |" for name, text in filter(None, found)]
    return "\n".join(["| room | what lives there |", "|---|---|", *lines])


def _room(path: Path) -> tuple[str, str] | None:
    source = path / "__init__.py" if path.is_dir() else path
    if source.suffix != ".py" or not source.is_file():
        return None
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return (f"{path.name}/" if path.is_dir() else path.name), " ".join(text.partition("\n\n")[0].split())


BLOCKS: dict[str, Callable[[], str]] = {
    "dev-tasks": dev_tasks,
    "rooms": rooms,
}


def pages() -> Iterator[Path]:
    """Yield every page that may hold a generated block."""
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted((ROOT / "docs").rglob("*.md"))


def regenerated(text: str) -> str:
    """Return a page's text with every block written anew.

    Raises:
        LookupError: nobody generates a block of that name.
    """
    unknown = {found["name"] for found in BLOCK.finditer(text)} - set(BLOCKS)
    if unknown:
        msg = f"nobody generates {', '.join(sorted(unknown))}; the blocks are {', '.join(sorted(BLOCKS))}"
        raise LookupError(msg)
    return BLOCK.sub(lambda found: f"{found['head']}{BLOCKS[found['name']]()}\n{found['tail']}", text)


def main(arguments: Sequence[str]) -> int:
    """Rewrite the pages, or with --check only say which are stale and return 1."""
    check = list(arguments) == ["--check"]
    if arguments and not check:
        print(__doc__, file=sys.stderr)
        return 2
    stale = 0
    for page in pages():
        old = page.read_text(encoding="utf-8")
        new = regenerated(old)
        if new == old:
            continue
        stale += 1
        print(f"{page.relative_to(ROOT)}: {'stale; run ./dev docs' if check else 'rewritten'}")
        if not check:
            page.write_text(new, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
