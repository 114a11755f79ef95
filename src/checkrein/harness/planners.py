"""Planners: who decides the steps, and what they are told.

A planner is `(goal, history, last_error) -> steps | Plan(steps, final=…)`, plain or async. A plain one runs in a thread, so that it may take its time. Its answer is
checked here, once: whatever is no plan is the planner's failure, never a crash of the caller. A bare sequence of steps is a final plan.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from traceback import walk_tb
from types import CodeType
from typing import Final, Literal, TypeAlias, cast

import msgspec

from checkrein.errors import CheckreinError, DataError, ModelError
from checkrein.kernel.events import StepSpec
from checkrein.kernel.session_state import EndedStep, LastFailure, Note as QueuedNote, SessionState
from checkrein.messages import Usage
from checkrein.tools.results import describe_error
from checkrein.tools.threads import run_in_thread
from checkrein.values import MAX_INTEGER, MAX_JSON_BYTES, JsonObject, JsonValue, clean_text, shorten

__all__ = [
    "LastError",
    "Note",
    "Plan",
    "Planner",
    "PlannerFailed",
    "Step",
    "StepRecord",
    "ask_planner",
    "checked_steps",
    "history_of",
    "last_error_of",
    "record_of",
    "step_of",
]

_NOTHING_USED: Final = Usage()
MAX_STEPS = 10_000
"""Steps of one plan; more of them follow when it is not final."""
MAX_ID_CHARACTERS = 200
MAX_PROSE_CHARACTERS = 4_000
"""Characters of a step's description, kept for people; a longer one is cut with a mark."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One planned item.

    Attributes:
        id: a string or an integer, unique within the plan; a failed id may come back as a revision.
        description: what is to be done, for people.
        tool_name: the tool to call; None for a step that only marks progress.
        arguments: the tool's arguments.
        expected_outcome: what should be true afterwards, for people.
        batch: steps with the same batch belong to one model response.
        answer: for a step without tool: the text it ends with, as its result.
        malformed: what a model gave as arguments, when that is no JSON object; the step fails with an error that says so.
    """

    id: str | int
    description: str
    tool_name: str | None = None
    arguments: Mapping[str, object] = {}
    expected_outcome: str = ""
    batch: str | int | None = None
    answer: str = ""
    malformed: str = ""


class Plan(msgspec.Struct, frozen=True):
    """Steps, and whether the goal is met when the last of them is done."""

    steps: Sequence[Step]
    final: bool = True


class StepRecord(msgspec.Struct, frozen=True):
    """A step that ended.

    Attributes:
        step: the step as it was planned.
        status: how it ended.
        result: what its tool returned (after hooks), decoded afresh; None for a step without tool.
        error: why it failed or was skipped; `""` otherwise.
    """

    step: Step
    status: Literal["done", "failed", "skipped"]
    result: JsonValue
    error: str


class Note(msgspec.Struct, frozen=True):
    """A message that a person sent to the running work."""

    text: str


class LastError(msgspec.Struct, frozen=True):
    """What went wrong since the last committed plan.

    Attributes:
        kind: where it went wrong.
        message: in words.
        data: for `check` the findings: a list of objects with `check`, `subject`, `code` and `message`; else None.
    """

    kind: Literal["step", "hook", "planner", "draft", "check"]
    message: str
    data: JsonValue = None


PlannerAnswer: TypeAlias = Plan | Sequence[Step]
Planner: TypeAlias = Callable[
    [str, tuple[StepRecord | Note, ...], LastError | None], PlannerAnswer | Awaitable[PlannerAnswer]
]


class PlannerFailed(CheckreinError):
    """A planner raised, or returned something that is no plan.

    Attributes:
        reason: what happened, in words.
        is_transient: asking again may succeed.
        usage: what a model consumed for nothing.
        retry_after: seconds for which a provider asked not to be asked again; None when it did not say.
        code: the code of the model's failure; `""` for any other.
    """

    def __init__(
        self,
        reason: str,
        *,
        is_transient: bool = False,
        usage: Usage = _NOTHING_USED,
        retry_after: float | None = None,
        code: str = "",
    ) -> None:
        super().__init__(f"the planner failed: {reason}")
        self.reason = reason
        self.is_transient = is_transient
        self.usage = usage
        self.retry_after = retry_after
        self.code = code


def step_of(spec: StepSpec) -> Step:
    """Return a stored step as planners and hooks see it."""
    return Step(
        id=spec.id,
        description=spec.description,
        tool_name=spec.tool_name,
        arguments=spec.arguments,
        expected_outcome=spec.expected_outcome,
        batch=spec.batch,
        answer=spec.answer,
        malformed=spec.malformed,
    )


def record_of(item: EndedStep) -> StepRecord:
    """Return an ended step as planners and hooks see it."""
    return StepRecord(step_of(item.step), item.status, item.result.value, item.error)


def history_of(state: SessionState) -> tuple[StepRecord | Note, ...]:
    """Return what a planner is told about the past."""
    return tuple(record_of(item) if isinstance(item, EndedStep) else _note(item) for item in state.history)


def _note(item: QueuedNote) -> Note:
    return Note(item.text)


def last_error_of(failure: LastFailure | None) -> LastError | None:
    """Return what a planner is told about the last failure."""
    return None if failure is None else LastError(failure.kind, failure.message, failure.data.value)


async def ask_planner(planner: Planner, state: SessionState) -> tuple[tuple[StepSpec, ...], bool]:
    """Ask for the next steps.

    Returns:
        The steps as they are stored, and whether the plan is final.

    Raises:
        PlannerFailed: it raised, or its answer is no plan: not a sequence of at most 10,000 `Step`s, an id twice, a tool step with an answer,
            arguments without JSON form, or arguments and answers that are together larger than 16 MiB.
    """
    try:
        answer = await _answer(planner, state)
        plan = answer if isinstance(answer, Plan) else Plan(cast("Sequence[Step]", answer))
        return checked_steps(plan.steps), bool(plan.final)
    except PlannerFailed:
        raise
    except (Exception, SystemExit) as error:
        is_transient = isinstance(error, ModelError) and error.is_transient
        asked = error.retry_after if isinstance(error, ModelError) else None
        reason = f"{describe_error(error)}{_place(error, planner)}"
        raise PlannerFailed(reason, is_transient=is_transient, retry_after=asked) from error


def _place(error: BaseException, planner: Planner) -> str:
    """Return where in the planner's own file an error was raised, as ` (plan.py, line 3)`; empty when it was not there."""
    function = planner if inspect.isroutine(planner) else type(planner).__call__
    code = getattr(inspect.unwrap(function), "__code__", None)
    if not isinstance(code, CodeType):
        return ""
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == code.co_filename]
    return f" ({Path(code.co_filename).name}, line {lines[-1]})" if lines else ""


