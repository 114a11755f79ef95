"""Tools that keep what they declare pass, whatever they declare: one of each kind, and the shipped ones."""

import asyncio
import sqlite3
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest
from typing_extensions import override

from checkrein import Accepted, ToolContext, tool
from checkrein.errors import InvalidArguments, ToolError
from checkrein.ports.tool import PollResult, Reconciliation, ToolOutput, ToolTraits
from checkrein.testing import ToolCase, ToolConformance, ToolReport, conform
from checkrein.testing.tool_conformance import SCENARIOS
from checkrein.testing.tool_report import MEANINGS
from checkrein.toolkit.files import read_file, write_file
from checkrein.toolkit.sql import sql_query
from checkrein.values import JsonObject


class Ledger:
    """Payments in a database, by the key of the call that made them."""

    def __init__(self, place: Path) -> None:
        self.path = place / "ledger.db"
        with closing(self.connect()) as database:
            database.execute("create table payments (key text primary key, payee text, cents integer)")

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, isolation_level=None)

    def pay(self, key: str, payee: str, cents: int) -> None:
        with closing(self.connect()) as database:
            database.execute("insert or ignore into payments values (?, ?, ?)", (key, payee, cents))

    def has(self, key: str) -> bool:
        with closing(self.connect()) as database:
            return database.execute("select 1 from payments where key = ?", (key,)).fetchone() is not None

    def payments(self) -> list[tuple[str, int]]:
        with closing(self.connect()) as database:
            return database.execute("select payee, cents from payments order by payee, cents").fetchall()


class TestWriteFile(ToolConformance):
    @override
    def make(self, place: Path) -> ToolCase:
        return ToolCase(write_file, {"path": "charts/sales.csv", "content": "year,total\n"})


class TestWriteFileOverAnother(ToolConformance):
    @override
    def make(self, place: Path) -> ToolCase:
        return ToolCase(write_file, {"path": "a.txt", "content": "new"}, files={"a.txt": "old", "b/c.bin": b"\0"})


class TestReadFile(ToolConformance):
    @override
    def make(self, place: Path) -> ToolCase:
        (place / "notes.txt").write_text("an input", encoding="utf-8")
        return ToolCase(read_file, {"path": "inputs/notes"}, inputs={"notes": place / "notes.txt"})


class TestSqlQuery(ToolConformance):
    @override
    def make(self, place: Path) -> ToolCase:
        (place / "sales.csv").write_text("year,total\n2024,3\n2025,4\n", encoding="utf-8")
        query = {"query": "select sum(total) from sales where year > ?", "parameters": [2023]}
        return ToolCase(sql_query, query, inputs={"sales": place / "sales.csv"})


class TestIdempotentByItsKey(ToolConformance):
    @override
    def make(self, place: Path) -> ToolCase:
        ledger = Ledger(place)

        @tool(idempotent=True, timeout_seconds=1)
        def pay(payee: str, cents: int, context: ToolContext) -> dict[str, int]:
            ledger.pay(context.idempotency_key, payee, cents)
            return {payee: cents}

        return ToolCase(pay, {"payee": "Ann", "cents": 1200}, effect=ledger.payments)


class TestWithAProbe(ToolConformance):
    @override
    def make(self, place: Path) -> ToolCase:
        ledger = Ledger(place)

        def was_paid(context: ToolContext) -> tuple[str, str | None]:
            return ("done", "paid") if ledger.has(context.idempotency_key) else ("failed", None)

        @tool(reconcile=was_paid, timeout_seconds=30)
        async def pay(payee: str, cents: int, context: ToolContext) -> str:
            """Pay somebody.

            Args:
                payee: who gets it.
                cents: how much.
                context: the call.
            """
            await asyncio.sleep(0)
            ledger.pay(context.idempotency_key, payee, cents)
            return "paid"

        async def look() -> list[tuple[str, int]]:
            await asyncio.sleep(0)
            return ledger.payments()

        return ToolCase(pay, {"payee": "Ann", "cents": 1200}, effect=look)


