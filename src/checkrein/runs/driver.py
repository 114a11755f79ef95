"""Advances one held run until it rests: decide from the log, do one thing, record it, decide again.

The loop holds no progress of its own, so it can be left at any instruction and begun anew by anybody: that is recovery, and the normal start.
"""

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from checkrein.errors import Conflict
from checkrein.kernel.events import Blocked, Cause, EventData, Failed, StepEnd, WorkDone, WorkStarted
from checkrein.kernel.state import RunState
from checkrein.runs.calls import CallRunner
from checkrein.runs.decide import (
    Action,
    AskPlanner,
    DoStep,
    EndRun,
    EndStep,
    FinishWork,
    PauseForBudget,
    Poll,
    Resolve,
    Rest,
    StartWork,
    Verify,
    next_action,
)
from checkrein.runs.held import HeldRun, Interrupted, Moved, budget_pause
from checkrein.runs.planning import plan_turn
from checkrein.runs.task import Task
from checkrein.runs.verification import verify_run

__all__ = ["drive", "waits_for_code"]

CODE_CHANGED: Final = "code_changed"


class BlockOnCode(msgspec.Struct, frozen=True):
    """Block the run: its task was stored in another version or with other code than ours."""


async def drive(held: HeldRun, calls: CallRunner, *, must_stop: Callable[[], bool]) -> None:
    """Advance the run until it ended, waits for a person, or `must_stop` says so between two actions.

    Raises:
        LeaseLost: another worker advances the run now; nothing of ours was recorded after that.
        StoreError: the store could not be read or written.
        Rejected: the lifecycle refused what the log itself demanded; a defect.
    """
    watcher = held.clock.spawn(held.watch(), name=f"watch-{held.run_id}")
    try:
        while not must_stop():
            action = _next_action(held)
            if isinstance(action, Rest):
                return
            try:
                await _perform(held, calls, action)
            except Moved:
                continue
            except Interrupted:
                held.check_lease()
                await held.refresh()
    finally:
        watcher.cancel()


def _next_action(held: HeldRun) -> Action | BlockOnCode:
    """Return what is to be done now, with the budget as it is at this moment."""
    state, task = held.state, held.task
    if has_other_code(state, task) and not state.phase.is_terminal:
        return Rest() if waits_for_code(state, task) else BlockOnCode()
    return next_action(replace(state, budget=held.budget()), held.plan, task.on_failure)


def has_other_code(state: RunState, task: Task) -> bool:
    """Tell whether a run was stored with another version of its task, or with other code."""
    return (state.code_hash, state.task.version) != (task.code_hash, task.version)


def waits_for_code(state: RunState, task: Task) -> bool:
    """Tell whether a run is blocked because its code is not that of `task`, so that a worker with `task` has nothing to do."""
    return has_other_code(state, task) and state.cause(CODE_CHANGED) is not None


async def _block_on_code(held: HeldRun) -> None:
    state, task = held.state, held.task
    cause = Cause(
        id=CODE_CHANGED,
        kind="code_changed",
        detail=f"{state.task.version}:{state.code_hash} {task.version}:{task.code_hash}",
        message=(
            f"the run was stored with version {state.task.version}, code {state.code_hash[:12] or 'none'}; the task here is version "
            f"{task.version}, code {task.code_hash[:12] or 'none'}; accept it with `checkrein resume RUN --trust`"
        ),
    )
    await held.append(Blocked(cause=cause))


async def _perform(held: HeldRun, calls: CallRunner, action: Action | BlockOnCode) -> None:  # noqa: C901  one arm per action
    match action:
        case BlockOnCode():
            await _block_on_code(held)
        case AskPlanner():
            await plan_turn(held, action)
        case DoStep():
            await calls.do_step(action.step, is_started=action.is_started)
        case EndStep():
            await held.append(_step_end(held))
        case Resolve():
            await calls.resolve(action.call, action.how)
        case Poll():
            await calls.poll(action.call)
        case StartWork():
            await held.append(WorkStarted())
        case FinishWork():
            await held.append(WorkDone())
        case Verify():
            await verify_run(held)
        case PauseForBudget():
            await held.append(*budget_pause(held.budget(), action.limit, action.state))
        case EndRun():
            await held.append(Failed(code=action.code, message=action.message))
        case Rest():
            pass


def _step_end(held: HeldRun) -> EventData:
    step, answer = held.plan.current, held.plan.answer
    if step is None:
        msg = "no step is open"
        raise Conflict(held.run_id, msg, (held.state.version, None), (held.state.version, held.state.epoch))
    if answer is None:
        is_plain = step.tool_name is None
        return StepEnd(
            step_id=step.id,
            status="done" if is_plain else "failed",
            error="" if is_plain else "its call has no known outcome",
        )
    if answer.error:
        return StepEnd(step_id=step.id, status="failed", error=answer.error)
    return StepEnd(step_id=step.id, status="done", result=answer.result)
