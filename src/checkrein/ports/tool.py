"""The port of tools: what the dispatcher needs to know of one, and what its body is given.

A tool declares how it behaves under crash and cancel; the runtime decides by the declaration and never guesses.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec

from checkrein.errors import ChildRefused
from checkrein.messages import ContentBlock
from checkrein.values import JsonObject

__all__ = [
    "Accepted",
    "CancelSignal",
    "ChildOutcome",
    "ChildRun",
    "ChildRuns",
    "PollResult",
    "Reconciliation",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "ToolTraits",
]


class CancelSignal:
    """Tells everyone who looks that work is to stop; set once, never cleared.

    Any thread may look; `cancel`, `subscribe` and `wait` belong to the event loop's thread.

    Attributes:
        is_cancelled: whether cancellation was asked for; to be read only.
    """

    __slots__ = ("_callbacks", "_event", "_reason", "is_cancelled")

    def __init__(self) -> None:
        self._event: asyncio.Event | None = None
        self._reason: str | None = None
        self._callbacks: dict[object, Callable[[str], None]] = {}
        self.is_cancelled = False

    @property
    def reason(self) -> str:
        """The reason given, `""` while not cancelled."""
        return self._reason or ""

    def cancel(self, reason: str) -> bool:
        """Ask for cancellation; False when it was asked for before."""
        if self._reason is not None:
            return False
        self._reason = reason
        self.is_cancelled = True
        if self._event is not None:
            self._event.set()
        callbacks, self._callbacks = self._callbacks, {}
        for callback in callbacks.values():
            try:
                callback(reason)
            except Exception as error:  # noqa: BLE001  one that fails must not keep the others from being told
                _report(error)
        return True

    def subscribe(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """Call `callback` once with the reason, at once when there is one already; what it raises goes to the loop's exception handler.

        Returns:
            A function that forgets the callback; safe to call again.
        """
        if self._reason is not None:
            callback(self._reason)
            return lambda: None
        key = object()
        self._callbacks[key] = callback

        def forget() -> None:
            self._callbacks.pop(key, None)

        return forget

    async def wait(self) -> str:
        """Return the reason, once there is one."""
        if self._reason is None:
            self._event = self._event or asyncio.Event()
            await self._event.wait()
        return self.reason

    def raise_if_cancelled(self) -> None:
        """Raise when cancellation was asked for.

        Raises:
            asyncio.CancelledError: it was; the message is the reason.
        """
        if self._reason is not None:
            raise asyncio.CancelledError(self._reason)


def _report(error: Exception) -> None:
    with contextlib.suppress(RuntimeError):
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": "a callback of a cancel signal failed", "exception": error})


class ToolTraits(msgspec.Struct, frozen=True):
    """What a tool promises.

    Attributes:
        idempotent: doing it twice under one idempotency key is the same as doing it once; it may be run again after a crash.
        cancellable: its body stops when it is cancelled.
        timeout_seconds: how long one execution may take, None for no limit.
        sequential: it never overlaps with another call of its batch.
        inline: a plain function that is quick enough to run on the event loop.
        has_probe: `probe` can tell what became of a call.
        has_poll: `poll` can tell, also in another process, what became of an accepted job.
    """

    idempotent: bool = False
    cancellable: bool = False
    timeout_seconds: float | None = None
    sequential: bool = False
    inline: bool = False
    has_probe: bool = False
    has_poll: bool = False


class Accepted(msgspec.Struct, frozen=True):
    """A tool's answer that a job was accepted: a handle, which is no result.

    Attributes:
        handle: the job's number or address; stored, and given to the tool's own `poll` after a crash.
        poll: asks with the handle what became of it, as a plain or an async function; lives as long as this process. None when the
            tool's own `poll` asks, or a caller brings the result.
        interval_seconds: how long to wait between two questions.
    """

    handle: str
    poll: Callable[[str], object] | None = None
    interval_seconds: float = 1.0


class ChildOutcome(msgspec.Struct, frozen=True):
    """How a child run ended.

    Attributes:
        run_id: the child.
        task: the name of its task.
        phase: `SUCCEEDED` or `FAILED`.
        code: `goal_met`, or why it failed.
        message: for people.
        folder: where its artifacts are, `""` when it never had a folder.
        artifacts: SHA-256 digests by path, relative to `folder`.
        answer: the text it reported, `""` when it reported none.
    """

    run_id: str
    task: str
    phase: str
    code: str
    message: str = ""
    folder: str = ""
    artifacts: Mapping[str, str] = {}
    answer: str = ""


async def _no_result() -> ChildOutcome:
    raise ChildRefused("no_run", "this child run was not started by a run")


class ChildRun(Accepted, frozen=True):
    """A child run, as the tool sees that started it.

    Returned by the tool it is the tool's answer: the call is then accepted, the runtime waits for the child, also after a crash, and what the child comes to is
    the call's result or error.

    Attributes:
        run_id: the child.
        wait: what `result` calls.
    """

    run_id: str = ""
    wait: Callable[[], Awaitable[ChildOutcome]] = _no_result

    async def result(self) -> ChildOutcome:
        """Wait, in the tool's own body, until the child ended, also if it failed.

        After a crash the body is begun anew, if the tool is idempotent; it is given the same child then.
        """
        return await self.wait()


class ChildRuns(Protocol):
    """Starts child runs for one call."""

    async def start(
        self, task: str, *, goal: str = "", share: Mapping[str, float] | None = None, key: str = ""
    ) -> ChildRun:
        """Start a child run, or find the one that this call started before under the same key.

        Args:
            task: the name of one of the task's `children`.
            goal: what it is to reach, instead of its task's goal.
            share: by limit how much of the run's budget the child may use. A limit that is not named is that of the child's task, but at
                most half of what is left.
            key: tells several children of one call apart.

        Raises:
            ChildRefused: the code says why; nothing was started.
        """
        ...


class _NoRuns:
    """Where there is no run there are no children."""

    async def start(
        self, task: str, *, goal: str = "", share: Mapping[str, float] | None = None, key: str = ""
    ) -> ChildRun:
        """Refuse.

        Raises:
            ChildRefused: always.
        """
        del goal, share, key
        raise ChildRefused("no_run", f"this tool starts {task!r} as a child run, and there is no run")


_NO_RUNS: Final = _NoRuns()


class ToolContext(msgspec.Struct, frozen=True):
    """What a tool's body may know about its call; a parameter annotated with this type receives it.

    Attributes:
        call_id: our id of the call.
        attempt: 1 for the first execution.
        idempotency_key: stable over attempts; hand it to the service that does the effect.
        signal: set when the call is to stop.
        workspace: the run's folder, None outside a run.
        inputs: the task's inputs by name, read-only files.
        progress: reports progress as text; never stored.
        runs: starts child runs, from asynchronous bodies; outside a run it refuses.
    """

    call_id: str
    attempt: int
    idempotency_key: str
    signal: CancelSignal
    workspace: Path | None = None
    inputs: Mapping[str, Path] = {}
    progress: Callable[[str], None] = lambda _text: None
    runs: "ChildRuns" = _NO_RUNS

    def folder(self) -> Path:
        """Return the run's folder.

        Raises:
            RuntimeError: the tool was called outside a run.
        """
        if self.workspace is None:
            msg = "this tool works in a run's folder, and there is no run"
            raise RuntimeError(msg)
        return self.workspace


class PollResult(msgspec.Struct, frozen=True):
    """What became of an accepted job so far.

    Attributes:
        is_finished: whether there is an outcome.
        output: the result, when it succeeded.
        error: why it failed; `""` when it did not.
    """

    is_finished: bool
    output: "ToolOutput | None" = None
    error: str = ""


class ToolOutput(msgspec.Struct, frozen=True):
    """What a tool returned, as the runtime records it.

    Attributes:
        value: the result; it must have a JSON form.
        artifacts: paths below the run's folder that the call wrote.
        content: content blocks for a model, when they differ from `value`.
    """

    value: object = None
    artifacts: tuple[str, ...] = ()
    content: tuple[ContentBlock, ...] = ()


class Reconciliation(msgspec.Struct, frozen=True):
    """A probe's answer: did the effect of a call happen?

    Attributes:
        outcome: `done`, `failed` (it did not happen and will not), or `unknown`.
        output: the result, when it is done.
        message: how the probe knows.
    """

    outcome: str
    output: ToolOutput | None = None
    message: str = ""


class Tool(Protocol):
    """One tool."""

    @property
    def name(self) -> str:
        """Return the name that plans and models use."""
        ...

    @property
    def description(self) -> str:
        """Return what it does, for a model."""
        ...

    @property
    def schema(self) -> JsonObject:
        """Return the JSON Schema 2020-12 of its arguments."""
        ...

    @property
    def traits(self) -> ToolTraits:
        """Return what it promises."""
        ...

    def check(self, arguments: JsonObject) -> None:
        """Refuse arguments for a reason that `schema` cannot express; called before a call is granted, after `schema` was satisfied.

        Raises:
            InvalidArguments: which places are wrong, and what was expected there.
        """
        ...

    async def call(self, arguments: JsonObject, context: ToolContext) -> ToolOutput | Accepted:
        """Run the body once; arguments passed `schema` and `check`.

        Raises:
            Exception: whatever the body raises.
        """
        ...

    async def probe(self, arguments: JsonObject, context: ToolContext) -> Reconciliation:
        """Ask what became of a call whose outcome nobody knows; never runs the body.

        Raises:
            LookupError: the tool declared no probe.
        """
        ...

    async def poll(self, handle: str, arguments: JsonObject, context: ToolContext) -> PollResult:
        """Ask what became of an accepted job.

        Raises:
            LookupError: the tool cannot be asked.
        """
        ...
