"""Advances one held run until it rests: decide from the log, do one thing, record it, decide again.

The loop holds no progress of its own, so it can be left at any instruction and begun anew by anybody: that is recovery, and the normal start.
"""

from collections.abc import Callable

from checkrein.errors import Conflict
from checkrein.kernel.events import Blocked, Cause, EventData, Failed, StepEnd, WorkDone, WorkStarted
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
from checkrein.runs.held import HeldRun, Interrupted, LeaseLost, Moved, budget_pause
from checkrein.runs.planning import plan_turn
from checkrein.runs.verification import verify_run

__all__ = ["drive"]


async def drive(held: HeldRun, calls: CallRunner, *, must_stop: Callable[[], bool]) -> None:
    """Advance the run until it ended, waits for a person, or `must_stop` says so between two actions.

    Raises:
        LeaseLost: another worker advances the run now; nothing of ours was recorded after that.
        StoreError: the store could not be read or written.
        Rejected: the lifecycle refused what the log itself demanded; a defect.
    """
    watcher = held.clock.spawn(held.watch(), name=f"watch-{held.run_id}")
    try:
        if await _block_on_other_code(held):
            return
        while not must_stop():
            action = next_action(held.state, held.plan, held.task.on_failure)
            if isinstance(action, Rest):
                return
            try:
                await _perform(held, calls, action)
            except Moved:
                continue
            except Interrupted as error:
                if not await held.journal.refresh():
                    raise LeaseLost(str(error)) from error
    finally:
        watcher.cancel()


async def _block_on_other_code(held: HeldRun) -> bool:
    """Block a run whose task was stored in another version or with other code than ours; True when it was."""
    state, task = held.state, held.task
    if (state.code_hash, state.task.version) == (task.code_hash, task.version) or state.phase.is_terminal:
        return False
    cause = Cause(
        id="code_changed",
        kind="code_changed",
        detail=f"{state.task.version}:{state.code_hash} {task.version}:{task.code_hash}",
        message=(
            f"the run was stored with version {state.task.version}, code {state.code_hash[:12] or 'none'}; the task here is version "
            f"{task.version}, code {task.code_hash[:12] or 'none'}; accept it with `checkrein resume RUN --trust`"
        ),
    )
    if state.cause(cause.id) is None:
        await held.append(Blocked(cause=cause))
    return True


async def _perform(held: HeldRun, calls: CallRunner, action: Action) -> None:  # noqa: C901  one arm per action
    match action:
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
