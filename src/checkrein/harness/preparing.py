"""Brings the calls of a batch to their grant: budget was looked at before; then hooks, schema, policy, and the reviews that any of them asks for.

All calls of a batch come through here before the first body runs. The invariant: for each call exactly one of four things comes out, it is ready, it waits for a
decision of its own, it is refused with an error for the planner, or its step is skipped; and what was decided about it is never asked again.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias, cast

import msgspec

from checkrein.errors import DataError
from checkrein.harness.drafts import arguments_of, step_of
from checkrein.harness.firing import HookFirer
from checkrein.harness.hooks import denied
from checkrein.harness.host import ReadyCall, SessionHost
from checkrein.kernel.events import SessionData, StepEnd, ToolErrorGiven
from checkrein.kernel.session_events import HeldCall
from checkrein.kernel.session_state import StepWork, Waiting
from checkrein.values import JsonObject, as_object, shorten

__all__ = ["CallPreparer", "Prepared", "ready_call"]

_ECHO_CHARACTERS: Final = 200


class Refused(msgspec.Struct, frozen=True):
    """A call that is not made: why, for the planner."""

    kind: str
    message: str


class Skipped(msgspec.Struct, frozen=True):
    """A call that is not made because its step is left out."""


Fate: TypeAlias = HeldCall | Refused | Skipped
"""What comes of a call: a held one either asks something, or is ready."""


class Prepared(msgspec.Struct, frozen=True):
    """What came of the calls of a batch.

    Attributes:
        facts: what must be recorded about those that are not made.
        asking: calls that wait for a decision.
        ready: calls that only need their grant.
    """

    facts: tuple[SessionData, ...]
    asking: tuple[HeldCall, ...]
    ready: tuple[HeldCall, ...]

    @property
    def reason(self) -> str:
        """The reason of the pause in which the open questions are answered."""
        hook = next((call.reason for call in self.asking if call.asks == "hook"), None)
        return "review:permission" if hook is None else f"review:{hook}"


class CallPreparer:
    """Prepares the calls of one session, each once.

    Args:
        host: schema and policy.
        firer: the hooks.
    """

    def __init__(self, host: SessionHost, firer: HookFirer) -> None:
        self._host = host
        self._firer = firer
        self._fates: dict[str, Fate] = {}

    def forget(self) -> None:
        """Drop what is known of calls that were granted, refused or skipped: the log has it."""
        self._fates.clear()

    def ready_beside(self, works: Sequence[StepWork]) -> tuple[HeldCall, ...]:
        """Return the prepared calls of these steps that only need their grant, for a pause to keep."""
        fates = (self._fates.get(self._host.session.call_id_of(work.step)) for work in works)
        return tuple(fate for fate in fates if isinstance(fate, HeldCall) and not fate.asks)

    async def prepare(self, works: Sequence[StepWork]) -> Prepared:
        """Return what comes of the calls of started steps.

        Raises:
            Yielded: a hook failed and the session paused because of it.
        """
        current = {self._host.session.call_id_of(work.step) for work in works}
        self._fates = {call_id: fate for call_id, fate in self._fates.items() if call_id in current}
        facts: list[SessionData] = []
        asking: list[HeldCall] = []
        ready: list[HeldCall] = []
        for work in works:
            fate = await self._fate(work)
            step_id = work.step.id
            match fate:
                case HeldCall():
                    (asking if fate.asks else ready).append(fate)
                case Refused():
                    facts.append(ToolErrorGiven(step_id=step_id, call_id="", kind=fate.kind, message=fate.message))
                case Skipped():
                    facts.append(StepEnd(step_id=step_id, status="skipped"))
        return Prepared(tuple(facts), tuple(asking), tuple(ready))

    async def _fate(self, work: StepWork) -> Fate:
        call_id = self._host.session.call_id_of(work.step)
        waiting = self._host.session.waiting.get(call_id)
        known = self._fates.get(call_id)
        is_answered = waiting is not None and waiting.decision is not None
        if known is not None and not (is_answered and isinstance(known, HeldCall) and known.asks):
            return known
        fate = await self._decide(work, call_id, waiting)
        self._fates[call_id] = fate
        return fate

    async def _decide(self, work: StepWork, call_id: str, waiting: Waiting | None) -> Fate:
        if waiting is None:
            held = HeldCall(
                step_id=work.step.id, call_id=call_id, name=work.step.tool_name or "", arguments=work.step.arguments
            )
            return await self._through_hooks(work, held, None)
        held, decision = waiting.call, waiting.decision
        if decision is None or not held.asks:
            return held
        refusal = denied(decision.value)
        if refusal is not None:
            return Refused("denied", refusal)
        if held.asks == "hook":
            return await self._through_hooks(work, msgspec.structs.replace(held, asks="", reason=""), waiting)
        return msgspec.structs.replace(held, asks="", reason="")

    async def _through_hooks(self, work: StepWork, held: HeldCall, waiting: Waiting | None) -> Fate:
        if self._firer.hooks.has_subscribers("before_tool_call"):
            arguments = as_object(held.arguments).decoded()
            call = {"call_id": held.call_id, "name": held.name, "arguments": arguments}
            verdict = await self._firer.fire(
                "before_tool_call",
                held.call_id,
                {"step": step_of(work.step), "call": call},
                start=held.position,
                decision=waiting.decision if waiting is not None else None,
            )
            self._firer.forget("before_tool_call", held.call_id)
            fired = verdict.fired
            if fired.kind == "skipped":
                return Skipped()
            if fired.kind in {"aborted", "failed"}:
                return Refused("denied" if fired.kind == "aborted" else "internal", fired.text)
            try:
                changed = _arguments(verdict.payload)
            except DataError as error:
                return Refused("schema", f"what a hook made of the arguments is no JSON object: {error}")
            held = msgspec.structs.replace(held, arguments=changed, position=fired.position)
            if fired.kind == "paused":
                return msgspec.structs.replace(held, asks="hook", reason=fired.text)
        return self._through_policy(work, held)

    def _through_policy(self, work: StepWork, held: HeldCall) -> Fate:
        arguments = as_object(held.arguments)
        # A hook that put arguments in the place of a malformed text has mended the call.
        malformed = work.step.malformed if arguments == work.step.arguments else ""
        refusal = self._host.prepare(held.name, arguments, malformed=malformed)
        if refusal is not None:
            return Refused(refusal.kind, refusal.message)
        if malformed:
            echo = shorten(malformed, _ECHO_CHARACTERS)
            return Refused("schema", f"the arguments of {held.name} are no JSON object: {echo}")
        decision, reason = self._host.permit(held.name, arguments)
        if decision == "deny":
            return Refused("denied", reason)
        return held if decision == "allow" else msgspec.structs.replace(held, asks="policy", reason="permission")


def _arguments(payload: dict[str, object]) -> JsonObject:
    """Return the arguments as hooks left them.

    Raises:
        DataError: the call, or its arguments, are no object any more.
    """
    call = payload.get("call")
    if not isinstance(call, dict):
        msg = "the payload has no call any more"
        raise DataError(msg)
    return arguments_of(cast("dict[str, object]", call).get("arguments"))


def ready_call(held: HeldCall, *, begun: tuple[SessionData, ...] = (), ends_step: bool = False) -> ReadyCall:
    """Return a held call as a host makes it."""
    return ReadyCall(held.step_id, held.call_id, held.name, as_object(held.arguments), begun=begun, ends_step=ends_step)
