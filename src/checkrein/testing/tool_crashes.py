"""Scenarios of crashes: what the declaration makes of a call whose worker is gone, whether a probe tells the truth, and a worker that comes back too late.

Each scenario runs a whole run on a real store with two workers. The invariant of all: whatever is recorded of a call agrees with what happened in the world.
"""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from checkrein.testing.tool_baseline import Baseline
from checkrein.testing.tool_bench import Bench
from checkrein.testing.tool_lines import Line
from checkrein.testing.tool_report import Finding, Unusable, advice, broken, counted, kept, listed, shown
from checkrein.testing.tool_runs import Found, RunScene, run_scene
from checkrein.testing.tool_watch import Point

__all__ = ["crashes", "two_workers"]

_UNIQUE: Final = (
    "hand context.idempotency_key to the service that does the effect, or keep it beside the effect in one transaction"
)


class _Crash(msgspec.Struct, frozen=True):
    """A crash, and what the next worker made of it.

    Attributes:
        place: where it was, in words.
        before: the effect right after the crash.
        bodies: bodies begun by then.
        has_happened: whether the effect had happened; None when nobody can say.
        found: how the run stands after the takeover.
        errors: what later bodies raised.
    """

    place: str
    before: object
    bodies: int
    has_happened: bool | None
    found: Found
    errors: tuple[str, ...]


async def crashes(bench: Bench) -> AsyncIterator[Finding]:
    """After a crash before the body, at its lines and awaits, and between its effect and its recorded outcome, the declaration decides well."""
    base = await bench.baseline()
    if base.is_job:
        # Until the acceptance is recorded nobody knows the job, and it goes on beside whatever is decided.
        return
    judge = _judge_rerun if base.traits.idempotent else _judge_probe if base.traits.has_probe else _judge_block
    seen: list[_Crash] = []
    for point in _places(base):
        crash = await _crashed(bench, base, point)
        if crash is None:
            continue
        problem = judge(base, crash)
        if problem is not None:
            yield problem
            return
        seen.append(crash)
    yield _survived(base, seen)


def _survived(base: Baseline, seen: Sequence[_Crash]) -> Finding:
    inside = [
        counted(len(points), what)
        for points, what in ((base.line_points(), "line"), (base.points(), "await"))
        if points
    ]
    places = listed(["before the body", *(f"at {text}" for text in inside), "between effect and outcome"])
    if base.traits.idempotent:
        told = (
            f"after a crash ({places}) the next worker made the call again as attempt 2, and the effect happened once"
        )
        return kept("idempotent=True", told)
    if base.traits.has_probe:
        answers = listed(f"{answer}: {counted(count, 'time')}" for answer, count in Counter(map(_answer, seen)).items())
        told = (
            f"after a crash ({places}) the next worker asked the probe and ran no body; it told the truth ({answers})"
        )
        return kept("reconcile", told)
    told = f"after a crash ({places}) the run was blocked until a person says what happened, and nothing was repeated"
    return advice("idempotent=False", told, "give reconcile=…, or make it idempotent, and no person is needed")


def _places(base: Baseline) -> list[Point | Line]:
    return ["before", *base.line_points(), *base.points(), "after"]


async def _crashed(bench: Bench, base: Baseline, point: Point | Line) -> _Crash | None:
    """Let the first worker die at a point and a second one take over; None when the body never got there.

    Raises:
        Unusable: the second worker's attempt did not end.
    """
    async with run_scene(bench) as run:
        if not await run.crash(point):
            return None
        place = f"before {run.tool.lines.died_at}" if isinstance(point, Line) else _in_words(point, base)
        before, bodies, raised = await run.look(), run.tool.begun, len(run.tool.raised)
        try:
            found = await run.take_over()
        except Unusable as error:
            change = "let what a dead worker held be given back by itself: `with` for locks and transactions, leases that end"
            raise Unusable(
                broken(error.finding.promise, f"after a crash {place} {error.finding.seen}", change)
            ) from error
        happened = _has_happened(base, point, before)
        errors = tuple(f"{type(error).__name__}: {error}" for error in run.tool.raised[raised:])
        return _Crash(place, before, bodies, happened, found, errors)


def _in_words(point: Point, base: Baseline) -> str:
    if isinstance(point, int):
        return f"at await {point} of {base.awaits}"
    return "before the body" if point == "before" else "between effect and outcome"


def _has_happened(base: Baseline, point: Point | Line, effect: object) -> bool | None:
    if isinstance(point, str):
        return point == "after"
    return effect == base.once if base.has_effect and base.is_whole(effect) else None


