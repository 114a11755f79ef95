"""The grammar of the commands that speak to a run: arguments, options, and their help. Nothing is done here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from checkrein.cli.grammar import COMMON, Common, perform

__all__ = ["SPEAKING"]


def steer(run: str, text: str, /, *, follow_up: bool = False, request_id: str = "", common: Common = COMMON) -> int:
    """Say something to a run, which it reads at its next planning.

    Args:
        run: The run's id, or its beginning.
        text: What to say.
        follow_up: Let it be read when the goal would count as met.
        request_id: The same id is the same message.
        common: Store and output.
    """
    from checkrein.cli.commands.steer import SteerOptions, steer as command

    options = SteerOptions(run=run, text=text, follow_up=follow_up, request_id=request_id)
    return perform(command(common.invocation(), options))


def cancel(run: str, /, *, reason: str = "cancelled by request", common: Common = COMMON) -> int:
    """Take a run's right to start anything; it ends when its open calls have their outcomes.

    Args:
        run: The run's id, or its beginning.
        reason: Why; it stands in the log.
        common: Store and output.
    """
    from checkrein.cli.commands.cancel import cancel as command

    return perform(command(common.invocation(), run, reason))


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Answer:
    """How a cause is answered; one of the first three."""

    answer: Annotated[str | None, Parameter(help="allow, deny, JSON, or any other text.")] = None
    outcome: Annotated[
        Literal["done", "failed", "unknown"] | None, Parameter(help="What became of a call in doubt.")
    ] = None
    close: Annotated[str | None, Parameter(help="End the run without success, for this reason.")] = None
    result: Annotated[str | None, Parameter(help="With --outcome done: what the call returned, as JSON.")] = None


def unblock(run: str, cause: str, /, *, how: Answer = Answer(), common: Common = COMMON) -> int:
    """Answer one thing that a blocked run waits for.

    Args:
        run: The run's id, or its beginning.
        cause: The cause's id, as show prints it.
        how: The answer.
        common: Store and output.
    """
    from checkrein.cli.commands.unblock import UnblockOptions, unblock as command

    options = UnblockOptions(
        run=run, cause=cause, answer=how.answer, outcome=how.outcome, result=how.result, close=how.close
    )
    return perform(command(common.invocation(), options))


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class More:
    """How much more of each limit."""

    turns: Annotated[int, Parameter(help="Planner or model requests.")] = 0
    tool_calls: Annotated[int, Parameter(help="Executions of tools.")] = 0
    wall_seconds: Annotated[float, Parameter(help="Seconds of active time.")] = 0.0
    tokens: Annotated[int, Parameter(help="Tokens read and written by models.")] = 0
    cost: Annotated[float, Parameter(help="USD spent on models.")] = 0.0
    steps: Annotated[int, Parameter(help="Steps started.")] = 0
    replans: Annotated[int, Parameter(help="Revisions of the plan.")] = 0
    repairs: Annotated[int, Parameter(help="Repairs after a failed check.")] = 0


def extend(run: str, /, *, more: More = More(), common: Common = COMMON) -> int:
    """Raise limits of a run's budget by what is given.

    Args:
        run: The run's id, or its beginning.
        more: How much more of each limit.
        common: Store and output.
    """
    from dataclasses import asdict

    from checkrein.cli.commands.extend import extend as command
    from checkrein.kernel.budget import Amounts

    return perform(command(common.invocation(), run, Amounts(**asdict(more))))


SPEAKING: dict[str, Callable[..., object]] = {
    "steer": steer,
    "cancel": cancel,
    "unblock": unblock,
    "extend": extend,
}
"""The commands of this group by name, in the order of the help."""
