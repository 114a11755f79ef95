"""The dispatcher: what can be called, what one attempt comes to, and who shares it."""

import asyncio
import re
import sys
from collections.abc import Callable
from typing import Any, cast

import pytest
from msgspec.structs import replace

from checkrein.clock import SystemClock
from checkrein.errors import FatalToolError, InvalidArguments, ToolError, TransientToolError
from checkrein.messages import MAX_IMAGE_CHARACTERS, Image, Text, ToolCall
from checkrein.ports.tool import (
    Accepted,
    PollResult,
    Reconciliation,
    ToolContext,
    ToolOutput,
    ToolTraits,
)
from checkrein.testing.manual_clock import ManualClock
from checkrein.tools.dispatch import Dispatcher, DispatchOptions
from checkrein.tools.function import tool
from checkrein.tools.outcomes import AcceptedJob, Done, FailedCall, OutcomeUnknown, Pending
from checkrein.values import JsonObject
from tests.unit.tools.calls import context, dispatcher, outcome_of, prepared, refused


@tool
async def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


class Handmade:
    """A tool that is no function: any object with the port's methods will do."""

    name = "handmade"
    description = ""
    traits = ToolTraits()

    def __init__(self, schema: dict[str, object], returned: object = None) -> None:
        self.schema = JsonObject(schema)
        self.returned = returned

    def check(self, arguments: JsonObject) -> None:
        if arguments.get("bad"):
            raise InvalidArguments(self.name, (("/bad", "expected nothing bad"),))

    async def call(self, arguments: JsonObject, context: ToolContext) -> ToolOutput | Accepted:
        del arguments, context
        return cast("ToolOutput", self.returned)

    async def probe(self, arguments: JsonObject, context: ToolContext) -> Reconciliation:
        raise LookupError(f"{arguments} {context}")

    async def poll(self, handle: str, arguments: JsonObject, context: ToolContext) -> PollResult:
        raise LookupError(f"{handle} {arguments} {context}")


def done(value: object) -> Done:
    assert isinstance(value, Done), value
    return value


def failed(value: object) -> FailedCall:
    assert isinstance(value, FailedCall), value
    return value


ISSUE = InvalidArguments("f", (("/x", "expected y"),))


def returning(value: object) -> Callable[[], object]:
    return lambda: value


def test_an_unknown_tool_is_refused_with_the_names_there_are() -> None:
    error = refused(dispatcher(add), "sub", {})
    assert (error.kind, error.code, error.attempts) == ("not_found", -32601, 0)
    assert "there are: add" in error.message


def test_invalid_arguments_are_refused_before_any_attempt() -> None:
    error = refused(dispatcher(add), "add", {"a": "1", "c": 2})
    assert (error.kind, error.code, error.attempts) == ("schema", -32602, 0)
    assert dict(error.issues) == {"/a": 'expected an integer, got the text "1"', "/c": "is not known here"}
    assert "/a: expected an integer" in error.message


def test_what_a_schema_cannot_say_the_tool_refuses_before_any_attempt() -> None:
    assert refused(dispatcher(Handmade({})), "handmade", {"bad": 1}).issues == (("/bad", "expected nothing bad"),)


def test_arguments_that_are_no_object_are_echoed_shortly_with_the_schema() -> None:
    error = refused(dispatcher(add), "add", {}, malformed='{"a":' + "x" * 10_000)
    assert error.kind == "schema"
    assert error.message.startswith('the arguments of add are no JSON object: {"a":xxx')
    assert add.schema.encoded.decode() in error.message
    assert len(error.message) < 3_000


@pytest.mark.parametrize("schema", [{"type": "nothing"}, {"$ref": "http://127.0.0.1:1/schema"}])
def test_a_tool_with_an_invalid_schema_cannot_be_called(schema: dict[str, object]) -> None:
    error = refused(dispatcher(Handmade(schema)), "handmade", {})
    assert (error.kind, error.code) == ("internal", -32603)
    assert "the schema is invalid" in error.message


