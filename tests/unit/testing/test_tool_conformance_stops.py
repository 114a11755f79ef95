"""Tools that do not stop as they declare, and what could be better in tools that break nothing: the kit says what happened and what to change."""

import asyncio
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from checkrein import ToolContext, tool
from checkrein.testing import ToolCase, conform, tool_calls
from checkrein.testing.tool_case import MakeCase
from tests.unit.testing.objections import (
    CANCEL,
    LIMIT,
    PATIENCE_SECONDS,
    advised,
    has,
    objection,
)

# Being stopped


def _deaf(place: Path) -> ToolCase:
    del place
    told = asyncio.Event()

    @tool(timeout_seconds=3)
    async def work() -> str:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            await told.wait()
        return "worked"

    return ToolCase(work, patience_seconds=PATIENCE_SECONDS)


def test_a_cancellable_body_that_swallows_its_cancellation_is_named() -> None:
    text = objection(_deaf, CANCEL)
    has(
        text,
        "cancellable=True (it stops when it is told",
        "cancelled at await 1 of 1, the body went on",
        "let asyncio.CancelledError",
    )


def test_an_async_body_that_goes_on_after_its_limit_is_named() -> None:
    has(
        objection(_deaf, LIMIT),
        "at its limit of 3 s, at await 1 of 1, the body was told to stop and went on",
        "CancelledError",
    )


def _halves(place: Path) -> ToolCase:
    del place
    rows: list[str] = []

    @tool(timeout_seconds=3)
    async def book() -> str:
        rows.append("debit")
        await asyncio.sleep(0)
        rows.append("credit")
        return "booked"

    return ToolCase(book, effect=lambda: rows)


@pytest.mark.parametrize("test", [CANCEL, LIMIT])
def test_a_body_that_leaves_a_half_when_it_is_stopped_is_named(test: str) -> None:
    text = objection(_halves, test)
    has(
        text,
        "the body left ['debit'], which is neither nothing ([]) nor the whole (['debit', 'credit'])",
        "in one step",
    )


def _stopped_by(answer: str) -> MakeCase:
    """Return a case of a body that meets its cancellation with a false report."""

    def make(_place: Path) -> ToolCase:
        rows: list[str] = []

        @tool
        async def send() -> str:
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if answer == "returned":
                    return "cancelled"
                rows.append("mail")
                raise ValueError("cancelled") from None
            rows.append("mail")
            return "sent"

        return ToolCase(send, effect=lambda: len(rows))

    return make


def test_a_body_that_returns_as_if_done_when_cancelled_is_named() -> None:
    text = objection(_stopped_by("returned"), CANCEL)
    has(
        text,
        "the body returned 'cancelled' as if all were done, and the effect is nothing (0)",
        "raise when the effect did not",
    )


def test_a_body_that_raises_after_its_effect_when_cancelled_is_named() -> None:
    text = objection(_stopped_by("raised"), CANCEL)
    has(text, "the body raised (ValueError: cancelled) although its effect happened", "raise only when it did not")


def test_a_body_that_cannot_be_cancelled_and_does_not_finish_is_named() -> None:
    def make(_place: Path) -> ToolCase:
        rows: list[str] = []

        @tool(cancellable=False)
        async def send(context: ToolContext) -> str:
            await asyncio.sleep(0)
            rows.append("mail")
            context.signal.raise_if_cancelled()
            return "sent"

        return ToolCase(send, effect=lambda: len(rows))

    text = objection(make, CANCEL)
    has(
        text,
        "cancellable=False",
        "told by its signal and waited for",
        "all of it (1)",
        "look at context.signal and raise before",
    )


async def test_an_effect_before_the_last_await_is_advised_to_come_last() -> None:
    def make(_place: Path) -> ToolCase:
        rows: list[str] = []

        @tool
        async def send() -> str:
            rows.append("mail")
            await asyncio.sleep(0)
            return "sent"

        return ToolCase(send, effect=lambda: len(rows))

    text = await advised(make, "cancellable=True")
    has(text, "cancelled at await 1 of 1 the effect has happened already", "make the effect the last thing")


