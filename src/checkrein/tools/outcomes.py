"""What one attempt of a tool call comes to, as a closed union, and when another attempt may follow.

The values here are what drivers decide by. The invariant: an outcome says what is known and no more. A call whose effect may or may not have
happened is `OutcomeUnknown`, never a failure, unless its tool declared that doing it again does no harm.

JSON-RPC codes: JSON-RPC 2.0 §5.1. Backoff: exponential, with jitter applied before the maximum, so that the maximum holds.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from checkrein.clock import jitter as random_jitter
from checkrein.messages import ContentBlock
from checkrein.ports.tool import ToolTraits
from checkrein.values import NULL, JsonData

__all__ = [
    "AcceptedJob",
    "Done",
    "ErrorKind",
    "FailedCall",
    "Outcome",
    "OutcomeUnknown",
    "Pending",
    "RetryPolicy",
    "next_attempt",
]

ErrorKind: TypeAlias = Literal[
    "timeout", "transient", "schema", "not_found", "denied", "internal", "budget_exceeded", "cancelled"
]

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603


class Done(msgspec.Struct, frozen=True):
    """The body returned a result.

    Attributes:
        result: what it returned, cleaned and within the size limit.
        artifacts: paths below the run's folder that it says it wrote, relative, with `/`, each once.
        content: content blocks for a model, when they differ from `result`.
        empty: it returned no data: null, `""`, `[]` or `{}`, and neither artifact nor content.
        truncated: the result or content was larger than the limit and was cut; a marker says so in its text.
    """

    result: JsonData = NULL
    artifacts: tuple[str, ...] = ()
    content: tuple[ContentBlock, ...] = ()
    empty: bool = False
    truncated: bool = False


class AcceptedJob(msgspec.Struct, frozen=True):
    """The tool answered with a job number, which is no result.

    Attributes:
        handle: the number or address to store.
        poll: the question that lives in this process; None when the tool's own `poll` asks, or a caller brings the result.
        interval_seconds: how long to wait between two questions.
    """

    handle: str
    poll: Callable[[str], object] | None = None
    interval_seconds: float = 1.0


class FailedCall(msgspec.Struct, frozen=True):
    """The one error envelope: why a call has no result, and that its effect is not to be expected.

    Attributes:
        kind: which kind of failure.
        message: for the planner, a model or a person; safe text, at most a few thousand characters.
        attempts: how many executions were made so far; 0 when the call was refused before the first.
        transient: making the call again may succeed.
        fatal: the tool asked to end the whole run.
        issues: for `schema`: pairs of JSON Pointer and what was expected there.
    """

    kind: ErrorKind
    message: str
    attempts: int = 1
    transient: bool = False
    fatal: bool = False
    issues: tuple[tuple[str, str], ...] = ()

    @property
    def code(self) -> int:
        """The JSON-RPC 2.0 error code."""
        if self.kind == "not_found":
            return METHOD_NOT_FOUND
        return INVALID_PARAMS if self.kind == "schema" else INTERNAL_ERROR


class OutcomeUnknown(msgspec.Struct, frozen=True):
    """The body began, and nobody knows whether its effect happened.

    Attributes:
        cause: `timeout` (of a tool that is not idempotent), `cancelled` (it was told to stop), or `probe` (the probe cannot tell).
        reason: what is known, in words.
        is_running: the body did not end within the grace and was left behind; whatever it still returns is dropped. When False after
            `cancelled`, the body stopped because it was told to.
    """

    cause: Literal["timeout", "cancelled", "probe"]
    reason: str
    is_running: bool = False


class Pending(msgspec.Struct, frozen=True):
    """An accepted job has no outcome yet.

    Attributes:
        reason: why the question itself failed, `""` when it was answered.
    """

    reason: str = ""


Outcome: TypeAlias = Done | AcceptedJob | FailedCall | OutcomeUnknown


class RetryPolicy(msgspec.Struct, frozen=True):
    """When and how often a call is made again.

    Attributes:
        attempts: executions of one call, the first one included.
        first_seconds: the wait before the second attempt.
        factor: by how much each further wait is longer.
        max_seconds: the longest wait, jitter included.
    """

    attempts: int = 3
    first_seconds: float = 0.5
    factor: float = 2.0
    max_seconds: float = 30.0


_DEFAULTS = RetryPolicy()


def next_attempt(
    outcome: Outcome,
    attempt: int,
    *,
    traits: ToolTraits,
    policy: RetryPolicy = _DEFAULTS,
    jitter: Callable[[float], float] = random_jitter,
) -> float | None:
    """Return how many seconds to wait before the next attempt, or None when none may follow.

    Only an idempotent tool's call is made again, only after a failure that may pass (a timeout is one), and at most `policy.attempts`
    times in all. Whether budget and rights are left is the driver's question.

    Args:
        outcome: what the last attempt came to.
        attempt: the number of that attempt, from 1.
        traits: what the tool promises.
        policy: how often and how slowly.
        jitter: varies a wait, so that many callers do not come back together.
    """
    if not isinstance(outcome, FailedCall) or not outcome.transient or outcome.fatal:
        return None
    if not traits.idempotent or attempt >= policy.attempts:
        return None
    return min(policy.max_seconds, max(0.0, jitter(_backoff(attempt, policy))))


def _backoff(attempt: int, policy: RetryPolicy) -> float:
    try:
        return min(policy.max_seconds, policy.first_seconds * policy.factor ** (attempt - 1))
    except OverflowError:
        return policy.max_seconds
