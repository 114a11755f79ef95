"""`show`: what happened in a run, what proves it, what it cost, and what comes next, for a person."""

from collections.abc import Sequence
from typing import Final

from checkrein.cli.endings import print_end
from checkrein.cli.exits import Exit
from checkrein.cli.figures import budget_rows, checks_of, is_held, local_time, run_folder
from checkrein.cli.invocation import Invocation
from checkrein.cli.progress import MARKS, print_check
from checkrein.cli.screen import Screen, shown
from checkrein.cli.timeline import timeline_of
from checkrein.cli.view import RunView, step_name
from checkrein.cli.words import amounts_in_words, owner_in_words
from checkrein.errors import RunNotFound
from checkrein.kernel.events import BudgetReserved, Event, Received
from checkrein.kernel.state import Phase, RunState
from checkrein.ports.store import Lease, Refusal, RunStore

__all__ = ["show"]

_MEANINGS: Final = {
    Phase.RECEIVED: "stored and valid; nothing was planned yet",
    Phase.PLANNED: "a plan is committed; nothing has run",
    Phase.RUNNING: "work may be granted to whoever holds the lease",
    Phase.VERIFYING: "the work is done; its artifacts are being checked",
    Phase.BLOCKED: "it cannot go on without a new fact or decision",
    Phase.SUCCEEDED: "every required check passed on the artifacts as they were",
    Phase.FAILED: "it ended without success",
}


async def show(invocation: Invocation, run: str) -> Exit:
    """Explain a run; the code is the one by which the run stands.

    Raises:
        RunNotFound: there is no such run.
        DamagedLog: its log is not what it must be.
        StoreError: the store cannot be read.
    """
    screen = invocation.screen
    async with invocation.store() as store:
        run_id = await invocation.find(store, run)
        view = RunView(run_id)
        events = [view.take(body) for body in await store.read(run_id)]
        row, refusals = await store.get(run_id), await store.refusals(run_id)
        children = [await _child_row(store, event.data) for event in events if isinstance(event.data, BudgetReserved)]
    state = view.state or await invocation.state(store, run_id)
    _head(screen, state, events, row.lease)
    _happened(screen, events)
    _plan(screen, view)
    _proof(screen, state)
    _cost(screen, state)
    _effects(screen, state)
    _children(screen, children)
    _refusals(screen, refusals)
    _artifacts(screen, state)
    _section(screen, "how it stands")
    code = print_end(screen, state, with_findings=False, with_next=not state.phase.is_terminal)
    if state.phase.is_terminal:
        screen.next_command("verify", run_id)
    return code


def _section(screen: Screen, title: str) -> None:
    screen.line("")
    screen.line((title, "bold"))


def _head(screen: Screen, state: RunState, events: Sequence[Event], lease: Lease) -> None:
    screen.line((shown(state.task.goal), "bold"))
    received = events[0]
    rows = [
        ("run", state.run_id),
        ("task", f"{shown(state.task.name)}, version {state.task.version}"),
        ("stored", f"{local_time(received.at)} by {shown(received.actor)}"),
        ("last event", f"{local_time(events[-1].at)} at version {state.version}"),
        ("phase", f"{state.phase}: {_MEANINGS[state.phase]}"),
    ]
    if isinstance(received.data, Received) and received.data.fork_of:
        rows.insert(1, ("forked from", f"run {shown(received.data.fork_of)} at {received.data.fork_at}"))
    if state.parent:
        rows.insert(1, ("child of", f"run {shown(state.parent)}"))
    if is_held(lease) and not state.phase.is_terminal:
        rows.append(("held by", f"{shown(owner_in_words(lease.owner))} for another {lease.expires_in:.1f} s"))
    screen.table(rows)


def _happened(screen: Screen, events: Sequence[Event]) -> None:
    _section(screen, "what happened")
    screen.table([(f"{entry.after:8.2f} s", shown(entry.text, limit=400)) for entry in timeline_of(events)])


def _plan(screen: Screen, view: RunView) -> None:
    steps = view.steps()
    if not steps:
        return
    _section(screen, "steps")
    for number, (step, status) in enumerate(steps, start=1):
        screen.line(MARKS[status], f" {number:>2} {shown(step_name(step))}", indent=2)


def _proof(screen: Screen, state: RunState) -> None:
    _section(screen, "what proves it")
    evidence = {item.check: item for item in state.evidence}
    for check in checks_of(state):
        print_check(screen, check, indent=2)
        found = evidence.get(check.spec.id)
        if found is None:
            continue
        if check.passed:
            screen.line(shown(found.measurement), indent=4)
        subject = f"{shown(found.subject)} {found.sha256[:12]}" if found.subject else "the run"
        by = f"{shown(found.verifier)} {shown(found.verifier_version)}"
        screen.line((f"measured by {by} on {subject} at version {found.position}", "dim"), indent=4)


def _cost(screen: Screen, state: RunState) -> None:
    _section(screen, "what it cost of its budget")
    screen.table([(row.label, row.figure) for row in budget_rows(state)])


def _effects(screen: Screen, state: RunState) -> None:
    if not state.effects:
        return
    _section(screen, "what tools were made to do")
    rows = [
        (
            effect.call_id,
            shown(effect.tool),
            effect.status.replace("_", " "),
            f"attempt {effect.attempts}" if effect.attempts > 1 else "",
        )
        for effect in state.effects
    ]
    screen.table(rows)


async def _child_row(store: RunStore, reserved: BudgetReserved) -> tuple[str, str, str, str]:
    """Return a child's id, its task, where it stands, and its share."""
    try:
        phase = (await store.get(reserved.child)).head.phase
    except RunNotFound:
        phase = "not created"
    return reserved.child, shown(reserved.task), phase, f"with {amounts_in_words(reserved.amounts)}"


def _children(screen: Screen, rows: Sequence[tuple[str, str, str, str]]) -> None:
    if rows:
        _section(screen, "child runs")
        screen.table(rows)


def _refusals(screen: Screen, refusals: Sequence[Refusal]) -> None:
    if not refusals:
        return
    _section(screen, "what was refused")
    for item in refusals:
        screen.line(
            f"{local_time(item.at)}  {shown(item.type)} by {shown(item.actor)}: {shown(item.code)}: {shown(item.detail)}",
            indent=2,
        )


def _artifacts(screen: Screen, state: RunState) -> None:
    folder = run_folder(state)
    if not state.artifacts:
        return
    _section(screen, "artifacts")
    for artifact in state.artifacts:
        path = artifact.path if folder is None else str(folder / artifact.path)
        screen.copyable(shown(path), (f"  {artifact.sha256[:12]}", "dim"), indent=2)
