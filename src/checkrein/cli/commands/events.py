"""`events`: the log of a run, one event per line, as it is and as it grows."""

import asyncio

import msgspec

from checkrein.cli.exits import Exit, Usage
from checkrein.cli.figures import local_time
from checkrein.cli.invocation import Invocation
from checkrein.cli.screen import Screen, shown
from checkrein.cli.shapes import event_record
from checkrein.cli.view import RunView
from checkrein.cli.words import words
from checkrein.kernel.events import Event
from checkrein.ports.store import RunStore

__all__ = ["EventsOptions", "events"]


class EventsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for.

    Attributes:
        run: the run's id, or its beginning.
        follow: go on with new events until the run ends.
        begin: offset of the first event to print.
    """

    run: str
    follow: bool
    begin: int


async def events(invocation: Invocation, options: EventsOptions) -> Exit:
    """Print events.

    Raises:
        Usage: the offset is less than 0.
        RunNotFound: there is no such run.
        DamagedLog: an event is not what it must be.
        StoreError: the store cannot be read.
    """
    if options.begin < 0:
        msg = f"--from {options.begin}: give 0 or more"
        raise Usage(msg)
    async with invocation.store() as store:
        run_id = await invocation.find(store, options.run)
        view = RunView(run_id)
        for body in await store.read(run_id):
            _print(invocation.screen, view.take(body), view, options.begin)
        if options.follow:
            await _follow(invocation.screen, store, view, options.begin)
    return Exit.SUCCEEDED


async def _follow(screen: Screen, store: RunStore, view: RunView, begin: int) -> None:
    """Print new events until the run ends, or nobody reads any more."""
    if view.state is not None and view.state.phase.is_terminal:
        return
    try:
        async for body in store.follow(view.run_id, view.version):
            _print(screen, view.take(body), view, begin)
            if screen.is_gone:
                return
    except asyncio.CancelledError:
        return


def _print(screen: Screen, event: Event, view: RunView, begin: int) -> None:
    if event.expected_version < begin or screen.is_gone:
        return
    screen.record(event_record(event, view.state))
    screen.line(
        (f"{event.expected_version:>5}  {local_time(event.at)}  ", "dim"),
        f"{event.type:<20} ",
        shown(words(event.data), limit=400),
    )
