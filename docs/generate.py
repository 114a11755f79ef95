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
from io import StringIO
from pathlib import Path

import msgspec
from rich.console import Console

from checkrein.cli.main import COMMANDS, app
from checkrein.harness.topics import powers_table
from checkrein.kernel.agent import AGENT_MACHINE
from checkrein.kernel.run import RUN_MACHINE
from checkrein.kernel.session import SESSION_MACHINE
from checkrein.providers.failures import BY_STATUS, BY_WORD, Row, Rows
from checkrein.providers.settings import ProviderSettings
from checkrein.providers.stops import STOPS
from checkrein.values import JsonObject

ROOT = Path(__file__).resolve().parent.parent
HELP_COLUMNS = 100
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


def run_diagram() -> str:
    """Return the run's phases and what leads from one to the next."""
    return f"```mermaid\n{RUN_MACHINE.to_mermaid()}```"


def run_table() -> str:
    """Return every event of a run against every phase."""
    return RUN_MACHINE.to_markdown()


def agent_diagram() -> str:
    """Return the agent's phases and what leads from one to the next."""
    return f"```mermaid\n{AGENT_MACHINE.to_mermaid()}```"


def session_diagram() -> str:
    """Return the session's states and what leads from one to the next."""
    return f"```mermaid\n{SESSION_MACHINE.to_mermaid()}```"


def session_table() -> str:
    """Return every event of a session against every state."""
    return SESSION_MACHINE.to_markdown()


def model_failures() -> str:
    """Return every kind of failure of a provider, and by what it is known."""
    rows = [row for row in vars(Rows).values() if isinstance(row, Row)]
    head = ["| code | asked again | meaning | statuses | the provider's own words |", "|---|---|---|---|---|"]
    return "\n".join([*head, *map(_failure, rows)])


def _failure(row: Row) -> str:
    statuses = [str(status) for status, known in sorted(BY_STATUS.items()) if known is row]
    statuses += {Rows.REQUEST: ["any other 4xx"], Rows.UNAVAILABLE: ["any other 5xx"]}.get(row, [])
    words = [f"`{word}`" for word, known in sorted(BY_WORD.items()) if known is row]
    again = "yes" if row.is_transient else "no"
    return f"| `{row.code}` | {again} | {row.meaning} | {', '.join(statuses)} | {', '.join(words)} |"


def stop_reasons() -> str:
    """Return every reason for which a model stops, wire by wire."""
    rows = [
        f"| {wire} | `{word}` | `{stop.reason}` | {stop.meaning} |"
        for wire, words in STOPS.items()
        for word, stop in words.items()
    ]
    return "\n".join(["| wire | its word | ours | meaning |", "|---|---|---|---|", *rows])


def model_settings() -> str:
    """Return every setting of a model, with its default and its meaning."""
    described = re.findall(r"^ +(\w+): (.+)$", ProviderSettings.__doc__ or "", re.MULTILINE)
    defaults = {field.name: field.default for field in msgspec.structs.fields(ProviderSettings)}
    rows = [f"| `{name}` | {_default(defaults[name])} | {meaning.rstrip('.')} |" for name, meaning in described]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows])


def _default(value: object) -> str:
    return "" if value in {None, ""} or isinstance(value, JsonObject) else f"`{value}`"


def cli_help() -> str:
    """Return what `checkrein --help` prints."""
    return _help()


def cli_commands() -> str:
    """Return what `--help` prints for each command, under a heading each."""
    return "\n\n".join(f"## checkrein {name}\n\n{_help(name)}" for name in sorted(COMMANDS))


def _help(*command: str) -> str:
    printed = StringIO()
    console = Console(file=printed, width=HELP_COLUMNS, color_system=None, force_terminal=False)
    app.help_print(command, console=console)
    lines = (line.rstrip() for line in printed.getvalue().strip("\n").splitlines())
    return "\n".join(["```text", *lines, "```"])


BLOCKS: dict[str, Callable[[], str]] = {
    "agent-diagram": agent_diagram,
    "cli-commands": cli_commands,
    "cli-help": cli_help,
    "dev-tasks": dev_tasks,
    "hook-powers": powers_table,
    "model-failures": model_failures,
    "model-settings": model_settings,
    "rooms": rooms,
    "run-diagram": run_diagram,
    "run-table": run_table,
    "session-diagram": session_diagram,
    "session-table": session_table,
    "stop-reasons": stop_reasons,
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
