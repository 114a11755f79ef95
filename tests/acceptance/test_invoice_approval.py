"""The example of approvals from the command line: people and programs decide, the process is killed twice, the budget is extended, and every invoice is paid once."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from checkrein import CancelSignal, ToolContext
from checkrein.errors import ToolError
from checkrein.kernel.budget import Amounts
from checkrein.ports.tool import Tool
from checkrein.testing import ToolCase, ToolConformance
from checkrein.tools.function import FunctionTool
from checkrein.values import JsonObject
from tests.acceptance.example_tasks import Bench, copied, limited, loaded

NAME = "invoice-approval"
SECONDS = 60
DENIED = 208
AMOUNTS = {2: 396, 24: 594, 76: 99, 197: 198, 263: 891, 392: 198}
"""What is paid, in cents by invoice."""


def booked_in(ledger: Path) -> Sequence[tuple[int, int]]:
    """Return all rows of a ledger: invoice and cents; none before the first order made it."""
    if not ledger.exists() or not ledger.stat().st_size:
        return []
    with closing(sqlite3.connect(ledger)) as database:
        return database.execute("SELECT invoice_id, cents FROM payments ORDER BY invoice_id").fetchall()


def booked_beside(run_folder: Path) -> Sequence[tuple[int, int]]:
    """Return all rows of the ledger beside a run's folder."""
    return booked_in(run_folder.parent / "ledger.db")


def without_delay(pay: Tool | None) -> Tool:
    """Return the tool that pays, with a bank that takes no time."""
    assert isinstance(pay, FunctionTool)
    pay.function.__globals__["BANK_SECONDS"] = 0.0
    return pay


@dataclass
class Typed:
    """What a command line printed, and how it ended."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, object]:
        """Return the last JSON object that was printed."""
        return json.loads(self.out.splitlines()[-1])


class Office:
    """A folder with the examples, a store of its own, and the bank's ledger."""

    def __init__(self, folder: Path) -> None:
        self.examples = copied(folder)
        self.out = self.examples / NAME / "out"
        self.ledger = self.out / "ledger.db"
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "CHECKREIN_STORE": str(folder / "runs.db"),
        }

    def type(self, *words: str) -> Typed:
        """Run a command line to its end."""
        with self._started(*words) as process:
            out, err = process.communicate(timeout=SECONDS)
        return Typed(process.returncode, out, err)

    def kill_on(self, said: str, *words: str, times: int = 1) -> None:
        """Run a command line and kill it when it has said something so many times."""
        with self._started(*words) as process:
            assert process.stdout is not None
            for line in process.stdout:
                times -= said in line
                if not times:
                    process.send_signal(signal.SIGKILL)
                    break
            process.communicate(timeout=SECONDS)
        assert process.returncode == -signal.SIGKILL

    def begin(self) -> str:
        """Run the task to where it waits for approvals, and return the run's id."""
        assert self.type("run", f"examples/{NAME}", "--trust").code == 4
        return str(self.type("list", "--json").json()["run_id"])

    def booked(self) -> Sequence[tuple[int, int]]:
        """Return all rows of the ledger: invoice and cents."""
        return booked_in(self.ledger)

    def _started(self, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "checkrein", *words],
            cwd=self.examples.parent,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def test_every_approved_invoice_is_paid_once_however_the_run_is_killed(office: Office) -> None:
    run = office.begin()
    assert office.type("deny", run, "2.0", "--reason", "the delivery is not complete").code == 0
    pull = office.type("pull", run).json()
    allowed = ("push", run, '{"decision": "allow", "call_id": "2.1"}', "--version", str(pull["version"]))
    assert office.type(*allowed).code == 0
    assert office.type(*allowed).code == 3, "the log has moved on since that version"
    assert office.type("resume", run).code == 4, "one is still open"
    assert office.type("approve", run, "2.2").code == 0
    assert office.booked() == []

    office.kill_on("waiting for the receipt", "resume", run, times=5)
    assert len(office.booked()) == 5, "the money is gone, and the log does not know"
    resumed = office.type("resume", run)
    assert resumed.code == 5, resumed.err
    assert len(re.findall(r"call 2\.[1-5] reconciled by a probe: done", resumed.out)) == 5

    assert office.type("extend", run, "--tool-calls", "6").code == 0
    office.kill_on("invoice 76: sending the order", "resume", run)
    assert len(office.booked()) == 5, "the log has granted what the bank never got"
    ended = office.type("resume", run)
    assert ended.code == 0, ended.out + ended.err
    assert "call 2.6 reconciled by a probe: failed: the bank never got the order" in ended.out
    assert f"SUCCEEDED · 4/4 checks · 10 of 12 tool calls · run {run}" in ended.out

    assert office.booked() == sorted(AMOUNTS.items())
    report = (office.out / "latest" / "report.md").read_text(encoding="utf-8")
    assert f"Total paid: {sum(AMOUNTS.values()) / 100:.2f} USD, for 6 of 7 open invoices." in report
    assert f"| {DENIED} | 2023-06-29 | 15.86 | the delivery is not complete |" in report
    replayed = office.type("replay", run)
    assert (replayed.code, "0 model calls, 0 tool calls, state equal" in replayed.out) == (0, True)

    all_paid = int(next(line for line in office.type("fork", run).out.splitlines() if "pay 76 done" in line).split()[0])
    forked = office.type("fork", run, "--at", str(all_paid), "--message", f"The rest has arrived: pay {DENIED}")
    assert forked.code == 4, forked.out + forked.err
    fork = re.search(r"^invoice-approval · run (\w+)$", forked.out, re.MULTILINE)
    assert fork
    assert office.type("approve", fork[1]).code == 0
    assert f"SUCCEEDED · 4/4 checks · 11 of 12 tool calls · run {fork[1]}" in office.type("resume", fork[1]).out
    assert office.booked() == sorted({**AMOUNTS, DENIED: 1586}.items())
    assert office.type("verify").code == 0, "the first run is as it was"


