"""Scenarios of stopping: a call that is cancelled, or that reaches its time limit, at each `await` of its body, and while its service does not answer.

The invariant that is asked of a tool: wherever it is stopped, what it leaves is nothing or the whole, and what is recorded does not say otherwise.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Final, TypeAlias

from checkrein.ports.tool import CancelSignal
from checkrein.testing.tool_baseline import Baseline
from checkrein.testing.tool_bench import Bench, Scene, wait_for, within
from checkrein.testing.tool_report import Finding, advice, broken, counted, kept, not_shown, shown
from checkrein.testing.tool_runs import run_scene
from checkrein.tools.outcomes import AcceptedJob, Done, FailedCall, Outcome, OutcomeUnknown

__all__ = ["cancellation", "time_limit"]

Hold: TypeAlias = Callable[[], AbstractContextManager[object]]

_MOMENT_SECONDS: Final = 0.05
_REASON: Final = "the run is cancelled"
_ONE_STEP: Final = (
    "do the effect in one step (a transaction, a rename), or undo it: `except asyncio.CancelledError: …; raise`"
)


async def cancellation(bench: Bench) -> AsyncIterator[Finding]:
    """A cancellable body stops when it is told and leaves nothing or the whole; any other finishes, and its outcome counts."""
    base = await bench.baseline()
    is_cancellable = base.traits.cancellable
    promise = f"cancellable={is_cancellable}"
    points = base.points() if not base.is_plain else [1]
    after_effect: list[int] = []
    for point in points:
        async with bench.scene() as scene:
            outcome, has_ended = await _cancelled_at(scene, point)
            effect = await scene.look()
        problem = (
            _not_stopped(base, point, has_ended=has_ended) if is_cancellable else _not_finished(base, outcome, effect)
        )
        problem = problem or _untrue(base, outcome, effect, promise, f"cancelled {_at(base, point)}")
        if problem is not None:
            yield problem
            return
        if isinstance(outcome, OutcomeUnknown) and base.has_effect and effect == base.once:
            after_effect.append(point)
    if after_effect:
        seen = f"cancelled at await {after_effect[0]} of {base.awaits} the effect has happened already, and the run records that the call was cancelled"
        yield advice(promise, seen, "make the effect the last thing that is awaited")
    if not points or (base.is_plain and base.traits.inline):
        yield not_shown(promise, "the body never gives way, so it is over before anybody can cancel it")
        return
    yield await _in_a_run(bench, base, promise)


async def _cancelled_at(scene: Scene, point: int) -> tuple[Outcome, bool]:
    signal = CancelSignal()

    async def cancel() -> None:
        signal.cancel(_REASON)

    scene.tool.at(point, cancel)
    return await scene.told_to_stop(scene.begin(signal=signal))


def _at(base: Baseline, point: int) -> str:
    return "while it ran" if base.is_plain else f"at await {point} of {base.awaits}"


def _not_stopped(base: Baseline, point: int, *, has_ended: bool) -> Finding | None:
    if has_ended:
        return None
    seen = f"cancelled {_at(base, point)}, the body went on for longer than the case's patience; a run would give it up with its outcome unknown"
    change = "let asyncio.CancelledError through (no `except BaseException` or bare `except` around an await), or declare cancellable=False"
    return broken("cancellable=True", seen, change)


def _not_finished(base: Baseline, outcome: Outcome, effect: object) -> Finding | None:
    if isinstance(outcome, (Done, AcceptedJob)) or (isinstance(outcome, FailedCall) and effect == base.none):
        return None
    seen = f"told by its signal and waited for, the body came to {shown(outcome)} with the effect {base.amount(effect)}"
    return broken(
        "cancellable=False", seen, "finish and return, or look at context.signal and raise before the effect begins"
    )


def _untrue(base: Baseline, outcome: Outcome, effect: object, promise: str, when: str) -> Finding | None:
    """Return the finding of an outcome that says something else than the world; None when the two agree."""
    if isinstance(outcome, AcceptedJob) or not base.has_effect:
        return None
    if not base.is_whole(effect):
        seen = f"{when}, the body left {shown(effect)}, which is neither nothing ({shown(base.none)}) nor the whole ({shown(base.once)})"
        return broken(promise, seen, f"{_ONE_STEP}; or declare cancellable=False, and it is waited for")
    if isinstance(outcome, Done) and effect != base.once:
        seen = f"{when}, the body returned {shown(outcome.result.value)} as if all were done, and the effect is {base.amount(effect)}"
        return broken(promise, seen, "raise when the effect did not happen; a returned value is recorded as done")
    if isinstance(outcome, FailedCall) and effect != base.none:
        seen = (
            f"{when}, the body raised ({outcome.message}) although its effect happened, so a planner would do it again"
        )
        return broken(promise, seen, "return the result once the effect happened; raise only when it did not")
    return None


async def _in_a_run(bench: Bench, base: Baseline, promise: str) -> Finding:
    """Cancel a whole run while the body is held at its first await."""
    async with run_scene(bench) as run:

        async def cancel() -> None:
            await run.cancel()
            if base.traits.cancellable:
                # Held here until the cancellation arrives, as by a slow service.
                await asyncio.Event().wait()

        run.tool.at(1, cancel)
        found = await run.rests(await run.begin())
    code = found.state.outcome.code if found.state.outcome is not None else found.state.phase
    if code != "cancelled" or found.status not in {"done", "failed"}:
        seen = f"its run was cancelled and is {code}, with the call {found.status}"
        return broken(promise, seen, "end within the grace of 5 s, or raise what keeps it from ending")
    places = "while it ran" if base.is_plain else f"at {counted(base.awaits, 'await')}"
    return kept(
        promise,
        f"cancelled {places}, it left nothing or the whole; its run ended as cancelled, with the call {found.status}",
    )


async def time_limit(bench: Bench) -> AsyncIterator[Finding]:
    """A body that reaches its time limit stops, and what it leaves agrees with what is recorded."""
    base = await bench.baseline()
    seconds = base.traits.timeout_seconds
    if seconds is None:
        yield advice(
            "timeout_seconds=None",
            "a service that never answers would hold the call for ever",
            "declare timeout_seconds=…",
        )
        return
    promise = f"timeout_seconds={seconds:g}"
    for point in base.points():
        async with bench.scene() as scene:
            problem = await _timed_out_at(scene, base, point)
        if problem is not None:
            yield problem
            return
    async with bench.scene() as scene:
        if scene.case.hold is not None and not base.traits.inline:
            yield await _held(scene, base, promise, scene.case.hold)
        elif base.awaits:
            yield kept(promise, f"at its limit the body stopped, at {counted(base.awaits, 'await')}")
        else:
            change = "give the case hold=…, so that its service can be made not to answer"
            yield not_shown(promise, "the body ended by itself, and nobody can stop it halfway", change)


async def _timed_out_at(scene: Scene, base: Baseline, point: int) -> Finding | None:
    seconds = scene.tool.traits.timeout_seconds or 0.0
    key = scene.new_key()

    async def strike() -> None:
        scene.clock.strike(seconds)

    scene.tool.at(point, strike)
    outcome, has_ended = await scene.told_to_stop(scene.begin(key=key))
    if not has_ended:
        return _ran_on(base, seconds, f"at await {point} of {base.awaits}")
    return await _after_limit(scene, base, outcome, key)


def _ran_on(base: Baseline, seconds: float, where: str, late: str = "") -> Finding:
    seen = f"at its limit of {seconds:g} s, {where}, the body was told to stop and went on{late}"
    if base.is_plain:
        change = "look at context.signal between steps and give the service a limit of its own; or make it async, so that it can be cancelled"
    else:
        change = "let asyncio.CancelledError through (no `except BaseException` or bare `except` around an await)"
    return broken(f"timeout_seconds={seconds:g}", seen, change)


async def _after_limit(scene: Scene, base: Baseline, outcome: Outcome, key: str) -> Finding | None:
    """Judge what a timed-out body left; an idempotent one may leave anything, provided that the next attempt makes it whole."""
    traits, effect = scene.tool.traits, await scene.look()
    promise, when = f"timeout_seconds={traits.timeout_seconds or 0:g}", "at its limit"
    if not traits.idempotent:
        return _untrue(base, outcome, effect, promise, when)
    again = await scene.execute(key=key, attempt=2)
    now = await scene.look()
    if isinstance(again, Done) and now == base.once:
        return None
    said = f" ({again.message})" if isinstance(again, FailedCall) else ""
    seen = f"{when} the body left {base.amount(effect)}; attempt 2 under the same key left {shown(now)} instead of {shown(base.once)}{said}"
    return broken(
        "idempotent=True", seen, "expect what a first attempt left, wherever it was stopped, and go on from there"
    )


async def _held(scene: Scene, base: Baseline, promise: str, hold: Hold) -> Finding:
    """Let the limit strike while the body's service does not answer, and see whether the body ends, and what it does when the service answers late."""
    seconds, key, reached = base.traits.timeout_seconds or 0.0, scene.new_key(), asyncio.Event()

    async def note() -> None:
        reached.set()

    scene.tool.at(1, note)
    with hold():
        execution = scene.begin(key=key)
        await within(scene.spawn(wait_for(reached)), scene.case.patience_seconds)
        # A moment for the body to get from its first await to its service.
        if await within(execution, _MOMENT_SECONDS):
            change = "let hold() keep the body from ending: its service does not answer, its table is locked"
            return not_shown(promise, "the body ended although it was held", change)
        scene.clock.strike(seconds)
        outcome, has_ended = await scene.told_to_stop(execution)
        at_limit = await scene.look()
    if not has_ended:
        await scene.is_idle()
        late = await scene.look()
        told = (
            f", and did its effect later ({shown(late)}), when nobody expected it any more" if late != at_limit else ""
        )
        return _ran_on(base, seconds, "with a service that does not answer", told)
    problem = await _after_limit(scene, base, outcome, key)
    return problem or kept(promise, "with a service that does not answer, the body stopped at its limit")
