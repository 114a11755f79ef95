"""`answer`: bring the result of a call that the task has no tool for."""

import msgspec

from checkrein.cli.commands.answering import answered, given_json, seen
from checkrein.cli.exits import Exit, Usage
from checkrein.cli.invocation import Invocation
from checkrein.cli.questions import chosen, questions_of

__all__ = ["AnswerOptions", "answer"]


class AnswerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for.

    Attributes:
        run: the run's id, or its beginning.
        words: the call's id and the result as JSON, `-` for standard input; the id may be missing when one call is open, the result when it failed.
        error: why the call has failed; `""` when it has not.
        request_id: the same id is the same answer; `""` for a new one.
    """

    run: str
    words: tuple[str, ...]
    error: str
    request_id: str


async def answer(invocation: Invocation, options: AnswerOptions) -> Exit:
    """Bring a result or an error.

    Raises:
        Usage: there is no result and no error, or both; the result is no JSON; several calls are open and none is named.
        Refused: no such call waits for its result.
        ResumeError: it was answered meanwhile.
        RunNotFound: there is no such run.
        StoreError: the store cannot be written.
    """
    name, text = _parsed(options)
    async with invocation.store() as store:
        run_id = await invocation.find(store, options.run)
        state, session = await seen(store, run_id, options.request_id)
        if not name and any(item.is_named(text or "") for item in questions_of(state, session)):
            msg = f"{text} names a call; say what it returned after it, as JSON"
            raise Usage(msg)
        question = chosen(state, session, name, wanted="result", does="waits for a result")
        given = ("error", options.error) if text is None else ("result", given_json(text, "the result"))
        after = await invocation.commands(store).respond(run_id, question.answer(*given), request_id=options.request_id)
        became = "has failed" if text is None else "has its result"
        return await answered(invocation, store, after, f"call {question.subject} of {question.tool} {became}")


def _parsed(options: AnswerOptions) -> tuple[str, str | None]:
    """Return which call is meant, and its result; the result is the last word, because `1.0` is an id and JSON."""
    most = 1 if options.error else 2
    if len(options.words) > most:
        msg = "give a result or --error, not both" if options.error else "give CALL and JSON, and nothing after them"
        raise Usage(msg)
    if options.error:
        return (options.words or ("",))[0], None
    if not options.words:
        msg = "say what the call returned, as JSON (- reads it from standard input), or --error TEXT"
        raise Usage(msg)
    *names, text = options.words
    return "".join(names), text
