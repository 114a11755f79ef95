"""Checks in code: the answers a function may give, and what becomes of those it may not."""

import asyncio
import sys
import threading
from pathlib import Path

import pytest

from checkrein.errors import TaskError, VerifierFailed
from checkrein.ports.verifier import CheckContext, Measurement, Verifier
from checkrein.verify import FunctionVerifier, check, make_function_check
from checkrein.verify.functions import CheckFunction
from tests.unit.verify.measuring import context, write


@check(path="report.md", title="the report says hello")
def says_hello(context: CheckContext) -> bool:
    return "hello" in (context.folder / "report.md").read_text(encoding="utf-8")


async def objects(_context: CheckContext) -> str:
    """The year is right.

    More words.
    """
    await asyncio.to_thread(lambda: None)
    return "the year is 1999"


def agrees(_context: CheckContext) -> str:
    return ""


def measures(_context: CheckContext) -> Measurement:
    return Measurement(passed=False, text="5 of 7", code="too_few")


async def test_a_bool_decides(tmp_path: Path) -> None:
    verifier: Verifier = says_hello
    write(tmp_path, "report.md", "hello")
    assert (await verifier.measure(context(tmp_path))).passed
    write(tmp_path, "report.md", "good-bye")
    measured = await verifier.measure(context(tmp_path))
    assert (measured.passed, measured.text) == (False, "not so: the report says hello")


async def test_a_text_is_an_objection_and_an_empty_one_is_none(tmp_path: Path) -> None:
    objected = await FunctionVerifier(function=objects).measure(context(tmp_path))
    assert (objected.passed, objected.code, objected.text) == (False, "check_failed", "the year is 1999")
    assert (await FunctionVerifier(function=agrees).measure(context(tmp_path))).passed


async def test_a_measurement_is_taken_as_it_is(tmp_path: Path) -> None:
    assert (await FunctionVerifier(function=measures).measure(context(tmp_path))).code == "too_few"


async def test_a_function_that_exits_could_not_run_and_the_process_goes_on(tmp_path: Path) -> None:
    def plain(_context: CheckContext) -> bool:
        sys.exit(0)

    async def asynchronous(_context: CheckContext) -> bool:
        sys.exit(0)

    for function in (plain, asynchronous):
        with pytest.raises(VerifierFailed, match=r"SystemExit|sys\.exit"):
            await FunctionVerifier(function=function).measure(context(tmp_path))


async def test_a_missing_artifact_is_found_before_the_function_is_asked(tmp_path: Path) -> None:
    assert (await says_hello.measure(context(tmp_path))).code == "missing"


def _raises(_context: CheckContext) -> bool:
    raise KeyError("total")


async def _raises_later(_context: CheckContext) -> bool:
    await asyncio.to_thread(lambda: None)
    raise KeyError("total")


def _forgets(_context: CheckContext) -> bool:
    return None  # pyright: ignore[reportReturnType]  what a forgotten return is


@pytest.mark.parametrize(
    ("function", "words"),
    [(_raises, "KeyError: 'total'"), (_raises_later, "KeyError: 'total'"), (_forgets, "answered with NoneType")],
)
async def test_a_function_that_fails_to_answer_says_nothing_about_the_artifact(
    function: CheckFunction, words: str, tmp_path: Path
) -> None:
    with pytest.raises(VerifierFailed, match=words):
        await FunctionVerifier(function=function).measure(context(tmp_path))


async def test_a_function_that_never_ends_is_left_behind(tmp_path: Path) -> None:
    release = threading.Event()

    def hangs(_context: CheckContext) -> bool:
        return release.wait(60)

    async def waits(_context: CheckContext) -> bool:
        return await asyncio.get_running_loop().create_future()

    try:
        for function in (hangs, waits):
            with pytest.raises(VerifierFailed, match=r"took longer than 0\.05 s"):
                await FunctionVerifier(function=function).measure(context(tmp_path, seconds=0.05))
    finally:
        release.set()


async def test_an_object_with_an_async_call_is_awaited(tmp_path: Path) -> None:
    class Asks:
        async def __call__(self, _context: CheckContext, /) -> bool:
            await asyncio.to_thread(lambda: None)
            return True

    assert (await FunctionVerifier(function=Asks(), title="asked").measure(context(tmp_path))).passed


def test_the_title_is_given_or_made_of_docstring_or_name() -> None:
    assert says_hello.title == "the report says hello"
    assert FunctionVerifier(function=objects).title == "The year is right"
    assert FunctionVerifier(function=agrees).title == "agrees"


def test_a_task_file_names_a_decorated_or_a_plain_function_and_its_options_win() -> None:
    made = make_function_check("checks.py:says_hello", says_hello, {"path": "other.md"}, source="task.toml")
    assert (made.kind, made.subject, made.title) == ("checks.py:says_hello", "other.md", "the report says hello")
    plain = make_function_check("checks.py:agrees", agrees, {"title": "all agree"}, source="task.toml")
    assert (plain.kind, plain.subject, plain.title) == ("checks.py:agrees", "", "all agree")


@pytest.mark.parametrize(
    ("function", "options", "key"),
    [
        (agrees, {"min_bytes": 3}, "min_bytes"),
        (agrees, {"path": 3}, "path"),
        (agrees, {"path": "../x"}, "path"),
        (says_hello, {"path": "/x"}, "path"),
        ("agrees", {}, "function"),
    ],
)
def test_what_is_no_check_in_code_is_refused(function: object, options: dict[str, object], key: str) -> None:
    with pytest.raises(TaskError) as caught:
        make_function_check("checks.py:x", function, options, source="task.toml")
    assert (caught.value.source, caught.value.key) == ("task.toml", key)