async def test_a_result_is_recorded_as_json() -> None:
    made = done(await outcome_of(add, {"a": 1}))
    assert (made.result.value, made.empty, made.truncated) == (2, False, False)


@pytest.mark.parametrize("value", [None, "", [], {}, ()])
async def test_a_result_without_data_is_empty_and_no_error(value: object) -> None:
    assert done(await outcome_of(tool(name="f")(lambda: value))).empty is True


@pytest.mark.parametrize(
    "value", [0, False, " ", [None], ToolOutput(None, ("a.txt",)), ToolOutput(content=(Text("x"),))]
)
async def test_a_result_with_data_is_not_empty(value: object) -> None:
    assert done(await outcome_of(tool(name="f")(lambda: value))).empty is False


@pytest.mark.parametrize("value", [object(), {1: 2}, {1, 2}, b"x", float("nan"), 2**60, lambda: 1])
async def test_a_result_without_json_form_is_an_error_that_says_so(value: object) -> None:
    error = failed(await outcome_of(tool(name="f")(lambda: value)))
    assert error.kind == "internal"
    assert "cannot be recorded as JSON" in error.message


async def test_a_result_that_contains_itself_is_an_error() -> None:
    knot: list[object] = []
    knot.extend([knot, knot])
    assert "nested too deeply" in failed(await outcome_of(tool(name="f")(lambda: knot))).message


async def test_lone_surrogates_are_replaced_in_results_errors_and_progress() -> None:
    heard: list[str] = []

    @tool
    async def speak(ctx: ToolContext) -> dict[str, str]:
        ctx.progress("\ud800")
        return {"\ud83d\ude00": "a\udfff"}

    @tool
    async def fail() -> None:
        msg = "bad \udcff"
        raise ToolError(msg)

    assert done(await outcome_of(speak, given=context(progress=heard.append))).result.value == {"😀": "a\ufffd"}
    assert heard == ["\ufffd"]
    assert failed(await outcome_of(fail)).message == "bad \ufffd"


async def test_a_huge_result_is_cut_on_a_character_border_and_marked() -> None:
    limits = DispatchOptions(max_output_bytes=1_000)
    for value in ("é" * 10_000_000, "\n" * 100_000, [["x", "é"]] * 10_000, "\x00" * 5_000):
        made = dispatcher(tool(name="f", inline=True)(returning(value)), options=limits)
        outcome = done(await made.execute(prepared(made, "f"), context()))
        text = outcome.result.value
        assert isinstance(text, str)
        assert outcome.truncated
        assert len(outcome.result.encoded) <= 1_000
        assert re.search(r"… \(cut: [\d,]+ of [\d,]+ characters are shown\)$", text)


async def test_a_result_of_exactly_the_limit_is_whole() -> None:
    made = dispatcher(tool(name="f")(lambda: "x" * 998), options=DispatchOptions(max_output_bytes=1_000))
    assert done(await made.execute(prepared(made, "f"), context())).truncated is False


async def test_content_is_cleaned_and_bounded_as_a_whole() -> None:
    output = ToolOutput(1, content=(Text("a\ud800"), Text("é" * 600), Text("never shown")))
    made = dispatcher(tool(name="f")(lambda: output), options=DispatchOptions(max_output_bytes=1_000))
    outcome = done(await made.execute(prepared(made, "f"), context()))
    first, second = outcome.content
    assert isinstance(first, Text)
    assert isinstance(second, Text)
    assert (first.text, outcome.truncated) == ("a\ufffd", True)
    assert second.text.startswith("éé")
    assert second.text.endswith("of 600 characters are shown)")


