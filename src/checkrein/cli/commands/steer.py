"""`steer`: say something to a run, for its next planning or for when it would end."""

import msgspec

from checkrein.cli.commands.answering import answered
from checkrein.cli.exits import Exit, Usage
from checkrein.cli.invocation import Invocation

__all__ = ["SteerOptions", "steer"]


class SteerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for.

    Attributes:
        run: the run's id, or its beginning.
        text: what to say.
        follow_up: say it when the goal would count as met.
        request_id: the same id is the same message; `""` for a new one.
    """

    run: str
    text: str
    follow_up: bool
    request_id: str


async def steer(invocation: Invocation, options: SteerOptions) -> Exit:
    """Queue a message.

    Raises:
        Usage: the text is empty.
        Rejected: the run has ended.
        RunNotFound: there is no such run.
        StoreError: the store cannot be written.
    """
    if not options.text.strip():
        msg = "the text is empty; say what the planner is to know"
        raise Usage(msg)
    async with invocation.store() as store:
        run_id = await invocation.find(store, options.run)
        commands = invocation.commands(store)
        say = commands.follow_up if options.follow_up else commands.steer
        state = await say(run_id, options.text, request_id=options.request_id)
        when = "when the goal would count as met" if options.follow_up else "at its next planning"
        return await answered(invocation, store, state, f"the run will read it {when}")
