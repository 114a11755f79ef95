"""What people and programs say to runs: facts that any process on the same store may append, without a lease and without executing anything.

Each command reads the run, decides on what it sees, and appends by compare-and-set, again and again while a worker moves the version. When a command returns, its
facts are durable. A command that was cancelled while it waited may still have been accepted: give a `request_id` and repeat it.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, Literal, TypeAlias

import msgspec

from checkrein.codec.wire import row_of
from checkrein.errors import AmbiguousRun, Conflict, Rejected, ResumeError, RunNotFound
from checkrein.harness.pulls import PullRequest, answer_facts, pull_of
from checkrein.kernel.budget import Amounts, Limit
from checkrein.kernel.events import (
    Artifact,
    CancelRequested,
    Cause,
    CodeAccepted,
    Event,
    EventData,
    Failed,
    FollowUpQueued,
    Received,
    SessionData,
    SessionResume,
    SessionStart,
    SteerQueued,
    ToolErrorGiven,
    ToolReconciled,
    ToolResultGiven,
    Unblocked,
)
from checkrein.kernel.run import transition_batch
from checkrein.kernel.session_state import SessionState
from checkrein.kernel.state import Phase, RunState
from checkrein.ports.clock import Clock, IdSource
from checkrein.ports.store import RunQuery, RunStore
from checkrein.runs.answers import answer_events, decision_events, extension_events
from checkrein.runs.journal import Journal, head_of
from checkrein.runs.task import Task
from checkrein.values import NULL, JsonData, clean_text

__all__ = ["MAX_DEPTH", "Commands", "Reconciled", "RunPull", "find_run", "pull_at"]

MAX_DEPTH: Final = 8
"""How deep child runs may be nested."""
_DECIDED: Final = frozenset({"permission", "answer"})
_Build: TypeAlias = Callable[[RunState, SessionState], Sequence[EventData]]


class Reconciled(msgspec.Struct, frozen=True):
    """What a person found out about a call in doubt.

    Attributes:
        outcome: what became of it.
        result: what it returned, when it is done.
        artifacts: files it wrote that count from now on, with their digests.
        message: how the person knows.
    """

    outcome: Literal["done", "failed", "unknown"]
    result: JsonData = NULL
    artifacts: tuple[Artifact, ...] = ()
    message: str = ""


class RunPull(msgspec.Struct, frozen=True):
    """What a run waits for from a caller.

    Attributes:
        run_id: the run.
        version: the version at which it was looked at; give it back with the answer to have that refused when the log has moved on.
        phase: where the run stands.
        pull: the open pull; None when nothing is asked of a caller.
    """

    run_id: str
    version: int
    phase: Phase
    pull: PullRequest | None


def pull_at(state: RunState, session: SessionState) -> RunPull:
    """Return what a run waits for from a caller, as its folds have it."""
    brought = {call.call_id for call in state.open_calls if call.is_pull}
    pull = None if state.phase.is_terminal else pull_of(session, state.budget, only=brought)
    return RunPull(state.run_id, state.version, state.phase, pull)


async def find_run(store: RunStore, prefix: str) -> str:
    """Return the id of the one run whose id begins with `prefix`.

    Raises:
        RunNotFound: no run's id does.
        AmbiguousRun: several do, and none is it whole.
        StoreError: the store cannot be read.
    """
    rows = await store.list_runs(RunQuery(prefix=prefix, limit=11)) if prefix else ()
    ids = [row.run_id for row in rows]
    if prefix in ids:
        return prefix
    if not ids:
        raise RunNotFound(prefix)
    if len(ids) > 1:
        raise AmbiguousRun(prefix, tuple(sorted(ids)[:10]))
    return ids[0]


class Commands:
    """The users' side of every run in one store.

    Args:
        store: where the runs are.
        clock: the time.
        ids: makes ids of runs, events and notes.
        actor: who speaks, such as `user:alice`; it stands in the log.
    """

    def __init__(self, store: RunStore, *, clock: Clock, ids: IdSource, actor: str) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._actor = actor

    async def submit(self, task: Task, *, request_id: str = "") -> str:
        """Store a new run of `task` and return its id; the same `request_id` gives the same run.

        Raises:
            Rejected: `illegal_in_phase` when `request_id` names a run of another task.
            StoreError: the store could not be written.
        """
        run_id = self._ids.new_id()
        at = float(self._clock.now())
        received = Received(task=task.record(), budget=task.budget, request_id=request_id)
        events = tuple(
            Event(
                run_id=run_id,
                event_id=self._ids.new_id(),
                expected_version=version,
                at=at,
                actor=self._actor,
                data=data,
            )
            for version, data in enumerate((received, SessionStart(goal=task.goal)))
        )
        state = transition_batch(None, events)
        created = await self._store.create(run_id, request_id, [row_of(event) for event in events], head_of(state, at))
        if created != run_id:
            await self._refuse_other_task(created, task, request_id)
        return created

    async def _refuse_other_task(self, run_id: str, task: Task, request_id: str) -> None:
        head = (await self._store.get(run_id)).head
        if head.task != task.name:
            detail = f"request id {request_id!r} belongs to run {run_id} of task {head.task!r}; use another one for {task.name!r}"
            raise Rejected("illegal_in_phase", detail, {"run_id": run_id, "event": "received"})

    async def steer(self, run_id: str, text: str, *, request_id: str = "") -> RunState:
        """Queue a message for the next planning.

        Raises:
            Rejected: `terminal`.
            RunNotFound: no such run.
            StoreError: the store could not be written.
        """
        note = request_id or self._ids.new_id()
        return await self._append(
            run_id, lambda _state, _session: [SteerQueued(note=note, text=clean_text(text))], request_id
        )

    async def follow_up(self, run_id: str, text: str, *, request_id: str = "") -> RunState:
        """Queue a message for when the goal would count as met.

        Raises:
            Rejected: `terminal`.
            RunNotFound: no such run.
            StoreError: the store could not be written.
        """
        note = request_id or self._ids.new_id()
        return await self._append(
            run_id, lambda _state, _session: [FollowUpQueued(note=note, text=clean_text(text))], request_id
        )

    async def cancel(self, run_id: str, reason: str = "cancelled by request", *, request_id: str = "") -> RunState:
        """Take the right to start anything at once; the run ends when its open calls have their outcomes.

        Its child runs are cancelled before it, and theirs before them.

        Raises:
            Rejected: `terminal`.
            RunNotFound: no such run.
            StoreError: the store could not be written.
        """
        wish = CancelRequested(reason=clean_text(reason))
        return await self._append(run_id, lambda _state, _session: [wish], request_id)

    async def extend(self, run_id: str, extra: Amounts, *, request_id: str = "") -> RunState:
        """Raise limits; causes that only waited for that are answered.

        Raises:
            Rejected: `terminal`.
            DataError: an amount is negative or no finite number.
            RunNotFound: no such run.
            StoreError: the store could not be written.
        """
        return await self._append(
            run_id, lambda state, session: extension_events(state, session, extra.checked()), request_id
        )

    async def unblock(
        self, run_id: str, cause_id: str, *, answer: JsonData = NULL, reconciled: Reconciled | None = None
    ) -> RunState:
        """Answer one cause of a blocked run.

        Args:
            run_id: the run.
            cause_id: the cause; or, with `reconciled`, `reconcile:` and the id of any open call, because a person may always say what became of one.
            answer: for a permission `"allow"`, `"deny"` or `{"deny": reason}`; for other causes anything worth keeping.
            reconciled: what became of the call, needed for a call in doubt.

        Raises:
            Rejected: `illegal_in_phase` when there is no such open cause or the answer does not fit it, `budget_exhausted` when a limit
                is still used up, `terminal`.
            RunNotFound: no such run.
            StoreError: the store could not be written.
        """

        def build(state: RunState, session: SessionState) -> Sequence[EventData]:
            cause = state.cause(cause_id)
            call_id = cause_id.removeprefix("reconcile:")
            if cause is None and reconciled is not None and state.open_call(call_id) is not None:
                return _reconciling(state, session, call_id, reconciled)
            if cause is None:
                return [Unblocked(cause_id=cause_id)]
            if cause.kind == "reconcile":
                return _reconciling(state, session, cause.call_id, reconciled)
            objection = _objection(state, cause, answer)
            if objection is not None:
                raise Rejected(*objection, _coordinates(state))
            return _answering(state, session, cause, answer)

        return await self._append(run_id, build)

    async def respond(
        self, run_id: str, answer: object, *, version: int | None = None, request_id: str = ""
    ) -> RunState:
        """Answer the pull point that a run's session stands at; an answer that changes nothing appends nothing.

        Args:
            run_id: the run.
            answer: as `HarnessLoop.resume` takes it: one of `result`, `error`, `extend`, `decision`, `close`, with `call_id` where several are open.
            version: the version at which the pull was seen; the answer is refused when the log has moved on since.
            request_id: the same id twice is one answer.

        Raises:
            ResumeError: it is not taken there.
            Conflict: `stale_version`, with `version`.
            Rejected: the lifecycle refuses it, for instance because the run ended.
            RunNotFound: no such run.
            StoreError: the store could not be written.
        """

        def build(state: RunState, session: SessionState) -> Sequence[EventData]:
            if version is not None and version != state.version:
                raise Conflict(
                    run_id, "the log moved on since the pull was seen", (version, None), (state.version, state.epoch)
                )
            facts = answer_facts(session, state.budget, answer)
            _refuse_foreign_calls(state, facts)
            return answer_events(state, session, facts)

        return await self._append(run_id, build, request_id)

    async def pull(self, run_id: str) -> RunPull:
        """Return what a run waits for from a caller, with the version at which that is so.

        Raises:
            RunNotFound: no such run.
            StoreError: the store could not be read.
        """
        journal = await Journal.open(self._store, run_id, clock=self._clock, ids=self._ids)
        return pull_at(journal.state, journal.session)

    async def close(self, run_id: str, text: str) -> RunState:
        """End a blocked run without success.

        Raises:
            Rejected: `lease_lost` when it is not blocked, `calls_in_flight` when a call must be reconciled first, `terminal`.
            RunNotFound: no such run.
            StoreError: the store could not be written.
        """

        def build(state: RunState, _session: SessionState) -> Sequence[EventData]:
            waited = ", ".join(cause.id for cause in state.causes)
            return [Failed(code="closed", message=f"closed: {clean_text(text)} (it waited for {waited})")]

        return await self._append(run_id, build)

    async def accept_code(self, run_id: str, task: Task) -> RunState:
        """Let the run go on with the task's code as it is now.

        Raises:
            Rejected: `terminal`.
            RunNotFound: no such run.
            StoreError: the store could not be written.
        """

        def build(state: RunState, _session: SessionState) -> Sequence[EventData]:
            answered = [Unblocked(cause_id=cause.id) for cause in state.causes if cause.kind == "code_changed"]
            return [CodeAccepted(code_hash=task.code_hash, version=task.version), *answered]

        return await self._append(run_id, build)

    async def _append(self, run_id: str, build: _Build, request_id: str = "", *, depth: int = 0) -> RunState:
        """Append facts; before such as end the run, or will, its children are cancelled."""
        told: set[str] = set()
        missing: set[str] = set()

        def children_first(state: RunState, session: SessionState) -> Sequence[EventData]:
            facts = build(state, session)
            untold = {item.child for item in state.reservations} - told
            if untold and any(isinstance(fact, (CancelRequested, Failed)) for fact in facts):
                raise _Untold(untold)
            return facts

        while True:
            try:
                state = await self._append_now(run_id, children_first, request_id)
            except _Untold as error:
                missing |= await self._cancel_children(run_id, error.children, depth + 1)
                told |= error.children
            else:
                # One that was not there yet may have been created since; who creates it after this looks at its parent then.
                await self._cancel_children(run_id, missing, depth + 1)
                return state

    async def _cancel_children(self, parent: str, children: Collection[str], depth: int) -> set[str]:
        """Cancel children, theirs before them; return those that are not there."""
        missing: set[str] = set()
        for child in sorted(children):
            if depth > MAX_DEPTH:
                detail = f"it is nested more than {MAX_DEPTH} deep below the run that ends"
                raise Rejected("illegal_in_phase", detail, {"run_id": child, "event": CancelRequested.type})
            wish = CancelRequested(reason=f"its parent {parent} ends")
            try:
                await self._append(child, partial(_unless_asked, wish), depth=depth)
            except RunNotFound:
                missing.add(child)
            except Rejected as error:
                if error.code != "terminal":
                    raise
        return missing

    async def _append_now(self, run_id: str, build: _Build, request_id: str = "") -> RunState:
        journal = await Journal.open(self._store, run_id, clock=self._clock, ids=self._ids)
        if request_id and await self._is_known(journal, build, request_id):
            return journal.state
        while True:
            facts = build(journal.state, journal.session)
            if not facts:
                return journal.state
            try:
                await journal.append(facts, actor=self._actor, epoch=None, first_id=request_id)
            except Conflict as error:
                if error.code == "lease_lost":
                    raise
            else:
                return journal.state

    async def _is_known(self, journal: Journal, build: _Build, request_id: str) -> bool:
        """Tell whether the command was accepted before: where its event stands, the command would have said the same."""
        found = await self._store.find_event(journal.run_id, request_id)
        if found is None:
            return False
        then = await journal.at(found[0])
        facts = build(then.state, then.session)
        return bool(facts) and await journal.accepted_before(
            Event(
                run_id=journal.run_id,
                event_id=request_id,
                expected_version=0,
                at=0.0,
                actor=self._actor,
                data=facts[0],
            )
        )


class _Untold(Exception):
    """A run has children that were not cancelled yet."""

    def __init__(self, children: set[str]) -> None:
        super().__init__(sorted(children))
        self.children = children


def _unless_asked(wish: CancelRequested, state: RunState, _session: SessionState) -> Sequence[EventData]:
    return [] if state.cancel is not None else [wish]


def _answering(state: RunState, session: SessionState, cause: Cause, answer: JsonData) -> Sequence[EventData]:
    """Return the batch that answers a cause, whatever kind it is of."""
    paused = session.paused
    if cause.kind == "budget":
        is_paused = paused is not None and paused.is_budget and paused.subject == cause.detail
        resume = (SessionResume(topic="budget", subject=cause.detail),) if is_paused else ()
        return [Unblocked(cause_id=cause.id, answer=answer), *resume]
    if cause.kind in _DECIDED and paused is not None and not cause.id.startswith("answer:"):
        subject = cause.call_id or paused.subject
        return decision_events(state, session, subject, answer, cause_id=cause.id)
    return [Unblocked(cause_id=cause.id, answer=answer)]


def _limit_of(cause: Cause) -> Limit:
    return msgspec.convert(cause.detail, Limit)


def _refuse_foreign_calls(state: RunState, facts: Sequence[SessionData]) -> None:
    """Refuse the result of a call that a tool of the task makes: only its worker knows what became of it."""
    for fact in facts:
        call = state.open_call(fact.call_id) if isinstance(fact, (ToolResultGiven, ToolErrorGiven)) else None
        if call is not None and not call.is_pull:
            detail = (
                f"call {call.call_id} is made by the tool {call.tool.name}; its result cannot be brought from outside"
            )
            raise ResumeError("not_taken_here", detail)


def _coordinates(state: RunState) -> dict[str, str | int]:
    return {"run_id": state.run_id, "phase": str(state.phase), "version": state.version, "event": "unblocked"}


def _objection(state: RunState, cause: Cause, answer: JsonData) -> tuple[str, str] | None:
    value = answer.value
    if cause.kind == "permission":
        fits = value in ("allow", "deny") or (isinstance(value, dict) and set(value) == {"deny"})
        return None if fits else ("illegal_in_phase", "a permission is answered with allow or deny")
    if cause.kind == "budget" and state.budget.is_reached(_limit_of(cause)):
        return "budget_exhausted", f"{cause.detail} is still used up; extend it"
    if cause.id.startswith("answer:"):
        return (
            "illegal_in_phase",
            f"the call waits for its result; bring it with `checkrein answer RUN {cause.call_id} JSON`",
        )
    if cause.kind == "code_changed":
        return "illegal_in_phase", "changed code is accepted by resuming the run with --trust"
    return None


def _reconciling(state: RunState, session: SessionState, call_id: str, found: Reconciled | None) -> Sequence[EventData]:
    if found is None:
        raise Rejected(
            "illegal_in_phase", "a call in doubt needs its outcome: done, failed or unknown", _coordinates(state)
        )
    work = session.work_on(call_id)
    step_id = work.step.id if work is not None else ""
    message = found.message or f"a person says: {found.outcome}"
    given: EventData = (
        ToolResultGiven(step_id=step_id, call_id=call_id, result=found.result)
        if found.outcome == "done"
        else ToolErrorGiven(step_id=step_id, call_id=call_id, kind="internal", message=message)
    )
    fact = ToolReconciled(
        call_id=call_id,
        outcome=found.outcome,
        result=found.result,
        artifacts=found.artifacts,
        message=message,
    )
    ends = state.cancel is not None and len(state.open_calls) == 1
    answered = [cause for cause in state.causes if cause.kind == "reconcile" and cause.call_id == call_id]
    unblocked = [Unblocked(cause_id=cause.id, answer=JsonData(found.outcome)) for cause in answered]
    return [given, fact] if ends else [given, fact, *unblocked]