class TestWithALedgerBesideTheFoldersOfRuns(ToolConformance):
    """Its probe voids what was not booked, so that a worker which comes back too late cannot do what was said to have failed."""

    @override
    def make(self, place: Path) -> ToolCase:
        def marked(context: ToolContext) -> list[str]:
            return [path.name for path in context.folder().parent.glob(f"{_safe(context)}.*")]

        def find_or_void(context: ToolContext) -> tuple[str, str | None]:
            if f"{_safe(context)}.paid" in marked(context):
                return "done", "paid"
            (context.folder().parent / f"{_safe(context)}.void").touch()
            return "failed", None

        @tool(reconcile=find_or_void, timeout_seconds=9)
        def pay(context: ToolContext) -> str:
            if f"{_safe(context)}.void" in marked(context):
                raise ToolError("the order was voided")
            (context.folder().parent / f"{_safe(context)}.paid").touch()
            return "paid"

        return ToolCase(pay, effect=lambda folder: len(list(folder.parent.glob("*.paid"))))


def _safe(context: ToolContext) -> str:
    return context.idempotency_key.replace("/", "-")


class TestWithTransactionsByHand(ToolConformance):
    """A transaction that nobody ends when the body is left for dead: it is rolled back, as the end of a process would do."""

    @override
    def make(self, place: Path) -> ToolCase:
        ledger = Ledger(place)

        @tool(idempotent=True)
        async def pay(payee: str, cents: int, context: ToolContext) -> str:
            await asyncio.sleep(0)
            database = ledger.connect()
            database.execute("begin immediate")
            database.execute("insert or ignore into payments values (?, ?, ?)", (context.idempotency_key, payee, cents))
            database.execute("commit")
            database.close()
            return "paid"

        return ToolCase(pay, {"payee": "Ann", "cents": 1200}, effect=ledger.payments)


class TestWithTransactionsByHandInAThread(ToolConformance):
    @override
    def make(self, place: Path) -> ToolCase:
        ledger = Ledger(place)

        @tool(idempotent=True)
        def pay(payee: str, cents: int, context: ToolContext) -> str:
            database = ledger.connect()
            database.execute("begin immediate")
            database.execute("insert or ignore into payments values (?, ?, ?)", (context.idempotency_key, payee, cents))
            database.execute("commit")
            database.close()
            return "paid"

        return ToolCase(pay, {"payee": "Ann", "cents": 1200}, effect=ledger.payments)


class TestThatDeclaresNothing(ToolConformance):
    @override
    def make(self, place: Path) -> ToolCase:
        sent: list[str] = []

        @tool
        def send(to: str) -> int:
            sent.append(to)
            return len(sent)

        return ToolCase(send, {"to": "Ann"}, effect=lambda: sent)


class TestOnTheEventLoop(ToolConformance):
    @override
    def make(self, place: Path) -> ToolCase:
        sent: list[str] = []

        @tool(inline=True)
        def send(to: str) -> None:
            sent.append(to)

        return ToolCase(send, {"to": "Ann"}, effect=lambda: len(sent))


class TestThatUndoesWhenCancelled(ToolConformance):
    @override
    def make(self, place: Path) -> ToolCase:
        rows: list[str] = []

        @tool(cancellable=True, timeout_seconds=2)
        async def add_both() -> str:
            rows.append("first")
            try:
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                rows.remove("first")
                raise
            rows.append("second")
            return "added"

        return ToolCase(add_both, effect=lambda: sorted(rows))


class TestThatFinishesWhenCancelled(ToolConformance):
    @override
    def make(self, place: Path) -> ToolCase:
        rows: list[str] = []

        @tool(cancellable=False, timeout_seconds=2)
        async def add_both() -> str:
            rows.append("first")
            await asyncio.sleep(0)
            rows.append("second")
            return "added"

        return ToolCase(add_both, effect=lambda: len(rows))


