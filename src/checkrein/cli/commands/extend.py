"""`extend`: raise limits of a run's budget."""

from checkrein.cli.commands.answering import answered
from checkrein.cli.exits import Exit, Usage
from checkrein.cli.invocation import Invocation
from checkrein.cli.words import amounts_in_words
from checkrein.kernel.budget import Amounts

__all__ = ["extend"]


async def extend(invocation: Invocation, run: str, extra: Amounts) -> Exit:
    """Raise limits.

    Raises:
        Usage: nothing is to be raised.
        DataError: an amount is negative or no finite number.
        Rejected: the run has ended.
        RunNotFound: there is no such run.
        StoreError: the store cannot be written.
    """
    if extra == Amounts():
        msg = "name at least one limit and how much more of it, such as --tool-calls 5"
        raise Usage(msg)
    extra.checked()
    async with invocation.store() as store:
        run_id = await invocation.find(store, run)
        state = await invocation.commands(store).extend(run_id, extra)
        return await answered(invocation, store, state, f"{amounts_in_words(extra)} more")
