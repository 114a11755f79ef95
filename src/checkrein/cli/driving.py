"""Advancing one run while a person watches: claim it (waiting for a lease that must end), show its progress, and heed Ctrl-C and SIGTERM.

Whatever the person is shown was read from the store; what happens to the run is the worker's business alone. A command that ends in the middle loses nothing.
"""

import asyncio

import msgspec

from checkrein.cli.asking import Asked, Asker, can_ask, say_how_to_answer
from checkrein.cli.endings import print_end
from checkrein.cli.exits import Exit, Refused
from checkrein.cli.invocation import Invocation
from checkrein.cli.live import LiveReporter
from checkrein.cli.progress import JsonReporter, PlainReporter, Reporter
from checkrein.cli.questions import questions_of
from checkrein.cli.screen import shown
from checkrein.cli.signals import heeding
from checkrein.cli.view import RunView
from checkrein.cli.words import owner_in_words
from checkrein.errors import CheckreinError, Conflict, LeaseHeld, Rejected
from checkrein.kernel.state import RunState, is_claimable
from checkrein.ports.store import RunStore
from checkrein.runs.held import LeaseLost
from checkrein.runs.lease import DEFAULT_LEASE_SECONDS
from checkrein.runs.task import Task
from checkrein.runs.worker import Worker, WorkerOptions

__all__ = ["Driving", "DrivingOptions"]

_LOOK_SECONDS = 0.2


class DrivingOptions(msgspec.Struct, frozen=True):
    """How a run is driven.

    Attributes:
        name: stands in the log as `worker:<name>`.
        lease_seconds: how long the run stays ours without a renewal.
        asks: ask the person at the terminal for what the run waits for.
    """

    name: str
    lease_seconds: float = DEFAULT_LEASE_SECONDS
    asks: bool = False


