"""`doctor`: what this installation is and has, what is wrong with it, and what mends that."""

import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from checkrein.cli.exits import Exit, Usage
from checkrein.cli.figures import counted
from checkrein.cli.invocation import Invocation
from checkrein.cli.places import state_folder
from checkrein.cli.resolver import EXTRAS
from checkrein.cli.screen import Screen, shown
from checkrein.cli.tasks import read_folder
from checkrein.cli.trust import TrustList
from checkrein.clock import SystemClock
from checkrein.errors import CheckreinError
from checkrein.providers.failures import redacted
from checkrein.providers.reach import headers_of, list_url, reach
from checkrein.providers.record import public_url
from checkrein.providers.registry import PROVIDERS, Provider

__all__ = ["Finding", "doctor"]

_REACH_SECONDS: Final = 3.0


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at.

    Attributes:
        name: what.
        text: what was found.
        fix: what to do about it; `""` when nothing is wrong.
    """

    name: str
    text: str
    fix: str = ""


async def doctor(invocation: Invocation, path: Path | None, *, online: bool = False) -> Exit:
    """Look at everything; the code is 0 when nothing is wrong.

    Args:
        invocation: store and screen.
        path: a task whose workspace is looked at too.
        online: ask the providers whose key is set; without it only the address that was set for a compatible server is asked.
    """
    screen = invocation.screen
    findings = [
        *_versions(),
        await _store(invocation),
        _trust(),
        *_extras(),
        *[await _provider(provider, online=online) for provider in PROVIDERS.values()],
        _terminal(screen),
        _workspace(path or Path()),
    ]
    width = max(len(item.name) for item in findings)
    for item in findings:
        screen.record({"name": item.name, "ok": not item.fix, "text": item.text, "fix": item.fix})
        screen.line(("✗ ", "red") if item.fix else ("✓ ", "green"), f"{item.name:<{width}}  {shown(item.text)}")
        if item.fix:
            screen.line(shown(item.fix), indent=width + 4)
    wrong = sum(1 for item in findings if item.fix)
    screen.line(f"{wrong} to mend" if wrong else "nothing is wrong")
    if not wrong:
        screen.next_command("run", "PATH")
    return Exit.FAILED if wrong else Exit.SUCCEEDED


def _versions() -> Iterator[Finding]:
    yield Finding("checkrein", version("checkrein"))
    yield Finding("python", f"{platform.python_version()} at {sys.executable}")
    yield Finding("system", f"{platform.system()} {platform.release()}")


async def _store(invocation: Invocation) -> Finding:
    if not invocation.path.exists():
        return _writable("store", invocation.path.parent, f"none yet at {invocation.path}")
    try:
        async with invocation.store() as store:
            report = await store.report()
    except (CheckreinError, OSError) as error:
        return Finding("store", f"{invocation.path} cannot be used", str(error))
    text = f"{report.location}: {counted(report.runs, 'run')}, {counted(report.events, 'event')}, {report.engine}"
    if report.problems:
        fix = "keep the file, restore a backup, or name another one with --store"
        return Finding("store", f"{text}; {'; '.join(report.problems)}", fix)
    return Finding("store", text)


def _trust() -> Finding:
    try:
        path = state_folder() / "trust.json"
        TrustList(path, SystemClock()).holds("")
    except Usage as error:
        return Finding("trust", "trusted tasks cannot be remembered", str(error))
    except (CheckreinError, OSError) as error:
        return Finding("trust", "the list of trusted tasks cannot be read", str(error))
    return Finding("trust", f"{path}" if path.exists() else "no task is trusted yet")


def _extras() -> Iterator[Finding]:
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if find_spec(name) is None]
        if missing:
            # An extra that is missing is a choice, not a fault: a task that needs it says so before it is stored.
            yield Finding(f"extra {extra}", f"not installed; to have it: pip install 'checkrein[{extra}]'")
        else:
            yield Finding(f"extra {extra}", "installed")


async def _provider(provider: Provider, *, online: bool) -> Finding:
    """Say whether a provider is configured, and whether it can be reached; that none is configured is no fault."""
    name = f"model {provider.name}"
    key = os.environ.get(provider.key_variable, "").strip()
    url = os.environ.get(provider.url_variable, "").strip() or provider.base_url
    state = f"{provider.key_variable} is {'set' if key else 'not set'}"
    if not url or (provider.needs_key and not key):
        needed = provider.key_variable if provider.needs_key else f"{provider.url_variable}, or -c base_url=…"
        return Finding(name, f"not configured; it needs {needed}")
    if provider.needs_key and not online:
        return Finding(name, f"{state}; not asked: --online asks whether it is taken")
    found = await reach(list_url(provider, url), headers_of(provider, key), seconds=_REACH_SECONDS, secret=key)
    text = f"{redacted(public_url(url), (key,))} {found.text}; {state}"
    if found.is_there:
        return Finding(name, text)
    return Finding(name, text, f"start the server, or correct {provider.url_variable} and {provider.key_variable}")


def _terminal(screen: Screen) -> Finding:
    console = screen.console
    kind = f"{console.width} columns" if console.is_terminal else "none, so progress is shown as lines"
    colours = (
        "without colours" if console.no_color or not console.color_system else f"with {console.color_system} colours"
    )
    return Finding("terminal", f"{kind}, {console.encoding}, {colours}")


def _workspace(path: Path) -> Finding:
    """Say whether results can be written: into a task's workspace, or the current folder."""
    try:
        folder = path.resolve()
        if path.is_file() or (path / "task.toml").is_file():
            read = read_folder(path)
            task = read.data.get("task")
            named = task.get("workspace", "out") if isinstance(task, dict) else "out"  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            folder = read.folder / str(named)  # pyright: ignore[reportUnknownArgumentType]
    except (CheckreinError, OSError) as error:
        return Finding("workspace", "the task cannot be read", str(error))
    return _writable("workspace", folder, str(folder))


def _writable(name: str, folder: Path, text: str) -> Finding:
    """Say whether files can be made in a folder, or the folder itself."""
    existing = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return Finding(name, f"{text} (can be written)")
    return Finding(
        name, f"{text} cannot be written", f"make {existing} a folder that you may write, or choose another place"
    )