async def test_content_is_text_and_pictures() -> None:
    picture = Image.of(b"\x89PNG", "image/png")
    kept = done(await outcome_of(tool(name="f")(lambda: ToolOutput(1, content=(Text("see"), picture)))))
    assert kept.content == (Text("see"), picture)
    output = ToolOutput(content=(ToolCall(id="1", name="x", arguments={}),))
    assert "Text and Image blocks" in failed(await outcome_of(tool(name="f")(lambda: output))).message
    broken = ToolOutput(content=(Image("image/png", "no base64"),))
    assert "base64" in failed(await outcome_of(tool(name="f")(lambda: broken))).message


async def test_a_picture_that_does_not_fit_is_named_instead() -> None:
    large = Image("image/png", "A" * (MAX_IMAGE_CHARACTERS // 2 + 4))
    kept = done(await outcome_of(tool(name="f")(lambda: ToolOutput(1, content=(large, large)))))
    assert kept.content == (large, Text("(image/png left out: too large)"))
    assert kept.truncated is True


async def test_artifacts_are_normal_relative_paths_each_once() -> None:
    output = ToolOutput(1, ("a.txt", "./b//c.txt", "a.txt"))
    assert done(await outcome_of(tool(name="f")(lambda: output))).artifacts == ("a.txt", "b/c.txt")


@pytest.mark.parametrize("path", ["", "/a", "../a", "a/../../b", "a/..", ".", "a\0b", "a\nb", "a\udcff", "a/", 7, b"a"])
async def test_an_artifact_outside_the_folder_is_refused(path: Any) -> None:
    error = failed(await outcome_of(tool(name="f")(lambda: ToolOutput(1, (path,)))))
    assert "artifact" in error.message


async def test_artifacts_given_as_one_text_are_refused() -> None:
    output = ToolOutput(1, cast("Any", "a.txt"))
    assert "tuple of paths" in failed(await outcome_of(tool(name="f")(lambda: output))).message


async def test_a_tool_that_gives_no_output_has_failed() -> None:
    assert "gave a NoneType" in failed(await outcome_of(Handmade({}))).message


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ToolError("no such mail"), FailedCall("internal", "no such mail")),
        (TransientToolError("try later"), FailedCall("transient", "try later", transient=True)),
        (ConnectionResetError("gone"), FailedCall("transient", "ConnectionResetError: gone", transient=True)),
        (TimeoutError(), FailedCall("transient", "TimeoutError", transient=True)),
        (FatalToolError("the house burns"), FailedCall("internal", "the house burns", fatal=True)),
        (ISSUE, FailedCall("schema", "invalid arguments for f: /x: expected y", issues=ISSUE.issues)),
        (ValueError("odd"), FailedCall("internal", "ValueError: odd")),
        (KeyError("k"), FailedCall("internal", "KeyError: 'k'")),
        (StopIteration(3), FailedCall("internal", "RuntimeError: the function raised StopIteration")),
        (GeneratorExit(), FailedCall("internal", "GeneratorExit")),
        (
            asyncio.CancelledError("x"),
            FailedCall("internal", "it was cancelled, but not by us: the body cancelled itself"),
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_what_a_body_raises_becomes_an_error_of_its_kind(error: BaseException, expected: FailedCall) -> None:
    @tool
    def raising() -> None:
        raise error

    assert await outcome_of(raising, given=context(attempt=3)) == replace(expected, attempts=3)


async def test_an_error_whose_text_cannot_be_made_is_an_error_all_the_same() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    @tool
    def raising() -> None:
        raise Mute

    assert failed(await outcome_of(raising)).message == "Mute"


async def test_a_long_error_is_shortened() -> None:
    @tool
    def raising() -> None:
        raise ToolError("x" * 1_000_000)

    assert len(failed(await outcome_of(raising)).message) < 4_100


@pytest.mark.parametrize("is_async", [True, False])
def test_an_interrupt_raised_in_a_tool_passes_through(*, is_async: bool) -> None:
    async def asynchronous() -> None:
        raise KeyboardInterrupt

    def plain() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        await outcome_of(tool(name="f")(asynchronous if is_async else plain))

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())


@pytest.mark.parametrize("is_async", [True, False])
def test_a_tool_that_exits_has_failed_and_the_process_goes_on(*, is_async: bool) -> None:
    async def asynchronous() -> None:
        sys.exit(0)

    def plain() -> None:
        sys.exit(0)

    outcome = asyncio.run(outcome_of(tool(name="f")(asynchronous if is_async else plain)))
    assert "sys.exit(0)" in failed(outcome).message


async def test_one_idempotency_key_at_one_time_is_one_execution() -> None:
    release = asyncio.Event()
    count = 0

    @tool
    async def work(n: int) -> int:
        nonlocal count
        count += 1
        await release.wait()
        return n

    clock = ManualClock()
    made = dispatcher(work, clock=clock)
    call = prepared(made, "work", {"n": 1})
    waiting = [clock.spawn(made.execute(call, context(key="k")), name="caller") for _ in range(5)]
    await clock.advance(0)
    other = failed(await made.execute(prepared(made, "work", {"n": 2}), context(key="k")))
    release.set()
    outcomes = await asyncio.gather(*waiting)
    assert [done(outcome).result.value for outcome in outcomes] == [1] * 5
    assert (count, other.kind) == (1, "internal")
    assert done(await made.execute(prepared(made, "work", {"n": 2}), context(key="k"))).result.value == 2


async def test_one_waiter_that_leaves_does_not_end_a_shared_execution() -> None:
    release = asyncio.Event()

    @tool
    async def work() -> str:
        await release.wait()
        return "done"

    clock = ManualClock()
    made = dispatcher(work, clock=clock)
    call = prepared(made, "work")
    first, second = (clock.spawn(made.execute(call, context(key="k")), name="caller") for _ in range(2))
    await clock.advance(0)
    first.cancel()
    await clock.advance(0)
    release.set()
    assert done(await second).result.value == "done"
    assert first.cancelled()


async def test_at_most_limit_bodies_run_at_once() -> None:
    clock = ManualClock()
    running, most = 0, 0

    @tool
    async def work(n: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await clock.sleep(0)
        running -= 1
        return n

    made = dispatcher(work, clock=clock, options=DispatchOptions(limit=3))
    calls = [made.execute(prepared(made, "work", {"n": n}), context()) for n in range(20)]
    assert [done(outcome).result.value for outcome in await asyncio.gather(*calls)] == list(range(20))
    assert most == 3


async def test_an_accepted_job_is_a_handle_and_no_result() -> None:
    outcome = await outcome_of(tool(name="f")(lambda: Accepted("job-7", interval_seconds=2)))
    assert outcome == AcceptedJob("job-7", None, 2)


@pytest.mark.parametrize("handle", ["", "x" * 5_000, 7, None])
async def test_a_handle_that_cannot_be_stored_is_an_error(handle: Any) -> None:
    assert "handle" in failed(await outcome_of(tool(name="f")(lambda: Accepted(handle)))).message


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 1e6])
async def test_an_interval_that_nobody_can_wait_is_an_error(seconds: float) -> None:
    job = Accepted("j", interval_seconds=seconds)
    assert "interval_seconds" in failed(await outcome_of(tool(name="f")(lambda: job))).message


