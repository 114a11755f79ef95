"""Scenarios of questions: whether a probe tells the truth about a call, and whether a job is known by its handle alone.

The questions are asked through the dispatcher, as a worker asks them. The invariant: a question changes nothing, whatever it is answered.
"""

from collections.abc import AsyncIterator
from typing import Final

from checkrein.testing.tool_baseline import Baseline
from checkrein.testing.tool_bench import Bench, Scene
from checkrein.testing.tool_report import Finding, Unusable, advice, broken, kept, shown
from checkrein.testing.tool_runs import run_scene
from checkrein.tools.outcomes import AcceptedJob, Done, OutcomeUnknown

__all__ = ["jobs", "probes"]

_BY_KEY: Final = "look for this very call where the effect is kept, by context.idempotency_key"


async def probes(bench: Bench) -> AsyncIterator[Finding]:
    """The probe of a tool tells the truth about a call that never ran, one that did, and one beside another of the same arguments."""
    base = await bench.baseline()
    if not base.traits.has_probe:
        return
    async with bench.scene() as scene:
        found = [item async for item in _probed(scene, base)]
    for item in found:
        yield item
    if not found:
        seen = "it tells apart a call that never ran, one that did, and another call with the same arguments"
        yield kept("reconcile", seen)


async def _probed(scene: Scene, base: Baseline) -> AsyncIterator[Finding]:
    promise = "reconcile"
    never, other = scene.new_key(), scene.new_key()
    before_all = await _ask(scene, never)
    if before_all == "done":
        yield broken(promise, "it says 'done' about a call that never ran", _BY_KEY)
    outcome = await scene.execute(key=other)
    if not isinstance(outcome, Done):
        return
    about_it, given = await _ask(scene, other), await scene.dispatcher.probe(scene.prepared(), scene.context(other))
    if about_it == "failed":
        yield broken(
            promise,
            "it says 'failed' about a call that did happen",
            _BY_KEY,
        )
    elif about_it == "done" and isinstance(given, Done) and given.result != outcome.result:
        seen = f"the body returned {shown(outcome.result.value)}, and the probe's 'done' brings {shown(given.result.value)}, which the planner gets in its place"
        yield advice(promise, seen, "answer ('done', result) with the result of the body")
    elif about_it == "unknown":
        seen = "it cannot even tell that a call happened which did, so each crash blocks the run until a person answers"
        yield advice(promise, seen, _BY_KEY)
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
