"""For every promise there is a tool that breaks it, and the kit objects: which promise, what happened, and what to change."""

import asyncio
import threading
from itertools import count
from pathlib import Path

import pytest
from typing_extensions import override

from checkrein import Accepted, ToolContext, tool
from checkrein.ports.tool import PollResult, Reconciliation, ToolOutput, ToolTraits
from checkrein.testing import ToolCase, conform
from checkrein.testing.tool_case import MakeCase
from checkrein.values import JsonObject
from tests.unit.testing.objections import (
    ARGUMENTS,
    CANCEL,
    CRASH,
    DUPLICATES,
    JOB,
    OVERLAP,
    PATIENCE_SECONDS,
    PROBE,
    RESULT,
    TWICE,
    WORKERS,
    advised,
    has,
    objection,
)

# Arguments


def test_an_argument_without_a_type_is_named() -> None:
    @tool
    def note(text: str, anything: object) -> None:
        del text, anything

    text = objection(lambda _: ToolCase(note, {"text": "a", "anything": 1}), ARGUMENTS)
    has(text, "arguments (every argument has a type", "✗ anything may be anything", "change: annotate it with a type")


class Lax:
    """A tool whose schema lets everything pass, and whose check does what only the body may do."""

    name = "lax"
    description = ""
    schema = JsonObject({"type": "object", "properties": {"text": {"type": "string"}}})
    traits = ToolTraits()

    def __init__(self) -> None:
        self.checked = 0

    def check(self, arguments: JsonObject) -> None:
        if arguments.get("no_such_argument"):
            raise KeyError("no_such_argument")
        self.checked += 1

    async def call(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        del arguments, context
        return ToolOutput()

    async def probe(self, arguments: JsonObject, context: ToolContext) -> Reconciliation:
        del arguments, context
        raise LookupError

    async def poll(self, handle: str, arguments: JsonObject, context: ToolContext) -> PollResult:
        del arguments, context
        raise LookupError(handle)


def test_a_check_that_breaks_or_changes_the_world_is_named() -> None:
    def make(_place: Path) -> ToolCase:
        lax = Lax()
        return ToolCase(lax, {"text": "a"}, effect=lambda: lax.checked)

    text = objection(make, ARGUMENTS)
    has(
        text,
        "an unknown argument 'no_such_argument' (",
        "KeyError",
        "is not refused, but breaks the check",
        "InvalidArguments",
    )
    has(text, "looking whether a call can be made has changed the world", "change: do nothing in check")


def test_an_unknown_argument_that_is_accepted_is_named() -> None:
    class Open(Lax):
        @override
        def check(self, arguments: JsonObject) -> None:
            del arguments

    text = objection(lambda _: ToolCase(Open(), {"text": "a"}), ARGUMENTS)
    has(text, "an unknown argument 'no_such_argument' is accepted", "change: say so in the schema")


def test_arguments_that_the_tool_itself_refuses_are_the_cases_fault() -> None:
    @tool
    def note(text: str) -> None:
        del text

    text = objection(lambda _: ToolCase(note, {"text": 5}), ARGUMENTS)
    has(
        text,
        "the case gives arguments that the tool refuses",
        "/text",
        "change: give arguments with which a call succeeds",
    )


def test_a_signature_without_a_schema_is_named() -> None:
    @tool
    def note(text: threading.Event) -> None:
        del text

    has(
        objection(lambda _: ToolCase(note, {"text": "a"}), ARGUMENTS),
        "the tool has no schema",
        "annotate every parameter",
    )


# Results


def test_a_result_that_is_no_json_is_named_with_what_can_be_returned() -> None:
    @tool
    def numbers() -> set[int]:
        return {1, 2}

    for test in (RESULT, CANCEL, CRASH):
        text = objection(lambda _: ToolCase(numbers), test)
        has(
            text,
            "result (what is returned can be recorded whole)",
            "cannot be recorded",
            "set",
            "change: return None, booleans",
        )


def test_a_result_above_the_limit_is_named() -> None:
    @tool(idempotent=True)
    def much() -> str:
        return "x" * 2_000_000

    has(objection(lambda _: ToolCase(much), RESULT), "larger than the limit and was cut", "change: return less")


def test_an_artifact_that_was_not_written_is_named() -> None:
    @tool
    def draw() -> ToolOutput:
        return ToolOutput("drawn", artifacts=("chart.png",))

    text = objection(lambda _: ToolCase(draw), RESULT)
    has(text, "artifacts", "artifact 'chart.png' does not exist below the run's folder", "change: write the file below")


def test_an_artifact_behind_a_link_is_named(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.txt").write_text("x", encoding="utf-8")

    @tool
    def link(context: ToolContext) -> ToolOutput:
        (context.folder() / "a.txt").symlink_to(tmp_path / "elsewhere.txt")
        return ToolOutput("linked", artifacts=("a.txt",))

    has(objection(lambda _: ToolCase(link), RESULT), "artifact 'a.txt' cannot be read", "link")


def test_an_input_that_was_written_to_is_named() -> None:
    def make(place: Path) -> ToolCase:
        (place / "data.csv").write_text("a\n", encoding="utf-8")

        @tool
        def spoil(context: ToolContext) -> None:
            context.inputs["data"].write_text("b\n", encoding="utf-8")

        return ToolCase(spoil, inputs={"data": place / "data.csv"})

    has(objection(make, RESULT), "inputs", "changed a file of the task's inputs", "change: read inputs only")


# The case itself


def test_a_case_whose_call_fails_is_told_so() -> None:
    @tool
    def fail() -> None:
        raise ValueError("no such customer")

    has(objection(lambda _: ToolCase(fail), DUPLICATES), "the case's own call does not succeed", "no such customer")


def test_a_case_that_is_too_slow_is_told_so() -> None:
    @tool
    async def wait() -> None:
        await asyncio.Event().wait()

    text = objection(lambda _: ToolCase(wait, patience_seconds=0.05), RESULT)
    has(text, "a plain call did not end within 0.05 s", "more patience_seconds")


def test_worlds_that_share_something_are_told_so() -> None:
    shared: list[int] = []

    @tool
    def add() -> None:
        shared.append(1)

    text = objection(lambda _: ToolCase(add, effect=lambda: len(shared)), TWICE)
    has(
        text,
        "before anything was called, the effect is 0 in one world and 1 in another",
        "below the folder it is given",
    )


def test_effects_with_ids_in_them_are_told_so() -> None:
    ids = count()

    def make(_place: Path) -> ToolCase:
        rows: list[int] = []

        @tool
        def add() -> None:
            rows.append(next(ids))

        return ToolCase(add, effect=lambda: rows)

    has(
        objection(make, TWICE),
        "after one call, the effect is [0] in one world and [1]",
        "leave ids, keys and times out",
    )


def test_an_effect_that_cannot_be_kept_is_told_so() -> None:
    lock = threading.Lock()

    @tool
    def add() -> None:
        return None

    text = objection(lambda _: ToolCase(add, effect=lambda: lock), TWICE)
    has(text, "what effect() returns cannot be kept", "change: return plain values")


# Calls that repeat or overlap


def counter(*, key_first: bool = False, idempotent: bool = True) -> MakeCase:
    """Return a case whose tool adds a row each time, or keeps keys apart from its rows."""

    def make(_place: Path) -> ToolCase:
        rows: list[str] = []
        keys: set[str] = set()

        @tool(idempotent=idempotent)
        def add(context: ToolContext) -> str:
            if key_first and context.idempotency_key in keys:
                return "added"
            rows.append("row")
            keys.add(context.idempotency_key)
            return "added"

        return ToolCase(add, effect=lambda: len(rows))

    return make


def test_an_idempotent_tool_that_adds_twice_is_named() -> None:
    text = objection(counter(), TWICE)
    has(text, "add declares idempotent=True", "once leaves 1, twice under one idempotency key leaves 2")
    has(text, "change: do nothing the second time", "reconcile=…")


def test_an_idempotent_tool_whose_second_result_differs_is_named() -> None:
    def make(_place: Path) -> ToolCase:
        numbers = count()

        @tool(idempotent=True)
        def number() -> int:
            return next(numbers)

        return ToolCase(number)

    has(
        objection(make, TWICE),
        "the first execution returned 0, the second one under the same key 1",
        "change: return what",
    )


def test_an_idempotent_tool_whose_second_execution_fails_is_named() -> None:
    def make(place: Path) -> ToolCase:
        @tool(idempotent=True)
        def create() -> str:
            (place / "made").mkdir()
            return "made"

        return ToolCase(create, effect=(place / "made").is_dir)

    has(
        objection(make, TWICE), "the second execution under one key fails: FileExistsError", "return what the first one"
    )
    has(
        objection(make, CRASH),
        "after a crash",
        "the second attempt fails: FileExistsError",
        "expect what the first attempt left",
    )


def _torn(place: Path) -> ToolCase:
    counter_file = place / "counter.txt"
    counter_file.write_text("0", encoding="utf-8")

    @tool
    async def add() -> str:
        number = int(counter_file.read_text(encoding="utf-8"))
        await asyncio.sleep(0)
        counter_file.write_text(str(number + 1), encoding="utf-8")
        return "added"

    return ToolCase(add, effect=lambda: counter_file.read_text(encoding="utf-8"))


def test_calls_that_lose_each_others_effect_are_named() -> None:
    text = objection(_torn, OVERLAP)
    has(
        text,
        "sequential=False (its calls may overlap)",
        "leave '2', two at the same time leave '1'",
        "declare sequential=True",
    )


# Crashes


def test_a_crash_between_effect_and_key_is_found_at_its_line() -> None:
    text = objection(counter(key_first=True), CRASH)
    has(
        text,
        "idempotent=True",
        "after a crash before `keys.add(context.idempotency_key)` (test_tool_conformance_broken.py:",
    )
    has(
        text,
        "the effect was all of it (1)",
        "attempt 2 was made, and now the effect is 2 instead of 1",
        "in one transaction",
    )


def test_an_idempotent_tool_that_two_workers_break_is_named() -> None:
    def make(_place: Path) -> ToolCase:
        rows: dict[str, int] = {}

        @tool(idempotent=True)
        async def add(context: ToolContext) -> str:
            number = rows.get(context.idempotency_key, 0)
            if not number:
                await asyncio.sleep(0)
                rows[context.idempotency_key] = rows.get(context.idempotency_key, 0) + 1
            return "added"

        return ToolCase(add, effect=lambda: list(rows.values()))

    text = objection(make, WORKERS)
    has(
        text,
        "one worker stood still at await 1 of 1, a second one made the call again",
        "[2] instead of [1]",
        "two workers may",
    )


def test_a_lock_that_a_dead_worker_keeps_is_named() -> None:
    def make(_place: Path) -> ToolCase:
        lock = asyncio.Lock()

        @tool(idempotent=True)
        async def add() -> str:
            await lock.acquire()
            await asyncio.sleep(0)
            lock.release()
            return "added"

        return ToolCase(add, patience_seconds=PATIENCE_SECONDS)

    text = objection(make, CRASH)
    has(text, "after a crash before `await asyncio.sleep(0)`", "the run did not come to rest", "`with` for locks")


class Bank:
    """Payments by key, and what a probe of them may say."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []

    def pay(self, key: str) -> str:
        self.rows.append((key, "12"))
        return "paid"

    def amounts(self) -> list[str]:
        return [amount for _, amount in self.rows]

    def always_done(self) -> str:
        return "done"

    def always_failed(self) -> str:
        return "failed"

    def always_unknown(self) -> str:
        return "unknown"

    def by_arguments(self) -> str:
        return "done" if self.rows else "failed"

    def by_key(self, context: ToolContext) -> str:
        return "done" if context.idempotency_key in dict(self.rows) else "failed"

    def pays_itself(self, context: ToolContext) -> str:
        if self.by_key(context) == "failed":
            self.pay(context.idempotency_key)
        return "done"

    def raises(self) -> str:
        raise OSError("the bank is closed")


def banked(probe: str) -> MakeCase:
    """Return a case of a payment with one of the bank's probes."""

    def make(_place: Path) -> ToolCase:
        bank = Bank()

        @tool(reconcile=getattr(bank, probe))
        def pay(context: ToolContext) -> str:
            return bank.pay(context.idempotency_key)

        return ToolCase(pay, effect=bank.amounts)

    return make


@pytest.mark.parametrize(
    ("probe", "truth", "danger"),
    [
        ("always_done", "had not happened", "nobody would ever do it"),
        ("always_failed", "had happened", "do it a second time"),
    ],
)
def test_a_probe_that_lies_is_named_with_what_would_follow(probe: str, truth: str, danger: str) -> None:
    has(
        objection(banked(probe), CRASH),
        "reconcile",
        f"the effect {truth}, and the probe says",
        danger,
        "idempotency_key",
    )
    has(objection(banked(probe), PROBE), "reconcile", "it says", "about a call that", "change: look for this very call")


def test_a_probe_that_goes_by_arguments_is_named() -> None:
    text = objection(banked("by_arguments"), PROBE)
    has(
        text, "because another call with the same arguments did: its effect would never happen", "not for its arguments"
    )


def test_a_probe_that_does_the_effect_is_named() -> None:
    has(
        objection(banked("pays_itself"), CRASH),
        "asking after a crash before the body changed the effect",
        "only look in",
    )
    has(objection(banked("pays_itself"), PROBE), "asking changed the effect", "only look in reconcile")


def test_a_probe_that_raises_is_named() -> None:
    has(objection(banked("raises"), PROBE), "the question failed", "the bank is closed", "answer 'unknown'")


async def test_a_probe_that_never_knows_is_honest_and_advised() -> None:
    assert (await conform(banked("always_unknown"))).is_kept
    has(
        await advised(banked("always_unknown"), "reconcile"),
        "cannot even tell that a call happened",
        "change: look for",
    )


async def test_a_probe_that_brings_another_result_is_advised() -> None:
    assert (await conform(banked("by_key"))).is_kept
    text = await advised(banked("by_key"), "reconcile")
    has(text, "the body returned 'paid', and the probe's 'done' brings None", "answer ('done', result)")
    has(
        text,
        "the probe said 'failed', then the worker went on and the effect happened after all",
        "void the idempotency key",
    )


def test_a_half_done_effect_that_the_probe_calls_done_is_named() -> None:
    def make(_place: Path) -> ToolCase:
        rows: list[str] = []

        @tool(reconcile=lambda: "done" if rows else "failed")
        def book() -> str:
            rows.append("debit")
            rows.append("credit")
            return "booked"

        return ToolCase(book, effect=lambda: len(rows))

    text = objection(make, CRASH)
    has(
        text,
        'a crash before `rows.append("credit")`',
        "leaves something else (1), and the probe says 'done'",
        "half done",
    )


def test_a_body_that_goes_on_in_the_background_after_it_was_left_is_named() -> None:
    def make(_place: Path) -> ToolCase:
        rows: list[str] = []
        looks = count()

        @tool
        def start() -> str:
            rows.append("begun")
            return "started"

        def look() -> int:
            # The first look is the one right after the crash; by the next one something has gone on.
            return len(rows) + (next(looks) > 0)

        return ToolCase(start, effect=look)

    text = objection(make, CRASH)
    has(text, "idempotent=False", "the effect went from", "let nothing of the tool go on in the background")


# Jobs


def test_a_job_that_its_handle_does_not_find_is_named() -> None:
    def make(_place: Path) -> ToolCase:
        def what_became_of(handle: str) -> PollResult:
            return PollResult(is_finished=True, error=f"no job {handle}")

        @tool(poll=what_became_of)
        def render() -> Accepted:
            return Accepted("7", poll=lambda _handle: "rendered")

        return ToolCase(render)

    has(objection(make, JOB), "poll", "asked by its handle alone", "no job 7", "where the job itself is kept")


async def test_a_job_that_only_this_process_knows_is_advised() -> None:
    @tool
    def render() -> Accepted:
        return Accepted("7", poll=lambda _handle: "rendered")

    has(await advised(lambda _: ToolCase(render), "poll"), "once the process that started it is gone", "declare poll=…")


def test_a_job_that_never_ends_is_told_so() -> None:
    @tool
    def render() -> Accepted:
        return Accepted("7", poll=lambda _handle: None)

    text = objection(lambda _: ToolCase(render, patience_seconds=0.05), JOB)
    has(text, "job 7 had no outcome within 0.05 s (not yet)", "more patience_seconds")
