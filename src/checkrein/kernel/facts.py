"""The values that events and states are made of.

Each is frozen, strict when decoded and compared by value. What happened is in `events.py` and `session_events.py`; here is what it happened to.
"""

from typing import Literal, TypeAlias

import msgspec

from checkrein.values import JsonObject

__all__ = [
    "Artifact",
    "Cause",
    "CauseKind",
    "CheckSpec",
    "Evidence",
    "Fact",
    "FailureCode",
    "Finding",
    "PlanReason",
    "StepSpec",
    "TaskRecord",
    "ToolSpec",
]

FailureCode: TypeAlias = Literal["check_failed", "cancelled", "no_plan", "gave_up", "step_failed", "closed", "error"]
PlanReason: TypeAlias = Literal["first", "replan", "repair", "continuation"]
"""Why a planning is needed: nothing is planned yet; something failed, was said or was dropped; a check failed; the plan is done and was not final."""
CauseKind: TypeAlias = Literal["permission", "answer", "budget", "reconcile", "verifier", "code_changed"]


class Fact(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """The settings of every stored value: strict, compact, and invisible to the garbage collector because it cannot be part of a cycle."""


class CheckSpec(Fact, frozen=True):
    """One required check of a task.

    Attributes:
        id: unique in the task, as shown to people.
        kind: which verifier measures.
        subject: the artifact it is about (a path relative to the run's folder, or `answer`); `""` when the run itself is the subject.
        title: what it proves, in words.
    """

    id: str
    kind: str
    subject: str = ""
    title: str = ""


class ToolSpec(Fact, frozen=True):
    """What a task's tool declares about itself; recovery and cancellation decide by it."""

    name: str
    idempotent: bool = False
    cancellable: bool = False
    has_probe: bool = False


class TaskRecord(Fact, frozen=True):
    """The facts of a task that a run keeps for ever.

    Attributes:
        name: the task's name; workers claim runs by it.
        version: the task's version.
        goal: what is to be reached, in words.
        code_hash: hash of the task's code and file; `""` for a task made in code.
        checks: what must be proved; never empty.
        tools: the tools the task lists.
        data: everything else a person may want to see again (inputs with their digests, workspace).
    """

    name: str
    version: int
    goal: str
    code_hash: str
    checks: tuple[CheckSpec, ...]
    tools: tuple[ToolSpec, ...] = ()
    data: JsonObject = JsonObject()


class StepSpec(Fact, frozen=True):
    """One planned step as it stands in the log.

    Attributes:
        id: unique within the plan; for a call that a model asked for, the model's own id of it.
        description: what is to be done, for people.
        tool_name: the tool to call; None for a step without tool.
        arguments: the tool's arguments.
        expected_outcome: what should be true afterwards, for people.
        batch: steps with the same batch belong to one model response.
        answer: what a step without tool ends with, as its result; `""` for nothing.
        malformed: the text that a model gave as arguments and that is no JSON object; `arguments` is then empty, and the call is never made.
    """

    id: str | int
    description: str
    tool_name: str | None = None
    arguments: JsonObject = JsonObject()
    expected_outcome: str = ""
    batch: str | int | None = None
    answer: str = ""
    malformed: str = ""


class Artifact(Fact, frozen=True):
    """A file (or the reported `answer`) that an accepted outcome named.

    Attributes:
        path: relative to the run's folder, with `/`.
        sha256: 64 hexadecimal digits over its bytes.
    """

    path: str
    sha256: str


class Evidence(Fact, frozen=True):
    """A recorded measurement of one subject.

    Attributes:
        check: the id of the required check it is for.
        verifier: what measured.
        verifier_version: its version.
        run_id: the run it was measured for.
        subject: path of the artifact, or `""` for the run itself.
        sha256: digest of the artifact's bytes that were measured; `""` for the run itself.
        measurement: what was found, in words.
        at: seconds since 1970 (UTC).
        position: the log's version when it was measured.
        passed: whether the check is met.
    """

    check: str
    verifier: str
    verifier_version: str
    run_id: str
    subject: str
    sha256: str
    measurement: str
    at: float
    position: int
    passed: bool = True


class Finding(Fact, frozen=True):
    """Why one check is not met, as data for a repair."""

    check: str
    subject: str
    code: str
    message: str


class Cause(Fact, frozen=True):
    """One reason why a run cannot go on without a new fact or decision.

    Attributes:
        id: unique among the run's open causes.
        kind: what is missing.
        detail: for `budget` the limit's name; for `code_changed` both hashes; else empty or a short word.
        message: what a person must know to answer.
        who: who may answer.
        call_id: the call it is about, if any.
    """

    id: str
    kind: CauseKind
    message: str
    detail: str = ""
    who: Literal["user", "worker"] = "user"
    call_id: str = ""
