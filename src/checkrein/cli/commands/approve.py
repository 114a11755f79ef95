"""`approve` and `deny`: decide about a call, or about whatever else a hook wants a person to look at; and ask a planner again that failed."""

from typing import Literal

import msgspec

from checkrein.cli.commands.answering import answered, seen
from checkrein.cli.exits import Exit, Refused
from checkrein.cli.invocation import Invocation
from checkrein.cli.questions import chosen

__all__ = ["DecideOptions", "decide"]


class DecideOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for.

    Attributes:
        run: the run's id, or its beginning.
        call: the call's id, what a review is about, or a cause's id; `""` for the only one that is open.
        verdict: yes or no.
        reason: why not; `""` for no reason.
        request_id: the same id is the same decision; `""` for a new one.
    """

    run: str
    call: str
    verdict: Literal["allow", "deny"]
    reason: str = ""
    request_id: str = ""


async def decide(invocation: Invocation, options: DecideOptions) -> Exit:
    """Answer one question with yes or no.

    Raises:
        Refused: nothing waits for that decision, or no is no answer to it.
        Usage: several wait and none is named.
        ResumeError: it was answered meanwhile.
        RunNotFound: there is no such run.
        StoreError: the store cannot be written.
    """
    async with invocation.store() as store:
        run_id = await invocation.find(store, options.run)
        state, session = await seen(store, run_id, options.request_id)
        question = chosen(state, session, options.call, wanted="decision", does="waits for a decision")
        if options.verdict == "deny" and not question.can_be_denied:
            ends = invocation.screen.command("unblock", run_id, question.cause, "--close", "TEXT")
            msg = f"the planner failed, there is nothing to deny: approve lets it be asked again, and this ends the run: {ends}"
            raise Refused(msg)
        verdict = {"deny": options.reason} if options.reason else options.verdict
        after = await invocation.commands(store).respond(
            run_id, question.answer("decision", verdict), request_id=options.request_id
        )
        return await answered(invocation, store, after, question.decided(allows=options.verdict == "allow"))