async def test_a_payment_that_was_made_twice_fails_the_run(tmp_path: Path) -> None:
    task = limited(loaded(copied(tmp_path), NAME), 5)
    without_delay(task.tool("pay"))
    bench = Bench(task)
    run_id = (await bench.run()).run_id
    for call in ("2.0", "2.1", "2.2"):
        await bench.worker.respond(run_id, {"decision": "deny", "call_id": call})
    assert (await bench.worker.advance(run_id)).phase == "BLOCKED"
    with closing(sqlite3.connect(task.workspace / "ledger.db")) as database, database:
        database.execute("INSERT INTO payments SELECT 'another', invoice_id, cents FROM payments WHERE invoice_id = 2")
    await bench.worker.extend(run_id, Amounts(tool_calls=6))
    ended = await bench.worker.advance(run_id)
    assert (ended.phase, ended.outcome and ended.outcome.code) == ("FAILED", "check_failed")
    assert [finding.check for finding in ended.findings] == ["exactly once", "no doubles", "total"]
    assert ended.findings[0].message == "invoice 2 over 396 cents was booked as [396, 396]"


async def test_an_order_that_the_probe_did_not_find_is_refused_when_it_comes_late(tmp_path: Path) -> None:
    pay = without_delay(loaded(copied(tmp_path), NAME).tool("pay"))
    arguments = JsonObject({"invoice_id": 2, "amount": 3.96})
    context = ToolContext("2.0", 1, "run/2.0", CancelSignal(), workspace=tmp_path / "run")
    answer = await pay.probe(arguments, context)
    assert (answer.outcome, answer.message) == ("failed", "the bank never got the order, and it is void now")
    with pytest.raises(ToolError, match="voided"):
        await pay.call(arguments, context)


class TestPay(ToolConformance):
    """The tool keeps what it declares, whichever of its lines a worker dies at."""

    def make(self, place: Path) -> ToolCase:
        pay = without_delay(loaded(copied(place / "task"), NAME).tool("pay"))
        return ToolCase(pay, {"invoice_id": 2, "amount": 3.96}, effect=booked_beside)
