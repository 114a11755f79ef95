"""What is answered: by a caller's hook, and to a model about a call."""

import inspect
from collections.abc import Awaitable
from typing import TypeVar, cast

from checkrein.tools.outcomes import Done, FailedCall, OutcomeUnknown

__all__ = ["answer_of", "answer_text"]

T = TypeVar("T")


async def answer_of(answer: Awaitable[T] | T) -> T:
    """Return what a plain or async hook answered.

    Raises:
        BaseException: whatever the hook raises.
    """
    return cast("T", await answer if inspect.isawaitable(answer) else answer)


def answer_text(outcome: Done | FailedCall | OutcomeUnknown) -> str:
    """Return what a model is told of an outcome."""
    if isinstance(outcome, Done):
        if outcome.empty:
            return "empty"
        encoded = outcome.result.encoded
        return cast("str", outcome.result.value) if encoded.startswith(b'"') else encoded.decode()
    return outcome.message if isinstance(outcome, FailedCall) else f"outcome unknown: {outcome.reason}"
