"""Where processes are killed: one folder with a store, the task and the world outside, and the person who answers what they leave open.

The orchestrating process holds the store open like any other one; it never advances a run. All its facts come from public commands.
"""

import asyncio
import json
import multiprocessing
import os
import random  # noqa: TID251  the order of answers, drawn from the seed of whoever answers
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from msgspec.structs import replace

from checkrein.cli.tasks import compose, read_folder
from checkrein.clock import SystemClock, SystemIds
from checkrein.codec.wire import decode_events
from checkrein.errors import Rejected, ResumeError
from checkrein.kernel.budget import Amounts, Budget
from checkrein.kernel.events import Cause, Event
from checkrein.kernel.run import fold_run
from checkrein.kernel.state import RunState
from checkrein.ports.store import RunQuery
from checkrein.runs.commands import Commands, Reconciled
from checkrein.store import SqliteStore
from checkrein.values import JsonValue
from tests.crash.child import STORE, TASK, Job, Said, work

EXTENSION = 40
"""How much a person adds to a limit: more than the task sets aside for a child, of which several limits must have enough at once."""
TEND_SECONDS = 0.2
_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.crash.child", "checkrein.tools.signature", "checkrein.tools.schema"])


class Child:
    """One process that advances a run."""

    def __init__(self, job: Job) -> None:
        self._pipe, theirs = _FORKS.Pipe(duplex=False)
        self._process: ForkServerProcess = _FORKS.Process(target=work, args=(job, theirs), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid or 0

    async def begun(self) -> None:
        """Return when it is about to advance its run."""
        await self._message()

    async def ended(self) -> tuple[int, Said]:
        """Return its exit code (negative: the signal that ended it) and what it said."""
        said = Said()
        while (message := await self._message()) is not None:
            said = message if isinstance(message, Said) else said
        await _readable(self._process.sentinel)
        self._process.join()
        self._pipe.close()
        return self._process.exitcode or 0, said

    async def _message(self) -> object:
        try:
            await _readable(self._pipe.fileno())
            return self._pipe.recv()
        except EOFError:
            return None

    def is_alive(self) -> bool:
        """Tell whether it has not ended."""
        return self._process.exitcode is None

    def is_stopped(self) -> bool:
        """Tell whether a SIGSTOP has reached it."""
        return _state(self.pid) == "T"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it is gone."""
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def dispose(self) -> None:
        """Leave nothing behind, whatever happened."""
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()


async def _readable(descriptor: int | Connection) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return ""


class Arena:
    """A folder in which runs are stored, killed and finished."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(_HERE / TASK, folder / TASK, ignore=shutil.ignore_patterns("__pycache__", "out"))
        self.task = compose(read_folder(folder / TASK))
        self.store = SqliteStore(folder / STORE)
        self.clock = SystemClock()
        self.commands = Commands(self.store, clock=self.clock, ids=SystemIds(), actor="user:arena")
        self._environment = {
            **os.environ,
            "HOME": str(folder / "home"),
            "XDG_STATE_HOME": str(folder / "home" / "state"),
            "CHECKREIN_STORE": str(folder / STORE),
        }

    @property
    def workspace(self) -> Path:
        """Where the runs' folders and the ledger are."""
        return self.task.workspace

    async def submit(self, budget: Budget | None = None) -> str:
        """Store a run."""
        return await self.commands.submit(self.task if budget is None else replace(self.task, budget=budget))

    async def events(self, run_id: str) -> list[Event]:
        """Return a run's log."""
        return decode_events(await self.store.read(run_id), run_id=run_id)

    async def state(self, run_id: str) -> RunState:
        """Return a run's state."""
        return fold_run(await self.events(run_id))

    async def command(self, *words: str) -> tuple[int, str]:
        """Run the command line in a process of its own; return its exit code and what it printed."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "checkrein", *words, cwd=_ROOT, env=self._environment,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, out.decode()

    def ledger(self, run_id: str) -> list[Mapping[str, str]]:
        """Return what bodies of a run wrote down outside, in order."""
        file = self.workspace / "ledger.jsonl"
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        lines = (json.loads(line) for line in text.splitlines() if run_id in line)
        return [line for line in lines if line["run"] == run_id]

    async def answer(self, state: RunState, chance: random.Random | None = None) -> None:
        """Answer the causes of a blocked run as a person would who looks at the ledger; in any order, if there is a chance to draw it from."""
        causes = list(state.causes)
        if chance is not None:
            chance.shuffle(causes)
        for cause in causes:
            if cause.kind == "reconcile":
                await self._reconcile(state.run_id, cause)
            elif cause.kind == "budget":
                await self.commands.extend(state.run_id, Amounts(**{cause.detail: EXTENSION}))
            elif cause.kind == "permission":
                verdict: JsonValue = {"deny": "no bribes"} if "bribe" in cause.message else "allow"
                await self.commands.respond(state.run_id, {"decision": verdict, "call_id": cause.call_id})
            elif cause.id.startswith("review:"):
                about = {"call_id": cause.call_id} if cause.call_id else {}
                await self.commands.respond(state.run_id, {"decision": "seen", **about})
            else:
                msg = f"run {state.run_id} waits for {cause.id}, which this task never asks: {cause.message}"
                raise AssertionError(msg)

    async def tend_children(self) -> None:
        """Answer child runs that wait for a person, for ever: a run waits for its child as for any job, in the process that advances it."""
        children = tuple(child.name for child in self.task.children)
        while True:
            await self.clock.sleep(TEND_SECONDS)
            for row in await self.store.list_runs(RunQuery(phases=("BLOCKED",), tasks=children)):
                state = await self.state(row.run_id)
                # A worker may take the child at any moment, and has the question answered or ended by then.
                with suppress(Rejected, ResumeError):
                    await self.answer(state)

    async def advance(self, job: Job) -> Said:
        """Let a process advance a run until it rests.

        Raises:
            AssertionError: the process ended otherwise.
        """
        child = Child(job)
        try:
            code, said = await child.ended()
        finally:
            child.dispose()
        assert (code, said.error) == (0, ""), f"{job.name} ended with {code}: {said}"
        return said

    async def finish(self, run_id: str, name: str = "finisher") -> list[Said]:
        """Answer a run and advance it, again and again until it ended."""
        said: list[Said] = []
        while not (state := await self.state(run_id)).phase.is_terminal:
            await self.answer(state)
            said.append(await self.advance(Job(str(self.folder), run_id, name=name)))
        return said

    async def _reconcile(self, run_id: str, cause: Cause) -> None:
        posted = any(line["call"] == cause.call_id for line in self.ledger(run_id))
        found = Reconciled("done" if posted else "failed", message="so says the ledger")
        await self.commands.unblock(run_id, cause.id, reconciled=found)

    async def aclose(self) -> None:
        """Let go of the store."""
        await self.store.aclose()