class TestThatLooksAtItsSignal(ToolConformance):
    @override
    def make(self, place: Path) -> ToolCase:
        answers, rows = threading.Event(), dict[str, str]()
        answers.set()

        @tool(idempotent=True, timeout_seconds=60)
        def send(to: str, context: ToolContext) -> str:
            while not answers.wait(0.005):
                context.signal.raise_if_cancelled()
            rows[context.idempotency_key] = to
            return "sent"

        return ToolCase(send, {"to": "Ann"}, effect=lambda: sorted(rows.values()), hold=_cleared(answers))


class TestAsyncWithAServiceThatMayNotAnswer(ToolConformance):
    @override
    def make(self, place: Path) -> ToolCase:
        answers, rows = asyncio.Event(), list[str]()
        answers.set()

        @tool(timeout_seconds=60)
        async def send(to: str) -> str:
            await asyncio.sleep(0)
            await answers.wait()
            rows.append(to)
            return "sent"

        return ToolCase(send, {"to": "Ann"}, effect=lambda: len(rows), hold=_cleared(answers))


class TestSequential(ToolConformance):
    @override
    def make(self, place: Path) -> ToolCase:
        counter = place / "counter.txt"
        counter.write_text("0", encoding="utf-8")

        @tool(sequential=True)
        async def count() -> int:
            number = int(counter.read_text(encoding="utf-8")) + 1
            await asyncio.sleep(0)
            counter.write_text(str(number), encoding="utf-8")
            return number

        return ToolCase(count, effect=lambda: counter.read_text(encoding="utf-8"))


class TestThatStartsAJob(ToolConformance):
    @override
    def make(self, place: Path) -> ToolCase:
        jobs: dict[str, str] = {}
        asked: list[str] = []

        def what_became_of(handle: str) -> PollResult | str | None:
            asked.append(handle)
            return jobs[handle] if len(asked) > 1 else None

        @tool(poll=what_became_of)
        async def render(document: str, context: ToolContext) -> Accepted:
            jobs[context.idempotency_key] = f"{document}.pdf"
            return Accepted(context.idempotency_key, interval_seconds=60)

        return ToolCase(render, {"document": "report"}, effect=lambda: sorted(jobs.values()))


class TestThatIsNoFunction(ToolConformance):
    @override
    def make(self, place: Path) -> ToolCase:
        pad = Pad()
        return ToolCase(pad, {"text": "hello"}, effect=pad.notes.values)


class Pad:
    """A tool that is any object with a tool's members: keeps one note per call."""

    name = "pad"
    description = "Keep a note."
    schema = JsonObject(
        {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
            "additionalProperties": False,
        }
    )
    traits = ToolTraits(idempotent=True, cancellable=True, has_probe=True)

    def __init__(self) -> None:
        self.notes = Notes()

    def check(self, arguments: JsonObject) -> None:
        if arguments["text"] == "":
            raise InvalidArguments(self.name, (("/text", "expected some text"),))

    async def call(self, arguments: JsonObject, context: ToolContext) -> ToolOutput | Accepted:
        await asyncio.sleep(0)
        self.notes.by_key[context.idempotency_key] = str(arguments["text"])
        return ToolOutput("kept")

    async def probe(self, arguments: JsonObject, context: ToolContext) -> Reconciliation:
        del arguments
        happened = context.idempotency_key in self.notes.by_key
        return Reconciliation("done", ToolOutput("kept")) if happened else Reconciliation("failed")

    async def poll(self, handle: str, arguments: JsonObject, context: ToolContext) -> PollResult:
        del arguments, context
        raise LookupError(handle)


class Notes:
    """What a pad holds."""

    def __init__(self) -> None:
        self.by_key: dict[str, str] = {}

    def values(self) -> list[str]:
        return sorted(self.by_key.values())


