"""Advances one held run until it rests: decide from the log, do one thing, record it, decide again.

The loop holds no progress of its own, so it can be left at any instruction and begun anew by anybody: that is recovery, and the normal start. What is the run's own
(open calls, checks, code that changed) is decided here; everything else its session decides, which the harness drives as it drives one in memory.
"""

from collections.abc import Callable
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from checkrein.harness.driver import SessionDriver
from checkrein.harness.hooks import Hooks
from checkrein.kernel.budget import Amounts
from checkrein.kernel.events import Blocked, Cause, WorkStarted
from checkrein.kernel.session_next import AwaitCalls, Effect, GiveBack, MeetGoal, PauseForBudget
from checkrein.kernel.state import RunState
from checkrein.runs.calls import CallRunner
from checkrein.runs.decide import Action, AskCaller, DriveSession, Poll, Resolve, Rest, StartWork, Verify, next_action
from checkrein.runs.held import HeldRun, Interrupted, Moved
from checkrein.runs.session_host import RunHost
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
    hooks = Hooks()
    if held.task.hooks is not None:
        held.task.hooks(hooks)
    session = SessionDriver(RunHost(held, calls), hooks, on_failure=held.task.on_failure)
    watcher = held.clock.spawn(held.watch(), name=f"watch-{held.run_id}")
    try:
        while not must_stop():
            action = _next_action(held)
            effect = session.next_effect() if isinstance(action, DriveSession) else None
            try:
                if held.state.reservations and await calls.children.tend(_wish(held, effect or action)):
                    continue
                if isinstance(action, Rest) or isinstance(effect, (GiveBack, AwaitCalls)):
                    return
                if effect is None:
                    await _perform(held, calls, session, action)
                else:
                    await session.perform(effect)
            except Moved:
                continue
            except Interrupted:
                held.check_lease()
                await held.refresh()
    finally:
        watcher.cancel()


def _wish(held: HeldRun, step: Action | BlockOnCode | Effect) -> Literal["look", "wait"]:
    """Tell whether to wait for child runs before this: the goal is met only after them, and what they give back may be all that is missing."""
    if isinstance(step, PauseForBudget):
        without_shares = replace(held.budget(), reserved=Amounts())
        return "look" if without_shares.is_reached(step.limit) else "wait"
    return "wait" if isinstance(step, MeetGoal) else "look"


def _next_action(held: HeldRun) -> Action | BlockOnCode:
    """Return what is to be done now, with the budget as it is at this moment."""
    state, task = held.state, held.task
    if has_other_code(state, task) and not state.phase.is_terminal:
        return Rest() if waits_for_code(state, task) else BlockOnCode()
    return next_action(state, held.budget())


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


async def _perform(held: HeldRun, calls: CallRunner, session: SessionDriver, action: Action | BlockOnCode) -> None:
    """Do one thing that the run itself decides, or a pause that its session makes of it."""
    match action:
        case BlockOnCode():
            await _block_on_code(held)
        case Resolve():
            await calls.resolve(action.call, action.how)
        case Poll():
            await calls.poll(action.call)
        case AskCaller():
            await held.append(calls.ask_caller(action.call))
        case StartWork():
            await held.append(WorkStarted())
        case Verify():
            await verify_run(held, session.announce_end)
        case PauseForBudget():
            await session.perform(action)
        case DriveSession() | Rest():
            pass
