"""The grammar of the commands that speak to a run: arguments, options, and their help. Nothing is done here."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from cyclopts import Parameter

from checkrein.cli.grammar import COMMON, Common, perform

__all__ = ["SPEAKING", "USAGES"]

Json = Annotated[str, Parameter(allow_leading_hyphen=True)]
"""Text that may begin with a hyphen: a negative number, or `-` for standard input."""


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


def approve(run: str, call: str = "", /, *, request_id: str = "", common: Common = COMMON) -> int:
    """Say yes to a call, or to whatever else waits for a decision; a planner that failed is asked again.

    Args:
        run: The run's id, or its beginning.
        call: The call's id, or what a review is about, as show prints it; not needed when only one is open.
        request_id: The same id is the same decision.
        common: Store and output.
    """
    from checkrein.cli.commands.approve import DecideOptions, decide

    options = DecideOptions(run=run, call=call, verdict="allow", request_id=request_id)
    return perform(decide(common.invocation(), options))


def deny(run: str, call: str = "", /, *, reason: str = "", request_id: str = "", common: Common = COMMON) -> int:
    """Say no to a call, or to whatever else waits for a decision; the planner is told.

    Args:
        run: The run's id, or its beginning.
        call: The call's id, or what a review is about, as show prints it; not needed when only one is open.
        reason: Why; the planner is told it.
        request_id: The same id is the same decision.
        common: Store and output.
    """
    from checkrein.cli.commands.approve import DecideOptions, decide

    options = DecideOptions(run=run, call=call, verdict="deny", reason=reason, request_id=request_id)
    return perform(decide(common.invocation(), options))


def answer(run: str, /, *call_json: Json, error: str = "", request_id: str = "", common: Common = COMMON) -> int:
    """Bring the result of a call that the task has no tool for.

    Args:
        run: The run's id, or its beginning.
        call_json: The call's id, not needed when only one is open; then what it returned as JSON, or - to read that from standard input.
        error: Instead of a result: why the call has failed.
        request_id: The same id is the same answer.
        common: Store and output.
    """
    from checkrein.cli.commands.answer import AnswerOptions, answer as command

    options = AnswerOptions(run=run, words=call_json, error=error, request_id=request_id)
    return perform(command(common.invocation(), options))


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


def pull(run: str = "", /, *, wait: bool = False, common: Common = COMMON) -> int:
    """Print as JSON what a run waits for from a caller: a result, a decision, or more budget; of all runs when none is named.

    Exits 0 when something is asked; otherwise kind is null, and the exit code is that of the run.

    Args:
        run: The run's id, or its beginning.
        wait: Wait until something is asked, or the run has ended.
        common: Store and output.
    """
    from checkrein.cli.commands.pull import PullOptions, pull as command

    return perform(command(replace(common, json_lines=True).invocation(), PullOptions(run=run, wait=wait)))


def push(
    run: str, answer: Json = "-", /, *, version: int | None = None, request_id: str = "", common: Common = COMMON
) -> int:
    """Answer what pull printed, in JSON; each answer is taken once.

    An answer has one of result, error, decision, extend and close, and call_id when several calls are open.

    Args:
        run: The run's id, or its beginning.
        answer: The answer; - or nothing reads it from standard input.
        version: The version that pull printed; the answer is refused when the log has moved on since.
        request_id: The same id is the same answer.
        common: Store and output.
    """
    from checkrein.cli.commands.push import PushOptions, push as command

    options = PushOptions(run=run, answer=answer, version=version, request_id=request_id)
    return perform(command(replace(common, json_lines=True).invocation(), options))


SPEAKING: dict[str, Callable[..., object]] = {
    "steer": steer,
    "cancel": cancel,
    "approve": approve,
    "deny": deny,
    "answer": answer,
    "extend": extend,
    "unblock": unblock,
    "pull": pull,
    "push": push,
}
"""The commands of this group by name, in the order of the help."""
USAGES: dict[str, str] = {
    "answer": "Usage: checkrein answer [OPTIONS] RUN [CALL] JSON|-",
    "push": "Usage: checkrein push [OPTIONS] RUN [ANSWER|-]",
    "pull": "Usage: checkrein pull [OPTIONS] [RUN]",
    "approve": "Usage: checkrein approve [OPTIONS] RUN [CALL]",
    "deny": "Usage: checkrein deny [OPTIONS] RUN [CALL]",
}
"""The first line of help where the names of arguments do not say enough."""
