"""`push`: answer what a run waits for, as JSON from a program in another process."""

import msgspec

from checkrein.cli.commands.answering import given_json
from checkrein.cli.exits import Exit
from checkrein.cli.invocation import Invocation
from checkrein.cli.shapes import pushed_record

__all__ = ["PushOptions", "push"]


class PushOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for.

    Attributes:
        run: the run's id, or its beginning.
        answer: the answer as JSON, `-` for standard input.
        version: the version at which the pull was seen; None for whatever is newest.
        request_id: the same id is the same answer; `""` for a new one.
    """

    run: str
    answer: str
    version: int | None
    request_id: str


async def push(invocation: Invocation, options: PushOptions) -> Exit:
    """Hand over an answer, and print where the run stands after it.

    Raises:
        Usage: the answer is no JSON.
        ResumeError: it is not taken there, or was given before.
        Conflict: the log has moved on since that version.
        Rejected: the run has ended.
        RunNotFound: there is no such run.
        StoreError: the store cannot be written.
    """
    answer = given_json(options.answer, "the answer")
    async with invocation.store() as store:
        run_id = await invocation.find(store, options.run)
        state = await invocation.commands(store).respond(
            run_id, answer, version=options.version, request_id=options.request_id
        )
        invocation.screen.record(pushed_record(state))
        return Exit.SUCCEEDED
