"""Fires the hooks of one session: each topic once per subject, whatever happens to the log in between, and what a failure or a pause of theirs comes to.

What a hook decided is kept here until the driver has recorded what follows from it, so that a log that moves on meanwhile does not call it again. Across a crash or a
restart only an answered pause is known: hooks run at least once.
"""

from collections.abc import Mapping

import msgspec

from checkrein.errors import ResumeError
from checkrein.harness.hooks import TOPICS, Fired, HookError, Hooks, Topic, denied
from checkrein.harness.host import SessionHost
from checkrein.harness.pulls import answer_facts
from checkrein.kernel.events import SessionComplete, SessionPause
from checkrein.kernel.session_events import BudgetWarn
from checkrein.kernel.session_state import Answered
from checkrein.values import NULL, JsonData, clean_text

__all__ = ["HookFirer", "Yielded"]


class Yielded(Exception):
    """The session paused while something was being done."""


class Verdict(msgspec.Struct, frozen=True):
    """What the hooks of one topic said of one subject.

    Attributes:
        fired: what they decided.
        payload: what they made of the payload.
    """

    fired: Fired
    payload: dict[str, object]


class HookFirer:
    """Fires hooks for the driver of one session.

    Args:
        host: the session's place.
        hooks: the subscribers.
    """

    def __init__(self, host: SessionHost, hooks: Hooks) -> None:
        self.hooks = hooks
        self._host = host
        self._verdicts: dict[tuple[Topic, str], Verdict] = {}
        self._abort_answered = ""

    def is_wanted(self, topic: Topic, subject: str) -> bool:
        """Whether firing a topic can mean anything: somebody subscribes to it, or what it was asked about the subject was answered.

        An answer counts where the hook that asked is not registered any more, for instance in another process: what was denied stays denied.
        """
        return self.hooks.has_subscribers(topic) or self.answer_to(topic, subject) is not None

    def answer_to(self, topic: Topic, subject: str) -> Answered | None:
        """Return the answered pause of a topic about a subject."""
        answered = self._host.session.answered
        return answered if answered is not None and (answered.topic, answered.subject) == (topic, subject) else None

    def knows(self, topic: Topic, subject: str) -> bool:
        """Whether the topic was fired for the subject and what follows was not recorded yet."""
        return (topic, subject) in self._verdicts

    def remember(self, topic: Topic, subject: str) -> None:
        """Note that the topic was fired for the subject by other means."""
        self._verdicts[topic, subject] = Verdict(Fired("went", "", 0, ()), {})

    def forget(self, topic: Topic, subject: str) -> None:
        """Let the topic be fired again for that subject: what the hooks decided is in the log."""
        self._verdicts.pop((topic, subject), None)

    def forget_all(self) -> None:
        """Let every topic be fired again: the steps that subjects name are those of another plan now."""
        self._verdicts.clear()

    async def fire(
        self,
        topic: Topic,
        subject: str,
        payload: Mapping[str, object],
        *,
        start: int = 0,
        decision: JsonData | None = None,
    ) -> Verdict:
        """Return what the hooks of a topic say of a subject, calling them at most once.

        A pause of the topic that was answered before is not begun anew: only the subscribers after the one that asked are called, with the
        decision, and a decision that denies is an abort.

        Args:
            topic: the topic.
            subject: what it is about.
            payload: what subscribers see and may change; `goal` is added.
            start: where to begin, for a pause that the session does not keep as its last.
            decision: what was decided about it.

        Raises:
            Yielded: a hook failed, and the session paused because of it.
        """
        known = self._verdicts.get((topic, subject))
        if known is not None:
            return known
        given: dict[str, object] = {"goal": self._host.session.goal, **payload}
        answered = self.answer_to(topic, subject)
        if decision is None and answered is not None:
            start, decision = answered.position, answered.decision
        if decision is not None:
            given["decision"] = decision.value
        refusal = denied(decision.value) if decision is not None else None
        if refusal is not None:
            fired = Fired("aborted", refusal, start, ())
        elif self.hooks.has_subscribers(topic):
            fired = await self.hooks.fire(topic, given, start=start)
        else:
            fired = Fired("went", "", start, ())
        verdict = self._verdicts[topic, subject] = Verdict(fired, given)
        await self._report(topic, fired)
        return verdict

    async def _report(self, topic: Topic, fired: Fired) -> None:
        """Tell `on_error` of every hook that failed; of one that kept a call from being made the call's own error tells."""
        if topic == "on_error" or not fired.failures:
            return
        failures = fired.failures[:-1] if fired.kind == "failed" else fired.failures
        for failure in failures:
            await self.tell_error(f"hook:{topic}", {"error": _words(failure), "reason": "hook_failed"})
        if failures and self.hooks.pauses_on_failure and topic != "on_pause":
            text = _words(failures[-1])
            await self.pause(SessionPause(reason="review:hook_failed", state=self._host.session.phase, message=text))

    async def tell_error(self, subject: str, payload: Mapping[str, object], *, can_pause: bool = True) -> None:
        """Fire `on_error`; a hook of it that fails is noted and causes nothing further.

        Raises:
            Yielded: a hook asked for a review.
        """
        if not self.hooks.has_subscribers("on_error"):
            return
        given: dict[str, object] = {"goal": self._host.session.goal, **payload}
        fired = await self.hooks.fire("on_error", given)
        session = self._host.session
        if fired.kind == "paused" and can_pause and session.paused is None:
            kept = {name: value for name, value in payload.items() if isinstance(value, (str, int))}
            await self.pause(
                SessionPause(
                    reason=f"review:{fired.text}",
                    state=session.phase,
                    topic="on_error",
                    subject=subject,
                    position=fired.position,
                    kept=JsonData(kept),
                )
            )

    async def finish_error(self) -> None:
        """Call the subscribers of `on_error` that stand after one whose review was answered.

        Raises:
            Yielded: one of them asked for another review.
        """
        answered = self._host.session.answered
        if answered is None or answered.topic != "on_error" or self.knows("on_error", answered.subject):
            return
        kept = answered.kept.value
        payload: dict[str, object] = dict(kept) if isinstance(kept, dict) else {}
        verdict = await self.fire("on_error", answered.subject, payload)
        if verdict.fired.kind == "paused":
            self.forget("on_error", answered.subject)
            await self.pause_for(verdict, "on_error", answered.subject, kept=answered.kept)

    async def pause_for(
        self, verdict: Verdict, topic: Topic, subject: str, *, kept: JsonData = NULL, is_abort: bool = False
    ) -> None:
        """Pause as the hooks of a topic asked.

        Raises:
            Yielded: always.
        """
        kind = "aborted" if is_abort else "review"
        fired = verdict.fired
        pause = SessionPause(
            reason=f"{kind}:{fired.text}",
            state=self._host.session.phase,
            topic=topic,
            subject=subject,
            position=fired.position,
            kept=kept,
        )
        await self.pause(pause)

    async def pause(self, pause: SessionPause, warn: BudgetWarn | None = None) -> None:
        """Record a pause, then let `on_pause` look at it.

        Raises:
            Yielded: always.
        """
        await self._host.pause(pause, warn)
        for topic in TOPICS:
            if topic == pause.topic:
                self.forget(topic, pause.subject)
        await self.announce_pause(pause)
        raise Yielded

    async def announce_pause(self, pause: SessionPause) -> None:
        """Fire `on_pause`, and apply the answer that a hook put into the payload."""
        if not self.hooks.has_subscribers("on_pause"):
            return
        payload: dict[str, object] = {
            "goal": self._host.session.goal,
            "reason": pause.reason,
            "state": pause.state,
            "topic": pause.topic,
            "subject": pause.subject,
        }
        fired = await self.hooks.fire("on_pause", payload)
        for failure in fired.failures:
            await self.tell_error("hook:on_pause", {"error": _words(failure)}, can_pause=False)
        answer = payload.get("resume")
        if answer is None:
            return
        if pause.reason.startswith("aborted:"):
            # A hook that denies a planning again and again would never give control back.
            if self._abort_answered == pause.subject:
                self.hooks.note("on_pause", "resume", "a hook answered this abort before; now the caller is asked")
                return
            self._abort_answered = pause.subject
        try:
            for fact in answer_facts(self._host.session, self._host.budget(), answer):
                if isinstance(fact, SessionComplete):
                    await self.announce_end(fact.reason)
            await self._host.resume(answer)
        except ResumeError as error:
            self.hooks.note("on_pause", "resume", str(error))

    async def announce_end(self, reason: str) -> None:
        """Fire `on_complete`, before the session's last event; what its hooks fail at is noted and changes nothing."""
        if not self.hooks.has_subscribers("on_complete"):
            return
        fired = await self.hooks.fire("on_complete", {"goal": self._host.session.goal, "reason": reason})
        for failure in fired.failures:
            await self.tell_error(
                "hook:on_complete", {"error": _words(failure), "reason": "hook_failed"}, can_pause=False
            )


def _words(failure: HookError) -> str:
    return clean_text(f"{failure.subscriber} of {failure.topic}: {failure.message}")