ANSWERS = [
    (None, Pending()),
    (PollResult(is_finished=False), Pending()),
    (PollResult(is_finished=True, error="disk full"), FailedCall("internal", "disk full")),
    (ToolError("no line"), Pending("the question failed: no line")),
]


@pytest.mark.parametrize(("answer", "expected"), ANSWERS, ids=str)
@pytest.mark.parametrize("where", ["tool", "job"])
async def test_a_poll_says_pending_result_or_failure(answer: object, expected: object, where: str) -> None:
    def ask(handle: str) -> object:
        assert handle == "job-7"
        if isinstance(answer, Exception):
            raise answer
        return answer

    start = tool(name="f", poll=ask)(lambda: Accepted("job-7"))
    made = dispatcher(start)
    job = AcceptedJob("job-7", ask if where == "job" else None)
    assert await made.poll(prepared(made, "f"), job, context()) == expected


async def test_a_finished_job_is_done_with_its_output() -> None:
    output = ToolOutput({"rows": 3}, ("out.csv",))
    for answer in (output, PollResult(is_finished=True, output=output)):
        made = dispatcher(tool(name="f", poll=returning(answer))(lambda: Accepted("j")))
        outcome = done(await made.poll(prepared(made, "f"), AcceptedJob("j"), context()))
        assert (outcome.result.value, outcome.artifacts) == ({"rows": 3}, ("out.csv",))