class Driving:
    """Drives one run to where it rests.

    Args:
        invocation: screen, time, who is asking.
        store: where the run is.
        view: the run; what it has not read yet is shown.
        task: the run's task.
        options: how.
    """

    def __init__(
        self, invocation: Invocation, store: RunStore, *, view: RunView, task: Task, options: DrivingOptions
    ) -> None:
        self._call = invocation
        self._store = store
        self._view = view
        self._reporter = _reporter(invocation)
        self._asks = options.asks
        self._has_asked = False
        self._has_begun = False
        self._is_waiting = False
        self._interrupted = False
        self._left_prompt = False
        self._terminated = False
        self._work: asyncio.Task[None] | None = None
        self._worker = Worker(
            store=store,
            tasks=[task],
            clock=invocation.clock,
            ids=invocation.ids,
            options=WorkerOptions(
                name=options.name,
                claims="named",
                lease_seconds=options.lease_seconds,
                on_progress=lambda _run, call, text: self._reporter.progress(call, text),
            ),
        )

    async def drive(self) -> Exit:
        """Advance the run, say how it stands, and return the exit code.

        Raises:
            LeaseHeld: another worker holds it, and went on holding it.
            LeaseLost: another worker took it over meanwhile.
            Refused: its folder could not be prepared.
            CheckreinError: what else the worker, the store or the log raised.
        """
        run_id = self._view.run_id
        resume = self._call.screen.command("resume", run_id)
        farewell = f"left at once; the outcome of open calls is in doubt until: {resume}"
        with heeding(interrupt=self._interrupt, terminate=self._terminate, farewell=farewell):
            while True:
                try:
                    await self._work_and_show()
                except OSError as error:
                    msg = f"the folder of run {run_id} cannot be prepared: {error}; make its workspace one that you may write, then: {resume}"
                    raise Refused(msg) from error
                finally:
                    self._reporter.end()
                if not await self._is_answered():
                    return self._ended(await self._call.state(self._store, run_id))
                self._reporter, self._has_begun = _reporter(self._call), False

    async def _is_answered(self) -> bool:
        """Ask the person what the run waits for, if that is wanted; True when it can go on because of an answer, whoever gave it."""
        screen, state = self._call.screen, self._view.folded
        if not self._asks or self._interrupted or self._terminated or not questions_of(state, self._view.session):
            return False
        if not can_ask(screen):
            say_how_to_answer(screen, state)
            return False
        self._has_asked = True
        end = await Asker(self._call, self._store, self._view).ask()
        self._interrupted = self._left_prompt = end is Asked.INTERRUPTED
        self._terminated = end is Asked.TERMINATED
        return end is Asked.OVER and is_claimable(self._view.folded)

    async def _work_and_show(self) -> None:
        clock, run_id = self._call.clock, self._view.run_id
        self._work = clock.spawn(self._advance(), name=f"drive-{run_id}")
        follower = clock.spawn(self._follow(), name=f"show-{run_id}")
        try:
            await self._work
        except (asyncio.CancelledError, LeaseLost):
            if not (self._interrupted or self._terminated):
                raise
        finally:
            follower.cancel()
        for body in await self._store.read(run_id, self._view.version):
            self._show(body)

    async def _advance(self) -> None:
        """Advance the run once its lease can be had.

        Raises:
            LeaseHeld: its holder went on renewing a second past the end that the lease had when it was first met.
        """
        clock = self._call.clock
        deadline: float | None = None
        while True:
            try:
                await self._worker.advance(self._view.run_id)
            except LeaseHeld as error:
                if self._has_asked:
                    # Whoever answered elsewhere goes on with the run there; it is shown here as well, to where it rests.
                    await self._wait(_LOOK_SECONDS)
                    continue
                if deadline is None:
                    deadline = clock.monotonic() + max(0.0, error.expires_in) + 1
                    self._say_held(error)
                if clock.monotonic() >= deadline:
                    raise
                await self._wait(min(_LOOK_SECONDS, deadline - clock.monotonic()))
            except Conflict:
                if not self._has_asked:
                    raise
            else:
                return

    async def _wait(self, seconds: float) -> None:
        self._is_waiting = True
        await self._call.clock.sleep(seconds)
        self._is_waiting = False

    def _say_held(self, error: LeaseHeld) -> None:
        owner = shown(owner_in_words(error.owner))
        self._call.screen.note(f"held by {owner}; waiting up to {error.expires_in + 1:.1f} s for the end of its lease")

    async def _follow(self) -> None:
        """Show events as they come."""
        self._begin()
        async for body in self._store.follow(self._view.run_id, self._view.version):
            self._show(body)

    def _begin(self) -> None:
        if self._view.state is not None and not self._has_begun:
            self._has_begun = True
            self._reporter.begin(self._view)

    def _show(self, body: bytes) -> None:
        event = self._view.take(body)
        self._begin()
        self._reporter.event(event, self._view)

    def _interrupt(self) -> None:
        self._interrupted = True
        if self._is_waiting and self._work is not None:
            self._work.cancel()
            return
        self._call.clock.spawn(self._cancel(), name="cancel")

    async def _cancel(self) -> None:
        try:
            await self._call.commands(self._store).cancel(self._view.run_id, "Ctrl-C")
        except Rejected:
            return  # it ended by itself
        except CheckreinError as error:
            self._call.screen.error(f"not cancelled: {error}", "press Ctrl-C again to leave")
            return
        self._call.screen.note("cancel requested: waiting for open calls; Ctrl-C again leaves at once")

    def _terminate(self) -> None:
        self._terminated = True
        if self._is_waiting and self._work is not None:
            self._work.cancel()
            return
        self._call.screen.note("handing the run back: waiting for open calls")
        self._call.clock.spawn(self._worker.stop(), name="stop")

    def _ended(self, state: RunState) -> Exit:
        code = print_end(self._call.screen, state, with_findings=not isinstance(self._reporter, PlainReporter))
        if self._interrupted and (self._is_waiting or self._left_prompt or state.cancel is not None):
            return Exit.INTERRUPTED
        rests = state.phase.is_terminal or bool(state.causes)
        return Exit.TERMINATED if self._terminated and not rests else code


def _reporter(invocation: Invocation) -> Reporter:
    screen = invocation.screen
    if screen.json_lines:
        return JsonReporter(screen)
    return LiveReporter(screen, invocation.clock) if screen.is_live else PlainReporter(screen)