def _held_up(*, obeys: bool, idempotent: bool = True) -> MakeCase:
    """Return a case of a plain function whose service can be made not to answer; obeying, it gives up and leaves its effect half done."""

    def make(_place: Path) -> ToolCase:
        answers, rows = threading.Event(), list[str]()
        answers.set()

        @contextmanager
        def hold() -> Generator[None]:
            answers.clear()
            yield
            answers.set()

        @tool(idempotent=idempotent, timeout_seconds=3)
        def send(context: ToolContext) -> str:
            if obeys:
                rows.append("begun")
            while not answers.wait(0.005):
                if obeys:
                    context.signal.raise_if_cancelled()
            rows.append("sent")
            return "sent"

        return ToolCase(send, effect=lambda: rows, hold=hold, patience_seconds=PATIENCE_SECONDS)

    return make


def test_a_plain_body_that_goes_on_after_its_limit_is_named_with_what_it_did_later() -> None:
    text = objection(_held_up(obeys=False), LIMIT)
    has(text, "timeout_seconds=3", "with a service that does not answer, the body was told to stop and went on")
    has(text, "did its effect later (['sent']), when nobody expected it any more", "change: look at context.signal")


def test_a_second_attempt_after_the_limit_that_doubles_something_is_named() -> None:
    text = objection(_held_up(obeys=True), LIMIT)
    has(
        text,
        "idempotent=True",
        "at its limit the body left something else (['begun'])",
        "attempt 2 under the same key left",
    )


def test_a_body_that_leaves_a_half_at_its_limit_is_named() -> None:
    has(
        objection(_held_up(obeys=True, idempotent=False), LIMIT),
        "timeout_seconds=3",
        "the body left ['begun'], which is neither",
    )


async def test_a_hold_that_holds_nothing_is_told_so() -> None:
    @contextmanager
    def hold() -> Generator[None]:
        yield

    @tool(timeout_seconds=3)
    def send() -> str:
        return "sent"

    report = await conform(lambda _: ToolCase(send, hold=hold))
    (item,) = [item for item in report.findings if item.promise == "timeout_seconds=3"]
    assert (item.verdict, item.seen) == ("not shown", "the body ended although it was held")


# What could be better


async def test_a_body_that_keeps_the_event_loop_to_itself_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_calls, "BLOCKED_SECONDS", 0.005)

    @tool
    async def compute() -> None:
        time.sleep(0.01)  # noqa: ASYNC251  that it blocks is the point

    has(
        await advised(lambda _: ToolCase(compute), "event loop"),
        "kept the event loop to itself",
        "make it a plain function",
    )


async def test_a_file_that_is_not_named_and_one_in_the_current_directory_are_advised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    numbers = count()

    @tool(idempotent=True)
    def litter(context: ToolContext) -> None:
        (context.folder() / "notes.txt").write_text("x", encoding="utf-8")
        Path(f"litter-{next(numbers)}.txt").touch()

    has(
        await advised(lambda _: ToolCase(litter), "artifacts"),
        "wrote notes.txt into the run's folder and did not name it",
    )
    has(
        await advised(lambda _: ToolCase(litter), "workspace"),
        "came or went in the current directory",
        "context.folder()",
    )


async def test_a_tool_that_happens_to_be_idempotent_is_advised_to_say_so() -> None:
    has(
        await advised(_keeps_one, "idempotent=False"),
        "twice under one key has the effect of once",
        "declare idempotent=True",
    )


def _keeps_one(_place: Path) -> ToolCase:
    rows: dict[str, str] = {}

    @tool
    def keep(context: ToolContext) -> str:
        rows[context.idempotency_key] = "kept"
        return "kept"

    return ToolCase(keep, effect=lambda: list(rows.values()))


async def test_a_tool_without_description_is_advised() -> None:
    @tool
    def keep(text: str) -> str:
        return text

    text = await advised(lambda _: ToolCase(keep, {"text": "a"}), "arguments")
    has(text, "the tool has no description", "arguments without a description: text", "describe them under Args:")
