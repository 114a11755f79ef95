"""Plans the crash suite's task: three entries in the ledger and a statement from a printer among steps that may be repeated, in two plans so that planning is crashed too.

A step whose call is known to have failed, by its probe or by a person, is planned again until it is done.
"""

from checkrein import Plan, Step
from checkrein.harness.planners import LastError, Note, StepRecord

FIRST = (
    Step(id="begin", description="Stamp the beginning", tool_name="stamp", arguments={"name": "begin"}),
    Step(id="deposit", description="Post the deposit", tool_name="post_probed", arguments={"entry": "deposit"}),
    Step(
        id="accounts",
        description="Count the accounts",
        tool_name="sql_query",
        arguments={"query": "SELECT count(*) AS accounts FROM accounts"},
    ),
    Step(id="transfer", description="Post the transfer", tool_name="post_blind", arguments={"entry": "transfer"}),
)
SUMMARY = '{"accounts": 3, "posted": ["deposit", "transfer", "fee"]}\n'
SECOND = (
    Step(
        id="note.md",
        description="Write the note",
        tool_name="write_file",
        arguments={"path": "note.md", "content": "# Accounts\n\nThere are three.\n"},
    ),
    Step(id="fee", description="Post the fee", tool_name="post_probed", arguments={"entry": "fee"}),
    Step(
        id="statement", description="Print a statement", tool_name="print_statement", arguments={"entry": "statement"}
    ),
    Step(id="end", description="Stamp the end", tool_name="stamp", arguments={"name": "end"}),
    Step(
        id="summary.json",
        description="Write the summary",
        tool_name="write_file",
        arguments={"path": "summary.json", "content": SUMMARY},
    ),
)


def plan(_goal: str, history: tuple[StepRecord | Note, ...], _last_error: LastError | None) -> Plan:
    """Return the steps of the current half that are not done."""
    done = {item.step.id for item in history if isinstance(item, StepRecord) and item.status == "done"}
    first = [step for step in FIRST if step.id not in done]
    return Plan(first, final=False) if first else Plan([step for step in SECOND if step.id not in done])
