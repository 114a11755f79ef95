"""Plans the payments, without a model: what is open, then all payments as one batch, and at the end the bank's statement and the report.

The planner keeps no state of its own: what was paid, denied or lost it reads from the history, so it may be asked after a crash, by another process. A payment that
was denied is left out of what follows, and reported; one that the bank never got is planned again; a message such as “pay 208” takes a denial back.
"""

import re
from collections import Counter
from collections.abc import Sequence

from checkrein import Plan, Step
from checkrein.harness.planners import LastError, Note, StepRecord

from .report import REPORT, Invoice, Outcome, invoices_of, report

COUNTRY = "Norway"
TRIES = 3
DENIED = "denied: "


def plan(_goal: str, history: Sequence[StepRecord | Note], _last_error: LastError | None) -> Plan:
    """Return the steps that are still to be done; none when a step failed too often, which gives up."""
    records = [item for item in history if isinstance(item, StepRecord)]
    lost = Counter(record.step.id for record in records if record.status == "failed" and not _is_denied(record))
    if any(times >= TRIES for times in lost.values()):
        return Plan(())
    found = next((record for record in records if record.step.id == "open" and record.status == "done"), None)
    if found is None:
        step = Step(
            id="open", description="Find open invoices", tool_name="open_invoices", arguments={"country": COUNTRY}
        )
        return Plan([step], final=False)
    invoices, outcomes = invoices_of(found.result), _outcomes(history)
    payments = [_payment(invoice) for invoice in invoices if _step_id(invoice.invoice_id) not in outcomes]
    if payments:
        return Plan(payments, final=False)
    return Plan(_ending(invoices, [outcomes[_step_id(invoice.invoice_id)] for invoice in invoices]))


def _is_denied(record: StepRecord) -> bool:
    return record.error.startswith(DENIED)


def _step_id(invoice_id: int | str) -> str:
    return f"pay {invoice_id}"


def _outcomes(history: Sequence[StepRecord | Note]) -> dict[str, Outcome]:
    """Return which payments are settled, by the id of their step: made, or denied and not asked for since."""
    settled: dict[str, Outcome] = {}
    for item in history:
        if isinstance(item, Note):
            wanted = {_step_id(number) for number in re.findall(r"\bpay (\d+)\b", item.text, re.IGNORECASE)}
            settled = {key: value for key, value in settled.items() if value.is_paid or key not in wanted}
        elif item.status == "done":
            settled[str(item.step.id)] = Outcome(is_paid=True)
        elif _is_denied(item):
            settled[str(item.step.id)] = Outcome(is_paid=False, reason=item.error.removeprefix(DENIED))
    return settled


def _payment(invoice: Invoice) -> Step:
    return Step(
        id=_step_id(invoice.invoice_id),
        description=f"Pay invoice {invoice.invoice_id}, {invoice.amount:.2f} USD",
        tool_name="pay",
        arguments={"invoice_id": invoice.invoice_id, "amount": invoice.amount},
        batch="payments",
    )


def _ending(invoices: Sequence[Invoice], outcomes: Sequence[Outcome]) -> list[Step]:
    asked = {"invoices": [invoice.invoice_id for invoice in invoices]}
    text = {"path": REPORT, "content": report(COUNTRY, list(zip(invoices, outcomes, strict=True)))}
    return [
        Step(id="statement", description="Get the bank's statement", tool_name="bank_statement", arguments=asked),
        Step(id="report", description="Write the report", tool_name="write_file", arguments=text),
    ]