def _judge_rerun(base: Baseline, crash: _Crash) -> Finding | None:
    promise, found = "idempotent=True", crash.found
    if found.status == "failed":
        said = crash.errors[-1] if crash.errors else "it failed"
        return broken(
            promise,
            f"after a crash {crash.place} the second attempt fails: {said}",
            "expect what the first attempt left, and go on from there",
        )
    if found.effect != base.once:
        seen = f"after a crash {crash.place} (the effect was {base.amount(crash.before)}) attempt 2 was made, and now the effect is {shown(found.effect)} instead of {shown(base.once)}"
        return broken(promise, seen, f"{_UNIQUE}; or drop idempotent=True and give reconcile=…")
    if found.status != "done" or found.call is None or found.call.attempt != 2:  # noqa: PLR2004  the first one and the one after the crash
        return broken(
            promise,
            f"after a crash {crash.place} the call is {found.status}",
            "let a second attempt return what the first one would have",
        )
    return None


def _judge_probe(base: Baseline, crash: _Crash) -> Finding | None:
    promise, found = "reconcile", crash.found
    if found.bodies != crash.bodies or found.effect != crash.before:
        seen = (
            f"asking after a crash {crash.place} changed the effect from {shown(crash.before)} to {shown(found.effect)}"
        )
        return broken(promise, seen, "only look in reconcile: it must never do the effect")
    if found.asks_person:
        return None
    return _lie(base, crash)


def _lie(base: Baseline, crash: _Crash) -> Finding | None:
    says, happened = crash.found.status, crash.has_happened
    if happened is None and not base.has_effect:
        return None
    if happened is None:
        return broken(
            "reconcile",
            f"a crash {crash.place} leaves {base.amount(crash.before)}, and the probe says {says!r}",
            "answer 'unknown' for what is half done, or do the effect in one step (a transaction, a rename)",
        )
    if (says == "done") == happened:
        return None
    truth = "had happened" if happened else "had not happened"
    danger = "a planner would do it a second time" if happened else "nobody would ever do it"
    return broken(
        "reconcile",
        f"after a crash {crash.place} the effect {truth}, and the probe says {says!r}: {danger}",
        "look for this very call, by context.idempotency_key, where the effect is kept; answer 'unknown' when that cannot tell",
    )


def _judge_block(base: Baseline, crash: _Crash) -> Finding | None:
    found = crash.found
    if found.asks_person and found.bodies == crash.bodies and found.effect == crash.before:
        return None
    seen = f"after a crash {crash.place} the call is {found.status}, and the effect went from {base.amount(crash.before)} to {base.amount(found.effect)}"
    return broken("idempotent=False", seen, "let nothing of the tool go on in the background when its body was left")


def _answer(crash: _Crash) -> str:
    return "unknown, so a person was asked" if crash.found.asks_person else crash.found.status


async def two_workers(bench: Bench) -> AsyncIterator[Finding]:
    """A worker that stood still while another took over, and then goes on, can record nothing, and does no harm that the tool can prevent."""
    base = await bench.baseline()
    if base.is_job:
        return
    # In the middle of the body only what is said to be done again harmlessly is done by two workers at once.
    inside = base.points() if base.traits.idempotent else []
    for point in ("after", "before", *inside):
        async with run_scene(bench, is_durable=True) as run:
            item = await _returned(run, base, point)
        if item is not None:
            yield item
        if item is not None and item.verdict == "broken":
            return


async def _returned(run: RunScene, base: Baseline, point: Point) -> Finding | None:
    first = await run.stop(point)
    if first is None:
        return None
    try:
        taken_over = await run.take_over()
    except Unusable:
        # The second worker waits for something that the first one holds: two processes may do so, and no effect is doubled.
        return None
    noticed = await run.resume(first)
    now = await run.found()
    if noticed is None or now.state.version != taken_over.state.version:
        seen = f"the first worker, back {_in_words(point, base)}, still wrote to the log"
        return broken("two workers", seen, "report it: the store let a worker write that had lost its lease")
    traits = base.traits
    if traits.idempotent and now.effect != base.once:
        seen = f"one worker stood still {_in_words(point, base)}, a second one made the call again, then the first one went on: the effect is {shown(now.effect)} instead of {shown(base.once)}"
        return broken("idempotent=True", seen, f"{_UNIQUE}: two workers may be in the body at the same time")
    if traits.has_probe and not traits.idempotent and taken_over.status == "failed" and now.effect != taken_over.effect:
        seen = "a worker stood still right before the body, the probe said 'failed', then the worker went on and the effect happened after all"
        return advice(
            "reconcile",
            seen,
            "'failed' means that it will not happen either: let reconcile void the idempotency key at the service, or answer 'unknown' while the key is young",
        )
    return (
        kept(
            "two workers", f"a worker that was stopped {_in_words(point, base)} and came back too late recorded nothing"
        )
        if point == "after"
        else None
    )
