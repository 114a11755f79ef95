"""`unblock`: answer one thing that a blocked run waits for, or close the run."""

from typing import Literal

import msgspec

from checkrein.cli.commands.answering import answered
from checkrein.cli.exits import Exit, Usage
from checkrein.cli.invocation import Invocation
from checkrein.errors import InvalidJson
from checkrein.runs.commands import Reconciled
from checkrein.values import NULL, JsonData, parse_json

__all__ = ["UnblockOptions", "unblock"]


class UnblockOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for; of `answer`, `outcome` and `close` at most one.

    Attributes:
        run: the run's id, or its beginning.
        cause: the cause's id.
        answer: `allow`, `deny`, JSON, or any other text.
        outcome: what became of a call in doubt.
        result: what that call returned, as JSON, when it is done.
        close: end the run without success, for this reason.
    """

    run: str
    cause: str
    answer: str | None
    outcome: Literal["done", "failed", "unknown"] | None
    result: str | None
    close: str | None


async def unblock(invocation: Invocation, options: UnblockOptions) -> Exit:
    """Answer a cause.

    Raises:
        Usage: the options contradict each other, or the run has no such cause.
        Rejected: the answer does not fit, or the run has ended.
        RunNotFound: there is no such run.
        StoreError: the store cannot be written.
    """
    if sum(value is not None for value in (options.answer, options.outcome, options.close)) > 1:
        msg = "give one of --answer, --outcome and --close"
        raise Usage(msg)
    if options.result is not None and options.outcome != "done":
        msg = "--result says what a call returned, so it needs --outcome done"
        raise Usage(msg)
    answer = NULL if options.answer is None else _answer(options.answer)
    reconciled = None
    if options.outcome is not None:
        reconciled = Reconciled(options.outcome, result=NULL if options.result is None else _json(options.result))
    async with invocation.store() as store:
        run_id = await invocation.find(store, options.run)
        commands = invocation.commands(store)
        if options.close is None:
            state = await commands.unblock(run_id, options.cause, answer=answer, reconciled=reconciled)
            return await answered(invocation, store, state, f"{options.cause} is answered")
        before = await invocation.state(store, run_id)
        if before.causes and before.cause(options.cause) is None:
            msg = (
                f"the run waits for no {options.cause!r}; it waits for {', '.join(cause.id for cause in before.causes)}"
            )
            raise Usage(msg)
        # Calls whose results callers bring are closed with the session; any other open call must be reconciled first.
        brought = before.open_calls and all(call.is_pull for call in before.open_calls)
        close = {"close": options.close}
        after = await (commands.respond(run_id, close) if brought else commands.close(run_id, options.close))
        return await answered(invocation, store, after, "closed")


def _answer(text: str) -> JsonData:
    try:
        return JsonData(parse_json(text))
    except InvalidJson:
        return JsonData(text)


def _json(text: str) -> JsonData:
    try:
        return JsonData(parse_json(text))
    except InvalidJson as error:
        msg = f"--result is no JSON: {error.reason}"
        raise Usage(msg) from error
