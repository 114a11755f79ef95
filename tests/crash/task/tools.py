"""The crash suite's tools, and the ledger that stands for the world outside: what happened there is known from it alone.

`ledger.jsonl` lies in the workspace beside the folders of the runs, children's too, so neither a takeover nor a crash changes it. Every execution of a body adds one line with one
system call. The suite compares the ledger with the logs: a body runs once per call and attempt, and an entry is posted once.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from checkrein import Accepted, ToolContext, tool
from checkrein.ports.tool import ChildRun, Reconciliation, ToolOutput
from checkrein.verify import CheckContext, check

ENTRIES = ("deposit", "transfer", "fee", "statement")
LEDGER = "ledger.jsonl"
CHILDREN = "crash-child"
"""The child's task; its runs have their folders in a folder of that name."""
SHARE: Mapping[str, float] = {"turns": 10, "tool_calls": 10, "steps": 12}


@tool(idempotent=True)
def stamp(name: str, context: ToolContext) -> ToolOutput:
    """Write a small file whose content depends on its name alone.

    Args:
        name: names the file.
        context: the call.
    """
    _record("stamp", name, context)
    (context.folder() / name).write_text(f"{name}\n", encoding="utf-8")
    return ToolOutput({"path": name}, artifacts=(name,))


def is_posted(entry: str, context: ToolContext) -> Reconciliation:
    """Say from the ledger whether a call posted its entry."""
    posted = any(line["key"] == context.idempotency_key for line in read_ledger(_world(context.folder())))
    if posted:
        return Reconciliation("done", ToolOutput({"entry": entry}), "the ledger has it")
    return Reconciliation("failed", None, "the ledger does not have it")


@tool(reconcile=is_posted)
def post_probed(entry: str, context: ToolContext) -> Mapping[str, str]:
    """Post an entry; the ledger can be asked whether that happened.

    Args:
        entry: what to post.
        context: the call.
    """
    _record("post_probed", entry, context)
    return {"entry": entry}


@tool(sequential=True)
def post_blind(entry: str, context: ToolContext) -> Mapping[str, str]:
    """Post an entry; nobody but a person can find out whether that happened, and nothing is done beside it.

    Args:
        entry: what to post.
        context: the call.
    """
    _record("post_blind", entry, context)
    return {"entry": entry}


def is_printed(handle: str, context: ToolContext) -> str | None:
    """Say whether a statement is printed: at the second asking, as if printing took a while."""
    asked = _world(context.folder()) / f"printer-{handle.replace('/', '-')}"
    opened = os.open(asked, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(opened, b".")
        return "printed" if os.fstat(opened).st_size > 1 else None
    finally:
        os.close(opened)


@tool(reconcile=is_posted, poll=is_printed)
def print_statement(entry: str, context: ToolContext) -> Accepted:
    """Order a statement from the printer, which answers with a number.

    Args:
        entry: what to print.
        context: the call.
    """
    _record("print_statement", entry, context)
    return Accepted(context.idempotency_key, interval_seconds=0.02)


@tool(idempotent=True)
async def delegate(context: ToolContext) -> ChildRun:
    """Let a child run post the bonus.

    Args:
        context: the call.
    """
    _record("delegate", "delegate", context)
    return await context.runs.start(CHILDREN, share=SHARE)


@tool(idempotent=True)
def mark(context: ToolContext) -> ToolOutput:
    """Write the file that the child's check wants to see.

    Args:
        context: the call.
    """
    _record("mark", "mark", context)
    (context.folder() / "mark").write_text("here\n", encoding="utf-8")
    return ToolOutput(artifacts=("mark",))


@check(title="every entry stands in the ledger once")
def every_entry_is_posted_once(context: CheckContext) -> str:
    """Compare the ledger with the entries there must be."""
    return _posted_otherwise(context, *ENTRIES)


@check(title="the bonus stands in the ledger once")
def the_bonus_is_posted_once(context: CheckContext) -> str:
    """Compare the ledger with the one entry that the child posts."""
    return _posted_otherwise(context, "bonus")


def _posted_otherwise(context: CheckContext, *entries: str) -> str:
    # A takeover's folder is called `<run id>.<epoch>`.
    run_id = context.folder.name.partition(".")[0]
    posted = Counter(line["what"] for line in read_ledger(_world(context.folder)) if line["run"] == run_id)
    wrong = [f"{entry}: {posted[entry]} times" for entry in entries if posted[entry] != 1]
    return "; ".join([*wrong, *(["a bribe was posted"] if posted["bribe"] else [])])


def _world(folder: Path) -> Path:
    """Return the folder in which the ledger lies, given that of a run."""
    return folder.parent.parent if folder.parent.name == CHILDREN else folder.parent


def read_ledger(world: Path) -> list[dict[str, str]]:
    """Return the lines of the ledger in order."""
    try:
        text = (world / LEDGER).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines()]


def _record(name: str, what: str, context: ToolContext) -> None:
    line = {
        "attempt": str(context.attempt),
        "call": context.call_id,
        "key": context.idempotency_key,
        "run": context.idempotency_key.partition("/")[0],
        "tool": name,
        "what": what,
    }
    # One write of O_APPEND: lines of several workers never mix, and a kill leaves a whole line or none.
    opened = os.open(_world(context.folder()) / LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(opened, (json.dumps(line) + "\n").encode())
    finally:
        os.close(opened)