async def _answer(planner: Planner, state: SessionState) -> object:
    arguments = (state.goal, history_of(state), last_error_of(state.failure))
    if inspect.iscoroutinefunction(planner) or inspect.iscoroutinefunction(getattr(planner, "__call__", None)):  # noqa: B004  an async callable object
        return await cast("Awaitable[object]", planner(*arguments))
    answer: object = await run_in_thread(partial(planner, *arguments), name="planner")
    return await answer if inspect.isawaitable(answer) else answer


def checked_steps(steps: object) -> tuple[StepSpec, ...]:
    """Return steps as they are stored.

    Raises:
        PlannerFailed: as `ask_planner`, for what is no sequence of steps.
    """
    if isinstance(steps, (str, bytes)) or not isinstance(steps, Sequence):
        msg = f"it returned {type(steps).__name__} instead of a sequence of steps"
        raise PlannerFailed(msg)
    items = cast("Sequence[object]", steps)
    if len(items) > MAX_STEPS:
        msg = f"it returned {len(items):,} steps, more than the {MAX_STEPS:,} of one plan; return the first, with final=False"
        raise PlannerFailed(msg)
    specs: dict[str | int, StepSpec] = {}
    room = MAX_JSON_BYTES
    for item in items:
        spec = _spec(item)
        room -= len(spec.arguments.encoded) + len(spec.answer.encode()) + len(spec.malformed.encode())
        if spec.id in specs:
            msg = f"step id {spec.id!r} stands twice in the plan"
            raise PlannerFailed(msg)
        if room < 0:
            msg = f"the arguments and answers of its steps are together larger than {MAX_JSON_BYTES:,} bytes; write large data to a file"
            raise PlannerFailed(msg)
        specs[spec.id] = spec
    return tuple(specs.values())


def _spec(item: object) -> StepSpec:
    if not isinstance(item, Step):
        msg = f"{type(item).__name__} is no Step"
        raise PlannerFailed(msg)
    shown = repr(item.id)[:80]
    if not _is_step_id(item.id):
        msg = f"step id {shown} is neither an integer within ±(2^53 - 1) nor a string of 1 to {MAX_ID_CHARACTERS} characters"
        raise PlannerFailed(msg)
    for name, wanted in _TYPES.items():
        value = cast("object", getattr(item, name))
        if not isinstance(value, wanted):
            msg = f"{name} of step {shown} is {type(value).__name__}, expected {' or '.join(kind.__name__ for kind in wanted)}"
            raise PlannerFailed(msg)
    if item.answer and item.tool_name is not None:
        msg = f"step {shown} has an answer and a tool; only a step without tool brings its own answer"
        raise PlannerFailed(msg)
    try:
        arguments = JsonObject(item.arguments)
    except DataError as error:
        msg = f"arguments of step {shown}: {error}"
        raise PlannerFailed(msg) from error
    return StepSpec(
        id=clean_text(item.id) if isinstance(item.id, str) else item.id,
        description=_prose(item.description),
        tool_name=None if item.tool_name is None else _prose(item.tool_name),
        arguments=arguments,
        expected_outcome=_prose(item.expected_outcome),
        batch=_prose(item.batch) if isinstance(item.batch, str) else item.batch,
        answer=clean_text(item.answer),
        malformed=clean_text(item.malformed),
    )


_TYPES: dict[str, tuple[type, ...]] = {
    "description": (str,),
    "tool_name": (str, type(None)),
    "expected_outcome": (str,),
    "batch": (str, int, type(None)),
    "answer": (str,),
    "malformed": (str,),
}
"""What nobody has checked yet: a step can be made with anything in it."""


def _prose(text: str) -> str:
    return shorten(clean_text(text), MAX_PROSE_CHARACTERS)


def _is_step_id(value: object) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= MAX_ID_CHARACTERS
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_INTEGER
