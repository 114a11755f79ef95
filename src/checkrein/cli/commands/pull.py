"""`pull`: what a run, or any run of the store, waits for from a caller, as JSON for a program in another process."""

from typing import Final

import msgspec

from checkrein.cli.exits import Exit, exit_of
from checkrein.cli.invocation import Invocation
from checkrein.cli.shapes import pull_record
from checkrein.cli.view import RunView
from checkrein.kernel.state import Phase
from checkrein.ports.store import RunQuery, RunStore
from checkrein.runs.commands import RunPull, pull_at

__all__ = ["PullOptions", "pull"]

_LOOK_SECONDS: Final = 0.25
_ALL: Final = 1_000_000
_WAITS: Final = "nothing is asked yet; waiting"


class PullOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for.

    Attributes:
        run: the run's id, or its beginning; `""` for every run.
        wait: wait until something is asked, or the run ended.
    """

    run: str
    wait: bool


async def pull(invocation: Invocation, options: PullOptions) -> Exit:
    """Print what is asked; the code is 0 when anything is, else that of the run.

    Raises:
        RunNotFound: there is no such run.
        DamagedLog: a log is not what it must be.
        StoreError: the store cannot be read.
    """
    async with invocation.store() as store:
        if not options.run:
            return await _all(invocation, store, wait=options.wait)
        view = RunView(await invocation.find(store, options.run))
        await view.catch_up(store)
        if options.wait and not _is_over(view):
            invocation.screen.note(_WAITS)
        while options.wait and not _is_over(view):
            await view.wait_for_news(store)
        found = pull_at(view.folded, view.session)
        invocation.screen.record(pull_record(found))
        return exit_of(view.folded) if found.pull is None else Exit.SUCCEEDED


def _is_over(view: RunView) -> bool:
    """Tell whether there is no reason to wait: something is asked, or never will be."""
    return view.folded.phase.is_terminal or pull_at(view.folded, view.session).pull is not None


async def _all(invocation: Invocation, store: RunStore, *, wait: bool) -> Exit:
    """Print every open pull of the store."""
    known: dict[str, int] = {}
    has_said = False
    while True:
        pulls = await _pulls(store, known)
        for found in pulls:
            invocation.screen.record(pull_record(found))
        if pulls or not wait:
            return Exit.SUCCEEDED
        if not has_said:
            invocation.screen.note(_WAITS)
            has_said = True
        await invocation.clock.sleep(_LOOK_SECONDS)


async def _pulls(store: RunStore, known: dict[str, int]) -> list[RunPull]:
    """Return the open pulls of runs that have changed since `known`, oldest change first."""
    rows = await store.list_runs(RunQuery(phases=(Phase.RUNNING, Phase.BLOCKED), limit=_ALL))
    pulls: list[RunPull] = []
    for row in reversed(rows):
        if known.get(row.run_id) == row.version:
            continue
        known[row.run_id] = row.version
        view = RunView(row.run_id)
        await view.catch_up(store)
        found = pull_at(view.folded, view.session)
        pulls += [found] if found.pull is not None else []
    return pulls