def _cleared(event: threading.Event | asyncio.Event) -> Callable[[], AbstractContextManager[None]]:
    @contextmanager
    def hold() -> Generator[None]:
        event.clear()
        try:
            yield
        finally:
            event.set()

    return hold


CASES = [
    item for name, item in list(globals().items()) if name.startswith("Test") and issubclass(item, ToolConformance)
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_good_tool_has_a_report_in_which_nothing_is_broken(case: type[ToolConformance]) -> None:
    report = case().report()
    assert report.broken == ()
    assert report.is_kept
    assert {item.promise.partition("=")[0] for item in report.findings} <= {name.partition("=")[0] for name in MEANINGS}
    assert [item for item in report.findings if item.verdict == "kept"]


async def test_a_report_says_promise_by_promise_what_was_kept() -> None:
    report = await conform(TestWithAProbe().make)
    assert isinstance(report, ToolReport)
    lines = str(report).splitlines()
    assert lines[0].startswith("pay declares idempotent=False, cancellable=True, timeout_seconds=30, reconcile: ")
    assert lines[0].endswith(": 9 kept, 2 advice")
    text = " ".join(str(report).split())
    assert (
        "reconcile (it says whether this very call happened, and does nothing) ✓ after a crash (before the body" in text
    )
    assert "between effect and outcome) the next worker asked the probe and ran no body; it told the truth" in text
    assert "cancelled at 1 await, it left nothing or the whole; its run ended as cancelled" in text
    assert "at its limit the body stopped, at 1 await" in text


async def test_a_probe_that_voids_what_it_calls_failed_leaves_nothing_to_advise() -> None:
    report = await conform(TestWithALedgerBesideTheFoldersOfRuns().make)
    about = [(item.verdict, item.seen) for item in report.findings if item.promise == "reconcile"]
    assert [verdict for verdict, _ in about] == ["kept", "kept"], about


async def test_a_declaration_that_could_promise_more_is_advised_to() -> None:
    report = await conform(TestThatDeclaresNothing().make)
    said = {item.promise: (item.seen, item.change) for item in report.findings if item.verdict == "advice"}
    seen, change = said["idempotent=False"]
    assert "the run was blocked until a person says what happened, and nothing was repeated" in seen
    assert change == "give reconcile=…, or make it idempotent, and no person is needed"
    assert "declare timeout_seconds=…" in said["timeout_seconds=None"][1]


async def test_what_cannot_be_tried_is_said_and_not_counted_as_kept() -> None:
    report = await conform(TestIdempotentByItsKey().make)
    (item,) = [item for item in report.findings if item.verdict == "not shown"]
    assert (item.promise, item.change.partition("…")[0]) == ("timeout_seconds=1", "give the case hold=")


async def test_the_body_is_left_for_dead_at_each_of_its_lines_and_whoever_traced_before_goes_on() -> None:
    calls: list[str] = []

    def other(_frame: object, event: str, _arg: object) -> None:
        calls.append(event)

    before = sys.gettrace(), threading.gettrace()
    threading.settrace(other)
    try:
        report = await conform(TestIdempotentByItsKey().make)
        assert threading.gettrace() is other
    finally:
        threading.settrace(before[1])  # type: ignore[arg-type]  # None, which gettrace returns, is taken as well
    assert sys.gettrace() is before[0]
    (seen,) = [item.seen for item in report.findings if "as attempt 2" in item.seen]
    # Two lines of the body, one of `Ledger.pay`, whose `with` is passed twice, and one of `Ledger.connect`.
    assert "before the body, at 4 lines, between effect and outcome" in seen
    assert calls


def test_each_scenario_is_a_test_of_the_kit() -> None:
    tests = [name for name in vars(ToolConformance) if name.startswith("test_")]
    assert len(tests) == len(set(SCENARIOS)) == len(SCENARIOS)
