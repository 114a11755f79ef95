"""Drives one session: does what its machine says must be done next, fires the hooks around it, and records what happened.

The machine (`kernel/session.py`) knows no hooks and the hooks know no machine; here is the one place where both meet, so every firing order is written in this file.
The driver keeps no progress of its own: left at any instruction, it is begun anew from the log.
"""

from collections.abc import Sequence

from checkrein.errors import DataError
from checkrein.harness.attempts import allows
from checkrein.harness.compacting import ask_within_window, make_room
from checkrein.harness.drafts import changed_steps, record_of, revision, step_of, steps_from_data, steps_to_data
from checkrein.harness.firing import HookFirer, Yielded
from checkrein.harness.hooks import Fired, Hooks
from checkrein.harness.host import SessionHost, ended_step, plain_end
from checkrein.harness.planners import PlannerFailed
from checkrein.harness.preparing import CallPreparer, ready_call
from checkrein.kernel.events import PlanDraft, SessionData, SessionPause, StepEnd, StepSpec, StepStart, TurnStart
from checkrein.kernel.session_events import BudgetWarn
from checkrein.kernel.session_next import (
    AskPlanner,
    AwaitCalls,
    CompleteSession,
    Effect,
    EndStep,
    GiveBack,
    MeetGoal,
    OnFailure,
    PauseForBudget,
    PrepareCalls,
    ReviewDraft,
    ReviewStep,
    StartStep,
    budget_reason,
    end_of_empty_plan,
    next_effect,
    regranted,
)
from checkrein.kernel.session_state import CallAnswer, EndedStep, SessionPhase, StepWork
from checkrein.messages import Usage
from checkrein.values import NULL, JsonData

__all__ = ["SessionDriver"]


