"""`verify`: check a store's logs and the runs' artifacts again, without changing anything.

Per run: its log replays to the recorded state, every artifact still has the bytes that were recorded, and a success still has evidence for every required check.
"""

import asyncio
from pathlib import Path

from checkrein.cli.exits import Exit
from checkrein.cli.figures import counted, run_folder
from checkrein.cli.invocation import Invocation
from checkrein.cli.screen import Screen, shown
from checkrein.errors import CheckreinError, DamagedStore
from checkrein.kernel.state import Phase, RunState
from checkrein.ports.store import RunQuery, RunStore
from checkrein.runs.replay import replay_run
from checkrein.runs.workspace import digest_of

__all__ = ["problems_of", "verify"]

_PAGE = 1_000_000


async def verify(invocation: Invocation, runs: tuple[str, ...]) -> Exit:
    """Verify some runs, or all; the code is 0 when all is as it was recorded.

    Raises:
        RunNotFound: there is no such run.
        StoreError: the store cannot be opened.
    """
    screen = invocation.screen
    async with invocation.store() as store:
        try:
            damage = () if runs else (await store.report()).problems
            wanted = [await invocation.find(store, run) for run in runs] or [
                row.run_id for row in await store.list_runs(RunQuery(limit=_PAGE))
            ]
        except DamagedStore as error:
            damage, wanted = (error.message,), []
        for problem in damage:
            screen.record({"run_id": None, "equal": False, "problems": [problem]})
            screen.line(("✗", "red"), f" the store: {shown(problem)}")
        differing = [run_id for run_id in wanted if not await _verify_one(screen, store, run_id)]
    screen.line(f"{len(wanted) - len(differing)} of {len(wanted)} runs are as they were recorded")
    screen.next_command(*(("show", differing[0]) if differing else ("list",)))
    return Exit.FAILED if differing or damage else Exit.SUCCEEDED


async def _verify_one(screen: Screen, store: RunStore, run_id: str) -> bool:
    try:
        found = await replay_run(store, run_id)
        state, problems = found.state, await asyncio.to_thread(problems_of, found.state)
        if found.divergence is not None:
            problems = (f"the log diverges at offset {found.divergence.offset}: {found.divergence.reason}", *problems)
    except CheckreinError as error:
        state, problems = None, (error.message,)
    screen.record({"run_id": run_id, "equal": not problems, "problems": list(problems)})
    facts = "" if state is None else (
        f" {state.phase} · {counted(state.version, 'event')} · {counted(len(state.artifacts), 'artifact')}"
    )  # fmt: skip
    screen.line(("✗", "red") if problems else ("✓", "green"), f" {run_id}{facts}")
    for problem in problems:
        screen.line(shown(problem), indent=2)
    return not problems


def problems_of(state: RunState | None) -> tuple[str, ...]:
    """Return what is wrong with a run's artifacts and evidence; artifacts are not looked at while a call may be writing them."""
    if state is None:
        return ()
    folder = run_folder(state)
    artifacts = () if state.open_calls or folder is None else _artifact_problems(state, folder)
    return (*artifacts, *_evidence_problems(state))


def _artifact_problems(state: RunState, folder: Path) -> tuple[str, ...]:
    if state.artifacts and not folder.is_dir():
        return (f"the folder {folder} with its artifacts is gone",)
    found = ((artifact, digest_of(folder, artifact.path)) for artifact in state.artifacts)
    return tuple(
        f"{artifact.path} is gone" if not digest else f"{artifact.path} has other bytes than those recorded"
        for artifact, digest in found
        if digest != artifact.sha256
    )


def _evidence_problems(state: RunState) -> tuple[str, ...]:
    if state.phase is not Phase.SUCCEEDED:
        return ()
    proved = {item.check for item in state.evidence if item.passed}
    missing = [f"nothing proves {check.id}" for check in state.task.checks if check.id not in proved]
    recorded = {artifact.path: artifact.sha256 for artifact in state.artifacts}
    stale = [
        f"the evidence for {item.check} is about other bytes of {item.subject}"
        for item in state.evidence
        if item.subject and recorded.get(item.subject) != item.sha256
    ]
    return (*missing, *stale)
