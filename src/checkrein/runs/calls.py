"""Tool calls of a held run: granted, made, recorded, in this order, and what becomes of those that were left open.

The invariant: a body runs only after its grant is in the log, and what it did is recorded before anything else is decided. Each execution is a grant of its own; a
retry and a recovery are the next attempt under the same call id and idempotency key, for idempotent tools only.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeAlias

from checkrein.errors import PathEscape
from checkrein.kernel.events import (
    Artifact,
    Blocked,
    Cause,
    EventData,
    Failed,
    SessionPause,
    StepEnd,
    StepSpec,
    StepStart,
    ToolAccepted,
    ToolCallGiven,
    ToolDone,
    ToolErrorGiven,
    ToolFailed,
    ToolGranted,
    ToolInDoubt,
    ToolReconciled,
    ToolResultGiven,
)
from checkrein.kernel.state import Call
from checkrein.ports.tool import CancelSignal, ToolContext
from checkrein.runs.held import HeldRun, Interrupted, Moved, budget_pause
from checkrein.runs.task import Decision, tool_spec
from checkrein.runs.workspace import artifact_of
from checkrein.tools.dispatch import Dispatcher, PreparedCall
from checkrein.tools.outcomes import (
    AcceptedJob,
    Done,
    FailedCall,
    Outcome,
    OutcomeUnknown,
    Pending,
    RetryPolicy,
    next_attempt,
)
from checkrein.values import clean_text

__all__ = ["CallRunner", "Progress"]

Progress: TypeAlias = Callable[[str, str, str], None]
"""Told the progress of a tool: run id, call id, text."""


class CallRunner:
    """Makes the calls of one held run."""

    def __init__(self, held: HeldRun, *, retry: RetryPolicy, on_progress: Progress | None = None) -> None:
        self._held = held
        self._retry = retry
        self._on_progress = on_progress
        self._dispatcher = Dispatcher({tool.name: tool for tool in held.task.tools}, clock=held.clock)
        self._jobs: dict[str, AcceptedJob] = {}
        self._decisions: dict[str, tuple[Decision, str]] = {}

    @property
    def has_running_body(self) -> bool:
        """Whether a body that was given up still runs."""
        return bool(self._dispatcher.abandoned)

    async def do_step(self, step: StepSpec, *, is_started: bool) -> None:
        """Take a step as far as one call takes it: to its outcome, a pause, or its end.

        Raises:
            Moved: the log moved on; nothing was started.
            LeaseLost: the lease is not ours any more.
        """
        held = self._held
        begun: tuple[EventData, ...] = () if is_started else (StepStart(step_id=step.id),)
        budget = held.budget()
        if not is_started and budget.is_reached("steps"):
            await held.append(*budget_pause(budget, "steps", "EXECUTING"))
        elif step.tool_name is None:
            await held.append(*begun, StepEnd(step_id=step.id, status="done"))
        elif (reached := budget.first_reached("tool_calls", "wall_seconds")) is not None:
            await held.append(*budget_pause(budget, reached, "EXECUTING"))
        else:
            await self._call(step, step.tool_name, begun)

    async def _call(self, step: StepSpec, name: str, begun: tuple[EventData, ...]) -> None:
        held = self._held
        prepared = self._dispatcher.prepare(name, step.arguments)
        if isinstance(prepared, FailedCall):
            await held.append(*begun, *_not_made(step, prepared.kind, prepared.message))
            return
        call_id = f"{held.plan.turn}.{held.plan.index_of(step)}"
        decision, reason = self._decision(prepared, call_id)
        if decision == "deny":
            await held.append(*begun, *_not_made(step, "denied", reason))
            return
        if decision == "ask":
            await held.append(*begun, *_asking(prepared, call_id))
            return
        granted = ToolGranted(call_id=call_id, tool=tool_spec(prepared.tool), arguments=prepared.arguments)
        given = ToolCallGiven(step_id=step.id, call_id=call_id, name=name, arguments=prepared.arguments)
        await held.append(*begun, given, granted)
        await self._make(prepared, call_id, attempt=1)

    def _decision(self, prepared: PreparedCall, call_id: str) -> tuple[Decision, str]:
        """Return the stored answer of a person if there is one, else the policy's; a policy that raises denies."""
        answer = self._held.plan.decisions.get(f"permission:{call_id}")
        if answer is not None:
            value = answer.value
            denied = value["deny"] if isinstance(value, dict) else "a person denied it"
            return ("allow", "") if value == "allow" else ("deny", clean_text(str(denied)))
        if call_id not in self._decisions:
            self._decisions[call_id] = self._asked_policy(prepared)
        return self._decisions[call_id]

    def _asked_policy(self, prepared: PreparedCall) -> tuple[Decision, str]:
        try:
            decision = self._held.task.policy(prepared.name, prepared.arguments)
        except (Exception, SystemExit) as error:  # noqa: BLE001  a policy is the user's code; what it cannot decide is not permitted
            return "deny", clean_text(f"the policy failed: {type(error).__name__}: {error}")
        return decision if decision in ("allow", "ask") else "deny", "the task's policy denies it"

    async def _make(self, prepared: PreparedCall, call_id: str, *, attempt: int) -> None:
        """Run the body, and again while its failure may pass, each time under a grant; record the outcome."""
        while True:
            await self._held.confirm_lease()
            outcome = await self._dispatcher.execute(prepared, self._context(call_id, attempt, self._held.signal))
            wait = next_attempt(outcome, attempt, traits=prepared.tool.traits, policy=self._retry)
            if (
                wait is None
                or not isinstance(outcome, FailedCall)
                or not await self._granted_again(call_id, attempt, outcome.message, wait)
            ):
                await self._record(call_id, outcome)
                return
            attempt += 1

    async def _granted_again(self, call_id: str, attempt: int, error: str, wait: float) -> bool:
        """Wait, then grant the next attempt of a failed call; False when there is no right or no budget for it.

        Raises:
            Interrupted: the worker stops; the call is left to the next one.
            LeaseLost: the lease is not ours any more.
        """
        held = self._held
        try:
            await held.uninterrupted(held.sleep(wait), name=f"backoff-{call_id}")
        except Interrupted:
            if held.leaving.is_cancelled:
                raise
        while True:
            await held.refresh()
            has_right = held.state.cancel is None and held.state.open_call(call_id) is not None
            if not has_right or held.budget().first_reached("tool_calls", "wall_seconds") is not None:
                return False
            with suppress(Moved):
                await held.append(*self._regrant(call_id, attempt + 1, error))
                return True

    def _regrant(self, call_id: str, attempt: int, previous: str) -> tuple[EventData, ...]:
        call = self._held.state.open_call(call_id)
        if call is None:
            return ()
        granted = ToolGranted(
            call_id=call_id, tool=call.tool, arguments=call.arguments, attempt=attempt, previous=previous
        )
        given = ToolCallGiven(
            step_id=self._step_id(), call_id=call_id, name=call.tool.name, arguments=call.arguments, attempt=attempt
        )
        return given, granted

    def _step_id(self) -> str | int:
        step = self._held.plan.current
        return step.id if step is not None else ""

    def _context(self, call_id: str, attempt: int, signal: CancelSignal) -> ToolContext:
        held = self._held
        return ToolContext(
            call_id=call_id,
            attempt=attempt,
            idempotency_key=f"{held.run_id}/{call_id}",
            signal=signal,
            workspace=held.folder,
            inputs=held.task.inputs,
            progress=lambda text: self._report(call_id, text),
        )

    def _report(self, call_id: str, text: str) -> None:
        if self._on_progress is not None:
            self._on_progress(self._held.run_id, call_id, text)

    async def _record(self, call_id: str, outcome: Outcome) -> None:
        """Append what became of a call."""
        held, step_id = self._held, self._step_id()
        match outcome:
            case AcceptedJob():
                self._jobs[call_id] = outcome
                await held.append_outcome(ToolAccepted(call_id=call_id, handle=outcome.handle))
            case Done():
                await held.append_outcome(*await self._done(call_id, outcome))
            case FailedCall():
                await held.append_outcome_of(lambda: self._failed(step_id, call_id, outcome))
            case OutcomeUnknown():
                await self._record_unknown(step_id, call_id, outcome)

    async def _record_unknown(self, step_id: str | int, call_id: str, outcome: OutcomeUnknown) -> None:
        """Record a body that gave no outcome: one that stopped because the run was cancelled has failed, of any other nobody knows."""
        await self._held.journal.refresh()
        stopped = outcome.cause == "cancelled" and not outcome.is_running and self._held.state.cancel is not None
        if stopped:
            await self._held.append_outcome(*self._failed(step_id, call_id, FailedCall("cancelled", outcome.reason)))
        else:
            await self._held.append_outcome(ToolInDoubt(call_id=call_id, reason=outcome.reason))

    async def _done(self, call_id: str, outcome: Done) -> tuple[EventData, ...]:
        step_id = self._step_id()
        try:
            artifacts = await self._artifacts(outcome)
        except (OSError, PathEscape) as error:
            message = clean_text(f"the tool named an artifact that cannot be read: {error}")
            return self._failed(step_id, call_id, FailedCall("internal", message))
        done = ToolDone(call_id=call_id, result=outcome.result, artifacts=artifacts, empty=outcome.empty)
        return ToolResultGiven(step_id=step_id, call_id=call_id, result=outcome.result), done

    async def _artifacts(self, outcome: Done) -> tuple[Artifact, ...]:
        """Return the artifacts that an outcome names, with their digests.

        Raises:
            PathEscape: a path leads outside the run's folder.
            OSError: a file is missing or cannot be read.
        """
        folder = self._held.folder
        return tuple([await asyncio.to_thread(artifact_of, folder, path) for path in outcome.artifacts])

    def _failed(self, step_id: str | int, call_id: str, outcome: FailedCall) -> tuple[EventData, ...]:
        call = self._held.state.open_call(call_id)
        error = ToolErrorGiven(step_id=step_id, call_id=call_id, kind=outcome.kind, message=outcome.message)
        failed = ToolFailed(
            call_id=call_id, kind=outcome.kind, message=outcome.message, attempts=call.attempt if call else 1
        )
        if outcome.fatal and self._held.state.cancel is None and len(self._held.state.open_calls) == 1:
            ended = StepEnd(step_id=step_id, status="failed", error=outcome.message)
            return error, ended, failed, Failed(code="step_failed", message=outcome.message)
        return error, failed

    async def resolve(self, call: Call, how: Literal["rerun", "probe", "block"]) -> None:
        """Find out what became of a call whose worker is gone, or whose body was left behind.

        Raises:
            Moved: the log moved on meanwhile.
            LeaseLost: the lease is not ours any more.
        """
        prepared = self._dispatcher.prepare(call.tool.name, call.arguments)
        if how == "block" or isinstance(prepared, FailedCall):
            await self._block(call)
        elif how == "rerun":
            await self._rerun(call, prepared)
        else:
            await self._probe(call, prepared)

    async def _rerun(self, call: Call, prepared: PreparedCall) -> None:
        decision, _ = self._decision(prepared, call.call_id)
        if decision == "allow":
            await self._held.append(*self._regrant(call.call_id, call.attempt + 1, "in_doubt"))
            await self._make(prepared, call.call_id, attempt=call.attempt + 1)
        elif decision == "ask":
            await self._held.append(*_asking(prepared, call.call_id))
        else:
            await self._block(call)

    async def _probe(self, call: Call, prepared: PreparedCall) -> None:
        context = self._context(call.call_id, call.attempt, CancelSignal())
        answer = await self._dispatcher.probe(prepared, context)
        if isinstance(answer, FailedCall) and self._dispatcher.is_running(prepared, context):
            answer = OutcomeUnknown("probe", f"its body still runs, and its probe says: {answer.message}")
        step_id = self._step_id()
        match answer:
            case OutcomeUnknown():
                doubt = ToolInDoubt(call_id=call.call_id, reason=answer.reason, probed=True)
                await self._held.append_outcome(doubt, *self._reconcile_cause(call, answer.reason))
            case FailedCall():
                error = ToolErrorGiven(step_id=step_id, call_id=call.call_id, kind=answer.kind, message=answer.message)
                fact = ToolReconciled(call_id=call.call_id, outcome="failed", by="probe", message=answer.message)
                await self._held.append_outcome(error, fact)
            case Done():
                await self._held.append_outcome(*await self._probed_done(call, answer))

    async def _probed_done(self, call: Call, answer: Done) -> tuple[EventData, ...]:
        try:
            artifacts = await self._artifacts(answer)
        except (OSError, PathEscape):
            artifacts = ()
        fact = ToolReconciled(
            call_id=call.call_id, outcome="done", by="probe", result=answer.result, artifacts=artifacts
        )
        return ToolResultGiven(step_id=self._step_id(), call_id=call.call_id, result=answer.result), fact

    async def _block(self, call: Call) -> None:
        reason = "nobody knows whether it happened"
        doubt = (ToolInDoubt(call_id=call.call_id, reason=reason),) if call.status == "granted" else ()
        await self._held.append(*doubt, *self._reconcile_cause(call, reason))

    def _reconcile_cause(self, call: Call, reason: str) -> tuple[EventData, ...]:
        cause_id = f"reconcile:{call.call_id}"
        if self._held.state.cause(cause_id) is not None:
            return ()
        text = (
            f"call {call.call_id} of {call.tool.name} has no known outcome: {reason}; look whether it happened, then "
            f"`checkrein unblock RUN {cause_id} --outcome done|failed|unknown`"
        )
        return (Blocked(cause=Cause(id=cause_id, kind="reconcile", message=text, call_id=call.call_id)),)

    async def poll(self, call: Call) -> None:
        """Ask once what became of an accepted job; wait for its interval when it has not finished.

        Raises:
            Moved: the outcome is not accepted any more.
            LeaseLost: the lease is not ours any more.
        """
        held = self._held
        prepared = self._dispatcher.prepare(call.tool.name, call.arguments)
        job = self._jobs.get(call.call_id) or AcceptedJob(handle=call.handle)
        if isinstance(prepared, FailedCall):
            await held.append(*self._reconcile_cause(call, prepared.message))
            return
        # A cancelled run still waits for the job's outcome; only a worker that leaves stops asking.
        context = self._context(call.call_id, call.attempt, held.leaving)
        try:
            answer = await self._dispatcher.poll(prepared, job, context)
        except LookupError as error:
            # The job may well succeed: that we cannot ask is not its failure.
            await held.append(*self._reconcile_cause(call, clean_text(str(error))))
            return
        if isinstance(answer, Pending):
            await held.sleep(job.interval_seconds)
            await held.refresh()
            return
        await self._record(call.call_id, answer)


def _not_made(step: StepSpec, kind: str, message: str) -> tuple[EventData, ...]:
    """Return the facts of a call that was refused before its grant: an error for the planner, nothing counted."""
    return (
        ToolErrorGiven(step_id=step.id, call_id="", kind=kind, message=message),
        StepEnd(step_id=step.id, status="failed", error=f"{kind}: {message}"),
    )


def _asking(prepared: PreparedCall, call_id: str) -> tuple[EventData, ...]:
    cause_id = f"permission:{call_id}"
    text = (
        f"may {prepared.name} be called with {prepared.arguments.encoded.decode()}? "
        f"`checkrein unblock RUN {cause_id} --answer allow`, or `--answer deny`"
    )
    pause = SessionPause(reason="review:permission", state="EXECUTING", topic="before_tool_call", subject=call_id)
    return pause, Blocked(cause=Cause(id=cause_id, kind="permission", message=text, call_id=call_id))