async def test_poll_gets_the_handle_the_arguments_it_asks_for_and_the_context() -> None:
    async def ask(handle: str, to: str, ctx: ToolContext) -> str:
        await SystemClock().sleep(0)
        return f"{handle} {to} {ctx.call_id}"

    @tool(poll=ask)
    async def send(to: str, text: str) -> Accepted:
        del to, text
        return Accepted("mail-1")

    made = dispatcher(send)
    call = prepared(made, "send", {"to": "ann", "text": "hi"})
    assert done(await made.poll(call, AcceptedJob("mail-1"), context())).result.value == "mail-1 ann 1.0"


async def test_a_job_that_nobody_can_ask_about_is_a_lookup_error() -> None:
    made = dispatcher(add)
    with pytest.raises(LookupError, match="has no poll function"):
        await made.poll(prepared(made, "add", {"a": 1}), AcceptedJob("j"), context())


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("done", Done(empty=True)),
        (("done", None), Done(empty=True)),
        (Reconciliation("done", ToolOutput(None)), Done(empty=True)),
        ("failed", FailedCall("internal", "the call did not happen")),
        (("failed", None), FailedCall("internal", "the call did not happen")),
        (("failed", "not in the outbox"), FailedCall("internal", "not in the outbox")),
        (Reconciliation("failed", message="not in the outbox"), FailedCall("internal", "not in the outbox")),
        ("unknown", OutcomeUnknown("probe", "the tool's reconcile function cannot tell")),
        (("unknown", "the outbox is away"), OutcomeUnknown("probe", "the outbox is away")),
        (ToolError("outbox closed"), OutcomeUnknown("probe", "the question failed: outbox closed")),
    ],
    ids=str,
)
async def test_a_probe_says_done_failed_or_unknown(answer: object, expected: object) -> None:
    def ask(to: str, ctx: ToolContext) -> object:
        assert (to, ctx.attempt) == ("ann", 1)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @tool(reconcile=ask)
    def send(to: str) -> None:
        pytest.fail(f"the body must not run, but mailed {to}")

    made = dispatcher(send)
    assert await made.probe(prepared(made, "send", {"to": "ann"}), context()) == expected


@pytest.mark.parametrize("answer", ["maybe", 7, None, ("done",), ("never", 1)])
async def test_a_probe_that_answers_something_else_cannot_tell(answer: object) -> None:
    made = dispatcher(tool(name="f", reconcile=lambda: answer)(lambda: None))
    outcome = await made.probe(prepared(made, "f"), context())
    assert isinstance(outcome, OutcomeUnknown)
    assert "it answers 'done', 'failed' or 'unknown'" in outcome.reason


async def test_a_tool_without_a_probe_cannot_tell() -> None:
    made = dispatcher(add)
    outcome = await made.probe(prepared(made, "add", {"a": 1}), context())
    assert isinstance(outcome, OutcomeUnknown)
    assert "has no reconcile function" in outcome.reason


def test_tools_registered_later_are_not_seen() -> None:
    taken = {"add": add}
    made = Dispatcher(dict(taken), clock=SystemClock())
    taken["later"] = add
    assert refused(made, "later", {}).kind == "not_found"
