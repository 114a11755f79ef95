"""The rule of the house: what is above the limit is not paid before a person said so."""

import msgspec

from checkrein import Pause
from checkrein.harness.hooks import Hooks

LIMIT_USD = 5.00


class _Arguments(msgspec.Struct):
    amount: float


class _Call(msgspec.Struct):
    name: str
    arguments: object


def install(hooks: Hooks) -> None:
    """Register the task's hooks."""
    hooks.on("before_tool_call", ask_above_limit)


def ask_above_limit(payload: dict[str, object]) -> Pause | None:
    """Pause a payment above the limit; it goes on, or is denied, by what a person answers."""
    call = msgspec.convert(payload["call"], _Call)
    if call.name != "pay":
        return None
    amount = msgspec.convert(call.arguments, _Arguments).amount
    return Pause(f"{amount:.2f} USD is above the limit of {LIMIT_USD:.2f} USD") if amount > LIMIT_USD else None
