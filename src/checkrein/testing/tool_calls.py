"""Scenarios of plain calls: arguments, results, duplicates, overlapping calls, and doing it twice.

Each scenario is an async generator of findings over a bench. None of them needs a crash or a clock.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from checkrein.errors import PathEscape
from checkrein.runs.workspace import artifact_of
from checkrein.testing.tool_baseline import Baseline
from checkrein.testing.tool_bench import Bench, Scene
from checkrein.testing.tool_case import files_below
from checkrein.testing.tool_report import Finding, advice, broken, counted, kept, listed, not_shown, shown
from checkrein.testing.tool_watch import WatchedTool
from checkrein.tools.outcomes import Done, FailedCall, Outcome
from checkrein.tools.schema import compiled
from checkrein.values import JsonObject, JsonValue

__all__ = ["arguments", "duplicates", "overlap", "result", "twice"]

BLOCKED_SECONDS: Final = 0.25
"""For how long a body may keep the event loop to itself before the report says so."""
_STRANGE: Final = "no_such_argument"
_SAMPLES: Final[tuple[JsonValue, ...]] = (None, [], {}, "", "text", -1, 1.5, True)


async def arguments(bench: Bench) -> AsyncIterator[Finding]:
    """Every argument has a type, and wrong arguments are refused before anything happens."""
    async with bench.scene() as scene:
        name = "arguments"
        try:
            properties = _properties(scene.tool)
        except TypeError as error:
            yield broken(
                name, f"the tool has no schema: {error}", "annotate every parameter with a type that JSON can carry"
            )
            return
        untyped = [argument for argument, schema in properties.items() if _says_nothing(schema)]
        if untyped:
            seen = f"{listed(untyped)} may be anything, so a model is not told what to give, and nothing is refused"
            yield broken(name, seen, "annotate it with a type (str, int, Literal[…], a model), not with object or Any")
        before = await scene.look()
        scene.prepared()
        accepted, internal, refused = _tried(scene, properties)
        for wrong in accepted:
            yield broken(
                name, f"{wrong} is accepted", "say so in the schema: required, a type, additionalProperties false"
            )
        for wrong in internal:
            yield broken(
                name,
                f"{wrong} is not refused, but breaks the check",
                "let check raise InvalidArguments, which names the place",
            )
        if scene.tool.begun or await scene.look() != before:
            yield broken(
                name,
                "looking whether a call can be made has changed the world",
                "do nothing in check: it runs before a call is granted",
            )
        elif not (untyped or accepted or internal):
            yield kept(
                name,
                f"{counted(len(properties), 'argument')}, each with a type; {counted(refused, 'wrong call')} refused before the body",
            )
        for item in _undescribed(scene.tool, properties):
            yield item


def _properties(tool: WatchedTool) -> Mapping[str, JsonValue]:
    found = tool.schema.decoded().get("properties")
    return found if isinstance(found, dict) else {}


def _says_nothing(schema: JsonValue) -> bool:
    told = {"type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf", "not", "if"}
    return schema is True or (isinstance(schema, dict) and not told & schema.keys())


def _tried(scene: Scene, properties: Mapping[str, JsonValue]) -> tuple[list[str], list[str], int]:
    """Try wrong arguments: those accepted, those that broke the check, and how many were refused as they should."""
    accepted: list[str] = []
    internal: list[str] = []
    refused = 0
    for what, given in _wrong_calls(scene, properties):
        outcome = scene.dispatcher.prepare(scene.tool.name, given)
        if not isinstance(outcome, FailedCall):
            accepted.append(what)
        elif outcome.kind != "schema":
            internal.append(f"{what} ({outcome.message})")
        else:
            refused += 1
    return accepted, internal, refused


def _wrong_calls(scene: Scene, properties: Mapping[str, JsonValue]) -> Iterator[tuple[str, JsonObject]]:
    """Yield calls that no tool may accept: an argument nobody knows, one that is missing, one of a type that its own schema refuses."""
    good = JsonObject(scene.case.arguments).decoded()
    yield f"an unknown argument {_STRANGE!r}", JsonObject({**good, _STRANGE: 1})
    whole = scene.tool.schema.decoded()
    required = whole.get("required")
    for name in required if isinstance(required, list) else ():
        yield (
            f"a call without the required {name!r}",
            JsonObject({key: value for key, value in good.items() if key != name}),
        )
    for name, schema in properties.items():
        if isinstance(schema, dict):
            alone = compiled(JsonObject({**schema, "$defs": whole.get("$defs") or {}}))
            wrong = next((sample for sample in _SAMPLES if not alone.is_valid(sample)), good)
            if wrong is not good:
                yield f"{name}={wrong!r}", JsonObject({**good, name: wrong})


def _undescribed(tool: WatchedTool, properties: Mapping[str, JsonValue]) -> Iterator[Finding]:
    if not tool.description.strip():
        yield advice(
            "arguments", "the tool has no description", "give the function a docstring: it is what a model reads"
        )
    silent = [name for name, schema in properties.items() if isinstance(schema, dict) and not schema.get("description")]
    if silent:
        yield advice(
            "arguments",
            f"arguments without a description: {listed(silent)}",
            "describe them under Args: in the docstring",
        )


async def result(bench: Bench) -> AsyncIterator[Finding]:
    """What a call returns can be recorded whole; its artifacts exist; nothing else is touched."""
    base = await bench.baseline()
    async with bench.scene() as scene:
        before, inputs, here = files_below(scene.folder), _inputs(scene), _listing()
        outcome = await scene.execute()
        changed = {path for path, digest in files_below(scene.folder).items() if before.get(path) != digest}
        if isinstance(outcome, Done):
            for item in _recorded(outcome, scene.folder, changed):
                yield item
        if _inputs(scene) != inputs:
            yield broken(
                "inputs",
                "the body changed a file of the task's inputs",
                "read inputs only; write below context.folder()",
            )
        if _listing() != here:
            yield advice(
                "workspace",
                "files came or went in the current directory",
                "write below context.folder(), where artifacts are checked and takeovers are safe",
            )
    if base.longest_seconds > BLOCKED_SECONDS:
        seen = f"the body kept the event loop to itself for {base.longest_seconds:.2f} s, and with it every other call, lease and signal"
        yield advice("event loop", seen, "make it a plain function without inline=True: it gets a thread of its own")
    if not base.has_effect:
        seen = "no effect was seen, so nothing below says how often it happens"
        yield advice(
            "effect",
            seen,
            "if the tool changes something, let the case's effect() look at it; if it only reads, all is well",
        )


def _recorded(outcome: Done, folder: Path, changed: set[str]) -> Iterator[Finding]:
    if outcome.truncated:
        seen = f"the result is larger than the limit and was cut to {len(outcome.result.encoded):,} bytes of text"
        yield broken("result", seen, "return less: a page of it, a summary, or the path of an artifact that holds it")
    missing = [problem for path in outcome.artifacts if (problem := _problem_of(folder, path))]
    for problem in missing:
        yield broken(
            "artifacts",
            f"{problem}; in a run the call counts as failed",
            "write the file below context.folder() before it is named",
        )
    unnamed = sorted(changed - set(outcome.artifacts))
    if unnamed:
        seen = f"wrote {listed(unnamed[:5])} into the run's folder and did not name it, so no check can look at it"
        yield advice("artifacts", seen, "return ToolOutput(value, artifacts=(path, …))")
    if not outcome.truncated and not missing:
        named = f", and {counted(len(outcome.artifacts), 'artifact')} named and found" if outcome.artifacts else ""
        yield kept("result", f"{len(outcome.result.encoded):,} bytes of JSON, recorded whole{named}")


def _problem_of(folder: Path, path: str) -> str:
    try:
        artifact_of(folder, path)
    except FileNotFoundError:
        return f"artifact {path!r} does not exist below the run's folder"
    except (OSError, PathEscape) as error:
        return f"artifact {path!r} cannot be read: {error}"
    return ""


def _inputs(scene: Scene) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in scene.case.inputs.items()}


def _listing() -> set[str]:
    return {path.name for path in Path().iterdir()}


async def duplicates(bench: Bench) -> AsyncIterator[Finding]:
    """Two calls with one idempotency key at the same time are one execution."""
    base = await bench.baseline()
    async with bench.scene() as scene:
        key = scene.new_key()
        first, second = await asyncio.gather(scene.execute(key=key), scene.execute(key=key))
        effect, bodies = await scene.look(), scene.tool.begun
    promise = "duplicates"
    if bodies != 1 or not _alike(first, second) or effect != base.once:
        seen = f"two calls with one key at the same time ran {bodies} bodies and left {base.amount(effect)}"
        yield broken(promise, seen, "let the body itself do its effect once: it was run once for both callers")
    else:
        yield kept(promise, "two calls with one key at the same time shared one execution")


async def overlap(bench: Bench) -> AsyncIterator[Finding]:
    """Two calls of their own may overlap, unless the tool is declared sequential."""
    base = await bench.baseline()
    promise = f"sequential={base.traits.sequential}"
    if base.traits.sequential:
        yield kept(promise, "the runtime never lets it overlap with another call of its batch")
        return
    async with bench.scene() as scene:
        await scene.execute()
        one_by_one = (await scene.execute(), await scene.look())
    async with bench.scene() as scene:
        outcomes = await asyncio.gather(scene.execute(), scene.execute())
        beside = await scene.look()
    if beside != one_by_one[1] or any(type(item) is not type(one_by_one[0]) for item in outcomes):
        seen = f"two calls one after the other leave {shown(one_by_one[1])}, two at the same time leave {shown(beside)}{_failures(outcomes)}"
        yield broken(promise, seen, "declare sequential=True, or guard what both change with a lock or a transaction")
    else:
        yield kept(promise, "two calls at the same time leave what two calls one after the other leave")


async def twice(bench: Bench) -> AsyncIterator[Finding]:
    """Doing it twice under one key is the same as doing it once, if the tool says so."""
    base = await bench.baseline()
    async with bench.scene() as scene:
        key = scene.new_key()
        first = await scene.execute(key=key)
        second = await scene.execute(key=key, attempt=2)
        effect = await scene.look()
    for item in (
        _twice(base, (first, second), effect)
        if base.traits.idempotent
        else _twice_undeclared(base, (first, second), effect)
    ):
        yield item


def _twice(base: Baseline, outcomes: tuple[Outcome, Outcome], effect: object) -> Iterator[Finding]:
    promise, first, second = "idempotent=True", *outcomes
    if effect != base.once:
        yield broken(
            promise,
            f"once leaves {shown(base.once)}, twice under one idempotency key leaves {shown(effect)}; after a crash or a timeout the call is made again",
            "do nothing the second time (hand context.idempotency_key to the service, or keep it beside the effect), or drop idempotent=True and give reconcile=…",
        )
    elif isinstance(second, FailedCall):
        yield broken(
            promise,
            f"the second execution under one key fails: {second.message}",
            "return what the first one returned: after a crash the second outcome is the only one that is recorded",
        )
    elif not _alike(first, second):
        yield broken(
            promise,
            f"the first execution returned {_said(first)}, the second one under the same key {_said(second)}",
            "return what the first one returned, without times and new ids; or keep the result beside the key",
        )
    else:
        yield kept(promise, "twice under one key has the effect of once, and the same result")


def _twice_undeclared(base: Baseline, outcomes: tuple[Outcome, Outcome], effect: object) -> Iterator[Finding]:
    if effect == base.once and _alike(*outcomes) and base.has_effect:
        seen = "twice under one key has the effect of once, and the same result"
        yield advice(
            "idempotent=False",
            seen,
            "if that is so by design, declare idempotent=True: then a crash in the middle never blocks a run",
        )
    elif not base.has_effect:
        yield not_shown(
            "idempotent=False", "no effect was seen", "a tool that only reads can be declared idempotent=True"
        )


def _alike(first: Outcome, second: Outcome) -> bool:
    """Tell whether two outcomes of one call are the same for a planner; a job's handle may differ."""
    if isinstance(first, Done) and isinstance(second, Done):
        return (first.result, first.artifacts) == (second.result, second.artifacts)
    return type(first) is type(second)


def _said(outcome: Outcome) -> str:
    return shown(outcome.result.value) if isinstance(outcome, Done) else shown(outcome)


def _failures(outcomes: Sequence[Outcome]) -> str:
    failed = [item.message for item in outcomes if isinstance(item, FailedCall)]
    return f"; one failed: {failed[0]}" if failed else ""
