"""Tool calls of a held run: granted, made, recorded, in this order, and what becomes of those that were left open.

The invariant: a body runs only after its grant is in the log, and what it did is recorded before anything else is decided. Each execution is a grant of its own; a
retry and a recovery are the next attempt under the same call id and idempotency key, for idempotent tools only.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Literal, TypeAlias

from checkrein.errors import PathEscape
from checkrein.harness.asking import DraftingPlanner
from checkrein.harness.hooks import denied
from checkrein.harness.host import ReadyCall, ended_step
from checkrein.harness.permission import Decision, ask_policy
from checkrein.kernel.events import (
    Artifact,
    Blocked,
    EventData,
    Failed,
    HeldCall,
    SessionPause,
    StepEnd,
    ToolAccepted,
    ToolCallGiven,
    ToolDone,
    ToolErrorGiven,
    ToolFailed,
    ToolGranted,
    ToolInDoubt,
    ToolReconciled,
    ToolResultGiven,
    ToolSpec,
)
from checkrein.kernel.session_state import CallAnswer
from checkrein.kernel.state import PULL, Call, RunState
from checkrein.ports.tool import CancelSignal, ToolContext
from checkrein.runs.causes import call_cause, pull_cause, reconcile_cause
from checkrein.runs.children import Children
from checkrein.runs.held import HeldRun, Interrupted, LeaseLost, Moved
from checkrein.runs.task import tool_spec
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
from checkrein.values import JsonObject, as_data, clean_text

__all__ = ["CallRunner", "Progress"]

Progress: TypeAlias = Callable[[str, str, str], None]
"""Told the progress of a tool: run id, call id, text."""


class CallRunner:
    """Makes the calls of one held run.

    Attributes:
        children: the runs that its tools start.
    """

    def __init__(
        self, held: HeldRun, *, children: Children, retry: RetryPolicy, on_progress: Progress | None = None
    ) -> None:
        self.children = children
        self._held = held
        self._retry = retry
        self._on_progress = on_progress
        self._dispatcher = Dispatcher({tool.name: tool for tool in held.task.tools}, clock=held.clock)
        self._jobs: dict[str, AcceptedJob] = {}
        self._ends: set[str] = set()
        self._blocked_children: set[str] = set()

    @property
    def has_running_body(self) -> bool:
        """Whether a body that was given up still runs."""
        return bool(self._dispatcher.abandoned)

    def prepare(self, name: str, arguments: JsonObject, *, malformed: str = "") -> FailedCall | None:
        """Return why a call cannot be made; None when it can, also by a caller who brings the result of a tool that the task does not have."""
        if self._is_pull(name):
            return None
        prepared = self._dispatcher.prepare(name, arguments, malformed=malformed)
        return prepared if isinstance(prepared, FailedCall) else None

    def _is_pull(self, name: str) -> bool:
        """Tell whether a caller brings the results of a tool: the task has no body for it, and it was a plan's author who named it."""
        task = self._held.task
        return task.tool(name) is None and not isinstance(task.planner, DraftingPlanner)

    async def make(self, calls: Sequence[ReadyCall]) -> None:
        """Grant calls in their order as far as the budget allows, run the bodies of those granted, and record what came of each.

        Raises:
            Moved: the log moved on before the grant; nothing was started.
            LeaseLost: the lease is not ours any more.
        """
        granted = self._affordable(calls)
        bodies = [call for call in granted if not self._is_pull(call.name)]
        facts = [fact for call in granted for fact in self._grant(call)]
        if not bodies:
            facts += [_awaiting(call.call_id, call.name) for call in granted]
        await self._held.append(*facts)
        await self._run(bodies)

    def _affordable(self, calls: Sequence[ReadyCall]) -> Sequence[ReadyCall]:
        """Return as many of the calls as the budget allows; the first one was looked at before."""
        budget, count = self._held.budget(), 1
        while count < len(calls) and not budget.is_reached("tool_calls", wanted=count + 1):
            count += 1
        return calls[:count]

    def _grant(self, call: ReadyCall) -> tuple[EventData, ...]:
        tool = self._held.task.tool(call.name)
        spec = ToolSpec(name=call.name) if tool is None else tool_spec(tool)
        given = ToolCallGiven(step_id=call.step_id, call_id=call.call_id, name=call.name, arguments=call.arguments)
        granted = ToolGranted(call_id=call.call_id, tool=spec, arguments=call.arguments)
        accepted = (ToolAccepted(call_id=call.call_id, handle=PULL),) if tool is None else ()
        return (*call.begun, given, granted, *accepted)

    async def _run(self, calls: Sequence[ReadyCall]) -> None:
        """Run the bodies of granted calls: side by side, unless a tool of them wants to be alone."""
        prepared = [(call, self._dispatcher.prepare(call.name, call.arguments)) for call in calls]
        is_alone = any(isinstance(item, PreparedCall) and item.tool.traits.sequential for _, item in prepared)
        if len(prepared) == 1 or is_alone:
            await self._one_by_one(prepared)
            return
        tasks = [
            self._held.clock.spawn(self._first(call, item), name=f"call-{call.call_id}") for call, item in prepared
        ]
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        _raise_first(ends)

    async def _one_by_one(self, calls: Sequence[tuple[ReadyCall, PreparedCall | FailedCall]]) -> None:
        """Make granted calls in their order, all of them; then raise what the first one raised that failed."""
        ends: list[BaseException | None] = []
        for number, (call, prepared) in enumerate(calls):
            if number:
                # The grants are as old as the bodies before; since then somebody may have cancelled the run.
                await self._held.refresh()
            try:
                await self._first(call, prepared)
            except (Moved, Interrupted) as error:
                ends.append(error)
        _raise_first(ends)

    async def _first(self, call: ReadyCall, prepared: PreparedCall | FailedCall) -> None:
        """Make a granted call; one that cannot be made any more has failed."""
        self._ends.update({call.call_id} if call.ends_step else ())
        if isinstance(prepared, FailedCall):
            await self._record(call.call_id, prepared)
        else:
            await self._make(prepared, call.call_id, attempt=1)

    def ask_caller(self, call: Call) -> EventData:
        """Return the fact that a caller must bring the result of a call."""
        return _awaiting(call.call_id, call.tool.name)

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
            step_id=self._step_id(call_id),
            call_id=call_id,
            name=call.tool.name,
            arguments=call.arguments,
            attempt=attempt,
        )
        return given, granted

    def _step_id(self, call_id: str) -> str | int:
        work = self._held.session.work_on(call_id)
        return work.step.id if work is not None else ""

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
            runs=self.children.of_call(call_id),
        )

    def _report(self, call_id: str, text: str) -> None:
        if self._on_progress is not None:
            self._on_progress(self._held.run_id, call_id, text)

    async def _record(self, call_id: str, outcome: Outcome) -> None:
        """Append what became of a call."""
        held, step_id = self._held, self._step_id(call_id)
        match outcome:
            case AcceptedJob():
                self._jobs[call_id] = outcome
                await held.append_outcome(
                    ToolAccepted(call_id=call_id, handle=outcome.handle, interval_seconds=outcome.interval_seconds)
                )
            case Done():
                facts = await self._done(call_id, outcome)
                await held.append_outcome_of(lambda: (*facts, *self._step_ended(call_id, facts)))
            case FailedCall():
                if outcome.fatal:
                    await self.children.cancel()
                await held.append_outcome_of(lambda: self._failed_and_ended(step_id, call_id, outcome))
            case OutcomeUnknown():
                await self._record_unknown(step_id, call_id, outcome)

    async def _record_unknown(self, step_id: str | int, call_id: str, outcome: OutcomeUnknown) -> None:
        """Record a body that gave no outcome: one that stopped because the run was cancelled has failed, of any other nobody knows."""
        # A lease that is lost keeps nothing from the audit: the outcome is sent all the same, and refused.
        with suppress(LeaseLost):
            await self._held.refresh()
        stopped = outcome.cause == "cancelled" and not outcome.is_running and self._held.state.cancel is not None
        if stopped:
            await self._held.append_outcome(*self._failed(step_id, call_id, FailedCall("cancelled", outcome.reason)))
        else:
            await self._held.append_outcome(ToolInDoubt(call_id=call_id, reason=outcome.reason))

    async def _done(self, call_id: str, outcome: Done) -> tuple[EventData, ...]:
        step_id = self._step_id(call_id)
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

    def _step_ended(self, call_id: str, facts: Sequence[EventData]) -> tuple[EventData, ...]:
        """Return the end of a step whose call stands alone and is looked at by nobody, for the batch of the outcome.

        An outcome that ends a cancelled run is its log's last event, so nothing may follow it.
        """
        held = self._held
        if call_id not in self._ends or held.state.cancel is not None:
            return ()
        given = facts[0]
        if isinstance(given, ToolResultGiven):
            return (ended_step(given.step_id, CallAnswer(as_data(given.result))),)
        if isinstance(given, ToolErrorGiven):
            return (ended_step(given.step_id, CallAnswer(error=f"{given.kind}: {given.message}")),)
        return ()

    def _failed_and_ended(self, step_id: str | int, call_id: str, outcome: FailedCall) -> tuple[EventData, ...]:
        facts = self._failed(step_id, call_id, outcome)
        return facts if isinstance(facts[-1], Failed) else (*facts, *self._step_ended(call_id, facts))

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
        decision = self._rerun_decision(call, prepared)
        if decision == "allow":
            await self._held.append(*self._regrant(call.call_id, call.attempt + 1, "in_doubt"))
            await self._make(prepared, call.call_id, attempt=call.attempt + 1)
        elif decision == "ask":
            await self._held.append(*self._asking(call))
        else:
            await self._block(call)

    def _rerun_decision(self, call: Call, prepared: PreparedCall) -> Decision:
        """Return whether a call may be made again: what a person said of it, else what the policy says now."""
        session = self._held.session
        waiting, work = session.waiting.get(call.call_id), session.work_on(call.call_id)
        if waiting is not None and waiting.decision is not None:
            return "allow" if denied(waiting.decision.value) is None else "deny"
        if work is not None and work.is_approved:
            return "allow"
        return ask_policy(self._held.task.policy, prepared.name, prepared.arguments)[0]

    def _asking(self, call: Call) -> tuple[EventData, ...]:
        held = HeldCall(
            step_id=self._step_id(call.call_id),
            call_id=call.call_id,
            name=call.tool.name,
            arguments=call.arguments,
            asks="policy",
            reason="permission",
        )
        pause = SessionPause(
            reason="review:permission",
            state=self._held.session.phase,
            topic="before_tool_call",
            subject=call.call_id,
            calls=(held,),
        )
        return pause, Blocked(cause=call_cause(held))

    async def _probe(self, call: Call, prepared: PreparedCall) -> None:
        context = self._context(call.call_id, call.attempt, CancelSignal())
        answer = await self._dispatcher.probe(prepared, context)
        if isinstance(answer, FailedCall) and self._dispatcher.is_running(prepared, context):
            answer = OutcomeUnknown("probe", f"its body still runs, and its probe says: {answer.message}")
        step_id = self._step_id(call.call_id)
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
        return ToolResultGiven(step_id=self._step_id(call.call_id), call_id=call.call_id, result=answer.result), fact

    async def _block(self, call: Call) -> None:
        reason = "nobody knows whether it happened"
        doubt = (ToolInDoubt(call_id=call.call_id, reason=reason),) if call.status == "granted" else ()
        await self._held.append(*doubt, *self._reconcile_cause(call, reason))

    def _reconcile_cause(self, call: Call, reason: str) -> tuple[EventData, ...]:
        cause = reconcile_cause(call, reason)
        return () if self._held.state.cause(cause.id) is not None else (Blocked(cause=cause),)

    async def poll(self, call: Call) -> None:
        """Ask once what became of an accepted job; wait for its interval when it has not finished.

        Raises:
            Moved: the outcome is not accepted any more.
            LeaseLost: the lease is not ours any more.
        """
        if await self._follow_child(call):
            return
        held = self._held
        prepared = self._dispatcher.prepare(call.tool.name, call.arguments)
        job = self._jobs.get(call.call_id) or AcceptedJob(handle=call.handle, interval_seconds=call.interval_seconds)
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

    async def _follow_child(self, call: Call) -> bool:
        """Record the first child that ended of those that open calls wait for, or wait for this call's; False when it waits for something else."""
        children, open_calls = self.children, self._held.state.open_calls
        waiting = {item.child: item for item in open_calls if item.child and await children.is_ours(item.child)}
        ended = await children.ended(waiting)
        if ended is not None:
            await self._record_child(waiting[ended.run_id], ended)
        elif call.child in waiting:
            await self._tell_of_child(call)
            await children.wait(call.child)
        return ended is not None or call.child in waiting

    async def _tell_of_child(self, call: Call) -> None:
        """Say once, as progress of the call, that its child waits for a person: nothing else of this run would show why it stands still."""
        is_blocked = await self.children.is_blocked(call.child)
        if is_blocked and call.child not in self._blocked_children:
            self._report(call.call_id, f"child run {call.child} waits for an answer: checkrein show {call.child}")
        (self._blocked_children.add if is_blocked else self._blocked_children.discard)(call.child)

    async def _record_child(self, call: Call, child: RunState) -> None:
        """Append in one batch what a child used and what became of the call that waited for it."""
        call_id, children = call.call_id, self.children
        outcome = await children.result(child, attempt=call.attempt)
        if isinstance(outcome, Done):
            facts = await self._done(call_id, outcome)
        else:
            facts = self._failed(self._step_id(call_id), call_id, outcome)
        await self._held.append_outcome_of(
            lambda: (*children.settlement(child), *facts, *self._step_ended(call_id, facts))
        )


def _awaiting(call_id: str, name: str) -> Blocked:
    """Return the fact that blocks a run until a caller brings the result of a call."""
    return Blocked(cause=pull_cause(call_id, name))


def _raise_first(ends: Sequence[BaseException | None]) -> None:
    error = next((end for end in ends if end is not None), None)
    if error is not None:
        raise error
