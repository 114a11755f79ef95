"""Scenarios of crashes: what the declaration makes of a call whose worker is gone, whether a probe tells the truth, and a worker that comes back too late.

Each scenario runs a whole run on a real store with two workers. The invariant of all: whatever is recorded of a call agrees with what happened in the world.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Final

import msgspec

from checkrein.testing.tool_bench import Baseline, Bench, Scene
from checkrein.testing.tool_lines import Line
from checkrein.testing.tool_report import Finding, Unusable, advice, broken, counted, kept, listed, shown
from checkrein.testing.tool_runs import Found, RunScene, run_scene
from checkrein.testing.tool_watch import Point
from checkrein.tools.outcomes import AcceptedJob, Done, OutcomeUnknown

__all__ = ["crashes", "jobs", "probes", "two_workers"]

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
    """After a crash before the body, between its effect and its recorded outcome, and at each of its awaits, the declaration decides well."""
    base = await bench.baseline()
    if base.is_job:
        # Until the acceptance is recorded nobody knows the job, and it goes on beside whatever is decided.
        return
    seen = [crash for point in _places(base) if (crash := await _crashed(bench, base, point)) is not None]
    traits = base.traits
    places = _summary(base)
    if traits.idempotent:
        judged = _first(_judge_rerun(base, crash) for crash in seen)
        fine = kept(
            "idempotent=True",
            f"after a crash ({places}) the next worker made the call again as attempt 2: the effect happened once",
        )
    elif traits.has_probe:
        judged = _first(_judge_probe(base, crash) for crash in seen)
        answers = listed(f"{count} times {answer}" for answer, count in Counter(map(_answer, seen)).items())
        fine = kept(
            "reconcile",
            f"after a crash ({places}) the next worker asked the probe and did not run the body ({answers}), each time in agreement with the world",
        )
    else:
        judged = _first(_judge_block(base, crash) for crash in seen)
        fine = advice(
            "idempotent=False",
            f"after a crash ({places}) the run was blocked until a person says what happened, and nothing was repeated",
            "give reconcile=…, or make it idempotent, and no person is needed",
        )
    yield judged or fine


def _places(base: Baseline) -> list[Point | Line]:
    return ["before", *base.line_points(), *base.points(), "after"]


async def _crashed(bench: Bench, base: Baseline, point: Point | Line) -> _Crash | None:
    async with run_scene(bench) as run:
        if not await run.crash(point):
            return None
        before, bodies, raised = await run.look(), run.tool.begun, len(run.tool.raised)
        found = await run.take_over()
        return _Crash(
            place=_in_words(point, base) if isinstance(point, (int, str)) else f"before {run.tool.lines.died_at}",
            before=before,
            bodies=bodies,
            has_happened=_has_happened(base, point, before),
            found=found,
            errors=tuple(f"{type(error).__name__}: {error}" for error in run.tool.raised[raised:]),
        )


def _in_words(point: Point | Line, base: Baseline) -> str:
    if isinstance(point, int):
        return f"at await {point} of {base.awaits}"
    return "before the body" if point == "before" else "between effect and outcome"


def _has_happened(base: Baseline, point: Point | Line, effect: object) -> bool | None:
    if isinstance(point, str):
        return point == "after"
    return effect == base.once if base.has_effect and base.is_whole(effect) else None


def _first(findings: Iterator[Finding | None]) -> Finding | None:
    return next((item for item in findings if item is not None), None)


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
    return "unknown, so that a person is asked" if crash.found.asks_person else crash.found.status


def _summary(base: Baseline) -> str:
    inside = [
        counted(len(points), what)
        for points, what in ((base.line_points(), "line"), (base.points(), "await"))
        if points
    ]
    return listed(["before the body", *(f"at {text}" for text in inside), "between effect and outcome"])


async def probes(bench: Bench) -> AsyncIterator[Finding]:
    """The probe of a tool tells the truth about a call that never ran, one that did, and one beside another of the same arguments."""
    base = await bench.baseline()
    if not base.traits.has_probe:
        return
    async with bench.scene() as scene:
        found = [item async for item in _probed(scene, base)]
    for item in found or [
        kept(
            "reconcile", "it tells apart a call that never ran, one that did, and another call with the same arguments"
        )
    ]:
        yield item


async def _probed(scene: Scene, base: Baseline) -> AsyncIterator[Finding]:
    promise = "reconcile"
    never, other = scene.new_key(), scene.new_key()
    before_all = await _ask(scene, never)
    if before_all == "done":
        yield broken(
            promise, "it says 'done' about a call that never ran", "look for this very call, by context.idempotency_key"
        )
    outcome = await scene.execute(key=other)
    if not isinstance(outcome, Done):
        return
    about_it, given = await _ask(scene, other), await scene.dispatcher.probe(scene.prepared(), scene.context(other))
    if about_it == "failed":
        yield broken(
            promise,
            "it says 'failed' about a call that did happen",
            "look where the effect is kept, by context.idempotency_key",
        )
    elif about_it == "done" and isinstance(given, Done) and given.result != outcome.result:
        seen = f"the body returned {shown(outcome.result.value)}, and the probe's 'done' brings {shown(given.result.value)}, which the planner gets in its place"
        yield advice(promise, seen, "answer ('done', result) with the result of the body")
    elif about_it == "unknown":
        seen = "it cannot even tell that a call happened which did, so each crash blocks the run until a person answers"
        yield advice(promise, seen, "look where the effect is kept, by context.idempotency_key")
    if await scene.look() != base.once:
        yield broken(
            promise,
            f"asking changed the effect to {shown(await scene.look())}",
            "only look in reconcile: it must never do the effect",
        )
        return
    async for item in _beside(scene, base, never):
        yield item


async def _beside(scene: Scene, base: Baseline, never: str) -> AsyncIterator[Finding]:
    """Ask about a call that never ran while another one with the same arguments did, provided that the two would be two effects."""
    about_never = await _ask(scene, never)
    await scene.execute(key=never)
    if about_never == "done" and await scene.look() != base.once:
        yield broken(
            "reconcile",
            "it says 'done' about a call that never ran, because another call with the same arguments did: its effect would never happen",
            "look for this very call, by context.idempotency_key, and not for its arguments",
        )


async def _ask(scene: Scene, key: str) -> str:
    """Return what the probe says.

    Raises:
        Unusable: it raised, or answered with something that is no answer.
    """
    answer = await scene.dispatcher.probe(scene.prepared(), scene.context(key))
    if isinstance(answer, Done):
        return "done"
    if not isinstance(answer, OutcomeUnknown):
        return "failed"
    if answer.reason.startswith("the question"):
        change = "let it answer 'done', 'failed' or 'unknown'; catch what its service raises and answer 'unknown'"
        raise Unusable(broken("reconcile", answer.reason, change))
    return "unknown"


async def two_workers(bench: Bench) -> AsyncIterator[Finding]:
    """A worker that stood still while another took over, and then goes on, can record nothing, and does no harm that the tool can prevent."""
    base = await bench.baseline()
    if base.is_job:
        return
    # In the middle of the body only what is said to be done again harmlessly is done by two workers at once.
    inside = base.points() if base.traits.idempotent else []
    for point in ("after", "before", *inside):
        async with run_scene(bench) as run:
            item = await _returned(run, base, point)
        if item is not None:
            yield item
        if item is not None and item.verdict == "broken":
            return


async def _returned(run: RunScene, base: Baseline, point: Point | Line) -> Finding | None:
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


async def jobs(bench: Bench) -> AsyncIterator[Finding]:
    """A job that was accepted can be asked about by its handle alone, and after a crash its body is not run again."""
    base = await bench.baseline()
    if not base.is_job:
        return
    async with bench.scene() as scene:
        key = scene.new_key()
        accepted = await scene.ended(scene.begin(key=key))
        if not base.traits.has_poll or not isinstance(accepted, AcceptedJob):
            seen = "nobody can be asked about the job once the process that started it is gone"
            yield advice("poll", seen, "declare poll=…, a function of the handle that looks where the job is kept")
            return
        outcome = await scene.finished_job(AcceptedJob(accepted.handle, None, accepted.interval_seconds), key)
        if not isinstance(outcome, Done):
            seen = f"asked by its handle alone, as after a crash, the job came to {shown(outcome)}"
            yield broken("poll", seen, "look in poll where the job itself is kept")
            return
    async with run_scene(bench) as run:
        await run.crash("poll")
        found = await run.take_over()
    if found.status != "done" or found.bodies != 1 or found.effect != base.once:
        seen = f"after a crash while the job ran, the next worker found it {found.status} after {found.bodies} bodies, with the effect {base.amount(found.effect)}"
        yield broken("poll", seen, "answer in poll for every handle that the body ever returned")
    else:
        yield kept(
            "poll", "after a crash while the job ran, the next worker asked by its handle and did not start it again"
        )