class SessionDriver:
    """Drives one session.

    Args:
        host: the session's place.
        hooks: the subscribers.
        on_failure: what follows a failed step.
    """

    def __init__(self, host: SessionHost, hooks: Hooks, *, on_failure: OnFailure = "replan") -> None:
        self._host = host
        self._hooks = hooks
        self._on_failure: OnFailure = on_failure
        self._firer = HookFirer(host, hooks)
        self._calls = CallPreparer(host, self._firer)
        self._reviews: dict[str | int, Fired] = {}

    def next_effect(self) -> Effect:
        """Return what must be done next."""
        session = self._host.session
        if self._reviews:
            # An id may come back in a later plan: what was said of the step that had it before says nothing of this one.
            self._reviews = {name: fired for name, fired in self._reviews.items() if name in session.reviewing}
        is_watched = bool(self._reviews) or any(
            self._firer.is_wanted("after_step", f"step:{step_id}") for step_id in session.reviewing
        )
        reviewed = self._reviews if is_watched else session.reviewing
        effect = next_effect(session, self._host.budget(), self._on_failure, reviewed=reviewed)
        if isinstance(effect, AskPlanner) and effect.is_held and self._host.counts_held_requests:
            return next_effect(regranted(session), self._host.budget(), self._on_failure)
        return effect

    async def perform(self, effect: Effect) -> None:
        """Do one thing and record it; afterwards the session may have moved, paused or ended.

        Raises:
            Exception: what the host raises to say that the log moved on, or is lost.
        """
        try:
            await self._firer.finish_error()
            await self._perform(effect)
        except Yielded:
            return

    async def _perform(self, effect: Effect) -> None:  # noqa: C901  one arm per effect
        match effect:
            case AskPlanner():
                await self._ask_planner(effect)
            case ReviewDraft():
                await self._review_draft(effect)
            case StartStep():
                await self._start_step(effect.step)
            case PrepareCalls():
                await self._prepare_calls(effect.works)
            case EndStep():
                await self._end_step(effect.work)
            case ReviewStep():
                await self._review_step(effect.step_id)
            case PauseForBudget():
                await self._pause_for_budget(effect)
            case MeetGoal():
                await self._host.meet_goal(self.announce_end)
            case CompleteSession():
                await self._host.complete(effect, self.announce_end)
            case AwaitCalls() | GiveBack():
                pass

    async def announce_end(self, reason: str) -> None:
        """Fire `on_complete`, before the session's last event; what its hooks fail at is noted and changes nothing."""
        await self._firer.announce_end(reason)

    async def _ask_planner(self, effect: AskPlanner) -> None:
        made = 0
        if not effect.is_held:
            room, made = await make_room(self._host, effect)
            if isinstance(room, PlannerFailed):
                await self._planner_failed(effect.turn, effect.attempt + made - 1, room)
                return
            if made and not allows(self._host.budget(), Usage()):
                return
            effect = room
        subject = f"turn:{effect.turn}"
        await self._host.begin_turn(
            TurnStart(turn=effect.turn, attempt=effect.attempt, notes=effect.notes, reason=effect.reason),
            previous=effect.previous,
            is_held=effect.is_held,
        )
        verdict = await self._firer.fire("before_plan", subject, {"reason": effect.reason, "turn": effect.turn})
        if verdict.fired.kind in {"aborted", "paused"}:
            await self._firer.pause_for(verdict, "before_plan", subject, is_abort=verdict.fired.kind == "aborted")
        request = self._host.session.request
        attempt = effect.attempt if request is None else request.attempt
        answer, attempt = await ask_within_window(self._host, effect, attempt, aside=made)
        if isinstance(answer, PlannerFailed):
            await self._planner_failed(effect.turn, attempt, answer)
        elif answer is not None:
            await self._host.answer_turn(answer, attempt=attempt)
            self._firer.forget("before_plan", subject)

    async def _planner_failed(self, turn: int, attempt: int, error: PlannerFailed) -> None:
        subject = f"turn:{turn}"
        payload = {"error": error.reason, "reason": "planner_failed", "turn": turn}
        await self._firer.tell_error(subject, payload, can_pause=False)
        pause = SessionPause(
            reason="planner_failed", state=SessionPhase.PLANNING, subject=subject, message=error.reason
        )
        await self._host.fail_turn(turn, attempt=attempt, pause=pause, usage=error.usage)
        self._firer.forget("before_plan", subject)
        await self._firer.announce_pause(pause)

    async def _review_draft(self, effect: ReviewDraft) -> None:
        draft, subject = effect.draft, f"turn:{effect.draft.turn}"
        steps = draft.steps
        if self._firer.is_wanted("after_plan", subject):
            offered = [step_of(spec) for spec in steps]
            answered = self._firer.answer_to("after_plan", subject)
            if answered is not None and answered.kept != NULL:
                offered = steps_from_data(answered.kept)
            payload = {"steps": offered, "final": draft.final, "reason": effect.reason}
            verdict = await self._firer.fire("after_plan", subject, payload)
            if verdict.fired.kind == "aborted":
                dropped = PlanDraft(turn=draft.turn, steps=(), final=draft.final, dropped=verdict.fired.text)
                await self._host.record(dropped)
                self._firer.forget("after_plan", subject)
                return
            steps = self._steps_of(verdict.payload.get("steps"), draft)
            if verdict.fired.kind == "paused":
                kept = NULL if steps == draft.steps else steps_to_data(steps)
                await self._firer.pause_for(verdict, "after_plan", subject, kept=kept)
        end = None if steps else end_of_empty_plan(self._host.session, self._on_failure)
        if end is not None:
            await self._host.complete(end, self.announce_end)
        else:
            await self._host.commit(revision(self._host.session, draft, steps, effect.reason))
        self._firer.forget_all()

    def _steps_of(self, given: object, draft: PlanDraft) -> tuple[StepSpec, ...]:
        """Return the steps as hooks left them; what is no plan any more is their failure, and the draft stays as it was."""
        try:
            return changed_steps(given)
        except PlannerFailed as error:
            self._hooks.note("after_plan", "payload", error.reason)
            return draft.steps

    async def _start_step(self, step: StepSpec) -> None:
        subject = f"step:{step.id}"
        begin = StepStart(step_id=step.id)
        kind, text = "went", ""
        if self._firer.is_wanted("before_step", subject):
            verdict = await self._firer.fire("before_step", subject, {"step": step_of(step)})
            kind, text = verdict.fired.kind, verdict.fired.text
            if kind == "paused":
                await self._firer.pause_for(verdict, "before_step", subject)
        if kind == "aborted":
            await self._host.record(begin, StepEnd(step_id=step.id, status="failed", error=text))
        elif kind == "skipped":
            await self._host.record(begin, StepEnd(step_id=step.id, status="skipped"))
        elif step.tool_name is None:
            await self._host.record(begin, plain_end(step))
        elif self._begins_with_grant(step):
            await self._prepare_calls((StepWork(step),), begun=(begin,))
        else:
            await self._host.record(begin)
        self._firer.forget("before_step", subject)

    def _begins_with_grant(self, step: StepSpec) -> bool:
        """Whether the start of a step and the grant of its call may be one append: nobody looks in between, and the call can be paid for."""
        return (
            len(self._host.session.batch_of(step)) == 1
            and not self._hooks.has_subscribers("before_tool_call")
            and not self._host.budget().is_reached("tool_calls")
        )

    async def _prepare_calls(self, works: tuple[StepWork, ...], *, begun: tuple[SessionData, ...] = ()) -> None:
        prepared = await self._calls.prepare(works)
        if begun and (prepared.facts or prepared.asking):
            await self._host.record(*begun, *prepared.facts)
        elif prepared.facts:
            await self._host.record(*prepared.facts)
        if prepared.asking:
            subject = prepared.asking[0].call_id if len(prepared.asking) == 1 else ""
            await self._firer.pause(
                SessionPause(
                    reason=prepared.reason,
                    state=self._host.session.phase,
                    topic="before_tool_call",
                    subject=subject,
                    calls=(*prepared.asking, *prepared.ready),
                )
            )
        if prepared.ready:
            ends = len(works) == 1 and self._ends_with_outcome(works[0].step)
            await self._host.make([ready_call(call, begun=begun, ends_step=ends) for call in prepared.ready])
        if not any(item.answer is None for item in self._host.session.work):
            self._calls.forget()

    def _ends_with_outcome(self, step: StepSpec) -> bool:
        """Whether a call's outcome and the end of its step may be one append: it stands alone and nobody looks in between."""
        is_alone = len(self._host.session.batch_of(step)) == 1
        return is_alone and not (
            self._hooks.has_subscribers("after_tool_call") or self._hooks.has_subscribers("on_error")
        )

    async def _end_step(self, work: StepWork) -> None:
        if work.answer is None:
            await self._host.record(plain_end(work.step))
            return
        answer, subject = work.answer, work.call_id or f"step:{work.step.id}"
        if answer.error:
            await self._tell_call_error(work, answer.error, subject)
        end = ended_step(work.step.id, answer)
        if work.call_id and self._firer.is_wanted("after_tool_call", work.call_id):
            end = await self._after_tool_call(work, answer)
        await self._host.record(end)
        self._firer.forget("after_tool_call", subject)
        self._firer.forget("on_error", subject)

    async def _tell_call_error(self, work: StepWork, error: str, subject: str) -> None:
        if self._firer.answer_to("on_error", subject) is not None or self._firer.knows("on_error", subject):
            return
        self._firer.remember("on_error", subject)
        await self._firer.tell_error(subject, {"error": error, "reason": "tool_error", "step": step_of(work.step)})

    async def _after_tool_call(self, work: StepWork, answer: CallAnswer) -> StepEnd:
        call = {"call_id": work.call_id, "name": work.name, "attempt": work.attempt}
        payload: dict[str, object] = {"step": step_of(work.step), "call": call}
        key = "error" if answer.error else "result"
        payload[key] = answer.error or answer.result.value
        answered = self._firer.answer_to("after_tool_call", work.call_id)
        if answered is not None:
            payload[key] = answered.kept.value
        verdict = await self._firer.fire("after_tool_call", work.call_id, payload)
        left = self._left(verdict.payload.get(key), answer, key)
        if verdict.fired.kind == "paused":
            await self._firer.pause_for(verdict, "after_tool_call", work.call_id, kept=left)
        if verdict.fired.kind == "aborted":
            return StepEnd(step_id=work.step.id, status="failed", error=verdict.fired.text)
        if key == "error":
            return StepEnd(step_id=work.step.id, status="failed", error=str(left.value or answer.error))
        return StepEnd(step_id=work.step.id, status="done", result=left)

    def _left(self, value: object, answer: CallAnswer, key: str) -> JsonData:
        """Return what hooks made of a result or an error; what has no JSON form is their failure, and it stays as it was."""
        try:
            return JsonData(value)
        except DataError as error:
            self._hooks.note("after_tool_call", "payload", f"{key}: {error}")
            return JsonData(answer.error) if key == "error" else answer.result

    async def _review_step(self, step_id: str | int) -> None:
        session, subject = self._host.session, f"step:{step_id}"
        ended = next(
            item for item in reversed(session.history) if isinstance(item, EndedStep) and item.step.id == step_id
        )
        record = record_of(ended)
        payload = {"step": record.step, "status": record.status, "result": record.result, "error": record.error}
        verdict = await self._firer.fire("after_step", subject, payload)
        if verdict.fired.kind == "paused":
            await self._firer.pause_for(verdict, "after_step", subject)
        reviews = {**self._reviews, step_id: verdict.fired}
        if all(name in reviews for name in session.reviewing):
            await self._conclude_reviews([reviews[name] for name in session.reviewing])
        self._reviews = reviews
        self._firer.forget("after_step", subject)

    async def _conclude_reviews(self, reviews: Sequence[Fired]) -> None:
        """Do what hooks want after the steps that ended, once they have seen all of them."""
        session = self._host.session
        abort = next((fired for fired in reviews if fired.kind == "aborted"), None)
        if abort is not None:
            await self._host.record(PlanDraft(turn=session.turns, steps=(), final=session.is_final, dropped=abort.text))
        elif session.next_step is not None and any(fired.kind == "skipped" for fired in reviews):
            if self._host.budget().is_reached("steps"):
                await self._pause_for_budget(PauseForBudget("steps"))
            following = session.next_step.id
            await self._host.record(StepStart(step_id=following), StepEnd(step_id=following, status="skipped"))

    async def _pause_for_budget(self, effect: PauseForBudget) -> None:
        budget, limit = self._host.budget(), effect.limit
        used, allowed = budget.taken(limit), budget.limits.limit(limit) or 0
        reason = budget_reason(limit)
        if self._hooks.has_subscribers("on_budget_exceeded"):
            payload = {"reason": reason, "limit": limit, "used": used, "allowed": allowed}
            await self._firer.fire("on_budget_exceeded", limit, payload)
        session = self._host.session
        warn = BudgetWarn(limit=limit, used=used, allowed=allowed)
        waiting = tuple(item for item in session.work if item.answer is None and not item.call_id)
        pause = SessionPause(reason=reason, state=session.phase, subject=limit, calls=self._calls.ready_beside(waiting))
        self._firer.forget("on_budget_exceeded", limit)
        await self._firer.pause(pause, warn)
